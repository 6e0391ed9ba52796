//! Slow clients at the side of the load: some read their replies slowly, others send their requests
//! slowly.

use std::str::FromStr;
use std::time::Duration;

use crate::side_settings;

mod exchanges;
mod readers;
mod report;
mod senders;

pub(crate) use readers::SlowReaders;
pub use report::{SlowClients, SlowGroup};
pub(crate) use senders::SlowSenders;

/// Bounds of the rate in bytes per second.
const MIN_RATE: f64 = 0.01;
const MAX_RATE: f64 = 1e9;

/// Settings of slow clients of one kind.
///
/// ```
/// let options: hearken_load::SlowOptions = "100,rate=1000".parse()?;
/// assert_eq!((options.connections, options.rate), (100, 1000.0));
/// assert!("100".parse::<hearken_load::SlowOptions>().is_err());
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SlowOptions {
    /// Number of connections.
    pub connections: usize,
    /// Bytes per second on each connection, from 0.01 to 1e9.
    pub rate: f64,
}

impl SlowOptions {
    /// Returns the time that `bytes` bytes take.
    fn time_of(&self, bytes: usize) -> Duration {
        Duration::try_from_secs_f64(bytes as f64 / self.rate).unwrap_or(Duration::MAX)
    }

    /// Returns whether the rate is within its bounds.
    pub(crate) fn is_valid(&self) -> bool {
        (MIN_RATE..=MAX_RATE).contains(&self.rate)
    }
}

impl FromStr for SlowOptions {
    type Err = String;

    fn from_str(text: &str) -> Result<SlowOptions, String> {
        let (connections, settings) = side_settings::parse(text)?;
        let mut rate = None;
        for (key, value) in settings {
            if key != "rate" {
                return Err(format!("unknown setting '{key}': expected rate"));
            }
            rate = Some(value.parse().map_err(|_| invalid_rate(value))?);
        }
        let rate = rate.ok_or("the rate is missing: expected N,rate=BYTES per second")?;
        let options = SlowOptions { connections, rate };
        if options.is_valid() { Ok(options) } else { Err(invalid_rate(&rate.to_string())) }
    }
}

fn invalid_rate(text: &str) -> String {
    format!("invalid rate '{text}': expected {MIN_RATE} to {MAX_RATE:e} bytes per second")
}

#[cfg(test)]
mod tests {
    use super::SlowOptions;

    #[test]
    fn rejects_invalid_settings() {
        for (text, reason) in [
            ("x,rate=1", "invalid number of connections 'x'"),
            ("5", "the rate is missing"),
            ("5,rate=0", "invalid rate '0'"),
            ("5,rate=NaN", "invalid rate 'NaN': expected 0.01 to 1e9"),
            ("5,size=1", "unknown setting 'size'"),
        ] {
            let error = text.parse::<SlowOptions>().unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
