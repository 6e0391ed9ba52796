//! Field values and paths.

use hearken_http::conditional::{
    EntityTag, Preconditions, TagList, Validators, evaluate, if_range,
};
use hearken_http::path::resolve;
use hearken_http::range::{self, RangeOutcome};
use hearken_http::{Method, format_http_date, parse_http_date};

use crate::variation::variation;

// Ranges lie within the representation, and neither overlap nor touch.
#[test]
fn byte_ranges() {
    bolero::check!().for_each(|value: &[u8]| {
        let len = [0, 1, 100, u64::MAX][variation(value).usize(..4)];
        let ranges = match range::parse(value, len) {
            RangeOutcome::Full | RangeOutcome::Unsatisfiable => return,
            RangeOutcome::Single(range) => vec![range],
            RangeOutcome::Multiple(ranges) => {
                assert!((2..=range::MAX_RANGES).contains(&ranges.len()));
                ranges
            }
        };
        let mut sorted = ranges.clone();
        sorted.sort_by_key(|range| range.first);
        for range in &sorted {
            assert!(range.first <= range.last && range.last < len);
        }
        assert!(sorted.windows(2).all(|pair| pair[0].last + 1 < pair[1].first), "{ranges:?}");
        // The canonical form of the result has the same result.
        let text: Vec<_> =
            ranges.iter().map(|range| format!("{}-{}", range.first, range.last)).collect();
        let again = range::parse(format!("bytes={}", text.join(",")).as_bytes(), len);
        assert_eq!(again, range::parse(value, len));
    });
}

// Preconditions and If-Range agree with the syntax of their values.
#[test]
fn preconditions() {
    bolero::check!().for_each(|value: &[u8]| {
        let date = parse_http_date(value);
        if let Some(seconds) = date.filter(|seconds| *seconds <= 253_402_300_799) {
            assert_eq!(parse_http_date(&format_http_date(seconds)), date);
        }
        let tag = EntityTag::parse(value);
        let current = Validators {
            etag: tag.or_else(|| EntityTag::parse(b"\"a\"")),
            last_modified: date.or(Some(0)),
        };
        let list = Some(TagList::from(value));
        let none_match = Preconditions { if_none_match: list, ..Default::default() };
        let matched = Preconditions { if_match: list, ..Default::default() };
        let dates = Preconditions {
            if_modified_since: Some(value),
            if_unmodified_since: Some(value),
            ..Default::default()
        };
        for conditions in [none_match, matched, dates] {
            for method in [Method::Get, Method::Put] {
                for current in [None, Some(&current)] {
                    let _ = evaluate(method, &conditions, current);
                }
            }
        }
        if let Some(tag) = tag {
            assert!(tag.weak_eq(&tag));
            assert_eq!(TagList::from(value).tags().collect::<Vec<_>>(), [tag]);
            assert_eq!(if_range(value, &current, u64::MAX), tag.strong_eq(&tag));
        } else {
            assert_eq!(
                if_range(value, &current, u64::MAX),
                date.is_some_and(|date| date < u64::MAX)
            );
        }
    });
}

// A resolved path stays within its directory, and resolves to itself.
#[test]
fn file_path() {
    bolero::check!().for_each(|path: &[u8]| {
        let mut out = Vec::new();
        let Ok(safe) = resolve(path, &mut out) else { return };
        assert!(safe.path.len() < path.len() && !safe.path.starts_with(b"/"));
        if !safe.path.is_empty() {
            for segment in safe.path.split(|byte| *byte == b'/') {
                assert!(!matches!(segment, b"" | b"." | b".."), "{}", safe.path.escape_ascii());
            }
        }
        assert!(!safe.path.iter().any(|byte| byte.is_ascii_control() || *byte == b'\\'));
        let mut encoded = vec![b'/'];
        for byte in safe.path {
            match byte {
                b'/' => encoded.push(b'/'),
                byte => encoded.extend_from_slice(format!("%{byte:02x}").as_bytes()),
            }
        }
        let mut again = Vec::new();
        let again = resolve(&encoded, &mut again).map(|again| again.path);
        assert_eq!(again, Ok(safe.path));
    });
}
