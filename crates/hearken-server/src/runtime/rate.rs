//! Minimum transfer rate of clients.

use std::time::Duration;

/// Returns the number of bytes to transfer in `span` at `min_rate` bytes per second; at least 1.
pub(crate) fn min_bytes(min_rate: u64, span: Duration) -> u64 {
    let bytes = u128::from(min_rate) * span.as_millis() / 1000;
    u64::try_from(bytes).unwrap_or(u64::MAX).max(1)
}

/// Returns whether fewer than `required` bytes were transferred, and requires `min_bytes` more at the
/// next check.
pub(crate) fn is_too_slow(required: &mut Option<u64>, transferred: u64, min_bytes: u64) -> bool {
    let previous = required.replace(transferred.saturating_add(min_bytes));
    previous.is_some_and(|required| transferred < required)
}
