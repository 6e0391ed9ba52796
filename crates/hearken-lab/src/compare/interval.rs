//! The ratio of a metric between two sides, with Student's interval over the runs.

use super::sample::Sample;
use crate::stats::{moments, student_t_beyond, welch};

/// Smallest standard deviation of the logarithm of a metric between runs. Two or three runs may agree
/// by chance, and no machine repeats a run more exactly.
const MIN_DEVIATION: f64 = 0.005;
/// Degrees of freedom at which Student's t is close to the normal distribution.
const MANY: f64 = 200.0;

/// The estimated logarithm of a ratio.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogRatio {
    pub(super) mean: f64,
    /// Squared standard error from the variation between runs.
    variance: f64,
    degrees_of_freedom: f64,
    /// Squared standard error from the number of events that were counted.
    counting_variance: f64,
}

impl LogRatio {
    /// Estimates the ratio of B to A; none if a side has fewer than two runs, or a run has too little
    /// data. The runs are paired if `pairs` are given.
    pub(super) fn new(
        a: &[Option<Sample>],
        b: &[Option<Sample>],
        pairs: Option<&[(usize, usize)]>,
    ) -> Option<LogRatio> {
        if a.len() < 2 || b.len() < 2 {
            return None;
        }
        let logs = |runs: &[Option<Sample>]| -> Option<Vec<f64>> {
            runs.iter().map(|run| (*run)?.log).collect()
        };
        let (logs_a, logs_b) = (logs(a)?, logs(b)?);
        let counting_variance = counting_variance(a) + counting_variance(b);
        let floor = MIN_DEVIATION * MIN_DEVIATION;
        let ((mean_a, var_a), (mean_b, var_b)) = (moments(&logs_a), moments(&logs_b));
        let (variance, degrees_of_freedom) = match pairs {
            Some(pairs) => {
                let logs: Vec<f64> = pairs.iter().map(|&(a, b)| logs_b[b] - logs_a[a]).collect();
                let variance = moments(&logs).1?.max(2.0 * floor);
                (variance / logs.len() as f64, (logs.len() - 1) as f64)
            }
            None => welch(var_a?.max(floor), a.len(), var_b?.max(floor), b.len()),
        };
        Some(LogRatio { mean: mean_b - mean_a, variance, degrees_of_freedom, counting_variance })
    }

    /// Returns half the width of the confidence interval at a significance level.
    pub(super) fn margin(&self, level: f64) -> f64 {
        let between = student_t_beyond(level, self.degrees_of_freedom) * self.variance.sqrt();
        if self.counting_variance == 0.0 {
            return between;
        }
        // Runs with equal small counts have no variance, but the next run may have another count.
        between.max(student_t_beyond(level, MANY) * self.counting_variance.sqrt())
    }
}

/// Returns the part of the variance of a mean over runs that comes from counting.
fn counting_variance(runs: &[Option<Sample>]) -> f64 {
    let sum: f64 = runs.iter().flatten().map(|sample| sample.counting_variance).sum();
    sum / (runs.len() as f64).powi(2)
}
