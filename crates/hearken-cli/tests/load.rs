//! `hearken load` as its user meets it: what it refuses, and how it ends.

mod program;

use std::fs;
use std::io::Read;
use std::net::TcpListener;

use program::{Running, hearken, refused, run, serve, site, text};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

/// One line says what is wrong, and the server hears nothing of it.
#[test]
fn what_cannot_be_loaded_is_refused() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", server.local_addr().unwrap());
    let tls = url.replace("http:", "https:");
    for (args, names) in [
        (&["--rate", "0"][..], "rate"),
        (&["--rate", "-5"], "\"-5\" is not a rate"),
        (&["--rate", "many"], "\"many\" is not a rate"),
        (&["--rate", "1..2@"], "--rate"),
        (&["--rate", "5,6"], "--rate"),
        (&["--rate", "1e10"], "--rate"),
        (&["--steps", "5"], "\"5\" are not steps"),
        (&["--steps", "1,x@1s"], "\"x\" is not a rate"),
        (&["--steps", "1..9/0@1s"], "--steps"),
        (&["--think", "often"], "--think"),
        (&["--closed", "--think", "exp:"], "--think"),
        (&["--connection-time", "pareto:1s"], "--connection-time"),
        (&["--idle-think", "uniform:5s..1s"], "--idle-think"),
        (&["--per-connection", "0"], "\"0\" is no number from 1"),
        (&["--per-connection", "9..5"], "ends before it begins"),
        (&["--connections", "0"], "--connections"),
        (&["--pipeline", "0"], "--pipeline"),
        (&["--pipeline", "4"], "one by one"),
        (&["--think", "1s"], "one by one"),
        (&["--threads", "9", "-c", "8"], "fewer connections than threads"),
        (&["--threads", "9999", "-c", "9999"], "1,024"),
        (&["--expect", "status=99"], "\"99\" is no status"),
        (&["--expect", "statut=200"], "unknown check \"statut=200\""),
        (&["--expect", "sha256=12"], "--expect"),
        (&["--timeout", "soon"], "--timeout"),
        (&["--connect-timeout", "0"], "no time at all"),
        (&["--first-byte-timeout", "0"], "no time at all"),
        (&["--interval", "1ms"], "10 ms"),
        (&["--idle-rate", "0"], "idle connections"),
        (&["--idle-rate", "NaN"], "idle connections"),
        (&["--header", "no colon"], "no colon"),
        (&["--header", "a b: c"], "a b: c"),
        (&["--method", "get"], "capitals"),
        (&["--body-file", "/no/such/body"], "/no/such/body"),
        (&["--sources", "::1"], "IPv6"),
        (&["--sources", "localhost"], "--sources"),
        (&["--seed", "few"], "--seed"),
        (&["--by", "bytes"], "[possible values: requests, connections, sessions]"),
        (&["--arrivals", "trace"], "[possible values: "),
        (&["--events", "kqueue"], "kqueue"),
        (&["--json", "/no/such/file"], "/no/such/file"),
        (&["--rat", "5"], "--rat"),
        // Those that contradict each other, or stand alone.
        (&["--closed", "--rate", "5"], "cannot be used with"),
        (&["--closed", "--by", "sessions"], "cannot be used with"),
        (&["--steps", "1,2@1s", "--rate", "5"], "cannot be used with"),
        (&["--urls", "a", "--trace", "b"], "cannot be used with"),
        (&["--wlog", "n,a", "--wsesslog", "1,1,b"], "cannot be used with"),
        (&["--head", "--method", "PUT"], "cannot be used with"),
        (&["--body", "x", "--body-file", "y"], "cannot be used with"),
        (&["--speed", "2"], "--access-log"),
        (&["--skip-bad"], "--access-log"),
        // Without TLS there is nothing to believe.
        (&["--insecure"], "https://"),
        (&["--cacert", "/no/such/ca"], "https://"),
    ] {
        refused(&[&["load", &url], args].concat(), names);
    }
    for (args, names) in [
        (&["--cacert", "/no/such/ca"][..], "/no/such/ca"),
        (&["--cacert", "/dev/null"], "no certificate"),
        (&["--key", "/dev/null"], "--cert"),
        (&["--cert", "/no/such/cert"], "/no/such/cert"),
        (&["--insecure", "--server-name", "a b"], "\"a b\""),
    ] {
        refused(&[&["load", &tls], args].concat(), names);
    }
    refused(&["load", "ftp://127.0.0.1/"], "http://HOST:PORT/PATH");
    refused(&["load", "http://127.0.0.1:70000/"], "70000");
    refused(&["load"], "<URL>");
    server.set_nonblocking(true).unwrap();
    assert!(server.accept().is_err(), "something was sent");
}

