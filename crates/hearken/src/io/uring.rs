//! [`Io`] over io_uring(7): the kernel performs the operations, and reports their completion.
//!
//! A listener has one multishot accept. A connection has one multishot receive into buffers that
//! the kernel selects ([`Settings::buffers`]). The next wait submits all sends of a turn in one
//! call, except small responses with [`SendsBy::Calls`]. An idle connection holds no buffer.
//!
//! Pitfalls, and how each is handled:
//!
//! a) A request holds the open file. A socket that is closed during a receive therefore stays open,
//!    and its peer sees no end. The receive is cancelled first, in the same call. A slot is reused
//!    only after its last request has ended, so a completion is never attributed to another
//!    connection.
//! b) The first receive of a connection is not multishot. A connection that serves one request and
//!    is closed then needs no cancellation.
//! c) A multishot request ends when the completion queue is full, and when there is no buffer. It
//!    is armed again: at once, or in order when a buffer is released.
//! d) The kernel accepts all connections and fills all buffers that it has, even after the caller
//!    stopped. Connections that it accepted for a stopped listener wait until the listener is
//!    started, and are reset if it is closed. When fewer [reserved](Io::reserve) connections remain
//!    than the completion queue holds, the ring accepts one connection, and accept(2) accepts
//!    further ones on request. Bytes that arrive while the [`Pool`] is exhausted are held back
//!    until it has a buffer.
//! e) Several sends on a socket may overtake each other, so the kernel has one at a time. A partial
//!    send continues where it stopped, after the kernel has polled the socket.
//! f) Memory of sends and receives must stay valid until the kernel has finished. Drop cancels all
//!    requests and waits for them. Memory of requests that do not end is leaked.
//! g) sendfile(2) sends a file range, since the ring has no such operation. Its splice(2) always
//!    runs on a kernel thread, twice per piece, through a pipe. A poll request waits for space in
//!    the socket.
//! h) connect(2) is called, and its result polled for, so that an immediate refusal is returned
//!    immediately.
//! i) The number of a descriptor in a queued submission must not be reused. The ring closes such a
//!    descriptor after the submission. Other descriptors are closed immediately.
//! j) A relay uses poll requests and calls, since a splice(2) in the ring runs on a kernel thread
//!    (g).
//! k) Descriptors are ordinary ones. Direct descriptors would save the lock of the descriptor table
//!    at each accept, but do not support calls that [`Io`] needs: getsockname(2), ioctl(2),
//!    shutdown(2).

// This module shares memory with the kernel. Each block states why that is sound.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;
use std::{fmt, io};

use rustix::event::PollFlags;
use rustix::net::SendFlags;

use super::kernel::{KernelSocket, Linux};
use super::large_transfers::{LargeTransfers, Queue};
use super::named::named;
use super::readiness::Policy;
use super::relay::Relays;
use super::shared::{self, Backend};
use super::{
    Address, Completion, CompletionKind, ConnectOptions, Io, ListenOptions, Outgoing, Pool,
};
use super::{CloseMode, PeekResult, Relay, SendOutcome, StreamSocket};
use crate::event::Token;
use crate::mechanism::{Counters, OptionSpec, Options, Source, Unavailable, Values};
use crate::ring::{CompletionMode, Cqe, Ring, RingInterface, Sqe, op};
use crate::sys::poll_events;
use crate::timer::{Time, Wheel};
use crate::waker::{Waker, Wakeups};

mod buffers;
mod closing;
mod completing;
mod numbers;
mod relaying;
mod sending;
mod socket;
mod submitting;

use buffers::Buffers;
pub(super) use buffers::Provided;
use completing::Held;
pub(in crate::io) use numbers::RingKernel;
use sending::{Message, Sends};
use socket::{Sockets, State};

/// The method of sending small responses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum SendsBy {
    /// Immediately by send(2), and through the ring for bytes that the socket does not take. Bytes
    /// that it takes need no completion, no copy and no buffer, and the caller can close the
    /// connection immediately.
    #[default]
    Calls,
    /// Through the ring: one call submits all sends of a turn.
    Ring,
}

named!(SendsBy, "way of sending", Calls => "calls", Ring => "ring");

