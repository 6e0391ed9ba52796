//! Other programs as clients, if they are installed.

use std::process::Command;

use crate::common::{Setup, Site, pattern};

/// Runs a program. Returns what it printed, or `None` if it is not installed or lacks HTTP/2.
fn output(program: &str, arguments: &[&str], feature: &str) -> Option<Vec<u8>> {
    let version = Command::new(program).arg("--version").output();
    if !version.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(feature)) {
        eprintln!("skipped: {program} with {feature} is not installed");
        return None;
    }
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    Some(output.stdout)
}

#[test]
fn serves_curl() {
    let site = Site::with_large();
    let server = Setup::named("epoll-edge").serve(&site, |_| {});
    let url = |path: &str| format!("http://{}{path}", server.addr());
    // One transfer each: version 7.88 cannot use a connection with prior knowledge again.
    let arguments = ["-sS", "--max-time", "20", "--http2-prior-knowledge"];
    let run = |more: &[&str]| output("curl", &[&arguments, more].concat(), "nghttp2");
    let Some(large) = run(&[&url("/large")]) else { return };
    assert!(large == pattern());
    let version = run(&["-o", "/dev/null", "-w", "%{http_version} %{http_code}", &url("/small")]);
    assert_eq!(version.unwrap(), b"2 200");
    let posted = run(&["--data", "content", "-w", "%{http_code}", &url("/small")]);
    assert!(posted.unwrap().ends_with(b"405"));
}

#[test]
fn serves_nghttp() {
    let site = Site::with_large();
    let server = Setup::named("epoll-edge").serve(&site, |_| {});
    let url = |path: &str| format!("http://{}{path}", server.addr());
    let arguments = ["--timeout=20", "--no-dep", &url("/large"), &url("/small")];
    let Some(content) = output("nghttp", &arguments, "nghttp2") else { return };
    assert_eq!(content.len(), pattern().len() + 6);
}
