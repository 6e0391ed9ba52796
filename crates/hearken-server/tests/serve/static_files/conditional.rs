//! Conditions and ranges.

use std::fs::File;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hearken_http::{Limits, RequestParser, format_http_date, parse_http_date};

use super::support::{Fixture, Response, today, wait_until_cacheable};

const OLD: u64 = 1_700_000_000;

/// Creates `/small`, which is cached in memory, and `/large`, which is not. Each byte is its offset.
fn fixture() -> Fixture {
    let fixture = Fixture::with(|config| config.max_cached_file_bytes = 10);
    fixture.write("small", "0123456789");
    fixture.write("large", "0123456789A");
    for name in ["small", "large"] {
        let time = UNIX_EPOCH + Duration::from_secs(OLD);
        File::options().write(true).open(fixture.path(name)).unwrap().set_modified(time).unwrap();
    }
    wait_until_cacheable();
    fixture
}

fn date(seconds: u64) -> String {
    String::from_utf8(format_http_date(seconds).to_vec()).unwrap()
}

#[test]
fn evaluates_conditional_requests() {
    let mut fixture = fixture();
    for target in ["/small", "/large"] {
        let etag = fixture.get(target).field("ETag").unwrap().to_owned();
        assert!(etag.len() == 18 && etag.starts_with('"') && etag.ends_with('"'), "{etag}");
        let (old, older, newer) = (date(OLD), date(OLD - 1), date(OLD + 1));
        assert_eq!(fixture.get(target).field("Last-Modified"), Some(&*old));
        for (fields, status) in [
            (format!("If-None-Match: {etag}\r\n"), 304),
            (format!("If-None-Match: W/{etag}\r\n"), 304),
            (format!("If-None-Match: \"x\", {etag}\r\n"), 304),
            ("If-None-Match: *\r\n".to_owned(), 304),
            // Several lines are one list.
            (format!("If-None-Match: \"x\"\r\nA: b\r\nif-none-match: {etag}\r\n"), 304),
            (format!("If-None-Match: \"x\",\r\nIf-None-Match:\r\nIf-None-Match: {etag}\r\n"), 304),
            (format!("If-None-Match: \"x\r\nIf-None-Match: {etag}\r\n"), 200),
            (format!("If-Match: \"x\"\r\nIf-Match: {etag}\r\n"), 200),
            ("If-Match: \"x\"\r\nIf-Match: \"y\"\r\n".to_owned(), 412),
            // These fields must not be repeated.
            (format!("If-Modified-Since: {newer}\r\nIf-Modified-Since: {older}\r\n"), 200),
            (format!("If-Unmodified-Since: {older}\r\nIf-Unmodified-Since: {newer}\r\n"), 200),
            ("Range: bytes=0-0\r\nRange: bytes=2-2\r\n".to_owned(), 200),
            (format!("Range: bytes=0-0\r\nIf-Range: {etag}\r\nIf-Range: \"x\"\r\n"), 200),
            ("If-None-Match: \"x\"\r\n".to_owned(), 200),
            ("If-None-Match: x\r\n".to_owned(), 200),
            (format!("If-Modified-Since: {old}\r\n"), 304),
            (format!("If-Modified-Since: {newer}\r\n"), 304),
            (format!("If-Modified-Since: {older}\r\n"), 200),
            ("If-Modified-Since: yesterday\r\n".to_owned(), 200),
            (format!("If-None-Match: \"x\"\r\nIf-Modified-Since: {newer}\r\n"), 200),
            (format!("If-None-Match: {etag}\r\nIf-Modified-Since: {older}\r\n"), 304),
            (format!("If-Match: {etag}\r\n"), 200),
            ("If-Match: *\r\n".to_owned(), 200),
            ("If-Match: \"x\"\r\n".to_owned(), 412),
            (format!("If-Match: W/{etag}\r\n"), 412),
            (format!("If-Unmodified-Since: {old}\r\n"), 200),
            (format!("If-Unmodified-Since: {older}\r\n"), 412),
            (format!("If-Match: {etag}\r\nIf-Unmodified-Since: {older}\r\n"), 200),
            (format!("If-Match: {etag}\r\nIf-None-Match: {etag}\r\n"), 304),
            (format!("If-None-Match: {etag}\r\nRange: bytes=0-0\r\n"), 304),
            ("If-Match: \"x\"\r\nRange: bytes=0-0\r\n".to_owned(), 412),
        ] {
            let response = fixture.request("GET", target, &fields);
            assert_eq!(response.status, status, "{target} {fields}");
            let validators = if status == 412 { (None, None) } else { (Some(&*etag), Some(&*old)) };
            assert_eq!((response.field("ETag"), response.field("Last-Modified")), validators);
            if status == 304 {
                assert_eq!(response.field("Content-Type"), None);
                assert_eq!(response.fields.len(), 3);
            }
        }
        // A missing file meets no condition.
        assert_eq!(fixture.request("GET", "/none", "If-None-Match: *\r\n").status, 404);
    }
}