/// Settings of a [`UringIo`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// Maximum number of buffers in use for received bytes, and for bytes to send; at most 32,768.
    pub buffers: usize,
    /// Size of a buffer for received bytes.
    pub buffer_size: usize,
    /// Size of a buffer for bytes to send.
    pub head_size: usize,
    /// Maximum number of bytes of a file to send before another connection is served.
    pub turn_bytes: usize,
    /// Maximum time per turn for sending files and for accepting connections by calls, as
    /// [`Policy::turn_time`]. Zero means no limit.
    pub turn_time: Duration,
    /// Maximum number of the kernel's completions per turn.
    pub batch: usize,
    /// Method of [`send_now`](Io::send_now).
    pub sends: SendsBy,
    /// Size of the submission queue. More submissions take several calls.
    pub submissions: u32,
    /// Size of the completion queue. The kernel stores completions that do not fit.
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

/// Maximum number of submissions without a wait in a turn that has had no completion.
const MAX_REENTRIES: u32 = 8;
/// Maximum number of connections to accept by calls per turn.
const MAX_ACCEPTS: u32 = 64;

/// Options on a command line.
pub(super) const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        name: "sends",
        help: "send small responses immediately, by a call each, or through the ring, in one call for all",
        values: Values::OneOf(&[SendsBy::Calls.name(), SendsBy::Ring.name()]),
    },
    OptionSpec {
        name: "buffers",
        help: "maximum number of receive buffers",
        values: Values::Number { default: 4096, min: 1, max: 32_768 },
    },
    OptionSpec {
        name: "size",
        help: "size of a receive buffer in bytes",
        values: Values::Number { default: 16_384, min: 64, max: 1 << 20 },
    },
    OptionSpec {
        name: "completions",
        help: "size of the completion queue, rounded up to a power of two",
        values: Values::Number { default: 4096, min: 16, max: 32_768 },
    },
];

impl Settings {
    /// Creates settings from options, and from the parts of a readiness `policy` that also apply to
    /// io_uring.
    pub(super) fn from_options(options: &Options, policy: &Policy) -> Settings {
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

    /// Returns the settings with each value limited to what the kernel supports.
    pub(super) fn within_limits(self) -> Settings {
        let submissions = self.submissions.clamp(8, 4096);
        Settings {
            buffers: self.buffers.clamp(1, 32_768),
            buffer_size: self.buffer_size.clamp(64, 1 << 24),
            turn_bytes: self.turn_bytes.max(1),
            submissions,
            completions: self.completions.clamp(2 * submissions, 32_768),
            ..self
        }
    }
}

/// An [`Io`] over io_uring. See the [module](self). The ring and the kernel are those of Linux, or
/// simulated.
pub struct UringIo<R: RingInterface = Ring, K: RingKernel = Linux> {
    ring: R,
    kernel: K,
    buffers: Buffers,
    sockets: Sockets<K::Socket>,
    sends: Sends,
    /// Headers of queued submissions, one for each entry of the submission queue.
    messages: Box<[Message]>,
    message: usize,
    settings: Settings,
    /// Maximum number of connections.
    reserved: usize,
    wheel: Wheel,
    now: Time,
    pool: Pool,
    waker: Waker,
    wakeups: K::Socket,
    polls_wakeups: bool,
    /// Number of requests that have not ended.
    in_flight: usize,
    /// Completions of operations that completed immediately.
    done: VecDeque<Completion>,
    /// Received bytes that wait for the pool.
    held: VecDeque<Held>,
    /// Completions that were removed from the ring early, to free space in it.
    drained: VecDeque<Cqe>,
    /// Number of the kernel's completions that remain in this turn.
    batch_left: u32,
    /// Number of further submissions without a wait that are allowed in this turn.
    reentries_left: u32,
    /// Number of further connections that may be accepted by calls in this turn.
    accepts_left: u32,
    /// Whether all completions of this turn were taken.
    turn_ended: bool,
    /// Sockets whose requests are updated before the next wait.
    changed: Vec<Token>,
    /// Connections that wait for a buffer.
    waiting_for_buffer: VecDeque<Token>,
    /// Sockets that continue in this turn without a completion, before the large transfers.
    turn: VecDeque<Token>,
    large_transfers: LargeTransfers,
    /// Sockets that reached their limit of this turn and continue in the next.
    later: VecDeque<Token>,
    /// Connections that the kernel accepted for stopped listeners.
    accepted_early: VecDeque<(Token, K::Socket)>,
    relays: Relays<K>,
    counters: Counters,
    /// The error after which the instance is unusable.
    failed: Option<io::Error>,
}

impl<R: RingInterface, K: RingKernel> fmt::Debug for UringIo<R, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UringIo")
            .field("deferred", &self.ring.is_deferred())
            .field("open", &self.sockets.open())
            .field("in_flight", &self.in_flight)
            .finish_non_exhaustive()
    }
}

