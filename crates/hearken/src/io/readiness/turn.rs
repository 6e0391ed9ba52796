//! The operations of a turn: accepting, connecting, receiving, sending, and declaring interest at
//! its end.

use std::io;
use std::num::NonZeroU32;

use rustix::io::Errno;

use super::socket::{Progress, Socket, State, transmit};
use super::{InterestPolicy, Order, ReadinessIo};
use crate::event::{Interest, Readiness, Token};
use crate::io::kernel::{Kernel, KernelSocket};
use crate::io::large_transfers::{ACCEPT_COST, Queue};
use crate::io::shared::{NO_TOKEN, is_transient};
use crate::io::{Completion, CompletionKind, Outgoing, RelayEnd};
use crate::mechanism::Mechanism;

impl<M: Mechanism, K: Kernel> ReadinessIo<M, K> {
    pub(super) fn register(&mut self, fd: K::Socket, state: State) -> Token {
        let token = self.registry.insert(fd);
        let slot = token.slot() as usize;
        if slot >= self.sockets.len() {
            self.sockets.resize_with(slot + 1, Socket::default);
        }
        self.sockets[slot] = Socket { state, ..Socket::default() };
        token
    }

    /// Returns the state of a socket that is already connected.
    pub(super) fn connected_state(&self) -> State {
        let state = match self.policy.order {
            Order::TryFirst => State::READABLE,
            Order::WaitFirst | Order::WaitToReceive => State::empty(),
        };
        state | self.initial_state
    }

    /// Returns the descriptor and the record of an open socket.
    #[inline]
    pub(super) fn socket_mut(&mut self, token: Token) -> Option<(&K::Socket, &mut Socket)> {
        let fd = self.registry.get(token)?;
        Some((fd, &mut self.sockets[token.slot() as usize]))
    }

    /// Returns the state of an open socket.
    pub(super) fn state(&self, token: Token) -> Option<State> {
        self.registry.get(token).map(|_| self.sockets[token.slot() as usize].state)
    }

    /// Returns whether a send is tried before a wait.
    #[inline]
    pub(super) fn tries_to_send(&self, token: Token) -> bool {
        let state = self.sockets.get(token.slot() as usize).map_or(State::empty(), |of| of.state);
        let is_writable = self.edge && state.contains(State::WRITABLE);
        (self.policy.order != Order::WaitFirst || is_writable)
            && !state.intersects(State::CONNECTING | State::SEND_FAILED)
    }

    /// Queues a send, or the rest of a send.
    #[cold]
    pub(super) fn send_later(&mut self, token: Token, mut outgoing: Outgoing) {
        outgoing.head.detach();
        self.sockets[token.slot() as usize].sends.get_or_insert_default().push_back(outgoing);
    }

    /// Returns the directions for which the socket waits.
    fn needed_interest(&self, token: Token) -> Interest {
        let socket = &self.sockets[token.slot() as usize];
        let mut needed_interest = Interest::empty();
        let reads = socket.state & (State::STARTED | State::NEEDS_BUFFER) == State::STARTED;
        needed_interest.set(Interest::READ, reads);
        let writes = socket.sends.is_some()
            || socket.state.intersects(State::CONNECTING | State::NEEDS_SPACE);
        needed_interest.set(Interest::WRITE, writes);
        needed_interest
    }

    /// Marks a socket whose interest must be declared before the next wait.
    pub(super) fn declare_later(&mut self, token: Token) {
        let state = &mut self.sockets[token.slot() as usize].state;
        if !state.contains(State::UNDECLARED) {
            state.insert(State::UNDECLARED);
            self.undeclared.push(token);
        }
    }

