//! Histograms with fixed bucket bounds.

use super::Counter;

/// Number of bounds: two per doubling, from 96 microseconds to 67 seconds.
const BOUND_COUNT: usize = 40;
/// Index of the first bound, as computed by [`half_octave`] does.
const FIRST_BOUND: usize = half_octave_index(96);

/// Counts of values by bucket, and their sum. A bucket counts values up to its bound and above the
/// previous one. The last bucket counts values above all bounds.
#[derive(Debug)]
pub(super) struct Buckets<const N: usize> {
    counts: [Counter; N],
    sum: Counter,
}

impl<const N: usize> Default for Buckets<N> {
    fn default() -> Buckets<N> {
        Buckets { counts: std::array::from_fn(|_| Counter::default()), sum: Counter::default() }
    }
}

impl<const N: usize> Buckets<N> {
    /// Adds `count` values to a bucket, and `sum` to the sum of all values.
    #[inline]
    fn record(&self, bucket: usize, count: u64, sum: u64) {
        if let Some(counter) = self.counts.get(bucket) {
            counter.add(count);
        }
        self.sum.add(sum);
    }

    /// Merges the buckets of several workers. Returns the cumulative counts for each bound and for
    /// infinity, and the sum of all values.
    fn cumulative<'a>(all: impl Iterator<Item = &'a Buckets<N>> + Clone) -> (Vec<u64>, u64) {
        let mut count = 0;
        let upto = (0..N).map(|bucket| {
            let here = all.clone().filter_map(|one| one.counts.get(bucket)).map(Counter::get);
            count += here.sum::<u64>();
            count
        });
        let upto = upto.collect();
        (upto, all.map(|one| one.sum.get()).sum())
    }
}

/// A histogram of durations, with two buckets per doubling.
#[derive(Debug, Default)]
pub struct Histogram(Buckets<{ BOUND_COUNT + 1 }>);

/// Returns how many numbers of the forms 2^n and 1.5 * 2^n are in `1..=number`. `number` is not 0.
#[inline(always)]
const fn half_octave_index(number: u64) -> usize {
    let octave = number.ilog2() as usize;
    let half = if octave == 0 { 0 } else { number >> (octave - 1) & 1 };
    2 * octave + half as usize
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
        self.0.record(bucket, 1, nanoseconds);
    }

    /// Records `count` durations of zero.
    pub(super) fn record_shortest(&self, count: u64) {
        self.0.record(0, count, 0);
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
        Buckets::cumulative(all.map(|one| &one.0))
    }
}

/// Number of bounds of [`PerWait`]: 0, and the powers of two up to 4,096.
const PER_WAIT_BOUND_COUNT: usize = 14;

/// A histogram of numbers per wait, such as events.
#[derive(Debug, Default)]
pub struct PerWait(Buckets<{ PER_WAIT_BOUND_COUNT + 1 }>);

impl PerWait {
    /// Records the number of one wait.
    #[inline]
    pub fn record(&self, number: u64) {
        // Bound 0 is 0, and bound n is 2^(n-1).
        let bucket = match number {
            0 => 0,
            number => (u64::BITS - (number - 1).leading_zeros()) as usize + 1,
        };
        self.0.record(bucket.min(PER_WAIT_BOUND_COUNT), 1, number);
    }

    /// Returns the bounds.
    pub(super) fn bounds() -> impl Iterator<Item = u64> {
        (0..PER_WAIT_BOUND_COUNT as u32).map(|at| (1 << at) / 2)
    }

    /// Merges histograms. Returns the cumulative counts for each bound and for infinity, and the
    /// sum of all numbers.
    pub(super) fn cumulative<'a>(
        all: impl Iterator<Item = &'a PerWait> + Clone,
    ) -> (Vec<u64>, u64) {
        Buckets::cumulative(all.map(|one| &one.0))
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

    #[test]
    fn numbers_per_wait_are_counted_up_to_powers_of_two() {
        let bounds: Vec<_> = PerWait::bounds().collect();
        assert_eq!(bounds[..5], [0, 1, 2, 4, 8]);
        assert_eq!((bounds.last(), bounds.len()), (Some(&4096), PER_WAIT_BOUND_COUNT));
        for number in (0..=4097).chain([u64::MAX]) {
            let histogram = PerWait::default();
            histogram.record(number);
            let (upto, sum) = PerWait::cumulative([&histogram].into_iter());
            let want = bounds.iter().map(|&bound| u64::from(number <= bound)).chain([1]);
            assert_eq!((upto, sum), (want.collect(), number));
        }
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