#[test]
fn serves_single_ranges() {
    let mut fixture = fixture();
    for (target, length) in [("/small", 10u64), ("/large", 11)] {
        let complete = fixture.get(target);
        let last = length - 1;
        for (range, part) in [
            ("bytes=0-0", Some((0, 0))),
            ("bytes=0-4", Some((0, 4))),
            ("bytes=3-", Some((3, last))),
            ("bytes=-3", Some((length - 3, last))),
            ("bytes=-999999999999999999999999", Some((0, last))),
            ("bytes=0-18446744073709551615", Some((0, last))),
            ("bytes=0-99999999999999999999999999", Some((0, last))),
            ("bytes=5-5", Some((5, 5))),
            ("Bytes=5-5", Some((5, 5))),
            ("bytes=2-3,0-1", Some((0, 3))),
            ("bytes=5-5,99-", Some((5, 5))),
            ("bytes=5-4", None),
            ("bytes=0-1,3", None),
            ("bytes=-", None),
            ("bytes=", None),
            ("bytes=a-b", None),
            ("bytes=0-0x", None),
            ("bytes=--1", None),
            ("lines=0-1", None),
            ("0-1", None),
        ] {
            let response = fixture.request("GET", target, &format!("Range: {range}\r\n"));
            let Some((first, last)) = part else {
                assert_eq!((response.status, &response.body), (200, &complete.body), "{range}");
                continue;
            };
            assert_eq!(response.status, 206, "{range}");
            assert_eq!(response.body, complete.body[first as usize..=last as usize], "{range}");
            let expected = format!("bytes {first}-{last}/{length}");
            assert_eq!(response.field("Content-Range"), Some(&*expected));
            for name in ["ETag", "Last-Modified", "Content-Type", "Accept-Ranges"] {
                assert_eq!(response.field(name), complete.field(name));
            }
        }
        for range in [
            "bytes=99-",
            "bytes=99-100",
            "bytes=98-,99-100",
            "bytes=-0",
            "bytes=99999999999999999999999-",
        ] {
            let response = fixture.request("GET", target, &format!("Range: {range}\r\n"));
            let expected = format!("bytes */{length}");
            assert_eq!(
                (response.status, response.field("Content-Range")),
                (416, Some(&*expected)),
                "{range}"
            );
        }
        // Too many ranges.
        let bomb = "0-,".repeat(1000);
        let response = fixture.request("GET", target, &format!("Range: bytes={bomb}0-\r\n"));
        assert_eq!((response.status, response.body.len() as u64), (200, length));
    }
}

/// Returns the parts of a multipart response as `(first, last, length, type, bytes)`.
fn parts(response: &Response) -> Vec<(usize, usize, usize, String, Vec<u8>)> {
    assert_eq!((response.status, response.field("Content-Range")), (206, None), "{response:?}");
    let boundary = response.field("Content-Type").unwrap();
    let boundary = boundary.strip_prefix("multipart/byteranges; boundary=").unwrap();
    let (delimiter, mut rest) = (format!("--{boundary}"), &*response.body);
    let mut parts = Vec::new();
    loop {
        rest = rest.strip_prefix(delimiter.as_bytes()).unwrap();
        if rest == b"--\r\n" {
            return parts;
        }
        let end = rest.windows(4).position(|end| end == b"\r\n\r\n").unwrap();
        let head = std::str::from_utf8(&rest[..end]).unwrap();
        let head = head.strip_prefix("\r\nContent-Type: ").unwrap();
        let (kind, range) = head.split_once("\r\nContent-Range: bytes ").unwrap();
        let (range, length) = range.split_once('/').unwrap();
        let (first, last) = range.split_once('-').unwrap();
        let [first, last, length] = [first, last, length].map(|number| number.parse().unwrap());
        let (bytes, after) = rest[end + 4..].split_at(last + 1 - first);
        parts.push((first, last, length, kind.to_owned(), bytes.to_vec()));
        rest = after.strip_prefix(b"\r\n").unwrap();
    }
}

