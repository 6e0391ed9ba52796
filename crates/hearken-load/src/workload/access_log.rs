//! Replay of access logs in the combined or common format, or with one JSON object per line.

use std::path::Path;
use std::time::Duration;

use jiff::{Timestamp, civil, tz::TimeZone};
use serde_json::{Map, Value};

use super::lines::{Lines, file_error};
use super::message::{MessageBuilder, Request};
use super::{List, MAX_REQUESTS, Selection, TOO_MANY, trace};
use crate::config::LoadError;

const SECOND: i64 = 1_000_000_000;

/// A logged request.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Entry {
    /// Time in nanoseconds since 1970.
    at: i64,
    method: Option<String>,
    target: String,
}

/// Reads the log for replay at `speed` times the original speed. Returns also the number of skipped invalid
/// lines, if `skip_invalid`.
///
/// Servers log requests when they are complete, so the entries are sorted by time. If all times are whole
/// seconds, the requests of each second are distributed evenly over it.
pub(super) fn read(
    path: &Path,
    speed: f64,
    skip_invalid: bool,
    builder: &mut MessageBuilder<'_>,
) -> Result<(Selection, u64), LoadError> {
    if !(speed > 0.0 && speed <= 1e9) {
        return Err(LoadError::Config("the replay speed must be greater than 0 and at most 1e9"));
    }
    let mut lines = Lines::open(path, b'\n')?;
    let (mut line, mut entries, mut skipped) = (Vec::new(), Vec::new(), 0);
    while lines.next(&mut line)? {
        if line.trim_ascii().is_empty() {
            continue;
        }
        let result = parse_line(&String::from_utf8_lossy(&line)).and_then(|entry| {
            let request =
                Request { method: entry.method.as_deref(), ..Request::new(&entry.target) };
            let message = builder.add(&request).map_err(|reason| reason.to_string())?;
            Ok((entry.at, message))
        });
        match result {
            Ok(_) if entries.len() >= MAX_REQUESTS => return Err(lines.error(TOO_MANY)),
            Ok(step) => entries.push(step),
            Err(_) if skip_invalid => skipped += 1,
            Err(reason) => return Err(lines.error(reason)),
        }
    }
    if entries.is_empty() {
        return Err(file_error(path, "no valid requests in the file".to_owned()));
    }
    entries.sort_by_key(|&(at, _)| at);
    distribute_within_seconds(&mut entries);
    let first = entries.first().map_or(0, |&(at, _)| at);
    let offset =
        |&(at, _): &(i64, u32)| Duration::from_nanos((at.abs_diff(first) as f64 / speed) as u64);
    let times = Some(entries.iter().map(offset).collect());
    let steps = entries.iter().map(|&(_, message)| message).collect();
    Ok((Selection::List(List { steps, repeat: false, times }), skipped))
}

/// Distributes requests evenly over each second if all times are whole seconds.
fn distribute_within_seconds(entries: &mut [(i64, u32)]) {
    if entries.iter().any(|(at, _)| at % SECOND != 0) {
        return;
    }
    for second in entries.chunk_by_mut(|a, b| a.0 == b.0) {
        let gap = SECOND as f64 / second.len() as f64;
        for (index, (at, _)) in second.iter_mut().enumerate() {
            *at = at.saturating_add((index as f64 * gap) as i64);
        }
    }
}

fn parse_line(line: &str) -> Result<Entry, String> {
    match line.trim_start().starts_with('{') {
        true => parse_json(line),
        false => parse_combined(line).map_err(str::to_owned),
    }
}

/// Parses `HOST IDENT USER [TIME] "METHOD TARGET VERSION" ...`.
fn parse_combined(line: &str) -> Result<Entry, &'static str> {
    const FORM: &str = "invalid line: expected the combined format (HOST - USER [TIME] \"METHOD PATH \
         HTTP/1.1\" ...) or a JSON object";
    let (time, rest) =
        line.split_once('[').and_then(|(_, rest)| rest.split_once(']')).ok_or(FORM)?;
    let at =
        parse_combined_time(time).ok_or("invalid time: expected '[10/Oct/2000:13:55:36 -0700]'")?;
    let request = parse_quoted(rest.trim_start().strip_prefix('"').ok_or(FORM)?)
        .ok_or("request without a closing quote")?;
    let (method, target) = parse_request_line(&request)
        .ok_or("invalid request: expected \"GET /index.html HTTP/1.1\"")?;
    Ok(Entry { at, method: Some(method.to_owned()), target: target.to_owned() })
}

