//! Operations and completions: the interface that servers use.
//!
//! A server written against [`Io`] starts operations (accept, connect, receive, send, send a file
//! range, close) and takes their completions. It does not depend on how they are performed: by
//! waiting for readiness ([`readiness`]) or by the kernel ([`uring`]).

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;

use self::kernel::{Kernel, Linux};
use crate::event::Token;
use crate::mechanism::Counters;
use crate::timer::Time;
use crate::waker::Waker;

mod address;
mod buffer;
mod kernel;
mod large_transfers;
mod named;
mod peek;
pub mod readiness;
mod relay;
mod security;
mod select;
mod shared;
#[cfg(feature = "simulation")]
pub mod sim;
mod sockets;
pub mod uring;

pub use address::{Address, AddressError};
pub use buffer::{Buffer, Pool};
pub use named::UnknownName;
pub use peek::PeekResult;
pub use security::Security;
pub use select::{Spec, URING, URING_OPTIONS, URING_SUMMARY, Visitor, find, names, visit};
pub use sockets::{StreamSocket, create_listener};

/// Options of a listener.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ListenOptions {
    /// Maximum number of connections that wait to be accepted. The kernel limits it to
    /// `net.core.somaxconn`.
    pub backlog: u32,
    /// Lets several sockets listen on the address; the kernel distributes connections among them
    /// (`SO_REUSEPORT`). Ignored for Unix sockets.
    pub reuse_port: bool,
    /// Maximum time for which the kernel withholds a connection until its first bytes arrive
    /// (`TCP_DEFER_ACCEPT`), in whole seconds, rounded up. Zero turns it off. Ignored for Unix
    /// sockets.
    ///
    /// A withheld connection takes no descriptor and no memory of the application. It counts
    /// against the limit of half-open connections, which equals the backlog: many silent clients
    /// delay others.
    pub defer: Duration,
    /// Reports the peer's address in [`CompletionKind::Accepted`]. This costs one allocation with
    /// [`readiness`], and one more call with [`uring`]. Ignored for Unix sockets.
    pub peers: bool,
}

impl Default for ListenOptions {
    fn default() -> ListenOptions {
        ListenOptions { backlog: 65_535, reuse_port: false, defer: Duration::ZERO, peers: false }
    }
}

/// Options of a connection to open.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct ConnectOptions {
    /// Local address to connect from. The kernel chooses one by default.
    pub source: Option<SocketAddr>,
    /// Number of the TLS settings of the connection, for implementations with TLS; 0 for their default.
    pub tls: u32,
    /// Size of the receive buffer in bytes (`SO_RCVBUF`), which the kernel doubles. It limits the
    /// window that the peer sees from the start. By default, the kernel adapts the size.
    pub receive_buffer: Option<u32>,
}

/// Bytes to send: a head and a body.
pub struct Outgoing {
    /// The bytes sent first.
    pub head: Buffer,
    /// The content sent after the head.
    pub body: Body,
}

impl Outgoing {
    /// Creates one from a copy of `bytes`, without a body.
    pub fn copy(pool: &Pool, bytes: &[u8]) -> Outgoing {
        let mut head = pool.acquire_over_limit();
        head.as_vec().extend_from_slice(bytes);
        Outgoing { head, body: Body::None }
    }
}

/// The content sent after a head.
#[derive(Clone, Debug, Default)]
pub enum Body {
    /// Nothing.
    #[default]
    None,
    /// Bytes in memory.
    Bytes(Bytes),
    /// A file range.
    File(FilePart),
}

/// A file range, sent without a copy through user space.
#[derive(Clone, Debug)]
pub struct FilePart {
    /// The file.
    pub file: Rc<OwnedFd>,
    /// Start of the range, in bytes.
    pub offset: u64,
    /// Length of the range, in bytes. If the file turns out to be shorter, the send fails with
    /// [`UnexpectedEof`](io::ErrorKind::UnexpectedEof).
    pub length: u64,
}

