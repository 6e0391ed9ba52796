//! The arrival process, which is independent of the server.
//!
//! Arrivals are drawn on a normalised axis with one expected arrival per unit. [`Profile`] maps
//! positions on this axis to times. Thus every process can follow every rate.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::profile::{ArrivalTimes, Profile};
use crate::shard::Shard;

/// The arrival process: the distribution of the gaps between arrivals.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrivals {
    /// Exponentially distributed gaps, as produced by many independent clients.
    #[default]
    Poisson,
    /// Equal gaps.
    Constant,
    /// Gaps uniformly distributed between zero and twice the mean.
    Uniform,
    /// Times given by a trace.
    Trace,
}

impl fmt::Display for Arrivals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Arrivals::Poisson => "poisson",
            Arrivals::Constant => "constant",
            Arrivals::Uniform => "uniform",
            Arrivals::Trace => "trace",
        })
    }
}

/// The scheduled times of arrivals, relative to the start, in non-decreasing order. The seed is its
/// only input, so replies cannot shift arrivals.
///
/// Several generators each take a shard of the load. The n-th arrival of a constant process or a
/// trace belongs to shard n modulo the number of shards. Random arrivals are drawn independently
/// per shard at its share of the rate. The sum of independent Poisson processes is again a Poisson
/// process. Uniform gaps do not add up to uniform gaps, but approach a Poisson process.
#[derive(Debug)]
pub(crate) struct Schedule {
    process: Process,
    times: ArrivalTimes,
    shard: Shard,
    /// Number of arrivals that may follow.
    remaining: u64,
    random: fastrand::Rng,
}

#[derive(Debug)]
enum Process {
    /// The number of the next arrival.
    Constant(u64),
    /// The position of the last arrival.
    Poisson(f64),
    Uniform(f64),
    /// The number of the next arrival, and all times.
    Trace(u64, Arc<[Duration]>),
    Never,
}

impl Schedule {
    /// Creates the schedule of `shard` for arrivals at the rates of `profile`.
    pub(crate) fn new(arrivals: Arrivals, profile: &Profile, share: Shard, seed: u64) -> Schedule {
        let process = match arrivals {
            _ if profile.is_zero() => Process::Never,
            Arrivals::Constant => Process::Constant(share.index),
            Arrivals::Poisson => Process::Poisson(0.0),
            Arrivals::Uniform => Process::Uniform(0.0),
            Arrivals::Trace => Process::Never,
        };
        let random = fastrand::Rng::with_seed(share.derive_seed(seed));
        let times = profile.arrival_times();
        Schedule { process, times, shard: share, remaining: u64::MAX, random }
    }

    /// Creates the schedule of `shard` for arrivals at `times`, which must not decrease.
    pub(crate) fn from_trace(times: Arc<[Duration]>, share: Shard) -> Schedule {
        let process = Process::Trace(share.index, times);
        let clock = Profile::constant(0.0).arrival_times();
        let random = fastrand::Rng::with_seed(0);
        Schedule { process, times: clock, shard: share, remaining: u64::MAX, random }
    }

    /// Returns the schedule, limited to the shard's part of `total` arrivals.
    pub(crate) fn limited_to(self, total: Option<NonZeroU64>) -> Schedule {
        let remaining = total.map_or(u64::MAX, |total| self.shard.share_of_count(total.get()));
        Schedule { remaining, ..self }
    }

    /// Skips the arrivals before `time` and returns their number: the exact one for constant gaps
    /// and traces, otherwise the expected one. Takes O(1), or O(log n) for a trace of n arrivals.
    pub(crate) fn skip_until(&mut self, time: Duration) -> u64 {
        let count = self.shard.count;
        let expected = self.times.arrivals_within(time);
        let skipped = match &mut self.process {
            Process::Constant(number) => {
                let first = expected.ceil() as u64;
                let skipped = first.saturating_sub(*number).div_ceil(count);
                *number += skipped * count;
                skipped
            }
            Process::Trace(number, times) => {
                let first = times.partition_point(|&at| at < time) as u64;
                let skipped = first.saturating_sub(*number).div_ceil(count);
                *number += skipped * count;
                skipped
            }
            Process::Poisson(place) | Process::Uniform(place) => {
                let skipped = (expected - *place) / count as f64;
                *place = place.max(expected);
                // Rounds up with the probability of the fraction, so that the mean is exact.
                (skipped.max(0.0) + self.random.f64()) as u64
            }
            Process::Never => 0,
        };
        let skipped = skipped.min(self.remaining);
        self.remaining -= skipped;
        skipped
    }
}

