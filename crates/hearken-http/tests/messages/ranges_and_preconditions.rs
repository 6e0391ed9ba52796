//! Evaluation of ranges and preconditions.

use hearken_http::conditional::{
    EntityTag, Outcome, Preconditions, TagList, Validators, evaluate, if_range,
};
use hearken_http::range::{ByteRange, MAX_RANGES, RangeOutcome, parse};
use hearken_http::{Limits, Method, RequestParser, format_http_date};
use proptest::prelude::*;

fn part(first: u64, last: u64) -> RangeOutcome {
    RangeOutcome::Single(ByteRange { first, last })
}

fn parts(parts: &[(u64, u64)]) -> RangeOutcome {
    let parts = parts.iter().map(|&(first, last)| ByteRange { first, last });
    RangeOutcome::Multiple(parts.collect())
}

#[test]
fn parses_ranges() {
    use RangeOutcome::{Full, Unsatisfiable};
    let huge = "bytes=0-99999999999999999999999999";
    for (value, len, want) in [
        ("bytes=0-0", 10, part(0, 0)),
        ("bytes=0-9", 10, part(0, 9)),
        ("bytes=0-10", 10, part(0, 9)),
        ("BYTES= 9- ", 10, part(9, 9)),
        (huge, 10, part(0, 9)),
        ("bytes=-1", 10, part(9, 9)),
        ("bytes=-10", 10, part(0, 9)),
        ("bytes=-99999999999999999999999999", 10, part(0, 9)),
        ("bytes=10-", 10, Unsatisfiable),
        ("bytes=10-20", 10, Unsatisfiable),
        ("bytes=99999999999999999999999999-", 10, Unsatisfiable),
        ("bytes=-0", 10, Unsatisfiable),
        ("bytes=0-", 0, Unsatisfiable),
        ("bytes=-5", 0, Full),
        ("bytes=5-4", 10, Full),
        ("bytes=0-1,3-4", 10, parts(&[(0, 1), (3, 4)])),
        ("bytes=3-4 ,\t0-1, , -2", 10, parts(&[(3, 4), (0, 1), (8, 9)])),
        ("bytes=0-1,", 10, part(0, 1)),
        ("bytes=,, 0-1", 10, part(0, 1)),
        ("bytes=,", 10, Full),
        ("bytes=0-1,2-3", 10, part(0, 3)),
        ("bytes=2-3,0-1", 10, part(0, 3)),
        ("bytes=0-,-1,5-5", 10, part(0, 9)),
        ("bytes=7-8,0-1,3-4,2-2", 10, parts(&[(7, 8), (0, 4)])),
        ("bytes=0-1,8-9,1-8", 10, part(0, 9)),
        ("bytes=0-1,10-", 10, part(0, 1)),
        ("bytes=0-1,-0,3-3", 10, parts(&[(0, 1), (3, 3)])),
        ("bytes=10-,20-30,-0", 10, Unsatisfiable),
        ("bytes=0-1,x", 10, Full),
        ("bytes=0-1,5-4", 10, Full),
        ("bytes=0-1;3-4", 10, Full),
        ("bytes=0-1 3-4", 10, Full),
        ("bytes=0-1,bytes=3-4", 10, Full),
        ("bytes=0-,-5", 0, Full),
        ("bytes=", 10, Full),
        ("bytes=-", 10, Full),
        ("bytes=--1", 10, Full),
        ("bytes=+1-2", 10, Full),
        ("bytes=0x1-2", 10, Full),
        ("bytes=1 -2", 10, Full),
        ("bytes 0-1", 10, Full),
        ("bytes =0-1", 10, Full),
        ("lines=0-1", 10, Full),
        ("byte", 10, Full),
        ("", 10, Full),
    ] {
        assert_eq!(parse(value.as_bytes(), len), want, "{value:?} of {len}");
    }
    assert_eq!(parse(b"bytes=0-", u64::MAX), part(0, u64::MAX - 1));
    let several = |count| parse(format!("bytes=0-0{}", ",2-2".repeat(count - 1)).as_bytes(), 10);
    assert_eq!(several(MAX_RANGES), parts(&[(0, 0), (2, 2)]));
    assert_eq!(several(MAX_RANGES + 1), Full);
    assert_eq!(parse(b"bytes=,,,,,,,,,,,,,,,,,,,,,,,,0-0", 10), Full);
}

