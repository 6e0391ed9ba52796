//! Times on the command line.

use std::time::Duration;

use hearken_lab::watch::SHORTEST_INTERVAL;

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
