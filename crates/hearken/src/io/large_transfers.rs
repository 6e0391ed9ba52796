//! Large transfers that wait for their turn.

use std::collections::VecDeque;
use std::time::Duration;

use super::Body;
use super::kernel::Kernel;
use crate::event::Token;
use crate::timer::Time;

/// Minimum length of a large body, and number of bytes between two readings of the clock.
pub(super) const LARGE_TRANSFER: usize = 64 * 1024;
/// Number of bytes that an accepted connection counts as.
pub(super) const ACCEPT_COST: usize = LARGE_TRANSFER / 16;

/// The large transfers that can continue without waiting, and the time that they have in a turn.
///
/// A turn has two phases of equal duration, so that neither starves the other. The first handles
/// events and starts transfers; when its time is up, it queues large transfers. The second
/// continues queued transfers.
#[derive(Debug)]
pub(super) struct LargeTransfers {
    queue: VecDeque<Token>,
    budget: Option<Duration>,
    /// The end of this phase.
    ends: Time,
    /// Whether the clock showed that the phase has ended.
    is_time_up: bool,
    /// Number of bytes since the clock was last read.
    bytes: usize,
    /// Whether this turn is in its second phase.
    continues: bool,
}

impl LargeTransfers {
    /// Creates an empty queue; a `budget` of zero means no limit.
    pub(super) fn new(budget: Duration) -> LargeTransfers {
        LargeTransfers {
            queue: VecDeque::new(),
            budget: Some(budget).filter(|budget| !budget.is_zero()),
            ends: Time::default(),
            is_time_up: false,
            bytes: 0,
            continues: false,
        }
    }

    /// Starts a turn.
    #[inline]
    pub(super) fn start_turn(&mut self, now: Time) {
        self.continues = false;
        self.start_phase(now);
    }

    #[inline]
    fn start_phase(&mut self, now: Time) {
        self.ends = self.budget.map_or(now, |budget| now + budget);
        self.is_time_up = false;
    }

    /// Adds a transfer.
    pub(super) fn push(&mut self, token: Token) {
        self.queue.push_back(token);
    }

    /// Returns the next transfer of this turn.
    #[inline]
    pub(super) fn next(&mut self, kernel: &impl Kernel) -> Option<Token> {
        if self.queue.is_empty() {
            return None;
        }
        if !std::mem::replace(&mut self.continues, true) {
            self.start_phase(kernel.clock());
        }
        if self.is_time_up { None } else { self.queue.pop_front() }
    }

    /// Counts transferred bytes.
    #[inline]
    pub(super) fn count(&mut self, bytes: usize, kernel: &impl Kernel) {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes >= LARGE_TRANSFER {
            self.bytes = 0;
            self.is_time_up =
                self.is_time_up || (self.budget.is_some() && kernel.clock() >= self.ends);
        }
    }

    /// Returns whether the time is up.
    #[inline]
    pub(super) fn is_time_up(&self) -> bool {
        self.is_time_up
    }

    /// Returns the number of bytes that a relay may move: `share`, or less when the time is up.
    #[inline]
    pub(super) fn relay_share(&self, share: usize) -> usize {
        if self.is_time_up { share.min(LARGE_TRANSFER) } else { share }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

/// The queue of a connection that can continue.
#[derive(Clone, Copy)]
pub(super) enum Queue {
    /// Continues in this turn.
    ThisTurn,
    /// Continues after that, while there is time for large transfers.
    LargeTransfers,
    /// Continues in the next turn.
    NextTurn,
}

impl Body {
    /// Returns whether the body is a large transfer.
    #[inline]
    pub(super) fn is_large(&self) -> bool {
        match self {
            Body::None => false,
            Body::Bytes(bytes) => bytes.len() >= LARGE_TRANSFER,
            Body::File(part) => part.length >= LARGE_TRANSFER as u64,
        }
    }
}
