//! A trace with timestamps: `SECONDS PATH-or-URL [METHOD] [CHECK...]` a line, in their order.

use std::path::Path;
use std::time::Duration;

use super::lines::{Lines, whole};
use super::message::Maker;
use super::urls::Asked;
use super::{Kind, List, STEPS_MAX, TOO_MANY};
use crate::config::LoadError;

/// Reads the file. Its first request is made at once, the others as long after it as it says.
pub(super) fn read(path: &Path, maker: &mut Maker<'_>) -> Result<Kind, LoadError> {
    let mut lines = Lines::open(path, b'\n')?;
    let (mut line, mut steps, mut at) = (Vec::new(), Vec::new(), Vec::new());
    let (mut first, mut last) = (None, 0);
    while lines.next(&mut line)? {
        let text = str::from_utf8(&line).map_err(|_| lines.wrong("it is not UTF-8 text"))?;
        let mut words = text.split_ascii_whitespace();
        let Some(time) = words.next().filter(|word| !word.starts_with('#')) else {
            continue;
        };
        let time = nanos(time)
            .ok_or_else(|| lines.wrong(format!("\"{time}\" is no number of seconds")))?;
        if time < last {
            return Err(lines.wrong("it is earlier than the line before; sort the file by time"));
        }
        last = time;
        let asked = Asked::parse(words).map_err(|reason| lines.wrong(reason))?;
        let asked = asked.ok_or_else(|| lines.wrong("it has a time, but no path"))?;
        if steps.len() >= STEPS_MAX {
            return Err(lines.wrong(TOO_MANY));
        }
        steps.push(maker.add(&asked.request()).map_err(|reason| lines.wrong(reason.to_string()))?);
        at.push(Duration::from_nanos(time - *first.get_or_insert(time)));
    }
    if steps.is_empty() {
        return Err(whole(path, "it has no request; write SECONDS /PATH, one a line".into()));
    }
    Ok(Kind::List(List { steps: steps.into(), repeat: false, at: Some(at.into()) }))
}

/// A decimal number of seconds in nanoseconds; a floating-point number has not enough digits for
/// the time of day in them.
pub(super) fn nanos(text: &str) -> Option<u64> {
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

    use super::nanos;

    #[test]
    fn seconds() {
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
            assert_eq!(nanos(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn exact(time in any::<u64>()) {
            let text = format!("{}.{:09}", time / 1_000_000_000, time % 1_000_000_000);
            prop_assert_eq!(nanos(&text), Some(time));
        }
    }
}
