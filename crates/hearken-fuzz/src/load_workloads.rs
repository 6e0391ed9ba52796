//! Files with the requests of a load.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::time::Duration;

use hearken_http::{Body, Limits, RequestParser};
use hearken_load::fuzzing::requests;
use hearken_load::{RequestTemplate, Source};
use rustix::fs::{MemfdFlags, memfd_create};

/// Limits that a request from a file cannot exceed.
const LIMITS: Limits =
    Limits { max_head_bytes: 1 << 24, max_fields: 1 << 20, max_target_bytes: 1 << 24 };

/// Checks that each request of a file is one complete, valid request.
fn check(bytes: &[u8], source: impl Fn(PathBuf) -> Source) {
    let file = memfd_create("input", MemfdFlags::CLOEXEC).expect("memory for the input");
    let mut file = File::from(file);
    file.write_all(bytes).expect("memory for the input");
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let template = RequestTemplate::default();
    let requests = match requests(&source(path), &template, 100) {
        Ok(requests) => requests,
        Err(error) => {
            let text = error.to_string();
            assert!(!text.contains(|c: char| c.is_control()), "{text:?}");
            return;
        }
    };
    for request in requests {
        let parsed = RequestParser::new().parse(&request, &LIMITS);
        let shown = request.escape_ascii();
        // This parser limits the length of methods, which is no error of the request.
        if parsed.as_ref().is_err_and(|reject| reject.status == 501) {
            continue;
        }
        let parsed = parsed.unwrap_or_else(|reject| panic!("{reject}: {shown}"));
        let parsed = parsed.unwrap_or_else(|| panic!("incomplete: {shown}"));
        let body = match parsed.body {
            Body::None => 0,
            Body::Length(length) => length,
            Body::Chunked => panic!("chunked: {shown}"),
        };
        assert_eq!(request.len() as u64, parsed.head_len as u64 + body, "{shown}");
    }
}

#[test]
fn url_list() {
    bolero::check!().for_each(|bytes: &[u8]| check(bytes, Source::Urls));
}

#[test]
fn wlog() {
    bolero::check!().for_each(|bytes: &[u8]| {
        check(bytes, |path| Source::Wlog { path, repeat: bytes.len().is_multiple_of(2) });
    });
}

#[test]
fn session_log() {
    bolero::check!().for_each(|bytes: &[u8]| {
        let think = Duration::from_secs(1);
        check(bytes, |path| Source::Wsesslog { sessions: Some(20), think, path });
    });
}

#[test]
fn http_archive() {
    bolero::check!().for_each(|bytes: &[u8]| check(bytes, Source::Har));
}

#[test]
fn access_log() {
    bolero::check!().for_each(|bytes: &[u8]| {
        let skip_invalid = bytes.len().is_multiple_of(2);
        check(bytes, |path| Source::AccessLog { path, speed: 1.0, skip_invalid });
    });
}

#[test]
fn trace() {
    bolero::check!().for_each(|bytes: &[u8]| check(bytes, Source::Trace));
}
