//! What the kernel's completions come to.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};

use rustix::io::Errno;

use super::UringIo;
use super::buffers::Provided;
use super::socket::{NONE, State};
use super::submitting::of;
use crate::event::Token;
use crate::io::bulk::{ACCEPTED, Queue};
use crate::io::shared::{NO_TOKEN, is_transient};
use crate::io::{Completion, CompletionKind, sockets};
use crate::ring::{Cqe, Sqe};
use crate::waker::Wakeups;

/// What a connection has received and waits for the pool, and what comes behind it; never empty.
pub(super) struct Held {
    token: Token,
    received: VecDeque<Received>,
}

enum Received {
    Bytes(Provided),
    End,
    Failure(Errno),
}

impl UringIo {
    /// What a completion of the kernel's comes to, if anything.
    #[inline]
    pub(super) fn complete(&mut self, completion: Cqe) -> Option<Completion> {
        let slot = completion.user_data() as u32;
        let completed = match (completion.user_data() >> 32) as u32 {
            of::RECEIVE => self.on_received(slot, completion),
            of::SEND => {
                let completed = self.on_sent(slot, completion.result());
                self.feed_on(slot);
                completed
            }
            of::ACCEPT => self.on_accepted(slot, completion),
            of::WAKE => self.on_woken(completion),
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
        self.under_way -= usize::from(ended);
        let socket = self.sockets.at(slot)?;
        if ended {
            socket.state.remove(State::ARMED | State::CANCELLED);
        }
        if !socket.state.contains(State::OPEN) {
            self.counters.spurious += 1;
            self.sockets.vacate(slot);
            return None; // The buffer goes back.
        }
        let token = Token::new(slot, socket.generation);
        if socket.state.contains(State::POLLS) {
            return self.on_polled(token, result);
        }
        let received = match (result, bytes) {
            (1.., Some(bytes)) => {
                socket.state.insert(State::HEARD);
                Received::Bytes(bytes)
            }
            (0.., _) => {
                socket.state.remove(State::STARTED);
                socket.state.insert(State::ENDED);
                Received::End
            }
            (error, _) => match Errno::from_raw_os_error(-error) {
                Errno::NOBUFS if !socket.state.contains(State::RELAYS) => {
                    self.starve(token);
                    return None;
                }
                Errno::NOBUFS | Errno::CANCELED | Errno::INTR | Errno::AGAIN => {
                    self.is_quiet(token);
                    return None;
                }
                errno => {
                    socket.state.remove(State::STARTED);
                    socket.state.insert(State::ENDED);
                    Received::Failure(errno)
                }
            },
        };
        let state = socket.state;
        if ended && state.contains(State::STARTED) {
            self.change_later(token);
        }
        if state.contains(State::RELAYS) {
            self.forget_relay(token);
        }
        if self.pool.is_exhausted() || !self.held.is_empty() {
            self.hold(token, received);
            return None;
        }
        Some(self.give(token, received))
    }

    #[inline]
    fn give(&self, token: Token, received: Received) -> Completion {
        let kind = match received {
            Received::Bytes(bytes) => CompletionKind::Received(self.pool.lend_provided(bytes)),
            Received::End => CompletionKind::End,
            Received::Failure(errno) => CompletionKind::ReceiveFailed(errno.into()),
        };
        Completion { token, kind }
    }

    /// Holds back what comes while the pool does not lend (d).
    #[cold]
    fn hold(&mut self, token: Token, received: Received) {
        match self.held.iter_mut().rev().find(|held| held.token == token) {
            Some(held) => held.received.push_back(received),
            None => self.held.push_back(Held { token, received: VecDeque::from([received]) }),
        }
    }

    /// True if something of `on` is held back.
    pub(super) fn holds(&self, token: Token) -> bool {
        self.held.iter().any(|held| held.token == token)
    }

    /// Gives out the first of what was held back; then it is another connection's turn.
    pub(super) fn let_go(&mut self) -> Option<Completion> {
        let Held { token, mut received } = self.held.pop_front()?;
        self.sockets.get(token)?;
        self.counters.events += 1;
        let first = received.pop_front()?;
        if !received.is_empty() {
            self.held.push_back(Held { token, received });
        }
        Some(self.give(token, first))
    }

    /// Has it wait for a buffer (c).
    #[cold]
    fn starve(&mut self, token: Token) {
        if let Some(socket) = self.sockets.get(token)
            && !socket.state.contains(State::STARVED)
        {
            socket.state.insert(State::STARVED);
            self.starved.push_back(token);
        }
    }

    fn on_accepted(&mut self, slot: u32, completion: Cqe) -> Option<Completion> {
        let result = completion.result();
        let accepted = (result >= 0).then(|| {
            // SAFETY: the kernel has just made this descriptor, for us.
            unsafe { OwnedFd::from_raw_fd(result as RawFd) }
        });
        let ended = !completion.has_more();
        self.under_way -= usize::from(ended);
        let socket = self.sockets.at(slot)?;
        if ended {
            socket.state.remove(State::ARMED | State::CANCELLED);
        }
        let token = Token::new(slot, socket.generation);
        let state = socket.state;
        if !state.contains(State::OPEN) {
            self.sockets.vacate(slot);
            if let Some(accepted) = accepted {
                sockets::reset(Some(&accepted)); // As its listener's end would have.
            }
            return None;
        }
        if ended {
            self.change_later(token);
            if accepted.is_some() && state.contains(State::STARTED) {
                self.go_on(token, Queue::Turn);
            }
        } else if !state.contains(State::CANCELLED) && self.is_careful() {
            if let Some(socket) = self.sockets.get(token) {
                socket.state.insert(State::CANCELLED);
            }
            self.order(Sqe::cancel(completion.user_data()));
        }
        match accepted {
            Some(accepted) if state.contains(State::STARTED) => Some(self.welcome(token, accepted)),
            Some(accepted) => {
                self.kept.push_back((token, accepted)); // (d)
                None
            }
            None => self.on_accept_failed(token, Errno::from_raw_os_error(-result)),
        }
    }

    /// True if the kernel might accept more connections than there may be.
    #[inline]
    pub(super) fn is_careful(&self) -> bool {
        let there = self.sockets.open() + self.kept.len();
        self.reserved.saturating_sub(there) <= self.settings.completions as usize
    }

    fn welcome(&mut self, token: Token, accepted: OwnedFd) -> Completion {
        let peers = self.sockets.get(token).is_some_and(|of| of.state.contains(State::PEERS));
        let peer = peers.then(|| sockets::peer_addr(Some(&accepted)).ok()).flatten();
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

    /// Gives out what a listener accepted while it was stopped; or accepts, where the kernel is not to
    /// do that by itself. One at a time.
    fn accept(&mut self, token: Token) -> Option<Completion> {
        let socket = self.sockets.get(token)?;
        if !socket.state.contains(State::STARTED) {
            return None;
        }
        let armed = socket.state.contains(State::ARMED);
        let accepted = match self.kept.iter().position(|(of, _)| *of == token) {
            Some(at) => self.kept.remove(at).map(|(_, accepted)| accepted)?,
            None if armed || !self.is_careful() => return None,
            None => match sockets::accept(self.sockets.fd(token)?, false) {
                Ok((accepted, _)) => accepted,
                Err(errno) => return self.on_accept_failed(token, errno),
            },
        };
        self.accepts = self.accepts.saturating_sub(1);
        self.bulk.count(ACCEPTED);
        let spent = self.accepts == 0 || self.bulk.is_over();
        self.go_on(token, if spent { Queue::Later } else { Queue::Turn });
        Some(self.welcome(token, accepted))
    }

    /// Goes on with what was queued.
    pub(super) fn resume(&mut self, token: Token) -> Option<Completion> {
        let socket = self.sockets.get(token)?;
        socket.state.remove(State::QUEUED);
        if socket.state.contains(State::LISTENER) {
            return self.accept(token);
        }
        let relays = socket.state.contains(State::RELAYS);
        if socket.sends != NONE {
            self.go_on_sending(token);
            self.feed_on(token.slot());
        }
        if relays { self.relay_on(token) } else { None }
    }

    fn on_woken(&mut self, completion: Cqe) -> Option<Completion> {
        if !completion.has_more() {
            self.under_way -= 1;
            self.hears_wakeups = false;
        }
        // Several polls may have told of one.
        let any = Wakeups::drain(self.wakeups.as_fd());
        any.then_some(Completion { token: NO_TOKEN, kind: CompletionKind::Woken })
    }
}

/// What the kernel says of a poll request.
pub(super) fn failure(result: i32) -> Option<io::Error> {
    (result < 0).then(|| io::Error::from_raw_os_error(-result))
}
