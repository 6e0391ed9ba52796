//! How many: requests on a connection.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use super::as_text::as_text;

/// A number of at least 1, or any between two, each as likely: `5` or `5..15`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Count {
    min: NonZeroU32,
    max: NonZeroU32,
}

impl Count {
    /// As many as can be.
    pub const MOST: Count = Count { min: NonZeroU32::MAX, max: NonZeroU32::MAX };

    /// Always `count`.
    pub fn exactly(count: NonZeroU32) -> Count {
        Count { min: count, max: count }
    }

    /// From the smaller to the larger of the two, both included.
    pub fn between(one: NonZeroU32, other: NonZeroU32) -> Count {
        Count { min: one.min(other), max: one.max(other) }
    }

    /// Draws one.
    pub fn sample(&self, random: &mut fastrand::Rng) -> NonZeroU32 {
        if self.min == self.max {
            return self.min;
        }
        NonZeroU32::new(random.u32(self.min.get()..=self.max.get())).unwrap_or(self.min)
    }

    /// On average.
    pub fn mean(&self) -> f64 {
        f64::midpoint(self.min.get().into(), self.max.get().into())
    }
}

impl FromStr for Count {
    type Err = String;

    fn from_str(text: &str) -> Result<Count, String> {
        let number = |part: &str| {
            part.parse::<NonZeroU32>().map_err(|_| {
                format!("\"{part}\" is no number from 1 to {}; write 5 or 5..15", u32::MAX)
            })
        };
        let (min, max) = text.split_once("..").unwrap_or((text, text));
        let (min, max) = (number(min)?, number(max)?);
        if min > max {
            return Err(format!("\"{text}\" ends before it begins"));
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

as_text!(Count);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Count;

    #[test]
    fn refuses_what_is_none() {
        for text in ["", "0", "-1", "1.5", "5..", "..5", "9..5", "0..5", "4294967296", "1..2..3"] {
            assert!(text.parse::<Count>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn stays_within(a in 1..=u32::MAX, b in 1..=u32::MAX, seed in any::<u64>()) {
            let (min, max) = (a.min(b), a.max(b));
            let count: Count = format!("{min}..{max}").parse().unwrap();
            prop_assert_eq!(count.to_string().parse(), Ok(count));
            let drawn = count.sample(&mut fastrand::Rng::with_seed(seed)).get();
            prop_assert!((min..=max).contains(&drawn));
        }
    }

    /// The mean of `n` has the variance (n² - 1) / 12; the bound is six standard errors wide.
    #[test]
    fn the_mean() {
        let count: Count = "5..15".parse().unwrap();
        let mut random = fastrand::Rng::with_seed(1);
        let sum: u32 = (0..100_000).map(|_| count.sample(&mut random).get()).sum();
        assert!((f64::from(sum) / 1e5 - count.mean()).abs() < 6.0 * (10.0 / 1e5f64).sqrt());
    }
}
