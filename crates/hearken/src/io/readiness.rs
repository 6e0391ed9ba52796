//! [`Io`] over any readiness mechanism: non-blocking calls, and waits for what would block.
//!
//! How it waits is [`Policy`], which has the choices that the literature compares:
//!
//! * *Try first or wait first.* Try first makes the call and declares interest only where it would
//!   have blocked; a connection that is accepted, answered and closed in one turn is never
//!   registered. Wait first is how the papers' servers did it.
//! * *Accept limit.* How many connections one readiness of a listener accepts (Brecht, Pariag,
//!   Gammo: "accept()able Strategies for Improving Web Server Performance", USENIX 2004).
//! * *Interest.* Changed at every state, changed when an unwanted event shows the need, or declared
//!   once for both directions.
//! * *Bytes per turn.* After how many bytes it is another connection's turn.
//!
//! Interest is declared where a turn ends, for what still waits then.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use bytes::Buf;
use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

use super::{Body, Completion, Io, ListenOptions, Outgoing, Pool, What};
use crate::event::{Interest, Readiness, Token};
use crate::mechanism::{Counters, Mechanism, Registry, Trigger};
use crate::sys;
use crate::timer::{Time, Wheel};
use crate::waker::{Waker, Wakeups};

/// Whether a call is tried before it is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Order {
    /// Call, and wait if it would block.
    #[default]
    TryFirst,
    /// Wait, then call.
    WaitFirst,
}

/// When interest is changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum InterestPolicy {
    /// To just what is waited for, at every change of state.
    EveryState,
    /// Added when it is missing, taken back when an unwanted event comes.
    #[default]
    WhenNeeded,
    /// Declared once, for both directions. Over a level-triggered mechanism, a connection that can be
    /// written then wakes every wait.
    Once,
}

/// What a wake-up is "on": no token is ever this.
const NOBODY: Token = Token::from_bits(u64::MAX);

/// How a [`ReadinessIo`] works.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// Try first, or wait first.
    pub order: Order,
    /// How many connections are accepted for one readiness of a listener; `None` for all.
    pub accept_limit: Option<NonZeroU32>,
    /// When interest is changed.
    pub interest: InterestPolicy,
    /// After how many bytes, received and sent, it is another connection's turn.
    pub turn_bytes: usize,
    /// How many events a wait takes at most.
    pub batch: usize,
    /// How many buffers may be lent for received bytes.
    pub buffers: usize,
    /// The size of a buffer, in bytes.
    pub buffer_size: usize,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            order: Order::TryFirst,
            accept_limit: None,
            interest: InterestPolicy::default(),
            turn_bytes: 256 * 1024,
            batch: 512,
            buffers: 4096,
            buffer_size: 16 * 1024,
        }
    }
}

/// [`Io`] by readiness. See the [module](self).
#[derive(Debug)]
pub struct ReadinessIo<M: Mechanism> {
    registry: Registry<M, OwnedFd>,
    policy: Policy,
    edge: bool,
    one_shot: bool,
    /// What a connection is when it is made.
    newborn: State,
    /// By slot of the token.
    sockets: Vec<Socket>,
    wheel: Wheel,
    now: Time,
    pool: Pool,
    waker: Waker,
    wakeups: Token,
    /// Completions that an operation made at once.
    done: VecDeque<Completion>,
    /// Events of this turn's batch: how many, and how many were looked at.
    batch: usize,
    cursor: usize,
    /// All of this turn was taken.
    ended: bool,
    /// What can go on without waiting: in this turn, and, having had its share, in the next.
    turn: VecDeque<Token>,
    later: VecDeque<Token>,
    /// What the mechanism has to be told of before it waits.
    undeclared: Vec<Token>,
    /// What waits for a buffer.
    starved: VecDeque<Token>,
}

#[derive(Debug, Default)]
struct Socket {
    state: State,
    /// Bytes of this turn's share that are used.
    used: u32,
    sent: u64,
    /// What was not sent at once; never empty.
    #[expect(clippy::box_collection, reason = "an idle connection pays for one word, not four")]
    sends: Option<Box<VecDeque<Outgoing>>>,
}

