//! What the lines say, as programs read them that did not write them.

use std::fs;

use hearken_http::{Limits, RequestParser};
use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;

fn end() -> End<'static> {
    use std::time::Duration;

    End {
        peer: Some("2001:db8::1".parse().unwrap()),
        status: 200,
        sent: 5,
        received: 6,
        server: Some("127.0.0.1:9000"),
        tries: 2,
        queued: Duration::ZERO,
        connected: Duration::from_micros(1_250),
        answered: Duration::from_millis(30),
        whole: Duration::from_secs(61),
        how: "done",
    }
}

fn logged(request: &[u8]) -> Logged {
    let mut logged = Logged::default();
    logged.take(&RequestParser::new().parse(request, &Limits::default()).unwrap().unwrap());
    logged
}

fn lines(format: LogFormat, all: &[(&Logged, &End<'_>)]) -> Vec<String> {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("log");
    let mut log = AccessLog::open_as(&path, format).unwrap();
    for (logged, end) in all {
        log.finished(&DateCache::new(951_827_696), logged, end);
    }
    log.flush();
    let text = fs::read_to_string(path).unwrap();
    assert!(text.ends_with('\n') && text.lines().count() == all.len(), "{text}");
    text.lines().map(str::to_owned).collect()
}

const REQUEST: &[u8] =
    b"GET http://a:1/x?\"y HTTP/1.0\r\nuser-agent: t\\\xff\r\nReferer: r\xc3\xa9\r\n\
    Referer: second\r\nHost: b\r\n\r\n";

#[test]
fn the_combined_format_is_that_of_the_static_server() {
    let left = End { peer: None, status: 0, sent: 0, how: "client-left", ..end() };
    let got = lines(
        LogFormat::Combined,
        &[(&logged(REQUEST), &end()), (&logged(REQUEST), &left), (&Logged::default(), &end())],
    );
    assert_eq!(
        got,
        [
            r#"2001:db8::1 - - [29/Feb/2000:12:34:56 +0000] "GET http://a:1/x?\x22y HTTP/1.0" 200 5 "r\xc3\xa9" "t\x5c\xff""#,
            r#"- - - [29/Feb/2000:12:34:56 +0000] "GET http://a:1/x?\x22y HTTP/1.0" - 0 "r\xc3\xa9" "t\x5c\xff""#,
            r#"2001:db8::1 - - [29/Feb/2000:12:34:56 +0000] "-" 200 5 "-" "-""#,
        ]
    );
}

#[test]
fn a_line_of_json_has_all_that_is_known() {
    let nothing = End { peer: None, status: 0, server: None, ..end() };
    let got = lines(LogFormat::Json, &[(&logged(REQUEST), &end()), (&Logged::default(), &nothing)]);
    let got: Vec<Value> = got.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        got[0],
        json!({
            "time": "2000-02-29T12:34:56Z", "client": "2001:db8::1", "method": "GET",
            "target": "http://a:1/x?\"y", "protocol": "HTTP/1.0", "host": "a:1", "status": 200,
            "sent": 5, "received": 6, "referer": "ré", "user_agent": "t\\\u{fffd}",
            "server": "127.0.0.1:9000", "tries": 2, "queued": 0.0, "connected": 0.00125,
            "answered": 0.03, "whole": 61.0, "end": "done",
        })
    );
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&got[0]), keys(&got[1]));
    for key in ["client", "method", "target", "protocol", "host", "status", "referer", "server"] {
        assert!(got[1][key].is_null(), "{key}");
    }
}

#[test]
fn every_month_is_told() {
    for (month, days) in (1..).zip([0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334]) {
        let mut out = Vec::new();
        json::line(&DateCache::new(days * 86_400), &Logged::default(), &end(), &mut out);
        let line: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(line["time"], format!("1970-{month:02}-01T00:00:00Z"));
    }
}

#[test]
fn what_is_kept_is_bounded_and_its_memory_used_again() {
    let long = format!("GET /{} HTTP/1.1\r\nHost: a\r\nReferer: {0}\r\n\r\n", "x".repeat(5_000));
    let mut logged = logged(long.as_bytes());
    let [line]: [String; 1] = lines(LogFormat::Json, &[(&logged, &end())]).try_into().unwrap();
    let line: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(line["target"].as_str().unwrap().len(), MOST);
    assert_eq!(line["referer"].as_str().unwrap().len(), MOST);
    assert!(line["user_agent"].is_null());
    logged.clear();
    assert!(logged.line().is_none() && logged.referer().is_none());
}

#[test]
fn a_log_that_was_moved_away_is_made_anew() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("log");
    let old = dir.path().join("log.1");
    let count = |path| fs::read_to_string(path).unwrap_or_default().lines().count();
    let mut log = AccessLog::open_as(&path, LogFormat::Json).unwrap();
    let write = |log: &mut AccessLog| {
        log.finished(&DateCache::new(0), &Logged::default(), &end());
    };
    write(&mut log);
    fs::rename(&path, &old).unwrap();
    // What was gathered before belongs to the old one.
    log.reopen().unwrap();
    write(&mut log);
    log.flush();
    assert_eq!((count(&old), count(&path)), (1, 1));

    fs::rename(&path, &old).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(log.reopen().is_err());
    write(&mut log);
    log.flush();
    assert_eq!(count(&old), 2);
}

proptest! {
    #[test]
    fn any_bytes_are_what_a_decoder_makes_of_them(
        bytes in prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..64),
            proptest::collection::vec(
                prop_oneof![Just(0xe2), Just(0x80), Just(0xa8), Just(0xf0), Just(0x9f), Just(0xc2),
                    Just(0xed), Just(0xa0), Just(b'"'), Just(b'\\'), Just(b'\n')],
                0..32,
            ),
            "\\PC{0,20}".prop_map(String::into_bytes),
        ],
    ) {
        let mut out = Vec::new();
        json::string(&bytes, &mut out);
        prop_assert!(!out.iter().any(u8::is_ascii_control));
        let got: String = serde_json::from_slice(&out).unwrap();
        prop_assert_eq!(got, String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn no_field_breaks_a_line(value in "[ -~\\t]{0,40}", mut other in any::<Vec<u8>>()) {
        other.retain(|byte| !matches!(byte, 0..=8 | 10..=31 | 127));
        let mut request = format!("GET / HTTP/1.1\r\nHost: a\r\nReferer: {value}\r\nUser-Agent: ")
            .into_bytes();
        request.extend_from_slice(&other);
        request.extend_from_slice(b"\r\n\r\n");
        let logged = logged(&request);
        let json = lines(LogFormat::Json, &[(&logged, &end())]);
        let line: Value = serde_json::from_str(&json[0]).unwrap();
        prop_assert_eq!(line["referer"].as_str().unwrap(), value.trim_matches([' ', '\t']));
        let combined = lines(LogFormat::Combined, &[(&logged, &end())]);
        prop_assert_eq!(combined[0].matches('"').count(), 6);
        prop_assert!(combined[0].bytes().all(|byte| (b' '..=b'~').contains(&byte)));
    }
}
