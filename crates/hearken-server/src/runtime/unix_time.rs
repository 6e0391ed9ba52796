//! Time of day for `Date` fields and logs.

use rustix::time::{ClockId, clock_gettime};

/// Returns the seconds since 1970-01-01 00:00:00 UTC. Reads the coarse clock, without a system call.
pub(crate) fn unix_seconds() -> u64 {
    u64::try_from(clock_gettime(ClockId::RealtimeCoarse).tv_sec).unwrap_or(0)
}
