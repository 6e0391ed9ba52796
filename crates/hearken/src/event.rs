//! The words that everything else uses: [`Token`], [`Interest`], [`Readiness`], [`Event`].

use std::fmt;

/// Names one registration of one descriptor with a mechanism.
///
/// A descriptor's number returns as soon as it is closed; a token does not. It joins a slot in
/// its owner's table with the generation of that slot, so that an event for an earlier holder of
/// the slot is told from one for the present holder.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token(u64);

impl Token {
    /// The token for `generation` of `slot`.
    #[inline]
    pub const fn new(slot: u32, generation: u32) -> Token {
        Token((generation as u64) << 32 | slot as u64)
    }

    /// The index of the registration in its owner's table.
    #[inline]
    pub const fn slot(self) -> u32 {
        self.0 as u32
    }

    /// Which holder of the slot this is.
    #[inline]
    pub const fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The token as one number, for a mechanism to hand to the kernel.
    #[inline]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// The token that [`Token::to_bits`] gave.
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
    /// What a caller wants to know of a descriptor.
    ///
    /// An empty interest keeps the registration and silences it.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
    pub struct Interest: u8 {
        /// A read, receive or accept would not block.
        const READ = 1;
        /// A write or send would not block, or a connect has ended.
        const WRITE = 4;
    }
}

bitflags::bitflags! {
    /// What a mechanism says of a descriptor.
    ///
    /// [`READABLE`](Readiness::READABLE) and [`WRITABLE`](Readiness::WRITABLE) are all that a
    /// portable caller needs: whatever ends a wait for reading or writing (data, end of stream,
    /// hang-up, error) sets them. The other flags say why, where the mechanism can tell
    /// ([`Semantics::reports`](crate::mechanism::Semantics::reports)).
    ///
    /// The bits are poll(2)'s, as far as it has them, so that most events need no translation.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
    pub struct Readiness: u8 {
        /// A read, receive or accept returns at once: with data, end of stream, or an error.
        const READABLE = 1;
        /// A write or send returns at once: having taken bytes, or with an error.
        const WRITABLE = 4;
        /// An error is pending; the next operation returns it.
        const ERROR = 8;
        /// Both directions are ended.
        const HANGUP = 16;
        /// The peer has ended its side; what it sent before can still be read.
        const READ_CLOSED = 32;
        /// No event came for as long as the registration's idle deadline allows. Made by
        /// [`EventQueue`](crate::EventQueue), never by a mechanism.
        const IDLE = 64;
    }
}

/// The flags that an interest asks for.
const DIRECTIONS: u8 = Interest::all().bits();
/// poll(2)'s POLLRDHUP.
const POLL_RDHUP: u32 = 0x2000;

impl Readiness {
    /// What poll(2) means by `flags`, and with it epoll(7), io_uring and signals. POLLNVAL is for the
    /// caller to look for.
    #[inline]
    pub(crate) const fn from_poll(flags: u32) -> Readiness {
        let endings = Readiness::ERROR.bits() | Readiness::HANGUP.bits();
        if flags & (POLL_RDHUP | endings as u32) == 0 {
            return Readiness::from_bits_retain(flags as u8 & DIRECTIONS);
        }
        // All that ends is readable. POLLERR and POLLHUP alone say nothing of reading or writing: the
        // caller is to meet the condition in its next operation, whichever that is.
        let mut told = Readiness::READABLE.bits() | flags as u8 & (DIRECTIONS | endings);
        if told & endings != 0 {
            told |= DIRECTIONS;
        }
        if flags & (POLL_RDHUP | Readiness::HANGUP.bits() as u32) != 0 {
            told |= Readiness::READ_CLOSED.bits();
        }
        Readiness::from_bits_retain(told)
    }

    /// True if a read would return at once.
    #[inline]
    pub const fn is_readable(self) -> bool {
        self.contains(Readiness::READABLE)
    }

    /// True if a write would return at once.
    #[inline]
    pub const fn is_writable(self) -> bool {
        self.contains(Readiness::WRITABLE)
    }

    /// True if the registration's idle deadline has passed.
    #[inline]
    pub const fn is_idle(self) -> bool {
        self.contains(Readiness::IDLE)
    }

    /// The readiness that answers `interest`: nothing if neither direction asked for is ready.
    #[inline]
    pub const fn answering(self, interest: Interest) -> Readiness {
        // READ and READABLE, WRITE and WRITABLE share their bits.
        let asked = self.bits() & interest.bits();
        if asked == 0 {
            return Readiness::empty();
        }
        Readiness::from_bits_retain(asked | (self.bits() & !DIRECTIONS))
    }
}

/// One thing that happened: which registration, and what it is ready for now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event<T = Token> {
    /// The registration: a [`Token`] from a mechanism, the caller's payload from a queue.
    pub who: T,
    /// What the descriptor is ready for.
    pub readiness: Readiness,
}
