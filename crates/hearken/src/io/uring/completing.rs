//! Handling the kernel's completions.

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;

use rustix::io::Errno;

use super::buffers::Provided;
use super::socket::{NONE, State};
use super::submitting::request_kind;
use super::{RingKernel, UringIo};
use crate::event::Token;
use crate::io::kernel::KernelSocket;
use crate::io::large_transfers::{ACCEPT_COST, Queue};
use crate::io::shared::{NO_TOKEN, is_transient};
use crate::io::{Completion, CompletionKind};
use crate::ring::{Cqe, RingInterface, Sqe};

/// Received bytes of a connection that wait for the pool, and the end or failure after them; never
/// empty.
pub(super) struct Held {
    token: Token,
    received: VecDeque<Received>,
}

enum Received {
    Bytes(Provided),
    End,
    Failure(Errno),
}

impl<R: RingInterface, K: RingKernel> UringIo<R, K> {
    /// Handles a completion of the kernel.
    #[inline]
    pub(super) fn complete(&mut self, completion: Cqe) -> Option<Completion> {
        let slot = completion.user_data() as u32;
        let completed = match (completion.user_data() >> 32) as u32 {
            request_kind::RECEIVE => self.on_received(slot, completion),
            request_kind::SEND => {
                let completed = self.on_sent(slot, completion.result());
                self.resume_relay_to(slot);
                completed
            }
            request_kind::ACCEPT => self.on_accepted(slot, completion),
            request_kind::WAKE => self.on_woken(completion),
            _ => None,
        };
        self.counters.events += u64::from(completed.is_some());
        completed
    }

    fn on_received(&mut self, slot: u32, completion: Cqe) -> Option<Completion> {
        let result = completion.result();
        let bytes = completion.buffer().map(|number| {
            let length = u32::try_from(result).unwrap_or(0);
            self.buffers.take(number, length)
        });
        let ended = !completion.has_more();
        self.in_flight -= usize::from(ended);
        let socket = self.sockets.at_slot(slot)?;
        if ended {
            socket.state.remove(State::ARMED | State::CANCELLED);
        }
        if !socket.state.contains(State::OPEN) {
            self.counters.spurious += 1;
            self.sockets.vacate(slot);
            return None; // This releases the buffer.
        }
        let token = Token::new(slot, socket.generation);
        if socket.state.contains(State::RELAY_POLLS) {
            return self.on_polled(token, result);
        }
        if socket.state.contains(State::WATCHED) {
            return self.on_watched(token, result);
        }
        let received = match (result, bytes) {
            (1.., Some(bytes)) => {
                socket.state.insert(State::HAS_RECEIVED);
                Received::Bytes(bytes)
            }
            (0.., _) => {
                socket.state.remove(State::STARTED);
                socket.state.insert(State::RECEIVE_ENDED);
                Received::End
            }
            (error, _) => match Errno::from_raw_os_error(-error) {
                Errno::NOBUFS if !socket.state.contains(State::RELAY_SOURCE) => {
                    self.wait_for_buffer(token);
                    return None;
                }
                Errno::NOBUFS | Errno::CANCELED | Errno::INTR | Errno::AGAIN => {
                    self.on_receive_idle(token);
                    return None;
                }
                errno => {
                    socket.state.remove(State::STARTED);
                    socket.state.insert(State::RECEIVE_ENDED);
                    Received::Failure(errno)
                }
            },
        };
        let state = socket.state;
        if ended && state.contains(State::STARTED) {
            self.update_later(token);
        }
        if state.contains(State::RELAY_SOURCE) {
            self.forget_relay(token);
        }
        if self.pool.is_exhausted() || !self.held.is_empty() {
            self.hold_back(token, received);
            return None;
        }
        Some(self.deliver(token, received))
    }

    /// Handles the end of the poll request for a watched descriptor.
    #[cold]
    fn on_watched(&mut self, token: Token, result: i32) -> Option<Completion> {
        let socket = self.sockets.get(token)?;
        if !socket.state.contains(State::STARTED) {
            return None;
        }
        if result == -Errno::CANCELED.raw_os_error() {
            self.update_later(token); // It was stopped and started.
            return None;
        }
        socket.state.remove(State::STARTED);
        let kind = failure(result).map_or(CompletionKind::Readable, CompletionKind::ReceiveFailed);
        Some(Completion { token, kind })
    }

    #[inline]
    fn deliver(&self, token: Token, received: Received) -> Completion {
        let kind = match received {
            Received::Bytes(bytes) => CompletionKind::Received(self.pool.acquire_provided(bytes)),
            Received::End => CompletionKind::End,
            Received::Failure(errno) => CompletionKind::ReceiveFailed(errno.into()),
        };
        Completion { token, kind }
    }

    /// Holds back received bytes while the pool is exhausted (d).
    #[cold]
    fn hold_back(&mut self, token: Token, received: Received) {
        match self.held.iter_mut().rev().find(|held| held.token == token) {
            Some(held) => held.received.push_back(received),
            None => self.held.push_back(Held { token, received: VecDeque::from([received]) }),
        }
    }

    /// Returns whether received bytes of a connection are held back.
    pub(super) fn has_held(&self, token: Token) -> bool {
        self.held.iter().any(|held| held.token == token)
    }

    /// Returns the first completion that was held back. The next call serves another connection.
    pub(super) fn deliver_held(&mut self) -> Option<Completion> {
        let Held { token, mut received } = self.held.pop_front()?;
        self.sockets.get(token)?;
        self.counters.events += 1;
        let first = received.pop_front()?;
        if !received.is_empty() {
            self.held.push_back(Held { token, received });
        }
        Some(self.deliver(token, first))
    }

