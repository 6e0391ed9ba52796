//! [`Io`] over any readiness mechanism: non-blocking calls, and waits for calls that would block.
//!
//! [`Policy`] contains the settings that the literature compares:
//!
//! * *Try first or wait first.* Try first makes the call and declares interest only if the call
//!   would block. A connection that is accepted, answered and closed in one turn is never
//!   registered. The servers of the papers wait first, or wait before they receive.
//! * *Accept limit.* Maximum number of connections to accept per readiness event of a listener
//!   (Brecht, Pariag, Gammo: "accept()able Strategies for Improving Web Server Performance", USENIX
//!   2004).
//! * *Interest.* Changed at every state, changed when an unwanted event shows the need, or declared
//!   once for both directions.
//! * *Close.* Interest ends with close(2), or is revoked explicitly before.
//! * *Cork.* A head and the file range after it are sent between two calls that set `TCP_CORK`.
//! * *Timers.* A wheel, or a scan of all deadlines in every turn.
//! * *Events per wait.* Maximum number of events that one wait returns.
//! * *Bytes per turn.* Maximum number of bytes of a connection before another connection is served.
//! * *Time per turn.* Maximum time of large transfers before new events are handled.
//!
//! A relay tries first under every policy, and is subject to the limit of bytes per turn.
//!
//! Interest is declared at the end of a turn, for the operations that are still waiting then.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::SendFlags;

use super::kernel::{Kernel, KernelSocket, Linux};
use super::large_transfers::{LARGE_TRANSFER, LargeTransfers, Queue};
use super::relay::Relays;
use super::shared::{self, Backend};
use super::{
    Address, Completion, CompletionKind, ConnectOptions, Io, ListenOptions, Outgoing, Pool,
};
use super::{CloseMode, PeekResult, Relay, SendOutcome, StreamSocket};
use crate::event::{Interest, Readiness, Token};
use crate::mechanism::{Counters, Mechanism, Registry, Sharing, Trigger, ignore_interrupt};
use crate::timer::{Time, Wheel};
use crate::waker::{Waker, Wakeups};

mod policy;
mod relaying;
mod socket;
mod turn;

pub use policy::{ClosePolicy, InterestPolicy, Order, Policy};
use socket::{Progress, Socket, State, transmit};

/// An [`Io`] over a readiness mechanism. See the [module](self).
#[derive(Debug)]
pub struct ReadinessIo<M: Mechanism, K: Kernel = Linux> {
    registry: Registry<M, K::Socket>,
    kernel: K,
    policy: Policy,
    edge: bool,
    one_shot: bool,
    /// Whether the mechanism reports the end of a stream. A short read then empties the socket,
    /// unless the end was reported.
    reports_end: bool,
    /// The state of a new connection.
    initial_state: State,
    /// The sockets, by the slots of their tokens.
    sockets: Vec<Socket>,
    wheel: Wheel,
    now: Time,
    pool: Pool,
    waker: Waker,
    wakeups: Token,
    /// Completions of operations that completed immediately.
    done: VecDeque<Completion>,
    /// Number of events in this turn's batch.
    batch: usize,
    /// Index of the next event in the batch.
    cursor: usize,
    /// Whether all completions of this turn were taken.
    turn_ended: bool,
    /// Sockets that continue in this turn without an event, before the large transfers.
    turn: VecDeque<Token>,
    large_transfers: LargeTransfers,
    /// Sockets that reached their limit of this turn and continue in the next.
    later: VecDeque<Token>,
    /// Sockets whose interest is declared before the next wait.
    undeclared: Vec<Token>,
    /// Connections that wait for a buffer.
    waiting_for_buffer: VecDeque<Token>,
    relays: Relays<K>,
}

impl<M: Mechanism> ReadinessIo<M> {
    /// Creates an instance over `mechanism` with `policy`.
    ///
    /// # Errors
    /// Errors of the kernel: out of descriptors or memory.
    pub fn new(mechanism: M, policy: Policy) -> io::Result<ReadinessIo<M>> {
        ReadinessIo::with_wakeups(mechanism, policy, Wakeups::new()?)
    }

    /// Creates an instance like [`new`](ReadinessIo::new) that is woken by existing `wakeups`.
    ///
    /// # Errors
    /// Errors of the kernel: out of memory.
    pub fn with_wakeups(
        mechanism: M,
        policy: Policy,
        wakeups: Wakeups,
    ) -> io::Result<ReadinessIo<M>> {
        let (waker, wakeups) = wakeups.into_parts();
        ReadinessIo::over(Linux, mechanism, policy, waker, wakeups)
    }
}

