//! Access logs replayed: the combined format (or the common one), or an object of JSON a line.

use std::path::Path;
use std::time::Duration;

use jiff::{Timestamp, civil, tz::TimeZone};
use serde_json::{Map, Value};

use super::lines::{Lines, whole};
use super::message::{Maker, Request};
use super::{Kind, List, STEPS_MAX, TOO_MANY, trace};
use crate::config::LoadError;

const SECOND: i64 = 1_000_000_000;

/// A request that was logged.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Entry {
    /// Nanoseconds since 1970.
    at: i64,
    method: Option<String>,
    target: String,
}

/// Reads the log, to be replayed at `speed` times its own. Tells also how many lines were skipped:
/// those that cannot be read, if `skip_bad`.
///
/// Servers log a request when it is over, so the log is sorted by time. Where all times are whole
/// seconds, the requests of each are spread evenly over it: they did not come all at its start.
pub(super) fn read(
    path: &Path,
    speed: f64,
    skip_bad: bool,
    maker: &mut Maker<'_>,
) -> Result<(Kind, u64), LoadError> {
    if !(speed > 0.0 && speed <= 1e9) {
        return Err(LoadError::Config("the speed of a replay must be more than 0, up to 1e9"));
    }
    let mut lines = Lines::open(path, b'\n')?;
    let (mut line, mut found, mut skipped) = (Vec::new(), Vec::new(), 0);
    while lines.next(&mut line)? {
        if line.trim_ascii().is_empty() {
            continue;
        }
        let added = entry(&String::from_utf8_lossy(&line)).and_then(|entry| {
            let request = Request { method: entry.method.as_deref(), ..Request::of(&entry.target) };
            let message = maker.add(&request).map_err(|reason| reason.to_string())?;
            Ok((entry.at, message))
        });
        match added {
            Ok(_) if found.len() >= STEPS_MAX => return Err(lines.wrong(TOO_MANY)),
            Ok(step) => found.push(step),
            Err(_) if skip_bad => skipped += 1,
            Err(reason) => return Err(lines.wrong(reason)),
        }
    }
    if found.is_empty() {
        return Err(whole(path, "it has no request that can be made".to_owned()));
    }
    found.sort_by_key(|&(at, _)| at);
    spread(&mut found);
    let first = found.first().map_or(0, |&(at, _)| at);
    let after =
        |&(at, _): &(i64, u32)| Duration::from_nanos((at.abs_diff(first) as f64 / speed) as u64);
    let at = Some(found.iter().map(after).collect());
    let steps = found.iter().map(|&(_, message)| message).collect();
    Ok((Kind::List(List { steps, repeat: false, at }), skipped))
}

/// Spreads what came within a second over it, if the log tells no more than the second.
fn spread(found: &mut [(i64, u32)]) {
    if found.iter().any(|(at, _)| at % SECOND != 0) {
        return;
    }
    for of_a_second in found.chunk_by_mut(|one, other| one.0 == other.0) {
        let gap = SECOND as f64 / of_a_second.len() as f64;
        for (place, (at, _)) in of_a_second.iter_mut().enumerate() {
            *at = at.saturating_add((place as f64 * gap) as i64);
        }
    }
}

fn entry(line: &str) -> Result<Entry, String> {
    match line.trim_start().starts_with('{') {
        true => json(line),
        false => combined(line).map_err(str::to_owned),
    }
}

/// `HOST IDENT USER [TIME] "METHOD TARGET VERSION" ...`
fn combined(line: &str) -> Result<Entry, &'static str> {
    const FORM: &str = "it is neither in the combined format (HOST - USER [TIME] \"METHOD PATH HTTP/1.1\" ...) nor \
         an object of JSON";
    let (time, rest) =
        line.split_once('[').and_then(|(_, rest)| rest.split_once(']')).ok_or(FORM)?;
    let at = logged(time).ok_or("the time in it is not one, as [10/Oct/2000:13:55:36 -0700]")?;
    let request = quoted(rest.trim_start().strip_prefix('"').ok_or(FORM)?)
        .ok_or("the request in it is not closed by a quote")?;
    let (method, target) = request_line(&request)
        .ok_or("the request in it is not one, as \"GET /index.html HTTP/1.1\"")?;
    Ok(Entry { at, method: Some(method.to_owned()), target: target.to_owned() })
}

