//! `hearken serve`: start, stop, config files, logs and metrics.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;

use hearken::io::find;
use rustix::process::Signal;
use serde_json::Value;

use crate::program::{Running, fails_with, hearken, run, serve, site, text};

/// Sends a GET request on a new connection and returns the response.
fn get(addr: &str, path: &str) -> String {
    let mut client = TcpStream::connect(addr).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
    client.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    client.read_to_string(&mut response).unwrap();
    response
}

#[test]
fn every_mechanism_serves_and_stops() {
    let dir = site();
    for name in hearken::io::names().filter(|name| find(name).unwrap().probe().is_ok()) {
        let mut args = vec!["serve", dir.path().to_str().unwrap(), "--listen", "127.0.0.1:0"];
        args.extend(["--events", name, "--workers", "2"]);
        let mut server = Running::start(&args);
        let line = server.line();
        let addr = line
            .strip_prefix("listening on http://")
            .and_then(|rest| rest.strip_suffix(" connections)\n")?.split_once(' '))
            .filter(|(_, rest)| rest.starts_with(&format!("({name}, 2 workers, ")))
            .map(|(addr, _)| addr)
            .unwrap_or_else(|| panic!("{line:?}"));
        let response = get(addr, "/");
        assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
        assert!(response.ends_with("\r\n\r\n<p>hark</p>"), "{response}");
        server.signal(Signal::TERM);
        assert_eq!(server.child.wait().unwrap().code(), Some(0), "{name}");
    }
}

#[test]
fn a_log_and_metrics_are_written() {
    let dir = site();
    let log = dir.path().join("log");
    let args = ["serve", dir.path().to_str().unwrap(), "--listen", "127.0.0.1:0", "--access-log"];
    let more = ["--log-format", "json", "--admin", "127.0.0.1:0"];
    let mut command = hearken(&args);
    command.arg(&log).args(more).args(["--experiment", "meter-waits=yes"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    let mut errors = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut server = Running { child, out };
    let addresses = [server.line(), server.line()].map(|line| {
        let url = line.split_whitespace().find_map(|word| word.strip_prefix("http://"));
        let url = url.unwrap_or_else(|| panic!("{line:?}"));
        url.split('/').next().unwrap().to_owned()
    });
    assert!(get(&addresses[0], "/1b").ends_with("\r\n\r\nx"));
    assert!(get(&addresses[1], "/metrics").contains("\nhearken_connections_accepted_total{"));
    server.signal(Signal::USR1);
    let mut next = || errors.next().unwrap().unwrap();
    let line = next();
    assert!(line.starts_with("hearken: ") && line.contains(" waits ("), "{line}");
    server.signal(Signal::TERM);
    // The measurements are printed only with meter-waits.
    let line = next();
    assert!(
        line.contains(" per event; ") && line.contains(" waits by number of events: "),
        "{line}"
    );
    assert!(line.contains("; 1 accepts after 1 waits, 1.00 per wait; "), "{line}");
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
    let line: Value = serde_json::from_str(&fs::read_to_string(log).unwrap()).unwrap();
    assert_eq!((&line["status"], &line["target"]), (&200.into(), &"/1b".into()), "{line}");
}

#[test]
fn a_config_file_sets_directory_and_address() {
    let dir = site();
    let path = dir.path().join("site.toml");
    let file = "listen = '127.0.0.1:0'\nworkers = 2\n[static]\nroot = '.'\n";
    fs::write(&path, file).unwrap();
    let path = path.to_str().unwrap();
    let check = run(&["serve", "--config", path, "--check"]);
    assert_eq!(
        text(&check.stdout),
        format!(
            "{path}: configuration is valid: serving '{}/.', listening on 127.0.0.1:0\n",
            dir.path().display()
        )
    );
    let mut server = Running::start(&["serve", "--config", path, "--events", "poll"]);
    let line = server.line();
    assert!(line.contains(" (poll, 2 workers, "), "{line}");
    let addr = line.strip_prefix("listening on http://").unwrap().split(' ').next().unwrap();
    assert!(get(addr, "/1b").ends_with("\r\n\r\nx"));

    let printed = run(&["serve", "--config", path, "--print-config"]);
    fs::write(path, &printed.stdout).unwrap();
    let again = run(&["serve", "--config", path, "--print-config"]);
    assert_eq!(text(&again.stdout), text(&printed.stdout));
}

#[test]
fn invalid_arguments_are_rejected() {
    let dir = site();
    let path = dir.path().to_str().unwrap();
    fails_with(&["serve"], "no directory to serve; use 'hearken serve <DIR>' or '--config <FILE>'");
    fails_with(&["serve", "/no/such/dir"], "/no/such/dir");
    let file = dir.path().join("1b");
    fails_with(&["serve", file.to_str().unwrap(), "--listen", "127.0.0.1:0"], "1b");
    fails_with(&["serve", path, "--events", "kqueue"], "kqueue");
    fails_with(&["serve", ".", "--events", "rt-signal:dequeue=two"], "many|one");
    let limit = format!("rt-queue={}", u64::MAX);
    fails_with(&["serve", ".", "--experiment", &limit], "RLIMIT_SIGPENDING");
    fails_with(
        &["serve", ".", "--listen", "127.0.0.1:8080", "--admin", "127.0.0.1:8080"],
        "invalid argument '--admin': the server listens on 127.0.0.1:8080 for clients",
    );
    fs::write(dir.path().join("c.toml"), "[upstreams]\n").unwrap();
    let config = dir.path().join("c.toml");
    fails_with(
        &["serve", "--config", config.to_str().unwrap()],
        "line 1, column 2: unknown key 'upstreams': not a setting of 'hearken serve'",
    );
    let used = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = used.local_addr().unwrap().to_string();
    for workers in ["1", "2"] {
        fails_with(&["serve", path, "--listen", &addr, "--workers", workers], &addr);
    }
}

#[test]
fn servers_of_the_literature_answer_every_request() {
    let dir = site();
    for (preset, events) in [
        ("userver", "epoll-level"),
        ("microserver", "select"),
        ("dphttpd", "locality:tuning=fixed:n=3:busy=10"),
        ("userver", "dev-poll:scan=set"),
    ] {
        let (_server, url) = serve(dir.path(), &["--events", events, "--as", preset]);
        let load = ["load", &url, "--rate", "500", "--duration", "300ms", "--json", "-"];
        let output = run(&load);
        assert!(output.status.success(), "{preset}: {}", text(&output.stderr));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let requests = &report["requests"];
        assert_eq!(requests["replies"], requests["scheduled"], "{preset}: {report}");
    }
}

#[test]
fn a_short_signal_queue_loses_no_request() {
    let dir = site();
    let spec = "rt-signal:dequeue=one:recover=until-quiet:fallback=select";
    let (_server, url) = serve(dir.path(), &["--events", spec, "--experiment", "rt-queue=4"]);
    let load = ["load", &url, "--rate", "2000", "--duration", "300ms", "--json", "-"];
    let output = run(&load);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["requests"]["replies"], report["requests"]["scheduled"], "{report}");
}
