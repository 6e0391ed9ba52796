//! The vocabulary of all other modules: [`Token`], [`Interest`], [`Readiness`] and [`Event`].

use std::fmt;

/// An identifier of one registration of one descriptor with a mechanism.
///
/// The kernel reuses the number of a descriptor as soon as it is closed. A token is not reused: it
/// combines a slot of its owner's table with the generation of that slot. An event for an earlier
/// registration in the same slot therefore has a different token.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token(u64);

impl Token {
    /// Creates the token for `generation` of `slot`.
    #[inline]
    pub const fn new(slot: u32, generation: u32) -> Token {
        Token((generation as u64) << 32 | slot as u64)
    }

    /// Returns the index of the registration in its owner's table.
    #[inline]
    pub const fn slot(self) -> u32 {
        self.0 as u32
    }

    /// Returns the generation of the slot.
    #[inline]
    pub const fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Converts the token to a number that a mechanism can pass to the kernel.
    #[inline]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// Converts the result of [`Token::to_bits`] back to a token.
    #[inline]
    pub const fn from_bits(bits: u64) -> Token {
        Token(bits)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({}:{})", self.slot(), self.generation())
    }
}

bitflags::bitflags! {
    /// The directions in which a caller wants to be notified about a descriptor.
    ///
    /// An empty interest keeps the registration and produces no events.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
    pub struct Interest: u8 {
        /// Reading, receiving or accepting would not block.
        const READ = 1;
        /// Priority data is available, such as urgent data of TCP (`EVENT_EXCEPT` of Banga, Mogul
        /// and Druschel, `POLLPRI` of poll(2), the third set of select(2)).
        ///
        /// Refused with `EOPNOTSUPP` by mechanisms that do not
        /// [report](crate::mechanism::Semantics::reports) [`Readiness::PRIORITY`].
        const PRIORITY = 2;
        /// Writing or sending would not block, or a connect has completed or failed.
        const WRITE = 4;
    }
}

bitflags::bitflags! {
    /// The conditions that a mechanism reports for a descriptor.
    ///
    /// Portable callers need only [`READABLE`](Readiness::READABLE) and
    /// [`WRITABLE`](Readiness::WRITABLE): every condition that ends a wait for reading or writing
    /// (data, end of stream, hang-up, error) sets them. No such condition sets
    /// [`PRIORITY`](Readiness::PRIORITY). The other flags give the reason, if the
    /// mechanism can report it ([`Semantics::reports`](crate::mechanism::Semantics::reports)).
    ///
    /// The bits equal those of poll(2) where it has them, so most events need no translation.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
    pub struct Readiness: u8 {
        /// Reading, receiving or accepting returns immediately with data, end of stream or an
        /// error.
        const READABLE = 1;
        /// Priority data is available.
        const PRIORITY = 2;
        /// Writing or sending returns immediately, with bytes accepted or with an error.
        const WRITABLE = 4;
        /// An error is pending. The next operation returns it.
        const ERROR = 8;
        /// Both directions have ended.
        const HANGUP = 16;
        /// The peer has shut down its sending side. Data it sent before can still be read.
        const READ_CLOSED = 32;
        /// The registration had no event for the duration of its idle deadline. Only
        /// [`EventQueue`](crate::EventQueue) sets this flag, never a mechanism.
        const IDLE = 64;
    }
}

/// The flags that correspond to an interest.
const REQUESTED: u8 = Interest::all().bits();
/// The flags that every end of a stream sets.
const DIRECTIONS: u8 = Readiness::READABLE.union(Readiness::WRITABLE).bits();
/// The flags that poll(2) reports without a request.
const ENDINGS: u8 = Readiness::ERROR.union(Readiness::HANGUP).bits();
/// `POLLRDHUP` of poll(2).
const POLL_RDHUP: u32 = 0x2000;

impl Readiness {
    /// Translates the flags of poll(2), which epoll(7), io_uring and signals share. The caller
    /// checks for `POLLNVAL`.
    #[inline]
    pub(crate) const fn from_poll(flags: u32) -> Readiness {
        if flags & (POLL_RDHUP | ENDINGS as u32) == 0 {
            return Readiness::from_bits_retain(flags as u8 & REQUESTED);
        }
        // Every condition that ends the stream is readable. POLLERR and POLLHUP do not name a
        // direction: they set both, so that the caller finds the condition in its next operation.
        let mut bits = Readiness::READABLE.bits() | flags as u8 & (REQUESTED | ENDINGS);
        if bits & ENDINGS != 0 {
            bits |= DIRECTIONS;
        }
        if flags & (POLL_RDHUP | Readiness::HANGUP.bits() as u32) != 0 {
            bits |= Readiness::READ_CLOSED.bits();
        }
        Readiness::from_bits_retain(bits)
    }

    /// Returns whether a read would return immediately.
    #[inline]
    pub const fn is_readable(self) -> bool {
        self.contains(Readiness::READABLE)
    }

    /// Returns whether a write would return immediately.
    #[inline]
    pub const fn is_writable(self) -> bool {
        self.contains(Readiness::WRITABLE)
    }

    /// Returns whether the registration's idle deadline has passed.
    #[inline]
    pub const fn is_idle(self) -> bool {
        self.contains(Readiness::IDLE)
    }

    /// Returns whether priority data is available.
    #[inline]
    pub const fn has_priority(self) -> bool {
        self.contains(Readiness::PRIORITY)
    }

    /// Returns the part of the readiness that `interest` covers. Empty if nothing of `interest` is
    /// ready. With an interest in priority data alone, errors and hang-ups remain.
    #[inline]
    pub const fn restrict_to(self, interest: Interest) -> Readiness {
        let requested = self.requested_by(interest);
        if requested.is_empty() { self.endings_for(interest) } else { requested }
    }

    /// Returns the part of the readiness that `interest` covers, or nothing if no flag of `interest`
    /// is set.
    #[inline]
    pub(crate) const fn requested_by(self, interest: Interest) -> Readiness {
        // Each flag of an interest has the bit of its readiness.
        let requested = self.bits() & interest.bits();
        if requested == 0 {
            return Readiness::empty();
        }
        Readiness::from_bits_retain(requested | (self.bits() & !REQUESTED))
    }

    /// Returns the errors and hang-ups, which concern every interest. They also set both directions, so
    /// only an interest in priority data alone needs this.
    pub(crate) const fn endings_for(self, interest: Interest) -> Readiness {
        let endings = if interest.is_empty() { 0 } else { self.bits() & ENDINGS };
        Readiness::from_bits_retain(endings)
    }
}

/// A registration and its current readiness.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event<T = Token> {
    /// The registration: a [`Token`] from a mechanism, or the caller's payload from a queue.
    pub token: T,
    /// The operations for which the descriptor is ready.
    pub readiness: Readiness,
}
