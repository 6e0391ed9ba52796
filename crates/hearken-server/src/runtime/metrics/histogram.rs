//! Histogram of durations with fixed bucket bounds.

use super::Counter;

/// Number of bounds: two per doubling, from 96 microseconds to 67 seconds.
const BOUND_COUNT: usize = 40;
/// Index of the first bound, as computed by [`half_octave`] does.
const FIRST_BOUND: usize = half_octave_index(96);

/// A histogram of durations, with two buckets per doubling.
#[derive(Debug)]
pub struct Histogram {
    /// Counts of durations up to each bound and above the previous one. The last bucket counts
    /// durations above all bounds.
    buckets: [Counter; BOUND_COUNT + 1],
    sum_nanoseconds: Counter,
}

/// Returns how many numbers of the forms 2^n and 1.5 * 2^n are in `1..=number`. `number` is not 0.
#[inline(always)]
const fn half_octave_index(number: u64) -> usize {
    let octave = number.ilog2() as usize;
    let half = if octave == 0 { 0 } else { number >> (octave - 1) & 1 };
    2 * octave + half as usize
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram {
            buckets: std::array::from_fn(|_| Counter::default()),
            sum_nanoseconds: Counter::default(),
        }
    }
}

impl Histogram {
    /// Records a duration.
    #[inline]
    pub fn record(&self, nanoseconds: u64) {
        // A bound belongs to the bucket below it.
        let microseconds = nanoseconds.saturating_sub(1) / 1_000;
        let bucket = (half_octave_index(microseconds.max(64)) + 1)
            .saturating_sub(FIRST_BOUND)
            .min(BOUND_COUNT);
        if let Some(counter) = self.buckets.get(bucket) {
            counter.add(1);
        }
        self.sum_nanoseconds.add(nanoseconds);
    }

    /// Records `count` durations of zero.
    pub(super) fn record_shortest(&self, count: u64) {
        if let Some(counter) = self.buckets.first() {
            counter.add(count);
        }
    }

    /// Returns the bounds in microseconds.
    pub(super) fn bounds() -> impl Iterator<Item = u64> {
        (FIRST_BOUND..FIRST_BOUND + BOUND_COUNT).map(|at| (2 + (at as u64 & 1)) << (at / 2 - 1))
    }

    /// Merges histograms. Returns the cumulative counts for each bound and for infinity, and the sum
    /// of all durations in nanoseconds.
    pub(super) fn cumulative<'a>(
        all: impl Iterator<Item = &'a Histogram> + Clone,
    ) -> (Vec<u64>, u64) {
        let mut count = 0;
        let upto = (0..=BOUND_COUNT).map(|bucket| {
            let here = all.clone().filter_map(|one| one.buckets.get(bucket)).map(Counter::get);
            count += here.sum::<u64>();
            count
        });
        let upto = upto.collect();
        (upto, all.map(|one| one.sum_nanoseconds.get()).sum())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bounds_range_from_96_microseconds_to_67_seconds() {
        let bounds: Vec<_> = Histogram::bounds().collect();
        assert_eq!(bounds[..4], [96, 128, 192, 256]);
        assert_eq!(bounds.last(), Some(&(1 << 26)));
        assert_eq!(bounds.len(), BOUND_COUNT);
        assert!(bounds.is_sorted());
    }

    proptest! {
        #[test]
        fn counts_a_duration_in_every_bucket_with_a_sufficient_bound(
            bound in 0..BOUND_COUNT, off in -2_000_i64..2_000, any in any::<u64>(), near in any::<bool>(),
        ) {
            let bounds: Vec<u64> = Histogram::bounds().collect();
            let near_bound = (bounds[bound] * 1_000).saturating_add_signed(off);
            let nanoseconds = if near { near_bound } else { any };
            let histogram = Histogram::default();
            histogram.record(nanoseconds);
            let (upto, sum) = Histogram::cumulative([&histogram].into_iter());
            prop_assert_eq!(sum, nanoseconds);
            let want = bounds.iter().map(|bound| u64::from(nanoseconds <= bound * 1_000));
            prop_assert_eq!(upto, want.chain([1]).collect::<Vec<_>>());
        }
    }
}
