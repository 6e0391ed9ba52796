"""The transport of the event loop that is based on completions."""

import contextvars
import sys
import warnings
from asyncio import constants, protocols, transports
from asyncio.log import logger
from asyncio.trsock import TransportSocket

from . import _hearken

# Servers count their transports since Python 3.12, by identity since 3.13.
_SERVERS_KNOW_TRANSPORTS = sys.version_info >= (3, 13)


class SocketTransport(transports._FlowControlMixin, transports.Transport):
    """A connected stream socket. The native part sends, receives and counts; this class handles rare events."""

    _start_tls_compatible = True
    _sendfile_compatible = constants._SendfileMode.TRY_NATIVE

    def __init__(self, loop, sock, protocol, extra=None, server=None):
        super().__init__(extra, loop)
        self._extra["socket"] = TransportSocket(sock)
        for name, query in (("sockname", sock.getsockname), ("peername", sock.getpeername)):
            if name not in self._extra:
                try:
                    self._extra[name] = query()
                except OSError:
                    self._extra[name] = None
        self._sock = sock
        self._sock_fd = sock.fileno()
        self._server = None
        self._protocol = None
        self._closing = False
        self._paused = False
        self._eof = False
        self._discarded = 0
        # What arrived after reading was paused. None stands for the end of the stream.
        self._held = []
        self._empty_waiter = None
        self._run = contextvars.copy_context().run
        driver = loop._selector.driver
        self._core = _hearken.Transport(driver, self, self._run)
        # The native method is called without this class in between.
        self.write = self._core.write
        self.set_protocol(protocol)
        driver.adopt(self._sock_fd, self._core)
        if server is not None:
            self._server = server
            server._attach(*self._server_arguments())
        loop._transports[self._sock_fd] = self

    def _server_arguments(self):
        return (self,) if _SERVERS_KNOW_TRANSPORTS else ()

    def __repr__(self):
        state = "closed" if self._sock is None else "closing" if self._closing else "open"
        return f"<{type(self).__name__} {state} fd={self._sock_fd}>"

    def start(self):
        """Starts to receive, after the protocol was informed of the connection."""
        if not self._closing and not self._paused:
            self._core.set_reading(True)

    def set_protocol(self, protocol):
        self._protocol = protocol
        if isinstance(protocol, protocols.BufferedProtocol):
            self._core.set_receiver(self._receive_into_buffer)
        else:
            self._core.set_receiver(protocol.data_received)

    def get_protocol(self):
        return self._protocol

    def _receive_into_buffer(self, data):
        protocols._feed_data_to_buffered_proto(self._protocol, data)

    # Reading

    def is_reading(self):
        return not self._closing and not self._paused

    def pause_reading(self):
        if self._closing or self._paused:
            return
        self._paused = True
        self._core.set_reading(False)

    def resume_reading(self):
        if self._closing or not self._paused:
            return
        self._paused = False
        if self._held:
            self._loop.call_soon(self._deliver_held)
        else:
            self._core.set_reading(True)

    def _deliver_held(self):
        while self._held and not self._paused and not self._closing:
            data = self._held.pop(0)
            if data is None:
                self._on_end()
                continue
            try:
                if isinstance(self._protocol, protocols.BufferedProtocol):
                    self._receive_into_buffer(data)
                else:
                    self._protocol.data_received(data)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                self._on_callback_error(error)
        if not self._paused and not self._closing:
            self._core.set_reading(True)

    # Writing

    def can_write_eof(self):
        return True

    def write_eof(self):
        if self._closing or self._eof:
            return
        self._eof = True
        self._core.end()

    def set_write_buffer_limits(self, high=None, low=None):
        if high is None:
            high = 64 * 1024 if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self._core.set_limits(low, high)

    def get_write_buffer_limits(self):
        return self._core.limits

    def get_write_buffer_size(self):
        return self._core.buffered

    # Used by loop.sendfile()

    def _make_empty_waiter(self):
        if self._empty_waiter is not None:
            raise RuntimeError("Empty waiter is already set")
        self._empty_waiter = self._loop.create_future()
        self.write = self._refuse_write
        if not self._core.buffered:
            self._empty_waiter.set_result(None)
        return self._empty_waiter

    def _reset_empty_waiter(self):
        self._empty_waiter = None
        self.write = self._core.write

    def _refuse_write(self, data):
        raise RuntimeError("unable to write; sendfile is in progress")

    # Closing

    def is_closing(self):
        return self._closing

    def close(self):
        if self._closing:
            return
        self._closing = True
        self._core.set_reading(False)
        self._finish_closing()

    def _finish_closing(self):
        # Until all bytes are sent, more may be written, as TLS does.
        if self._core.discard_writes():
            self._loop.call_soon(self._call_connection_lost, None)

    def abort(self):
        self._force_close(None)

    def _force_close(self, error):
        if self._closing and not self._core.buffered:
            return
        if not self._closing:
            self._closing = True
            self._core.set_reading(False)
        self._core.forget_sends()
        self._loop.call_soon(self._call_connection_lost, error)

    def _call_connection_lost(self, error):
        if self._sock is None:
            return
        try:
            self._protocol.connection_lost(error)
        finally:
            self._close_socket()

    def _close_socket(self):
        if self._empty_waiter is not None and not self._empty_waiter.done():
            self._empty_waiter.set_exception(ConnectionError("Connection is closed by peer"))
        # The native part closes the descriptor.
        self._sock.detach()
        self._core.release()
        self._sock = None
        self._protocol = None
        self._loop = None
        self._held.clear()
        server, self._server = self._server, None
        if server is not None:
            server._detach(*self._server_arguments())

    def abandon(self):
        """Closes the socket of a transport that is still open when its event loop is closed."""
        if self._sock is not None:
            warnings.warn(f"unclosed transport {self!r}", ResourceWarning, source=self)
            self._closing = True
            self._close_socket()

    def _fatal_error(self, error, message="Fatal error on transport"):
        if isinstance(error, OSError):
            if self._loop.get_debug():
                logger.debug("%r: %s", self, message, exc_info=True)
        else:
            context = {"message": message, "exception": error, "transport": self, "protocol": self._protocol}
            self._loop.call_exception_handler(context)
        self._force_close(error)

    # Called by the native part

    def _on_held(self, data):
        if not self._closing:
            self._held.append(data)

    def _on_end(self):
        if self._closing:
            return
        if self._paused:
            self._held.append(None)
            return
        try:
            keeps_open = self._run(self._protocol.eof_received)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self._fatal_error(error, "Fatal error: protocol.eof_received() call failed.")
            return
        if not keeps_open:
            self.close()

    def _on_failure(self, error):
        if self._sock is not None:
            self._fatal_error(error, "Fatal error on socket transport")

    def _on_callback_error(self, error):
        if self._sock is not None:
            self._fatal_error(error, "Fatal error: protocol.data_received() call failed.")

    def _on_discarded(self):
        if self._discarded >= constants.LOG_THRESHOLD_FOR_CONNLOST_WRITES:
            logger.warning("socket.send() raised exception.")
        self._discarded += 1

    def _on_full(self):
        self._protocol_paused = True
        self._call_flow_control(self._protocol.pause_writing)

    def _on_drained(self):
        self._protocol_paused = False
        if self._protocol is not None:
            self._call_flow_control(self._protocol.resume_writing)

    def _call_flow_control(self, method):
        try:
            method()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self._loop.call_exception_handler({
                "message": f"protocol.{method.__name__}() failed",
                "exception": error,
                "transport": self,
                "protocol": self._protocol,
            })

    def _on_all_sent(self):
        if self._empty_waiter is not None and not self._empty_waiter.done():
            self._empty_waiter.set_result(None)
        if self._closing:
            self._finish_closing()
