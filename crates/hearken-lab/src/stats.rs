//! Means and ratios with 95 % confidence intervals, for few repetitions.
//!
//! The interval of a mean is Student's t ("The probable error of a mean", Biometrika 6, 1908). It is
//! valid for three repetitions, for which a bootstrap has only ten distinct resamples.
//!
//! The ratio of two cells is the geometric mean of the ratios within each repetition, with Student's
//! interval on their logarithms.

pub use hearken_load::{Estimate, estimate};
use serde::{Deserialize, Serialize};

/// Description of the method, for the report.
pub const METHOD: &str = "Means with 95 % confidence intervals by Student's t over the \
     repetitions (Student, Biometrika 6, 1908); ratios are geometric means of the ratios within \
     each repetition, with Student's interval on their logarithms.";

/// The ratio of two quantities measured in the same run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Ratio of the geometric means.
    pub ratio: f64,
    /// Lower end of the 95 % confidence interval; none for single repetitions.
    pub low: Option<f64>,
    /// Upper end of the 95 % confidence interval.
    pub high: Option<f64>,
}

impl Ratio {
    /// Returns the reciprocal.
    pub fn inverse(&self) -> Ratio {
        let inverse = |end: Option<f64>| end.map(f64::recip);
        Ratio { ratio: self.ratio.recip(), low: inverse(self.high), high: inverse(self.low) }
    }

    /// Returns whether the confidence interval excludes 1.
    pub fn differs(&self) -> bool {
        matches!((self.low, self.high), (Some(low), Some(high)) if low > 1.0 || high < 1.0)
    }
}

/// Computes the ratio of paired measurements: the geometric mean of the ratios of the pairs, with
/// Student's interval on their logarithms. Drift between pairs cancels out.
pub fn paired_ratio(pairs: &[(f64, f64)]) -> Option<Ratio> {
    if pairs.is_empty() || !pairs.iter().all(|&(of, to)| of > 0.0 && to > 0.0) {
        return None;
    }
    let logs = estimate(pairs.iter().map(|(of, to)| (of / to).ln()))?;
    Some(Ratio {
        ratio: logs.mean.exp(),
        low: logs.margin.map(|margin| (logs.mean - margin).exp()),
        high: logs.margin.map(|margin| (logs.mean + margin).exp()),
    })
}

/// Returns the mean, and the sample variance if there are at least two values.
pub(crate) fn moments(values: &[f64]) -> (f64, Option<f64>) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    (mean, (values.len() > 1).then(|| squares / (n - 1.0)))
}

/// Returns the squared standard error of a difference of means, and its degrees of freedom (Welch,
/// Satterthwaite). The variances are those of the samples.
pub(crate) fn welch(var_a: f64, n_a: usize, var_b: f64, n_b: usize) -> (f64, f64) {
    let (a, b) = (var_a / n_a as f64, var_b / n_b as f64);
    let freedom = (a + b).powi(2) / (a * a / (n_a - 1) as f64 + b * b / (n_b - 1) as f64);
    (a + b, freedom)
}

/// Returns the two-sided critical value of Student's t for the significance level `chance`. Serves
/// simultaneous intervals, whose levels are not in the table above.
pub(crate) fn student_t_beyond(chance: f64, freedom: f64) -> f64 {
    const STEPS: i32 = 100;
    // With t = sqrt(freedom) tan(angle), the density is a power of the cosine, smooth and bounded.
    // Beyond 200 degrees of freedom, the normal distribution is close and slightly narrower.
    let freedom = freedom.clamp(1.0, 200.0);
    let density = |angle: f64| angle.cos().max(0.0).powf(freedom - 1.0);
    let area = |to: f64| {
        let step = to / f64::from(STEPS);
        let weighted = |i: i32| {
            let weight = if i == 0 || i == STEPS { 1.0 } else { f64::from(2 + i % 2 * 2) };
            weight * density(f64::from(i) * step)
        };
        (0..=STEPS).map(weighted).sum::<f64>() * step / 3.0
    };
    let within = (1.0 - chance.clamp(1e-9, 1.0)) * area(std::f64::consts::FRAC_PI_2);
    // Newton's method approaches the angle from below, because the density decreases.
    let mut angle = 0.0;
    for _ in 0..50 {
        let step = (within - area(angle)) / density(angle);
        if step.is_nan() || step < 1e-12 {
            break;
        }
        angle += step;
    }
    freedom.sqrt() * angle.tan()
}

