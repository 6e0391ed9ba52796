//! The access log, as a program that analyses it reads it.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use hearken_server::static_files::SiteConfig;
use hearken_server::{Config, Loops, StartError, start};
use tempfile::TempDir;

fn config(dir: &TempDir, log: &str) -> Config {
    fs::write(dir.path().join("1b"), "x").unwrap();
    Config {
        site: SiteConfig { root: dir.path().to_owned(), ..SiteConfig::default() },
        loops: Loops { listen: "127.0.0.1:0".parse().unwrap(), ..Loops::default() },
        access_log: Some(dir.path().join(log)),
        ..Config::default()
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
    assert!(rests[3].starts_with(r#""-" 400 "#), "{}", rests[3]);
    assert_eq!(rests.len(), 4);
}

/// As logrotate has it: the file is moved away, and then the server is told.
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
    fs::rename(&log, &old).unwrap();
    server.stopper().reopen_log();
    let began = Instant::now();
    // Each worker does it when it is woken.
    while fs::read_to_string(&log).unwrap_or_default().is_empty() {
        assert!(began.elapsed() < Duration::from_secs(60), "there is no new file");
        ask("/after");
    }
    assert!(fs::read_to_string(&old).unwrap().lines().next().unwrap().contains("/before"));
    server.stopper().stop();
    server.wait().unwrap();
}

#[test]
fn a_log_that_cannot_be_written_is_refused() {
    let dir = TempDir::new().unwrap();
    let refused = start(&config(&dir, "no/such/log")).unwrap_err();
    assert!(matches!(&refused, StartError::Log { path, .. } if path.ends_with("no/such/log")));
}