impl Socket {
    #[inline]
    fn has_sent(&mut self, bytes: usize) {
        self.used = self.used.saturating_add(bytes as u32);
        self.sent += bytes as u64;
    }
}

bitflags::bitflags! {
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    struct State: u16 {
        const LISTENER = 1;
        const CONNECTING = 2;
        /// Accepting or receiving is wanted.
        const STARTED = 4;
        /// A read, or an accept, may succeed without another event.
        const READABLE = 8;
        /// So may a write.
        const WRITABLE = 256;
        /// The end of the stream is on its way: a short read is not the last.
        const ENDING = 16;
        /// In `turn` or `later`.
        const QUEUED = 32;
        /// In `undeclared`.
        const UNDECLARED = 64;
        /// A failed send leaves nothing to be sent.
        const BROKEN = 128;
        /// In `starved`.
        const STARVED = 512;
        /// Nothing more is received: the end was told, or a failure.
        const ENDED = 1024;
    }
}

/// How far a send got.
enum Progress {
    Complete,
    WouldBlock,
    /// It has had its share of this turn.
    Yielded,
    Failed(io::Error),
}

impl<M: Mechanism> ReadinessIo<M> {
    /// Over `mechanism`, by `policy`.
    ///
    /// # Errors
    /// The kernel's: out of descriptors or memory.
    pub fn new(mechanism: M, policy: Policy) -> io::Result<ReadinessIo<M>> {
        let (waker, wakeups) = Wakeups::new()?;
        let mut registry = Registry::new(mechanism);
        let wakeups = registry.insert(wakeups.into());
        registry.declare(wakeups, Interest::READ)?;
        let semantics = registry.semantics();
        let edge = semantics.trigger == Trigger::Edge;
        // An end that comes with the last data, in one edge, and is not told, has to be looked for.
        let untold = edge && !semantics.reports.contains(Readiness::READ_CLOSED);
        let newborn = if untold { State::ENDING } else { State::empty() };
        let now = Time::now();
        Ok(ReadinessIo {
            edge,
            one_shot: semantics.trigger == Trigger::OneShot,
            newborn,
            registry,
            // The wake-ups have the first slot.
            sockets: vec![Socket { state: State::STARTED, ..Socket::default() }],
            wheel: Wheel::new(now),
            now,
            pool: Pool::new(policy.buffers, policy.buffer_size),
            waker,
            wakeups,
            done: VecDeque::new(),
            batch: 0,
            cursor: 0,
            ended: true,
            turn: VecDeque::new(),
            later: VecDeque::new(),
            undeclared: Vec::new(),
            starved: VecDeque::new(),
            policy: Policy { turn_bytes: policy.turn_bytes.max(1), ..policy },
        })
    }

    fn adopt(&mut self, fd: OwnedFd, state: State) -> Token {
        let token = self.registry.insert(fd);
        let slot = token.slot() as usize;
        if slot >= self.sockets.len() {
            self.sockets.resize_with(slot + 1, Socket::default);
        }
        self.sockets[slot] = Socket { state, ..Socket::default() };
        token
    }

    /// The descriptor and the state of what is still open.
    #[inline]
    fn socket(&mut self, on: Token) -> Option<(BorrowedFd<'_>, &mut Socket)> {
        let fd = self.registry.get(on)?.as_fd();
        Some((fd, &mut self.sockets[on.slot() as usize]))
    }

    /// What is waited for.
    fn awaited(&self, on: Token) -> Interest {
        let socket = &self.sockets[on.slot() as usize];
        let mut awaited = Interest::empty();
        let reads = socket.state & (State::STARTED | State::STARVED) == State::STARTED;
        awaited.set(Interest::READ, reads);
        let writes = socket.sends.is_some() || socket.state.contains(State::CONNECTING);
        awaited.set(Interest::WRITE, writes);
        awaited
    }

