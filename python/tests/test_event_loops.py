"""Tests of the event loops, beyond those of CPython (`cpython.py`)."""

import asyncio
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import unittest

import hearken

MECHANISMS = [name for name, refused in hearken.mechanisms().items() if refused is None]
SIGNALS = ("rt-signal", "signal-per-fd")


def factories():
    """Yields a name and a function that creates an event loop, for each mechanism and for io_uring."""
    for name in MECHANISMS:
        yield f"selector over {name}", lambda name=name: hearken.new_event_loop(name, completions=False)
        if name not in SIGNALS:
            yield f"completions over {name}", lambda name=name: hearken.new_event_loop(name)
    try:
        hearken.new_event_loop("uring").close()
    except OSError:
        return
    yield "completions over uring", lambda: hearken.new_event_loop("uring")


class LoopTestCase(unittest.TestCase):
    def over_each(self, test, *, completions=False):
        for name, factory in factories():
            if completions and not name.startswith("completions"):
                continue
            with self.subTest(name), asyncio.Runner(loop_factory=factory) as runner:
                runner.run(asyncio.wait_for(test(), 20))


async def echo(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()
    await writer.wait_closed()


class StreamTests(LoopTestCase):
    def test_large_and_small_messages_over_tcp(self):
        async def test():
            async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
                reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
                data = os.urandom(1 << 20)
                writer.write(data)
                self.assertEqual(await reader.readexactly(len(data)), data)
                for _ in range(20):
                    writer.write(b"x")
                    self.assertEqual(await reader.readexactly(1), b"x")
                writer.write_eof()
                self.assertEqual(await reader.read(), b"")
                writer.close()
                await writer.wait_closed()

        self.over_each(test)

    def test_unix_sockets(self):
        async def test():
            with tempfile.TemporaryDirectory() as directory:
                path = os.path.join(directory, "socket")
                async with await asyncio.start_unix_server(echo, path):
                    reader, writer = await asyncio.open_unix_connection(path)
                    writer.write(b"hello")
                    self.assertEqual(await reader.readexactly(5), b"hello")
                    writer.close()
                    await writer.wait_closed()

        self.over_each(test)

    @unittest.skipUnless(shutil.which("openssl"), "openssl is not installed")
    def test_tls(self):
        with tempfile.TemporaryDirectory() as directory:
            certificate, key = os.path.join(directory, "cert"), os.path.join(directory, "key")
            subprocess.run(
                ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                 "-nodes", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
                 "-keyout", key, "-out", certificate], check=True, capture_output=True)
            server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            server_context.load_cert_chain(certificate, key)
            client_context = ssl.create_default_context(cafile=certificate)

            async def test():
                server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=server_context)
                async with server:
                    reader, writer = await asyncio.open_connection(
                        *server.sockets[0].getsockname(), ssl=client_context, server_hostname="localhost")
                    data = os.urandom(300_000)
                    writer.write(data)
                    self.assertEqual(await reader.readexactly(len(data)), data)
                    writer.close()
                    await writer.wait_closed()

            self.over_each(test)


class Recorder(asyncio.Protocol):
    def __init__(self):
        self.events = []
        self.transport = None
        self.closed = asyncio.get_running_loop().create_future()

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.events.append(data)

    def eof_received(self):
        self.events.append("eof")

    def pause_writing(self):
        self.events.append("pause")

    def resume_writing(self):
        self.events.append("resume")

    def connection_lost(self, error):
        self.events.append("lost")
        self.closed.set_result(error)