    /// Makes a connection wait for a buffer (c).
    #[cold]
    fn wait_for_buffer(&mut self, token: Token) {
        if let Some(socket) = self.sockets.get(token)
            && !socket.state.contains(State::NEEDS_BUFFER)
        {
            socket.state.insert(State::NEEDS_BUFFER);
            self.waiting_for_buffer.push_back(token);
        }
    }

    fn on_accepted(&mut self, slot: u32, completion: Cqe) -> Option<Completion> {
        let result = completion.result();
        let accepted = (result >= 0).then(|| {
            // SAFETY: the kernel has just created this descriptor for this request.
            unsafe { self.kernel.adopt(result as RawFd) }
        });
        let ended = !completion.has_more();
        self.in_flight -= usize::from(ended);
        let socket = self.sockets.at_slot(slot)?;
        if ended {
            socket.state.remove(State::ARMED | State::CANCELLED);
        }
        let token = Token::new(slot, socket.generation);
        let state = socket.state;
        if !state.contains(State::OPEN) {
            self.sockets.vacate(slot);
            if let Some(accepted) = accepted {
                accepted.reset_on_close(); // As closing the listener would.
            }
            return None;
        }
        if ended {
            self.update_later(token);
            if accepted.is_some() && state.contains(State::STARTED) {
                self.enqueue(token, Queue::ThisTurn);
            }
        } else if !state.contains(State::CANCELLED) && self.limits_accepts() {
            if let Some(socket) = self.sockets.get(token) {
                socket.state.insert(State::CANCELLED);
            }
            self.submit_silent(Sqe::cancel(completion.user_data()));
        }
        match accepted {
            Some(accepted) if state.contains(State::STARTED) => {
                Some(self.accepted(token, accepted))
            }
            Some(accepted) => {
                self.accepted_early.push_back((token, accepted)); // (d)
                None
            }
            None => self.on_accept_failed(token, Errno::from_raw_os_error(-result)),
        }
    }

    /// Returns whether the kernel might accept more connections than were reserved.
    #[inline]
    pub(super) fn limits_accepts(&self) -> bool {
        let used = self.sockets.open() + self.accepted_early.len();
        self.reserved.saturating_sub(used) <= self.settings.completions as usize
    }

    fn accepted(&mut self, token: Token, accepted: K::Socket) -> Completion {
        let peers =
            self.sockets.get(token).is_some_and(|of| of.state.contains(State::REPORTS_PEERS));
        let peer = peers.then(|| accepted.peer_addr().ok()).flatten();
        let connection = self.sockets.insert(accepted, State::empty());
        let peer = peer.map(Box::new);
        Completion { token, kind: CompletionKind::Accepted { token: connection, peer } }
    }

    fn on_accept_failed(&mut self, token: Token, errno: Errno) -> Option<Completion> {
        if matches!(errno, Errno::CANCELED | Errno::AGAIN) || is_transient(errno) {
            return None;
        }
        let socket = self.sockets.get(token)?;
        let started = socket.state.contains(State::STARTED);
        socket.state.remove(State::STARTED);
        started.then(|| Completion { token, kind: CompletionKind::AcceptFailed(errno.into()) })
    }

    /// Returns one connection that the kernel accepted while the listener was stopped. If there is
    /// none, accepts one by a call if the kernel must not accept by itself.
    fn accept(&mut self, token: Token) -> Option<Completion> {
        let socket = self.sockets.get(token)?;
        if !socket.state.contains(State::STARTED) {
            return None;
        }
        let armed = socket.state.contains(State::ARMED);
        let accepted = match self.accepted_early.iter().position(|(of, _)| *of == token) {
            Some(at) => self.accepted_early.remove(at).map(|(_, accepted)| accepted)?,
            None if armed || !self.limits_accepts() => return None,
            None => match self.sockets.fd(token)?.accept(false) {
                Ok((accepted, _)) => accepted,
                Err(errno) => return self.on_accept_failed(token, errno),
            },
        };
        self.accepts_left = self.accepts_left.saturating_sub(1);
        self.large_transfers.count(ACCEPT_COST, &self.kernel);
        let is_limit_reached = self.accepts_left == 0 || self.large_transfers.is_time_up();
        self.enqueue(token, if is_limit_reached { Queue::NextTurn } else { Queue::ThisTurn });
        Some(self.accepted(token, accepted))
    }

    /// Continues a queued socket.
    pub(super) fn resume(&mut self, token: Token) -> Option<Completion> {
        let socket = self.sockets.get(token)?;
        socket.state.remove(State::QUEUED);
        if socket.state.contains(State::LISTENER) {
            return self.accept(token);
        }
        let relays = socket.state.contains(State::RELAY_SOURCE);
        if socket.sends != NONE {
            self.resume_sending(token);
            self.resume_relay_to(token.slot());
        }
        if relays { self.resume_relay(token) } else { None }
    }

    fn on_woken(&mut self, completion: Cqe) -> Option<Completion> {
        if !completion.has_more() {
            self.in_flight -= 1;
            self.polls_wakeups = false;
        }
        // Several polls may report one wake-up.
        let any = self.wakeups.drain_wakeups();
        any.then_some(Completion { token: NO_TOKEN, kind: CompletionKind::Woken })
    }
}

/// Returns the error of a poll request, if it failed.
pub(super) fn failure(result: i32) -> Option<io::Error> {
    (result < 0).then(|| io::Error::from_raw_os_error(-result))
}