impl FilePart {
    /// Reads the first bytes of the range.
    ///
    /// # Errors
    /// The file cannot be read, or is too short ([`UnexpectedEof`](io::ErrorKind::UnexpectedEof)).
    pub fn read(&self, mut into: &mut [u8]) -> io::Result<()> {
        let mut offset = self.offset;
        while !into.is_empty() {
            match rustix::io::pread(&*self.file, &mut *into, offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    into = &mut into[count..];
                    offset += count as u64;
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Outgoing({} bytes and {:?})", self.head.len(), self.body)
    }
}

/// The operation that follows a [last send](Io::send_last).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CloseMode {
    /// [`Io::shutdown`].
    Shutdown,
    /// [`Io::close`].
    Close,
}

/// The outcome of a [last send](Io::send_last).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum SendOutcome {
    /// All bytes are sent. No [`CompletionKind::Sent`] follows; the caller shuts down or closes.
    Complete,
    /// The send completes with [`CompletionKind::Sent`]. Then the caller shuts down or closes.
    Pending,
    /// The implementation closes the connection after the send. `Sent(Ok(()))` is then the last
    /// completion and ends the token. After `Sent(Err(_))` the caller closes.
    PendingClose,
}

/// A completed operation, or another event.
#[derive(Debug)]
pub struct Completion {
    /// The listener or connection.
    pub token: Token,
    /// The event.
    pub kind: CompletionKind,
}

// `Io::next` moves every completion.
const _: () = assert!(size_of::<Completion>() <= 32);

/// An event of a listener or connection.
#[derive(Debug)]
#[non_exhaustive]
pub enum CompletionKind {
    /// The listener accepted a connection.
    Accepted {
        /// The token of the connection. It receives nothing until it is [started](Io::start).
        token: Token,
        /// The peer's address, if the listener [reports it](ListenOptions::peers). It is boxed
        /// because its 32 bytes would make every completion larger.
        peer: Option<Box<SocketAddr>>,
    },
    /// The listener could not accept (out of descriptors or memory) and stopped. The caller decides
    /// when to [start](Io::start) it again.
    AcceptFailed(io::Error),
    /// The connection is established, or failed and can only be [closed](Io::close).
    Connected(io::Result<()>),
    /// The next bytes of the stream; never empty.
    Received(Buffer),
    /// The peer ended its side. Nothing more is received. Sending still works.
    End,
    /// The [watched](Io::watch) descriptor is readable. It must be [started](Io::start) again for
    /// the next notification.
    Readable,
    /// Receiving failed. The connection is unusable.
    ReceiveFailed(io::Error),
    /// The oldest incomplete send completed: the transport took all its bytes. If it failed, all
    /// later sends failed with it, and have no completions of their own.
    Sent(io::Result<()>),
    /// The [relay](Relay::relay) that receives from the connection ended.
    Relayed {
        /// Number of bytes that the transport of the other connection took.
        moved: u64,
        /// The reason.
        ended: RelayEnd,
    },
    /// The deadline passed and is no longer set.
    Deadline,
    /// A [`Waker`] was used. The token belongs to no socket.
    Woken,
}

/// The reason why a [relay](Relay::relay) ended.
#[derive(Debug)]
pub enum RelayEnd {
    /// The requested number of bytes was moved.
    Complete,
    /// The peer ended its side and all bytes before that were moved. This replaces
    /// [`CompletionKind::End`].
    End,
    /// Receiving failed after the moved bytes. This replaces [`CompletionKind::ReceiveFailed`].
    ReceiveFailed(io::Error),
    /// Sending failed, or the receiving connection was closed (`NotConnected`). Bytes that were
    /// received but not yet moved are lost.
    SendFailed(io::Error),
}

