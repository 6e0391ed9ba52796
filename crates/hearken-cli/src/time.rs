//! Durations and times.

use std::time::{Duration, SystemTime};

use hearken_lab::watch::MIN_INTERVAL;
use jiff::Timestamp;

/// Parses a number of seconds, or a number with the unit `ms`, `s`, `m` or `h`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    const EXPECTED: &str = "expected a duration such as 500ms, 5s, 2m or 1h";
    let at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let number: f64 = number.parse().map_err(|_| EXPECTED)?;
    if number.is_nan() {
        return Err(EXPECTED.to_owned());
    }
    let unit = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("unknown unit '{unit}' (use ms, s, m or h)")),
    };
    Duration::try_from_secs_f64(number * unit)
        .ok()
        .filter(|time| time.as_secs() < 1 << 32)
        .ok_or_else(|| "out of range".to_owned())
}

/// Parses a duration greater than zero.
pub(crate) fn positive_duration(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("must be greater than 0".to_owned()),
        time => Ok(time),
    }
}

/// Prints a duration in the form that [`duration`] parses.
pub(crate) fn print_duration(time: Duration) -> String {
    let (seconds, nanoseconds) = (time.as_secs(), time.subsec_nanos());
    match (seconds, nanoseconds) {
        (0, 0) => "0".to_owned(),
        (_, 0) if seconds % 3600 == 0 => format!("{}h", seconds / 3600),
        (_, 0) if seconds % 60 == 0 && seconds > 60 => format!("{}m", seconds / 60),
        (_, 0) => format!("{seconds}s"),
        (_, _) if nanoseconds % 1_000_000 == 0 => format!("{}ms", time.as_millis()),
        (_, _) => format!("{}s", time.as_secs_f64()),
    }
}

/// Parses the interval of samples.
pub(crate) fn watch_interval(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        time if time < MIN_INTERVAL => {
            Err(format!("must be at least {}", print_duration(MIN_INTERVAL)))
        }
        time => Ok(time),
    }
}

/// Parses a time: seconds since 1970, or a date and time with a zone (RFC 3339).
pub(crate) fn timestamp(text: &str) -> Result<SystemTime, String> {
    const EXPECTED: &str = "expected a time such as 2030-01-31T12:00:00Z, or seconds since 1970";
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds)
            .ok()
            .and_then(|since| SystemTime::UNIX_EPOCH.checked_add(since))
            .ok_or_else(|| EXPECTED.to_owned());
    }
    text.parse::<Timestamp>().map(Into::into).map_err(|_| EXPECTED.to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{duration, print_duration};

    #[test]
    fn printed_durations_are_parsed_back() {
        for (text, printed) in [
            ("0", "0"),
            ("7ms", "7ms"),
            ("1.5", "1500ms"),
            ("60", "60s"),
            ("1.5m", "90s"),
            ("120s", "2m"),
            ("1h", "1h"),
            ("0.0005", "0.0005s"),
        ] {
            let time = duration(text).unwrap();
            assert_eq!(print_duration(time), printed);
            assert_eq!(duration(printed), Ok(time));
        }
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        for wrong in ["", "x", "5x", "-1s", "nan", "1e30"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
