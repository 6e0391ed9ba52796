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
//! A relay tries first whatever the policy, and has its share of bytes per turn.
//!
//! Interest is declared where a turn ends, for what still waits then.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{self, SendFlags};

use super::relay::Relays;
use super::{Body, Completion, Io, ListenOptions, Outgoing, Pool, What, sockets};
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
    /// What can go on without waiting: in this turn, and, having had its share, in the next.
    turn: VecDeque<Token>,
    later: VecDeque<Token>,
    /// What the mechanism has to be told of before it waits.
    undeclared: Vec<Token>,
    /// What waits for a buffer.
    starved: VecDeque<Token>,
    /// Whose connection was accepted last, if that was asked for.
    accepted_from: Option<SocketAddr>,
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
            later: VecDeque::new(),
            undeclared: Vec::new(),
            starved: VecDeque::new(),
            accepted_from: None,
            relays: Relays::default(),
            policy: Policy { turn_bytes: policy.turn_bytes.max(1), ..policy },
        })
    }
}

impl<M: Mechanism> ReadinessIo<M> {
    /// Gives the socket what it takes of `bytes` at once, and tells whether that is all.
    #[inline]
    fn send_at_once(&mut self, on: Token, bytes: &[u8], flags: SendFlags) -> bool {
        let tries = self.tries_to_send(on);
        let share = self.policy.turn_bytes;
        let Some((fd, socket)) = self.socket(on) else {
            return false;
        };
        let mut taken = 0;
        if tries && socket.sends.is_none() && (socket.used as usize) < share {
            // What failed or would block is found to do so again below, where it is dealt with.
            taken = net::send(fd, bytes, flags).unwrap_or(0);
            socket.has_sent(taken);
            if taken == bytes.len() {
                return true;
            }
        }
        let mut head = self.pool.lend_beyond();
        head.as_vec().extend_from_slice(&bytes[taken..]);
        self.send(on, Outgoing { head, body: Body::None });
        false
    }
}

impl<M: Mechanism> Io for ReadinessIo<M> {
    fn listen(&mut self, addr: SocketAddr, options: &ListenOptions) -> io::Result<Token> {
        let fd = sockets::listening(addr, options)?;
        let peers = if options.peers { State::PEERS } else { State::empty() };
        Ok(self.adopt(fd, State::LISTENER | peers))
    }

    fn listen_unix(&mut self, path: &Path, backlog: u32) -> io::Result<Token> {
        Ok(self.adopt(sockets::listening_at(path, backlog)?, State::LISTENER))
    }

    fn accepted_from(&self) -> Option<SocketAddr> {
        self.accepted_from
    }

    fn reserve(&mut self, connections: usize) {
        self.registry.reserve(connections);
        self.sockets.reserve_exact(connections);
        self.wheel.reserve(connections);
    }

    fn connect(&mut self, addr: SocketAddr, source: Option<SocketAddr>) -> io::Result<Token> {
        let fd = sockets::connecting(addr, source)?;
        match net::connect(&fd, &addr) {
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let token = self.adopt(fd, State::CONNECTING | self.newborn);
        self.declare_later(token);
        Ok(token)
    }

    fn connect_unix(&mut self, path: &Path) -> io::Result<Token> {
        let on = self.adopt(sockets::connected_to(path)?, self.newborn);
        self.done.push_back(Completion { on, what: What::Connected(Ok(())) });
        Ok(on)
    }

    fn start(&mut self, on: Token) {
        let Some((_, socket)) = self.socket(on) else {
            return;
        };
        if socket.state.intersects(State::ENDED | State::RELAYS) {
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
        if socket.state.contains(State::RELAYS) {
            return; // It is, for all but the relay.
        }
        socket.state.remove(State::STARTED);
        let exact = socket.state.contains(State::LISTENER);
        if exact || self.policy.interest == InterestPolicy::EveryState {
            self.declare_later(on);
        }
    }

    #[inline]
    fn send(&mut self, on: Token, mut what: Outgoing) {
        if what.head.is_empty() {
            what.head.release();
        }
        let (share, tries) = (self.policy.turn_bytes, self.tries_to_send(on));
        let Some((fd, socket)) = self.socket(on) else {
            return;
        };
        if socket.state.contains(State::BROKEN) {
            return;
        }
        if socket.sends.is_some() {
            return self.send_later(on, what);
        }
        let progress =
            if tries { transmit(fd, &mut what, socket, share) } else { Progress::WouldBlock };
        let result = match progress {
            Progress::Complete => Ok(()),
            Progress::Failed(error) => {
                socket.state.insert(State::BROKEN);
                Err(error)
            }
            Progress::WouldBlock => {
                if tries {
                    self.registry.would_block(on, Interest::WRITE);
                }
                self.declare_later(on);
                return self.send_later(on, what);
            }
            Progress::Yielded => {
                self.go_on(on, true);
                return self.send_later(on, what);
            }
        };
        self.done.push_back(Completion { on, what: What::Sent(result) });
    }

    #[inline]
    fn send_now(&mut self, on: Token, bytes: &[u8]) -> bool {
        self.send_at_once(on, bytes, SendFlags::NOSIGNAL)
    }

    #[inline]
    fn send_before_end(&mut self, on: Token, bytes: &[u8]) -> bool {
        self.send_at_once(on, bytes, SendFlags::NOSIGNAL | SendFlags::MORE)
    }

    fn relay(&mut self, from: Token, to: Token, most: u64) -> bool {
        self.begin_relay(from, to, most)
    }

    fn relayed(&self, from: Token) -> u64 {
        self.registry.get(from).map_or(0, |_| self.relays.moved(from))
    }

    fn relay_is_blocked(&self, to: Token) -> bool {
        self.registry.get(to).is_some()
            && self.sockets[to.slot() as usize].state.contains(State::ROOM)
    }

    fn shutdown(&mut self, on: Token) {
        sockets::shutdown(self.registry.get(on));
    }

    fn close(&mut self, on: Token) {
        if let Some((_, socket)) = self.socket(on)
            && socket.state.intersects(State::RELAYS | State::FED)
        {
            self.leave_relays(on);
        }
        if self.registry.close(on) {
            self.wheel.cancel(on.slot());
            self.sockets[on.slot() as usize] = Socket::default();
        }
    }

    fn abort(&mut self, on: Token) {
        sockets::reset(self.registry.get(on));
        self.close(on);
    }

    #[inline]
    fn set_deadline(&mut self, on: Token, deadline: Option<Time>) {
        if self.registry.get(on).is_some() {
            self.wheel.set(on.slot(), deadline);
        }
    }

    fn delivered(&self, on: Token) -> u64 {
        let sent = self.sockets.get(on.slot() as usize).map_or(0, |socket| socket.sent);
        sockets::delivered(self.registry.get(on), sent)
    }

    fn undelivered(&self, on: Token) -> u64 {
        sockets::undelivered(self.registry.get(on))
    }

    fn local_addr(&self, on: Token) -> io::Result<SocketAddr> {
        sockets::local_addr(self.registry.get(on))
    }

    fn peer_addr(&self, on: Token) -> io::Result<SocketAddr> {
        sockets::peer_addr(self.registry.get(on))
    }

    fn wait(&mut self, until: Option<Time>) -> io::Result<()> {
        if !self.ended {
            return Ok(()); // Nor would edges be told again.
        }
        self.ended = false;
        self.declare();
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
