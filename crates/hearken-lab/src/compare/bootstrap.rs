//! Bootstrap estimates of the sampling variance of each metric.

use fastrand::Rng;

use super::runs::{Piece, Run, Side, nanos, share};
use super::{Options, Quantity};

/// Minimum number of segments of a single run.
const LEAST_PIECES: usize = 8;
/// Number of metrics.
const FIGURES: usize = Quantity::ALL.len();

/// The variance of the logarithm of a metric and its degrees of freedom.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spread {
    pub(super) variance: f64,
    pub(super) freedom: f64,
}

impl Spread {
    /// Returns the variance of a difference and its Welch-Satterthwaite degrees of freedom.
    pub(super) fn and(&self, other: &Spread) -> (f64, f64) {
        let sum = self.variance + other.variance;
        let parts = |s: &Spread| s.variance * s.variance / s.freedom;
        let freedom = sum * sum / (parts(self) + parts(other));
        (sum, if freedom.is_finite() { freedom } else { self.freedom.min(other.freedom) })
    }
}

/// Estimates the variance of each metric of a side; none if there is too little data.
pub(super) fn spreads(side: &Side, options: &Options, salt: u64) -> [Option<Spread>; FIGURES] {
    let runs: Vec<&Run> = side.runs.iter().filter(|run| !run.pieces.is_empty()).collect();
    let Some(units) = units(&runs) else { return [None; FIGURES] };
    let mut random = Rng::with_seed(options.seed.wrapping_mul(2).wrapping_add(salt));
    let mut logs = [const { Vec::new() }; FIGURES];
    for _ in 0..options.resamples.max(2) {
        let drawn = draw(&runs, &mut random);
        for (logs, value) in logs.iter_mut().zip(figures(&drawn, side.lowest)) {
            logs.push(value.ln());
        }
    }
    // Resampling n units underestimates the variance by the factor (n - 1) / n.
    let wider = units / (units - 1.0);
    Quantity::ALL.map(|quantity| {
        let logs = &logs[quantity as usize];
        if !side.knows(quantity) || !logs.iter().all(|log| log.is_finite()) {
            return None;
        }
        let count = logs.len() as f64;
        let mean = logs.iter().sum::<f64>() / count;
        let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (count - 1.0);
        let variance = (variance * wider).max(side.least_variance(quantity));
        Some(Spread { variance, freedom: units - 1.0 })
    })
}

/// Returns the number of independent units: runs, or blocks of a single run.
fn units(runs: &[&Run]) -> Option<f64> {
    match runs {
        [] => None,
        [run] if run.pieces.len() < LEAST_PIECES => None,
        [run] => Some(run.pieces.len() as f64 / block(run) as f64),
        runs => Some(runs.len() as f64),
    }
}

/// Returns the number of segments in a block. Longer runs get longer blocks, to cover longer
/// correlations (the cube root of the number of segments).
fn block(run: &Run) -> usize {
    (run.pieces.len() as f64).cbrt().round().max(1.0) as usize
}

/// Draws as many runs as there are, and from each as many segments as it has, in circular blocks.
fn draw<'a>(runs: &[&'a Run], random: &mut Rng) -> Vec<&'a Piece> {
    let mut drawn = Vec::new();
    for index in 0..runs.len() {
        let run = if runs.len() == 1 { runs[index] } else { runs[random.usize(..runs.len())] };
        let (count, block) = (run.pieces.len(), block(run));
        let mut left = count;
        while left > 0 {
            let from = random.usize(..count);
            let length = block.min(left);
            drawn.extend((from..from + length).map(|at| &run.pieces[at % count]));
            left -= length;
        }
    }
    drawn
}

/// Computes each metric of a resample.
fn figures(drawn: &[&Piece], lowest: usize) -> [f64; FIGURES] {
    let sum = |of: fn(&Piece) -> f64| drawn.iter().map(|piece| of(piece)).sum::<f64>();
    let replies = sum(|piece| piece.replies as f64);
    Quantity::ALL.map(|quantity| match quantity {
        Quantity::ReplyRate => replies / sum(|piece| piece.seconds),
        Quantity::ErrorShare => {
            share(sum(|piece| piece.failed as f64), sum(|piece| piece.intended as f64))
        }
        Quantity::LatencyMean => sum(|piece| piece.sum) / sum(|piece| piece.count),
        Quantity::CpuPerReply => sum(|piece| piece.cpu_ns) / replies,
        _ => percentile(drawn, lowest, quantity.quantile().unwrap_or(0.5)),
    })
}

/// Returns a quantile of the latency of a resample, in nanoseconds.
fn percentile(drawn: &[&Piece], lowest: usize, quantile: f64) -> f64 {
    let below = |bucket: usize| drawn.iter().map(|piece| piece.below[bucket]).sum::<f64>();
    let Some(buckets) = drawn.first().map(|piece| piece.below.len()) else { return f64::NAN };
    let wanted = below(buckets - 1) * quantile;
    if wanted <= 0.0 {
        return f64::NAN;
    }
    let (mut low, mut high) = (0, buckets - 1);
    while low < high {
        let middle = usize::midpoint(low, high);
        if below(middle) < wanted { low = middle + 1 } else { high = middle }
    }
    let under = if low > 0 { below(low - 1) } else { 0.0 };
    let share = (wanted - under) / (below(low) - under);
    nanos((lowest + low) as f64 + share.clamp(0.0, 1.0))
}