impl<M: Mechanism, K: Kernel> ReadinessIo<M, K> {
    /// Creates an instance that makes its calls to `kernel`. `wakeups` is the receiving end of the
    /// channel of `waker`.
    pub(super) fn over(
        kernel: K,
        mechanism: M,
        policy: Policy,
        waker: Waker,
        wakeups: K::Socket,
    ) -> io::Result<ReadinessIo<M, K>> {
        let mut registry = Registry::new(mechanism);
        let wakeups = registry.insert(wakeups);
        registry.declare(wakeups, Interest::READ)?;
        registry.keep_active(wakeups);
        let semantics = registry.semantics();
        let edge = semantics.trigger == Trigger::Edge;
        // An end that arrives with the last data, in one edge, and is not reported requires another
        // read.
        let reports_end = semantics.reports.contains(Readiness::READ_CLOSED);
        let mut initial_state = State::empty();
        initial_state.set(State::END_PENDING, edge && !reports_end);
        initial_state.set(State::REVOKED_TO_CLOSE, policy.close == ClosePolicy::Explicit);
        initial_state.set(State::CORKED, policy.cork);
        let now = kernel.clock();
        Ok(ReadinessIo {
            kernel,
            edge,
            reports_end,
            one_shot: semantics.trigger == Trigger::OneShot,
            initial_state,
            registry,
            // The first slot belongs to the wake-ups.
            sockets: vec![Socket { state: State::STARTED, ..Socket::default() }],
            wheel: Wheel::with_policy(now, policy.timers),
            now,
            pool: Pool::new(policy.buffers, policy.buffer_size),
            waker,
            wakeups,
            done: VecDeque::new(),
            batch: 0,
            cursor: 0,
            turn_ended: true,
            turn: VecDeque::new(),
            large_transfers: LargeTransfers::new(policy.turn_time),
            later: VecDeque::new(),
            undeclared: Vec::new(),
            waiting_for_buffer: VecDeque::new(),
            relays: Relays::default(),
            policy: Policy { turn_bytes: policy.turn_bytes.max(1), ..policy },
        })
    }
}

impl<M: Mechanism, K: Kernel> Backend for ReadinessIo<M, K> {
    #[inline]
    fn try_send(&mut self, token: Token, bytes: &[u8], flags: SendFlags) -> Result<(), usize> {
        let tries = self.tries_to_send(token);
        let share = self.policy.turn_bytes;
        let (fd, socket) = self.socket_mut(token).ok_or(0_usize)?;
        if !tries || socket.sends.is_some() || socket.used as usize >= share {
            return Err(0);
        }
        let taken = fd.send(bytes, flags).unwrap_or(0);
        socket.has_sent(taken);
        if taken == bytes.len() { Ok(()) } else { Err(taken) }
    }

    fn can_relay_from(&self, token: Token) -> bool {
        let not = State::LISTENER
            | State::WATCHED
            | State::CONNECTING
            | State::RECEIVE_ENDED
            | State::RELAY_SOURCE;
        self.state(token).is_some_and(|state| !state.intersects(not))
    }

    fn can_relay_to(&self, token: Token) -> bool {
        let not = State::LISTENER
            | State::WATCHED
            | State::CONNECTING
            | State::SEND_FAILED
            | State::RELAY_TARGET;
        self.state(token).is_some_and(|state| !state.intersects(not))
    }

    fn start_relay(&mut self, from: Token, to: Token, max: u64) {
        let state = &mut self.sockets[from.slot() as usize].state;
        state.remove(State::STARTED | State::NEEDS_BUFFER);
        state.insert(State::RELAY_SOURCE | State::READABLE);
        self.sockets[to.slot() as usize].state.insert(State::RELAY_TARGET);
        self.relays.start(from, to, max);
        self.enqueue(from, Queue::ThisTurn);
    }
}

impl<M: Mechanism, K: Kernel> Io for ReadinessIo<M, K> {
    fn listen(&mut self, address: &Address, options: &ListenOptions) -> io::Result<Token> {
        let fd = self.kernel.listen(address, options)?;
        let mut state = State::LISTENER;
        state.set(State::REPORTS_PEERS, options.peers && address.is_inet());
        Ok(self.register(fd, state))
    }

    fn reserve(&mut self, connections: usize) {
        self.registry.reserve(connections);
        self.sockets.reserve_exact(connections);
        self.wheel.reserve(connections);
    }

    fn connect_with(&mut self, address: &Address, options: &ConnectOptions) -> io::Result<Token> {
        let fd = self.kernel.connect(address, options)?;
        if address.is_inet() {
            let token = self.register(fd, State::CONNECTING | self.initial_state);
            self.declare_later(token);
            return Ok(token);
        }
        let token = self.register(fd, self.initial_state);
        self.done.push_back(Completion { token, kind: CompletionKind::Connected(Ok(())) });
        Ok(token)
    }