    /// Has the mechanism told before the next wait.
    fn declare_later(&mut self, on: Token) {
        let state = &mut self.sockets[on.slot() as usize].state;
        if !state.contains(State::UNDECLARED) {
            state.insert(State::UNDECLARED);
            self.undeclared.push(on);
        }
    }

    /// Tells the mechanism of what has changed in this turn and still holds.
    fn declare(&mut self) -> io::Result<()> {
        while let Some(on) = self.undeclared.pop() {
            if self.registry.get(on).is_none() {
                continue;
            }
            let awaited = self.awaited(on);
            let state = &mut self.sockets[on.slot() as usize].state;
            state.remove(State::UNDECLARED);
            let interest = match self.policy.interest {
                _ if state.contains(State::LISTENER) => awaited,
                InterestPolicy::EveryState => awaited,
                // An edge that nobody waits for costs nothing; a level does, and can always be written.
                InterestPolicy::WhenNeeded if self.edge => awaited | self.registry.interest(on),
                InterestPolicy::WhenNeeded => {
                    awaited | self.registry.interest(on).difference(Interest::WRITE)
                }
                InterestPolicy::Once => Interest::READ | Interest::WRITE,
            };
            if let Err(error) = self.registry.declare(on, interest) {
                self.undeclarable(on, error);
            }
        }
        Ok(())
    }

    /// What cannot be waited for fails.
    fn undeclarable(&mut self, on: Token, error: io::Error) {
        let socket = &mut self.sockets[on.slot() as usize];
        let what = if socket.state.contains(State::LISTENER) {
            socket.state.remove(State::STARTED);
            What::AcceptFailed(error)
        } else if socket.state.contains(State::CONNECTING) {
            socket.state.remove(State::CONNECTING);
            What::Connected(Err(error))
        } else if socket.sends.take().is_some() {
            socket.state.insert(State::BROKEN);
            What::Sent(Err(error))
        } else if socket.state.contains(State::STARTED) {
            socket.state.remove(State::STARTED);
            socket.state.insert(State::ENDED);
            What::ReceiveFailed(error)
        } else {
            return;
        };
        self.done.push_back(Completion { on, what });
    }

    /// Queues what can go on without an event.
    fn go_on(&mut self, on: Token, in_next_turn: bool) {
        let state = &mut self.sockets[on.slot() as usize].state;
        if !state.contains(State::QUEUED) {
            state.insert(State::QUEUED);
            if in_next_turn { &mut self.later } else { &mut self.turn }.push_back(on);
        }
    }

    /// Looks at one event of the batch.
    fn on_event(&mut self, on: Token, readiness: Readiness) -> Option<Completion> {
        if self.one_shot {
            self.declare_later(on);
        }
        if on == self.wakeups {
            if let Some(pipe) = self.registry.get(on) {
                Wakeups::drain(pipe);
            }
            return Some(Completion { on: NOBODY, what: What::Woken });
        }
        let socket = &mut self.sockets[on.slot() as usize];
        socket.used = 0;
        if readiness.is_readable() {
            socket.state.insert(State::READABLE);
        }
        if readiness.contains(Readiness::READ_CLOSED) {
            socket.state.insert(State::ENDING);
        }
        if readiness.is_writable() {
            socket.state.insert(State::WRITABLE);
            if socket.state.contains(State::CONNECTING) {
                return self.on_connected(on);
            }
            self.go_on_sending(on);
        }
        if readiness.is_readable() {
            let state = self.sockets[on.slot() as usize].state;
            if !state.contains(State::STARTED) {
                self.silence(on);
            } else if state.contains(State::LISTENER) {
                self.go_on(on, false);
            } else {
                return self.receive(on);
            }
        }
        None
    }

    /// Takes back the interest in what nobody waits for, or a level-triggered mechanism repeats it.
    fn silence(&mut self, on: Token) {
        if !self.edge && self.policy.interest != InterestPolicy::Once {
            let awaited = self.awaited(on);
            // Refused, it would merely be repeated.
            let _ = self.registry.declare(on, awaited);
        }
    }

