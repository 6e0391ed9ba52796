//! What is done in a turn: accepting, connecting, receiving, sending, and at its end telling the
//! mechanism what is still waited for.

use std::io;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::net::{self, RecvFlags, sockopt};

use super::socket::{Progress, Socket, State, transmit};
use super::{InterestPolicy, Order, ReadinessIo};
use crate::event::{Interest, Readiness, Token};
use crate::io::bulk::{ACCEPTED, Queue};
use crate::io::shared::{NO_TOKEN, is_transient};
use crate::io::{Completion, CompletionKind, Outgoing, RelayEnd, sockets};
use crate::mechanism::Mechanism;
use crate::waker::Wakeups;

impl<M: Mechanism> ReadinessIo<M> {
    pub(super) fn adopt(&mut self, fd: OwnedFd, state: State) -> Token {
        let token = self.registry.insert(fd);
        let slot = token.slot() as usize;
        if slot >= self.sockets.len() {
            self.sockets.resize_with(slot + 1, Socket::default);
        }
        self.sockets[slot] = Socket { state, ..Socket::default() };
        token
    }

    /// Returns the descriptor and the record of an open socket.
    #[inline]
    pub(super) fn at(&mut self, token: Token) -> Option<(BorrowedFd<'_>, &mut Socket)> {
        let fd = self.registry.get(token)?.as_fd();
        Some((fd, &mut self.sockets[token.slot() as usize]))
    }

    /// Returns the state of an open socket.
    pub(super) fn state(&self, token: Token) -> Option<State> {
        self.registry.get(token).map(|_| self.sockets[token.slot() as usize].state)
    }

    /// Whether a send is tried before it is waited for.
    #[inline]
    pub(super) fn tries_to_send(&self, token: Token) -> bool {
        let state = self.sockets.get(token.slot() as usize).map_or(State::empty(), |of| of.state);
        let told = self.edge && state.contains(State::WRITABLE);
        (self.policy.order == Order::TryFirst || told)
            && !state.intersects(State::CONNECTING | State::BROKEN)
    }

    /// Keeps a send, or what is left of it, for later.
    #[cold]
    pub(super) fn send_later(&mut self, token: Token, mut outgoing: Outgoing) {
        outgoing.head.keep();
        self.sockets[token.slot() as usize].sends.get_or_insert_default().push_back(outgoing);
    }

    /// What is waited for.
    fn awaited(&self, token: Token) -> Interest {
        let socket = &self.sockets[token.slot() as usize];
        let mut awaited = Interest::empty();
        let reads = socket.state & (State::STARTED | State::STARVED) == State::STARTED;
        awaited.set(Interest::READ, reads);
        let writes =
            socket.sends.is_some() || socket.state.intersects(State::CONNECTING | State::ROOM);
        awaited.set(Interest::WRITE, writes);
        awaited
    }

    /// Has the mechanism told before the next wait.
    pub(super) fn declare_later(&mut self, token: Token) {
        let state = &mut self.sockets[token.slot() as usize].state;
        if !state.contains(State::UNDECLARED) {
            state.insert(State::UNDECLARED);
            self.undeclared.push(token);
        }
    }

    /// Tells the mechanism of what has changed in this turn and still holds.
    pub(super) fn declare(&mut self) {
        while let Some(token) = self.undeclared.pop() {
            if self.registry.get(token).is_none() {
                continue;
            }
            let awaited = self.awaited(token);
            let state = &mut self.sockets[token.slot() as usize].state;
            state.remove(State::UNDECLARED);
            let interest = match self.policy.interest {
                _ if state.contains(State::LISTENER) => awaited,
                InterestPolicy::EveryState => awaited,
                // An edge that nobody waits for costs nothing; a level does, and can always be written.
                InterestPolicy::WhenNeeded if self.edge => awaited | self.registry.interest(token),
                InterestPolicy::WhenNeeded => {
                    awaited | self.registry.interest(token).difference(Interest::WRITE)
                }
                InterestPolicy::Once => Interest::READ | Interest::WRITE,
            };
            if let Err(error) = self.registry.declare(token, interest) {
                self.undeclarable(token, error);
            }
        }
    }

    /// What cannot be waited for fails.
    fn undeclarable(&mut self, token: Token, error: io::Error) {
        let socket = &mut self.sockets[token.slot() as usize];
        let kind = if socket.state.contains(State::LISTENER) {
            socket.state.remove(State::STARTED);
            CompletionKind::AcceptFailed(error)
        } else if socket.state.contains(State::CONNECTING) {
            socket.state.remove(State::CONNECTING);
            CompletionKind::Connected(Err(error))
        } else if socket.sends.take().is_some() {
            socket.state.insert(State::BROKEN);
            self.feed_on(token);
            CompletionKind::Sent(Err(error))
        } else if socket.state.contains(State::ROOM) {
            let from = self.relays.source(token);
            let failed = from.and_then(|token| self.end_relay(token, RelayEnd::SendFailed(error)));
            return self.done.extend(failed);
        } else if socket.state.contains(State::RELAYS | State::STARTED) {
            let failed = self.end_relay(token, RelayEnd::ReceiveFailed(error));
            return self.done.extend(failed);
        } else if socket.state.contains(State::STARTED) {
            socket.state.remove(State::STARTED);
            socket.state.insert(State::ENDED);
            CompletionKind::ReceiveFailed(error)
        } else {
            return;
        };
        self.done.push_back(Completion { token, kind });
    }

