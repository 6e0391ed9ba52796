//! Distributions of durations, such as think times and connection lifetimes.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::serde_str::impl_serde_str;

/// Maximum duration of samples and parameters.
const MAX_DURATION: Duration = Duration::from_secs(24 * 60 * 60);

/// A distribution of durations, as text: `5s`, `exp:5s`, `uniform:1s..5s`, `lognormal:5s,1.2` or
/// `pareto:1s,1.5`. Samples are limited to one day.
///
/// ```
/// use hearken_load::Distribution;
///
/// let think: Distribution = "uniform:1s..5s".parse()?;
/// assert!(think.sample(&mut fastrand::Rng::new()).as_secs_f64() >= 1.0);
/// assert_eq!(think.to_string(), "uniform:1s..5s");
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub enum Distribution {
    /// Constant duration.
    Constant(Duration),
    /// Exponential distribution.
    Exponential {
        /// Mean.
        mean: Duration,
    },
    /// Uniform distribution.
    Uniform {
        /// Minimum.
        min: Duration,
        /// Maximum.
        max: Duration,
    },
    /// Log-normal distribution.
    Lognormal {
        /// Median.
        median: Duration,
        /// Standard deviation of the natural logarithm.
        sigma: f64,
    },
    /// Pareto distribution, which has a heavy tail.
    Pareto {
        /// Minimum.
        min: Duration,
        /// Shape. Smaller values have a heavier tail. Without the limit, there is no mean for values up to 1.
        alpha: f64,
    },
}

impl Distribution {
    /// Draws a sample.
    pub fn sample(&self, random: &mut fastrand::Rng) -> Duration {
        let nanos = |time: Duration| time.as_nanos() as f64;
        // Never 0, so that the logarithm and powers are finite.
        let mut unit = || 1.0 - random.f64();
        let nanoseconds = match *self {
            Distribution::Constant(time) => return time.min(MAX_DURATION),
            Distribution::Exponential { mean } => nanos(mean) * -unit().ln(),
            Distribution::Uniform { min, max } => {
                nanos(min) + (nanos(max) - nanos(min)) * (1.0 - unit())
            }
            Distribution::Lognormal { median, sigma } => {
                // Box-Muller transform.
                let normal = (-2.0 * unit().ln()).sqrt() * (std::f64::consts::TAU * unit()).cos();
                nanos(median) * (sigma * normal).exp()
            }
            Distribution::Pareto { min, alpha } => nanos(min) * unit().powf(-alpha.recip()),
        };
        // The conversion maps NaN to 0.
        Duration::from_nanos(nanoseconds.min(nanos(MAX_DURATION)) as u64)
    }
}

impl FromStr for Distribution {
    type Err = String;

    fn from_str(text: &str) -> Result<Distribution, String> {
        let split = |separator: &str, form: &str| {
            let parts = text.split_once(':').and_then(|(_, rest)| rest.split_once(separator));
            parts.ok_or_else(|| format!("incomplete distribution '{text}': expected {form}"))
        };
        Ok(match text.split_once(':') {
            None => Distribution::Constant(parse_duration(text)?),
            Some(("exp", mean)) => Distribution::Exponential { mean: parse_duration(mean)? },
            Some(("uniform", _)) => {
                let (min, max) = split("..", "'uniform:MIN..MAX', as in 'uniform:1s..5s'")?;
                let (min, max) = (parse_duration(min)?, parse_duration(max)?);
                if min > max {
                    return Err(format!("invalid range '{text}': the minimum exceeds the maximum"));
                }
                Distribution::Uniform { min, max }
            }
            Some(("lognormal", _)) => {
                let (median, sigma) =
                    split(",", "'lognormal:MEDIAN,SIGMA', as in 'lognormal:5s,1.2'")?;
                let sigma = parse_number(sigma, 0.0, 10.0)?;
                Distribution::Lognormal { median: parse_duration(median)?, sigma }
            }
            Some(("pareto", _)) => {
                let (min, alpha) = split(",", "'pareto:MIN,ALPHA', as in 'pareto:1s,1.5'")?;
                Distribution::Pareto {
                    min: parse_duration(min)?,
                    alpha: parse_number(alpha, 0.01, 1000.0)?,
                }
            }
            Some((name, _)) => {
                return Err(format!(
                    "unknown distribution '{name}': expected 'exp', 'uniform', 'lognormal', 'pareto' \
                     or a duration"
                ));
            }
        })
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Distribution::Constant(time) => write!(f, "{}", DisplayDuration(time)),
            Distribution::Exponential { mean } => write!(f, "exp:{}", DisplayDuration(mean)),
            Distribution::Uniform { min, max } => {
                write!(f, "uniform:{}..{}", DisplayDuration(min), DisplayDuration(max))
            }
            Distribution::Lognormal { median, sigma } => {
                write!(f, "lognormal:{},{sigma}", DisplayDuration(median))
            }
            Distribution::Pareto { min, alpha } => {
                write!(f, "pareto:{},{alpha}", DisplayDuration(min))
            }
        }
    }
}

impl_serde_str!(Distribution);

const UNITS: [(&str, u64); 7] = [
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Parses a number of seconds, or a number with a unit.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(at);
    let &(_, unit) = UNITS
        .iter()
        .find(|(name, _)| *name == unit)
        .ok_or_else(|| format!("unknown unit '{unit}': expected ns, us, ms, s, m or h"))?;
    let nanos = match digits.parse::<u64>() {
        Ok(number) => number.checked_mul(unit),
        Err(_) => {
            let number: f64 = digits.parse().map_err(|_| format!("invalid duration '{text}'"))?;
            Some(number * unit as f64).filter(|&nanos| nanos >= 0.0).map(|nanos| nanos as u64)
        }
    };
    nanos
        .map(Duration::from_nanos)
        .filter(|&time| time <= MAX_DURATION)
        .ok_or_else(|| format!("invalid duration '{text}': expected 0 to 24h"))
}

