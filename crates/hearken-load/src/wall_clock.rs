//! Real time and the monotonic clock: when to begin, so that machines begin together.

use std::io;
use std::time::Duration;

use hearken::clock::discipline;
use hearken::timer::Time;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// How often the clocks are read. One reading in a few is interrupted, hardly all of them.
const READING_COUNT: usize = 32;

/// How far the real-time clock of a machine can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockState {
    /// Whether somebody keeps it right, as chrony or ntpd does.
    pub synchronised: bool,
    /// By how much it is wrong at most, in microseconds.
    pub max_error_us: u64,
    /// By how much it is probably wrong, in microseconds.
    pub estimated_error_us: u64,
}

impl ClockState {
    /// That of this machine, as the kernel tells it (adjtimex(2)).
    ///
    /// # Errors
    /// The system call is refused, as filters of containers do.
    pub fn read() -> io::Result<ClockState> {
        let state = discipline()?;
        Ok(ClockState {
            synchronised: state.synchronised,
            max_error_us: state.max_error_us,
            estimated_error_us: state.estimated_error_us,
        })
    }
}

/// Which real time it is at a point on the monotonic clock, as of when it was looked at: steps of the
/// real-time clock after that do not move what was planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockMapping {
    /// Real time less monotonic time, in nanoseconds.
    offset: i128,
    /// How long the reading took that this is from.
    window: Duration,
}

impl ClockMapping {
    /// Looks at both clocks.
    pub(crate) fn read() -> ClockMapping {
        ClockMapping::from_readings(Reading::take(), (1..READING_COUNT).map(|_| Reading::take()))
    }

    /// By the tightest of these readings.
    fn from_readings(first: Reading, others: impl Iterator<Item = Reading>) -> ClockMapping {
        let tighter = |a: Reading, b: Reading| if b.window() < a.window() { b } else { a };
        let tightest = others.fold(first, tighter);
        let window = tightest.window();
        let middle = tightest.before + window / 2;
        ClockMapping { offset: i128::from(tightest.real) - i128::from(middle.as_nanos()), window }
    }

    /// The instant at which it is so many nanoseconds after 1970. What is before this machine began,
    /// or after the end of time, is there.
    pub(crate) fn to_monotonic(&self, unix_ns: u64) -> Time {
        Time::from_nanos(saturate(i128::from(unix_ns) - self.offset))
    }

    /// How many nanoseconds after 1970 an instant is.
    pub(crate) fn to_unix_ns(&self, instant: Time) -> u64 {
        saturate(i128::from(instant.as_nanos()) + self.offset)
    }

    /// By how much this may be wrong, besides what the real-time clock is wrong by.
    pub(crate) fn uncertainty(&self) -> Duration {
        self.window / 2
    }
}

/// The real time, with the monotonic one just before and after.
#[derive(Clone, Copy, Debug)]
struct Reading {
    before: Time,
    /// In nanoseconds after 1970; negative before.
    real: i64,
    after: Time,
}

impl Reading {
    fn take() -> Reading {
        let before = Time::now();
        let now = clock_gettime(ClockId::Realtime);
        let real = now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec);
        Reading { before, real, after: Time::now() }
    }

    fn window(&self) -> Duration {
        self.after.since(self.before)
    }
}

fn saturate(nanos: i128) -> u64 {
    u64::try_from(nanos.max(0)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    use hearken::timer::Time;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::{ClockMapping, ClockState, Reading};

    #[test]
    fn the_present_is_between_two_looks_at_it() {
        let unix = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
        let mapping = ClockMapping::read();
        let slack = mapping.uncertainty().as_nanos() as u64 + 1000;
        let (before, now, after) = (unix(), Time::now(), unix());
        let told = mapping.to_unix_ns(now);
        // A clock that is slewed at 500 ppm moves by less than this since the mapping was read.
        let slack = slack + 1_000_000;
        assert!((before - slack..after + slack).contains(&told), "{before} {told} {after}");
        let soon = mapping.to_monotonic(told + 1_000_000_000);
        assert_eq!(soon.since(now), Duration::from_secs(1));
    }

    #[test]
    fn the_ends_of_time() {
        let at = |real| {
            let before = Time::from_nanos(5);
            ClockMapping::from_readings(Reading { before, real, after: before }, std::iter::empty())
        };
        assert_eq!(at(1000).to_monotonic(0), Time::from_nanos(0));
        assert_eq!(at(-1000).to_unix_ns(Time::from_nanos(0)), 0);
        assert_eq!(at(-1000).to_monotonic(u64::MAX), Time::from_nanos(u64::MAX));
        assert_eq!(at(i64::MAX).to_unix_ns(Time::from_nanos(u64::MAX)), u64::MAX);
    }

    #[test]
    fn it_is_json() {
        let state = ClockState { synchronised: true, max_error_us: 5000, estimated_error_us: 12 };
        let json = r#"{"synchronised":true,"max_error_us":5000,"estimated_error_us":12}"#;
        assert_eq!(serde_json::to_string(&state).unwrap(), json);
        assert_eq!(serde_json::from_str::<ClockState>(json).unwrap(), state);
    }

    proptest! {
        /// However readings are interrupted, the truth is within the uncertainty that is told.
        #[test]
        fn the_truth_is_within_the_uncertainty(
            offset in -1_000_000_000_000i64..4_000_000_000_000_000_000,
            starts in vec((1_000_000_000_000u64..2_000_000_000_000, 0..100_000u64, 0..100_000u64), 1..20),
            probe in 0..4_000_000_000_000u64,
        ) {
            let mut readings = starts.iter().map(|&(start, first, second)| Reading {
                before: Time::from_nanos(start),
                real: (start + first) as i64 + offset,
                after: Time::from_nanos(start + first + second),
            });
            let mapping = ClockMapping::from_readings(readings.next().unwrap(), readings);
            let tightest = starts.iter().map(|&(_, first, second)| first + second).min().unwrap();
            prop_assert_eq!(mapping.uncertainty(), Duration::from_nanos(tightest) / 2);
            let truth = i128::from(probe) + i128::from(offset);
            let told = mapping.to_unix_ns(Time::from_nanos(probe));
            let wrong = i128::from(told).abs_diff(truth.max(0));
            prop_assert!(wrong <= u128::from(tightest / 2 + 1), "{wrong} {tightest}");
            if truth > 1_000_000 {
                prop_assert_eq!(mapping.to_monotonic(told), Time::from_nanos(probe));
            }
        }
    }
}
