"""Selectors over every event mechanism, with the interface of the standard module `selectors`.

    >>> import os
    >>> from hearken import selectors
    >>> selector = selectors.EpollEdgeSelector()
    >>> reader, writer = os.pipe()
    >>> key = selector.register(reader, selectors.EVENT_READ, "data")
    >>> os.write(writer, b"x")
    1
    >>> [(key.data, events) for key, events in selector.select()]
    [('data', 1)]
    >>> selector.close(); os.close(reader); os.close(writer)

All selectors are level-triggered, whatever their mechanism is: a descriptor is in the result of every
`select` while it is ready.
"""

import os
import select
import selectors as _stdlib
import time
import weakref
from selectors import EVENT_READ, EVENT_WRITE, SelectorKey

from . import _hearken

__all__ = [
    "DefaultSelector",
    "DevPollSelector",
    "EVENT_READ",
    "EVENT_WRITE",
    "EpollBatchedSelector",
    "EpollEdgeSelector",
    "EpollLevelSelector",
    "EpollOnceSelector",
    "LocalitySelector",
    "PollSelector",
    "RtSignalSelector",
    "SelectSelector",
    "SelectorKey",
    "SignalPerFdSelector",
    "UringPollSelector",
]


def interest(events):
    """Translates the flags of this module to those of the native poller."""
    return (1 if events & EVENT_READ else 0) | (4 if events & EVENT_WRITE else 0)


# Seconds between checks of descriptors that a mechanism of signals cannot watch.
_INTERVAL = 0.01

_open = weakref.WeakSet()


def _after_fork():
    # Mechanisms belong to the parent. A child opens its own when it uses a selector, and not before: signals
    # of an open file go to one process only.
    _hearken.after_fork()
    for selector in list(_open):
        selector._is_inherited = True


os.register_at_fork(after_in_child=_after_fork)


class DefaultSelector(_stdlib._BaseSelectorImpl):
    """A selector over the mechanism that is named by `events`, for example `"rt-signal:dequeue=one"`.

    Without a name, the environment variable `HEARKEN_EVENTS` selects the mechanism. If it is not set, the
    fastest mechanism of this machine is used (`"auto"`).

    Raises `ValueError` if the name is unknown, and `OSError` if the kernel refuses the mechanism.
    """

    mechanism = None

    def __init__(self, events=None):
        super().__init__()
        self._poller = _hearken.Poller(events or self.mechanism)
        # Descriptors that a mechanism of signals cannot watch, such as pidfds.
        self._unwatchable = {}
        self._is_inherited = False
        _open.add(self)

    @property
    def events(self):
        """The name of the mechanism."""
        return self._poller.events

    def __getattr__(self, name):
        # Some mechanisms have no descriptor that another event loop can watch. Their selectors have no
        # method fileno(), like `selectors.PollSelector`.
        if name == "fileno" and self._poller is not None and self._poller.descriptor is not None:
            return lambda: self._poller.descriptor
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def register(self, fileobj, events, data=None):
        key = super().register(fileobj, events, data)
        try:
            self._watch(key.fd, events)
        except BaseException:
            super().unregister(fileobj)
            raise
        return key

    def _watch(self, fd, events):
        if self._is_inherited:
            self._reopen()
        try:
            self._poller.set(fd, interest(events))
        except PermissionError:
            if self._poller.watches_all:
                raise
            self._unwatchable[fd] = events

    def unregister(self, fileobj):
        key = super().unregister(fileobj)
        if self._unwatchable.pop(key.fd, None) is not None or self._is_inherited:
            return key
        try:
            self._poller.remove(key.fd)
        except OSError:
            # The descriptor was closed before, which ended its registration.
            pass
        return key

    def modify(self, fileobj, events, data=None):
        key = self.get_key(fileobj)
        if events == key.events and data == key.data:
            return key
        if not events or events & ~(EVENT_READ | EVENT_WRITE):
            raise ValueError(f"Invalid events: {events!r}")
        if events != key.events:
            try:
                self._watch(key.fd, events)
            except BaseException:
                super().unregister(fileobj)
                raise
        key = key._replace(events=events, data=data)
        self._fd_to_key[key.fd] = key
        return key

    def select(self, timeout=None):
        if self._is_inherited:
            self._reopen()
        if self._unwatchable:
            return self._select_all(timeout)
        return self._poller_select(timeout)

    def _poller_select(self, timeout):
        try:
            return self._poller.select(self._fd_to_key, timeout)
        except PermissionError:
            if not self._poller.is_bound:
                raise
        # The kernel delivers the events of this mechanism to the thread that created it.
        self._reopen()
        return self._poller.select(self._fd_to_key, timeout)

    def _select_all(self, timeout):
        """Waits for all descriptors. Checks those that the mechanism cannot watch at intervals."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            poller = select.poll()
            for fd, events in self._unwatchable.items():
                poller.register(fd, interest(events))
            ready = []
            for fd, flags in poller.poll(0):
                key = self._fd_to_key[fd]
                read = EVENT_READ if flags & ~select.POLLOUT else 0
                write = EVENT_WRITE if flags & ~select.POLLIN else 0
                ready.append((key, (read | write) & key.events))
            left = None if end is None else end - time.monotonic()
            interval = 0 if ready else _INTERVAL if left is None else min(left, _INTERVAL)
            ready += self._poller_select(interval)
            if ready or (left is not None and left <= 0):
                return ready

    def _reopen(self):
        self._is_inherited = False
        self._unwatchable.clear()
        self._poller = _hearken.Poller(self.events)
        for key in self._fd_to_key.values():
            self._watch(key.fd, key.events)

    def close(self):
        super().close()
        self._poller = None
        _open.discard(self)


class SelectSelector(DefaultSelector):
    """A selector over select(2), without its limit of 1,024 descriptors."""

    mechanism = "select"


class PollSelector(DefaultSelector):
    """A selector over poll(2)."""

    mechanism = "poll"


class LocalitySelector(DefaultSelector):
    """A selector over poll(2) that checks recently active descriptors more often."""

    mechanism = "locality"


class DevPollSelector(DefaultSelector):
    """A selector over an implementation of Solaris' /dev/poll."""

    mechanism = "dev-poll"


class EpollLevelSelector(DefaultSelector):
    """A selector over level-triggered epoll(7)."""

    mechanism = "epoll-level"


class EpollEdgeSelector(DefaultSelector):
    """A selector over edge-triggered epoll(7)."""

    mechanism = "epoll-edge"


class EpollOnceSelector(DefaultSelector):
    """A selector over epoll(7) that registers both directions once."""

    mechanism = "epoll-once"


class EpollBatchedSelector(DefaultSelector):
    """A selector over epoll(7) that submits changes together through io_uring."""

    mechanism = "epoll-batched"


class RtSignalSelector(DefaultSelector):
    """A selector over queued real-time signals. It watches sockets, pipes and terminals."""

    mechanism = "rt-signal"


class SignalPerFdSelector(DefaultSelector):
    """A selector over real-time signals, with at most one pending for each descriptor."""

    mechanism = "signal-per-fd"


class UringPollSelector(DefaultSelector):
    """A selector over poll requests of io_uring(7)."""

    mechanism = "uring-poll"
