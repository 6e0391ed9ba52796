//! How long something takes: think times, how long connections live.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::as_text::as_text;

/// No sample is longer, and no parameter.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// A distribution of times, as text: `5s`, `exp:5s`, `uniform:1s..5s`, `lognormal:5s,1.2` or
/// `pareto:1s,1.5`. No sample is longer than a day.
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
    /// Always the same.
    Constant(Duration),
    /// Exponential.
    Exponential {
        /// Its mean.
        mean: Duration,
    },
    /// Each time between two is as likely.
    Uniform {
        /// The shortest.
        min: Duration,
        /// The longest.
        max: Duration,
    },
    /// Log-normal: the logarithm is normal.
    Lognormal {
        /// Half of the samples are shorter.
        median: Duration,
        /// The standard deviation of the natural logarithm.
        sigma: f64,
    },
    /// Pareto: few are very long.
    Pareto {
        /// The shortest.
        min: Duration,
        /// The smaller, the heavier the tail; at 1 and below there is no mean but for the bound.
        alpha: f64,
    },
}

impl Distribution {
    /// Draws one.
    pub fn sample(&self, random: &mut fastrand::Rng) -> Duration {
        let nanos = |time: Duration| time.as_nanos() as f64;
        // Never 0, so that its logarithm and its powers are finite.
        let mut unit = || 1.0 - random.f64();
        let drawn = match *self {
            Distribution::Constant(time) => return time.min(LONGEST),
            Distribution::Exponential { mean } => nanos(mean) * -unit().ln(),
            Distribution::Uniform { min, max } => {
                nanos(min) + (nanos(max) - nanos(min)) * (1.0 - unit())
            }
            Distribution::Lognormal { median, sigma } => {
                // Box and Muller.
                let normal = (-2.0 * unit().ln()).sqrt() * (std::f64::consts::TAU * unit()).cos();
                nanos(median) * (sigma * normal).exp()
            }
            Distribution::Pareto { min, alpha } => nanos(min) * unit().powf(-alpha.recip()),
        };
        // What is not a number becomes 0 here.
        Duration::from_nanos(drawn.min(nanos(LONGEST)) as u64)
    }
}

impl FromStr for Distribution {
    type Err = String;

    fn from_str(text: &str) -> Result<Distribution, String> {
        let of = |separator: &str, form: &str| {
            let given = text.split_once(':').and_then(|(_, rest)| rest.split_once(separator));
            given.ok_or_else(|| format!("\"{text}\" lacks a part; write {form}"))
        };
        Ok(match text.split_once(':') {
            None => Distribution::Constant(time(text)?),
            Some(("exp", mean)) => Distribution::Exponential { mean: time(mean)? },
            Some(("uniform", _)) => {
                let (min, max) = of("..", "uniform:1s..5s")?;
                let (min, max) = (time(min)?, time(max)?);
                if min > max {
                    return Err(format!("\"{text}\" ends before it begins"));
                }
                Distribution::Uniform { min, max }
            }
            Some(("lognormal", _)) => {
                let (median, sigma) = of(",", "lognormal:MEDIAN,SIGMA, as lognormal:5s,1.2")?;
                let sigma = number(sigma, 0.0, 10.0)?;
                Distribution::Lognormal { median: time(median)?, sigma }
            }
            Some(("pareto", _)) => {
                let (min, alpha) = of(",", "pareto:MIN,ALPHA, as pareto:1s,1.5")?;
                Distribution::Pareto { min: time(min)?, alpha: number(alpha, 0.01, 1000.0)? }
            }
            Some((name, _)) => {
                return Err(format!(
                    "unknown distribution \"{name}\" (known are exp, uniform, lognormal, pareto, \
                     or a time alone)"
                ));
            }
        })
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Distribution::Constant(time) => write!(f, "{}", Shown(time)),
            Distribution::Exponential { mean } => write!(f, "exp:{}", Shown(mean)),
            Distribution::Uniform { min, max } => {
                write!(f, "uniform:{}..{}", Shown(min), Shown(max))
            }
            Distribution::Lognormal { median, sigma } => {
                write!(f, "lognormal:{},{sigma}", Shown(median))
            }
            Distribution::Pareto { min, alpha } => write!(f, "pareto:{},{alpha}", Shown(min)),
        }
    }
}

as_text!(Distribution);

const UNITS: [(&str, u64); 7] = [
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// A number of seconds, or one with a unit.
fn time(text: &str) -> Result<Duration, String> {
    let at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(at);
    let &(_, unit) = UNITS
        .iter()
        .find(|(name, _)| *name == unit)
        .ok_or_else(|| format!("unknown unit \"{unit}\" (known are us, ms, s, m, h)"))?;
    let nanos = match digits.parse::<u64>() {
        Ok(whole) => whole.checked_mul(unit),
        Err(_) => {
            let number: f64 = digits.parse().map_err(|_| format!("\"{text}\" is not a time"))?;
            Some(number * unit as f64).filter(|&nanos| nanos >= 0.0).map(|nanos| nanos as u64)
        }
    };
    nanos
        .map(Duration::from_nanos)
        .filter(|&time| time <= LONGEST)
        .ok_or_else(|| format!("\"{text}\" is no time from 0 to 24h"))
}

fn number(text: &str, min: f64, max: f64) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|number| (min..=max).contains(number))
        .ok_or_else(|| format!("\"{text}\" is no number from {min} to {max}"))
}

/// A time in the largest unit of which it is a whole number.
struct Shown(Duration);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        let known = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)];
        let (unit, size) =
            known.into_iter().find(|(_, size)| nanos.is_multiple_of(*size)).unwrap_or(("ns", 1));
        write!(f, "{}{unit}", nanos / size)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::{Distribution, LONGEST};

    fn parse(text: &str) -> Distribution {
        text.parse().unwrap()
    }

    #[test]
    fn reads_what_it_should() {
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

    /// Means, with bounds six standard errors wide.
    #[test]
    fn means() {
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
    fn the_median_is_the_median() {
        let mut random = fastrand::Rng::with_seed(1);
        let distribution = parse("lognormal:2s,3");
        let below = (0..100_000)
            .filter(|_| distribution.sample(&mut random) < Duration::from_secs(2))
            .count() as f64;
        // Six standard deviations of a binomial.
        assert!((below - 50_000.0).abs() < 6.0 * 25_000f64.sqrt(), "{below}");
    }

    fn anything() -> impl Strategy<Value = Distribution> {
        let time = || (0..=LONGEST.as_nanos() as u64).prop_map(Duration::from_nanos);
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
        fn what_is_shown_can_be_read(distribution in anything()) {
            prop_assert_eq!(parse(&distribution.to_string()), distribution);
            let json = serde_json::to_string(&distribution).unwrap();
            prop_assert_eq!(serde_json::from_str::<Distribution>(&json).unwrap(), distribution);
        }

        #[test]
        fn samples_are_bounded(distribution in anything(), seed in any::<u64>()) {
            let mut random = fastrand::Rng::with_seed(seed);
            for _ in 0..100 {
                let time = distribution.sample(&mut random);
                prop_assert!(time <= LONGEST);
                match distribution {
                    Distribution::Uniform { min, max } => {
                        // A sample is a floating-point number of nanoseconds first.
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
        fn never_panics(text in "((exp|uniform|lognormal|pareto):)?[0-9.,msh:-]*|.*") {
            let _ = text.parse::<Distribution>();
        }
    }
}
