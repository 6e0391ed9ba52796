//! Relaying: waiting for whichever side has nothing, or no room.
//!
//! While a relay waits for bytes, where they come from is started, and not while it waits for room: what
//! is to be declared is then what it is for receiving and sending.

use std::os::fd::AsFd;

use rustix::io::Errno;

use super::socket::State;
use super::{InterestPolicy, ReadinessIo};
use crate::event::{Interest, Token};
use crate::io::bulk::Queue;
use crate::io::relay::{Now, Step, was_closed};
use crate::io::{Completion, CompletionKind, RelayEnd};
use crate::mechanism::Mechanism;

impl<M: Mechanism> ReadinessIo<M> {
    /// Goes on with the relay from `from`, unless it waits for room.
    pub(super) fn relay_on(&mut self, from: Token) -> Option<Completion> {
        let to = self.relays.get(from)?.to;
        let (slot, target) = (from.slot() as usize, to.slot() as usize);
        if self.sockets[target].state.contains(State::ROOM) {
            return None;
        }
        if self.sockets[target].sends.is_some() {
            self.await_room(from, to); // After all that was sent before.
            return None;
        }
        if self.sockets[target].state.contains(State::BROKEN) {
            return self.end_relay(from, RelayEnd::SendFailed(Errno::PIPE.into()));
        }
        let socket = &mut self.sockets[slot];
        let share = self.policy.turn_bytes.saturating_sub(socket.used as usize);
        let share = self.bulk.relay_share(share);
        let tried = socket.state.contains(State::READABLE);
        let ending = socket.state.contains(State::ENDING);
        let (source, sink) = (self.registry.get(from)?, self.registry.get(to)?);
        let mut now = Now { from: source.as_fd(), to: sink.as_fd(), share, ending };
        let relay = self.relays.get(from)?;
        let before = relay.moved;
        (relay.readable, relay.blocks) = (tried, false);
        let step = self.relays.go_on(from, &mut now)?;
        let used = share - now.share;
        socket.used = socket.used.saturating_add(used as u32);
        self.bulk.count(used);
        let relay = self.relays.get(from)?;
        let (moved, readable, blocks) = (relay.moved - before, relay.readable, relay.blocks);
        self.sockets[target].sent += moved;
        if tried && !readable {
            self.sockets[slot].state.remove(State::READABLE);
            if blocks || self.tells_end {
                self.registry.would_block(from, Interest::READ);
            }
        }
        match step {
            Step::Bytes => {
                self.sockets[slot].state.insert(State::STARTED);
                self.declare_if_unheard(from);
            }
            Step::Room => {
                self.sockets[target].state.remove(State::WRITABLE);
                self.registry.would_block(to, Interest::WRITE);
                self.await_room(from, to);
                self.declare_later(to);
            }
            Step::Share => self.go_on(from, Queue::Later),
            Step::Ended(end) => return self.end_relay(from, end),
        }
        None
    }

    fn await_room(&mut self, from: Token, to: Token) {
        self.sockets[to.slot() as usize].state.insert(State::ROOM);
        self.sockets[from.slot() as usize].state.remove(State::STARTED);
        if self.policy.interest == InterestPolicy::EveryState {
            self.declare_later(from);
        }
    }

    /// Has the relay that waits for room in `to` go on, if there is some.
    pub(super) fn feed_on(&mut self, to: Token) {
        let socket = &mut self.sockets[to.slot() as usize];
        if !socket.state.contains(State::ROOM) || socket.sends.is_some() {
            return;
        }
        socket.state.remove(State::ROOM);
        self.declare_later(to);
        if let Some(from) = self.relays.source(to) {
            self.sockets[from.slot() as usize].used = 0;
            self.go_on(from, Queue::Bulk);
        }
    }

    /// Ends the relay from `from`, and tells how.
    pub(super) fn end_relay(&mut self, from: Token, ended: RelayEnd) -> Option<Completion> {
        let relay = self.relays.end(from)?;
        self.sockets[relay.to.slot() as usize].state.remove(State::FED | State::ROOM);
        self.declare_later(relay.to); // To wait for room no longer.
        let state = &mut self.sockets[from.slot() as usize].state;
        state.remove(State::RELAYS | State::STARTED);
        if matches!(ended, RelayEnd::End | RelayEnd::ReceiveFailed(_)) {
            state.remove(State::READABLE);
            state.insert(State::ENDED);
        }
        if self.policy.interest == InterestPolicy::EveryState {
            self.declare_later(from);
        }
        Some(Completion {
            token: from,
            kind: CompletionKind::Relayed { moved: relay.moved, ended },
        })
    }

    /// Ends the relays of what is about to be closed.
    pub(super) fn leave_relays(&mut self, token: Token) {
        let state = self.sockets[token.slot() as usize].state;
        if state.contains(State::RELAYS) {
            let _ = self.end_relay(token, was_closed());
        }
        if state.contains(State::FED)
            && let Some(from) = self.relays.source(token)
        {
            let ended = self.end_relay(from, was_closed());
            self.done.extend(ended);
        }
    }
}
