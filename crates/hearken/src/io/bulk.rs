//! Large transfers that wait for their turn.

use std::collections::VecDeque;
use std::time::Duration;

use super::Body;
use crate::event::Token;
use crate::timer::Time;

/// The clock is read after this number of bytes, and a body of this length is large.
pub(super) const LARGE: usize = 64 * 1024;
/// Number of bytes that an accepted connection counts as.
pub(super) const ACCEPTED: usize = LARGE / 16;

/// The large transfers that can continue without waiting, and the time that they have in a turn.
///
/// A turn has two phases. In the first, events are handled; what they start counts, and large transfers
/// are put off when the time is up. In the second, the transfers in the queue continue, and have that
/// time again: neither phase starves the other.
#[derive(Debug)]
pub(super) struct Bulk {
    queue: VecDeque<Token>,
    budget: Option<Duration>,
    /// When the time of this phase is up; whether it was found to be; bytes since the last look.
    ends: Time,
    is_over: bool,
    bytes: usize,
    /// This turn is in its second phase.
    continues: bool,
}

impl Bulk {
    /// Creates an empty queue; a `budget` of zero means no limit.
    pub(super) fn new(budget: Duration) -> Bulk {
        Bulk {
            queue: VecDeque::new(),
            budget: Some(budget).filter(|budget| !budget.is_zero()),
            ends: Time::default(),
            is_over: false,
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
        self.is_over = false;
    }

    /// Adds a transfer.
    pub(super) fn push(&mut self, token: Token) {
        self.queue.push_back(token);
    }

    /// Returns the next transfer of this turn.
    #[inline]
    pub(super) fn next(&mut self) -> Option<Token> {
        if self.queue.is_empty() {
            return None;
        }
        if !std::mem::replace(&mut self.continues, true) {
            self.start_phase(Time::now());
        }
        if self.is_over { None } else { self.queue.pop_front() }
    }

    /// Counts transferred bytes.
    #[inline]
    pub(super) fn count(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes >= LARGE {
            self.bytes = 0;
            self.is_over = self.is_over || (self.budget.is_some() && Time::now() >= self.ends);
        }
    }

    /// Returns whether the time is up.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns the number of bytes that a relay may move, of the `share` of its connection: little when the
    /// time is up.
    #[inline]
    pub(super) fn relay_share(&self, share: usize) -> usize {
        if self.is_over { share.min(LARGE) } else { share }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

/// Where a connection that can continue is queued.
#[derive(Clone, Copy)]
pub(super) enum Queue {
    /// In this turn.
    Turn,
    /// Behind that, as long as there is time for large transfers.
    Bulk,
    /// In the next turn.
    Later,
}

impl Body {
    /// Returns whether the body is a large transfer.
    #[inline]
    pub(super) fn is_large(&self) -> bool {
        match self {
            Body::None => false,
            Body::Bytes(bytes) => bytes.len() >= LARGE,
            Body::File(part) => part.length >= LARGE as u64,
        }
    }
}
