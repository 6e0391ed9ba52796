//! Times on the command line.

use std::time::{Duration, SystemTime};

use hearken_lab::watch::SHORTEST_INTERVAL;
use jiff::Timestamp;

/// Parses a time: a number of seconds, or one with a unit (`ms`, `s`, `m`, `h`).
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let number: f64 = number.parse().map_err(|_| format!("\"{text}\" is not a time"))?;
    let unit = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("unknown unit \"{unit}\" (known are ms, s, m, h)")),
    };
    Duration::try_from_secs_f64(number * unit)
        .ok()
        .filter(|time| time.as_secs() < 1 << 32)
        .ok_or_else(|| format!("\"{text}\" is no time that could be waited for"))
}

/// Parses a time that is waited for, or during which something is done: more than none.
pub(crate) fn patience(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("no time at all".to_owned()),
        time => Ok(time),
    }
}

/// Parses how often a server is sampled.
pub(crate) fn watch_interval(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        time if time < SHORTEST_INTERVAL => Err(format!("it is {SHORTEST_INTERVAL:?} at least")),
        time => Ok(time),
    }
}

/// Parses a moment: seconds since 1970, or a date and time with a zone as in RFC 3339.
pub(crate) fn moment(text: &str) -> Result<SystemTime, String> {
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds)
            .ok()
            .and_then(|since| SystemTime::UNIX_EPOCH.checked_add(since))
            .ok_or_else(|| format!("\"{text}\" is no number of seconds since 1970"));
    }
    match text.parse::<Timestamp>() {
        Ok(time) => Ok(time.into()),
        Err(_) => Err(format!(
            "\"{text}\" is no moment; write 2030-01-31T12:00:00Z, or seconds since 1970"
        )),
    }
}
