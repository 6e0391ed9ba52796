//! [`Io`] by io_uring(7): the kernel performs the operations, and tells when they are done.
//!
//! A listener has one multishot accept, and a connection one multishot receive into buffers that the
//! kernel chooses from ([`Settings::buffers`]); what is sent in a turn is handed over in the next wait,
//! all of it in one call, but for small answers, where [`SendsBy::Calls`]. An idle connection owns no
//! buffer.
//!
//! Its traps, and what is done about each:
//!
//! a) A request holds the open file: a socket that is closed while it receives is not closed, and its
//!    peer hears of no end. The receive is cancelled first, in the same call. A slot goes to another
//!    connection when its last request has ended: no completion is then taken for another's.
//! b) The first receive of a connection is single, since one that has nothing more to receive needs no
//!    cancellation to be closed: a request, its answer, and a close.
//! c) A multishot request ends when the queue of completions is full, and when there is no buffer. It
//!    is armed again: for want of a buffer when one has come back, in turn.
//! d) The kernel accepts all that there are, and fills what buffers it has, whatever the caller has said
//!    meanwhile. Connections that a stopped listener has accepted are kept until it is started, and reset
//!    if it is closed. When fewer are left of those that were [reserved](Io::reserve) than the queue of
//!    completions holds, one is accepted in the ring, and what else there is by accept(2), as long as
//!    it is wanted. What was received while the [`Pool`] could not lend is given out when it can.
//! e) Several sends on a socket may overtake each other: one at a time is with the kernel. A send that
//!    was taken in part goes on where it was; the socket is polled by the kernel in between.
//! f) What is sent, and what may be received into, stays where it is until the kernel is done. When
//!    this is dropped it cancels all and waits; memory that the kernel would not let go of is leaked.
//! g) A part of a file goes by sendfile(2), as the ring has no such operation: its splice(2) is always
//!    done by a thread of the kernel's own, twice for each piece, through a pipe. What waits for room is
//!    a poll request.
//! h) connect(2) is called and then polled for, so that what is refused at once is said at once.
//! i) A descriptor's number that waits to be handed over must not come to mean another: it is closed
//!    in the ring then, behind what names it, and at once otherwise.
//! j) A relay polls and calls: its splice(2) in the ring would be a thread's again (g).
//! k) Descriptors are ordinary ones. Direct ones would save a table's locking at each accept, and are
//!    not to be had by what an [`Io`] answers at once: addresses, what was delivered, an end.

// Memory is shared with the kernel here; each block says why that is sound.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;
use std::{fmt, io};

use rustix::event::PollFlags;
use rustix::net::{self, SendFlags};

use super::bulk::{Bulk, Queue};
use super::named::named;
use super::readiness::Policy;
use super::relay::Relays;
use super::shared::{self, Parts};
use super::{Address, Completion, CompletionKind, Io, ListenOptions, Outgoing, Pool, Relay};
use super::{SendOutcome, Then, sockets};
use crate::event::Token;
use crate::mechanism::{Choice, Counters, Options, Unavailable, Values};
use crate::ring::{Cqe, Ring, Sqe, Work, op};
use crate::timer::{Time, Wheel};
use crate::waker::{Waker, Wakeups};

mod buffers;
mod closing;
mod completing;
mod relaying;
mod sending;
mod socket;
mod submitting;

use buffers::Buffers;
pub(super) use buffers::Provided;
use completing::Held;
use sending::{Message, Sends};
use socket::{Sockets, State};

/// How small answers are sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum SendsBy {
    /// By send(2), at once; what that does not take, by the ring. What was taken needs no completion,
    /// no copy and no buffer, and who closes behind it can do so at once.
    #[default]
    Calls,
    /// By the ring: all that is sent in a turn is handed over in one call.
    Ring,
}

named!(SendsBy, "way of sending", Calls => "calls", Ring => "ring");