    fn share_listener(&mut self, socket: OwnedFd, options: &ListenOptions) -> io::Result<Token> {
        if self.registry.semantics().sharing == Sharing::Owner {
            let reason = "the mechanism reports the events of a socket to one instance only";
            return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
        }
        let socket = self.kernel.take(StreamSocket::new(socket)?)?;
        let mut state = State::LISTENER | State::SHARED;
        state.set(State::REPORTS_PEERS, options.peers && socket.local_addr().is_ok());
        Ok(self.register(socket, state))
    }

    fn adopt(&mut self, socket: StreamSocket) -> io::Result<Token> {
        let socket = self.kernel.take(socket)?;
        Ok(self.register(socket, self.connected_state()))
    }

    fn watch(&mut self, descriptor: OwnedFd) -> io::Result<Token> {
        let descriptor = self.kernel.take(StreamSocket::prepared(descriptor))?;
        Ok(self.register(descriptor, State::WATCHED))
    }

    fn release(&mut self, token: Token) -> Option<StreamSocket> {
        let (fd, socket) = self.socket_mut(token)?;
        fd.descriptor()?;
        let busy = State::LISTENER
            | State::CONNECTING
            | State::RECEIVE_ENDED
            | State::SEND_FAILED
            | State::RELAY_SOURCE
            | State::RELAY_TARGET
            | State::WATCHED;
        if socket.state.intersects(busy) || socket.sends.is_some() {
            return None;
        }
        self.wheel.cancel(token.slot());
        self.sockets[token.slot() as usize] = Socket::default();
        let socket = self.registry.remove(token).and_then(K::Socket::into_descriptor)?;
        Some(StreamSocket::prepared(socket))
    }

    fn start(&mut self, token: Token) {
        let Some((_, socket)) = self.socket_mut(token) else {
            return;
        };
        if socket.state.intersects(State::RECEIVE_ENDED | State::RELAY_SOURCE) {
            return;
        }
        socket.state.insert(State::STARTED);
        if socket.state.contains(State::WATCHED) {
            return self.start_watching(token);
        }
        if socket.state.contains(State::SHARED) {
            socket.state.insert(State::READABLE);
        }
        if socket.state.contains(State::READABLE) {
            self.enqueue(token, Queue::ThisTurn);
        } else {
            self.declare_read_if_missing(token);
        }
    }

    fn stop(&mut self, token: Token) {
        let Some((_, socket)) = self.socket_mut(token) else {
            return;
        };
        if socket.state.contains(State::RELAY_SOURCE) {
            return; // During a relay it is stopped already.
        }
        socket.state.remove(State::STARTED);
        let exact = socket.state.contains(State::LISTENER);
        if exact || self.policy.interest == InterestPolicy::EveryState {
            self.declare_later(token);
        }
    }

    #[inline]
    fn send(&mut self, token: Token, mut outgoing: Outgoing) {
        if outgoing.head.is_empty() {
            outgoing.head.release();
        }
        let (share, tries) = (self.policy.turn_bytes, self.tries_to_send(token));
        let put_off = self.large_transfers.is_time_up();
        let Some((fd, socket)) = self.socket_mut(token) else {
            return;
        };
        if socket.state.contains(State::SEND_FAILED) {
            return;
        }
        if socket.sends.is_some() {
            return self.send_later(token, outgoing);
        }
        let large = outgoing.body.is_large();
        let progress = if !tries {
            Progress::WouldBlock
        } else if large && put_off {
            self.enqueue(token, Queue::LargeTransfers);
            return self.send_later(token, outgoing);
        } else {
            transmit(fd, &mut outgoing, socket, share)
        };
        if large {
            self.large_transfers.count(LARGE_TRANSFER, &self.kernel);
        }
        let result = match progress {
            Progress::Complete => Ok(()),
            Progress::Failed(error) => {
                self.sockets[token.slot() as usize].state.insert(State::SEND_FAILED);
                Err(error)
            }
            Progress::WouldBlock => {
                if tries {
                    self.registry.would_block(token, Interest::WRITE);
                }
                self.declare_later(token);
                return self.send_later(token, outgoing);
            }
            Progress::Yielded => {
                self.enqueue(token, Queue::NextTurn);
                return self.send_later(token, outgoing);
            }
        };
        self.done.push_back(Completion { token, kind: CompletionKind::Sent(result) });
    }

    #[inline]
    fn send_now(&mut self, token: Token, bytes: &[u8]) -> bool {
        shared::send_immediately(self, token, bytes, SendFlags::NOSIGNAL)
    }

    #[inline]
    fn send_last(&mut self, token: Token, bytes: &[u8], _: CloseMode) -> SendOutcome {
        shared::send_last_immediately(self, token, bytes)
    }

    fn shutdown(&mut self, token: Token) {
        if let Some(socket) = self.registry.get(token) {
            socket.shutdown();
        }
    }

