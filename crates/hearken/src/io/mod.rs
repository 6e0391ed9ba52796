//! Operations and completions: what servers use.
//!
//! A server written against [`Io`] asks for operations (accept, connect, receive, send, send a part
//! of a file, close) and is told what became of them. It does not know whether that is done by
//! waiting for readiness ([`readiness`]), by the kernel ([`uring`]), or in a simulation.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;

use crate::event::Token;
use crate::mechanism::Counters;
use crate::timer::Time;
use crate::waker::Waker;

mod buffer;
mod choose;
pub mod readiness;
mod relay;
mod sockets;
pub mod uring;

pub use buffer::{Buffer, Pool};
pub use choose::{Spec, URING, URING_OPTIONS, URING_SUMMARY, Visitor, find, names, visit};

/// How a listening socket is set up.
#[derive(Clone, Copy, Debug)]
pub struct ListenOptions {
    /// How many connections may wait to be accepted; the kernel caps it at
    /// `net.core.somaxconn`.
    pub backlog: u32,
    /// Whether several sockets may listen on the address, the kernel dealing connections out among
    /// them (`SO_REUSEPORT`).
    pub reuse_port: bool,
    /// For how long, at most, in whole seconds rounded up, the kernel keeps a connection back until
    /// its first bytes have come (`TCP_DEFER_ACCEPT`): it is accepted once, with something to receive.
    /// Until then it holds no descriptor and no memory of the application, but a place among the
    /// half-open ones, of which there may be as many as the backlog: where many connect and say
    /// nothing, others have to wait. Nothing is kept back for zero.
    pub defer: Duration,
    /// Whether [`Io::accepted_from`] is to tell who connects. It comes with the connection, but where
    /// the kernel accepts by itself: [`uring`] makes a call for each.
    pub peers: bool,
}

impl Default for ListenOptions {
    fn default() -> ListenOptions {
        ListenOptions { backlog: 65_535, reuse_port: false, defer: Duration::ZERO, peers: false }
    }
}

/// What is to be sent.
pub struct Outgoing {
    /// Sent first.
    pub head: Buffer,
    /// Sent after it.
    pub body: Body,
}

/// What is sent after a head.
#[derive(Clone, Debug, Default)]
pub enum Body {
    /// Nothing.
    #[default]
    None,
    /// These bytes.
    Bytes(Bytes),
    /// A part of a file.
    File(FilePart),
}

/// A part of a file, to be sent without a copy through user space.
#[derive(Clone, Debug)]
pub struct FilePart {
    /// The file.
    pub file: Rc<OwnedFd>,
    /// Where it begins, in bytes.
    pub offset: u64,
    /// How many bytes it has. If the file turns out to have fewer, the send fails with
    /// [`UnexpectedEof`](io::ErrorKind::UnexpectedEof).
    pub length: u64,
}

impl fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Outgoing({} bytes and {:?})", self.head.len(), self.body)
    }
}

/// What became of a [last send](Io::send_last).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Last {
    /// All of it is sent, and no [`What::Sent`] comes: the caller closes.
    Done,
    /// It completes as other sends do, and then the caller closes.
    Later,
    /// It is closed behind what is sent: the [`What::Sent`] that is `Ok` is the last completion, with
    /// which the token is no more; one that has failed leaves the closing to the caller.
    Closes,
}

/// What became of an operation.
#[derive(Debug)]
pub struct Completion {
    /// The listener or connection it is about.
    pub on: Token,
    /// What happened.
    pub what: What,
}

/// What happened to a listener or connection.
#[derive(Debug)]
pub enum What {
    /// The listener accepted this connection. It receives nothing until it is
    /// [started](Io::start).
    Accepted(Token),
    /// The listener could not accept (out of descriptors or memory), and has stopped; to
    /// [start](Io::start) it again is the caller's to time.
    AcceptFailed(io::Error),
    /// The connection is made, or could not be, which leaves nothing but to [close](Io::close) it.
    Connected(io::Result<()>),
    /// The next bytes of the stream; never empty.
    Received(Buffer),
    /// The peer has ended its side. Nothing more is received; sending is not touched by it.
    End,
    /// Receiving failed; the connection is of no more use.
    ReceiveFailed(io::Error),
    /// The oldest send that was not yet completed is done: all of it was given to the transport,
    /// or it failed, and with it all later ones, which complete no more.
    Sent(io::Result<()>),
    /// The [relay](Io::relay) that receives from the connection has ended.
    Relayed {
        /// How many bytes it has given to the transport of the other connection.
        moved: u64,
        /// Why it has ended.
        ended: RelayEnd,
    },
    /// The deadline has passed, and is no longer set.
    Deadline,
    /// A [`Waker`] was used. `on` names nothing that there is.
    Woken,
}