/// Returns the probability that Student's t exceeds a value.
pub(crate) fn student_t_tail(t: f64, freedom: f64) -> f64 {
    const STEPS: i32 = 200;
    // With t = sqrt(freedom) tan(angle), the density is a power of the cosine. The tail is integrated
    // instead of the rest, because its probability is much smaller.
    let freedom = freedom.clamp(1.0, 200.0);
    let area = |from: f64| {
        let step = (std::f64::consts::FRAC_PI_2 - from) / f64::from(STEPS);
        let weighted = |i: i32| {
            let weight = if i == 0 || i == STEPS { 1.0 } else { f64::from(2 + i % 2 * 2) };
            weight * (from + f64::from(i) * step).cos().max(0.0).powf(freedom - 1.0)
        };
        (0..=STEPS).map(weighted).sum::<f64>() * step / 3.0
    };
    let upper = area((t.abs() / freedom.sqrt()).atan()) / area(0.0) / 2.0;
    if t > 0.0 { upper } else { 1.0 - upper }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hearken_load::student_t;
    use proptest::prelude::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-3 * b.abs().max(1e-9)
    }

    #[test]
    fn estimates_known_values() {
        let e = estimate([1.0, 2.0, 3.0]).unwrap();
        assert_eq!((e.n, e.mean, e.median, e.min, e.max), (3, 2.0, 2.0, 1.0, 3.0));
        // 4.303 * 1 / sqrt 3
        assert!(close(e.margin.unwrap(), 2.4843));
        let e = estimate([4.0, 2.0, 10.0, 8.0]).unwrap();
        assert_eq!((e.mean, e.median), (6.0, 6.0));
        // 3.182 * 3.65148 / 2
        assert!(close(e.margin.unwrap(), 5.8095));
    }

    #[test]
    fn single_value_has_no_interval_and_no_value_no_estimate() {
        assert_eq!(estimate([5.0]).unwrap().margin, None);
        assert_eq!(estimate([]), None);
        assert_eq!(estimate([f64::NAN]), None);
        let single = paired_ratio(&[(3.0, 2.0)]).unwrap();
        assert!(close(single.ratio, 1.5) && single.low.is_none() && !single.differs());
    }

    #[test]
    fn paired_ratios_cancel_drift() {
        // The ratio is 2 in every pair, although the machine drifts.
        let drifting = [(2.0, 1.0), (20.0, 10.0), (200.2, 100.0)];
        let paired = paired_ratio(&drifting).unwrap();
        assert!(close(paired.ratio, 2.0) && paired.differs());
        let back = paired.inverse();
        assert!(close(back.ratio, 0.5) && back.low < Some(0.5) && back.high > Some(0.4999));
        assert_eq!(paired_ratio(&[]), None);
        assert_eq!(paired_ratio(&[(0.0, 1.0)]), None);
        assert_eq!(paired_ratio(&[(3.0, 2.0)]).unwrap().low, None);
    }

    #[test]
    fn student_t_matches_the_table_at_other_levels() {
        for freedom in 1..30 {
            let freedom = f64::from(freedom);
            assert!(close(student_t_beyond(0.05, freedom), student_t(freedom)), "{freedom}");
        }
        // NIST/SEMATECH e-Handbook, 99.5 % quantiles.
        for (freedom, expected) in [(1.0, 63.657), (4.0, 4.604), (20.0, 2.845), (100.0, 2.626)] {
            assert!(close(student_t_beyond(0.01, freedom), expected), "{freedom}");
        }
    }

    #[test]
    fn student_t_tail_inverts_the_critical_values() {
        for freedom in [1.0, 4.0, 9.0, 50.0] {
            for chance in [0.5, 0.05, 0.001, 1e-5] {
                let t = student_t_beyond(chance, freedom);
                assert!(close(student_t_tail(t, freedom), chance / 2.0), "{freedom} {chance}");
                assert!(close(student_t_tail(-t, freedom), 1.0 - chance / 2.0));
            }
        }
        assert!(close(student_t_tail(0.0, 4.0), 0.5));
    }

    #[test]
    fn student_t_decreases_with_degrees_of_freedom() {
        let ts: Vec<f64> = (1..100).map(|f| student_t(f64::from(f))).collect();
        assert!(ts.windows(2).all(|w| w[1] <= w[0]));
        assert_eq!(student_t(0.3), 12.706);
        assert_eq!(student_t(2.9), 4.303);
    }

    proptest! {
        #[test]
        fn estimate_is_ordered(values in prop::collection::vec(0.1f64..1e9, 1..20)) {
            let e = estimate(values.iter().copied()).unwrap();
            prop_assert!(e.min <= e.median && e.median <= e.max);
            prop_assert!(e.min <= e.mean * (1.0 + 1e-12) && e.mean <= e.max * (1.0 + 1e-12));
            prop_assert_eq!(e.margin.is_some(), values.len() > 1);
        }

        #[test]
        fn ratio_inverts(pairs in prop::collection::vec((0.1f64..1e6, 0.1f64..1e6), 2..6)) {
            let swapped: Vec<(f64, f64)> = pairs.iter().map(|&(of, to)| (to, of)).collect();
            let (x, y) = (paired_ratio(&pairs).unwrap(), paired_ratio(&swapped).unwrap());
            prop_assert!(close(x.ratio, 1.0 / y.ratio));
            prop_assert!(x.low.unwrap() <= x.ratio && x.ratio <= x.high.unwrap());
            prop_assert_eq!(x.differs(), y.differs());
        }
    }
}
