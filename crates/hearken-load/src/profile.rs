//! Rate profiles: constant rates, ramps and steps.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

/// Maximum rate per second.
const MAX_RATE: f64 = 1e9;
/// Maximum length of all pieces except the last, in seconds: ten years.
const MAX_PIECE_SECONDS: f64 = 315_360_000.0;
/// Maximum number of pieces.
const MAX_PIECES: usize = 10_000;
/// Minimum length of an interval of the report that is derived from steps.
const MIN_INTERVAL: Duration = Duration::from_millis(10);

/// An arrival rate over time. It consists of pieces with a constant or linearly changing rate. The
/// last rate continues until the run ends.
///
/// ```
/// use hearken_load::Profile;
/// use std::time::Duration;
///
/// let ramp: Profile = "1000..20000@60s".parse()?;
/// assert_eq!(ramp.length(), Some(Duration::from_secs(60)));
/// assert_eq!(ramp.arrivals_within(Duration::from_secs(60)), 630_000.0);
/// let steps: Profile = "100@5s,200@5s,400".parse()?;
/// assert_eq!(steps.length(), None);
/// # Ok::<(), hearken_load::ProfileError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    pieces: Vec<Piece>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Piece {
    /// Arrivals per second at the start and at the end of the piece.
    pub(crate) from: f64,
    pub(crate) to: f64,
    /// Length in seconds; infinite if the piece lasts until the run ends.
    pub(crate) length: f64,
    /// Start of the piece in seconds, and number of expected arrivals before it.
    pub(crate) start: f64,
    arrivals_before: f64,
}

/// An error in the text of a profile.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// A rate is not a number within the range.
    #[error("invalid rate '{0}': expected a number from 0 to 1e9 per second, such as 1000 or 2.5k")]
    Rate(String),
    /// A length is not a duration.
    #[error("invalid duration '{0}': expected a time such as 500ms, 60s or 5m")]
    Length(String),
    /// A piece other than the last has no length.
    #[error(
        "missing duration in '{0}': expected RATE@TIME; only the last rate may omit its duration"
    )]
    MissingLength(String),
    /// A ramp has no length.
    #[error("missing duration of the ramp '{0}': expected FROM..TO@TIME")]
    Ramp(String),
    /// The profile has too many pieces.
    #[error("the profile has more than 10,000 pieces")]
    TooManyPieces,
    /// The text does not describe steps.
    #[error("invalid steps '{0}': expected RATE,RATE,...@TIME or FROM..TO/BY@TIME")]
    Steps(String),
}

impl Profile {
    /// Creates a profile with a constant rate. An invalid rate becomes zero.
    pub fn constant(rate: f64) -> Profile {
        let rate = if (0.0..=MAX_RATE).contains(&rate) { rate } else { 0.0 };
        Profile::from_pieces([(rate, rate, f64::INFINITY)])
    }

    /// Parses `RATE,RATE,...@TIME` or `FROM..TO/BY@TIME`: each rate lasts for that time.
    ///
    /// # Errors
    /// Returns the problem in the text.
    pub fn steps(text: &str) -> Result<Profile, ProfileError> {
        let wrong = || ProfileError::Steps(text.to_owned());
        let (rates, length) = text.split_once('@').ok_or_else(wrong)?;
        let length = time(length)?;
        let rates = match rates.split_once("..") {
            None => rates.split(',').map(rate).collect::<Result<Vec<_>, _>>()?,
            Some((from, rest)) => {
                let (to, by) = rest.split_once('/').ok_or_else(wrong)?;
                let (from, to, by) = (rate(from)?, rate(to)?, rate(by)?);
                let count = ((to - from).abs() / by + 1e-9).floor();
                if count.is_nan() || count >= MAX_PIECES as f64 {
                    return Err(ProfileError::TooManyPieces);
                }
                let by = by.copysign(to - from);
                (0..=count as u32).map(|step| from + by * f64::from(step)).collect()
            }
        };
        if rates.len() > MAX_PIECES {
            return Err(ProfileError::TooManyPieces);
        }
        Ok(Profile::from_pieces(rates.into_iter().map(|rate| (rate, rate, length))))
    }

