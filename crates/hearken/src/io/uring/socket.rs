//! A socket, and the table of them.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use crate::event::Token;

/// Where there is no send.
pub(super) const NONE: u32 = u32::MAX;

pub(super) struct Socket {
    /// `None` once it was given to a close, or where there is none.
    pub(super) fd: Option<OwnedFd>,
    pub(super) generation: u32,
    /// The first of its sends that are not completed.
    pub(super) sends: u32,
    pub(super) state: State,
    /// Bytes that the transport is known to have taken.
    pub(super) sent: u64,
}

bitflags::bitflags! {
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub(super) struct State: u32 {
        /// The slot has an owner.
        const OPEN = 1;
        const LISTENER = 2;
        const CONNECTING = 4;
        /// Accepting or receiving is wanted.
        const STARTED = 8;
        /// An accept or a receive is with the kernel; and its cancellation.
        const ARMED = 16;
        const CANCELLED = 32;
        /// A send, or a wait for room or for being connected, is with the kernel.
        const SENDING = 64;
        /// In `changed`.
        const CHANGED = 128;
        /// In `starved`.
        const STARVED = 256;
        /// Nothing more is received: the end was told, or a failure.
        const ENDED = 512;
        /// A failed send leaves nothing to be sent.
        const BROKEN = 1024;
        /// It has received: what it receives next may be many.
        const HEARD = 2048;
        /// In `turn` or `later`.
        const QUEUED = 4096;
        /// A close is linked to the send that is with the kernel.
        const LAST = 8192;
        /// Its owner has let go of the slot, and the kernel perhaps not yet.
        const CLOSED = 16384;
        /// Of a listener: it is to tell who connects.
        const PEERS = 1 << 15;
        /// A relay receives from it, or will; and nothing hinders that any more.
        const RELAYS = 1 << 16;
        const MOVES = 1 << 17;
        /// A relay sends to it.
        const FED = 1 << 18;
        /// What is armed is a poll request of a relay's; and so is what sends.
        const POLLS = 1 << 19;
        const ROOM = 1 << 20;

        /// The kernel has a request that names it.
        const BUSY = Self::ARMED.bits() | Self::SENDING.bits();
    }
}

impl Socket {
    const VACANT: Socket =
        Socket { fd: None, generation: 0, sends: NONE, state: State::empty(), sent: 0 };

    #[inline]
    pub(super) fn raw(&self) -> RawFd {
        self.fd.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }
}

/// By slot. One that was closed has its slot until the kernel has let go of it, so that no completion
/// can be taken for the next one's.
#[derive(Default)]
pub(super) struct Sockets {
    slots: Vec<Socket>,
    free: Vec<u32>,
    open: usize,
}

impl Sockets {
    pub(super) fn insert(&mut self, fd: OwnedFd, state: State) -> Token {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Socket::VACANT);
            self.slots.len() as u32 - 1
        });
        self.open += 1;
        let socket = &mut self.slots[slot as usize];
        let generation = socket.generation;
        *socket = Socket { fd: Some(fd), generation, state: state | State::OPEN, ..Socket::VACANT };
        Token::new(slot, generation)
    }

    /// Makes room for so many more.
    pub(super) fn reserve(&mut self, sockets: usize) {
        self.slots.reserve_exact(sockets);
    }

    /// How many are open.
    pub(super) fn open(&self) -> usize {
        self.open
    }

    /// That which is open under a token.
    #[inline]
    pub(super) fn get(&mut self, token: Token) -> Option<&mut Socket> {
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

    /// Its descriptor, unless the kernel may have closed it.
    pub(super) fn fd(&self, token: Token) -> Option<BorrowedFd<'_>> {
        use std::os::fd::AsFd;
        let socket = self.slots.get(token.slot() as usize)?;
        let open = socket.generation == token.generation()
            && socket.state & (State::OPEN | State::LAST) == State::OPEN;
        socket.fd.as_ref().filter(|_| open).map(AsFd::as_fd)
    }

    /// Whether a relay waits for room there.
    pub(super) fn is_fed_in_vain(&self, token: Token) -> bool {
        self.fd(token).is_some()
            && self.slots[token.slot() as usize].state.contains(State::FED | State::ROOM)
    }

    /// How much is known to have been taken for sending.
    pub(super) fn sent(&self, token: Token) -> u64 {
        self.slots.get(token.slot() as usize).map_or(0, |socket| socket.sent)
    }

    /// What is in a slot that a completion names, open or not.
    #[inline]
    pub(super) fn at(&mut self, slot: u32) -> Option<&mut Socket> {
        self.slots.get_mut(slot as usize)
    }

    /// The token of what is open in a slot.
    #[inline]
    pub(super) fn token_at(&self, slot: u32) -> Option<Token> {
        let socket = self.slots.get(slot as usize)?;
        socket.state.contains(State::OPEN).then_some(Token::new(slot, socket.generation))
    }

    /// Ends a token.
    pub(super) fn retire(&mut self, slot: u32) {
        let socket = &mut self.slots[slot as usize];
        socket.generation = socket.generation.wrapping_add(1);
        socket.state &= State::BUSY | State::CANCELLED | State::LAST | State::LISTENER;
        socket.state |= State::CLOSED;
        self.open -= 1;
    }

    /// Gives a slot to the next, if its owner and the kernel have let go of it.
    #[inline]
    pub(super) fn vacate(&mut self, slot: u32) {
        let socket = &mut self.slots[slot as usize];
        if socket.state & (State::CLOSED | State::BUSY) == State::CLOSED {
            *socket = Socket { generation: socket.generation, ..Socket::VACANT };
            self.free.push(slot);
        }
    }

    /// All slots.
    pub(super) fn slots(&self) -> std::ops::Range<u32> {
        0..self.slots.len() as u32
    }
}
