//! The time of day, for `Date` fields and logs.

use rustix::time::{ClockId, clock_gettime};

/// Seconds since 1970-01-01 00:00:00 UTC, by the coarse clock, which costs no system call.
pub(crate) fn unix_seconds() -> u64 {
    u64::try_from(clock_gettime(ClockId::RealtimeCoarse).tv_sec).unwrap_or(0)
}