    fn on_connected(&mut self, on: Token) -> Option<Completion> {
        let (fd, socket) = self.socket(on)?;
        let result = match sockopt::socket_error(fd) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(errno)) | Err(errno) => Err(errno.into()),
        };
        socket.state.remove(State::CONNECTING);
        // The first bytes may have come in the same event.
        let hears = socket.state.contains(State::STARTED | State::READABLE);
        self.declare_later(on);
        if result.is_ok() {
            self.go_on_sending(on);
        }
        if hears {
            self.go_on(on, false);
        }
        Some(Completion { on, what: What::Connected(result) })
    }

    fn accept(&mut self, on: Token) -> Option<Completion> {
        let limit = self.policy.accept_limit.map_or(u32::MAX, NonZeroU32::get);
        let (fd, socket) = self.socket(on)?;
        let what = loop {
            match net::accept_with(fd, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(accepted) => {
                    socket.used += 1;
                    let spent = socket.used >= limit;
                    // More may be waiting; in front, so that what was accepted comes after.
                    if spent {
                        self.go_on(on, true);
                    } else {
                        socket.state.insert(State::QUEUED);
                        self.turn.push_front(on);
                    }
                    let state = match self.policy.order {
                        Order::TryFirst => State::READABLE,
                        Order::WaitFirst => State::empty(),
                    };
                    break What::Accepted(self.adopt(accepted, state | self.newborn));
                }
                Err(Errno::AGAIN) => {
                    socket.state.remove(State::READABLE);
                    self.declare_later(on);
                    return None;
                }
                // What became of a connection before it was accepted is no failure of the listener:
                // accept(2), "Error handling".
                Err(
                    Errno::INTR
                    | Errno::CONNABORTED
                    | Errno::NETDOWN
                    | Errno::PROTO
                    | Errno::NOPROTOOPT
                    | Errno::HOSTDOWN
                    | Errno::NONET
                    | Errno::HOSTUNREACH
                    | Errno::NETUNREACH,
                ) => {}
                Err(errno) => {
                    socket.state.remove(State::STARTED);
                    self.declare_later(on);
                    break What::AcceptFailed(errno.into());
                }
            }
        };
        Some(Completion { on, what })
    }

    fn receive(&mut self, on: Token) -> Option<Completion> {
        let Some(mut buffer) = self.pool.lend() else {
            self.starve(on);
            return None;
        };
        let share = self.policy.turn_bytes;
        let (fd, socket) = self.socket(on)?;
        let room = buffer.room();
        let received = loop {
            match net::recv(fd, spare_capacity(buffer.as_vec()), RecvFlags::empty()) {
                Err(Errno::INTR) => {}
                // rustix answers with what is in the buffer and the length before any truncation.
                other => break other.map(|(count, _)| count),
            }
        };
        let what = match received {
            Ok(0) => {
                socket.state.remove(State::STARTED | State::READABLE);
                socket.state.insert(State::ENDED);
                What::End
            }
            Ok(count) => {
                if count == room || socket.state.contains(State::ENDING) {
                    socket.used = socket.used.saturating_add(count as u32);
                    let spent = socket.used as usize >= share;
                    self.go_on(on, spent);
                } else {
                    socket.state.remove(State::READABLE);
                    self.declare_if_unheard(on);
                }
                What::Received(buffer)
            }
            Err(Errno::AGAIN) => {
                socket.state.remove(State::READABLE);
                self.declare_if_unheard(on);
                return None;
            }
            Err(errno) => {
                socket.state.remove(State::STARTED | State::READABLE);
                socket.state.insert(State::ENDED);
                What::ReceiveFailed(errno.into())
            }
        };
        Some(Completion { on, what })
    }

    /// Has it wait for a buffer, and not be told meanwhile that there are bytes.
    fn starve(&mut self, on: Token) {
        let state = &mut self.sockets[on.slot() as usize].state;
        if !state.contains(State::STARVED) {
            state.insert(State::STARVED);
            self.starved.push_back(on);
        }
        if self.registry.interest(on).contains(Interest::READ) {
            self.silence(on);
        }
    }

    /// The first of those that wait for a buffer, if there is one.
    #[inline]
    fn fed(&mut self) -> Option<Token> {
        while !self.starved.is_empty() && !self.pool.is_exhausted() {
            let on = self.starved.pop_front()?;
            if let Some((_, socket)) = self.socket(on) {
                socket.state.remove(State::STARVED);
                if socket.state.contains(State::STARTED) {
                    return Some(on);
                }
            }
        }
        None
    }

    #[inline]
    fn declare_if_unheard(&mut self, on: Token) {
        if !self.registry.interest(on).contains(Interest::READ)
            || self.policy.interest == InterestPolicy::EveryState
        {
            self.declare_later(on);
        }
    }

    /// Sends what is waiting to be sent, as far as it goes.
    fn go_on_sending(&mut self, on: Token) {
        let share = self.policy.turn_bytes;
        let Some((fd, socket)) = self.socket(on) else {
            return;
        };
        let Some(mut sends) = socket.sends.take() else {
            return;
        };
        let mut completed = 0;
        let progress = loop {
            let Some(first) = sends.front_mut() else {
                break Progress::Complete;
            };
            match transmit(fd, first, socket, share) {
                Progress::Complete => {
                    sends.pop_front();
                    completed += 1;
                }
                other => break other,
            }
        };
        match progress {
            Progress::Failed(_) => socket.state.insert(State::BROKEN),
            Progress::Complete => {}
            Progress::WouldBlock | Progress::Yielded => socket.sends = Some(sends),
        }
        for _ in 0..completed {
            self.done.push_back(Completion { on, what: What::Sent(Ok(())) });
        }
        match progress {
            Progress::Yielded => self.go_on(on, true),
            Progress::WouldBlock => self.declare_later(on),
            Progress::Complete => self.declare_later(on),
            Progress::Failed(error) => {
                self.done.push_back(Completion { on, what: What::Sent(Err(error)) });
                self.declare_later(on);
            }
        }
    }

    /// Goes on with what was queued.
    fn resume(&mut self, on: Token) -> Option<Completion> {
        self.registry.get(on)?;
        let socket = &mut self.sockets[on.slot() as usize];
        socket.state.remove(State::QUEUED);
        if socket.state.contains(State::LISTENER) {
            return if socket.state.contains(State::STARTED) { self.accept(on) } else { None };
        }
        if socket.sends.is_some() && !socket.state.contains(State::CONNECTING) {
            self.go_on_sending(on);
        }
        let state = self.sockets[on.slot() as usize].state;
        if state.contains(State::STARTED | State::READABLE) { self.receive(on) } else { None }
    }
}