/// Returns the text up to the next quote, with escape sequences decoded.
fn parse_quoted(text: &str) -> Option<String> {
    let (mut plain, mut rest) = (String::new(), text.chars());
    loop {
        match rest.next()? {
            '"' => return Some(plain),
            '\\' => match rest.next()? {
                'x' => {
                    let digits = rest.as_str().get(..2)?;
                    plain.push(u8::from_str_radix(digits, 16).ok()?.into());
                    rest = rest.as_str()[2..].chars();
                }
                other => plain.push(other),
            },
            other => plain.push(other),
        }
    }
}

/// Returns the method and the target of `METHOD TARGET [VERSION]`.
fn parse_request_line(text: &str) -> Option<(&str, &str)> {
    let mut words = text.split(' ');
    let (method, target) = (words.next()?, words.next()?);
    let version = words.next().is_none_or(|version| version.starts_with("HTTP/"));
    (version && words.next().is_none()).then_some((method, target))
}

/// Parses an object that contains a time and a request or its parts, under the names that servers use.
fn parse_json(line: &str) -> Result<Entry, String> {
    const TIMES: [&str; 9] = [
        "time",
        "ts",
        "timestamp",
        "@timestamp",
        "time_iso8601",
        "time_local",
        "msec",
        "StartUTC",
        "start_time",
    ];
    const METHODS: [&str; 4] = ["method", "request_method", "RequestMethod", "requestMethod"];
    const TARGETS: [&str; 6] = ["uri", "request_uri", "url", "path", "RequestPath", "requestUrl"];
    let object: Map<String, Value> =
        serde_json::from_str(line).map_err(|error| format!("invalid JSON: {error}"))?;
    let time = TIMES
        .iter()
        .find_map(|&name| object.get(name))
        .ok_or_else(|| format!("no time: expected one of the keys {}", TIMES.join(", ")))?;
    let at = parse_json_time(time).ok_or_else(|| format!("invalid time: {time}"))?;
    // Some servers log the request as a nested object.
    let inner = ["request", "httpRequest"].iter().find_map(|&name| object.get(name)?.as_object());
    let text = |names: &[&str]| {
        let find = |object: &Map<String, Value>| {
            names.iter().find_map(|&name| object.get(name)?.as_str().map(str::to_owned))
        };
        inner.and_then(find).or_else(|| find(&object))
    };
    let (mut method, mut target) = (text(&METHODS), text(&TARGETS));
    if let Some(request) =
        object.get("request").and_then(Value::as_str).filter(|_| target.is_none())
    {
        match parse_request_line(request) {
            Some((own, path)) => {
                (method, target) = (method.or(Some(own.to_owned())), Some(path.to_owned()));
            }
            None => target = Some(request.to_owned()),
        }
    }
    let target = target.ok_or_else(|| {
        format!("no request: expected one of the keys request, {}", TARGETS.join(", "))
    })?;
    Ok(Entry { at, method, target })
}

/// Parses a time in JSON. Returns nanoseconds since 1970.
fn parse_json_time(value: &Value) -> Option<i64> {
    let text = match value {
        Value::String(text) => text.as_str(),
        // The number as written, because a floating-point number would lose digits.
        Value::Number(number) => return parse_epoch(&number.to_string()),
        _ => return None,
    };
    let civil = || text.parse::<civil::DateTime>().ok()?.to_zoned(TimeZone::UTC).ok();
    parse_epoch(text)
        .or_else(|| unix_nanos(text.parse().ok()?))
        .or_else(|| unix_nanos(civil()?.timestamp()))
        .or_else(|| parse_combined_time(text))
}

/// Parses a number of seconds since 1970, or of milli-, micro- or nanoseconds depending on its size.
fn parse_epoch(text: &str) -> Option<i64> {
    if let Some(nanos) = trace::parse_nanos(text) {
        return nanos.try_into().ok();
    }
    // As seconds, the time would be after the year 2500.
    let number: i64 = text.split('.').next()?.parse().ok().filter(|&number| number > 0)?;
    let unit = match number.ilog10() {
        0..14 => 1_000_000,
        14..17 => 1_000,
        _ => 1,
    };
    number.checked_mul(unit)
}

/// Parses a time as in the combined format.
fn parse_combined_time(text: &str) -> Option<i64> {
    let time = jiff::fmt::strtime::parse("%d/%b/%Y:%H:%M:%S %z", text).ok()?;
    unix_nanos(time.to_timestamp().ok()?)
}

fn unix_nanos(time: Timestamp) -> Option<i64> {
    time.as_nanosecond().try_into().ok()
}