    /// Queues what can go on without an event.
    pub(super) fn go_on(&mut self, token: Token, queue: Queue) {
        let state = &mut self.sockets[token.slot() as usize].state;
        if !state.contains(State::QUEUED) {
            state.insert(State::QUEUED);
            match queue {
                Queue::Turn => self.turn.push_back(token),
                Queue::Bulk => self.bulk.push(token),
                Queue::Later => self.later.push_back(token),
            }
        }
    }

    /// Looks at one event of the batch.
    pub(super) fn on_event(&mut self, token: Token, readiness: Readiness) -> Option<Completion> {
        if self.one_shot {
            self.declare_later(token);
        }
        if token == self.wakeups {
            if let Some(wakeups) = self.registry.get(token) {
                Wakeups::drain(wakeups);
            }
            self.registry.would_block(token, Interest::READ);
            return Some(Completion { token: NO_TOKEN, kind: CompletionKind::Woken });
        }
        let socket = &mut self.sockets[token.slot() as usize];
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
                return self.on_connected(token);
            }
            let first = socket.sends.as_ref().and_then(|sends| sends.front());
            if first.is_some_and(|first| first.body.is_large()) {
                self.go_on(token, Queue::Bulk);
            } else {
                self.go_on_sending(token);
                self.feed_on(token);
            }
        }
        if readiness.is_readable() {
            let state = self.sockets[token.slot() as usize].state;
            if !state.contains(State::STARTED) {
                self.silence(token);
            } else if state.contains(State::LISTENER) {
                self.go_on(token, Queue::Turn);
            } else {
                return self.receive(token);
            }
        }
        None
    }

    /// Takes back the interest in what nobody waits for, or a level-triggered mechanism repeats it.
    fn silence(&mut self, token: Token) {
        if !self.edge && self.policy.interest != InterestPolicy::Once {
            let awaited = self.awaited(token);
            // Refused, it would merely be repeated.
            let _ = self.registry.declare(token, awaited);
        }
    }

    fn on_connected(&mut self, token: Token) -> Option<Completion> {
        let (fd, socket) = self.at(token)?;
        let result = match sockopt::socket_error(fd) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(errno)) | Err(errno) => Err(errno.into()),
        };
        socket.state.remove(State::CONNECTING);
        // The first bytes may have come in the same event.
        let hears = socket.state.contains(State::STARTED | State::READABLE);
        self.declare_later(token);
        if result.is_ok() {
            self.go_on_sending(token);
        }
        if hears {
            self.go_on(token, Queue::Turn);
        }
        Some(Completion { token, kind: CompletionKind::Connected(result) })
    }

    fn accept(&mut self, token: Token) -> Option<Completion> {
        let limit = self.policy.accept_limit.map_or(u32::MAX, NonZeroU32::get);
        let (fd, socket) = self.at(token)?;
        let kind = loop {
            match sockets::accept(fd, socket.state.contains(State::PEERS)) {
                Ok((accepted, peer)) => {
                    socket.used += 1;
                    let spent = socket.used >= limit;
                    self.bulk.count(ACCEPTED);
                    // More may be waiting; in front, so that what was accepted comes after.
                    if spent || self.bulk.is_over() {
                        self.go_on(token, Queue::Later);
                    } else {
                        self.sockets[token.slot() as usize].state.insert(State::QUEUED);
                        self.turn.push_front(token);
                    }
                    let state = match self.policy.order {
                        Order::TryFirst => State::READABLE,
                        Order::WaitFirst => State::empty(),
                    };
                    let token = self.adopt(accepted, state | self.newborn);
                    break CompletionKind::Accepted { token, peer: peer.map(Box::new) };
                }
                Err(Errno::AGAIN) => {
                    socket.state.remove(State::READABLE);
                    self.registry.would_block(token, Interest::READ);
                    self.declare_later(token);
                    return None;
                }
                Err(errno) if is_transient(errno) => {}
                Err(errno) => {
                    socket.state.remove(State::STARTED);
                    self.declare_later(token);
                    break CompletionKind::AcceptFailed(errno.into());
                }
            }
        };
        Some(Completion { token, kind })
    }

    pub(super) fn receive(&mut self, token: Token) -> Option<Completion> {
        if self.sockets[token.slot() as usize].state.contains(State::RELAYS) {
            return self.relay_on(token);
        }
        let Some(mut buffer) = self.pool.lend() else {
            self.starve(token);
            return None;
        };
        let share = self.policy.turn_bytes;
        let (fd, socket) = self.at(token)?;
        let room = buffer.room();
        let received = loop {
            match net::recv(fd, spare_capacity(buffer.as_vec()), RecvFlags::empty()) {
                Err(Errno::INTR) => {}
                // rustix answers with what is in the buffer and the length before any truncation.
                other => break other.map(|(count, _)| count),
            }
        };
        let kind = match received {
            Ok(0) => {
                socket.state.remove(State::STARTED | State::READABLE);
                socket.state.insert(State::ENDED);
                CompletionKind::End
            }
            Ok(count) => {
                if count == room || socket.state.contains(State::ENDING) {
                    socket.used = socket.used.saturating_add(count as u32);
                    let spent = socket.used as usize >= share;
                    self.bulk.count(count);
                    self.go_on(token, if spent { Queue::Later } else { Queue::Bulk });
                } else {
                    socket.state.remove(State::READABLE);
                    if self.tells_end {
                        self.registry.would_block(token, Interest::READ);
                    }
                    self.declare_if_unheard(token);
                }
                CompletionKind::Received(buffer)
            }
            Err(Errno::AGAIN) => {
                socket.state.remove(State::READABLE);
                self.registry.would_block(token, Interest::READ);
                self.declare_if_unheard(token);
                return None;
            }
            Err(errno) => {
                socket.state.remove(State::STARTED | State::READABLE);
                socket.state.insert(State::ENDED);
                CompletionKind::ReceiveFailed(errno.into())
            }
        };
        Some(Completion { token, kind })
    }

    /// Has it wait for a buffer, and not be told meanwhile that there are bytes.
    fn starve(&mut self, token: Token) {
        let state = &mut self.sockets[token.slot() as usize].state;
        if !state.contains(State::STARVED) {
            state.insert(State::STARVED);
            self.starved.push_back(token);
        }
        if self.registry.interest(token).contains(Interest::READ) {
            self.silence(token);
        }
    }

    /// The first of those that wait for a buffer, if there is one.
    #[inline]
    pub(super) fn fed(&mut self) -> Option<Token> {
        while !self.starved.is_empty() && !self.pool.is_exhausted() {
            let token = self.starved.pop_front()?;
            if let Some((_, socket)) = self.at(token) {
                socket.state.remove(State::STARVED);
                if socket.state.contains(State::STARTED) {
                    return Some(token);
                }
            }
        }
        None
    }

    #[inline]
    pub(super) fn declare_if_unheard(&mut self, token: Token) {
        if !self.registry.interest(token).contains(Interest::READ)
            || self.policy.interest == InterestPolicy::EveryState
        {
            self.declare_later(token);
        }
    }

    /// Sends what is waiting to be sent, as far as it goes.
    fn go_on_sending(&mut self, token: Token) {
        let share = self.policy.turn_bytes;
        let Some((fd, socket)) = self.at(token) else {
            return;
        };
        let Some(mut sends) = socket.sends.take() else {
            return;
        };
        let mut completed = 0;
        let before = socket.sent;
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
        let sent = socket.sent - before;
        self.bulk.count(sent as usize);
        for _ in 0..completed {
            self.done.push_back(Completion { token, kind: CompletionKind::Sent(Ok(())) });
        }
        let socket = &mut self.sockets[token.slot() as usize];
        match progress {
            Progress::Yielded => {
                socket.sends = Some(sends);
                return self.go_on(token, Queue::Later);
            }
            Progress::WouldBlock => {
                socket.sends = Some(sends);
                self.registry.would_block(token, Interest::WRITE);
            }
            Progress::Complete => {}
            Progress::Failed(error) => {
                socket.state.insert(State::BROKEN);
                self.done.push_back(Completion { token, kind: CompletionKind::Sent(Err(error)) });
            }
        }
        self.declare_later(token);
    }

    /// Goes on with what was queued.
    pub(super) fn resume(&mut self, token: Token) -> Option<Completion> {
        self.registry.get(token)?;
        let socket = &mut self.sockets[token.slot() as usize];
        socket.state.remove(State::QUEUED);
        if socket.state.contains(State::LISTENER) {
            return if socket.state.contains(State::STARTED) { self.accept(token) } else { None };
        }
        if socket.sends.is_some() && !socket.state.contains(State::CONNECTING) {
            self.go_on_sending(token);
            self.feed_on(token);
        }
        let state = self.sockets[token.slot() as usize].state;
        if state.contains(State::RELAYS) {
            return self.relay_on(token);
        }
        if state.contains(State::STARTED | State::READABLE) { self.receive(token) } else { None }
    }
}
