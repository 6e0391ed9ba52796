//! A distribution of times that can be added to another, kept, and sent: an HDR histogram.

use std::fmt;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use serde::de::Error as _;
use serde::{Deserialize, Serialize};

use crate::report::Quantiles;

/// The longest time that is told from longer ones.
const MAX_NANOS: u64 = 3_600_000_000_000;

/// Times in nanoseconds, to three digits, up to an hour; what is longer counts as an hour.
///
/// Serialises as what HdrHistogram's own tools read and write: its V2 form, compressed, in base64.
/// Adding two is exact: each value keeps the three digits that it was recorded with.
#[derive(Clone, PartialEq)]
pub struct Histogram(hdrhistogram::Histogram<u64>);

impl Histogram {
    /// An empty one, encoded.
    pub(crate) const EMPTY_ENCODED: &str =
        "HISTFAAAACF4nJNpmSzMwMDAyAABzFAayGd2M9ixgMH+A1QEAFKmBEw=";

    /// An empty one.
    pub fn new() -> Histogram {
        // Only bounds that make no sense are refused.
        let bounds = hdrhistogram::Histogram::new_with_bounds(1, MAX_NANOS, 3);
        Histogram(bounds.expect("one and an hour are bounds"))
    }

    /// One more.
    #[inline]
    pub fn record(&mut self, time: Duration) {
        self.0.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// All of those of the other. O(buckets of the other).
    pub fn add(&mut self, other: &Histogram) {
        // Refused only where values lie beyond the bounds, which are the same.
        let _ = self.0.add(&other.0);
    }

    /// Empties it, and keeps its memory.
    pub fn clear(&mut self) {
        self.0.reset();
    }

    /// How many there are.
    pub fn len(&self) -> u64 {
        self.0.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The least time that this part of all, from 0 to 1, does not exceed; in nanoseconds.
    pub fn at(&self, quantile: f64) -> u64 {
        self.0.value_at_quantile(quantile)
    }

    /// What is told of it in numbers.
    pub fn quantiles(&self) -> Quantiles {
        Quantiles {
            count: self.0.len(),
            mean: self.0.mean(),
            stddev: self.0.stdev(),
            min: self.0.min(),
            p50: self.at(0.5),
            p90: self.at(0.9),
            p95: self.at(0.95),
            p99: self.at(0.99),
            p999: self.at(0.999),
            max: self.0.max(),
        }
    }

    /// As HdrHistogram's own tools have it.
    pub fn as_hdr(&self) -> &hdrhistogram::Histogram<u64> {
        &self.0
    }

    /// In base64, compressed.
    pub fn encode(&self) -> String {
        let mut bytes = Vec::new();
        // Writing to memory does not fail.
        let _ = V2DeflateSerializer::new().serialize(&self.0, &mut bytes);
        STANDARD.encode(bytes)
    }

    /// Out of what [`encode`](Histogram::encode) gives.
    ///
    /// # Errors
    /// A sentence that says what is wrong with it.
    pub fn decode(text: &str) -> Result<Histogram, String> {
        let bytes = STANDARD.decode(text).map_err(|error| format!("not base64: {error}"))?;
        let read = Deserializer::new()
            .deserialize::<u64, _>(&mut &*bytes)
            .map_err(|error| format!("not an HDR histogram: {error}"))?;
        let mut histogram = Histogram::new();
        match histogram.0.add(&read) {
            Ok(()) => Ok(histogram),
            Err(_) => Err("it has times of more than an hour".to_owned()),
        }
    }
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram::new()
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Histogram({:?})", self.quantiles())
    }
}

impl Serialize for Histogram {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.encode())
    }
}

impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Histogram, D::Error> {
        Histogram::decode(&String::deserialize(from)?).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::Histogram;

    fn of(times: &[u64]) -> Histogram {
        let mut histogram = Histogram::new();
        times.iter().for_each(|&time| histogram.record(Duration::from_nanos(time)));
        histogram
    }

    #[test]
    fn none_is_none() {
        assert_eq!(Histogram::decode(Histogram::EMPTY_ENCODED).unwrap(), Histogram::new());
    }

    proptest! {
        #[test]
        fn adding_is_recording_all(
            a in prop::collection::vec(0..4_000_000_000_000u64, 0..50),
            b in prop::collection::vec(0..4_000_000_000_000u64, 0..50),
        ) {
            let mut sum = of(&a);
            sum.add(&of(&b));
            prop_assert_eq!(&sum, &of(&[a, b].concat()));
            prop_assert_eq!(Histogram::decode(&sum.encode()).unwrap(), sum);
        }

        #[test]
        fn nothing_makes_it_panic(text in ".*", bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            use base64::Engine;
            let _ = Histogram::decode(&text);
            let _ = Histogram::decode(&base64::engine::general_purpose::STANDARD.encode(bytes));
        }
    }
}