impl Iterator for Schedule {
    type Item = Duration;

    #[inline]
    fn next(&mut self) -> Option<Duration> {
        self.remaining = self.remaining.checked_sub(1)?;
        let of = self.shard.count as f64;
        let place = match &mut self.process {
            // Multiply instead of adding up, so that rounding errors do not accumulate.
            Process::Constant(number) => {
                let place = *number as f64;
                *number += self.shard.count;
                place
            }
            Process::Poisson(place) => {
                *place -= (1.0 - self.random.f64()).ln() * of;
                *place
            }
            Process::Uniform(place) => {
                *place += 2.0 * self.random.f64() * of;
                *place
            }
            Process::Trace(number, times) => {
                let time = times.get(usize::try_from(*number).ok()?).copied();
                *number += self.shard.count;
                return time;
            }
            Process::Never => return None,
        };
        let nanos = (self.times.time_of(place)? * 1e9).round();
        Some(Duration::from_nanos(nanos as u64))
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::{Arrivals, Schedule};
    use crate::profile::Profile;
    use crate::shard::Shard;

    fn of(arrivals: Arrivals, rate: f64, seed: u64) -> Schedule {
        Schedule::new(arrivals, &Profile::constant(rate), Shard::ALL, seed)
    }

    #[test]
    fn constant_is_exact() {
        let at: Vec<_> = of(Arrivals::Constant, 4.0, 7).take(5).collect();
        assert_eq!(at, [0, 250, 500, 750, 1000].map(Duration::from_millis));
        // A million later there is still no drift.
        let far = of(Arrivals::Constant, 3.0, 7).nth(3_000_000).unwrap();
        assert_eq!(far, Duration::from_secs(1_000_000));
    }

    /// Asserts mean and variance of gaps that are 1 on average. The bounds are six standard errors
    /// wide.
    fn has_moments(arrivals: Arrivals, variance_of_gap: f64, fourth: f64) {
        const COUNT: usize = 100_000;
        for seed in 0..5 {
            let at: Vec<_> = of(arrivals, 1000.0, seed).take(COUNT).collect();
            assert!(at.is_sorted());
            let gaps: Vec<_> =
                at.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64() * 1000.0).collect();
            let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
            let variance =
                gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
            let error = (COUNT as f64).sqrt().recip();
            assert!((mean - 1.0).abs() < 6.0 * error * variance_of_gap.sqrt(), "mean {mean}");
            let deviation = (fourth - variance_of_gap.powi(2)).sqrt() * error;
            assert!((variance - variance_of_gap).abs() < 6.0 * deviation, "variance {variance}");
        }
    }

    /// Uses that an exponential distribution has mean 1, variance 1 and a fourth central moment of
    /// 9.
    #[test]
    fn poisson_has_its_mean_and_variance() {
        has_moments(Arrivals::Poisson, 1.0, 9.0);
    }

    /// Uses that a uniform distribution from 0 to 2 has variance 1/3 and a fourth central moment of
    /// 1/5.
    #[test]
    fn uniform_has_its_mean_and_variance() {
        has_moments(Arrivals::Uniform, 1.0 / 3.0, 0.2);
    }

    #[test]
    fn arrivals_depend_only_on_the_seed() {
        for arrivals in [Arrivals::Poisson, Arrivals::Uniform] {
            let times = |seed| of(arrivals, 10.0, seed).take(50).collect::<Vec<_>>();
            assert_eq!(times(1), times(1));
            assert_ne!(times(1), times(2));
        }
    }