impl UringIo {
    /// Creates an instance, which must stay in the calling thread.
    ///
    /// # Errors
    /// [`Unavailable`]: the call that the kernel refused, its error, and a remedy.
    pub fn new(settings: Settings) -> Result<UringIo, Unavailable> {
        UringIo::create(settings, || {
            Wakeups::new().map_err(|error| Unavailable {
                call: "socketpair",
                error,
                remedy: "raise the limit of open files",
            })
        })
    }

    /// Creates an instance like [`new`](UringIo::new) that is woken by existing `wakeups`.
    ///
    /// # Errors
    /// Errors of [`new`](UringIo::new).
    pub fn with_wakeups(settings: Settings, wakeups: Wakeups) -> Result<UringIo, Unavailable> {
        UringIo::create(settings, || Ok(wakeups))
    }

    fn create(
        settings: Settings,
        wakeups: impl FnOnce() -> Result<Wakeups, Unavailable>,
    ) -> Result<UringIo, Unavailable> {
        let settings = settings.within_limits();
        let ring =
            Ring::open(CompletionMode::Deferred, (settings.submissions, settings.completions))?;
        ring.require_operation(op::SEND_ZC, "it needs Linux 6.0, for multishot receives")?;
        UringIo::over(Linux, ring, settings, || Ok(wakeups()?.into_parts()))
    }
}

impl<R: RingInterface, K: RingKernel> UringIo<R, K> {
    /// Creates an instance over a ring of `kernel`. The settings are within their limits. `wakeups`
    /// creates the channel of wake-ups.
    pub(in crate::io) fn over(
        kernel: K,
        mut ring: R,
        settings: Settings,
        wakeups: impl FnOnce() -> Result<(Waker, K::Socket), Unavailable>,
    ) -> Result<UringIo<R, K>, Unavailable> {
        let count = settings.buffers as u16;
        let buffers = Buffers::new(&mut ring, count, settings.buffer_size as u32)?;
        let (waker, wakeups) = wakeups()?;
        let now = kernel.clock();
        Ok(UringIo {
            ring,
            kernel,
            buffers,
            sockets: Sockets::EMPTY,
            sends: Sends::default(),
            messages: (0..settings.submissions.next_power_of_two())
                .map(|_| Message::EMPTY)
                .collect(),
            message: 0,
            settings,
            reserved: usize::MAX,
            wheel: Wheel::new(now),
            now,
            pool: Pool::new(usize::from(count), settings.head_size),
            waker,
            wakeups,
            polls_wakeups: false,
            in_flight: 0,
            done: VecDeque::new(),
            held: VecDeque::new(),
            drained: VecDeque::new(),
            batch_left: 0,
            reentries_left: 0,
            accepts_left: 0,
            turn_ended: true,
            changed: Vec::new(),
            waiting_for_buffer: VecDeque::new(),
            turn: VecDeque::new(),
            large_transfers: LargeTransfers::new(settings.turn_time),
            later: VecDeque::new(),
            accepted_early: VecDeque::new(),
            relays: Relays::default(),
            counters: Counters::default(),
            failed: None,
        })
    }
}

impl<R: RingInterface, K: RingKernel> Backend for UringIo<R, K> {
    #[inline]
    fn try_send(&mut self, token: Token, bytes: &[u8], flags: SendFlags) -> Result<(), usize> {
        let socket = self.sockets.get(token).ok_or(0_usize)?;
        let prevented_by = State::CONNECTING | State::SEND_FAILED | State::CLOSE_LINKED;
        if self.settings.sends == SendsBy::Calls
            && socket.sends == socket::NONE
            && !socket.state.intersects(prevented_by)
            && let Some(fd) = &socket.fd
        {
            let taken = fd.send(bytes, flags).unwrap_or(0);
            socket.sent += taken as u64;
            return if taken == bytes.len() { Ok(()) } else { Err(taken) };
        }
        Err(0)
    }

    fn can_relay_from(&self, token: Token) -> bool {
        let not = State::LISTENER
            | State::WATCHED
            | State::CONNECTING
            | State::CLOSE_LINKED
            | State::RECEIVE_ENDED
            | State::RELAY_SOURCE;
        self.sockets.state(token).is_some_and(|state| !state.intersects(not))
    }

    fn can_relay_to(&self, token: Token) -> bool {
        let not = State::LISTENER
            | State::WATCHED
            | State::CONNECTING
            | State::CLOSE_LINKED
            | State::SEND_FAILED
            | State::RELAY_TARGET;
        self.sockets.state(token).is_some_and(|state| !state.intersects(not))
    }

