"""Tests of `hearken.selectors` and `hearken.epoll`, beyond those of CPython (`cpython.py`)."""

import errno
import os
import select
import signal
import socket
import threading
import time
import unittest

import hearken
from hearken import selectors

MECHANISMS = [name for name, refused in hearken.mechanisms().items() if refused is None]
CLASSES = [
    selectors.DevPollSelector,
    selectors.EpollBatchedSelector,
    selectors.EpollEdgeSelector,
    selectors.EpollLevelSelector,
    selectors.EpollOnceSelector,
    selectors.LocalitySelector,
    selectors.PollSelector,
    selectors.RtSignalSelector,
    selectors.SelectSelector,
    selectors.SignalPerFdSelector,
    selectors.UringPollSelector,
]


class SelectorTests(unittest.TestCase):
    def pair(self):
        pair = socket.socketpair()
        for end in pair:
            end.setblocking(False)
            self.addCleanup(end.close)
        return pair

    def over_each(self):
        for name in MECHANISMS:
            with self.subTest(name), selectors.DefaultSelector(name) as selector:
                yield selector

    def test_each_mechanism_has_a_class(self):
        named = {mechanism.mechanism for mechanism in CLASSES}
        self.assertEqual(named, set(hearken.mechanisms()) - {"kernel-queue"})

    def test_events_are_repeated_while_a_descriptor_is_ready(self):
        for selector in self.over_each():
            reader, writer = self.pair()
            selector.register(reader, selectors.EVENT_READ)
            writer.send(b"x")
            for _ in range(3):
                self.assertEqual([key.fileobj for key, _ in selector.select(5)], [reader])
            reader.recv(10)
            self.assertEqual(selector.select(0), [])

    def test_registrations_during_a_wait_take_effect(self):
        for selector in self.over_each():
            reader, writer = self.pair()
            writer.send(b"x")

            def register():
                time.sleep(0.05)
                selector.register(reader, selectors.EVENT_READ, "late")

            thread = threading.Thread(target=register)
            thread.start()
            ready = []
            while not ready:
                ready = selector.select(5)
            thread.join()
            self.assertEqual([key.data for key, _ in ready], ["late"])

    def test_another_thread_may_select(self):
        for selector in self.over_each():
            reader, writer = self.pair()
            selector.register(reader, selectors.EVENT_READ)
            writer.send(b"x")
            found = []
            thread = threading.Thread(target=lambda: found.extend(selector.select(5)))
            thread.start()
            thread.join()
            self.assertEqual(len(found), 1)

    def test_signal_handlers_run_during_a_wait(self):
        calls = []
        previous = signal.signal(signal.SIGALRM, lambda *_: calls.append(1))
        self.addCleanup(signal.signal, signal.SIGALRM, previous)
        for selector in self.over_each():
            reader, _writer = self.pair()
            selector.register(reader, selectors.EVENT_READ)
            calls.clear()
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            self.assertEqual(selector.select(0.1), [])
            self.assertEqual(calls, [1])

    def test_child_has_its_own_mechanism(self):
        for selector in self.over_each():
            reader, writer = self.pair()
            selector.register(reader, selectors.EVENT_READ)
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    writer.send(b"x")
                    status = 0 if len(selector.select(5)) == 1 else 2
                    selector.unregister(reader)
                    selector.close()
                finally:
                    os._exit(status)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
            self.assertEqual(len(selector.select(5)), 1)

    def test_descriptors_that_raise_no_signals_are_watched(self):
        with selectors.RtSignalSelector() as selector:
            counter = os.eventfd(0)
            self.addCleanup(os.close, counter)
            selector.register(counter, selectors.EVENT_READ)
            self.assertEqual(selector.select(0.02), [])
            os.eventfd_write(counter, 1)
            self.assertEqual([key.fd for key, _ in selector.select(5)], [counter])
            reader, writer = self.pair()
            selector.register(reader, selectors.EVENT_READ)
            writer.send(b"x")
            os.eventfd_read(counter)
            self.assertEqual([key.fileobj for key, _ in selector.select(5)], [reader])
            selector.unregister(counter)

    def test_unknown_names_are_value_errors(self):
        with self.assertRaisesRegex(ValueError, "epoll-edge"):
            selectors.DefaultSelector("epoll-egde")

    def test_environment_selects_the_mechanism(self):
        os.environ["HEARKEN_EVENTS"] = "poll"
        self.addCleanup(os.environ.pop, "HEARKEN_EVENTS")
        with selectors.DefaultSelector() as selector:
            self.assertEqual(selector.events, "poll")
        with selectors.SelectSelector() as selector:
            self.assertEqual(selector.events, "select")


class EpollTests(unittest.TestCase):
    def pair(self):
        pair = socket.socketpair()
        for end in pair:
            self.addCleanup(end.close)
        return pair

    def test_level_and_edge_registrations_mix(self):
        with hearken.epoll(events="epoll-edge") as poller:
            level, edge = self.pair()
            poller.register(level, select.EPOLLOUT)
            poller.register(edge, select.EPOLLOUT | select.EPOLLET)
            expected = {level.fileno(): select.EPOLLOUT, edge.fileno(): select.EPOLLOUT}
            self.assertEqual(dict(poller.poll(5)), expected)
            self.assertEqual(poller.poll(0), [(level.fileno(), select.EPOLLOUT)])

    def test_level_triggered_mechanisms_refuse_edges(self):
        with hearken.epoll(events="poll") as poller:
            with self.assertRaises(OSError) as raised:
                poller.register(self.pair()[0], select.EPOLLIN | select.EPOLLET)
            self.assertEqual(raised.exception.errno, errno.EOPNOTSUPP)

    def test_one_shot_registrations_are_rearmed_by_modify(self):
        for name in MECHANISMS:
            with self.subTest(name), hearken.epoll(events=name) as poller:
                end, _other = self.pair()
                mask = select.EPOLLOUT | select.EPOLLONESHOT
                poller.register(end, mask)
                self.assertEqual(len(poller.poll(5)), 1)
                self.assertEqual(poller.poll(0), [])
                poller.modify(end, mask)
                self.assertEqual(len(poller.poll(5)), 1)

    def test_end_of_stream_is_reported(self):
        for name in MECHANISMS:
            with self.subTest(name), hearken.epoll(events=name) as poller:
                end, other = self.pair()
                poller.register(end, select.EPOLLIN)
                other.shutdown(socket.SHUT_WR)
                self.assertEqual(poller.poll(5), [(end.fileno(), select.EPOLLIN)])

    def test_wakes_another_poller(self):
        with hearken.epoll(events="epoll-level") as inner, select.epoll() as outer:
            end, _other = self.pair()
            outer.register(inner.fileno(), select.EPOLLIN)
            self.assertEqual(outer.poll(0), [])
            inner.register(end, select.EPOLLOUT)
            self.assertEqual(outer.poll(5), [(inner.fileno(), select.EPOLLIN)])


if __name__ == "__main__":
    unittest.main()
