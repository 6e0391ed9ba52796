//! Relaying: poll requests for whichever side has nothing, or no room, and calls that do not wait.
//!
//! A relay moves nothing before the kernel has let go of the receive that it had of the connection. What
//! comes of that till then came before: it is given out, and the relay is none (the contract of
//! [`Relay`](crate::io::Relay)). The poll request for bytes is in the place of the receive, and
//! that for room in the place of a send.

use rustix::event::PollFlags;
use rustix::io::Errno;

use super::UringIo;
use super::completing::failure;
use super::sending::request;
use super::socket::{NONE, State};
use super::submitting::{name, of};
use crate::event::Token;
use crate::io::bulk::Queue;
use crate::io::relay::{Now, Step, was_closed};
use crate::io::{Completion, CompletionKind, RelayEnd};
use crate::ring::Sqe;

impl UringIo {
    /// Goes on with the relay from `from`, unless it waits.
    pub(super) fn relay_on(&mut self, from: Token) -> Option<Completion> {
        let socket = self.sockets.get(from)?;
        if !socket.state.contains(State::RELAYS) || socket.state.contains(State::ARMED) {
            return None;
        }
        socket.state.insert(State::MOVES);
        let relay = self.relays.get(from)?;
        let (to, before) = (relay.to, relay.moved);
        let target = self.sockets.get(to)?;
        if target.state.intersects(State::BROKEN | State::LAST) {
            return self.end_relay(from, RelayEnd::SendFailed(Errno::PIPE.into()));
        }
        if target.sends != NONE || target.state.contains(State::SENDING) {
            return None; // After all that was sent before.
        }
        let share = self.bulk.relay_share(self.settings.turn_bytes);
        let (source, sink) = (self.sockets.fd(from)?, self.sockets.fd(to)?);
        let mut now = Now { from: source, to: sink, share, ending: false };
        let step = self.relays.go_on(from, &mut now)?;
        self.bulk.count(share - now.share);
        let moved = self.relays.moved(from) - before;
        let target = self.sockets.get(to)?;
        target.sent += moved;
        match step {
            Step::Bytes => {
                let socket = self.sockets.get(from)?;
                socket.state.insert(State::ARMED | State::POLLS);
                let poll = Sqe::poll(socket.raw(), PollFlags::IN.bits().into(), false);
                self.begin(name(of::RECEIVE, from.slot()), poll);
            }
            Step::Room => {
                target.state.insert(State::SENDING | State::ROOM);
                let poll = Sqe::poll(target.raw(), PollFlags::OUT.bits().into(), false);
                self.begin(request(to.slot()), poll);
            }
            Step::Share => self.go_on(from, Queue::Later),
            Step::Ended(end) => return self.end_relay(from, end),
        }
        None
    }

    /// A poll request for bytes has ended.
    pub(super) fn on_polled(&mut self, token: Token, result: i32) -> Option<Completion> {
        let socket = self.sockets.get(token)?;
        socket.state.remove(State::POLLS);
        if socket.state.contains(State::MOVES) {
            if let Some(error) = failure(result) {
                return self.end_relay(token, RelayEnd::ReceiveFailed(error));
            }
            self.relays.get(token)?.readable = true;
            return self.relay_on(token);
        }
        // Of a relay that is no more.
        self.is_quiet(token);
        None
    }

    /// The kernel has no receive of `on` any more: what was to be done instead can be.
    pub(super) fn is_quiet(&mut self, token: Token) {
        match self.sockets.get(token) {
            Some(socket) if socket.state.contains(State::RELAYS) => self.go_on(token, Queue::Turn),
            Some(_) => self.change_later(token),
            None => {}
        }
    }

    /// Has the relay into what is in `slot` go on, if it waits for that.
    pub(super) fn feed_on(&mut self, slot: u32) {
        if let Some(socket) = self.sockets.at(slot)
            && socket.state & (State::FED | State::SENDING) == State::FED
            && socket.sends == NONE
            && let Some(from) = self.relays.source(Token::new(slot, socket.generation))
            && self.sockets.get(from).is_some_and(|from| from.state.contains(State::MOVES))
        {
            self.go_on(from, Queue::Bulk);
        }
    }

    /// A poll request for room has ended.
    pub(super) fn on_room(&mut self, token: Token, result: i32) -> Option<Completion> {
        self.sockets.get(token)?.state.remove(State::ROOM);
        self.go_on_sending(token);
        let error = failure(result)?;
        let from = self.relays.source(token)?;
        self.end_relay(from, RelayEnd::SendFailed(error))
    }

    /// Forgets the relay from `from`; `None` if there was none.
    pub(super) fn forget_relay(&mut self, from: Token) -> Option<u64> {
        let relay = self.relays.end(from)?;
        if let Some(target) = self.sockets.get(relay.to) {
            target.state.remove(State::FED);
        }
        if let Some(source) = self.sockets.get(from) {
            source.state.remove(State::RELAYS | State::MOVES);
            if source.state & (State::POLLS | State::CANCELLED) == State::POLLS {
                source.state.insert(State::CANCELLED);
                self.order(Sqe::cancel(name(of::RECEIVE, from.slot())));
            }
        }
        Some(relay.moved)
    }

    /// Ends the relay from `from`, and tells how.
    fn end_relay(&mut self, from: Token, ended: RelayEnd) -> Option<Completion> {
        let moved = self.forget_relay(from)?;
        if matches!(ended, RelayEnd::End | RelayEnd::ReceiveFailed(_))
            && let Some(source) = self.sockets.get(from)
        {
            source.state.insert(State::ENDED);
        }
        Some(Completion { token: from, kind: CompletionKind::Relayed { moved, ended } })
    }

    /// Ends the relays of what is about to be closed.
    pub(super) fn leave_relays(&mut self, token: Token, state: State) {
        if state.contains(State::RELAYS) {
            self.forget_relay(token);
        }
        if state.contains(State::FED)
            && let Some(from) = self.relays.source(token)
        {
            let ended = self.end_relay(from, was_closed());
            self.done.extend(ended);
        }
    }
}