/// How a [`UringIo`] works.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// How many buffers may be lent for received bytes, and how many for what is sent: 32,768 at most.
    pub buffers: usize,
    /// The size of a buffer for received bytes.
    pub buffer_size: usize,
    /// The size of a buffer for what is sent.
    pub head_size: usize,
    /// After how many bytes of a file it is another connection's turn.
    pub turn_bytes: usize,
    /// Time that a turn has for the files that it sends and the connections that it accepts by calls, as
    /// [`Policy::turn_time`]. Zero means no limit.
    pub turn_time: Duration,
    /// How many of the kernel's completions a turn takes at most.
    pub batch: usize,
    /// How [`send_now`](Io::send_now) sends.
    pub sends: SendsBy,
    /// Room for what is to be handed to the kernel; more is handed over in several calls.
    pub submissions: u32,
    /// Room for completions; the kernel keeps what does not fit.
    pub completions: u32,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            buffers: 4096,
            buffer_size: 16 * 1024,
            head_size: 16 * 1024,
            turn_bytes: 256 * 1024,
            turn_time: Policy::default().turn_time,
            batch: 512,
            sends: SendsBy::default(),
            submissions: 256,
            completions: 4096,
        }
    }
}

/// A turn that has come to nothing is gone on with so often, where there is something to be done.
const AGAIN: u32 = 8;
/// How many connections are accepted by calls in a turn.
const ACCEPTS: u32 = 64;

/// What can be said of it on a command line.
pub(super) const OPTIONS: &[Choice] = &[
    Choice {
        name: "sends",
        help: "small answers by a call each, at once, or by the ring, in one call for all",
        values: Values::OneOf(&[SendsBy::Calls.name(), SendsBy::Ring.name()]),
    },
    Choice {
        name: "buffers",
        help: "buffers that the kernel receives into, at most",
        values: Values::Number { default: 4096, least: 1, most: 32_768 },
    },
    Choice {
        name: "size",
        help: "bytes in each",
        values: Values::Number { default: 16_384, least: 64, most: 1 << 20 },
    },
    Choice {
        name: "completions",
        help: "room in the queue of completions; rounded up to a power of two",
        values: Values::Number { default: 4096, least: 16, most: 32_768 },
    },
];

impl Settings {
    /// What was chosen, for a `policy` that may have been made for readiness.
    pub(super) fn of(options: &Options, policy: &Policy) -> Settings {
        let completions = options.number("completions") as u32;
        let defaults = Settings::default();
        Settings {
            buffers: options.number("buffers") as usize,
            buffer_size: options.number("size") as usize,
            head_size: policy.buffer_size,
            turn_bytes: policy.turn_bytes,
            turn_time: policy.turn_time,
            batch: policy.batch,
            sends: options.get("sends").parse().unwrap_or_default(),
            submissions: defaults.submissions.min(completions),
            completions,
        }
    }
}

/// [`Io`] by io_uring. See the [module](self).
pub struct UringIo {
    ring: Ring,
    buffers: Buffers,
    sockets: Sockets,
    sends: Sends,
    /// What submissions name until they are handed over: as many as there are submissions.
    messages: Box<[Message]>,
    message: usize,
    settings: Settings,
    /// How many connections there may be.
    reserved: usize,
    wheel: Wheel,
    now: Time,
    pool: Pool,
    waker: Waker,
    wakeups: OwnedFd,
    hears_wakeups: bool,
    /// Requests that have not ended.
    under_way: usize,
    /// Completions that an operation made at once.
    done: VecDeque<Completion>,
    /// What was received and waits for the pool.
    held: VecDeque<Held>,
    /// Taken off the ring to make room, before it was their turn.
    spilled: VecDeque<Cqe>,
    /// How many completions of the kernel's this turn still has.
    due: u32,
    /// How often the ring may be entered again in this turn, and how many connections be accepted.
    again: u32,
    accepts: u32,
    /// All of this turn was taken.
    ended: bool,
    /// What the kernel may have to be told of before the wait.
    changed: Vec<Token>,
    /// What waits for a buffer.
    starved: VecDeque<Token>,
    /// What can continue in this turn without a completion: first that, then large transfers.
    turn: VecDeque<Token>,
    bulk: Bulk,
    /// What has had its share of this turn and continues in the next.
    later: VecDeque<Token>,
    /// Accepted for listeners that had been stopped.
    kept: VecDeque<(Token, OwnedFd)>,
    relays: Relays,
    counters: Counters,
    /// What ended its use.
    failed: Option<io::Error>,
}

