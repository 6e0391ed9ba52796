//! Relaying: waits until the source has bytes or the target has space.
//!
//! While a relay waits for bytes, its source is started. While it waits for space, the source is
//! not. The declared interest therefore follows the same rules as for receiving and sending.

use rustix::io::Errno;

use super::socket::State;
use super::{InterestPolicy, ReadinessIo};
use crate::event::{Interest, Token};
use crate::io::kernel::Kernel;
use crate::io::large_transfers::Queue;
use crate::io::relay::{RelayStep, RelayTurn, target_closed};
use crate::io::{Completion, CompletionKind, RelayEnd};
use crate::mechanism::Mechanism;

impl<M: Mechanism, K: Kernel> ReadinessIo<M, K> {
    /// Continues the relay from `from`, unless it waits for space.
    pub(super) fn resume_relay(&mut self, from: Token) -> Option<Completion> {
        let to = self.relays.get(from)?.to;
        let (slot, target) = (from.slot() as usize, to.slot() as usize);
        if self.sockets[target].state.contains(State::NEEDS_SPACE) {
            return None;
        }
        if self.sockets[target].sends.is_some() {
            self.wait_for_space(from, to); // Previous sends come first.
            return None;
        }
        if self.sockets[target].state.contains(State::SEND_FAILED) {
            return self.end_relay(from, RelayEnd::SendFailed(Errno::PIPE.into()));
        }
        let socket = &mut self.sockets[slot];
        let share = self.policy.turn_bytes.saturating_sub(socket.used as usize);
        let share = self.large_transfers.relay_share(share);
        let tried = socket.state.contains(State::READABLE);
        let ending = socket.state.contains(State::END_PENDING);
        let (source, sink) = (self.registry.get(from)?, self.registry.get(to)?);
        let mut now = RelayTurn { kernel: &self.kernel, from: source, to: sink, share, ending };
        let relay = self.relays.get(from)?;
        let before = relay.moved;
        (relay.readable, relay.would_block) = (tried, false);
        let step = self.relays.advance(from, &mut now)?;
        let used = share - now.share;
        socket.used = socket.used.saturating_add(used as u32);
        self.large_transfers.count(used, &self.kernel);
        let relay = self.relays.get(from)?;
        let (moved, readable, would_block) =
            (relay.moved - before, relay.readable, relay.would_block);
        self.sockets[target].sent += moved;
        if tried && !readable {
            self.sockets[slot].state.remove(State::READABLE);
            if would_block || self.reports_end {
                self.registry.would_block(from, Interest::READ);
            }
        }
        match step {
            RelayStep::NeedsBytes => {
                self.sockets[slot].state.insert(State::STARTED);
                self.declare_read_if_missing(from);
            }
            RelayStep::NeedsSpace => {
                self.sockets[target].state.remove(State::WRITABLE);
                self.registry.would_block(to, Interest::WRITE);
                self.wait_for_space(from, to);
                self.declare_later(to);
            }
            RelayStep::ShareUsed => self.enqueue(from, Queue::NextTurn),
            RelayStep::Ended(end) => return self.end_relay(from, end),
        }
        None
    }

    fn wait_for_space(&mut self, from: Token, to: Token) {
        self.sockets[to.slot() as usize].state.insert(State::NEEDS_SPACE);
        self.sockets[from.slot() as usize].state.remove(State::STARTED);
        if self.policy.interest == InterestPolicy::EveryState {
            self.declare_later(from);
        }
    }

    /// Continues the relay that waits for space in `to`, if there is one.
    pub(super) fn resume_relay_to(&mut self, to: Token) {
        let socket = &mut self.sockets[to.slot() as usize];
        if !socket.state.contains(State::NEEDS_SPACE) || socket.sends.is_some() {
            return;
        }
        socket.state.remove(State::NEEDS_SPACE);
        self.declare_later(to);
        if let Some(from) = self.relays.source(to) {
            self.sockets[from.slot() as usize].used = 0;
            self.enqueue(from, Queue::LargeTransfers);
        }
    }

    /// Ends the relay from `from`, and returns the completion that reports it.
    pub(super) fn end_relay(&mut self, from: Token, ended: RelayEnd) -> Option<Completion> {
        let relay = self.relays.end(from)?;
        self.sockets[relay.to.slot() as usize]
            .state
            .remove(State::RELAY_TARGET | State::NEEDS_SPACE);
        self.declare_later(relay.to); // It no longer waits for space.
        let state = &mut self.sockets[from.slot() as usize].state;
        state.remove(State::RELAY_SOURCE | State::STARTED);
        if matches!(ended, RelayEnd::End | RelayEnd::ReceiveFailed(_)) {
            state.remove(State::READABLE);
            state.insert(State::RECEIVE_ENDED);
        }
        if self.policy.interest == InterestPolicy::EveryState {
            self.declare_later(from);
        }
        Some(Completion {
            token: from,
            kind: CompletionKind::Relayed { moved: relay.moved, ended },
        })
    }

    /// Ends the relays of a socket that is about to be closed.
    pub(super) fn end_relays_of(&mut self, token: Token) {
        let state = self.sockets[token.slot() as usize].state;
        if state.contains(State::RELAY_SOURCE) {
            let _ = self.end_relay(token, target_closed());
        }
        if state.contains(State::RELAY_TARGET)
            && let Some(from) = self.relays.source(token)
        {
            let ended = self.end_relay(from, target_closed());
            self.done.extend(ended);
        }
    }
}
