//! Counts by reason, with a limited number of reasons.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Maximum number of distinct reasons. Further reasons are counted as [`OTHER`].
const MAX_REASONS: usize = 16;
const OTHER: &str = "other";

/// Counts by reason. There are at most 16 reasons, and one for all others.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Reasons(BTreeMap<String, u64>);

impl Reasons {
    /// Records an event with this reason.
    pub(crate) fn record(&mut self, reason: &str) {
        self.record_times(reason, 1);
    }

    fn record_times(&mut self, reason: &str, times: u64) {
        let is_known = self.0.contains_key(reason) || self.0.len() < MAX_REASONS;
        let reason = if is_known { reason } else { OTHER };
        let count = self.0.entry(reason.to_owned()).or_default();
        *count = count.saturating_add(times);
    }

    /// Adds the counts of `other`.
    pub(crate) fn add(&mut self, other: &Reasons) {
        other.iter().for_each(|(reason, times)| self.record_times(reason, times));
    }

    /// Returns the reasons with their counts, in alphabetical order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(reason, &count)| (reason.as_str(), count))
    }

    /// Returns the sum of all counts.
    pub fn total(&self) -> u64 {
        self.iter().fold(0, |sum, (_, count)| sum.saturating_add(count))
    }

    /// Replaces the reasons by those that `map` returns.
    pub(crate) fn rename(&mut self, map: impl Fn(&str) -> String) {
        let mut renamed = Reasons::default();
        self.iter().for_each(|(reason, times)| renamed.record_times(&map(reason), times));
        *self = renamed;
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_REASONS, Reasons};

    #[test]
    fn the_number_of_reasons_is_bounded() {
        let mut reasons = Reasons::default();
        for number in 0..10 * MAX_REASONS {
            reasons.record(&number.to_string());
        }
        let mut sum = reasons.clone();
        sum.add(&reasons);
        assert_eq!(sum.iter().count(), MAX_REASONS + 1);
        assert_eq!((reasons.total(), sum.total()), (160, 320));
    }
}