/// Why a [relay](Io::relay) has ended.
#[derive(Debug)]
pub enum RelayEnd {
    /// As many bytes as were asked for are moved.
    Most,
    /// The peer has ended its side, and all before that is moved. It is what [`What::End`] tells
    /// otherwise, which does not come.
    End,
    /// Receiving failed, after what was moved: as by [`What::ReceiveFailed`].
    ReceiveFailed(io::Error),
    /// Sending failed, or the connection that was sent to was closed (`NotConnected`). More may have been
    /// received than was moved, and is lost.
    SendFailed(io::Error),
}

/// Operations in, completions out.
///
/// # The contract
///
/// **Tokens.** A listener or connection has a token from the operation that makes it until
/// [`close`](Io::close) or [`abort`](Io::abort). No completion for a token comes out after it was
/// closed, and its number may come back only with another generation. An operation on a token that
/// is no more does nothing.
///
/// **Listeners** accept while they are started. Accepted sockets are non-blocking and
/// close-on-exec, and send small messages at once (`TCP_NODELAY`).
///
/// **Unix sockets** are streams like the others, with what TCP alone has left out: they have no
/// address of IP, and for want of a reset [`abort`](Io::abort) merely closes them.
///
/// **Receiving** is a stream of [`What::Received`] while the connection is
/// [started](Io::start). After [`stop`](Io::stop) at most what was under way still comes; what the
/// peer sends then stays in its sockets. A buffer is lent only when there are bytes for it. If
/// none can be lent, receiving goes on when one comes back.
///
/// **Sending.** Each send makes one [`What::Sent`], in the order of the sends, but for one that
/// [`send_now`](Io::send_now) said was done. A peer's half-close does not hinder it. What waits for
/// its peer takes no place in the pool, so that who does not read keeps nobody else from being read.
///
/// **Relaying** moves bytes from one connection to another without showing them: [`relay`](Io::relay).
/// While it goes on the connection that is received from is stopped, nothing else is to be sent to the
/// other, and both have their deadlines. It makes one [`What::Relayed`], on the one that is received from;
/// or instead, and having moved nothing, what was under way already: a [`What::Received`],
/// [`What::End`] or [`What::ReceiveFailed`], with which the relay is none, and the connection stopped.
/// Who has dealt with that asks again. Closing the one that is received from ends it without a word, and
/// what it had received and not yet moved is lost; closing the other ends it as a failed send.
///
/// **Fairness.** No connection is served without limit while others wait.
///
/// **Turns.** [`wait`](Io::wait) starts a turn; [`next`](Io::next) yields its completions, lazily:
/// work is done as it is asked for, and an operation that can be performed at once may complete
/// within the turn. A turn that is not taken to its end, which is `None`, goes on after the next
/// `wait`, which does not wait then.
pub trait Io {
    /// Listens on `addr` (port 0: any that is free), not yet started.
    ///
    /// # Errors
    /// The kernel's: address in use or not available, no permission, out of descriptors.
    fn listen(&mut self, addr: SocketAddr, options: &ListenOptions) -> io::Result<Token>;

    /// Listens on a Unix socket, which it makes at `path`, not yet started. Closing leaves the file there.
    ///
    /// # Errors
    /// The kernel's: there is something at `path` already (`AddrInUse`), no permission, out of
    /// descriptors; `InvalidInput` for a path that is empty, or longer than the 108 bytes that there are.
    fn listen_unix(&mut self, path: &Path, backlog: u32) -> io::Result<Token>;

    /// Who has connected, of the [`What::Accepted`] that [`next`](Io::next) has returned last, if its
    /// listener was [asked](ListenOptions::peers) to tell.
    fn accepted_from(&self) -> Option<SocketAddr> {
        None
    }

    /// Makes room for so many connections, so that tables need not be moved, and copied, as they grow. It
    /// takes memory only as that is used. One that accepts ahead of its caller takes care that there
    /// are no more.
    fn reserve(&mut self, connections: usize) {
        let _ = connections;
    }

    /// Begins to connect to `addr`, from `source` if given; ends in [`What::Connected`].
    ///
    /// # Errors
    /// The kernel's, where it refuses at once: out of descriptors or ports, no such source address.
    fn connect(&mut self, addr: SocketAddr, source: Option<SocketAddr>) -> io::Result<Token>;

    /// Begins to connect to the Unix socket at `path`; ends in [`What::Connected`].
    ///
    /// # Errors
    /// The kernel's, all of them at once: nobody listens (`ConnectionRefused`), or there is nothing
    /// (`NotFound`), or too many wait to be accepted there (`WouldBlock`, of which no readiness tells:
    /// to try again is the caller's to time); no permission, out of descriptors; `InvalidInput` for a
    /// path as in [`listen_unix`](Io::listen_unix).
    fn connect_unix(&mut self, path: &Path) -> io::Result<Token>;

    /// Starts to accept, or to receive; nothing where receiving has ended or failed.
    fn start(&mut self, on: Token);