fn parse_number(text: &str, min: f64, max: f64) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|number| (min..=max).contains(number))
        .ok_or_else(|| format!("invalid number '{text}': expected {min} to {max}"))
}

/// A duration displayed as an integer in the largest possible unit.
struct DisplayDuration(Duration);

impl fmt::Display for DisplayDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        let units = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)];
        let (unit, size) =
            units.into_iter().find(|(_, size)| nanos.is_multiple_of(*size)).unwrap_or(("ns", 1));
        write!(f, "{}{unit}", nanos / size)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::{Distribution, MAX_DURATION};

    fn parse(text: &str) -> Distribution {
        text.parse().unwrap()
    }

    #[test]
    fn parses_only_valid_distributions() {
        assert_eq!(parse("5s"), Distribution::Constant(Duration::from_secs(5)));
        assert_eq!(parse("0.5"), Distribution::Constant(Duration::from_millis(500)));
        assert_eq!(
            parse("exp:250ms"),
            Distribution::Exponential { mean: Duration::from_millis(250) }
        );
        for text in [
            "",
            "5x",
            "-1s",
            "nan",
            "inf",
            "25h",
            "1e9h",
            "exp:",
            "exp",
            "normal:5s",
            "uniform:1s",
            "uniform:5s..1s",
            "lognormal:5s",
            "lognormal:5s,nan",
            "lognormal:5s,11",
            "pareto:1s,0",
            "pareto:1s,-1",
            "18446744073709551615h",
        ] {
            assert!(text.parse::<Distribution>().is_err(), "{text}");
        }
    }

    /// Means are within six standard errors.
    #[test]
    fn samples_have_the_specified_mean() {
        const COUNT: u32 = 200_000;
        for (text, mean, variance) in [
            ("2s", 2.0, 0.0),
            ("exp:2s", 2.0, 4.0),
            ("uniform:1s..5s", 3.0, 16.0 / 12.0),
            ("lognormal:2s,0.5", 2.0 * 0.125f64.exp(), 4.0 * 0.25f64.exp_m1() * 0.25f64.exp()),
            ("pareto:1s,5", 1.25, 5.0 / 48.0),
        ] {
            for seed in 0..5 {
                let mut random = fastrand::Rng::with_seed(seed);
                let distribution = parse(text);
                let sum: f64 =
                    (0..COUNT).map(|_| distribution.sample(&mut random).as_secs_f64()).sum();
                let off = (sum / f64::from(COUNT) - mean).abs();
                let bound: f64 = variance / f64::from(COUNT);
                assert!(off <= 6.0 * bound.sqrt() + 1e-6, "{text}: {off}");
            }
        }
    }

    #[test]
    fn lognormal_samples_have_the_specified_median() {
        let mut random = fastrand::Rng::with_seed(1);
        let distribution = parse("lognormal:2s,3");
        let below = (0..100_000)
            .filter(|_| distribution.sample(&mut random) < Duration::from_secs(2))
            .count() as f64;
        // Six standard deviations of a binomial distribution.
        assert!((below - 50_000.0).abs() < 6.0 * 25_000f64.sqrt(), "{below}");
    }

    fn any_distribution() -> impl Strategy<Value = Distribution> {
        let time = || (0..=MAX_DURATION.as_nanos() as u64).prop_map(Duration::from_nanos);
        prop_oneof![
            time().prop_map(Distribution::Constant),
            time().prop_map(|mean| Distribution::Exponential { mean }),
            (time(), time())
                .prop_map(|(a, b)| Distribution::Uniform { min: a.min(b), max: a.max(b) }),
            (time(), 0.0..=10.0)
                .prop_map(|(median, sigma)| Distribution::Lognormal { median, sigma }),
            (time(), 0.01..=1000.0).prop_map(|(min, alpha)| Distribution::Pareto { min, alpha }),
        ]
    }

    proptest! {
        #[test]
        fn formatting_and_parsing_round_trips(distribution in any_distribution()) {
            prop_assert_eq!(parse(&distribution.to_string()), distribution);
            let json = serde_json::to_string(&distribution).unwrap();
            prop_assert_eq!(serde_json::from_str::<Distribution>(&json).unwrap(), distribution);
        }

        #[test]
        fn samples_are_limited(distribution in any_distribution(), seed in any::<u64>()) {
            let mut random = fastrand::Rng::with_seed(seed);
            for _ in 0..100 {
                let time = distribution.sample(&mut random);
                prop_assert!(time <= MAX_DURATION);
                match distribution {
                    Distribution::Uniform { min, max } => {
                        // Samples are computed as floating-point nanoseconds.
                        let slack = Duration::from_nanos(1);
                        prop_assert!(time + slack >= min && time <= max + slack);
                    }
                    Distribution::Pareto { min, .. } => {
                        prop_assert!(time + Duration::from_nanos(1) >= min);
                    }
                    _ => {}
                }
            }
        }

        #[test]
        fn parsing_never_panics(text in "((exp|uniform|lognormal|pareto):)?[0-9.,msh:-]*|.*") {
            let _ = text.parse::<Distribution>();
        }
    }
}