    /// Declares the interest of all marked sockets that are still open.
    pub(super) fn declare(&mut self) {
        while let Some(token) = self.undeclared.pop() {
            if self.registry.get(token).is_none() {
                continue;
            }
            let needed_interest = self.needed_interest(token);
            let state = &mut self.sockets[token.slot() as usize].state;
            state.remove(State::UNDECLARED);
            let interest = match self.policy.interest {
                _ if state.contains(State::LISTENER) => needed_interest,
                InterestPolicy::EveryState => needed_interest,
                // An unneeded edge costs nothing. An unneeded level ends every wait, and most
                // sockets are writable.
                InterestPolicy::WhenNeeded if self.edge => {
                    needed_interest | self.registry.interest(token)
                }
                InterestPolicy::WhenNeeded => {
                    needed_interest | self.registry.interest(token).difference(Interest::WRITE)
                }
                InterestPolicy::Once => Interest::READ | Interest::WRITE,
            };
            let declared = if state.contains(State::SHARED) {
                self.registry.declare_exclusive(token, interest)
            } else {
                self.registry.declare(token, interest)
            };
            if let Err(error) = declared {
                self.fail_declaration(token, error);
            }
        }
    }

    /// Fails the operation of a socket for which interest could not be declared.
    fn fail_declaration(&mut self, token: Token, error: io::Error) {
        let socket = &mut self.sockets[token.slot() as usize];
        let kind = if socket.state.contains(State::LISTENER) {
            socket.state.remove(State::STARTED);
            CompletionKind::AcceptFailed(error)
        } else if socket.state.contains(State::CONNECTING) {
            socket.state.remove(State::CONNECTING);
            CompletionKind::Connected(Err(error))
        } else if socket.sends.take().is_some() {
            socket.state.insert(State::SEND_FAILED);
            self.resume_relay_to(token);
            CompletionKind::Sent(Err(error))
        } else if socket.state.contains(State::NEEDS_SPACE) {
            let from = self.relays.source(token);
            let failed = from.and_then(|token| self.end_relay(token, RelayEnd::SendFailed(error)));
            return self.done.extend(failed);
        } else if socket.state.contains(State::RELAY_SOURCE | State::STARTED) {
            let failed = self.end_relay(token, RelayEnd::ReceiveFailed(error));
            return self.done.extend(failed);
        } else if socket.state.contains(State::STARTED) {
            socket.state.remove(State::STARTED);
            socket.state.insert(State::RECEIVE_ENDED);
            CompletionKind::ReceiveFailed(error)
        } else {
            return;
        };
        self.done.push_back(Completion { token, kind });
    }

    /// Queues a socket that can continue without an event.
    pub(super) fn enqueue(&mut self, token: Token, queue: Queue) {
        let state = &mut self.sockets[token.slot() as usize].state;
        if !state.contains(State::QUEUED) {
            state.insert(State::QUEUED);
            match queue {
                Queue::ThisTurn => self.turn.push_back(token),
                Queue::LargeTransfers => self.large_transfers.push(token),
                Queue::NextTurn => self.later.push_back(token),
            }
        }
    }

    /// Handles one event of the batch.
    pub(super) fn on_event(&mut self, token: Token, readiness: Readiness) -> Option<Completion> {
        if token == self.wakeups {
            if let Some(wakeups) = self.registry.get(token) {
                wakeups.drain_wakeups();
            }
            self.registry.would_block(token, Interest::READ);
            if self.one_shot {
                // For reading only, under every policy: it is always writable.
                let _ = self.registry.declare(token, Interest::READ);
            }
            return Some(Completion { token: NO_TOKEN, kind: CompletionKind::Woken });
        }
        if self.one_shot {
            self.declare_later(token);
        }
        let socket = &mut self.sockets[token.slot() as usize];
        socket.used = 0;
        if readiness.is_readable() {
            socket.state.insert(State::READABLE);
        }
        if readiness.contains(Readiness::READ_CLOSED) {
            socket.state.insert(State::END_PENDING);
        }
        if readiness.is_writable() {
            socket.state.insert(State::WRITABLE);
            if socket.state.contains(State::CONNECTING) {
                return self.on_connected(token);
            }
            let first = socket.sends.as_ref().and_then(|sends| sends.front());
            if first.is_some_and(|first| first.body.is_large()) {
                self.enqueue(token, Queue::LargeTransfers);
            } else {
                self.resume_sending(token);
                self.resume_relay_to(token);
            }
        }
        if readiness.is_readable() {
            let state = self.sockets[token.slot() as usize].state;
            if !state.contains(State::STARTED) {
                self.withdraw_interest(token);
            } else if state.contains(State::WATCHED) {
                return Some(self.on_readable(token));
            } else if state.intersects(State::LISTENER | State::SEND_FAILED) {
                // A send that failed just now is reported first: it has taken the error of the socket, so
                // a receive finds the end of the stream instead.
                self.enqueue(token, Queue::ThisTurn);
            } else {
                return self.receive(token);
            }
        }
        None
    }

