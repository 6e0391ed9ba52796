//! How fast a client has to take what it is sent.

use std::time::Duration;

/// Notes how much it has taken, and tells whether that is too little for the `span` since it was noted
/// `before`: less than `min_rate` bytes a second, or nothing.
pub(crate) fn is_too_slow(
    before: &mut Option<u64>,
    delivered: u64,
    min_rate: u64,
    span: Duration,
) -> bool {
    let least = (u128::from(min_rate) * span.as_millis() / 1000).max(1);
    let before = before.replace(delivered);
    before.is_some_and(|before| u128::from(delivered.saturating_sub(before)) < least)
}
