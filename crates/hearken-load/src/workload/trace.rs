//! Traces with timestamps: lines of `SECONDS PATH-or-URL [METHOD] [CHECK...]`, sorted by time.

use std::path::Path;
use std::time::Duration;

use super::lines::{Lines, file_error};
use super::message::MessageBuilder;
use super::urls::RequestLine;
use super::{List, MAX_REQUESTS, Selection, TOO_MANY};
use crate::config::LoadError;

/// Reads the file. Times are relative to the first request, which is sent immediately.
pub(super) fn read(path: &Path, builder: &mut MessageBuilder<'_>) -> Result<Selection, LoadError> {
    let mut lines = Lines::open(path, b'\n')?;
    let (mut line, mut steps, mut times) = (Vec::new(), Vec::new(), Vec::new());
    let (mut first, mut last) = (None, 0);
    while lines.next(&mut line)? {
        let text = str::from_utf8(&line).map_err(|_| lines.error("invalid UTF-8"))?;
        let mut words = text.split_ascii_whitespace();
        let Some(time) = words.next().filter(|word| !word.starts_with('#')) else {
            continue;
        };
        let time = parse_nanos(time)
            .ok_or_else(|| lines.error(format!("invalid time '{time}': expected seconds")))?;
        if time < last {
            return Err(
                lines.error("time is earlier than on the line before; sort the file by time")
            );
        }
        last = time;
        let request = RequestLine::parse(words).map_err(|reason| lines.error(reason))?;
        let request = request.ok_or_else(|| lines.error("no path after the time"))?;
        if steps.len() >= MAX_REQUESTS {
            return Err(lines.error(TOO_MANY));
        }
        steps.push(
            builder.add(&request.to_request()).map_err(|reason| lines.error(reason.to_string()))?,
        );
        times.push(Duration::from_nanos(time - *first.get_or_insert(time)));
    }
    if steps.is_empty() {
        return Err(file_error(
            path,
            "no requests in the file; expected 'SECONDS /PATH' per line".into(),
        ));
    }
    Ok(Selection::List(List { steps: steps.into(), repeat: false, times: Some(times.into()) }))
}

/// Parses a decimal number of seconds as nanoseconds. A floating-point number has too few digits for
/// timestamps since 1970.
pub(super) fn parse_nanos(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return None;
    }
    let nanos = fraction.bytes().chain(std::iter::repeat(b'0')).take(9);
    let nanos = nanos.fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'));
    whole.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(nanos)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::parse_nanos;

    #[test]
    fn parses_only_decimal_seconds() {
        for (text, expected) in [
            ("0", Some(0)),
            ("1.5", Some(1_500_000_000)),
            ("1700000000.123456789", Some(1_700_000_000_123_456_789)),
            ("0.0000000019", Some(1)),
            ("18446744073", Some(18_446_744_073_000_000_000)),
            ("18446744074", None),
            ("", None),
            (".5", None),
            ("1.", None),
            ("-1", None),
            ("1e3", None),
            ("1.2.3", None),
        ] {
            assert_eq!(parse_nanos(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn parsing_is_exact(time in any::<u64>()) {
            let text = format!("{}.{:09}", time / 1_000_000_000, time % 1_000_000_000);
            prop_assert_eq!(parse_nanos(&text), Some(time));
        }
    }
}