    fn from_pieces(pieces: impl IntoIterator<Item = (f64, f64, f64)>) -> Profile {
        let (mut start, mut before) = (0.0, 0.0);
        let to_piece = |(from, to, length): (f64, f64, f64)| {
            let piece = Piece { from, to, length, start, arrivals_before: before };
            start += length;
            before = piece.expected_arrivals(length);
            piece
        };
        Profile { pieces: pieces.into_iter().map(to_piece).collect() }
    }

    /// Returns the length of the profile, or `None` if its last rate lasts as long as the run.
    pub fn length(&self) -> Option<Duration> {
        let last = self.pieces.last()?;
        Duration::try_from_secs_f64(last.start + last.length).ok()
    }

    /// Returns true if all rates are zero.
    pub fn is_zero(&self) -> bool {
        self.pieces.iter().all(|piece| piece.from == 0.0 && piece.to == 0.0)
    }

    /// Returns the expected number of arrivals before `time`. After the end of the profile its last
    /// rate continues.
    pub fn arrivals_within(&self, time: Duration) -> f64 {
        let time = time.as_secs_f64();
        let within = self.pieces.iter().rev().find(|piece| piece.start <= time);
        let last = self.pieces.last().is_some_and(|last| Some(last) == within);
        within.map_or(0.0, |piece| {
            let after = time - piece.start;
            if last && after > piece.length {
                piece.expected_arrivals(piece.length) + (after - piece.length) * piece.to
            } else {
                piece.expected_arrivals(after)
            }
        })
    }

    /// Returns the rate at a time.
    pub fn rate_at(&self, time: Duration) -> f64 {
        let time = time.as_secs_f64();
        let within = self.pieces.iter().rev().find(|piece| piece.start <= time);
        within.map_or(0.0, |piece| piece.rate_after(time - piece.start))
    }

    /// Returns true if there is only one rate.
    pub(crate) fn is_constant(&self) -> bool {
        self.pieces.windows(2).all(|pair| pair[0].to == pair[1].from)
            && self.pieces.iter().all(|piece| piece.from == piece.to)
    }

    pub(crate) fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Returns the index of the piece at a time in seconds.
    pub(crate) fn index_at(&self, time: f64) -> usize {
        self.pieces.partition_point(|piece| piece.start <= time).saturating_sub(1)
    }

    /// Returns the longest interval up to `max` that divides the shortest step into equal parts, so
    /// that intervals do not span steps of the same length. Returns `max` if there is one piece, or
    /// if the interval would be shorter than [`MIN_INTERVAL`].
    pub(crate) fn interval_within_steps(&self, max: Duration) -> Duration {
        let shortest = self.pieces.iter().map(|piece| piece.length).fold(f64::INFINITY, f64::min);
        // Tolerate rounding of lengths such as 0.3 s.
        let count = (shortest / max.as_secs_f64() - 1e-9).ceil().max(1.0);
        match Duration::try_from_secs_f64(shortest / count) {
            Ok(interval) if self.pieces.len() > 1 && interval >= MIN_INTERVAL => interval.min(max),
            _ => max,
        }
    }

    /// Creates the inverse function, which returns arrival times.
    pub(crate) fn arrival_times(&self) -> ArrivalTimes {
        ArrivalTimes { profile: self.clone(), piece: 0 }
    }
}

impl Piece {
    pub(crate) fn rate_after(&self, seconds: f64) -> f64 {
        if self.from == self.to {
            return self.from;
        }
        self.from + (self.to - self.from) * (seconds / self.length).min(1.0)
    }

    /// Returns the expected number of arrivals from the start of the profile until `seconds` into
    /// this piece.
    fn expected_arrivals(&self, seconds: f64) -> f64 {
        if self.from == self.to {
            // Avoid infinity times zero.
            let added = if self.from == 0.0 { 0.0 } else { seconds * self.from };
            return self.arrivals_before + added;
        }
        self.arrivals_before + seconds * (self.from + self.rate_after(seconds)) / 2.0
    }

    /// Returns the time within this piece, in seconds, by which `more` arrivals are expected in it,
    /// if there is one.
    fn seconds_until(&self, more: f64) -> Option<f64> {
        let slope = if self.from == self.to { 0.0 } else { (self.to - self.from) / self.length };
        // The smaller root, in the form that loses no digits where the slope is small.
        let root = (self.from * self.from + 2.0 * slope * more).sqrt();
        let seconds = if slope == 0.0 { more / self.from } else { 2.0 * more / (self.from + root) };
        let seconds = if more <= 0.0 { 0.0 } else { seconds };
        (seconds <= self.length).then_some(seconds)
    }
}

