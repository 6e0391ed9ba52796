//! Conditions and ranges.

use std::fs::File;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hearken_http::{format_http_date, parse_http_date};

use crate::support::{Place, settle};

const OLD: u64 = 1_700_000_000;

/// `/small` is kept in memory, `/large` is not; both of ten bytes that tell their place.
fn place() -> Place {
    let place = Place::with(|config| config.cache_file_bytes = 10);
    place.write("small", "0123456789");
    place.write("large", "0123456789A");
    for name in ["small", "large"] {
        let time = UNIX_EPOCH + Duration::from_secs(OLD);
        File::options().write(true).open(place.path(name)).unwrap().set_modified(time).unwrap();
    }
    settle();
    place
}

fn date(seconds: u64) -> String {
    String::from_utf8(format_http_date(seconds).to_vec()).unwrap()
}

#[test]
fn conditions() {
    let mut place = place();
    for target in ["/small", "/large"] {
        let etag = place.get(target).field("ETag").unwrap().to_owned();
        assert!(etag.len() == 18 && etag.starts_with('"') && etag.ends_with('"'), "{etag}");
        let (old, older, newer) = (date(OLD), date(OLD - 1), date(OLD + 1));
        assert_eq!(place.get(target).field("Last-Modified"), Some(&*old));
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
            // Several lines are malformed together.
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
            let got = place.ask("GET", target, &fields);
            assert_eq!(got.status, status, "{target} {fields}");
            let kept = if status == 412 { (None, None) } else { (Some(&*etag), Some(&*old)) };
            assert_eq!((got.field("ETag"), got.field("Last-Modified")), kept);
            if status == 304 {
                assert_eq!(got.field("Content-Type"), None);
                assert_eq!(got.fields.len(), 3);
            }
        }
        // What is not there has no condition that it meets.
        assert_eq!(place.ask("GET", "/none", "If-None-Match: *\r\n").status, 404);
    }
}

#[test]
fn ranges() {
    let mut place = place();
    for (target, length) in [("/small", 10u64), ("/large", 11)] {
        let whole = place.get(target);
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
            ("bytes=5-4", None),
            ("bytes=0-1,3-4", None),
            ("bytes=0-1, 3-4", None),
            ("bytes=-", None),
            ("bytes=", None),
            ("bytes=a-b", None),
            ("bytes=0-0x", None),
            ("bytes=--1", None),
            ("lines=0-1", None),
            ("0-1", None),
        ] {
            let got = place.ask("GET", target, &format!("Range: {range}\r\n"));
            let Some((first, last)) = part else {
                assert_eq!((got.status, &got.body), (200, &whole.body), "{range}");
                continue;
            };
            assert_eq!(got.status, 206, "{range}");
            assert_eq!(got.body, whole.body[first as usize..=last as usize], "{range}");
            let tells = format!("bytes {first}-{last}/{length}");
            assert_eq!(got.field("Content-Range"), Some(&*tells));
            for name in ["ETag", "Last-Modified", "Content-Type", "Accept-Ranges"] {
                assert_eq!(got.field(name), whole.field(name));
            }
        }
        for range in ["bytes=99-", "bytes=99-100", "bytes=-0", "bytes=99999999999999999999999-"] {
            let got = place.ask("GET", target, &format!("Range: {range}\r\n"));
            let tells = format!("bytes */{length}");
            assert_eq!((got.status, got.field("Content-Range")), (416, Some(&*tells)), "{range}");
        }
        // A range bomb.
        let bomb = "0-,".repeat(1000);
        let got = place.ask("GET", target, &format!("Range: bytes={bomb}0-\r\n"));
        assert_eq!((got.status, got.body.len() as u64), (200, length));
    }
}

#[test]
fn if_range() {
    let mut place = place();
    for target in ["/small", "/large"] {
        let etag = place.get(target).field("ETag").unwrap().to_owned();
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
            assert_eq!(place.ask("GET", target, &fields).status, status, "{value}");
            let fields = format!("Range: bytes=99-\r\nIf-Range: {value}\r\n");
            let status = if status == 206 { 416 } else { 200 };
            assert_eq!(place.ask("GET", target, &fields).status, status, "{value}");
        }
        let alone = place.ask("GET", target, &format!("If-Range: {etag}\r\n"));
        assert_eq!(alone.status, 200);
    }
}

#[test]
fn last_modified_is_never_in_the_future() {
    let mut place = Place::new();
    place.write("a", "abc");
    let future = SystemTime::now() + Duration::from_secs(1_000_000);
    let file = File::options().write(true).open(place.path("a")).unwrap();
    file.set_modified(future).unwrap();
    for _ in 0..2 {
        let got = place.get("/a");
        let parse = |name| parse_http_date(got.field(name).unwrap().as_bytes()).unwrap();
        assert!(parse("Last-Modified") <= parse("Date"));
        settle();
    }
    // Before 1970 is a time that HTTP cannot tell.
    file.set_modified(UNIX_EPOCH - Duration::from_secs(100)).unwrap();
    let got = place.get("/a");
    assert_eq!((got.status, got.field("Last-Modified")), (200, None));
    file.set_modified(UNIX_EPOCH).unwrap();
    assert_eq!(place.get("/a").field("Last-Modified"), Some("Thu, 01 Jan 1970 00:00:00 GMT"));
}