/// Gives the transport what it takes of `what`, if it has some of its share left.
fn transmit(
    fd: BorrowedFd<'_>,
    what: &mut Outgoing,
    socket: &mut Socket,
    share: usize,
) -> Progress {
    if socket.used as usize >= share {
        return Progress::Yielded;
    }
    loop {
        let taken = match (&mut what.body, what.head.is_empty()) {
            (Body::None, true) => return Progress::Complete,
            (Body::None, false) => net::send(fd, &what.head, SendFlags::NOSIGNAL),
            (Body::Bytes(bytes), true) if bytes.is_empty() => return Progress::Complete,
            (Body::Bytes(bytes), true) => net::send(fd, bytes, SendFlags::NOSIGNAL),
            (Body::Bytes(bytes), false) => {
                let parts = [IoSlice::new(&what.head), IoSlice::new(bytes)];
                let mut nothing = net::SendAncillaryBuffer::default();
                net::sendmsg(fd, &parts, &mut nothing, SendFlags::NOSIGNAL)
            }
            (Body::File(part), _) if part.length == 0 && what.head.is_empty() => {
                return Progress::Complete;
            }
            (Body::File(part), false) => {
                let mut flags = SendFlags::NOSIGNAL;
                flags.set(SendFlags::MORE, part.length > 0);
                net::send(fd, &what.head, flags)
            }
            (Body::File(part), true) => {
                let left = share.saturating_sub(socket.used as usize);
                if left == 0 {
                    return Progress::Yielded;
                }
                let count = usize::try_from(part.length).unwrap_or(usize::MAX).min(left);
                match rustix::fs::sendfile(fd, &*part.file, Some(&mut part.offset), count) {
                    Ok(0) => return Progress::Failed(io::ErrorKind::UnexpectedEof.into()),
                    Ok(taken) => {
                        part.length -= taken as u64;
                        socket.has_sent(taken);
                        continue;
                    }
                    Err(errno) => Err(errno),
                }
            }
        };
        match taken {
            Ok(taken) => {
                socket.has_sent(taken);
                let of_head = taken.min(what.head.len());
                what.head.consume(of_head);
                if what.head.is_empty() {
                    what.head.release(); // The body may take long.
                }
                if let Body::Bytes(bytes) = &mut what.body {
                    bytes.advance(taken - of_head);
                }
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                socket.state.remove(State::WRITABLE);
                return Progress::WouldBlock;
            }
            Err(errno) => return Progress::Failed(errno.into()),
        }
    }
}

