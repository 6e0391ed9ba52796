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
//! * *Time per turn.* For how long large transfers continue before new events are handled.
//!
//! A relay tries first whatever the policy, and has its share of bytes per turn.
//!
//! Interest is declared where a turn ends, for what still waits then.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::{self, SendFlags};

use super::bulk::{Bulk, LARGE, Queue};
use super::relay::Relays;
use super::shared::{self, Parts};
use super::{Address, Completion, CompletionKind, Io, ListenOptions, Outgoing, Pool, Relay};
use super::{SendOutcome, Then, sockets};
use crate::event::{Interest, Readiness, Token};
use crate::mechanism::{Counters, Mechanism, Registry, Trigger};
use crate::timer::{Time, Wheel};
use crate::waker::{Waker, Wakeups};

mod policy;
mod relaying;
mod socket;
mod turn;

pub use policy::{InterestPolicy, Order, Policy};
use socket::{Progress, Socket, State, transmit};

/// [`Io`] by readiness. See the [module](self).
#[derive(Debug)]
pub struct ReadinessIo<M: Mechanism> {
    registry: Registry<M, OwnedFd>,
    policy: Policy,
    edge: bool,
    one_shot: bool,
    /// A short read is the last, but for an end that was told.
    tells_end: bool,
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
    /// What can continue in this turn without waiting: first that, then large transfers.
    turn: VecDeque<Token>,
    bulk: Bulk,
    /// What has had its share of this turn and continues in the next.
    later: VecDeque<Token>,
    /// What the mechanism has to be told of before it waits.
    undeclared: Vec<Token>,
    /// What waits for a buffer.
    starved: VecDeque<Token>,
    relays: Relays,
}

impl<M: Mechanism> ReadinessIo<M> {
    /// Over `mechanism`, by `policy`.
    ///
    /// # Errors
    /// The kernel's: out of descriptors or memory.
    pub fn new(mechanism: M, policy: Policy) -> io::Result<ReadinessIo<M>> {
        ReadinessIo::with_wakeups(mechanism, policy, Wakeups::new()?)
    }

    /// As [`new`](ReadinessIo::new), woken by what was made before.
    ///
    /// # Errors
    /// The kernel's: out of memory.
    pub fn with_wakeups(
        mechanism: M,
        policy: Policy,
        wakeups: Wakeups,
    ) -> io::Result<ReadinessIo<M>> {
        let (waker, wakeups) = wakeups.split();
        let mut registry = Registry::new(mechanism);
        let wakeups = registry.insert(wakeups);
        registry.declare(wakeups, Interest::READ)?;
        registry.keep_active(wakeups);
        let semantics = registry.semantics();
        let edge = semantics.trigger == Trigger::Edge;
        // An end that comes with the last data, in one edge, and is not told, has to be looked for.
        let tells_end = semantics.reports.contains(Readiness::READ_CLOSED);
        let newborn = if edge && !tells_end { State::ENDING } else { State::empty() };
        let now = Time::now();
        Ok(ReadinessIo {
            edge,
            tells_end,
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
            bulk: Bulk::new(policy.turn_time),
            later: VecDeque::new(),
            undeclared: Vec::new(),
            starved: VecDeque::new(),
            relays: Relays::default(),
            policy: Policy { turn_bytes: policy.turn_bytes.max(1), ..policy },
        })
    }
}

impl<M: Mechanism> Parts for ReadinessIo<M> {
    #[inline]
    fn attempt(&mut self, token: Token, bytes: &[u8], flags: SendFlags) -> Result<(), usize> {
        let tries = self.tries_to_send(token);
        let share = self.policy.turn_bytes;
        let (fd, socket) = self.at(token).ok_or(0_usize)?;
        if !tries || socket.sends.is_some() || socket.used as usize >= share {
            return Err(0);
        }
        let taken = net::send(fd, bytes, flags).unwrap_or(0);
        socket.has_sent(taken);
        if taken == bytes.len() { Ok(()) } else { Err(taken) }
    }

    fn can_relay_from(&self, token: Token) -> bool {
        let not = State::LISTENER | State::CONNECTING | State::ENDED | State::RELAYS;
        self.state(token).is_some_and(|state| !state.intersects(not))
    }

    fn can_relay_to(&self, token: Token) -> bool {
        let not = State::LISTENER | State::CONNECTING | State::BROKEN | State::FED;
        self.state(token).is_some_and(|state| !state.intersects(not))
    }

    fn begin_relay(&mut self, from: Token, to: Token, most: u64) {
        let state = &mut self.sockets[from.slot() as usize].state;
        state.remove(State::STARTED | State::STARVED);
        state.insert(State::RELAYS | State::READABLE);
        self.sockets[to.slot() as usize].state.insert(State::FED);
        self.relays.begin(from, to, most);
        self.go_on(from, Queue::Turn);
    }
}

impl<M: Mechanism> Io for ReadinessIo<M> {
    fn listen(&mut self, address: &Address, options: &ListenOptions) -> io::Result<Token> {
        let fd = sockets::listen(address, options)?;
        let mut state = State::LISTENER;
        state.set(State::PEERS, options.peers && address.is_inet());
        Ok(self.adopt(fd, state))
    }

    fn reserve(&mut self, connections: usize) {
        self.registry.reserve(connections);
        self.sockets.reserve_exact(connections);
        self.wheel.reserve(connections);
    }

    fn connect(&mut self, address: &Address, source: Option<SocketAddr>) -> io::Result<Token> {
        let fd = sockets::connect(address, source)?;
        if address.is_inet() {
            let token = self.adopt(fd, State::CONNECTING | self.newborn);
            self.declare_later(token);
            return Ok(token);
        }
        let token = self.adopt(fd, self.newborn);
        self.done.push_back(Completion { token, kind: CompletionKind::Connected(Ok(())) });
        Ok(token)
    }