/// The inverse of the expected number of arrivals, for non-decreasing arguments.
#[derive(Debug)]
pub(crate) struct ArrivalTimes {
    profile: Profile,
    piece: usize,
}

impl ArrivalTimes {
    /// Returns the number of expected arrivals until `time`.
    pub(crate) fn arrivals_within(&self, time: Duration) -> f64 {
        self.profile.arrivals_within(time)
    }

    /// Returns the time in seconds by which `arrivals` arrivals are expected, or `None` if there
    /// are never as many.
    pub(crate) fn time_of(&mut self, arrivals: f64) -> Option<f64> {
        loop {
            let piece = self.profile.pieces.get(self.piece)?;
            if let Some(seconds) = piece.seconds_until(arrivals - piece.arrivals_before) {
                return Some(piece.start + seconds);
            }
            match self.profile.pieces.get(self.piece + 1) {
                Some(_) => self.piece += 1,
                None => {
                    // The last rate continues.
                    let left = arrivals - piece.expected_arrivals(piece.length);
                    let after = left.max(0.0) / piece.to;
                    return (piece.length.is_finite() && after.is_finite())
                        .then_some(piece.start + piece.length + after);
                }
            }
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, piece) in self.pieces.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            write!(f, "{}", piece.from)?;
            if piece.from != piece.to {
                write!(f, "..{}", piece.to)?;
            }
            if piece.length.is_finite() {
                write!(f, "@{}s", piece.length)?;
            }
        }
        Ok(())
    }
}

impl FromStr for Profile {
    type Err = ProfileError;

    fn from_str(text: &str) -> Result<Profile, ProfileError> {
        let parts: Vec<_> = text.split(',').collect();
        if parts.len() > MAX_PIECES {
            return Err(ProfileError::TooManyPieces);
        }
        let mut pieces = Vec::new();
        for (index, part) in parts.iter().enumerate() {
            let (rates, length) = match part.split_once('@') {
                Some((rates, length)) => (rates, Some(time(length)?)),
                None => (*part, None),
            };
            let (from, to) = match rates.split_once("..") {
                Some((from, to)) => (rate(from)?, rate(to)?),
                None => (rate(rates)?, rate(rates)?),
            };
            let length = match length {
                Some(length) => length,
                None if from != to => return Err(ProfileError::Ramp((*part).to_owned())),
                None if index + 1 < parts.len() => {
                    return Err(ProfileError::MissingLength((*part).to_owned()));
                }
                None => f64::INFINITY,
            };
            pieces.push((from, to, length));
        }
        Ok(Profile::from_pieces(pieces))
    }
}

/// Parses a rate, optionally in thousands or millions.
fn rate(text: &str) -> Result<f64, ProfileError> {
    let wrong = || ProfileError::Rate(text.to_owned());
    let (digits, factor) = match text.trim() {
        thousands if thousands.ends_with(['k', 'K']) => (&thousands[..thousands.len() - 1], 1e3),
        millions if millions.ends_with('M') => (&millions[..millions.len() - 1], 1e6),
        ones => (ones, 1.0),
    };
    let rate = digits.parse::<f64>().map_err(|_| wrong())? * factor;
    if (0.0..=MAX_RATE).contains(&rate) { Ok(rate.abs()) } else { Err(wrong()) }
}

