//! The probability distribution of the knee, given the trials so far.

/// Scales of the logistic curve on the logarithm of the rate: how gradually a server fails around
/// its knee.
const SCALES: [f64; 8] = [0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32];

/// Fractions of trials with the opposite result for reasons unrelated to the rate, with their prior
/// probabilities.
const OUTLIER_RATES: [(f64, f64); 3] = [(0.003, 0.5), (0.03, 0.3), (0.1, 0.2)];

/// Maximum number of grid points. More would only cost time.
const MAX_POINTS: f64 = 20_000.0;

/// The posterior probability of each position of the knee on a grid.
///
/// Model: the probability that a trial meets the objectives falls with the rate along a logistic
/// curve and is 1/2 at the knee. The scale of the curve and the fraction of outliers are unknown
/// and estimated as well.
#[derive(Debug)]
pub(super) struct Posterior {
    /// Logarithm of the first rate, and the distance between points.
    first: f64,
    step: f64,
    points: usize,
    /// Logarithms of the weights: all points for each scale and outlier rate.
    weights: Vec<f64>,
    /// Probability of each point over all scales and outlier rates. They add up to 1.
    probabilities: Vec<f64>,
}

impl Posterior {
    /// Creates the prior distribution for a knee between `low` and `high`, and more likely within
    /// `likely`. The grid resolves `precision`.
    pub(super) fn new(low: f64, high: f64, likely: (f64, f64), precision: f64) -> Posterior {
        let (first, last) = (low.ln(), high.ln());
        let points = ((last - first) * 5.0 / precision).clamp(64.0, MAX_POINTS).ceil();
        let step = (last - first) / points;
        let points = points as usize + 1;
        let mut posterior =
            Posterior { first, step, points, weights: Vec::new(), probabilities: Vec::new() };
        let inside = |point| (likely.0.ln()..=likely.1.ln()).contains(&posterior.log_rate(point));
        let places: Vec<_> = (0..points).map(|at| if inside(at) { 1.0 } else { 0.3 }).collect();
        for _ in SCALES {
            for (_, probability) in OUTLIER_RATES {
                posterior.weights.extend(places.iter().map(|place| f64::ln(probability * place)));
            }
        }
        posterior.normalise();
        posterior
    }

    /// Returns the logarithm of the rate at a point.
    fn log_rate(&self, point: usize) -> f64 {
        self.first + point as f64 * self.step
    }

    /// Updates the distribution with the result of a trial at `rate`.
    pub(super) fn update(&mut self, rate: f64, met: bool) {
        let rate = rate.ln();
        let sign = if met { 1.0 } else { -1.0 };
        let mut weights = self.weights.chunks_exact_mut(self.points);
        for spread in SCALES {
            for (stray, _) in OUTLIER_RATES {
                for (point, weight) in weights.next().into_iter().flatten().enumerate() {
                    let knee = self.first + point as f64 * self.step;
                    let likelihood = 1.0 / (1.0 + (-sign * (knee - rate) / spread).exp());
                    *weight += (stray + (1.0 - 2.0 * stray) * likelihood).ln();
                }
            }
        }
        self.normalise();
    }

    /// Recalculates the probabilities from the weights.
    fn normalise(&mut self) {
        let max = self.weights.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        self.probabilities.clear();
        self.probabilities.resize(self.points, 0.0);
        for weights in self.weights.chunks_exact(self.points) {
            for (sum, weight) in self.probabilities.iter_mut().zip(weights) {
                *sum += (weight - max).exp();
            }
        }
        let sum: f64 = self.probabilities.iter().sum();
        self.probabilities.iter_mut().for_each(|probability| *probability /= sum);
    }

    /// Returns the rate below which the knee lies with the given probability.
    pub(super) fn quantile(&self, probability: f64) -> f64 {
        let mut below = 0.0;
        for (point, &here) in self.probabilities.iter().enumerate() {
            if below + here >= probability {
                // Each point represents the step around it.
                let part = if here > 0.0 { (probability - below) / here - 0.5 } else { 0.0 };
                let last = self.log_rate(self.points - 1);
                return (self.log_rate(point) + part * self.step).clamp(self.first, last).exp();
            }
            below += here;
        }
        self.log_rate(self.points - 1).exp()
    }

    /// Returns the probability that the knee lies in the first and in the last 5 % of the grid.
    pub(super) fn tails(&self) -> (f64, f64) {
        let part = self.points / 20;
        let below = self.probabilities[..part].iter().sum();
        let above = self.probabilities[self.points - part..].iter().sum();
        (below, above)
    }
}

#[cfg(test)]
mod tests {
    use super::Posterior;

    #[test]
    fn trials_narrow_the_distribution() {
        let mut posterior = Posterior::new(500.0, 4000.0, (1000.0, 2000.0), 0.02);
        let median = posterior.quantile(0.5);
        assert!((1300.0..1550.0).contains(&median), "{median}");
        for _ in 0..12 {
            posterior.update(1600.0, true);
            posterior.update(1650.0, false);
        }
        let [low, median, high] = [0.025, 0.5, 0.975].map(|at| posterior.quantile(at));
        assert!(low < median && median < high);
        assert!(
            (1590.0..1650.0).contains(&low) && (1600.0..1660.0).contains(&high),
            "{low} {high}"
        );
        // A single outlier has little effect.
        posterior.update(900.0, false);
        assert!((posterior.quantile(0.5) / median - 1.0).abs() < 0.01);
    }

    #[test]
    fn a_knee_beyond_the_grid_is_in_a_tail() {
        let mut posterior = Posterior::new(500.0, 4000.0, (1000.0, 2000.0), 0.02);
        (0..8).for_each(|_| posterior.update(4000.0, true));
        let (below, above) = posterior.tails();
        assert!(above > 0.5 && below < 0.1, "{below} {above}");
    }
}