proptest! {
    #[test]
    fn a_single_range_lies_within_the_representation(
        value in prop_oneof![
            "bytes=[0-9]{0,3}-[0-9]{0,3}",
            "bytes=[0-9]{0,25}-[0-9]{0,25}",
            "[ -~]{0,20}",
        ],
        len in prop_oneof![0u64..50, any::<u64>()],
    ) {
        if let RangeOutcome::Single(ByteRange { first, last }) = parse(value.as_bytes(), len) {
            prop_assert!(first <= last && last < len);
        }
    }

    // The result contains each requested byte once, and no other byte.
    #[test]
    fn ranges_contain_exactly_the_requested_bytes(
        asked in prop::collection::vec((0u64..70, 0u64..20), 1..=MAX_RANGES),
        len in 1u64..60,
    ) {
        let specs: Vec<_> =
            asked.iter().map(|(first, more)| format!("{first}-{}", first + more)).collect();
        let wanted: Vec<u64> = (0..len)
            .filter(|byte| asked.iter().any(|(first, more)| (*first..=first + more).contains(byte)))
            .collect();
        let parts = match parse(format!("bytes={}", specs.join(",")).as_bytes(), len) {
            RangeOutcome::Full => return Err(TestCaseError::fail("field ignored")),
            RangeOutcome::Unsatisfiable => vec![],
            RangeOutcome::Single(part) => vec![part],
            RangeOutcome::Multiple(parts) => {
                prop_assert!(parts.len() > 1);
                parts
            }
        };
        let mut sent: Vec<u64> = parts.iter().flat_map(|part| part.first..=part.last).collect();
        sent.sort_unstable();
        prop_assert_eq!(sent, wanted);
        // Ranges are not even adjacent.
        prop_assert!(parts.iter().all(|part| parts.iter().all(|other| part.last + 1 != other.first)));
    }

    #[test]
    fn every_range_can_be_requested(len in 1u64.., a: u64, b: u64) {
        let (a, b) = (a % len, b % len);
        let (first, last) = (a.min(b), a.max(b));
        prop_assert_eq!(parse(format!("bytes={first}-{last}").as_bytes(), len), part(first, last));
        prop_assert_eq!(parse(format!("bytes={first}-").as_bytes(), len), part(first, len - 1));
        let suffix = len - first;
        prop_assert_eq!(parse(format!("bytes=-{suffix}").as_bytes(), len), part(first, len - 1));
    }

    #[test]
    fn arbitrary_conditions_do_not_panic(list in prop::collection::vec(any::<u8>(), 0..40)) {
        let _ = TagList::from(&*list).tags().count();
        let current = Validators { etag: EntityTag::parse(b"\"\""), last_modified: Some(0) };
        let _ = if_range(&list, &current, 5);
    }
}

#[test]
fn parses_tag_lists() {
    for (list, want) in [
        ("\"a\"", &["a"][..]),
        ("\"a\",\"b\"", &["a", "b"]),
        (" , \"a\" ,, W/\"b\" , ", &["a", "b"]),
        ("\"a,b\"", &["a,b"]),
        ("\"\"", &[""]),
        ("a", &[]),
        ("\"a", &[]),
        ("w/\"a\"", &[]),
        ("\"a b\"", &[]),
        ("\"a\", b, \"c\"", &["a"]),
        ("\"a\";\"b\"", &["a"]),
        ("", &[]),
    ] {
        let found: Vec<_> = TagList::from(list.as_bytes()).tags().map(|tag| tag.opaque).collect();
        let want: Vec<_> = want.iter().map(|tag| tag.as_bytes()).collect();
        assert_eq!(found, want, "{list:?}");
    }
}