impl fmt::Debug for UringIo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UringIo")
            .field("deferred", &self.ring.is_deferred())
            .field("open", &self.sockets.open())
            .field("under_way", &self.under_way)
            .finish_non_exhaustive()
    }
}

impl UringIo {
    /// Asks the kernel for one. It stays in the thread that asks.
    ///
    /// # Errors
    /// [`Unavailable`]: which call was refused, how, and what would allow it.
    pub fn new(settings: Settings) -> Result<UringIo, Unavailable> {
        UringIo::made(settings, || {
            Wakeups::new().map_err(|error| Unavailable {
                call: "socketpair",
                error,
                remedy: "raise the limit of open files",
            })
        })
    }

    /// As [`new`](UringIo::new), woken by what was made before.
    ///
    /// # Errors
    /// As [`new`](UringIo::new).
    pub fn with_wakeups(settings: Settings, wakeups: Wakeups) -> Result<UringIo, Unavailable> {
        UringIo::made(settings, || Ok(wakeups))
    }

    fn made(
        settings: Settings,
        wakeups: impl FnOnce() -> Result<Wakeups, Unavailable>,
    ) -> Result<UringIo, Unavailable> {
        let submissions = settings.submissions.clamp(8, 4096);
        let completions = settings.completions.clamp(2 * submissions, 32_768);
        let ring = Ring::open(Work::Deferred, (submissions, completions))?;
        ring.require(op::SEND_ZC, "it needs Linux 6.0, for multishot receives")?;
        let count = settings.buffers.clamp(1, 32_768) as u16;
        let size = settings.buffer_size.clamp(64, 1 << 24) as u32;
        let buffers = Buffers::new(&ring, count, size)?;
        let (waker, wakeups) = wakeups()?.split();
        let now = Time::now();
        Ok(UringIo {
            ring,
            buffers,
            sockets: Sockets::default(),
            sends: Sends::default(),
            messages: (0..submissions.next_power_of_two()).map(|_| Message::EMPTY).collect(),
            message: 0,
            settings: Settings { turn_bytes: settings.turn_bytes.max(1), completions, ..settings },
            reserved: usize::MAX,
            wheel: Wheel::new(now),
            now,
            pool: Pool::new(usize::from(count), settings.head_size),
            waker,
            wakeups,
            hears_wakeups: false,
            under_way: 0,
            done: VecDeque::new(),
            held: VecDeque::new(),
            spilled: VecDeque::new(),
            due: 0,
            again: 0,
            accepts: 0,
            ended: true,
            changed: Vec::new(),
            starved: VecDeque::new(),
            turn: VecDeque::new(),
            bulk: Bulk::new(settings.turn_time),
            later: VecDeque::new(),
            kept: VecDeque::new(),
            relays: Relays::default(),
            counters: Counters::default(),
            failed: None,
        })
    }
}

impl Parts for UringIo {
    #[inline]
    fn attempt(&mut self, token: Token, bytes: &[u8], flags: SendFlags) -> Result<(), usize> {
        let socket = self.sockets.get(token).ok_or(0_usize)?;
        let hindered = State::CONNECTING | State::BROKEN | State::LAST;
        if self.settings.sends == SendsBy::Calls
            && socket.sends == socket::NONE
            && !socket.state.intersects(hindered)
            && let Some(fd) = &socket.fd
        {
            let taken = net::send(fd, bytes, flags).unwrap_or(0);
            socket.sent += taken as u64;
            return if taken == bytes.len() { Ok(()) } else { Err(taken) };
        }
        Err(0)
    }