    /// Stops accepting, or receiving.
    fn stop(&mut self, on: Token);

    /// Sends `what`, after all that was to be sent before.
    fn send(&mut self, on: Token, what: Outgoing);

    /// Sends `bytes`, after all that was to be sent before, and tells whether that is done: then no
    /// [`What::Sent`] comes of it. What the transport does not take at once is copied, and completes
    /// as that of a [`send`](Io::send) does.
    fn send_now(&mut self, on: Token, bytes: &[u8]) -> bool {
        let mut head = self.pool().lend_beyond();
        head.as_vec().extend_from_slice(bytes);
        self.send(on, Outgoing { head, body: Body::None });
        false
    }

    /// As [`send_now`](Io::send_now), for what is followed at once by [`shutdown`](Io::shutdown) or
    /// [`close`](Io::close) if it is done: the transport may keep the last of it back until then, and
    /// tell of the end in the same packet.
    fn send_before_end(&mut self, on: Token, bytes: &[u8]) -> bool {
        self.send_now(on, bytes)
    }

    /// As [`send_before_end`](Io::send_before_end), for what is followed by a close and nothing else:
    /// whoever performs it may close, too. Until then nothing is to be asked for but a deadline, and
    /// [`close`](Io::close) or [`abort`](Io::abort), which give up waiting.
    fn send_last(&mut self, on: Token, bytes: &[u8]) -> Last {
        if self.send_before_end(on, bytes) { Last::Done } else { Last::Later }
    }

    /// Moves up to `most` bytes that `from` receives to `to`, behind all that was sent there before, and
    /// tells of it with [`What::Relayed`] on `from`, which it stops: see [Relaying](Io#the-contract). What
    /// is received after `most` bytes stays to be received when `from` is started again; until this has
    /// ended, starting it does nothing.
    ///
    /// False if it cannot be: then nothing has changed, and the caller moves the bytes itself. So it is
    /// where one of the two is no connection, or not yet made; where nothing more is received from `from`,
    /// or sent to `to`; where either is relayed from, or to, already (but a connection may be relayed
    /// from and to at the same time); and where both are one.
    fn relay(&mut self, from: Token, to: Token, most: u64) -> bool {
        let _ = (from, to, most);
        false
    }

    /// How many bytes the relay that receives from `from` has moved so far.
    fn relayed(&self, from: Token) -> u64 {
        let _ = from;
        0
    }

    /// Whether the relay to `to` waits for its transport to have room.
    fn relay_is_blocked(&self, to: Token) -> bool {
        let _ = to;
        false
    }

    /// Ends the sending side, at once: the peer reads what was sent, and then the end. A send that
    /// is not completed yet fails: to have it delivered, await its [`What::Sent`].
    fn shutdown(&mut self, on: Token);

    /// Closes it, at once. What the transport has taken is still delivered, if all that
    /// was received has been read; else the peer may see a reset.
    fn close(&mut self, on: Token);

    /// Closes it with a reset.
    fn abort(&mut self, on: Token);

    /// Sets, moves or takes back the one deadline, which ends in [`What::Deadline`]: never
    /// early. O(1), cheapest where it moves to a later time.
    fn set_deadline(&mut self, on: Token, deadline: Option<Time>);

    /// How many bytes of what was sent on the connection its peer's host has acknowledged; of a Unix
    /// socket, at least how many its peer has received.
    fn delivered(&self, on: Token) -> u64;

    /// How many bytes of what its transport has taken, by sends or by a relay, its peer has not
    /// acknowledged: none, if it is not the peer that is waited for. Of a Unix socket, the memory that
    /// they take.
    fn undelivered(&self, on: Token) -> u64;

    /// The address of this side.
    ///
    /// # Errors
    /// The kernel's; `NotConnected` if the token is no more, `Unsupported` if it is a Unix socket.
    fn local_addr(&self, on: Token) -> io::Result<SocketAddr>;

    /// The address of the other side.
    ///
    /// # Errors
    /// As [`local_addr`](Io::local_addr).
    fn peer_addr(&self, on: Token) -> io::Result<SocketAddr>;

    /// Begins a turn: waits until there is something to be done or `until` has come (never sooner,
    /// but for signals, wake-ups, and deadlines that are far off and looked at on the way).
    ///
    /// # Errors
    /// The mechanism's, which end its use.
    fn wait(&mut self, until: Option<Time>) -> io::Result<()>;

    /// The next completion of this turn.
    fn next(&mut self) -> Option<Completion>;

    /// When this turn began: a clock that is not read for each event.
    fn now(&self) -> Time;

    /// The pool from which heads of [`Outgoing`] are lent.
    fn pool(&self) -> &Pool;

    /// A handle by which another thread ends the wait.
    fn waker(&self) -> Waker;

    /// What was counted since the start.
    fn counters(&self) -> Counters;

    /// How many listeners and connections there are.
    fn open(&self) -> usize;
}