    /// Reports a watched descriptor that is readable already, or waits until it is.
    #[cold]
    pub(super) fn start_watching(&mut self, token: Token) {
        if self.registry.get(token).is_some_and(K::Socket::is_readable) {
            let readable = self.on_readable(token);
            self.done.push_back(readable);
        } else {
            self.registry.would_block(token, Interest::READ);
            self.declare_read_if_missing(token);
        }
    }

    /// Reports a watched descriptor, once.
    #[cold]
    fn on_readable(&mut self, token: Token) -> Completion {
        self.sockets[token.slot() as usize].state.remove(State::STARTED | State::READABLE);
        Completion { token, kind: CompletionKind::Readable }
    }

    /// Removes interest in a direction for which the socket does not wait, since a level-triggered
    /// mechanism would report it again.
    fn withdraw_interest(&mut self, token: Token) {
        if !self.edge && self.policy.interest != InterestPolicy::Once {
            let needed_interest = self.needed_interest(token);
            // If the mechanism refuses, it only reports the event again.
            let _ = self.registry.declare(token, needed_interest);
        }
    }

    fn on_connected(&mut self, token: Token) -> Option<Completion> {
        let (fd, socket) = self.socket_mut(token)?;
        let result = fd.take_error().map_err(io::Error::from);
        socket.state.remove(State::CONNECTING);
        // The first bytes may have arrived in the same event.
        let may_receive = socket.state.contains(State::STARTED | State::READABLE);
        self.declare_later(token);
        if result.is_ok() {
            self.resume_sending(token);
        }
        if may_receive {
            self.enqueue(token, Queue::ThisTurn);
        }
        Some(Completion { token, kind: CompletionKind::Connected(result) })
    }