/// The text up to the next quote, without what servers put before special characters.
fn quoted(text: &str) -> Option<String> {
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

/// The method and the target of `METHOD TARGET [VERSION]`.
fn request_line(text: &str) -> Option<(&str, &str)> {
    let mut words = text.split(' ');
    let (method, target) = (words.next()?, words.next()?);
    let version = words.next().is_none_or(|version| version.starts_with("HTTP/"));
    (version && words.next().is_none()).then_some((method, target))
}

/// An object with a time, and with a request or with its parts, by the names that servers give them.
fn json(line: &str) -> Result<Entry, String> {
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
        serde_json::from_str(line).map_err(|error| format!("it is not JSON: {error}"))?;
    let time = TIMES.iter().find_map(|&name| object.get(name)).ok_or_else(|| {
        format!("it has no time; it is looked for under the names {}", TIMES.join(", "))
    })?;
    let at = moment(time).ok_or_else(|| format!("its time is not one: {time}"))?;
    // Some put the request into an object of its own.
    let inner = ["request", "httpRequest"].iter().find_map(|&name| object.get(name)?.as_object());
    let text = |names: &[&str]| {
        let of = |object: &Map<String, Value>| {
            names.iter().find_map(|&name| object.get(name)?.as_str().map(str::to_owned))
        };
        inner.and_then(of).or_else(|| of(&object))
    };
    let (mut method, mut target) = (text(&METHODS), text(&TARGETS));
    if let Some(request) =
        object.get("request").and_then(Value::as_str).filter(|_| target.is_none())
    {
        match request_line(request) {
            Some((own, path)) => {
                (method, target) = (method.or(Some(own.to_owned())), Some(path.to_owned()));
            }
            None => target = Some(request.to_owned()),
        }
    }
    let target = target.ok_or_else(|| {
        format!("it asks for nothing; that is looked for under request, {}", TARGETS.join(", "))
    })?;
    Ok(Entry { at, method, target })
}

/// When, in nanoseconds since 1970, as JSON tells it.
fn moment(value: &Value) -> Option<i64> {
    let text = match value {
        Value::String(text) => text.as_str(),
        // As it was written, with all digits that a floating-point number keeps.
        Value::Number(number) => return epoch(&number.to_string()),
        _ => return None,
    };
    let civil = || text.parse::<civil::DateTime>().ok()?.to_zoned(TimeZone::UTC).ok();
    epoch(text)
        .or_else(|| nanos(text.parse().ok()?))
        .or_else(|| nanos(civil()?.timestamp()))
        .or_else(|| logged(text))
}

/// A number of seconds since 1970, or of milli-, micro- or nanoseconds, as its size tells.
fn epoch(text: &str) -> Option<i64> {
    if let Some(nanos) = trace::nanos(text) {
        return nanos.try_into().ok();
    }
    // As seconds it would be after the year 2500.
    let whole: i64 = text.split('.').next()?.parse().ok().filter(|&whole| whole > 0)?;
    let unit = match whole.ilog10() {
        0..14 => 1_000_000,
        14..17 => 1_000,
        _ => 1,
    };
    whole.checked_mul(unit)
}

/// A time as the combined format has it.
fn logged(text: &str) -> Option<i64> {
    let time = jiff::fmt::strtime::parse("%d/%b/%Y:%H:%M:%S %z", text).ok()?;
    nanos(time.to_timestamp().ok()?)
}

fn nanos(time: Timestamp) -> Option<i64> {
    time.as_nanosecond().try_into().ok()
}
