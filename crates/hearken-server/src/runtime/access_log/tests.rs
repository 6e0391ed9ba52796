//! Log lines, checked with independent parsers.

use std::fs;

use hearken_http::{Limits, RequestParser};
use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;

fn record() -> RequestRecord<'static> {
    use std::time::Duration;

    RequestRecord {
        peer: Some("2001:db8::1".parse().unwrap()),
        tls_version: Some("TLSv1.3"),
        client_subject: Some("CN=\"a\""),
        status: 200,
        bytes_sent: 5,
        bytes_received: 6,
        upstream: Some("127.0.0.1:9000"),
        attempts: 2,
        queue_time: Duration::ZERO,
        connect_time: Duration::from_micros(1_250),
        header_time: Duration::from_millis(30),
        request_time: Duration::from_secs(61),
        outcome: Outcome::Complete,
        is_http2: false,
    }
}

type Logged<'a> = (&'a [u8], Option<Rejected<'a>>, RequestRecord<'a>);

/// Formats one line per item. An empty request stands for none.
fn lines(format: LogFormat, all: &[Logged<'_>]) -> Vec<String> {
    let mut out = Vec::new();
    for (request, rejected, record) in all {
        let mut parser = RequestParser::new();
        let request = parser.parse(request, &Limits::default()).unwrap();
        let date = DateCache::new(951_827_696);
        match format {
            LogFormat::Combined => {
                combined::line(&date, request.as_ref(), *rejected, record, &mut out);
            }
            LogFormat::Json => json::line(&date, request.as_ref(), *rejected, record, &mut out),
        }
    }
    let text = String::from_utf8(out).unwrap();
    assert!(text.ends_with('\n') && text.lines().count() == all.len(), "{text}");
    text.lines().map(str::to_owned).collect()
}

const REQUEST: &[u8] =
    b"GET http://a:1/x?\"y HTTP/1.0\r\nuser-agent: t\\\xff\r\nReferer: r\xc3\xa9\r\n\
    Referer: second\r\nHost: b\r\n\r\n";

const REJECTED: Rejected<'static> =
    Rejected { input: b"GET \"/\xff\r\n", reason: "malformed request line" };

#[test]
fn formats_combined_lines() {
    let left = RequestRecord {
        peer: None,
        status: 0,
        bytes_sent: 0,
        outcome: Outcome::ClientDisconnected,
        ..record()
    };
    let empty = Rejected { input: b"", ..REJECTED };
    let got = lines(
        LogFormat::Combined,
        &[
            (REQUEST, None, record()),
            (REQUEST, None, left),
            (b"", None, record()),
            (b"", Some(REJECTED), record()),
            (REQUEST, Some(REJECTED), record()),
            (b"", Some(empty), record()),
        ],
    );
    assert_eq!(
        got,
        [
            r#"2001:db8::1 - - [29/Feb/2000:12:34:56 +0000] "GET http://a:1/x?\x22y HTTP/1.0" 200 5 "r\xc3\xa9" "t\x5c\xff""#,
            r#"- - - [29/Feb/2000:12:34:56 +0000] "GET http://a:1/x?\x22y HTTP/1.0" - 0 "r\xc3\xa9" "t\x5c\xff""#,
            r#"2001:db8::1 - - [29/Feb/2000:12:34:56 +0000] "-" 200 5 "-" "-""#,
            r#"2001:db8::1 - - [29/Feb/2000:12:34:56 +0000] "GET \x22/\xff\x0d\x0a" 200 5 "-" "-" "malformed request line""#,
            r#"2001:db8::1 - - [29/Feb/2000:12:34:56 +0000] "GET http://a:1/x?\x22y HTTP/1.0" 200 5 "r\xc3\xa9" "t\x5c\xff" "malformed request line""#,
            r#"2001:db8::1 - - [29/Feb/2000:12:34:56 +0000] "-" 200 5 "-" "-" "malformed request line""#,
        ]
    );
}

#[test]
fn formats_json_lines() {
    let nothing = RequestRecord { peer: None, status: 0, upstream: None, ..record() };
    let all = [(REQUEST, None, record()), (b"" as &[u8], Some(REJECTED), nothing)];
    let got = lines(LogFormat::Json, &all);
    let got: Vec<Value> = got.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        got[0],
        json!({
            "time": "2000-02-29T12:34:56Z", "client": "2001:db8::1", "method": "GET",
            "target": "http://a:1/x?\"y", "protocol": "HTTP/1.0", "host": "a:1", "status": 200,
            "tls_version": "TLSv1.3", "tls_client_subject": "CN=\"a\"",
            "bytes_sent": 5, "bytes_received": 6, "referer": "ré", "user_agent": "t\\\u{fffd}",
            "upstream": "127.0.0.1:9000", "attempts": 2, "queue_time": 0.0,
            "connect_time": 0.00125, "header_time": 0.03, "request_time": 61.0,
            "outcome": "complete", "input": null, "reason": null,
        })
    );
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&got[0]), keys(&got[1]));
    for key in ["client", "method", "target", "protocol", "host", "status", "referer", "upstream"] {
        assert!(got[1][key].is_null(), "{key}");
    }
    assert_eq!(got[1]["input"], "GET \"/\u{fffd}\r\n");
    assert_eq!(got[1]["reason"], "malformed request line");
}

