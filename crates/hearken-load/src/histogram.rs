//! HDR histograms of times, which can be added and serialised without loss.

use std::fmt;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use serde::de::Error as _;
use serde::{Deserialize, Serialize};

use crate::report::Quantiles;

/// Maximum time that is recorded exactly: one hour, in nanoseconds.
const MAX_NANOS: u64 = 3_600_000_000_000;

/// A histogram of times in nanoseconds with three significant digits, up to one hour. Longer times
/// are recorded as one hour.
///
/// It serialises in the format of HdrHistogram's own tools: V2 encoding, compressed, in base64.
/// Adding two histograms is exact.
///
/// ```
/// use std::time::Duration;
/// use hearken_load::Histogram;
///
/// let mut histogram = Histogram::new();
/// histogram.record(Duration::from_millis(5));
/// let copy = Histogram::decode(&histogram.encode())?;
/// assert_eq!(copy.quantiles().count, 1);
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, PartialEq)]
pub struct Histogram(hdrhistogram::Histogram<u64>);

impl Histogram {
    /// An empty histogram, encoded.
    pub(crate) const EMPTY_ENCODED: &str =
        "HISTFAAAACF4nJNpmSzMwMDAyAABzFAayGd2M9ixgMH+A1QEAFKmBEw=";

    /// Creates an empty histogram.
    pub fn new() -> Histogram {
        // Fails only for invalid bounds.
        let bounds = hdrhistogram::Histogram::new_with_bounds(1, MAX_NANOS, 3);
        Histogram(bounds.expect("one and an hour are bounds"))
    }

    /// Records a time.
    #[inline]
    pub fn record(&mut self, time: Duration) {
        self.0.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Adds all times of `other`. O(buckets of `other`).
    pub fn add(&mut self, other: &Histogram) {
        // Fails only for values out of bounds, which are the same in both.
        let _ = self.0.add(&other.0);
    }

    /// Removes all times and retains the memory.
    pub fn clear(&mut self) {
        self.0.reset();
    }

    /// Returns the number of times.
    pub fn len(&self) -> u64 {
        self.0.len()
    }

    /// Returns true if there are no times.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the smallest recorded time, in nanoseconds, that the fraction `quantile` (0 to 1) of
    /// all times does not exceed.
    pub fn value_at_quantile(&self, quantile: f64) -> u64 {
        self.0.value_at_quantile(quantile)
    }

    /// Returns the summary statistics.
    pub fn quantiles(&self) -> Quantiles {
        Quantiles {
            count: self.0.len(),
            mean: self.0.mean(),
            stddev: self.0.stdev(),
            min: self.0.min(),
            p50: self.value_at_quantile(0.5),
            p90: self.value_at_quantile(0.9),
            p95: self.value_at_quantile(0.95),
            p99: self.value_at_quantile(0.99),
            p999: self.value_at_quantile(0.999),
            max: self.0.max(),
        }
    }

    /// Returns the underlying histogram.
    pub fn as_hdr(&self) -> &hdrhistogram::Histogram<u64> {
        &self.0
    }

    /// Encodes the histogram: V2, compressed, in base64.
    pub fn encode(&self) -> String {
        let mut bytes = Vec::new();
        // Writing to memory does not fail.
        let _ = V2DeflateSerializer::new().serialize(&self.0, &mut bytes);
        STANDARD.encode(bytes)
    }

    /// Decodes the output of [`encode`](Histogram::encode).
    ///
    /// # Errors
    /// Returns a description of the problem.
    pub fn decode(text: &str) -> Result<Histogram, String> {
        let bytes = STANDARD.decode(text).map_err(|error| format!("invalid base64: {error}"))?;
        let read = Deserializer::new()
            .deserialize::<u64, _>(&mut &*bytes)
            .map_err(|error| format!("invalid HDR histogram: {error}"))?;
        let mut histogram = Histogram::new();
        match histogram.0.add(&read) {
            Ok(()) => Ok(histogram),
            Err(_) => Err("it contains times longer than one hour".to_owned()),
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
    fn the_empty_encoding_decodes_to_an_empty_histogram() {
        assert_eq!(Histogram::decode(Histogram::EMPTY_ENCODED).unwrap(), Histogram::new());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn adding_equals_recording_all_values(
            a in prop::collection::vec(0..4_000_000_000_000u64, 0..50),
            b in prop::collection::vec(0..4_000_000_000_000u64, 0..50),
        ) {
            let mut sum = of(&a);
            sum.add(&of(&b));
            prop_assert_eq!(&sum, &of(&[a, b].concat()));
            prop_assert_eq!(Histogram::decode(&sum.encode()).unwrap(), sum);
        }

        #[test]
        fn decoding_never_panics(text in ".*", bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            use base64::Engine;
            let _ = Histogram::decode(&text);
            let _ = Histogram::decode(&base64::engine::general_purpose::STANDARD.encode(bytes));
        }
    }
}