async def connected():
    """Returns a recorder of one end of a connection, and the socket of the other."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    loop = asyncio.get_running_loop()
    _, recorder = await loop.create_connection(Recorder, sock=ours)
    return recorder, theirs


async def turns(count=5):
    for _ in range(count):
        await asyncio.sleep(0.001)


class TransportTests(LoopTestCase):
    def test_protocol_is_paused_at_the_limit_and_resumed(self):
        async def test():
            recorder, peer = await connected()
            transport = recorder.transport
            transport.set_write_buffer_limits(high=1000, low=100)
            self.assertEqual(transport.get_write_buffer_limits(), (100, 1000))
            while not recorder.events:
                transport.write(bytes(100_000))
            self.assertEqual(recorder.events, ["pause"])
            self.assertGreater(transport.get_write_buffer_size(), 1000)
            loop = asyncio.get_running_loop()
            while "resume" not in recorder.events:
                await loop.sock_recv(peer, 1 << 20)
            self.assertLessEqual(transport.get_write_buffer_size(), 100)
            transport.close()
            await recorder.closed
            peer.close()

        self.over_each(test, completions=True)

    def test_close_sends_what_was_written(self):
        async def test():
            recorder, peer = await connected()
            data = os.urandom(2 << 20)
            recorder.transport.write(data)
            recorder.transport.close()
            self.assertTrue(recorder.transport.is_closing())
            loop = asyncio.get_running_loop()
            received = bytearray()
            while piece := await loop.sock_recv(peer, 1 << 20):
                received += piece
            self.assertEqual(received, data)
            self.assertIsNone(await recorder.closed)
            peer.close()

        self.over_each(test, completions=True)

    def test_nothing_is_received_while_paused(self):
        async def test():
            recorder, peer = await connected()
            recorder.transport.pause_reading()
            peer.send(b"1")
            peer.shutdown(socket.SHUT_WR)
            await turns()
            self.assertEqual(recorder.events, [])
            recorder.transport.resume_reading()
            await recorder.closed
            self.assertEqual(recorder.events, [b"1", "eof", "lost"])
            peer.close()

        self.over_each(test, completions=True)

    def test_abort_discards_pending_writes(self):
        async def test():
            recorder, peer = await connected()
            recorder.transport.write(bytes(4 << 20))
            recorder.transport.abort()
            self.assertIsNone(await recorder.closed)
            recorder.transport.write(b"ignored")
            peer.close()

        self.over_each(test, completions=True)

    def test_writes_accept_all_bytes_like_objects(self):
        async def test():
            recorder, peer = await connected()
            for data in (b"a", bytearray(b"b"), memoryview(b"c"), memoryview(b"d-e")[::2]):
                recorder.transport.write(data)
            recorder.transport.writelines([b"f", b"g"])
            with self.assertRaises(TypeError):
                recorder.transport.write("text")
            recorder.transport.write_eof()
            with self.assertRaises(RuntimeError):
                recorder.transport.write(b"late")
            await turns()
            self.assertEqual(peer.recv(100), b"abcdefg"[:3] + b"de" + b"fg")
            recorder.transport.close()
            await recorder.closed
            peer.close()

        self.over_each(test, completions=True)

    def test_errors_of_the_protocol_close_the_connection(self):
        async def test():
            contexts = []
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, context: contexts.append(context))
            recorder, peer = await connected()
            recorder.data_received = None
            recorder.transport.set_protocol(recorder)
            peer.send(b"x")
            error = await recorder.closed
            self.assertIsInstance(error, TypeError)
            self.assertIn("data_received", contexts[0]["message"])
            peer.close()

        self.over_each(test, completions=True)

    def test_reset_is_reported(self):
        async def test():
            server = socket.create_server(("127.0.0.1", 0))
            loop = asyncio.get_running_loop()
            _, recorder = await loop.create_connection(Recorder, *server.getsockname())
            peer = server.accept()[0]
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            peer.close()
            self.assertIsInstance(await recorder.closed, ConnectionResetError)
            server.close()

        self.over_each(test, completions=True)

    def test_transports_leave_no_descriptors(self):
        async def exchange():
            recorder, peer = await connected()
            recorder.transport.write(b"x")
            peer.close()
            await recorder.closed

        async def test():
            await exchange()
            before = len(os.listdir("/proc/self/fd"))
            for _ in range(50):
                await exchange()
            await turns()
            self.assertLessEqual(len(os.listdir("/proc/self/fd")), before + 1)

        self.over_each(test, completions=True)


class ProcessTests(LoopTestCase):
    def test_subprocesses_and_threads(self):
        async def test():
            command = ["-c", "print(input()[::-1])"]
            process = await asyncio.create_subprocess_exec(
                sys.executable, *command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            output, _ = await process.communicate(b"abc\n")
            self.assertEqual(output, b"cba\n")
            self.assertEqual(await asyncio.to_thread(lambda: 5), 5)

        self.over_each(test)

    def test_signal_handlers(self):
        async def test():
            received = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, received.set_result, None)
            os.kill(os.getpid(), signal.SIGUSR1)
            await received

        self.over_each(test)

    def test_interrupt_cancels_the_main_task(self):
        # The signal is ignored in background processes of a shell.
        previous = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, previous)
        for name, factory in factories():
            with self.subTest(name), asyncio.Runner(loop_factory=factory) as runner:
                timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
                timer.start()
                with self.assertRaises(KeyboardInterrupt):
                    runner.run(asyncio.sleep(20))
                timer.join()

    def test_calls_of_other_threads_end_a_wait(self):
        async def test():
            loop = asyncio.get_running_loop()
            done = loop.create_future()
            thread = threading.Timer(0.02, loop.call_soon_threadsafe, (done.set_result, "done"))
            thread.start()
            self.assertEqual(await done, "done")
            thread.join()

        self.over_each(test)

    def test_loops_refuse_other_threads_and_forks(self):
        loop = hearken.new_event_loop("epoll-edge")
        loop.run_until_complete(asyncio.sleep(0))
        errors = []

        def use():
            try:
                loop.run_until_complete(asyncio.sleep(0))
            except RuntimeError as error:
                errors.append(str(error))

        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
        self.assertIn("belongs to the thread", errors[0])
        child = os.fork()
        if child == 0:
            use()
            os._exit(0 if len(errors) == 2 else 1)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()

    def test_signals_cannot_carry_completions(self):
        with self.assertRaisesRegex(NotImplementedError, "completions=False"):
            hearken.new_event_loop("rt-signal")


if __name__ == "__main__":
    unittest.main()
