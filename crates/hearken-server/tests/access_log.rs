//! The access log, as a program that analyses it reads it.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::num::NonZeroUsize;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use hearken_server::proxy::config::{Address, Server, To, Upstreams};
use hearken_server::static_files::SiteConfig;
use hearken_server::{Config, Loops, StartError, proxy, start};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::TempDir;

fn config(dir: &TempDir, log: &str) -> Config {
    fs::write(dir.path().join("1b"), "x").unwrap();
    let site = SiteConfig { root: dir.path().to_owned(), ..SiteConfig::default() };
    Config {
        loops: Loops { listen: "127.0.0.1:0".parse().unwrap(), ..Loops::default() },
        access_log: Some(dir.path().join(log)),
        ..Config::static_files(site)
    }
}

#[test]
fn each_answer_is_a_line_that_no_client_can_break() {
    let dir = TempDir::new().unwrap();
    let config = config(&dir, ".log");
    let server = start(&config).unwrap();
    for request in [
        "GET /1b HTTP/1.1\r\nHost: a\r\nReferer: http://b/?\"x\"\r\nUser-Agent: t\\e\tst\r\n\r\n\
         HEAD /1b?q HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        "POST /none HTTP/1.0\r\nContent-Length: 2\r\n\r\nhi",
        "GET /1b\r\n\r\n",
    ] {
        let mut client = TcpStream::connect(server.addr()).unwrap();
        client.write_all(request.as_bytes()).unwrap();
        client.read_to_end(&mut Vec::new()).unwrap();
    }
    server.stopper().stop();
    server.wait().unwrap();

    let log = fs::read_to_string(dir.path().join(".log")).unwrap();
    let lines: Vec<_> = log.lines().collect();
    let rests: Vec<_> = lines
        .iter()
        .map(|line| {
            let (who, rest) = line.split_once(" - - [").unwrap();
            assert_eq!(who, "127.0.0.1");
            let (clock, rest) = rest.split_once("] ").unwrap();
            // 21/Nov/2026:06:00:00 +0000
            assert!(clock.len() == 26 && clock.ends_with(" +0000"), "{clock}");
            let punctuation = clock.bytes().map(|byte| !byte.is_ascii_alphanumeric());
            assert_eq!(punctuation.filter(|&is| is).count(), 7, "{clock}");
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

/// Waits until the log has a line.
fn wait_for(log: &Path) {
    let began = Instant::now();
    while fs::read_to_string(log).unwrap_or_default().is_empty() {
        assert!(began.elapsed() < Duration::from_secs(60), "{} is empty", log.display());
        thread::sleep(Duration::from_millis(1));
    }
}

/// As logrotate does: the file is renamed, and then the server is notified.
#[test]
fn it_goes_on_in_a_new_file() {
    let dir = TempDir::new().unwrap();
    let mut config = config(&dir, ".log");
    config.loops.workers = NonZeroUsize::new(2).unwrap();
    let server = start(&config).unwrap();
    let ask = |path: &str| {
        let mut client = TcpStream::connect(server.addr()).unwrap();
        client.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).unwrap();
        client.read_to_end(&mut Vec::new()).unwrap();
    };
    let (log, old) = (dir.path().join(".log"), dir.path().join("old"));
    ask("/before");
    wait_for(&log);
    fs::rename(&log, &old).unwrap();
    server.stopper().reopen_log();
    ask("/after");
    wait_for(&log);
    server.stopper().stop();
    server.wait().unwrap();
    for (path, asked) in [(old, "/before"), (log, "/after")] {
        let text = fs::read_to_string(path).unwrap();
        assert!(text.lines().count() == 1 && text.contains(asked), "{text}");
    }
}

#[test]
fn a_stalled_reader_delays_no_request_and_no_shutdown() {
    const REQUESTS: usize = 200;
    let dir = TempDir::new().unwrap();
    let config = config(&dir, ".log");
    let fifo = dir.path().join(".log");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    // Opened for writing too, as otherwise it would block until there is a writer.
    let reader = fs::File::options().read(true).write(true).open(&fifo).unwrap();
    let server = start(&config).unwrap();
    let mut client = TcpStream::connect(server.addr()).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let request = format!("GET /1b HTTP/1.1\r\nHost: a\r\nReferer: {:01000}\r\n\r\n", 0);
    let mut answer = [0; 4096];
    // More than the 64 KiB that a pipe holds.
    for _ in 0..REQUESTS {
        client.write_all(request.as_bytes()).unwrap();
        assert!(client.read(&mut answer).expect("the request is delayed by the log") > 0);
    }
    server.stopper().stop();
    server.wait().unwrap();
    drop(reader);
}

#[test]
fn metrics_count_lost_lines() {
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = Address::Inet(upstream.local_addr().unwrap());
    let to = To::Upstreams(Upstreams::new(vec![Server::new(to)]));
    let mut config = Config::proxy(proxy::Config::new(to));
    config.loops.listen = "127.0.0.1:0".parse().unwrap();
    config.access_log = Some("/dev/full".into());
    let server = start(&config).unwrap();
    let mut client = TcpStream::connect(server.addr()).unwrap();
    client.write_all(b"malformed\r\n\r\n").unwrap();
    client.read_to_end(&mut Vec::new()).unwrap();
    let began = Instant::now();
    loop {
        let mut page = String::new();
        server.metrics().render(&[], &mut page);
        let has = |sample| page.lines().any(|line| line == sample);
        if has("hearken_access_log_dropped_lines_total 1")
            && has("hearken_access_log_write_errors_total 1")
        {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{page}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_log_that_cannot_be_written_is_refused() {
    let dir = TempDir::new().unwrap();
    let refused = start(&config(&dir, "no/such/log")).unwrap_err();
    assert!(matches!(&refused, StartError::Log { path, .. } if path.ends_with("no/such/log")));
}