    fn can_relay_from(&self, token: Token) -> bool {
        let not = State::LISTENER | State::CONNECTING | State::LAST | State::ENDED | State::RELAYS;
        self.sockets.state(token).is_some_and(|state| !state.intersects(not))
    }

    fn can_relay_to(&self, token: Token) -> bool {
        let not = State::LISTENER | State::CONNECTING | State::LAST | State::BROKEN | State::FED;
        self.sockets.state(token).is_some_and(|state| !state.intersects(not))
    }

    fn begin_relay(&mut self, from: Token, to: Token, most: u64) {
        let holds = self.holds(from);
        let Some(source) = self.sockets.get(from) else { return };
        source.state.remove(State::STARTED);
        if holds {
            return; // The held completions come instead and cancel the relay.
        }
        source.state.insert(State::RELAYS);
        let armed = source.state.contains(State::ARMED);
        if let Some(target) = self.sockets.get(to) {
            target.state.insert(State::FED);
        }
        self.relays.begin(from, to, most);
        if armed {
            self.change_later(from); // (a)
        } else {
            self.go_on(from, Queue::Turn);
        }
    }
}

impl Io for UringIo {
    fn listen(&mut self, address: &Address, options: &ListenOptions) -> io::Result<Token> {
        let fd = self.with_descriptor(|| sockets::listen(address, options))?;
        let mut state = State::LISTENER;
        state.set(State::PEERS, options.peers && address.is_inet());
        Ok(self.sockets.insert(fd, state))
    }

    fn reserve(&mut self, connections: usize) {
        self.reserved = connections;
        self.sockets.reserve(connections);
        self.wheel.reserve(connections);
    }

    fn connect(&mut self, address: &Address, source: Option<SocketAddr>) -> io::Result<Token> {
        let fd = self.with_descriptor(|| sockets::connect(address, source))?; // (h)
        if !address.is_inet() {
            let token = self.sockets.insert(fd, State::empty());
            self.done.push_back(Completion { token, kind: CompletionKind::Connected(Ok(())) });
            return Ok(token);
        }
        let raw = fd.as_raw_fd();
        let token = self.sockets.insert(fd, State::CONNECTING | State::SENDING);
        self.begin(
            sending::request(token.slot()),
            Sqe::poll(raw, PollFlags::OUT.bits().into(), false),
        );
        Ok(token)
    }

    fn start(&mut self, token: Token) {
        let Some(socket) = self.sockets.get(token) else {
            return;
        };
        if socket.state.intersects(State::ENDED | State::RELAYS) {
            return;
        }
        socket.state.insert(State::STARTED);
        if socket.state.contains(State::LISTENER) && !self.kept.is_empty() {
            self.go_on(token, Queue::Turn); // (d)
        }
        self.change_later(token);
    }

    fn stop(&mut self, token: Token) {
        if let Some(socket) = self.sockets.get(token) {
            socket.state.remove(State::STARTED);
            self.change_later(token);
        }
    }

    fn send(&mut self, token: Token, outgoing: Outgoing) {
        self.queue(token, outgoing, false);
    }

    #[inline]
    fn send_now(&mut self, token: Token, bytes: &[u8]) -> bool {
        shared::send_at_once(self, token, bytes, SendFlags::NOSIGNAL)
    }

    #[inline]
    fn send_last(&mut self, token: Token, bytes: &[u8], then: Then) -> SendOutcome {
        if then == Then::Shutdown || self.settings.sends == SendsBy::Calls {
            return shared::send_last_at_once(self, token, bytes);
        }
        let outgoing = Outgoing::copy(&self.pool, bytes);
        let closes = self.queue(token, outgoing, true);
        if closes { SendOutcome::PendingClose } else { SendOutcome::Pending }
    }