/// Operations and their completions.
///
/// # The contract
///
/// **Tokens.** A listener or connection has a token from the operation that creates it until
/// [`close`](Io::close) or [`abort`](Io::abort). A closed token has no more completions, and its
/// number is reused only with another generation. An operation on a closed token does nothing.
///
/// **Listeners** accept while they are started. Accepted sockets are non-blocking and
/// close-on-exec, and send small messages immediately (`TCP_NODELAY`).
///
/// **Unix sockets** are stream sockets without the features of TCP: they have no IP address, and
/// [`abort`](Io::abort) is the same as [`close`](Io::close).
///
/// **Receiving** yields [`CompletionKind::Received`] while the connection is [started](Io::start).
/// After [`stop`](Io::stop) at most the receive that is in progress completes; further bytes stay
/// in the sockets. A buffer is lent only when there are bytes for it. If the pool is exhausted,
/// receiving continues when a buffer returns.
///
/// **Sending.** Each send yields one [`CompletionKind::Sent`], in the order of the sends, unless
/// [`send_now`](Io::send_now) reported it as done. It continues after the peer half-closes. Bytes
/// that wait for their peer take no place in the pool, so a slow reader does not prevent other
/// connections from receiving.
///
/// **Fairness.** No connection is served without limit while others wait. Large transfers have a
/// limited time in each turn. Those that exceed it continue in a later turn, in order.
///
/// **Turns.** [`wait`](Io::wait) starts a turn; [`next`](Io::next) yields its completions lazily,
/// doing the work as it is called. An operation that can be performed at once may complete within
/// the turn. If the caller stops before `next` returns `None`, the turn continues after the next
/// `wait`, which then does not wait.
pub trait Io {
    /// Creates a listener that is not yet started. Port 0 selects a free port. A Unix socket's file
    /// is created here and remains after closing.
    ///
    /// # Errors
    /// Errors of the kernel: address in use (for a Unix socket: the path exists) or not available,
    /// permission denied, out of descriptors. `InvalidInput` for a Unix socket's path that is
    /// empty, contains a zero byte or is longer than 108 bytes.
    fn listen(&mut self, address: &Address, options: &ListenOptions) -> io::Result<Token>;