impl<M: Mechanism> Io for ReadinessIo<M> {
    fn listen(&mut self, addr: SocketAddr, options: &ListenOptions) -> io::Result<Token> {
        let fd = stream(addr)?;
        sockopt::set_socket_reuseaddr(&fd, true)?;
        if options.reuse_port {
            sockopt::set_socket_reuseport(&fd, true)?;
        }
        // Inherited by what is accepted, which saves a call for each.
        sockopt::set_tcp_nodelay(&fd, true)?;
        net::bind(&fd, &addr)?;
        net::listen(&fd, i32::try_from(options.backlog).unwrap_or(i32::MAX))?;
        Ok(self.adopt(fd, State::LISTENER))
    }

    fn connect(&mut self, addr: SocketAddr, source: Option<SocketAddr>) -> io::Result<Token> {
        let fd = stream(addr)?;
        sockopt::set_tcp_nodelay(&fd, true)?;
        if let Some(source) = source {
            net::bind(&fd, &source)?;
        }
        match net::connect(&fd, &addr) {
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let token = self.adopt(fd, State::CONNECTING | self.newborn);
        self.declare_later(token);
        Ok(token)
    }

    fn start(&mut self, on: Token) {
        let Some((_, socket)) = self.socket(on) else {
            return;
        };
        if socket.state.contains(State::ENDED) {
            return;
        }
        socket.state.insert(State::STARTED);
        if socket.state.contains(State::READABLE) {
            self.go_on(on, false);
        } else {
            self.declare_if_unheard(on);
        }
    }

    fn stop(&mut self, on: Token) {
        let Some((_, socket)) = self.socket(on) else {
            return;
        };
        socket.state.remove(State::STARTED);
        let exact = socket.state.contains(State::LISTENER);
        if exact || self.policy.interest == InterestPolicy::EveryState {
            self.declare_later(on);
        }
    }

    fn send(&mut self, on: Token, mut what: Outgoing) {
        let (order, edge, share) = (self.policy.order, self.edge, self.policy.turn_bytes);
        let Some((fd, socket)) = self.socket(on) else {
            return;
        };
        if socket.state.contains(State::BROKEN) {
            return;
        }
        if what.head.is_empty() {
            what.head.release();
        }
        if let Some(sends) = &mut socket.sends {
            sends.push_back(what);
            return;
        }
        let writable = order == Order::TryFirst || (edge && socket.state.contains(State::WRITABLE));
        let progress = if writable && !socket.state.contains(State::CONNECTING) {
            transmit(fd, &mut what, socket, share)
        } else {
            Progress::WouldBlock
        };
        let result = match progress {
            Progress::Complete => Ok(()),
            Progress::Failed(error) => {
                socket.state.insert(State::BROKEN);
                Err(error)
            }
            Progress::WouldBlock => {
                socket.sends = Some(Box::new(VecDeque::from([what])));
                self.declare_later(on);
                return;
            }
            Progress::Yielded => {
                socket.sends = Some(Box::new(VecDeque::from([what])));
                self.go_on(on, true);
                return;
            }
        };
        self.done.push_back(Completion { on, what: What::Sent(result) });
    }

    fn shutdown(&mut self, on: Token) {
        if let Some(fd) = self.registry.get(on) {
            // It fails only where the peer is gone, which receiving will tell.
            let _ = net::shutdown(fd, net::Shutdown::Write);
        }
    }

    fn close(&mut self, on: Token) {
        if self.registry.close(on) {
            self.wheel.cancel(on.slot());
            self.sockets[on.slot() as usize] = Socket::default();
        }
    }

    fn abort(&mut self, on: Token) {
        if let Some(fd) = self.registry.get(on) {
            // Refused, it is an ordinary close.
            let _ = sockopt::set_socket_linger(fd, Some(Duration::ZERO));
        }
        self.close(on);
    }

    fn set_deadline(&mut self, on: Token, deadline: Option<Time>) {
        match deadline {
            _ if self.registry.get(on).is_none() => {}
            Some(deadline) => self.wheel.arm(on.slot(), deadline),
            None => {
                self.wheel.cancel(on.slot());
            }
        }
    }

    fn delivered(&self, on: Token) -> u64 {
        let Some(fd) = self.registry.get(on) else {
            return 0;
        };
        let sent = self.sockets[on.slot() as usize].sent;
        sent.saturating_sub(sys::unacknowledged(fd).unwrap_or(0))
    }

    fn local_addr(&self, on: Token) -> io::Result<SocketAddr> {
        let fd = self.registry.get(on).ok_or(io::ErrorKind::NotConnected)?;
        Ok(net::getsockname(fd)?.try_into()?)
    }

    fn peer_addr(&self, on: Token) -> io::Result<SocketAddr> {
        let fd = self.registry.get(on).ok_or(io::ErrorKind::NotConnected)?;
        let addr = net::getpeername(fd)?.ok_or(io::ErrorKind::NotConnected)?;
        Ok(addr.try_into()?)
    }

    fn wait(&mut self, until: Option<Time>) -> io::Result<()> {
        if !self.ended {
            return Ok(()); // Nor would edges be told again.
        }
        self.ended = false;
        self.declare()?;
        for on in self.later.drain(..) {
            self.sockets[on.slot() as usize].used = 0;
            self.turn.push_back(on);
        }
        let feeds = !self.starved.is_empty() && !self.pool.is_exhausted();
        let timeout = if self.turn.is_empty() && self.done.is_empty() && !feeds {
            let until = [self.wheel.next(), until].into_iter().flatten().min();
            until.map(|until| until.since(Time::now()))
        } else {
            Some(Duration::ZERO)
        };
        self.batch = self.registry.wait(self.policy.batch, timeout)?;
        self.cursor = 0;
        self.now = Time::now();
        Ok(())
    }

    fn next(&mut self) -> Option<Completion> {
        loop {
            while let Some(completion) = self.done.pop_front() {
                if self.registry.get(completion.on).is_some() {
                    return Some(completion);
                }
            }
            let completion = if let Some(on) = self.fed() {
                self.receive(on)
            } else if self.cursor < self.batch {
                let index = self.cursor;
                self.cursor += 1;
                self.registry
                    .event(index)
                    .and_then(|event| self.on_event(event.who, event.readiness))
            } else if let Some(on) = self.turn.pop_front() {
                self.resume(on)
            } else {
                let Some(slot) = self.wheel.expired(self.now) else {
                    self.ended = true;
                    return None;
                };
                let on = self.registry.token_at(slot);
                on.map(|on| Completion { on, what: What::Deadline })
            };
            if completion.is_some() {
                return completion;
            }
        }
    }

    fn now(&self) -> Time {
        self.now
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn counters(&self) -> Counters {
        self.registry.counters()
    }

    fn open(&self) -> usize {
        self.registry.len() - 1
    }
}

fn stream(addr: SocketAddr) -> io::Result<OwnedFd> {
    let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(net::socket_with(family, SocketType::STREAM, flags, None)?)
}