/// Parses a duration in seconds.
fn time(text: &str) -> Result<f64, ProfileError> {
    let wrong = || ProfileError::Length(text.to_owned());
    let (digits, factor) = ["ms", "us", "s", "m", "h"]
        .into_iter()
        .find_map(|unit| Some((text.strip_suffix(unit)?, unit)))
        .map(|(digits, unit)| {
            let factor = match unit {
                "us" => 1e-6,
                "ms" => 1e-3,
                "m" => 60.0,
                "h" => 3600.0,
                _ => 1.0,
            };
            (digits, factor)
        })
        .ok_or_else(wrong)?;
    let seconds = digits.parse::<f64>().map_err(|_| wrong())? * factor;
    // Unlike `> MAX_PIECE_SECONDS`, this also rejects NaN.
    if seconds > 0.0 && seconds <= MAX_PIECE_SECONDS { Ok(seconds) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::{Profile, ProfileError};

    #[test]
    fn rejects_invalid_profiles() {
        let wrong = |text: &str| text.parse::<Profile>().unwrap_err();
        for text in ["", "x", "-1", "nan", "inf", "2e9", "1000..", "..5@1s", "1,,2"] {
            let error = wrong(text);
            assert!(
                matches!(error, ProfileError::Rate(_) | ProfileError::MissingLength(_)),
                "{text}"
            );
        }
        for text in ["1@", "1@5", "1@0s", "1@-1s", "1@nans", "1@infs", "1@1e99h", "1@é"] {
            assert!(matches!(wrong(text), ProfileError::Length(_)), "{text}");
        }
        assert_eq!(wrong("1..2"), ProfileError::Ramp("1..2".to_owned()));
        assert_eq!(wrong("1,2@1s"), ProfileError::MissingLength("1".to_owned()));
        assert_eq!(wrong(&"1@1s,".repeat(20_000)), ProfileError::TooManyPieces);
        for text in ["", "1", "1..2@1s", "1..2/0@1s", "1..1e9/1@1s", "a@1s"] {
            assert!(Profile::steps(text).is_err(), "{text}");
        }
    }

    #[test]
    fn parses_steps() {
        let steps = Profile::steps("100..300/100@2s").unwrap();
        assert_eq!(steps, "100@2s,200@2s,300@2s".parse().unwrap());
        assert_eq!(Profile::steps("1k,500@1m").unwrap(), "1000@60s,500@60s".parse().unwrap());
        assert_eq!(Profile::steps("3..1/1@1s").unwrap(), "3@1s,2@1s,1@1s".parse().unwrap());
        assert_eq!(steps.rate_at(Duration::from_secs(3)), 200.0);
    }

    #[test]
    fn intervals_divide_the_shortest_step() {
        let within = |profile: &str, max: u64| {
            let profile: Profile = profile.parse().unwrap();
            profile.interval_within_steps(Duration::from_millis(max)).as_millis()
        };
        assert_eq!(within("1@10s,2@10s", 1000), 1000);
        assert_eq!(within("1@500ms,2@500ms", 1000), 500);
        assert_eq!(within("1@3s,2@2.4s,5", 1000), 800);
        assert_eq!(within("1@300ms,2@300ms", 100), 100);
        assert_eq!(within("1@1ms,2@1ms", 1000), 1000);
        for one_piece in ["5", "1..2@500ms", "5@1s"] {
            assert_eq!(within(one_piece, 1000), 1000);
        }
    }

    fn profile() -> impl Strategy<Value = Profile> {
        let piece = (0..1000u32, 0..1000u32, 1..100u32, any::<bool>());
        prop::collection::vec(piece, 1..8).prop_map(|pieces| {
            Profile::from_pieces(pieces.into_iter().map(|(from, to, tenths, level)| {
                let to = if level { from } else { to };
                (f64::from(from), f64::from(to), f64::from(tenths) / 10.0)
            }))
        })
    }

    proptest! {
        #[test]
        fn display_and_parse_round_trip(profile in profile()) {
            let again: Profile = profile.to_string().parse().unwrap();
            prop_assert_eq!(again, profile);
        }

        #[test]
        fn never_panics(text in ".*", close in "[0-9.,@smk/-]*") {
            let _ = (text.parse::<Profile>(), close.parse::<Profile>());
            let _ = (Profile::steps(&text), Profile::steps(&close));
        }

        /// Checks that the time of a number of arrivals and the number of arrivals at a time are
        /// inverse functions.
        #[test]
        fn arrival_times_invert_expected_arrivals(profile in profile(), many in 1..200usize) {
            let length = profile.length().unwrap();
            let total = profile.arrivals_within(length);
            let mut clock = profile.arrival_times();
            let mut last = 0.0;
            for number in 0..many {
                let arrivals = total * number as f64 / many as f64;
                let Some(at) = clock.time_of(arrivals) else {
                    prop_assert_eq!(total, 0.0);
                    break;
                };
                prop_assert!(at >= last);
                last = at;
                let back = profile.arrivals_within(Duration::from_secs_f64(at));
                prop_assert!((back - arrivals).abs() <= 1e-6 * total.max(1.0), "{back} {arrivals}");
            }
        }
    }
}
