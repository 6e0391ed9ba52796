//! The choices of how to wait.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::io::named::named;

/// Whether a call is tried before it is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Order {
    /// Call, and wait if it would block.
    #[default]
    TryFirst,
    /// Wait, then call.
    WaitFirst,
}

/// When interest is changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum InterestPolicy {
    /// To just what is waited for, at every change of state.
    EveryState,
    /// Added when it is missing, taken back when an unwanted event comes.
    #[default]
    WhenNeeded,
    /// Declared once, for both directions. Over a level-triggered mechanism, a connection that can be
    /// written then wakes every wait.
    Once,
}

named!(Order, "order of calls", TryFirst => "try-first", WaitFirst => "wait-first");
named!(
    InterestPolicy,
    "interest policy",
    EveryState => "every-state",
    WhenNeeded => "when-needed",
    Once => "once"
);

/// How a [`ReadinessIo`](super::ReadinessIo) works.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Policy {
    /// Try first, or wait first.
    pub order: Order,
    /// How many connections are accepted for one readiness of a listener; `None` for all that there
    /// are, which may be never-ending.
    pub accept_limit: Option<NonZeroU32>,
    /// When interest is changed.
    pub interest: InterestPolicy,
    /// After how many bytes, received and sent, it is another connection's turn.
    pub turn_bytes: usize,
    /// Time that a turn has for accepting and for the transfers that exceed 64 KiB. The rest continues in
    /// later turns, in order, after the events that have come meanwhile. At least one large transfer
    /// continues in each turn. Zero means no limit.
    pub turn_time: Duration,
    /// How many events a wait takes at most.
    pub batch: usize,
    /// How many buffers may be lent for received bytes.
    pub buffers: usize,
    /// The size of a buffer, in bytes.
    pub buffer_size: usize,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            order: Order::TryFirst,
            accept_limit: NonZeroU32::new(64),
            interest: InterestPolicy::default(),
            turn_bytes: 2 * 1024 * 1024,
            turn_time: Duration::from_millis(1),
            batch: 512,
            buffers: 4096,
            buffer_size: 16 * 1024,
        }
    }
}