/// A file that is wrong is named, with the line.
#[test]
fn files_that_are_wrong_are_named() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", server.local_addr().unwrap());
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("given");
    let path = path.to_str().unwrap();
    for (flag, form, content, names) in [
        ("--urls", "", "/a\n# b\n3 /c\nd\n", "line 4: "),
        ("--urls", "", "-1 /a\n", "line 1: "),
        ("--urls", "", "/a GET status=99\n", "line 1: "),
        ("--urls", "", "http://other.example/\n", "another server"),
        ("--urls", "", "", "cannot use "),
        ("--wlog", "n,", "/a\0b\0", "line 2: "),
        ("--wlog", "y,", "", "names no path"),
        ("--wsesslog", "1,0,", "/a\n\n/b think=x\n", "line 3: "),
        ("--wsesslog", "1,0,", "/a contents='x\n", "line 1: "),
        ("--wsesslog", "1,0,", "\n\n", "cannot use "),
        ("--trace", "", "0 /a\n1 /b\n0.5 /c\n", "line 3: it is earlier"),
        ("--trace", "", "soon /a\n", "line 1: "),
        ("--access-log", "", "no log\n", "line 1: "),
        ("--access-log", "", "{\"path\": \"/\"}\n", "line 1: "),
    ] {
        fs::write(path, content).unwrap();
        let given = format!("{form}{path}");
        refused(&["load", &url, flag, &given], names);
        refused(&["load", &url, flag, &given], path);
        refused(&["load", &url, flag, &format!("{form}/no/such/file")], "/no/such/file");
    }
    for (flag, given) in [
        ("--wlog", "/paths"),
        ("--wlog", "maybe,/paths"),
        ("--wsesslog", "/sessions"),
        ("--wsesslog", "1,/sessions"),
        ("--wsesslog", "few,1,/sessions"),
        ("--wsesslog", "1,soon,/sessions"),
    ] {
        refused(&["load", &url, flag, given], &format!("\"{given}\" is nothing for {flag}"));
    }
    fs::write(path, "/a\n").unwrap();
    let sessions = format!("1,0,{path}");
    for more in [&["--per-connection", "5"][..], &["--pipeline", "2"], &["--think", "1s"]] {
        refused(&[&["load", &url, "--wsesslog", &sessions], more].concat(), "sessions");
    }
    refused(&["load", &url, "--access-log", path, "--speed", "0"], "speed");
    refused(&["load", &url, "--specweb", dir.path().to_str().unwrap()], "hearken load specweb");
    server.set_nonblocking(true).unwrap();
    assert!(server.accept().is_err(), "something was sent");
}

#[test]
fn idle_connections_are_held_until_it_is_interrupted() {
    let dir = site();
    let (_server, url) = serve(dir.path(), &[]);
    let mut load = Running::start(&["load", &url, "--rate", "0", "--idle", "100"]);
    assert_eq!(load.line(), "holding 100 idle connections\n");
    load.signal(Signal::INT);
    assert_eq!(load.child.wait().unwrap().code(), Some(0));
}

/// What there is by then is the result, whole and true.
#[test]
fn a_load_that_is_interrupted_tells_what_it_came_to() {
    let dir = site();
    let (_server, url) = serve(dir.path(), &[]);
    for more in [&["--rate", "300"][..], &["--closed"], &["--by", "connections", "--rate", "100"]] {
        let args = ["load", &url, "--duration", "1h", "--announce", "--json", "-", "--idle", "7"];
        let mut load = Running::start(&[&args, more].concat());
        assert_eq!(load.line(), "prepared\n");
        load.signal(Signal::INT);
        let mut json = String::new();
        load.out.read_to_string(&mut json).unwrap();
        assert_eq!(load.child.wait().unwrap().code(), Some(0));
        let report: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(report["complete"], false);
        let of = |name: &str| report["requests"][name].as_u64().unwrap();
        assert_eq!(of("intended"), of("replies") + of("failed") + of("unfinished"), "{report}");
        assert_eq!(report["idle"]["held"], 7);
        assert!(report["duration_s"].as_f64().unwrap() < 3600.0);
        assert!(report["histograms"]["latency"].is_string(), "{report}");
        let warnings = report["warnings"].as_array().unwrap();
        assert!(warnings.iter().any(|text| text.as_str().unwrap().contains("stopped")), "{report}");
    }
}

/// A list that ends is one: no duration is needed.
#[test]
fn a_list_is_asked_for_once() {
    let dir = site();
    let (_server, url) = serve(dir.path(), &[]);
    let paths = dir.path().join("paths");
    fs::write(&paths, "/1b\0/none\0/1b\0").unwrap();
    let list = format!("n,{}", paths.display());
    let output = run(&["load", &url, "--wlog", &list, "--rate", "500", "--json", "-"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["complete"], &report["requests"]["replies"]), (&true.into(), &3.into()));
    assert_eq!((&report["status"]["2xx"], &report["status"]["4xx"]), (&2.into(), &1.into()));
    let shown = hearken(&["load", &url, "--wlog", &list]).output().unwrap();
    assert!(text(&shown.stdout).contains("3 of 3"), "{}", text(&shown.stdout));
}

#[test]
fn a_file_set_is_made_and_asked_for() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("new/files");
    let path = path.to_str().unwrap();
    let make = ["load", "specweb", "--make", path, "--directories", "1"];
    for (written, kept) in [(36, 0), (0, 36)] {
        let output = run(&make);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let told = format!("{written} files written, {kept} kept, 5.1 MB in all\n");
        assert!(text(&output.stdout).ends_with(&told), "{}", text(&output.stdout));
    }
    let (_server, url) = serve(path.as_ref(), &[]);
    let args =
        ["load", &url, "--specweb", path, "--rate", "50", "--duration", "200ms", "--seed", "3"];
    let output = run(&[&args[..], &["--json", "-"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["model"], "sessions");
    let requests = &report["requests"];
    assert!(requests["replies"].as_u64() > Some(0), "{report}");
    assert_eq!(requests["replies"], requests["intended"], "{report}");
    refused(&["load", "specweb", "--make", path], "--directories");
    refused(&["load", "specweb", "--directories", "1"], "--make");
    refused(&["load", "specweb", "--make", path, "--directories", "0"], "from 1 to 100,000");
    let both = ["--directories", "1", "--connections", "1"];
    refused(&[&["load", "specweb", "--make", path], &both[..]].concat(), "cannot be used with");
    refused(&["load", "specweb", "--make", "/proc/none", "--directories", "1"], "/proc/none");
}