    fn start_relay(&mut self, from: Token, to: Token, max: u64) {
        let holds = self.has_held(from);
        let Some(source) = self.sockets.get(from) else { return };
        source.state.remove(State::STARTED);
        if holds {
            return; // The held completions come instead and cancel the relay.
        }
        source.state.insert(State::RELAY_SOURCE);
        let armed = source.state.contains(State::ARMED);
        if let Some(target) = self.sockets.get(to) {
            target.state.insert(State::RELAY_TARGET);
        }
        self.relays.start(from, to, max);
        if armed {
            self.update_later(from); // (a)
        } else {
            self.enqueue(from, Queue::ThisTurn);
        }
    }
}

impl<R: RingInterface, K: RingKernel> Io for UringIo<R, K> {
    fn listen(&mut self, address: &Address, options: &ListenOptions) -> io::Result<Token> {
        let fd = self.with_descriptor(|kernel| kernel.listen(address, options))?;
        let mut state = State::LISTENER;
        state.set(State::REPORTS_PEERS, options.peers && address.is_inet());
        Ok(self.sockets.insert(fd, state))
    }

    fn share_listener(&mut self, socket: OwnedFd, options: &ListenOptions) -> io::Result<Token> {
        let socket = self.kernel.take(StreamSocket::new(socket)?)?;
        let mut state = State::LISTENER;
        state.set(State::REPORTS_PEERS, options.peers && socket.local_addr().is_ok());
        Ok(self.sockets.insert(socket, state))
    }

    fn adopt(&mut self, socket: StreamSocket) -> io::Result<Token> {
        let socket = self.kernel.take(socket)?;
        Ok(self.sockets.insert(socket, State::empty()))
    }

    fn watch(&mut self, descriptor: OwnedFd) -> io::Result<Token> {
        let descriptor = self.kernel.take(StreamSocket::prepared(descriptor))?;
        Ok(self.sockets.insert(descriptor, State::WATCHED))
    }

    fn reserve(&mut self, connections: usize) {
        self.reserved = connections;
        self.sockets.reserve(connections);
        self.wheel.reserve(connections);
    }

    fn connect_with(&mut self, address: &Address, options: &ConnectOptions) -> io::Result<Token> {
        let fd = self.with_descriptor(|kernel| kernel.connect(address, options))?; // (h)
        if !address.is_inet() {
            let token = self.sockets.insert(fd, State::empty());
            self.done.push_back(Completion { token, kind: CompletionKind::Connected(Ok(())) });
            return Ok(token);
        }
        let raw = fd.raw();
        let token = self.sockets.insert(fd, State::CONNECTING | State::SENDING);
        self.submit(
            sending::send_request(token.slot()),
            Sqe::poll(raw, poll_events(PollFlags::OUT), false),
        );
        Ok(token)
    }

    fn start(&mut self, token: Token) {
        let Some(socket) = self.sockets.get(token) else {
            return;
        };
        if socket.state.intersects(State::RECEIVE_ENDED | State::RELAY_SOURCE) {
            return;
        }
        socket.state.insert(State::STARTED);
        if socket.state.contains(State::LISTENER) && !self.accepted_early.is_empty() {
            self.enqueue(token, Queue::ThisTurn); // (d)
        }
        self.update_later(token);
    }

    fn stop(&mut self, token: Token) {
        if let Some(socket) = self.sockets.get(token) {
            socket.state.remove(State::STARTED);
            self.update_later(token);
        }
    }

    fn send(&mut self, token: Token, outgoing: Outgoing) {
        self.queue_send(token, outgoing, false);
    }

    #[inline]
    fn send_now(&mut self, token: Token, bytes: &[u8]) -> bool {
        shared::send_immediately(self, token, bytes, SendFlags::NOSIGNAL)
    }

    #[inline]
    fn send_last(&mut self, token: Token, bytes: &[u8], mode: CloseMode) -> SendOutcome {
        if mode == CloseMode::Shutdown || self.settings.sends == SendsBy::Calls {
            return shared::send_last_immediately(self, token, bytes);
        }
        let outgoing = Outgoing::copy(&self.pool, bytes);
        let closes = self.queue_send(token, outgoing, true);
        if closes { SendOutcome::PendingClose } else { SendOutcome::Pending }
    }

    fn shutdown(&mut self, token: Token) {
        if let Some(socket) = self.sockets.fd(token) {
            socket.shutdown();
        }
    }

    fn close(&mut self, token: Token) {
        if self.sockets.get(token).is_some() {
            self.retire(token);
        }
    }

    fn abort(&mut self, token: Token) {
        if let Some(socket) = self.sockets.fd(token) {
            socket.reset_on_close();
        }
        self.close(token);
    }