#[test]
fn serves_several_ranges_as_multipart() {
    let mut fixture = Fixture::with(|config| config.max_cached_file_bytes = 50_000);
    let sizes = [("a.html", 20), ("middle", 40_000), ("large", 3_000_000)];
    for (name, size) in sizes {
        fixture.write(name, (0..size).map(|at| (at % 251) as u8).collect::<Vec<_>>());
    }
    wait_until_cacheable();
    for (name, length) in sizes {
        let target = format!("/{name}");
        let complete = fixture.get(&target);
        let kind = complete.field("Content-Type").unwrap();
        let mut boundaries = Vec::new();
        for (range, expected_parts) in [
            ("0-0,2-2", vec![(0, 0), (2, 2)]),
            ("7-9, ,0-1,-2,999999999-", vec![(7, 9), (0, 1), (length - 2, length - 1)]),
            ("7-9,3-5,0-1,2-2,8-12", vec![(7, 12), (0, 5)]),
        ] {
            let response = fixture.request("GET", &target, &format!("Range: bytes={range}\r\n"));
            let expected_parts: Vec<_> = expected_parts
                .into_iter()
                .map(|(first, last)| {
                    let bytes = complete.body[first..=last].to_vec();
                    (first, last, length, kind.to_owned(), bytes)
                })
                .collect();
            assert_eq!(parts(&response), expected_parts, "{range}");
            assert!(!response.from_file);
            for field in ["ETag", "Last-Modified", "Accept-Ranges", "X-Content-Type-Options"] {
                assert_eq!(response.field(field), complete.field(field));
            }
            boundaries.push(response.field("Content-Type").unwrap().to_owned());
            let head = fixture.request("HEAD", &target, &format!("Range: bytes={range}\r\n"));
            assert_eq!((head.status, head.field("Content-Type")), (200, Some(kind)));
            let fields = format!("Range: bytes={range}\r\nIf-Range: \"x\"\r\n");
            assert_eq!(fixture.request("GET", &target, &fields).body, complete.body);
        }
        boundaries.dedup();
        assert_eq!(boundaries.len(), 3, "boundaries must not be predictable");
        let many = "0-0,2-2,".repeat(9);
        let response = fixture.request("GET", &target, &format!("Range: bytes={many}\r\n"));
        assert_eq!((response.status, response.body.len()), (200, length));
        // Two parts without a single byte in between. Large files are sent complete.
        let response = fixture.request("GET", &target, "Range: bytes=0-0,2-\r\n");
        match name {
            "large" => assert_eq!((response.status, response.body.len()), (200, length)),
            _ => assert_eq!(parts(&response)[1].4, complete.body[2..]),
        }
    }
}

#[test]
fn sends_no_parts_of_a_truncated_file() {
    // A file that was truncated after it was opened is not sent in parts.
    let mut fixture = fixture();
    let etag = fixture.get("/large").field("ETag").unwrap().to_owned();
    File::options().write(true).open(fixture.path("large")).unwrap().set_len(5).unwrap();
    // In the same turn its old length is used.
    let response = fixture.request_same_turn("HEAD", "/large", "Range: bytes=0-0,10-10\r\n");
    assert_eq!((response.status, response.field("ETag")), (200, Some(&*etag)));
    let bytes = b"GET /large HTTP/1.1\r\nHost: a\r\nRange: bytes=0-0,10-10\r\n\r\n";
    let request = RequestParser::new().parse(bytes, &Limits::default()).unwrap().unwrap();
    let answer = fixture.site.answer(&request, &today(), true, &mut Vec::new()).status;
    assert_eq!(answer, 200);
}

#[test]
fn honours_if_range() {
    let mut fixture = fixture();
    for target in ["/small", "/large"] {
        let etag = fixture.get(target).field("ETag").unwrap().to_owned();
        for (value, status) in [
            (etag.clone(), 206),
            (format!("W/{etag}"), 200),
            ("\"x\"".to_owned(), 200),
            (date(OLD), 206),
            (date(OLD + 1), 200),
            (date(OLD - 1), 200),
            ("yesterday".to_owned(), 200),
            ("*".to_owned(), 200),
        ] {
            let fields = format!("Range: bytes=1-2\r\nIf-Range: {value}\r\n");
            assert_eq!(fixture.request("GET", target, &fields).status, status, "{value}");
            let fields = format!("Range: bytes=99-\r\nIf-Range: {value}\r\n");
            let status = if status == 206 { 416 } else { 200 };
            assert_eq!(fixture.request("GET", target, &fields).status, status, "{value}");
        }
        let alone = fixture.request("GET", target, &format!("If-Range: {etag}\r\n"));
        assert_eq!(alone.status, 200);
    }
}

#[test]
fn last_modified_is_never_in_the_future() {
    let mut fixture = Fixture::new();
    fixture.write("a", "abc");
    let future = SystemTime::now() + Duration::from_secs(1_000_000);
    let file = File::options().write(true).open(fixture.path("a")).unwrap();
    file.set_modified(future).unwrap();
    for _ in 0..2 {
        let response = fixture.get("/a");
        let parse = |name| parse_http_date(response.field(name).unwrap().as_bytes()).unwrap();
        assert!(parse("Last-Modified") <= parse("Date"));
        wait_until_cacheable();
    }
    // HTTP dates cannot represent times before 1970.
    file.set_modified(UNIX_EPOCH - Duration::from_secs(100)).unwrap();
    let response = fixture.get("/a");
    assert_eq!((response.status, response.field("Last-Modified")), (200, None));
    file.set_modified(UNIX_EPOCH).unwrap();
    assert_eq!(fixture.get("/a").field("Last-Modified"), Some("Thu, 01 Jan 1970 00:00:00 GMT"));
}
