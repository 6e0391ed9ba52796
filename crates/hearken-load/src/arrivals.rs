//! When requests are made: an arrival process that nothing else can shift.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How requests arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrivals {
    /// Independent of each other, as from many clients: gaps are exponentially distributed.
    #[default]
    Poisson,
    /// Evenly spaced.
    Uniform,
}

impl fmt::Display for Arrivals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Arrivals::Poisson => "poisson",
            Arrivals::Uniform => "uniform",
        })
    }
}

/// The intended times of requests, as distances from the start; never decreasing. It has no
/// input but its seed, so no reply can move them.
#[derive(Debug)]
pub(crate) struct Schedule {
    arrivals: Arrivals,
    /// Nanoseconds between requests, on average.
    gap: f64,
    /// Of the next request: its number, and (Poisson) the time of the one before.
    number: u64,
    at: f64,
    random: fastrand::Rng,
}

impl Schedule {
    /// `rate` requests per second; none at all if it is 0.
    pub(crate) fn new(arrivals: Arrivals, rate: f64, seed: u64) -> Schedule {
        let random = fastrand::Rng::with_seed(seed);
        Schedule { arrivals, gap: 1e9 / rate, number: 0, at: 0.0, random }
    }
}

impl Iterator for Schedule {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        if !self.gap.is_finite() {
            return None;
        }
        let nanos = match self.arrivals {
            // Multiplied, not added up, so that no error adds up either.
            Arrivals::Uniform => self.number as f64 * self.gap,
            Arrivals::Poisson => {
                self.at -= (1.0 - self.random.f64()).ln() * self.gap;
                self.at
            }
        };
        self.number += 1;
        Some(Duration::from_nanos(nanos as u64))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Arrivals, Schedule};

    #[test]
    fn uniform_is_exact() {
        let at: Vec<_> = Schedule::new(Arrivals::Uniform, 4.0, 7).take(5).collect();
        assert_eq!(at, [0, 250, 500, 750, 1000].map(Duration::from_millis));
        // A million later there is still no drift.
        let far = Schedule::new(Arrivals::Uniform, 3.0, 7).nth(3_000_000).unwrap();
        assert_eq!(far, Duration::from_secs(1_000_000));
    }

    /// An exponential distribution has mean 1/R and standard deviation 1/R; the bounds are six
    /// standard errors wide.
    #[test]
    fn poisson_has_its_mean_and_variance() {
        const COUNT: usize = 100_000;
        for seed in 0..5 {
            let at: Vec<_> = Schedule::new(Arrivals::Poisson, 1000.0, seed).take(COUNT).collect();
            assert!(at.is_sorted());
            let gaps: Vec<_> =
                at.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64() * 1000.0).collect();
            let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
            let variance =
                gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
            let error = (COUNT as f64).sqrt().recip();
            assert!((mean - 1.0).abs() < 6.0 * error, "mean {mean}");
            // The fourth central moment is 9, so the variance's own deviation is sqrt(8/n).
            assert!((variance - 1.0).abs() < 6.0 * 8f64.sqrt() * error, "variance {variance}");
        }
    }

    #[test]
    fn the_seed_decides() {
        let times =
            |seed| Schedule::new(Arrivals::Poisson, 10.0, seed).take(50).collect::<Vec<_>>();
        assert_eq!(times(1), times(1));
        assert_ne!(times(1), times(2));
    }

    #[test]
    fn no_rate_no_requests() {
        assert_eq!(Schedule::new(Arrivals::Poisson, 0.0, 1).next(), None);
        assert_eq!(Schedule::new(Arrivals::Uniform, 0.0, 1).next(), None);
    }
}