    /// Adds a listening socket that other instances add too, each with its own descriptor. It is not
    /// yet started. A connection wakes as few of the instances as the mechanism allows, and at least
    /// one. Of `options`, [`peers`](ListenOptions::peers) applies. The socket becomes non-blocking and
    /// close-on-exec.
    ///
    /// A connection that wakes an instance may be left over when that instance stops accepting.
    /// [`start`](Io::start) therefore tries to accept at once.
    ///
    /// # Errors
    /// Errors of the kernel: not a socket. `Unsupported` over a simulated network, and if the
    /// mechanism reports the events of a socket to one instance only, as those with signals do.
    fn share_listener(&mut self, socket: OwnedFd, options: &ListenOptions) -> io::Result<Token> {
        let _ = (socket, options);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Starts to connect, from `source` if given; completes with [`CompletionKind::Connected`].
    ///
    /// # Errors
    /// Errors of the kernel, if it refuses immediately: out of descriptors or ports, no such source
    /// address. A Unix socket always fails immediately: without a listener (`ConnectionRefused`),
    /// without the path (`NotFound`), or if the backlog is full (`WouldBlock`). No event reports
    /// that a full backlog has space again, so the caller decides when to retry. `InvalidInput` for
    /// a path as in [`listen`](Io::listen), or a `source` with a Unix socket.
    fn connect(&mut self, address: &Address, source: Option<SocketAddr>) -> io::Result<Token> {
        self.connect_with(address, &ConnectOptions { source, ..ConnectOptions::default() })
    }

    /// Starts to connect like [`connect`](Io::connect), with options.
    ///
    /// # Errors
    /// As [`connect`](Io::connect).
    fn connect_with(&mut self, address: &Address, options: &ConnectOptions) -> io::Result<Token>;

    /// Adds a connected stream socket, such as one that another thread accepted. It is not yet
    /// started. Nothing else may use its open file.
    ///
    /// # Errors
    /// `Unsupported` over a simulated network.
    fn adopt(&mut self, socket: StreamSocket) -> io::Result<Token> {
        let _ = socket;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Removes an idle connection and returns its socket, to be [adopted](Io::adopt) by the instance
    /// of another thread. The token is closed.
    ///
    /// Returns `None` and changes nothing for a listener, during a connect, send or relay, after the
    /// end of the stream or a failure, and if the implementation may be receiving at this moment, as
    /// [`uring`] and simulated networks do. Received bytes that the caller has not taken yet remain in
    /// the socket.
    fn release(&mut self, token: Token) -> Option<StreamSocket> {
        let _ = token;
        None
    }

    /// Adds a descriptor of any kind, to be notified when it is readable. It is not yet started.
    ///
    /// [`start`](Io::start) requests one notification: [`CompletionKind::Readable`], or
    /// [`CompletionKind::ReceiveFailed`] if the mechanism cannot watch this kind of descriptor. A
    /// descriptor that is already readable is reported in the next turn.
    ///
    /// # Errors
    /// `Unsupported` over a simulated network.
    fn watch(&mut self, descriptor: OwnedFd) -> io::Result<Token> {
        let _ = descriptor;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Starts accepting or receiving. Does nothing if receiving has ended or failed.
    fn start(&mut self, token: Token);

    /// Stops accepting or receiving.
    fn stop(&mut self, token: Token);

    /// Sends `outgoing` after all previous sends.
    fn send(&mut self, token: Token, outgoing: Outgoing);

    /// Sends `bytes` after all previous sends. Returns whether that is done, in which case no
    /// [`CompletionKind::Sent`] follows. Bytes that the transport does not take at once are copied
    /// and complete like a [`send`](Io::send).
    fn send_now(&mut self, token: Token, bytes: &[u8]) -> bool {
        let outgoing = Outgoing::copy(self.pool(), bytes);
        self.send(token, outgoing);
        false
    }

    /// Sends `bytes` like [`send_now`](Io::send_now), as the last ones before a shutdown or close.
    /// The transport may withhold the final bytes, to announce the end of the stream in the same
    /// packet.
    ///
    /// After [`Complete`](SendOutcome::Complete) the caller must perform the announced operation at
    /// once. With [`CloseMode::Close`], only a deadline may be set until then, and [`close`](Io::close)
    /// or [`abort`](Io::abort) discard the rest.
    fn send_last(&mut self, token: Token, bytes: &[u8], mode: CloseMode) -> SendOutcome {
        let _ = mode;
        if self.send_now(token, bytes) { SendOutcome::Complete } else { SendOutcome::Pending }
    }

    /// Shuts down the sending side at once: the peer reads the sent bytes, then the end of the
    /// stream. Incomplete sends fail; wait for [`CompletionKind::Sent`] to have them delivered.
    fn shutdown(&mut self, token: Token);

    /// Closes a listener or connection at once. Bytes that the transport has taken are still
    /// delivered if all received bytes were read; otherwise the peer may see a reset.
    fn close(&mut self, token: Token);

    /// Closes a connection with a reset.
    fn abort(&mut self, token: Token);

    /// Sets, moves or clears the deadline of a listener or connection. It completes with
    /// [`CompletionKind::Deadline`], never early. O(1), cheapest when it moves to a later time.
    fn set_deadline(&mut self, token: Token, deadline: Option<Time>);

    /// Returns the number of sent bytes that the peer's host has acknowledged. For a Unix socket:
    /// at least the number that the peer has received.
    fn delivered(&self, token: Token) -> u64;

    /// Returns the number of bytes that the transport has taken, from sends or a relay, and that
    /// the peer's host has not acknowledged. For a Unix socket: the memory that they occupy.
    fn undelivered(&self, token: Token) -> u64;

    /// Returns the socket, to read or set its options. `None` for a closed token, and while an
    /// implementation closes the socket after a [last send](Io::send_last).
    ///
    /// Do not read, write, shut down or close through it, and leave it non-blocking: the
    /// implementation keeps its own record of the socket's state.
    fn socket(&self, token: Token) -> Option<BorrowedFd<'_>>;

    /// Returns the local address of a socket.
    ///
    /// # Errors
    /// Errors of the kernel; `NotConnected` for a closed token, `Unsupported` for a Unix socket.
    fn local_addr(&self, token: Token) -> io::Result<SocketAddr> {
        sockets::local_addr(self.socket(token).ok_or(io::ErrorKind::NotConnected)?)
    }

    /// Returns the address of a connection's peer.
    ///
    /// # Errors
    /// As [`local_addr`](Io::local_addr).
    fn peer_addr(&self, token: Token) -> io::Result<SocketAddr> {
        sockets::peer_addr(self.socket(token).ok_or(io::ErrorKind::NotConnected)?)
    }

    /// Returns the state of the receiving side of a connection, without receiving. For a closed
    /// token it returns [`PeekResult::Ended`]. One system call.
    fn peek(&self, token: Token) -> PeekResult {
        self.socket(token).map_or(PeekResult::Ended, peek::peek)
    }

    /// Returns the parameters of a connection under TLS, once its handshake is complete. `None` for
    /// any other connection.
    fn security(&self, token: Token) -> Option<Security<'_>> {
        let _ = token;
        None
    }

    /// Returns whether a request for `host` belongs on another connection (RFC 9110 section 15.5.20):
    /// the client selected a certificate by name, it does not cover `host`, and another one does.
    #[inline]
    fn is_misdirected(&self, token: Token, host: &[u8]) -> bool {
        let _ = (token, host);
        false
    }

    /// Reserves table space for a number of connections, so that tables do not move as they grow.
    /// Memory is taken only as it is used. An implementation that accepts ahead of its caller does
    /// not exceed this number.
    fn reserve(&mut self, connections: usize) {
        let _ = connections;
    }

    /// Starts a turn: waits for completions until `until`. It returns early only for signals,
    /// wake-ups and internal checks of distant deadlines.
    ///
    /// # Errors
    /// Errors of the mechanism, which is unusable after an error.
    fn wait(&mut self, until: Option<Time>) -> io::Result<()>;

    /// Returns the next completion of this turn.
    fn next(&mut self) -> Option<Completion>;

    /// Returns the time at which this turn started. It does not read the clock.
    fn now(&self) -> Time;

    /// Returns the current time. Callers read every clock through their `Io`, so that a simulation
    /// controls the time.
    #[inline]
    fn clock(&self) -> Time {
        Linux.clock()
    }

    /// Returns the time of day, as the time since 1970-01-01 00:00:00 UTC. Reads the coarse clock,
    /// which is accurate to a few milliseconds, without a system call.
    #[inline]
    fn unix_time(&self) -> Duration {
        Linux.unix_time()
    }

    /// Returns the pool of buffers, from which the heads of [`Outgoing`] are acquired.
    fn pool(&self) -> &Pool;

    /// Returns a handle that ends the wait from another thread.
    fn waker(&self) -> Waker;

    /// Returns the counters since the start.
    fn counters(&self) -> Counters;

    /// Returns the number of listeners and connections.
    fn open_count(&self) -> usize;
}

/// Relaying: moves bytes from one connection to another without handing them to the caller.
///
/// During a relay the receiving side (`from`) is stopped, nothing else may be sent to `to`, and
/// both keep their deadlines. The relay yields one [`CompletionKind::Relayed`] on `from`. If a
/// receive was already in progress, its [`Received`](CompletionKind::Received),
/// [`End`](CompletionKind::End) or [`ReceiveFailed`](CompletionKind::ReceiveFailed) comes instead,
/// before anything was moved; this cancels the relay and leaves `from` stopped. The caller handles
/// it and starts the relay again.
///
/// Closing `from` ends the relay without a completion and loses bytes that were received but not
/// yet moved. Closing `to` ends it like a failed send.
pub trait Relay: Io {
    /// Moves up to `max` bytes from `from` to `to`, after all previous sends there. Later bytes
    /// remain to be received when `from` is started again; starting it has no effect before the
    /// relay ends.
    ///
    /// Returns whether the relay is possible. If not, nothing changes, and the caller moves the
    /// bytes itself. It is not possible if one of the two is a listener or not yet connected,
    /// receiving from `from` or sending to `to` has ended, `from` or `to` has the same role in
    /// another relay, or both are the same connection.
    fn relay(&mut self, from: Token, to: Token, max: u64) -> bool;

    /// Returns the number of bytes that the relay from `from` has moved so far.
    fn relayed(&self, from: Token) -> u64;

    /// Returns whether the relay to `to` waits for space in its transport.
    fn relay_is_blocked(&self, to: Token) -> bool;
}
