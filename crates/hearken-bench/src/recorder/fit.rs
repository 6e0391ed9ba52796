//! Statistics of arrival times: gaps between arrivals and deviations from an even schedule.

use serde::Serialize;

/// Gaps between arrivals in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Gaps {
    pub(crate) p10: u64,
    pub(crate) p50: u64,
    pub(crate) p90: u64,
    pub(crate) mean: f64,
    /// Coefficient of variation: 0 for even gaps, 1 for exponential gaps.
    pub(crate) variation: f64,
    /// Kolmogorov-Smirnov distance from the exponential distribution with this mean.
    pub(crate) from_exponential: f64,
}

/// The even schedule that fits the arrivals best, and the deviations from it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Fit {
    /// Rate of the schedule in arrivals per second.
    pub(crate) rate: f64,
    /// Scheduled time of the first arrival in nanoseconds since 1970.
    pub(crate) start_unix_ns: i64,
    /// |actual - scheduled| in nanoseconds.
    pub(crate) deviation_ns: Deviation,
    /// actual - scheduled in nanoseconds; negative means early.
    pub(crate) offset_ns: Offset,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Deviation {
    pub(crate) p50: i64,
    pub(crate) p90: i64,
    pub(crate) p99: i64,
    pub(crate) max: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Offset {
    pub(crate) min: i64,
    pub(crate) p1: i64,
    pub(crate) p50: i64,
    pub(crate) p99: i64,
    pub(crate) max: i64,
}

/// Returns the smallest value that at least the fraction `part` of the sorted values does not exceed.
fn quantile<T: Copy>(sorted: &[T], part: f64) -> Option<T> {
    let rank = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied()
}

/// Returns the gaps of arrivals sorted by time, or `None` for fewer than two. O(n log n).
pub(crate) fn gaps(arrivals: &[u64]) -> Option<Gaps> {
    let mut gaps: Vec<u64> =
        arrivals.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect();
    gaps.sort_unstable();
    let count = gaps.len() as f64;
    let mean = gaps.iter().map(|&gap| gap as f64).sum::<f64>() / count;
    let squares = gaps.iter().map(|&gap| (gap as f64 - mean).powi(2)).sum::<f64>();
    let distance = |(at, &gap): (usize, &u64)| {
        let expected = 1.0 - (-(gap as f64) / mean).exp();
        (expected - at as f64 / count).abs().max(((at + 1) as f64 / count - expected).abs())
    };
    let all_equal = mean == 0.0;
    Some(Gaps {
        p10: quantile(&gaps, 0.1)?,
        p50: quantile(&gaps, 0.5)?,
        p90: quantile(&gaps, 0.9)?,
        mean,
        variation: if all_equal { 0.0 } else { (squares / count).sqrt() / mean },
        from_exponential: if all_equal {
            1.0
        } else {
            gaps.iter().enumerate().map(distance).fold(0.0, f64::max)
        },
    })
}

/// Fits the even schedule of this rate that minimises the median of |actual - scheduled| to arrivals
/// sorted by time.
///
/// Half of the arrivals can have any deviation without affecting the result. O(n log n).
pub(crate) fn fit(arrivals: &[u64], rate: f64) -> Option<Fit> {
    let first = *arrivals.first()?;
    // Each arrival minus its offset in the schedule is a candidate for the start.
    let scheduled = |k: usize| (k as f64 * 1e9 / rate).round() as i64;
    let starts = arrivals
        .iter()
        .enumerate()
        .map(|(k, &at)| at.wrapping_sub(first).cast_signed() - scheduled(k));
    let mut starts: Vec<i64> = starts.collect();
    starts.sort_unstable();
    // The best start is the middle of the shortest interval that contains half of the candidates. Among
    // intervals of equal length within rounding, the middle one is chosen.
    let half = starts.len().div_ceil(2);
    let length = |interval: &[i64]| interval[half - 1] - interval[0];
    let shortest = starts.windows(half).map(length).min()?;
    let is_shortest = |interval: &&[i64]| length(interval) <= shortest + 1;
    let count = starts.windows(half).filter(is_shortest).count();
    let interval = starts.windows(half).filter(is_shortest).nth(count / 2)?;
    let start = interval[0] + length(interval) / 2;
    starts.iter_mut().for_each(|at| *at -= start);
    let offsets = starts;
    let mut deviations: Vec<i64> = offsets.iter().map(|offset| offset.abs()).collect();
    deviations.sort_unstable();
    Some(Fit {
        rate,
        start_unix_ns: first.cast_signed().wrapping_add(start),
        deviation_ns: Deviation {
            p50: quantile(&deviations, 0.5)?,
            p90: quantile(&deviations, 0.9)?,
            p99: quantile(&deviations, 0.99)?,
            max: *deviations.last()?,
        },
        offset_ns: Offset {
            min: *offsets.first()?,
            p1: quantile(&offsets, 0.01)?,
            p50: quantile(&offsets, 0.5)?,
            p99: quantile(&offsets, 0.99)?,
            max: *offsets.last()?,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: u64 = 1_700_000_000_000_000_000;
    const GAP: u64 = 200_000;

    /// Returns arrivals scheduled every 200 us, each delayed by `late`.
    fn arrivals(count: u64, late: impl Fn(u64) -> u64) -> Vec<u64> {
        let mut arrivals: Vec<u64> = (0..count).map(|k| BEGIN + k * GAP + late(k)).collect();
        arrivals.sort_unstable();
        arrivals
    }

    #[test]
    fn an_even_schedule_fits_itself() {
        let fit = fit(&arrivals(10_000, |_| 0), 5_000.0).unwrap();
        assert_eq!(fit.start_unix_ns, BEGIN as i64);
        assert_eq!(fit.deviation_ns, Deviation { p50: 0, p90: 0, p99: 0, max: 0 });
        let gaps = gaps(&arrivals(10_000, |_| 0)).unwrap();
        assert_eq!((gaps.p10, gaps.p50, gaps.p90, gaps.mean), (GAP, GAP, GAP, GAP as f64));
        assert_eq!(gaps.variation, 0.0);
    }

    #[test]
    fn a_constant_delay_shifts_the_start() {
        let fit = fit(&arrivals(1_000, |_| 17_000), 5_000.0).unwrap();
        assert_eq!(fit.start_unix_ns, BEGIN as i64 + 17_000);
        assert_eq!(fit.deviation_ns.max, 0);
    }

    #[test]
    fn outliers_are_reported_and_do_not_move_the_schedule() {
        // One in fifty is late by half a millisecond.
        let late = |k| if k % 50 == 7 { 500_000 } else { 0 };
        let fit = fit(&arrivals(10_000, late), 5_000.0).unwrap();
        assert_eq!(fit.start_unix_ns, BEGIN as i64);
        // A late arrival is overtaken by two others, so in order of arrival three of fifty deviate.
        let Deviation { p50, p90, p99, max } = fit.deviation_ns;
        assert_eq!((p50, p90, p99, max), (0, 0, GAP as i64, GAP as i64));
        assert_eq!(fit.offset_ns.p50, 0);
    }

    #[test]
    fn bursts_deviate_by_half_their_distance() {
        // Fifty at once every 10 ms, as with a coarse timer.
        let arrivals: Vec<u64> = (0..10_000).map(|k| BEGIN + k / 50 * 50 * GAP).collect();
        let fit = fit(&arrivals, 5_000.0).unwrap();
        assert!((2_300_000..2_700_000).contains(&fit.deviation_ns.p50), "{fit:?}");
        assert!((4_700_000..5_300_000).contains(&fit.deviation_ns.max), "{fit:?}");
        assert_eq!(gaps(&arrivals).unwrap().p50, 0);
    }

    #[test]
    fn a_wrong_rate_is_detected() {
        let fit = fit(&arrivals(10_000, |_| 0), 5_001.0).unwrap();
        // The deviation grows by 0.04 us per arrival, over 5,000 arrivals to either side.
        assert!((99_000..101_000).contains(&fit.deviation_ns.p50), "{fit:?}");
        assert!((197_000..201_000).contains(&fit.deviation_ns.p99), "{fit:?}");
    }

    // With half of the arrivals on time and half delayed randomly, no other start has a smaller median.
    #[test]
    fn no_other_start_is_better() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..50 {
            let count = random.u64(1..60);
            let late: Vec<u64> = (0..count).map(|_| random.u64(0..300_000)).collect();
            let arrivals = arrivals(count, |k| late[k as usize]);
            let fit = fit(&arrivals, 5_000.0).unwrap();
            for shift in (-300_000..300_000).step_by(1_000) {
                let start = fit.start_unix_ns + shift;
                let mut others: Vec<i64> = (0..arrivals.len())
                    .map(|k| (arrivals[k] as i64 - start - (k as u64 * GAP) as i64).abs())
                    .collect();
                others.sort_unstable();
                let median = quantile(&others, 0.5).unwrap();
                // One nanosecond of tolerance, because the middle is rounded.
                assert!(fit.deviation_ns.p50 <= median + 1, "{shift}: {fit:?} {median}");
            }
        }
    }

    #[test]
    fn exponential_gaps_differ_from_even_gaps() {
        let mut random = fastrand::Rng::with_seed(2);
        let mut at = BEGIN as f64;
        let poisson: Vec<u64> = (0..20_000)
            .map(|_| {
                at -= (1.0 - random.f64()).ln() * GAP as f64;
                at as u64
            })
            .collect();
        let gaps_of_poisson = gaps(&poisson).unwrap();
        assert!((0.97..1.03).contains(&gaps_of_poisson.variation), "{gaps_of_poisson:?}");
        // The distance exceeds 1.63 / sqrt(n) with a probability of 1 %.
        assert!(gaps_of_poisson.from_exponential < 0.0125, "{gaps_of_poisson:?}");
        let even = gaps(&arrivals(20_000, |_| 0)).unwrap();
        assert!(even.from_exponential > 0.6, "{even:?}");
    }

    #[test]
    fn too_few_arrivals_have_no_statistics() {
        assert_eq!(gaps(&[]), None);
        assert_eq!(gaps(&[1]), None);
        assert_eq!(fit(&[], 5_000.0), None);
        assert_eq!(fit(&[7], 5_000.0).unwrap().start_unix_ns, 7);
        assert_eq!(gaps(&[7, 7]).unwrap().from_exponential, 1.0);
    }
}
