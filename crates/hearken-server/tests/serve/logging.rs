//! The access log: a reader that stalls, and requests that were rejected.

use std::fs::{self, File, OpenOptions};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::support::{Site, Way, log_to, request};

/// A FIFO that is open, and that nobody reads.
fn fifo(path: &Path) -> File {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    // Opened for both, it blocks neither this process nor the server.
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

pub(crate) fn a_log_that_nobody_reads_delays_no_request(way: &Way) {
    const BATCH: usize = 50;
    let site = Site::new();
    let path = site.root().join(".fifo");
    let reader = fifo(&path);
    let server = way.serve(&site, |config| log_to(config, &path));
    // Closed before the server is stopped, so that the log's writer is not blocked for ever.
    let reader = reader;
    let mut client = server.connect();
    let one = request(&format!("GET /small?{}", "x".repeat(1000)), "");
    for batch in 0..5000 / BATCH {
        client.send(one.repeat(BATCH));
        for _ in 0..BATCH {
            assert_eq!(client.answer().status, 200, "batch {batch}");
        }
    }
    drop(reader);
    server.end();
}

pub(crate) fn rejected_requests_are_logged_with_input_and_reason(way: &Way) {
    let site = Site::new();
    let path = site.root().join(".log");
    let server = way.serve(&site, |config| log_to(config, &path));
    let rejected = [
        b"GET /\"quoted\x01 HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
        b"GET /no-host HTTP/1.1\r\n\r\n".to_vec(),
        request(&format!("GET /{}", "x".repeat(100_000)), ""),
    ];
    for bytes in rejected {
        let mut client = server.connect();
        client.send(bytes);
        assert!(client.answer().status >= 400);
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
