//! Inputs of `hearken load`: number of requests, addresses, archives and cookies.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::thread;

use serde_json::Value;
use tempfile::TempDir;

use crate::program::{fails_with, printed, serve, site};

fn report(args: &[&str]) -> Value {
    serde_json::from_str(&printed(&[args, &["--json", "-"]].concat())).unwrap()
}

#[test]
fn agents_send_a_number_of_requests_together() {
    let dir = site();
    let (_server, url) = serve(dir.path(), &[]);
    let load = ["load", &url, "-n", "21", "--rate", "500", "--timeout", "20s"];
    for more in [&["--on", "local:2"][..], &["--threads", "2"], &[]] {
        let report = report(&[&load[..], more].concat());
        assert_eq!(report["requests"]["scheduled"], 21, "{more:?}");
        assert_eq!(report["requests"]["replies"], 21, "{more:?}");
    }
    fails_with(&["load", &url, "-n", "0"], "--requests");
    fails_with(&["load", &url, "-n", "5", "--find-knee"], "--find-knee");
}

#[test]
fn plans_contain_unix_sockets_by_name() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("server.sock");
    let listener = UnixListener::bind(&path).unwrap();
    thread::spawn(move || {
        for mut peer in listener.incoming().flatten() {
            thread::spawn(move || {
                while peer.read(&mut [0; 1024]).is_ok_and(|count| count > 0) {
                    let _ = peer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
                }
            });
        }
    });
    let path = path.to_str().unwrap();
    let load = ["load", "http://h.invalid/", "--unix-socket", path, "-n", "9", "--on", "local:2"];
    assert_eq!(report(&load)["requests"]["replies"], 9);
    let plan = printed(&["load", "http://h/", "--unix-socket", "@name", "--print-plan"]);
    assert!(plan.contains("unix-socket = \"@name\"\n"), "{plan}");
    for (args, reason) in [
        (&["--unix-socket", path, "--sources", "127.0.0.2"][..], "--unix-socket"),
        (&["--unix-socket", path, "--resolve", "h:127.0.0.1"], "--unix-socket"),
        (&["--unix-socket", path, "--lockstep", "5"], "--unix-socket"),
        (&["--unix-socket", ""], "the path is empty"),
    ] {
        fails_with(&[&["load", "http://h/"], args].concat(), reason);
    }
}

#[test]
fn a_given_address_replaces_the_lookup() {
    let dir = site();
    let (_server, url) = serve(dir.path(), &[]);
    let url = url.replace("127.0.0.1", "h.invalid");
    let report = report(&["load", &url, "--resolve", "h.invalid:127.0.0.1", "-n", "5"]);
    assert_eq!(report["requests"]["replies"], 5);
    let wrong = ["load", &url, "--resolve", "i.invalid:127.0.0.1", "-n", "5"];
    fails_with(&wrong, "host 'i.invalid' (did you mean 'h.invalid:127.0.0.1'?)");
    fails_with(&["load", &url, "--resolve", "h.invalid"], "expected HOST:ADDR");
}

#[test]
fn archives_are_replayed_with_cookies() {
    let dir = site();
    let (_server, url) = serve(dir.path(), &[]);
    let file = dir.path().join("recorded.har");
    let entry = |path: &str| {
        serde_json::json!({
            "startedDateTime": "2024-05-01T12:00:00Z",
            "time": 1,
            "pageref": "p",
            "request": {"method": "GET", "url": format!("{url}{path}"), "headers": []},
        })
    };
    let archive = serde_json::json!({"log": {"entries": [entry("/1b"), entry("/1b")]}});
    fs::write(&file, archive.to_string()).unwrap();
    let file = file.to_str().unwrap();
    let report = report(&["load", &url, "--har", file, "--cookies", "-n", "3"]);
    assert_eq!(report["sessions"]["completed"], 3);
    assert_eq!(report["requests"]["replies"], 6);
    fails_with(&["load", &url, "--cookies"], "cookies require several requests per connection");
    fails_with(&["load", &url, "--har", file, "--urls", file], "--urls");
}

#[test]
fn unreachable_numbers_are_rejected_with_the_limit() {
    for (option, number) in [("-c", "100000000"), ("--idle", "100000000"), ("--threads", "5000")] {
        fails_with(&["load", "http://127.0.0.1:1/", option, number], "the maximum is 1");
    }
}
