//! Mapping between the real-time clock and the monotonic clock, to start loads on several machines
//! at the same time.

use std::io;
use std::time::Duration;

use hearken::clock_sync::sync_status;
use hearken::timer::Time;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Number of clock readings. Some are interrupted, but hardly all.
const READING_COUNT: usize = 32;

/// The state of the real-time clock according to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ClockState {
    /// Whether the clock is synchronised, for instance by chrony or ntpd.
    pub synchronised: bool,
    /// Maximum error in microseconds.
    pub max_error_us: u64,
    /// Estimated error in microseconds.
    pub estimated_error_us: u64,
}

impl ClockState {
    /// Reads the clock state of this machine (adjtimex(2)).
    ///
    /// # Errors
    /// The system call fails, for instance because of a seccomp filter of a container.
    pub fn read() -> io::Result<ClockState> {
        let state = sync_status()?;
        Ok(ClockState {
            synchronised: state.synchronised,
            max_error_us: state.max_error_us,
            estimated_error_us: state.estimated_error_us,
        })
    }
}

/// The offset between real time and monotonic time at the time of reading. Later steps of the
/// real-time clock do not affect it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockMapping {
    /// Real time minus monotonic time, in nanoseconds.
    offset: i128,
    /// Duration of the reading that this mapping is derived from.
    window: Duration,
}

impl ClockMapping {
    /// Reads both clocks.
    pub(crate) fn read() -> ClockMapping {
        ClockMapping::from_readings(Reading::take(), (1..READING_COUNT).map(|_| Reading::take()))
    }

    /// Creates the mapping of a real time, as the time since 1970, to a monotonic time.
    #[cfg(feature = "simulation")]
    pub(crate) fn of_times(real: Duration, monotonic: Time) -> ClockMapping {
        let real = i128::try_from(real.as_nanos()).unwrap_or(i128::MAX);
        ClockMapping { offset: real - i128::from(monotonic.as_nanos()), window: Duration::ZERO }
    }

    /// Creates the mapping from the shortest reading.
    fn from_readings(first: Reading, others: impl Iterator<Item = Reading>) -> ClockMapping {
        let tighter = |a: Reading, b: Reading| if b.window() < a.window() { b } else { a };
        let tightest = others.fold(first, tighter);
        let window = tightest.window();
        let middle = tightest.before + window / 2;
        ClockMapping { offset: i128::from(tightest.real) - i128::from(middle.as_nanos()), window }
    }

    /// Returns the monotonic time of a time in nanoseconds since 1970. Times outside the range of
    /// the monotonic clock are clamped.
    pub(crate) fn to_monotonic(self, unix_ns: u64) -> Time {
        Time::from_nanos(saturate(i128::from(unix_ns) - self.offset))
    }

    /// Returns a monotonic time in nanoseconds since 1970.
    pub(crate) fn to_unix_ns(self, instant: Time) -> u64 {
        saturate(i128::from(instant.as_nanos()) + self.offset)
    }

    /// Returns the maximum error of the mapping, in addition to the error of the real-time clock.
    pub(crate) fn uncertainty(&self) -> Duration {
        self.window / 2
    }
}

/// A reading of the real-time clock, with the monotonic time directly before and after.
#[derive(Clone, Copy, Debug)]
struct Reading {
    before: Time,
    /// Real time in nanoseconds since 1970. Negative before 1970.
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
        self.after.duration_since(self.before)
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
    fn the_mapping_matches_the_real_time_clock() {
        let unix = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
        let mapping = ClockMapping::read();
        let slack = mapping.uncertainty().as_nanos() as u64 + 1000;
        let (before, now, after) = (unix(), Time::now(), unix());
        let mapped = mapping.to_unix_ns(now);
        // A clock slewed at 500 ppm drifts by less than this since the mapping was read.
        let slack = slack + 1_000_000;
        assert!((before - slack..after + slack).contains(&mapped), "{before} {mapped} {after}");
        let soon = mapping.to_monotonic(mapped + 1_000_000_000);
        assert_eq!(soon.duration_since(now), Duration::from_secs(1));
    }

    #[test]
    fn out_of_range_times_are_clamped() {
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
    fn clock_state_round_trips_through_json() {
        let state = ClockState { synchronised: true, max_error_us: 5000, estimated_error_us: 12 };
        let json = r#"{"synchronised":true,"max_error_us":5000,"estimated_error_us":12}"#;
        assert_eq!(serde_json::to_string(&state).unwrap(), json);
        assert_eq!(serde_json::from_str::<ClockState>(json).unwrap(), state);
    }

    proptest! {
        /// Checks that the error is within the reported uncertainty for all interruptions of the
        /// readings.
        #[test]
        fn the_error_is_within_the_uncertainty(
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
            let mapped = mapping.to_unix_ns(Time::from_nanos(probe));
            let error = i128::from(mapped).abs_diff(truth.max(0));
            prop_assert!(error <= u128::from(tightest / 2 + 1), "{error} {tightest}");
            if truth > 1_000_000 {
                prop_assert_eq!(mapping.to_monotonic(mapped), Time::from_nanos(probe));
            }
        }
    }
}