    #[test]
    fn a_zero_rate_has_no_arrivals() {
        for arrivals in [Arrivals::Poisson, Arrivals::Uniform, Arrivals::Constant] {
            assert_eq!(of(arrivals, 0.0, 1).next(), None);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Checks also that a limit only omits later arrivals.
        #[test]
        fn shards_of_a_limited_schedule_have_the_exact_total(
            arrivals in prop::sample::select(&[Arrivals::Constant, Arrivals::Poisson][..]),
            total in 1..100u64,
            count in 1..9u64,
        ) {
            let limited = |index| {
                let profile = Profile::constant(5.0);
                let schedule = || Schedule::new(arrivals, &profile, Shard { index, count }, 1);
                let limited: Vec<_> = schedule().limited_to(NonZeroU64::new(total)).collect();
                assert!(schedule().zip(&limited).all(|(at, limited)| at == *limited));
                limited
            };
            let mut all: Vec<_> = (0..count).flat_map(limited).collect();
            prop_assert_eq!(all.len() as u64, total);
            if arrivals == Arrivals::Constant {
                all.sort();
                let first: Vec<_> = of(arrivals, 5.0, 1).take(all.len()).collect();
                prop_assert_eq!(all, first);
            }
        }

        #[test]
        fn shards_of_constant_arrivals_cover_all_arrivals(
            rates in prop::collection::vec((1..500u32, 1..500u32), 1..4),
            count in 1..7u64,
        ) {
            let text: Vec<_> = rates.iter().map(|(from, to)| format!("{from}..{to}@2s")).collect();
            let profile: Profile = text.join(",").parse().unwrap();
            let end = profile.length().unwrap();
            let within = |share| {
                Schedule::new(Arrivals::Constant, &profile, share, 1)
                    .take_while(|&at| at < end)
                    .collect::<Vec<_>>()
            };
            let mut parts: Vec<_> =
                (0..count).flat_map(|index| within(Shard { index, count })).collect();
            parts.sort();
            prop_assert_eq!(parts, within(Shard::ALL));
        }

        #[test]
        fn shards_of_a_trace_cover_all_arrivals(
            mut nanos in prop::collection::vec(any::<u32>(), 0..50),
            count in 1..7u64,
        ) {
            nanos.sort();
            let times: Vec<_> = nanos.into_iter().map(|at| Duration::from_nanos(at.into())).collect();
            let mut parts: Vec<_> = (0..count)
                .flat_map(|index| Schedule::from_trace(times.clone().into(), Shard { index, count }))
                .collect();
            parts.sort();
            prop_assert_eq!(parts, times);
        }

        #[test]
        fn skipped_arrivals_count_towards_the_limit(limit in 1..100u64, millis in 0..200u64) {
            let profile = Profile::constant(1000.0);
            let schedule = Schedule::new(Arrivals::Constant, &profile, Shard::ALL, 1);
            let mut schedule = schedule.limited_to(NonZeroU64::new(limit));
            let skipped = schedule.skip_until(Duration::from_millis(millis));
            prop_assert_eq!(skipped, limit.min(millis));
            prop_assert_eq!(skipped + schedule.count() as u64, limit);
        }

        #[test]
        fn skipped_arrivals_are_counted(rate in 1.0..1e6f64, millis in 0..10_000u64, count in 1..4u64) {
            let time = Duration::from_millis(millis);
            let profile = Profile::constant(rate);
            for arrivals in [Arrivals::Constant, Arrivals::Poisson, Arrivals::Uniform] {
                let skipped: u64 = (0..count)
                    .map(|index| {
                        let mut schedule = Schedule::new(arrivals, &profile, Shard { index, count }, 1);
                        let skipped = schedule.skip_until(time);
                        assert!(schedule.next().is_some_and(|next| next >= time));
                        skipped
                    })
                    .sum();
                let expected = profile.arrivals_within(time);
                prop_assert!((skipped as f64 - expected).abs() <= count as f64, "{skipped} {expected}");
            }
        }

        /// Allows six standard deviations of a Poisson count, over all shards and along a ramp.
        #[test]
        fn poisson_arrivals_match_the_offered_rate(seed in any::<u64>(), count in 1..5u64, to in 100..2000u32) {
            let profile: Profile = format!("10..{to}@10s,{to}@5s").parse().unwrap();
            let end = Duration::from_secs(15);
            let arrived: usize = (0..count)
                .map(|index| {
                    Schedule::new(Arrivals::Poisson, &profile, Shard { index, count }, seed)
                        .take_while(|&at| at < end)
                        .count()
                })
                .sum();
            let expected = profile.arrivals_within(end);
            prop_assert!((arrived as f64 - expected).abs() < 6.0 * expected.sqrt(), "{arrived}");
        }
    }
}