    fn accept(&mut self, token: Token) -> Option<Completion> {
        let limit = self.policy.accept_limit.map_or(u32::MAX, NonZeroU32::get);
        let (fd, socket) = self.socket_mut(token)?;
        let kind = loop {
            match fd.accept(socket.state.contains(State::REPORTS_PEERS)) {
                Ok((accepted, peer)) => {
                    socket.used += 1;
                    let is_limit_reached = socket.used >= limit;
                    self.large_transfers.count(ACCEPT_COST, &self.kernel);
                    // More connections may be waiting. The listener goes first, so accepted
                    // connections come after it.
                    if is_limit_reached || self.large_transfers.is_time_up() {
                        self.enqueue(token, Queue::NextTurn);
                    } else {
                        self.sockets[token.slot() as usize].state.insert(State::QUEUED);
                        self.turn.push_front(token);
                    }
                    let token = self.register(accepted, self.connected_state());
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
        if self.sockets[token.slot() as usize].state.contains(State::RELAY_SOURCE) {
            return self.resume_relay(token);
        }
        let Some(mut buffer) = self.pool.acquire() else {
            self.wait_for_buffer(token);
            return None;
        };
        let share = self.policy.turn_bytes;
        let (fd, socket) = self.socket_mut(token)?;
        let room = buffer.spare_capacity();
        let received = loop {
            match fd.receive(buffer.as_vec()) {
                Err(Errno::INTR) => {}
                other => break other,
            }
        };
        let kind = match received {
            Ok(0) => {
                socket.state.remove(State::STARTED | State::READABLE);
                socket.state.insert(State::RECEIVE_ENDED);
                CompletionKind::End
            }
            Ok(count) => {
                if count == room || socket.state.contains(State::END_PENDING) {
                    socket.used = socket.used.saturating_add(count as u32);
                    let is_limit_reached = socket.used as usize >= share;
                    self.large_transfers.count(count, &self.kernel);
                    self.enqueue(
                        token,
                        if is_limit_reached { Queue::NextTurn } else { Queue::LargeTransfers },
                    );
                } else {
                    socket.state.remove(State::READABLE);
                    if self.reports_end {
                        self.registry.would_block(token, Interest::READ);
                    }
                    self.declare_read_if_missing(token);
                }
                CompletionKind::Received(buffer)
            }
            Err(Errno::AGAIN) => {
                socket.state.remove(State::READABLE);
                self.registry.would_block(token, Interest::READ);
                self.declare_read_if_missing(token);
                return None;
            }
            Err(errno) => {
                socket.state.remove(State::STARTED | State::READABLE);
                socket.state.insert(State::RECEIVE_ENDED);
                CompletionKind::ReceiveFailed(errno.into())
            }
        };
        Some(Completion { token, kind })
    }

    /// Makes the connection wait for a buffer, without events for its bytes until then.
    fn wait_for_buffer(&mut self, token: Token) {
        let state = &mut self.sockets[token.slot() as usize].state;
        if !state.contains(State::NEEDS_BUFFER) {
            state.insert(State::NEEDS_BUFFER);
            self.waiting_for_buffer.push_back(token);
        }
        if self.registry.interest(token).contains(Interest::READ) {
            self.withdraw_interest(token);
        }
    }

    /// Returns the first connection that waits for a buffer, if a buffer is available.
    #[inline]
    pub(super) fn next_with_buffer(&mut self) -> Option<Token> {
        while !self.waiting_for_buffer.is_empty() && !self.pool.is_exhausted() {
            let token = self.waiting_for_buffer.pop_front()?;
            if let Some((_, socket)) = self.socket_mut(token) {
                socket.state.remove(State::NEEDS_BUFFER);
                if socket.state.contains(State::STARTED) {
                    return Some(token);
                }
            }
        }
        None
    }

    #[inline]
    pub(super) fn declare_read_if_missing(&mut self, token: Token) {
        if !self.registry.interest(token).contains(Interest::READ)
            || self.policy.interest == InterestPolicy::EveryState
        {
            self.declare_later(token);
        }
    }

    /// Continues the pending sends until one would block.
    fn resume_sending(&mut self, token: Token) {
        let share = self.policy.turn_bytes;
        let Some((fd, socket)) = self.socket_mut(token) else {
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
        self.large_transfers.count(sent as usize, &self.kernel);
        for _ in 0..completed {
            self.done.push_back(Completion { token, kind: CompletionKind::Sent(Ok(())) });
        }
        let socket = &mut self.sockets[token.slot() as usize];
        match progress {
            Progress::Yielded => {
                socket.sends = Some(sends);
                return self.enqueue(token, Queue::NextTurn);
            }
            Progress::WouldBlock => {
                socket.sends = Some(sends);
                self.registry.would_block(token, Interest::WRITE);
            }
            Progress::Complete => {}
            Progress::Failed(error) => {
                socket.state.insert(State::SEND_FAILED);
                self.done.push_back(Completion { token, kind: CompletionKind::Sent(Err(error)) });
            }
        }
        self.declare_later(token);
    }

    /// Ends the relays of a socket that is closed next, and its registration if that is explicit.
    #[cold]
    pub(super) fn prepare_close(&mut self, token: Token) {
        self.end_relays_of(token);
        if self.sockets[token.slot() as usize].state.contains(State::REVOKED_TO_CLOSE) {
            // The descriptor is closed in any case.
            let _ = self.registry.revoke(token);
        }
    }

    /// Continues a queued socket.
    pub(super) fn resume(&mut self, token: Token) -> Option<Completion> {
        self.registry.get(token)?;
        let socket = &mut self.sockets[token.slot() as usize];
        socket.state.remove(State::QUEUED);
        if socket.state.contains(State::LISTENER) {
            return if socket.state.contains(State::STARTED) { self.accept(token) } else { None };
        }
        if socket.sends.is_some() && !socket.state.contains(State::CONNECTING) {
            self.resume_sending(token);
            self.resume_relay_to(token);
            if self.sockets[token.slot() as usize].state.contains(State::SEND_FAILED) {
                self.enqueue(token, Queue::ThisTurn); // As in `on_event`.
                return None;
            }
        }
        let state = self.sockets[token.slot() as usize].state;
        if state.contains(State::RELAY_SOURCE) {
            return self.resume_relay(token);
        }
        if state.contains(State::STARTED | State::READABLE) { self.receive(token) } else { None }
    }
}