    #[inline]
    fn set_deadline(&mut self, token: Token, deadline: Option<Time>) {
        if self.sockets.get(token).is_some() {
            self.wheel.set(token.slot(), deadline);
        }
    }

    fn delivered(&self, token: Token) -> u64 {
        self.sockets.delivered(token, self.undelivered(token))
    }

    fn undelivered(&self, token: Token) -> u64 {
        self.sockets.fd(token).map_or(0, K::Socket::undelivered)
    }

    fn socket(&self, token: Token) -> Option<BorrowedFd<'_>> {
        self.sockets.fd(token)?.descriptor()
    }

    fn local_addr(&self, token: Token) -> io::Result<SocketAddr> {
        self.sockets.fd(token).ok_or(io::ErrorKind::NotConnected)?.local_addr()
    }

    fn peer_addr(&self, token: Token) -> io::Result<SocketAddr> {
        self.sockets.fd(token).ok_or(io::ErrorKind::NotConnected)?.peer_addr()
    }

    fn peek(&self, token: Token) -> PeekResult {
        self.sockets.fd(token).map_or(PeekResult::Ended, K::Socket::peek)
    }

    fn wait(&mut self, until: Option<Time>) -> io::Result<()> {
        if !self.turn_ended {
            return Ok(());
        }
        self.turn_ended = false;
        self.counters.waits += 1;
        self.prepare();
        let has_completions = self.ring.has_completions() || !self.drained.is_empty();
        // A connection that waited for a buffer may not have used it. The others receive it then.
        let has_unused_buffers = !self.waiting_for_buffer.is_empty() && self.buffers.provided() > 0;
        let has_buffers =
            has_unused_buffers || (!self.held.is_empty() && !self.pool.is_exhausted());
        let has_work =
            !self.turn.is_empty() || !self.large_transfers.is_empty() || !self.done.is_empty();
        if has_completions || has_buffers || has_work {
            if self.ring.needs_enter() {
                self.enter(0, None);
            }
        } else {
            let until = [self.wheel.next_deadline(), until].into_iter().flatten().min();
            let timeout = until.map(|until| until.duration_since(self.kernel.clock()));
            self.enter(u32::from(timeout != Some(Duration::ZERO)), timeout);
        }
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        self.reentries_left = MAX_REENTRIES;
        self.accepts_left = MAX_ACCEPTS;
        self.start_batch();
        self.counters.empty_waits += u64::from(self.batch_left == 0);
        self.now = self.kernel.clock();
        self.large_transfers.start_turn(self.now);
        Ok(())
    }

    #[inline]
    fn next(&mut self) -> Option<Completion> {
        loop {
            while let Some(completion) = self.done.pop_front() {
                if self.sockets.get(completion.token).is_some() {
                    self.reentries_left = 0;
                    return Some(completion);
                }
            }
            let completion = if !self.held.is_empty() && !self.pool.is_exhausted() {
                self.deliver_held()
            } else if self.batch_left > 0 {
                self.batch_left -= 1;
                let completion = self.drained.pop_front().or_else(|| self.ring.next());
                completion.and_then(|completion| self.complete(completion))
            } else if let Some(token) =
                self.turn.pop_front().or_else(|| self.large_transfers.next(&self.kernel))
            {
                self.resume(token)
            } else {
                let Some(slot) = self.wheel.pop_expired(self.now) else {
                    if self.reentries_left > 0 && self.submit_again() {
                        continue;
                    }
                    self.turn_ended = true;
                    return None;
                };
                let token = self.sockets.token_at(slot);
                token.map(|token| Completion { token, kind: CompletionKind::Deadline })
            };
            if completion.is_some() {
                self.reentries_left = 0;
                return completion;
            }
        }
    }

    fn now(&self) -> Time {
        self.now
    }

    #[inline]
    fn clock(&self) -> Time {
        self.kernel.clock()
    }

    #[inline]
    fn unix_time(&self) -> Duration {
        self.kernel.unix_time()
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

    fn open_count(&self) -> usize {
        self.sockets.open()
    }
}

impl<R: RingInterface, K: RingKernel> Relay for UringIo<R, K> {
    fn relay(&mut self, from: Token, to: Token, max: u64) -> bool {
        shared::relay(self, from, to, max)
    }

    fn relayed(&self, from: Token) -> u64 {
        self.sockets.fd(from).map_or(0, |_| self.relays.moved(from))
    }

    fn relay_is_blocked(&self, to: Token) -> bool {
        self.sockets.relay_needs_space(to)
    }
}