    fn shutdown(&mut self, token: Token) {
        sockets::shutdown(self.sockets.fd(token));
    }

    fn close(&mut self, token: Token) {
        if self.sockets.get(token).is_some() {
            self.retire(token);
        }
    }

    fn abort(&mut self, token: Token) {
        sockets::reset(self.sockets.fd(token));
        self.close(token);
    }

    #[inline]
    fn set_deadline(&mut self, token: Token, deadline: Option<Time>) {
        if self.sockets.get(token).is_some() {
            self.wheel.set(token.slot(), deadline);
        }
    }

    fn delivered(&self, token: Token) -> u64 {
        let sent = self.sockets.sent(token);
        sockets::delivered(self.sockets.fd(token), sent)
    }

    fn undelivered(&self, token: Token) -> u64 {
        sockets::undelivered(self.sockets.fd(token))
    }

    fn socket(&self, token: Token) -> Option<BorrowedFd<'_>> {
        self.sockets.fd(token)
    }

    fn wait(&mut self, until: Option<Time>) -> io::Result<()> {
        if !self.ended {
            return Ok(());
        }
        self.ended = false;
        self.counters.waits += 1;
        self.prepare();
        let there = self.ring.has_completions() || !self.spilled.is_empty();
        // Who was refused a buffer may have had no use for it: the others are to have theirs.
        let starves = !self.starved.is_empty() && self.buffers.provided() > 0;
        let feeds = starves || (!self.held.is_empty() && !self.pool.is_exhausted());
        let goes_on = !self.turn.is_empty() || !self.bulk.is_empty() || !self.done.is_empty();
        if there || feeds || goes_on {
            if self.ring.stirs() {
                self.enter(0, None);
            }
        } else {
            let until = [self.wheel.next(), until].into_iter().flatten().min();
            let timeout = until.map(|until| until.since(Time::now()));
            self.enter(u32::from(timeout != Some(Duration::ZERO)), timeout);
        }
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        self.again = AGAIN;
        self.accepts = ACCEPTS;
        self.deal();
        self.counters.empty_waits += u64::from(self.due == 0);
        self.now = Time::now();
        self.bulk.start_turn(self.now);
        Ok(())
    }

    #[inline]
    fn next(&mut self) -> Option<Completion> {
        loop {
            while let Some(completion) = self.done.pop_front() {
                if self.sockets.get(completion.token).is_some() {
                    self.again = 0;
                    return Some(completion);
                }
            }
            let completion = if !self.held.is_empty() && !self.pool.is_exhausted() {
                self.let_go()
            } else if self.due > 0 {
                self.due -= 1;
                let completion = self.spilled.pop_front().or_else(|| self.ring.next());
                completion.and_then(|completion| self.complete(completion))
            } else if let Some(token) = self.turn.pop_front().or_else(|| self.bulk.next()) {
                self.resume(token)
            } else {
                let Some(slot) = self.wheel.expired(self.now) else {
                    if self.again > 0 && self.goes_on() {
                        continue;
                    }
                    self.ended = true;
                    return None;
                };
                let token = self.sockets.token_at(slot);
                token.map(|token| Completion { token, kind: CompletionKind::Deadline })
            };
            if completion.is_some() {
                self.again = 0;
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
        let (overflows, calls) = (self.ring.overflows(), self.ring.calls());
        Counters { overflows, calls, ..self.counters }
    }

    fn open(&self) -> usize {
        self.sockets.open()
    }
}

impl Relay for UringIo {
    fn relay(&mut self, from: Token, to: Token, most: u64) -> bool {
        shared::relay(self, from, to, most)
    }

    fn relayed(&self, from: Token) -> u64 {
        self.sockets.fd(from).map_or(0, |_| self.relays.moved(from))
    }

    fn relay_is_blocked(&self, to: Token) -> bool {
        self.sockets.is_fed_in_vain(to)
    }
}
