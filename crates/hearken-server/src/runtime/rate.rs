//! How fast a client has to take what it is sent.

use std::time::Duration;

/// How many bytes it has to take in a `span` in which it always has some to take, at `min_rate` bytes a
/// second: any, whatever that is.
pub(crate) fn min_bytes(min_rate: u64, span: Duration) -> u64 {
    let bytes = u128::from(min_rate) * span.as_millis() / 1000;
    u64::try_from(bytes).unwrap_or(u64::MAX).max(1)
}

/// Whether fewer bytes were delivered than were due, if any were. By the next look `least` more are.
pub(crate) fn is_too_slow(due: &mut Option<u64>, delivered: u64, least: u64) -> bool {
    let before = due.replace(delivered.saturating_add(least));
    before.is_some_and(|due| delivered < due)
}
