//! Numbers of requests per connection.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use super::serde_str::impl_serde_str;

/// A number of at least 1, or a uniform distribution over a range: `5` or `5..15`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Count {
    min: NonZeroU32,
    max: NonZeroU32,
}

impl Count {
    /// Maximum number.
    pub const MAX: Count = Count { min: NonZeroU32::MAX, max: NonZeroU32::MAX };

    /// Creates a constant number.
    pub fn exactly(count: NonZeroU32) -> Count {
        Count { min: count, max: count }
    }

    /// Creates a uniform distribution over the range between two numbers, inclusive.
    pub fn between(a: NonZeroU32, b: NonZeroU32) -> Count {
        Count { min: a.min(b), max: a.max(b) }
    }

    /// Draws a sample.
    pub fn sample(&self, random: &mut fastrand::Rng) -> NonZeroU32 {
        if self.min == self.max {
            return self.min;
        }
        NonZeroU32::new(random.u32(self.min.get()..=self.max.get())).unwrap_or(self.min)
    }

    /// Returns the mean.
    pub fn mean(&self) -> f64 {
        f64::midpoint(self.min.get().into(), self.max.get().into())
    }
}

impl FromStr for Count {
    type Err = String;

    fn from_str(text: &str) -> Result<Count, String> {
        let number = |part: &str| {
            part.parse::<NonZeroU32>().map_err(|_| {
                format!("invalid number '{part}': expected 1 to {}, as in '5' or '5..15'", u32::MAX)
            })
        };
        let (min, max) = text.split_once("..").unwrap_or((text, text));
        let (min, max) = (number(min)?, number(max)?);
        if min > max {
            return Err(format!("invalid range '{text}': the minimum exceeds the maximum"));
        }
        Ok(Count { min, max })
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.min == self.max {
            true => write!(f, "{}", self.min),
            false => write!(f, "{}..{}", self.min, self.max),
        }
    }
}

impl_serde_str!(Count);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Count;

    #[test]
    fn rejects_invalid_counts() {
        for text in ["", "0", "-1", "1.5", "5..", "..5", "9..5", "0..5", "4294967296", "1..2..3"] {
            assert!(text.parse::<Count>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn samples_stay_within_the_range(a in 1..=u32::MAX, b in 1..=u32::MAX, seed in any::<u64>()) {
            let (min, max) = (a.min(b), a.max(b));
            let count: Count = format!("{min}..{max}").parse().unwrap();
            prop_assert_eq!(count.to_string().parse(), Ok(count));
            let sample = count.sample(&mut fastrand::Rng::with_seed(seed)).get();
            prop_assert!((min..=max).contains(&sample));
        }
    }

    // A uniform distribution over n values has the variance (n² - 1) / 12. The limit is six standard errors.
    #[test]
    fn samples_have_the_specified_mean() {
        let count: Count = "5..15".parse().unwrap();
        let mut random = fastrand::Rng::with_seed(1);
        let sum: u32 = (0..100_000).map(|_| count.sample(&mut random).get()).sum();
        assert!((f64::from(sum) / 1e5 - count.mean()).abs() < 6.0 * (10.0 / 1e5f64).sqrt());
    }
}