#[test]
fn evaluates_preconditions() {
    use Outcome::{NotModified, PreconditionFailed, Proceed};
    let (before, at, after) = (format_http_date(99), format_http_date(100), format_http_date(101));
    let current = Validators { etag: EntityTag::parse(b"\"v\""), last_modified: Some(100) };
    let none = Preconditions::default();
    let if_match =
        |list: &'static [u8]| Preconditions { if_match: Some(TagList::from(list)), ..none };
    let if_none_match =
        |list: &'static [u8]| Preconditions { if_none_match: Some(TagList::from(list)), ..none };
    let since = |date| Preconditions { if_modified_since: Some(date), ..none };
    let unmodified = |date| Preconditions { if_unmodified_since: Some(date), ..none };
    for (conditions, get, put, absent) in [
        (none, Proceed, Proceed, Proceed),
        (if_match(b"\"v\""), Proceed, Proceed, PreconditionFailed),
        (if_match(b"\"u\", \"v\""), Proceed, Proceed, PreconditionFailed),
        (if_match(b"*"), Proceed, Proceed, PreconditionFailed),
        (if_match(b"W/\"v\""), PreconditionFailed, PreconditionFailed, PreconditionFailed),
        (if_match(b"\"u\""), PreconditionFailed, PreconditionFailed, PreconditionFailed),
        (if_match(b"junk"), PreconditionFailed, PreconditionFailed, PreconditionFailed),
        (if_none_match(b"\"v\""), NotModified, PreconditionFailed, Proceed),
        (if_none_match(b"W/\"v\""), NotModified, PreconditionFailed, Proceed),
        (if_none_match(b"*"), NotModified, PreconditionFailed, Proceed),
        (if_none_match(b"\"u\""), Proceed, Proceed, Proceed),
        (if_none_match(b"junk"), Proceed, Proceed, Proceed),
        (since(&before), Proceed, Proceed, Proceed),
        (since(&at), NotModified, Proceed, Proceed),
        (since(&after), NotModified, Proceed, Proceed),
        (since(b"junk"), Proceed, Proceed, Proceed),
        (unmodified(&before), PreconditionFailed, PreconditionFailed, Proceed),
        (unmodified(&at), Proceed, Proceed, Proceed),
        (unmodified(b"junk"), Proceed, Proceed, Proceed),
        // A tag takes precedence over a date.
        (
            Preconditions { if_modified_since: Some(&after), ..if_none_match(b"\"u\"") },
            Proceed,
            Proceed,
            Proceed,
        ),
        (
            Preconditions { if_unmodified_since: Some(&before), ..if_match(b"\"v\"") },
            Proceed,
            Proceed,
            PreconditionFailed,
        ),
        // If-Match is evaluated before If-None-Match.
        (
            Preconditions { if_match: Some(b"\"u\"".into()), ..if_none_match(b"\"v\"") },
            PreconditionFailed,
            PreconditionFailed,
            PreconditionFailed,
        ),
        (
            Preconditions { if_match: Some(b"\"v\"".into()), ..if_none_match(b"\"v\"") },
            NotModified,
            PreconditionFailed,
            PreconditionFailed,
        ),
    ] {
        assert_eq!(evaluate(Method::Get, &conditions, Some(&current)), get, "{conditions:?}");
        assert_eq!(evaluate(Method::Head, &conditions, Some(&current)), get, "{conditions:?}");
        assert_eq!(evaluate(Method::Put, &conditions, Some(&current)), put, "{conditions:?}");
        assert_eq!(evaluate(Method::Get, &conditions, None), absent, "{conditions:?}");
    }
}

#[test]
fn if_range_requires_a_strong_validator() {
    let date = format_http_date(100);
    let current = Validators { etag: EntityTag::parse(b"\"v\""), last_modified: Some(100) };
    let weak = Validators { etag: EntityTag::parse(b"W/\"v\""), last_modified: None };
    assert!(if_range(b"\"v\"", &current, 200));
    assert!(!if_range(b"\"u\"", &current, 200));
    assert!(!if_range(b"W/\"v\"", &weak, 200));
    assert!(!if_range(b"\"v\"", &weak, 200));
    assert!(if_range(&date, &current, 101));
    assert!(!if_range(&date, &current, 100), "the file may change again within this second");
    assert!(!if_range(&format_http_date(101), &current, 200), "a later date does not match");
    assert!(!if_range(b"junk", &current, 200));
}

#[test]
fn preconditions_are_read_from_a_request() {
    let bytes = b"GET / HTTP/1.0\r\nIf-Match: \"1\"\r\nIf-None-Match: \"2\"\r\nif-none-match:\r\n\
        IF-NONE-MATCH: W/\"3\",\"4\" , \r\nIf-None-Match: ,\"5\"\r\nIf-None-Match: x\r\n\
        If-None-Match: \"6\"\r\nIf-Modified-Since: 3\r\nIf-Unmodified-Since: 4\r\n\r\n";
    let request = RequestParser::new().parse(bytes, &Limits::default()).unwrap().unwrap();
    let conditions = Preconditions::from(&request);
    let tags = |list: Option<TagList<'_>>| {
        let tags = list.unwrap().tags().map(|tag| String::from_utf8_lossy(tag.opaque).into_owned());
        tags.collect::<Vec<_>>()
    };
    assert_eq!(tags(conditions.if_match), ["1"]);
    assert_eq!(tags(conditions.if_none_match), ["2", "3", "4", "5"]);
    assert_eq!(conditions.if_modified_since, Some(&b"3"[..]));
    assert_eq!(conditions.if_unmodified_since, Some(&b"4"[..]));
}

// A repeated field that is not a list is invalid.
#[test]
fn repeated_fields_that_are_not_lists_are_invalid() {
    let names = ["Range", "If-Range", "If-Modified-Since", "If-Unmodified-Since"];
    for (value, lines) in [(&b"x"[..], 1), (b"", 2)] {
        let fields = names.map(|name| format!("{name}: x\r\n").repeat(lines)).concat();
        let bytes = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n").into_bytes();
        let request = RequestParser::new().parse(&bytes, &Limits::default()).unwrap().unwrap();
        assert_eq!(request.range(), Some(value));
        assert_eq!(request.if_range(), Some(value));
        assert_eq!(request.if_modified_since(), Some(value));
        assert_eq!(request.if_unmodified_since(), Some(value));
    }
}
