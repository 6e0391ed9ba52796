//! How evenly arrivals came: the gaps between them, and how far each was from an even schedule.

use serde::Serialize;

/// Gaps between arrivals, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Gaps {
    pub(crate) p10: u64,
    pub(crate) p50: u64,
    pub(crate) p90: u64,
    pub(crate) mean: f64,
    /// Standard deviation by mean: 0 where they are even, 1 where they are exponential.
    pub(crate) variation: f64,
    /// Kolmogorov-Smirnov distance from the exponential distribution with this mean.
    pub(crate) from_exponential: f64,
}

/// Arrivals beside the even schedule that fits them best.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Fit {
    /// Arrivals a second, as asked for.
    pub(crate) rate: f64,
    /// When its first is intended, in nanoseconds since 1970.
    pub(crate) start_unix_ns: i64,
    /// |actual - intended|, in nanoseconds.
    pub(crate) deviation_ns: Deviation,
    /// actual - intended, in nanoseconds: negative is early.
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

/// The least of the sorted values that so large a part of them does not exceed.
fn quantile<T: Copy>(sorted: &[T], part: f64) -> Option<T> {
    let rank = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied()
}

/// Of arrivals in order of time; nothing, if there are fewer than two. O(n log n).
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
    let none = mean == 0.0;
    Some(Gaps {
        p10: quantile(&gaps, 0.1)?,
        p50: quantile(&gaps, 0.5)?,
        p90: quantile(&gaps, 0.9)?,
        mean,
        variation: if none { 0.0 } else { (squares / count).sqrt() / mean },
        from_exponential: if none {
            1.0
        } else {
            gaps.iter().enumerate().map(distance).fold(0.0, f64::max)
        },
    })
}

/// Arrivals in order of time beside the even schedule of this rate whose start makes the median of
/// |actual - intended| least: half of them may be anywhere without moving it. O(n log n).
pub(crate) fn fit(arrivals: &[u64], rate: f64) -> Option<Fit> {
    let first = *arrivals.first()?;
    // Less the number's time: what is left is the start, as each arrival has it.
    let place = |k: usize| (k as f64 * 1e9 / rate).round() as i64;
    let starts =
        arrivals.iter().enumerate().map(|(k, &at)| at.wrapping_sub(first).cast_signed() - place(k));
    let mut starts: Vec<i64> = starts.collect();
    starts.sort_unstable();
    // The shortest stretch that holds half of them has it in its middle. Of those that are equally
    // short, to the nanosecond that is rounded, the middle one.
    let half = starts.len().div_ceil(2);
    let length = |stretch: &[i64]| stretch[half - 1] - stretch[0];
    let shortest = starts.windows(half).map(length).min()?;
    let short = |stretch: &&[i64]| length(stretch) <= shortest + 1;
    let equals = starts.windows(half).filter(short).count();
    let stretch = starts.windows(half).filter(short).nth(equals / 2)?;
    let start = stretch[0] + length(stretch) / 2;
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

    /// Due every 200 us, each late by what is said of it.
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
    fn what_all_are_late_by_is_the_start() {
        let fit = fit(&arrivals(1_000, |_| 17_000), 5_000.0).unwrap();
        assert_eq!(fit.start_unix_ns, BEGIN as i64 + 17_000);
        assert_eq!(fit.deviation_ns.max, 0);
    }

    #[test]
    fn a_few_that_are_very_late_are_seen_and_do_not_move_the_schedule() {
        // One in fifty, by half a millisecond.
        let late = |k| if k % 50 == 7 { 500_000 } else { 0 };
        let fit = fit(&arrivals(10_000, late), 5_000.0).unwrap();
        assert_eq!(fit.start_unix_ns, BEGIN as i64);
        // Late ones are passed by two others: in order of arrival three of fifty are off.
        let Deviation { p50, p90, p99, max } = fit.deviation_ns;
        assert_eq!((p50, p90, p99, max), (0, 0, GAP as i64, GAP as i64));
        assert_eq!(fit.offset_ns.p50, 0);
    }

    #[test]
    fn bursts_are_off_by_half_their_distance() {
        // Fifty at once every 10 ms, as a timer of that grain has it.
        let arrivals: Vec<u64> = (0..10_000).map(|k| BEGIN + k / 50 * 50 * GAP).collect();
        let fit = fit(&arrivals, 5_000.0).unwrap();
        assert!((2_300_000..2_700_000).contains(&fit.deviation_ns.p50), "{fit:?}");
        assert!((4_700_000..5_300_000).contains(&fit.deviation_ns.max), "{fit:?}");
        assert_eq!(gaps(&arrivals).unwrap().p50, 0);
    }

    #[test]
    fn a_wrong_rate_is_seen() {
        let fit = fit(&arrivals(10_000, |_| 0), 5_001.0).unwrap();
        // 0.04 us more with each of them, over 5,000 to either side.
        assert!((99_000..101_000).contains(&fit.deviation_ns.p50), "{fit:?}");
        assert!((197_000..201_000).contains(&fit.deviation_ns.p99), "{fit:?}");
    }

    /// Half of them exact and half late by anything: no start brings the median lower.
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
                // To the nanosecond, as the middle is rounded.
                assert!(fit.deviation_ns.p50 <= median + 1, "{shift}: {fit:?} {median}");
            }
        }
    }

    #[test]
    fn exponential_gaps_are_told_from_even_ones() {
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
        // 1.63 by the root of n is exceeded once in a hundred.
        assert!(gaps_of_poisson.from_exponential < 0.0125, "{gaps_of_poisson:?}");
        let even = gaps(&arrivals(20_000, |_| 0)).unwrap();
        assert!(even.from_exponential > 0.6, "{even:?}");
    }

    #[test]
    fn too_few_to_tell() {
        assert_eq!(gaps(&[]), None);
        assert_eq!(gaps(&[1]), None);
        assert_eq!(fit(&[], 5_000.0), None);
        assert_eq!(fit(&[7], 5_000.0).unwrap().start_unix_ns, 7);
        assert_eq!(gaps(&[7, 7]).unwrap().from_exponential, 1.0);
    }
}
