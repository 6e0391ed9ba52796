//! Relaying: poll requests for bytes of the source and for space in the target, and calls that do
//! not wait.
//!
//! A relay moves nothing before the pending receive of its source has ended. If that receive yields
//! bytes, they precede the relay: they are reported, and the relay is cancelled (see the contract
//! of [`Relay`](crate::io::Relay)). The poll request for bytes replaces the receive, and the one
//! for space replaces a send.

use rustix::event::PollFlags;
use rustix::io::Errno;

use super::completing::failure;
use super::sending::send_request;
use super::socket::{NONE, State};
use super::submitting::{request_kind, user_data};
use super::{RingKernel, UringIo};
use crate::event::Token;
use crate::io::large_transfers::Queue;
use crate::io::relay::{RelayStep, RelayTurn, target_closed};
use crate::io::{Completion, CompletionKind, RelayEnd};
use crate::ring::{RingInterface, Sqe};
use crate::sys::poll_events;

impl<R: RingInterface, K: RingKernel> UringIo<R, K> {
    /// Continues the relay from `from`, unless it waits.
    pub(super) fn resume_relay(&mut self, from: Token) -> Option<Completion> {
        let socket = self.sockets.get(from)?;
        if !socket.state.contains(State::RELAY_SOURCE) || socket.state.contains(State::ARMED) {
            return None;
        }
        socket.state.insert(State::RELAY_ACTIVE);
        let relay = self.relays.get(from)?;
        let (to, before) = (relay.to, relay.moved);
        let target = self.sockets.get(to)?;
        if target.state.intersects(State::SEND_FAILED | State::CLOSE_LINKED) {
            return self.end_relay(from, RelayEnd::SendFailed(Errno::PIPE.into()));
        }
        if target.sends != NONE || target.state.contains(State::SENDING) {
            return None; // Previous sends come first.
        }
        let share = self.large_transfers.relay_share(self.settings.turn_bytes);
        let (source, sink) = (self.sockets.fd(from)?, self.sockets.fd(to)?);
        let mut now =
            RelayTurn { kernel: &self.kernel, from: source, to: sink, share, ending: false };
        let step = self.relays.advance(from, &mut now)?;
        self.large_transfers.count(share - now.share, &self.kernel);
        let moved = self.relays.moved(from) - before;
        let target = self.sockets.get(to)?;
        target.sent += moved;
        match step {
            RelayStep::NeedsBytes => {
                let socket = self.sockets.get(from)?;
                socket.state.insert(State::ARMED | State::RELAY_POLLS);
                let poll = Sqe::poll(socket.raw(), poll_events(PollFlags::IN), false);
                self.submit(user_data(request_kind::RECEIVE, from.slot()), poll);
            }
            RelayStep::NeedsSpace => {
                target.state.insert(State::SENDING | State::NEEDS_SPACE);
                let poll = Sqe::poll(target.raw(), poll_events(PollFlags::OUT), false);
                self.submit(send_request(to.slot()), poll);
            }
            RelayStep::ShareUsed => self.enqueue(from, Queue::NextTurn),
            RelayStep::Ended(end) => return self.end_relay(from, end),
        }
        None
    }

    /// Handles the end of a poll request for bytes.
    pub(super) fn on_polled(&mut self, token: Token, result: i32) -> Option<Completion> {
        let socket = self.sockets.get(token)?;
        socket.state.remove(State::RELAY_POLLS);
        if socket.state.contains(State::RELAY_ACTIVE) {
            if let Some(error) = failure(result) {
                return self.end_relay(token, RelayEnd::ReceiveFailed(error));
            }
            self.relays.get(token)?.readable = true;
            return self.resume_relay(token);
        }
        // The relay has ended already.
        self.on_receive_idle(token);
        None
    }

    /// Handles the end of the pending receive: starts the relay, or updates the request.
    pub(super) fn on_receive_idle(&mut self, token: Token) {
        match self.sockets.get(token) {
            Some(socket) if socket.state.contains(State::RELAY_SOURCE) => {
                self.enqueue(token, Queue::ThisTurn);
            }
            Some(_) => self.update_later(token),
            None => {}
        }
    }

    /// Continues the relay to the socket in `slot`, if it waits for the end of a send.
    pub(super) fn resume_relay_to(&mut self, slot: u32) {
        if let Some(socket) = self.sockets.at_slot(slot)
            && socket.state & (State::RELAY_TARGET | State::SENDING) == State::RELAY_TARGET
            && socket.sends == NONE
            && let Some(from) = self.relays.source(Token::new(slot, socket.generation))
            && self.sockets.get(from).is_some_and(|from| from.state.contains(State::RELAY_ACTIVE))
        {
            self.enqueue(from, Queue::LargeTransfers);
        }
    }

    /// Handles the end of a poll request for space.
    pub(super) fn on_space_polled(&mut self, token: Token, result: i32) -> Option<Completion> {
        self.sockets.get(token)?.state.remove(State::NEEDS_SPACE);
        self.resume_sending(token);
        let error = failure(result)?;
        let from = self.relays.source(token)?;
        self.end_relay(from, RelayEnd::SendFailed(error))
    }

    /// Removes the relay from `from`. Returns the number of bytes that it moved, or `None` if there
    /// is no relay.
    pub(super) fn forget_relay(&mut self, from: Token) -> Option<u64> {
        let relay = self.relays.end(from)?;
        if let Some(target) = self.sockets.get(relay.to) {
            target.state.remove(State::RELAY_TARGET);
        }
        if let Some(source) = self.sockets.get(from) {
            source.state.remove(State::RELAY_SOURCE | State::RELAY_ACTIVE);
            if source.state & (State::RELAY_POLLS | State::CANCELLED) == State::RELAY_POLLS {
                source.state.insert(State::CANCELLED);
                self.submit_silent(Sqe::cancel(user_data(request_kind::RECEIVE, from.slot())));
            }
        }
        Some(relay.moved)
    }

    /// Ends the relay from `from`, and returns the completion that reports it.
    fn end_relay(&mut self, from: Token, ended: RelayEnd) -> Option<Completion> {
        let moved = self.forget_relay(from)?;
        if matches!(ended, RelayEnd::End | RelayEnd::ReceiveFailed(_))
            && let Some(source) = self.sockets.get(from)
        {
            source.state.insert(State::RECEIVE_ENDED);
        }
        Some(Completion { token: from, kind: CompletionKind::Relayed { moved, ended } })
    }

    /// Ends the relays of a socket that is about to be closed.
    pub(super) fn end_relays_of(&mut self, token: Token, state: State) {
        if state.contains(State::RELAY_SOURCE) {
            self.forget_relay(token);
        }
        if state.contains(State::RELAY_TARGET)
            && let Some(from) = self.relays.source(token)
        {
            let ended = self.end_relay(from, target_closed());
            self.done.extend(ended);
        }
    }
}
