"""Event loops for asyncio."""

import asyncio
import socket
from asyncio import futures, sslproto

from . import _hearken, selectors
from ._transport import SocketTransport

class SelectorEventLoop(asyncio.SelectorEventLoop):
    """asyncio's own event loop over the mechanism `events`: see `hearken.selectors.DefaultSelector`."""

    def __init__(self, events=None):
        super().__init__(selectors.DefaultSelector(events))


class _CompletionSelector(selectors.EpollLevelSelector):
    """Waits for completions of connections, and for the readiness of other descriptors."""

    def __init__(self, events):
        super().__init__()
        self.driver = _hearken.Driver(events, self._poller.descriptor)
        self.loop = None

    def select(self, timeout=None):
        loop = self.loop
        if self.driver.turn(timeout, loop._ready, loop._scheduled):
            return super().select(0)
        return ()

    def close(self):
        self.driver.close()
        self.loop = None
        super().close()


class EventLoop(asyncio.SelectorEventLoop):
    """An event loop based on completions.

    The operations of stream sockets are performed natively, by io_uring (`events="uring"`) or over a mechanism
    (`"epoll-edge"`). Without a name, the environment variable `HEARKEN_EVENTS` selects it, or the fastest
    mechanism is used. Other descriptors (`add_reader`, pipes, datagrams) are watched by epoll(7).

    The loop belongs to the thread that runs it first, and not to processes that it forks.

    Raises `ValueError` if the name is unknown, and `OSError` if the kernel refuses it.
    """

    # Until the base class is initialised, so that a loop that could not be created needs no close().
    _closed = True

    def __init__(self, events=None):
        selector = _CompletionSelector(events)
        super().__init__(selector)
        selector.loop = self

    @property
    def events(self):
        """The name of the implementation."""
        return self._selector.driver.events

    def stop(self):
        super().stop()
        self._selector.driver.leave()

    def close(self):
        if not self.is_running() and not self.is_closed():
            for transport in list(self._transports.values()):
                if isinstance(transport, SocketTransport):
                    transport.abandon()
        super().close()

    def _write_to_self(self):
        self._selector.driver.wake()

    def _make_socket_transport(self, sock, protocol, waiter=None, *, extra=None, server=None, **options):
        if not _is_stream_socket(sock):
            # asyncio's own transport, over readiness.
            return super()._make_socket_transport(
                sock, protocol, waiter, extra=extra, server=server, **options)
        self._ensure_fd_no_transport(sock)
        transport = SocketTransport(self, sock, protocol, extra, server)
        self.call_soon(protocol.connection_made, transport)
        self.call_soon(transport.start)
        if waiter is not None:
            self.call_soon(futures._set_result_unless_cancelled, waiter, None)
        return transport

    def _make_ssl_transport(self, rawsock, protocol, sslcontext, waiter=None, *, server_side=False,
                            server_hostname=None, extra=None, server=None, **timeouts):
        tls = sslproto.SSLProtocol(
            self, protocol, sslcontext, waiter, server_side, server_hostname, **timeouts)
        self._make_socket_transport(rawsock, tls, extra=extra, server=server)
        return tls._app_transport


def _is_stream_socket(sock):
    families = (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX)
    # Not isinstance(): a mock has no descriptor of its own.
    return issubclass(type(sock), socket.socket) and sock.family in families and sock.type == socket.SOCK_STREAM


def new_event_loop(events=None, *, completions=True):
    """Creates an event loop for asyncio: an `EventLoop`, or a `SelectorEventLoop` without `completions`.

        >>> import hearken
        >>> loop = hearken.new_event_loop("epoll-edge")
        >>> loop.run_until_complete(asyncio.sleep(0, "done"))
        'done'
        >>> loop.close()
    """
    return (EventLoop if completions else SelectorEventLoop)(events)


def run(main, *, events=None, completions=True, debug=None):
    """Runs a coroutine in a new event loop, like `asyncio.run`."""

    def factory():
        return new_event_loop(events, completions=completions)

    with asyncio.Runner(debug=debug, loop_factory=factory) as runner:
        return runner.run(main)