    fn start(&mut self, token: Token) {
        let Some((_, socket)) = self.at(token) else {
            return;
        };
        if socket.state.intersects(State::ENDED | State::RELAYS) {
            return;
        }
        socket.state.insert(State::STARTED);
        if socket.state.contains(State::READABLE) {
            self.go_on(token, Queue::Turn);
        } else {
            self.declare_if_unheard(token);
        }
    }

    fn stop(&mut self, token: Token) {
        let Some((_, socket)) = self.at(token) else {
            return;
        };
        if socket.state.contains(State::RELAYS) {
            return; // It is, for all but the relay.
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
        let put_off = self.bulk.is_over();
        let Some((fd, socket)) = self.at(token) else {
            return;
        };
        if socket.state.contains(State::BROKEN) {
            return;
        }
        if socket.sends.is_some() {
            return self.send_later(token, outgoing);
        }
        let large = outgoing.body.is_large();
        let progress = if !tries {
            Progress::WouldBlock
        } else if large && put_off {
            self.go_on(token, Queue::Bulk);
            return self.send_later(token, outgoing);
        } else {
            transmit(fd, &mut outgoing, socket, share)
        };
        if large {
            self.bulk.count(LARGE);
        }
        let result = match progress {
            Progress::Complete => Ok(()),
            Progress::Failed(error) => {
                self.sockets[token.slot() as usize].state.insert(State::BROKEN);
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
                self.go_on(token, Queue::Later);
                return self.send_later(token, outgoing);
            }
        };
        self.done.push_back(Completion { token, kind: CompletionKind::Sent(result) });
    }

    #[inline]
    fn send_now(&mut self, token: Token, bytes: &[u8]) -> bool {
        shared::send_at_once(self, token, bytes, SendFlags::NOSIGNAL)
    }

    #[inline]
    fn send_last(&mut self, token: Token, bytes: &[u8], _: Then) -> SendOutcome {
        shared::send_last_at_once(self, token, bytes)
    }

    fn shutdown(&mut self, token: Token) {
        sockets::shutdown(self.registry.get(token));
    }

    fn close(&mut self, token: Token) {
        if let Some((_, socket)) = self.at(token)
            && socket.state.intersects(State::RELAYS | State::FED)
        {
            self.leave_relays(token);
        }
        if self.registry.close(token) {
            self.wheel.cancel(token.slot());
            self.sockets[token.slot() as usize] = Socket::default();
        }
    }

    fn abort(&mut self, token: Token) {
        sockets::reset(self.registry.get(token));
        self.close(token);
    }

    #[inline]
    fn set_deadline(&mut self, token: Token, deadline: Option<Time>) {
        if self.registry.get(token).is_some() {
            self.wheel.set(token.slot(), deadline);
        }
    }

    fn delivered(&self, token: Token) -> u64 {
        let sent = self.sockets.get(token.slot() as usize).map_or(0, |socket| socket.sent);
        sockets::delivered(self.registry.get(token), sent)
    }

    fn undelivered(&self, token: Token) -> u64 {
        sockets::undelivered(self.registry.get(token))
    }

    fn socket(&self, token: Token) -> Option<BorrowedFd<'_>> {
        self.registry.get(token).map(AsFd::as_fd)
    }

    fn wait(&mut self, until: Option<Time>) -> io::Result<()> {
        if !self.ended {
            return Ok(()); // Nor would edges be told again.
        }
        self.ended = false;
        self.declare();
        for token in self.later.drain(..) {
            let socket = &mut self.sockets[token.slot() as usize];
            socket.used = 0;
            if socket.state.contains(State::LISTENER) {
                self.turn.push_back(token);
            } else {
                self.bulk.push(token);
            }
        }
        let feeds = !self.starved.is_empty() && !self.pool.is_exhausted();
        let goes_on = !self.turn.is_empty() || !self.bulk.is_empty() || !self.done.is_empty();
        let timeout = if !goes_on && !feeds {
            let until = [self.wheel.next(), until].into_iter().flatten().min();
            until.map(|until| until.since(Time::now()))
        } else {
            Some(Duration::ZERO)
        };
        self.batch = self.registry.wait(self.policy.batch, timeout)?;
        self.cursor = 0;
        self.now = Time::now();
        self.bulk.start_turn(self.now);
        Ok(())
    }

    fn next(&mut self) -> Option<Completion> {
        loop {
            while let Some(completion) = self.done.pop_front() {
                if self.registry.get(completion.token).is_some() {
                    return Some(completion);
                }
            }
            let completion = if let Some(token) = self.fed() {
                self.receive(token)
            } else if self.cursor < self.batch {
                let index = self.cursor;
                self.cursor += 1;
                self.registry
                    .event(index)
                    .and_then(|event| self.on_event(event.who, event.readiness))
            } else if let Some(token) = self.turn.pop_front().or_else(|| self.bulk.next()) {
                self.resume(token)
            } else {
                let Some(slot) = self.wheel.expired(self.now) else {
                    self.ended = true;
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

impl<M: Mechanism> Relay for ReadinessIo<M> {
    fn relay(&mut self, from: Token, to: Token, most: u64) -> bool {
        shared::relay(self, from, to, most)
    }

    fn relayed(&self, from: Token) -> u64 {
        self.registry.get(from).map_or(0, |_| self.relays.moved(from))
    }

    fn relay_is_blocked(&self, to: Token) -> bool {
        self.state(to).is_some_and(|state| state.contains(State::ROOM))
    }
}
