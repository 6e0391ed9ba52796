//! The state of a socket, and the table of sockets.

use std::cell::Cell;
use std::os::fd::RawFd;

use crate::event::Token;
use crate::io::kernel::KernelSocket;

/// The index that refers to no send.
pub(super) const NONE: u32 = u32::MAX;

pub(super) struct Socket<S> {
    /// `None` if the slot is free, or a close was submitted for the descriptor.
    pub(super) fd: Option<S>,
    pub(super) generation: u32,
    /// Index of the first pending send, or [`NONE`].
    pub(super) sends: u32,
    pub(super) state: State,
    /// Number of bytes that the transport has taken, as far as it is known.
    pub(super) sent: u64,
    /// Number of bytes that were reported as delivered.
    delivered: Cell<u64>,
}

bitflags::bitflags! {
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub(super) struct State: u32 {
        /// The slot has a valid token.
        const OPEN = 1;
        const LISTENER = 2;
        const CONNECTING = 4;
        /// Accepting or receiving is requested.
        const STARTED = 8;
        /// The kernel has an accept or a receive.
        const ARMED = 16;
        /// The kernel has the cancellation of that request.
        const CANCELLED = 32;
        /// The kernel has a send, or a poll for space or for the result of a connect.
        const SENDING = 64;
        /// In `changed`.
        const CHANGED = 128;
        /// In `waiting_for_buffer`.
        const NEEDS_BUFFER = 256;
        /// The end of the stream or a failure was reported.
        const RECEIVE_ENDED = 512;
        /// A send failed, and all later sends with it.
        const SEND_FAILED = 1024;
        /// The connection has received bytes, so its next receive is multishot.
        const HAS_RECEIVED = 2048;
        /// In `turn`, `large_transfers` or `later`.
        const QUEUED = 4096;
        /// The kernel has a send with a linked close.
        const CLOSE_LINKED = 8192;
        /// The token is closed, and the kernel may still have requests for the slot.
        const CLOSED = 16384;
        /// The listener reports the addresses of peers.
        const REPORTS_PEERS = 1 << 15;
        /// A relay receives from the socket, or will when the pending receive has ended.
        const RELAY_SOURCE = 1 << 16;
        /// The pending receive has ended, so the relay moves bytes.
        const RELAY_ACTIVE = 1 << 17;
        /// A relay sends to the socket.
        const RELAY_TARGET = 1 << 18;
        /// The armed request is a poll for bytes to relay.
        const RELAY_POLLS = 1 << 19;
        /// The sending request is a poll for space for a relay.
        const NEEDS_SPACE = 1 << 20;
        /// The descriptor is not a socket of this instance. Its readability is reported.
        const WATCHED = 1 << 21;

        /// The kernel has a request for the socket.
        const BUSY = Self::ARMED.bits() | Self::SENDING.bits();
    }
}

impl<S: KernelSocket> Socket<S> {
    fn vacant() -> Socket<S> {
        Socket {
            fd: None,
            generation: 0,
            sends: NONE,
            state: State::empty(),
            sent: 0,
            delivered: Cell::new(0),
        }
    }

    #[inline]
    pub(super) fn raw(&self) -> RawFd {
        self.fd.as_ref().map_or(-1, S::raw)
    }
}

/// The sockets, by slot. A closed socket occupies its slot until its last request has ended, so a
/// completion is never attributed to the next socket in the slot.
pub(super) struct Sockets<S> {
    slots: Vec<Socket<S>>,
    free: Vec<u32>,
    open: usize,
}

impl<S: KernelSocket> Sockets<S> {
    pub(super) const EMPTY: Sockets<S> = Sockets { slots: Vec::new(), free: Vec::new(), open: 0 };

    pub(super) fn insert(&mut self, fd: S, state: State) -> Token {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Socket::vacant());
            self.slots.len() as u32 - 1
        });
        self.open += 1;
        let socket = &mut self.slots[slot as usize];
        let generation = socket.generation;
        *socket =
            Socket { fd: Some(fd), generation, state: state | State::OPEN, ..Socket::vacant() };
        Token::new(slot, generation)
    }

    /// Reserves space for more sockets.
    pub(super) fn reserve(&mut self, sockets: usize) {
        self.slots.reserve_exact(sockets);
    }

    /// Returns the number of open sockets.
    pub(super) fn open(&self) -> usize {
        self.open
    }

    /// Returns the open socket of a token.
    #[inline]
    pub(super) fn get(&mut self, token: Token) -> Option<&mut Socket<S>> {
        let socket = self.slots.get_mut(token.slot() as usize)?;
        (socket.generation == token.generation() && socket.state.contains(State::OPEN))
            .then_some(socket)
    }

    /// Returns the state of an open socket.
    pub(super) fn state(&self, token: Token) -> Option<State> {
        let socket = self.slots.get(token.slot() as usize)?;
        (socket.generation == token.generation() && socket.state.contains(State::OPEN))
            .then_some(socket.state)
    }

    /// Returns the descriptor of an open socket, unless the kernel may have closed it.
    pub(super) fn fd(&self, token: Token) -> Option<&S> {
        let socket = self.slots.get(token.slot() as usize)?;
        let open = socket.generation == token.generation()
            && socket.state & (State::OPEN | State::CLOSE_LINKED) == State::OPEN;
        socket.fd.as_ref().filter(|_| open)
    }

    /// Returns whether a relay waits for space in the socket.
    pub(super) fn relay_needs_space(&self, token: Token) -> bool {
        self.fd(token).is_some()
            && self.slots[token.slot() as usize]
                .state
                .contains(State::RELAY_TARGET | State::NEEDS_SPACE)
    }

    /// Returns the number of delivered bytes of an open socket, which never shrinks. The transport
    /// may have `undelivered` bytes of a send whose completion was not taken yet.
    pub(super) fn delivered(&self, token: Token, undelivered: u64) -> u64 {
        let Some(socket) = self.slots.get(token.slot() as usize) else { return 0 };
        if socket.generation != token.generation() || !socket.state.contains(State::OPEN) {
            return 0;
        }
        let delivered = socket.sent.saturating_sub(undelivered).max(socket.delivered.get());
        socket.delivered.set(delivered);
        delivered
    }

    /// Returns the socket in a slot, open or not.
    #[inline]
    pub(super) fn at_slot(&mut self, slot: u32) -> Option<&mut Socket<S>> {
        self.slots.get_mut(slot as usize)
    }

    /// Returns the token of the open socket in a slot.
    #[inline]
    pub(super) fn token_at(&self, slot: u32) -> Option<Token> {
        let socket = self.slots.get(slot as usize)?;
        socket.state.contains(State::OPEN).then_some(Token::new(slot, socket.generation))
    }

    /// Invalidates the token of a slot.
    pub(super) fn retire(&mut self, slot: u32) {
        let socket = &mut self.slots[slot as usize];
        socket.generation = socket.generation.wrapping_add(1);
        socket.state &= State::BUSY | State::CANCELLED | State::CLOSE_LINKED | State::LISTENER;
        socket.state |= State::CLOSED;
        self.open -= 1;
    }

    /// Frees a slot if its token is closed and the kernel has no request for it.
    #[inline]
    pub(super) fn vacate(&mut self, slot: u32) {
        let socket = &mut self.slots[slot as usize];
        if socket.state & (State::CLOSED | State::BUSY) == State::CLOSED {
            *socket = Socket { generation: socket.generation, ..Socket::vacant() };
            self.free.push(slot);
        }
    }

    /// Returns the range of all slots.
    pub(super) fn slots(&self) -> std::ops::Range<u32> {
        0..self.slots.len() as u32
    }
}
