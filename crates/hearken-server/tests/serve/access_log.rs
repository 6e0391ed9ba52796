//! The access log, as a program that analyses it reads it.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::Path;

use hearken_server::proxy::config::{Address, ProxyMode, Server, Upstreams};
use hearken_server::static_files::SiteConfig;
use hearken_server::{Config, EventLoopConfig, StartError, proxy, start};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::TempDir;

use crate::common::{Client, Setup, Site, log_to, request, wait_until, workers};

fn config(dir: &TempDir, log: &str) -> Config {
    fs::write(dir.path().join("1b"), "x").unwrap();
    let site = SiteConfig { root: dir.path().to_owned(), ..SiteConfig::default() };
    Config {
        event_loops: EventLoopConfig {
            listen: "127.0.0.1:0".parse().unwrap(),
            ..EventLoopConfig::default()
        },
        access_log: Some(dir.path().join(log)),
        ..Config::static_files(site)
    }
}

/// Creates a FIFO that is open, and that nothing reads.
fn open_fifo(path: &Path) -> File {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    // Opening it for reading alone would block until the server opens it.
    File::options().read(true).write(true).open(path).unwrap()
}

#[test]
fn each_response_is_a_line_that_clients_cannot_break() {
    let dir = TempDir::new().unwrap();
    let config = config(&dir, ".log");
    let server = start(&config).unwrap();
    for request in [
        "GET /1b HTTP/1.1\r\nHost: a\r\nReferer: http://b/?\"x\"\r\nUser-Agent: t\\e\tst\r\n\r\n\
         HEAD /1b?q HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        "POST /none HTTP/1.0\r\nContent-Length: 2\r\n\r\nhi",
        "GET /1b\r\n\r\n",
    ] {
        let mut client = Client::connect(server.addr());
        client.send(request);
        client.drain();
    }
    server.handle().stop();
    server.wait().unwrap();

    let log = fs::read_to_string(dir.path().join(".log")).unwrap();
    let lines: Vec<_> = log.lines().collect();
    let rests: Vec<_> = lines
        .iter()
        .map(|line| {
            let (client, rest) = line.split_once(" - - [").unwrap();
            assert_eq!(client, "127.0.0.1");
            let (time, rest) = rest.split_once("] ").unwrap();
            // 21/Nov/2026:06:00:00 +0000
            assert!(time.len() == 26 && time.ends_with(" +0000"), "{time}");
            let punctuation = time.bytes().filter(|byte| !byte.is_ascii_alphanumeric());
            assert_eq!(punctuation.count(), 7, "{time}");
            rest
        })
        .collect();
    assert_eq!(
        rests[..3],
        [
            r#""GET /1b HTTP/1.1" 200 1 "http://b/?\x22x\x22" "t\x5ce\x09st""#,
            r#""HEAD /1b?q HTTP/1.1" 200 0 "-" "-""#,
            r#""POST /none HTTP/1.0" 405 23 "-" "-""#,
        ]
    );
    let rejected = rests[3].strip_prefix(r#""GET /1b\x0d\x0a\x0d\x0a" 400 "#).unwrap();
    // Length, Referer, User-Agent and reason.
    assert!(rejected.contains(r#" "-" "-" ""#) && rejected.ends_with('"'), "{rejected}");
    assert_eq!(rests.len(), 4);
}

fn wait_for_line(log: &Path) {
    wait_until("the log has a line", || fs::read_to_string(log).is_ok_and(|text| !text.is_empty()));
}

#[test]
fn reopening_continues_in_a_new_file() {
    // logrotate renames the file and then notifies the server.
    let dir = TempDir::new().unwrap();
    let mut config = config(&dir, ".log");
    config.event_loops.workers = workers(2);
    let server = start(&config).unwrap();
    let get = |path: &str| {
        let mut client = Client::connect(server.addr());
        client.send(format!("GET {path} HTTP/1.0\r\n\r\n"));
        client.drain();
    };
    let (log, old) = (dir.path().join(".log"), dir.path().join("old"));
    get("/before");
    wait_for_line(&log);
    fs::rename(&log, &old).unwrap();
    server.handle().reopen_log();
    get("/after");
    wait_for_line(&log);
    server.handle().stop();
    server.wait().unwrap();
    for (path, target) in [(old, "/before"), (log, "/after")] {
        let text = fs::read_to_string(path).unwrap();
        assert!(text.lines().count() == 1 && text.contains(target), "{text}");
    }
}

#[test]
fn a_stalled_reader_delays_no_request_and_no_shutdown() {
    const REQUESTS: usize = 200;
    let dir = TempDir::new().unwrap();
    let config = config(&dir, ".log");
    let reader = open_fifo(&dir.path().join(".log"));
    let server = start(&config).unwrap();
    let mut client = Client::connect(server.addr());
    let request = format!("GET /1b HTTP/1.1\r\nHost: a\r\nReferer: {:01000}\r\n\r\n", 0);
    // Their lines exceed the 64 KiB that a pipe holds.
    for _ in 0..REQUESTS {
        client.send(&request);
        assert_eq!(client.response().status, 200);
    }
    server.handle().stop();
    server.wait().unwrap();
    drop(reader);
}

#[test]
fn metrics_count_lost_lines() {
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = Address::Inet(upstream.local_addr().unwrap());
    let to = ProxyMode::Reverse(Upstreams::new(vec![Server::new(to)]));
    let mut config = Config::proxy(proxy::Config::new(to));
    config.event_loops.listen = "127.0.0.1:0".parse().unwrap();
    config.access_log = Some("/dev/full".into());
    let server = start(&config).unwrap();
    let mut client = Client::connect(server.addr());
    client.send("malformed\r\n\r\n");
    client.drain();
    wait_until("the lost line and the failed write are counted", || {
        let mut page = String::new();
        server.metrics().render(&[], &mut page);
        let has = |sample| page.lines().any(|line| line == sample);
        has("hearken_access_log_dropped_lines_total 1")
            && has("hearken_access_log_write_errors_total 1")
    });
}

#[test]
fn reports_a_log_that_cannot_be_opened() {
    let dir = TempDir::new().unwrap();
    let error = start(&config(&dir, "no/such/log")).unwrap_err();
    assert!(matches!(&error, StartError::Log { path, .. } if path.ends_with("no/such/log")));
}

pub(crate) fn a_stalled_log_reader_delays_no_request(setup: &Setup) {
    const BATCH: usize = 50;
    let site = Site::new();
    let path = site.root().join(".fifo");
    let reader = open_fifo(&path);
    let server = setup.serve(&site, |config| log_to(config, &path));
    // Closed before the server is stopped, so that its log writer does not block indefinitely.
    let reader = reader;
    let mut client = server.client();
    let one = request(&format!("GET /small?{}", "x".repeat(1000)), "");
    for batch in 0..5000 / BATCH {
        client.send(one.repeat(BATCH));
        for _ in 0..BATCH {
            assert_eq!(client.response().status, 200, "batch {batch}");
        }
    }
    drop(reader);
    server.end();
}

pub(crate) fn rejected_requests_are_logged_with_input_and_reason(setup: &Setup) {
    if setup.has_thread_per_connection() {
        // Lines of different threads may be in another order than the requests.
        return;
    }
    let site = Site::new();
    let path = site.root().join(".log");
    let server = setup.serve(&site, |config| log_to(config, &path));
    let rejected = [
        b"GET /\"quoted\x01 HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
        b"GET /no-host HTTP/1.1\r\n\r\n".to_vec(),
        request(&format!("GET /{}", "x".repeat(100_000)), ""),
    ];
    for bytes in rejected {
        let mut client = server.client();
        client.send(bytes);
        assert!(client.response().status >= 400);
    }
    server.end();
    let log = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines.len(), 3, "{log}");
    for (line, input) in
        lines.iter().zip([r#" "GET /\x22quoted\x01"#, r#" "GET /no-host"#, r#" "GET /xxxx"#])
    {
        assert!(line.contains(input), "{input:?} is not in {line:?}");
        let mut ends = line.rsplit('"');
        let (end, reason, referer) = (ends.next(), ends.next(), ends.nth(3));
        assert_eq!((end, referer), (Some(""), Some("-")), "{line}");
        assert!(reason.is_some_and(|reason| reason.len() > 1), "no reason in {line:?}");
        assert!(line.len() < 8 << 10, "{} bytes", line.len());
    }
}