    fn close(&mut self, token: Token) {
        let special = State::RELAY_SOURCE | State::RELAY_TARGET | State::REVOKED_TO_CLOSE;
        if let Some((_, socket)) = self.socket_mut(token)
            && socket.state.intersects(special)
        {
            self.prepare_close(token);
        }
        if self.registry.close(token) {
            self.wheel.cancel(token.slot());
            self.sockets[token.slot() as usize] = Socket::default();
        }
    }

    fn abort(&mut self, token: Token) {
        if let Some(socket) = self.registry.get(token) {
            socket.reset_on_close();
        }
        self.close(token);
    }

    #[inline]
    fn set_deadline(&mut self, token: Token, deadline: Option<Time>) {
        if self.registry.get(token).is_some() {
            self.wheel.set(token.slot(), deadline);
        }
    }

    fn delivered(&self, token: Token) -> u64 {
        let Some(socket) = self.registry.get(token) else { return 0 };
        let sent = self.sockets.get(token.slot() as usize).map_or(0, |socket| socket.sent);
        sent.saturating_sub(K::Socket::undelivered(socket))
    }

    fn undelivered(&self, token: Token) -> u64 {
        self.registry.get(token).map_or(0, K::Socket::undelivered)
    }

    fn socket(&self, token: Token) -> Option<BorrowedFd<'_>> {
        self.registry.get(token).and_then(K::Socket::descriptor)
    }

    fn local_addr(&self, token: Token) -> io::Result<SocketAddr> {
        self.registry.get(token).ok_or(io::ErrorKind::NotConnected)?.local_addr()
    }

    fn peer_addr(&self, token: Token) -> io::Result<SocketAddr> {
        self.registry.get(token).ok_or(io::ErrorKind::NotConnected)?.peer_addr()
    }

    fn peek(&self, token: Token) -> PeekResult {
        self.registry.get(token).map_or(PeekResult::Ended, K::Socket::peek)
    }

    fn wait(&mut self, until: Option<Time>) -> io::Result<()> {
        if !self.turn_ended {
            return Ok(()); // A new wait would not report the remaining edges again.
        }
        self.turn_ended = false;
        self.declare();
        for token in self.later.drain(..) {
            let socket = &mut self.sockets[token.slot() as usize];
            socket.used = 0;
            if socket.state.contains(State::LISTENER) {
                self.turn.push_back(token);
            } else {
                self.large_transfers.push(token);
            }
        }
        let has_buffers = !self.waiting_for_buffer.is_empty() && !self.pool.is_exhausted();
        let has_work =
            !self.turn.is_empty() || !self.large_transfers.is_empty() || !self.done.is_empty();
        let timeout = if !has_work && !has_buffers {
            let until = [self.wheel.next_deadline(), until].into_iter().flatten().min();
            until.map(|until| until.duration_since(self.kernel.clock()))
        } else {
            Some(Duration::ZERO)
        };
        self.batch = ignore_interrupt(self.registry.wait(self.policy.batch, timeout))?;
        self.cursor = 0;
        self.now = self.kernel.clock();
        self.large_transfers.start_turn(self.now);
        Ok(())
    }

    fn next(&mut self) -> Option<Completion> {
        loop {
            while let Some(completion) = self.done.pop_front() {
                if self.registry.get(completion.token).is_some() {
                    return Some(completion);
                }
            }
            let completion = if let Some(token) = self.next_with_buffer() {
                self.receive(token)
            } else if self.cursor < self.batch {
                let index = self.cursor;
                self.cursor += 1;
                self.registry
                    .event(index)
                    .and_then(|event| self.on_event(event.token, event.readiness))
            } else if let Some(token) =
                self.turn.pop_front().or_else(|| self.large_transfers.next(&self.kernel))
            {
                self.resume(token)
            } else {
                let Some(slot) = self.wheel.pop_expired(self.now) else {
                    self.turn_ended = true;
                    return None;
                };
                let token = self.registry.token_at(slot);
                token.map(|token| Completion { token, kind: CompletionKind::Deadline })
            };
            if completion.is_some() {
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
        self.registry.counters()
    }

    fn open_count(&self) -> usize {
        self.registry.len() - 1
    }
}

impl<M: Mechanism, K: Kernel> Relay for ReadinessIo<M, K> {
    fn relay(&mut self, from: Token, to: Token, max: u64) -> bool {
        shared::relay(self, from, to, max)
    }

    fn relayed(&self, from: Token) -> u64 {
        self.registry.get(from).map_or(0, |_| self.relays.moved(from))
    }

    fn relay_is_blocked(&self, to: Token) -> bool {
        self.state(to).is_some_and(|state| state.contains(State::NEEDS_SPACE))
    }
}
