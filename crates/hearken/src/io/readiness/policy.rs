//! Settings of waiting.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::io::named::named;
use crate::timer::TimerPolicy;

/// The order of calls and waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Order {
    /// Make the call, and wait if it would block.
    #[default]
    TryFirst,
    /// Wait, then make the call.
    WaitFirst,
    /// Wait before the first receive of a connection, and try sends.
    WaitToReceive,
}

/// The times at which interest is changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum InterestPolicy {
    /// Changed to exactly the awaited directions at every change of state.
    EveryState,
    /// Added when it is missing, removed when an unwanted event arrives.
    #[default]
    WhenNeeded,
    /// Declared once, for both directions. Over a level-triggered mechanism, every writable
    /// connection ends every wait.
    Once,
}

/// The call that revokes the interest in a connection that is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum ClosePolicy {
    /// None if the mechanism allows it: close(2) revokes the interest.
    #[default]
    Implicit,
    /// The call of the mechanism, such as `EPOLL_CTL_DEL`, before close(2).
    Explicit,
}

named!(
    Order,
    "order of calls",
    TryFirst => "try-first",
    WaitFirst => "wait-first",
    WaitToReceive => "wait-to-receive"
);
named!(ClosePolicy, "close policy", Implicit => "implicit", Explicit => "explicit");
named!(
    InterestPolicy,
    "interest policy",
    EveryState => "every-state",
    WhenNeeded => "when-needed",
    Once => "once"
);

/// Settings of a [`ReadinessIo`](super::ReadinessIo).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Policy {
    /// Order of calls and waits.
    pub order: Order,
    /// Maximum number of connections to accept per readiness event of a listener. `None` accepts
    /// until the backlog is empty, which may take indefinitely.
    pub accept_limit: Option<NonZeroU32>,
    /// Times at which interest is changed.
    pub interest: InterestPolicy,
    /// The call that revokes the interest in a connection that is closed.
    pub close: ClosePolicy,
    /// Whether to set `TCP_CORK` before a head that a file range follows, and clear it after the
    /// range. Otherwise the head is sent with `MSG_MORE`, which has the same effect on packets.
    pub cork: bool,
    /// Maximum number of bytes that a connection receives and sends before another connection is
    /// served.
    pub turn_bytes: usize,
    /// Maximum time per turn for accepting and for transfers of at least 64 KiB. The rest continues
    /// in later turns, in order, after events that arrived meanwhile. At least one large transfer
    /// continues in each turn. Zero means no limit.
    pub turn_time: Duration,
    /// Method of finding expired deadlines.
    pub timers: TimerPolicy,
    /// Maximum number of events per wait.
    pub batch: usize,
    /// Maximum number of buffers for received bytes in use.
    pub buffers: usize,
    /// Size of a buffer in bytes.
    pub buffer_size: usize,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            order: Order::TryFirst,
            accept_limit: NonZeroU32::new(64),
            interest: InterestPolicy::default(),
            close: ClosePolicy::default(),
            cork: false,
            turn_bytes: 2 * 1024 * 1024,
            turn_time: Duration::from_millis(1),
            timers: TimerPolicy::default(),
            batch: 512,
            buffers: 4096,
            buffer_size: 16 * 1024,
        }
    }
}
