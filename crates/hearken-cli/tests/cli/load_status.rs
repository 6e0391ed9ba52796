//! The exit status of `hearken load` if nothing succeeded, with the cause on standard error.

use std::fs;
use std::net::TcpListener;

use rustix::process::Signal;
use serde_json::Value;

use crate::program::{Running, hearken, run, serve, site, text};

/// Returns a URL at which no server listens.
fn closed() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}/", listener.local_addr().unwrap())
}

/// Checks that a load exits with 1, and names the cause on one line of standard error and in its warnings.
#[track_caller]
fn fails(args: &[&str], cause: &str) {
    let output = run(&[&["load", "--json", "-", "--duration", "200ms"], args].concat());
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    let last = errors.lines().last().unwrap_or_default();
    assert!(last.starts_with("hearken: no") && last.contains(cause), "{cause}: {errors}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let warnings = report["warnings"].as_array().unwrap();
    let found = warnings.iter().any(|text| last.ends_with(text.as_str().unwrap()));
    assert!(found || report["requests"]["scheduled"] == 0, "{report}");
}

#[test]
fn a_load_without_a_reply_exits_with_1_and_the_cause() {
    let dir = site();
    let (_server, url) = serve(dir.path(), &[]);
    let dead = closed();
    let refused = format!("connections were refused; check that a server listens at {dead}");
    fails(&[&dead, "--rate", "100"], &refused);
    fails(&[&dead, "--rate", "100", "--per-connection", "1", "--slo", "p99<1s"], &refused);
    fails(&[&dead, "--closed", "--connections", "2"], "connections were refused");
    let tls = url.replace("http:", "https:");
    fails(&[&tls, "--rate", "100", "--insecure"], "the server does not speak TLS");
    let check = ["--rate", "100", "--expect", "status=503|404"];
    fails(
        &[&[&*url], &check[..]].concat(),
        "replies failed a check; first: expected status 503|404, found 200",
    );
    // Connections are accepted by the kernel, but nothing answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = (format!("http://{}/", silent.local_addr().unwrap()), silent);
    let args = [&*silent.0, "--rate", "100", "--timeout", "100ms", "--connections", "8"];
    fails(&args, "requests timed out before the first byte of the reply");
    fails(&[&dead, "--rate", "0", "--idle", "5"], "none of 5 idle connections could be opened");
    // Some replies are a success.
    let paths = dir.path().join("paths");
    fs::write(&paths, "/1b status=200\n/1b status=503\n").unwrap();
    let args = ["load", &url, "--rate", "200", "--duration", "200ms", "--seed", "1", "--urls"];
    let output = run(&[&args[..], &[paths.to_str().unwrap()]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("expected status 503, found 200"), "{output:?}");
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
}

#[test]
fn a_load_that_offers_nothing_says_so() {
    let dir = site();
    let (_server, url) = serve(dir.path(), &[]);
    let args = ["load", &url, "--rate", "0.001", "--duration", "100ms"];
    let output = run(&args);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let expected = "no requests were scheduled: 0.001/s for 0.1 s is 0.00 on average";
    let summary = text(&output.stdout).replace("\n             ", " ");
    assert!(summary.contains(expected), "{summary}");
}

#[test]
fn the_merged_result_of_agents_sets_the_exit_status() {
    let dead = closed();
    let load = ["load", &dead, "--rate", "100", "--duration", "200ms"];
    let output = run(&[&load[..], &["--on", "local:2"]].concat());
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert_eq!(errors.matches("no request succeeded").count(), 1, "{errors}");
    // The agent itself has delivered its result.
    let output = run(&[&load[..], &["--rank", "0", "--size", "2"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let dir = site();
    let part = dir.path().join("part");
    fs::write(&part, &output.stdout).unwrap();
    let output = run(&["load", "merge", part.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
}

#[test]
fn a_second_signal_ends_the_load_at_once() {
    let dir = site();
    let (_server, url) = serve(dir.path(), &[]);
    let mut load = Running::start(&["load", &url, "--duration", "1h", "--announce"]);
    assert_eq!(load.line(), "prepared\n");
    load.signal(Signal::TERM);
    load.signal(Signal::INT);
    // Either signal may be handled first.
    let status = load.child.wait().unwrap().code();
    assert!([Some(143), Some(130)].contains(&status), "{status:?}");
}

#[test]
fn quiet_loads_print_errors_only() {
    let dir = site();
    let (_server, url) = serve(dir.path(), &[]);
    let load = |url: &str, more: &[&str]| {
        let args = ["load", url, "--rate", "100", "--duration", "200ms", "--quiet"];
        hearken(&[&args, more].concat()).output().unwrap()
    };
    for more in [&[][..], &["--idle", "3"], &["--progress=log"], &["--on", "local:2"]] {
        let output = load(&url, more);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
    }
    let json = load(&url, &["--json", "-"]);
    assert!(serde_json::from_slice::<Value>(&json.stdout).is_ok());
    let dead = closed();
    let output = load(&dead, &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty(), "{output:?}");
    let errors = text(&output.stderr);
    assert!(errors.starts_with("hearken: no request succeeded: "), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
}