#[test]
fn formats_every_month() {
    for (month, days) in (1..).zip([0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334]) {
        let mut out = Vec::new();
        json::line(&DateCache::new(days * 86_400), None, None, &record(), &mut out);
        let line: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(line["time"], format!("1970-{month:02}-01T00:00:00Z"));
    }
}

#[test]
fn truncates_fields_and_rejected_input() {
    let long = format!("GET /{} HTTP/1.1\r\nHost: a\r\nReferer: {0}\r\n\r\n", "x".repeat(5_000));
    let rejected = Rejected { input: &[b'y'; 5_000], reason: "bad" };
    let all = [(long.as_bytes(), None, record()), (b"", Some(rejected), record())];
    let json = lines(LogFormat::Json, &all);
    let json: Vec<Value> = json.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(json[0]["target"].as_str().unwrap().len(), MAX_FIELD_BYTES);
    assert_eq!(json[0]["referer"].as_str().unwrap().len(), MAX_FIELD_BYTES);
    assert!(json[0]["user_agent"].is_null());
    assert_eq!(json[1]["input"].as_str().unwrap().len(), MAX_INPUT_BYTES);
    let combined = lines(LogFormat::Combined, &all);
    // The target contains one x less, because it starts with a slash.
    assert_eq!(combined[0].matches('x').count(), 2 * MAX_FIELD_BYTES - 1);
    assert_eq!(combined[1].matches('y').count(), MAX_INPUT_BYTES);
}

#[test]
fn writes_the_lines_of_all_workers() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("log");
    let writer = LogWriter::start(&path).unwrap();
    let mut logs = [(); 2].map(|()| AccessLog::new(writer.sink(), LogFormat::Combined));
    for log in &mut logs {
        for _ in 0..3 {
            log.request(&DateCache::new(0), None, None, &record());
        }
    }
    logs[0].flush();
    drop(logs);
    drop(writer);
    assert_eq!(fs::read_to_string(path).unwrap().lines().count(), 6);
}

proptest! {
    #[test]
    fn json_strings_decode_like_lossy_utf8(
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
    fn no_field_or_input_breaks_a_line(value in "[ -~\\t]{0,40}", mut other in any::<Vec<u8>>()) {
        other.retain(|byte| !matches!(byte, 0..=8 | 10..=31 | 127));
        let mut request = format!("GET / HTTP/1.1\r\nHost: a\r\nReferer: {value}\r\nUser-Agent: ")
            .into_bytes();
        request.extend_from_slice(&other);
        request.extend_from_slice(b"\r\n\r\n");
        let rejected = Rejected { input: &other, reason: "bad" };
        let json = lines(
            LogFormat::Json,
            &[(&request, None, record()), (b"", Some(rejected), record())],
        );
        let line: Value = serde_json::from_str(&json[0]).unwrap();
        prop_assert_eq!(line["referer"].as_str().unwrap(), value.trim_matches([' ', '\t']));
        let combined = lines(
            LogFormat::Combined,
            &[(&request, None, record()), (b"", Some(rejected), record())],
        );
        prop_assert_eq!(combined[0].matches('"').count(), 6);
        prop_assert_eq!(combined[1].matches('"').count(), 8);
        for line in combined {
            prop_assert!(line.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
        }
    }
}
