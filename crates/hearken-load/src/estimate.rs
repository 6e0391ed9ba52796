//! Means with 95 % confidence intervals, for few repetitions.
//!
//! The interval of a mean is Student's t ("The probable error of a mean", Biometrika 6, 1908). It is
//! valid for three repetitions, for which a bootstrap has only ten distinct resamples.

use serde::{Deserialize, Serialize};

use crate::report::Samples;

/// Statistics of one quantity over repetitions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Number of repetitions.
    pub n: usize,
    /// Arithmetic mean.
    pub mean: f64,
    /// Median.
    pub median: f64,
    /// Minimum.
    pub min: f64,
    /// Maximum.
    pub max: f64,
    /// Half the width of the 95 % confidence interval of the mean; none for a single repetition.
    pub margin: Option<f64>,
}

/// Computes mean, median, extremes and confidence interval; none without finite values.
pub fn estimate(values: impl IntoIterator<Item = f64>) -> Option<Estimate> {
    let mut values: Vec<f64> = values.into_iter().filter(|v| v.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    let (&min, &max) = (values.first()?, values.last()?);
    let n = values.len();
    let Samples { mean, stddev, .. } = Samples::from_values(values.iter().copied());
    let median = (values[(n - 1) / 2] + values[n / 2]) / 2.0;
    let margin = (n > 1).then(|| student_t((n - 1) as f64) * stddev / (n as f64).sqrt());
    Some(Estimate { n, mean, median, min, max, margin })
}

/// Returns the 97.5 % quantile of Student's t, with degrees of freedom rounded down (a wider interval).
pub fn student_t(freedom: f64) -> f64 {
    // NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2.
    const TABLE: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
        2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
        2.052, 2.048, 2.045, 2.042,
    ];
    // Tolerates rounding errors, such as 1.9999999 for 2.
    let integer = (freedom + 1e-9).max(1.0) as usize;
    TABLE.get(integer - 1).copied().unwrap_or(if integer < 60 { 2.042 } else { 2.0 })
}
