//! Metrics and the access log.

use std::fs::{self, OpenOptions};
use std::path::Path;

use hearken_server::Config;
use hearken_server::proxy::config::LogFormat;
use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::{exchange, get, has, post, request};
use crate::common::admin::{admin, metric_sum};
use crate::common::server::log_to;
use crate::common::server::proxy_config;
use crate::common::{Kind, Origin, RunningServer, Setup, wait_until};

pub(crate) fn metrics_count_requests_and_connections(setup: &Setup) {
    let origin = Origin::responding(|request| "x".repeat(request.body.len()));
    let proxy = setup.proxy(&[origin.addr()], |config| {
        config.admin = Some(([127, 0, 0, 1], 0).into());
        proxy_config(config).max_body_bytes = Some(1000);
    });
    let mut connection = proxy.connect();
    for _ in 0..7 {
        exchange(&mut connection, get("/"));
    }
    for _ in 0..3 {
        exchange(&mut connection, post("/", "12345"));
    }
    assert_eq!(exchange(&mut proxy.connect(), post("/", &"x".repeat(2000))).status(), 413);
    let rejected = exchange(&mut proxy.connect(), "nonsense\r\n\r\n");
    assert_eq!(rejected.status(), 400);
    let page = || admin(&proxy, "GET", "/metrics");
    let requests = |page: &str, class: &str| {
        metric_sum(page, "hearken_requests_total", &format!("status=\"{class}\""))
    };
    wait_until("all requests are counted", || {
        let page = page();
        (requests(&page, "2xx"), requests(&page, "4xx")) == (10.0, 2.0)
    });
    wait_until("the connection is idle", || {
        metric_sum(&page(), "hearken_upstream_connections_idle", "") == 1.0
    });
    let page = page();
    for (name, expected) in [
        ("hearken_connections_accepted_total", 3.0),
        ("hearken_upstream_connections_opened_total", 1.0),
        ("hearken_upstream_connections_reused_total", 9.0),
        ("hearken_upstream_connections_idle", 1.0),
        ("hearken_upstream_requests_total", 10.0),
        ("hearken_upstream_failures_total", 0.0),
        ("hearken_upstream_requests_in_flight", 0.0),
        ("hearken_requests_queued", 0.0),
        ("hearken_tunnels_open", 0.0),
    ] {
        assert_eq!(metric_sum(&page, name, ""), expected, "{name} in:\n{page}");
    }
    assert!(metric_sum(&page, "hearken_event_waits_total", "") > 0.0, "{page}");
}

fn logged(setup: &Setup, format: LogFormat, to: &Path) -> (Origin, RunningServer) {
    let origin = Origin::responding(|_| "answer".to_owned());
    let change = |config: &mut Config| {
        config.access_log = Some(to.to_owned());
        config.log_format = format;
        proxy_config(config).fields.via = String::new();
    };
    let proxy = setup.proxy(&[origin.addr()], change);
    let mut connection = proxy.connect();
    let about = "User-Agent: a \"b\"\r\nReferer: http://c/\r\n";
    exchange(&mut connection, request("GET", "/a?b=c", about));
    exchange(&mut connection, post("/d", "12345"));
    exchange(&mut connection, "nonsense\r\n\r\n");
    (origin, proxy)
}

pub(crate) fn logs_content_without_chunk_framing(setup: &Setup) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let chunks = "5\r\nhello\r\n6;x\r\n world\r\n0\r\n\r\n";
    let origin = Origin::new(move |mut peer| {
        for split in [0, 6, chunks.len()] {
            peer.request();
            peer.connection.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
            let (first, second) = chunks.split_at(split);
            peer.connection.send(first);
            std::thread::sleep(std::time::Duration::from_millis(20));
            peer.connection.send(second);
        }
        peer.connection.drain();
    });
    let proxy = setup.proxy(&[origin.addr()], |config| {
        config.access_log = Some(path.clone());
        config.log_format = LogFormat::Json;
    });
    let mut connection = proxy.connect();
    for _ in 0..3 {
        assert_eq!(exchange(&mut connection, get("/")).body, b"hello world");
    }
    for line in lines(&path, 3) {
        assert!(has(&line, "\"bytes_sent\":11,"), "{line}");
    }
    drop(connection);
    proxy.end();
}

fn lines(path: &Path, count: usize) -> Vec<String> {
    let all = || fs::read_to_string(path).unwrap();
    wait_until("the lines are written", || all().lines().count() >= count);
    all().lines().map(str::to_owned).collect()
}

pub(crate) fn logs_combined_lines(setup: &Setup) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let (_origin, proxy) = logged(setup, LogFormat::Combined, &path);
    let lines = lines(&path, 3);
    proxy.end();
    assert_eq!(lines.len(), 3, "{lines:#?}");
    assert!(lines.iter().all(|line| line.starts_with("127.0.0.1 - - [")), "{lines:#?}");
    assert!(
        has(&lines[0], "\"GET /a?b=c HTTP/1.1\" 200 6 \"http://c/\" \"a \\x22b\\x22\""),
        "{lines:#?}"
    );
    assert!(has(&lines[1], "\"POST /d HTTP/1.1\" 200 6 "), "{lines:#?}");
    assert!(has(&lines[2], " 400 "), "{lines:#?}");
}

pub(crate) fn logs_json_objects(setup: &Setup) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let (origin, proxy) = logged(setup, LogFormat::Json, &path);
    let lines = lines(&path, 3);
    proxy.end();
    let first = &lines[0];
    let server = format!("\"upstream\":\"{}\"", origin.addr());
    for part in [
        "\"method\":\"GET\"",
        "\"target\":\"/a?b=c\"",
        "\"host\":\"site.test\"",
        "\"status\":200",
        "\"bytes_sent\":6",
        "\"user_agent\":\"a \\\"b\\\"\"",
        "\"attempts\":1",
        "\"outcome\":\"complete\"",
        &server,
    ] {
        assert!(has(first, part), "{part} in {first}");
    }
    assert!(has(&lines[1], "\"bytes_received\":5"), "{}", lines[1]);
    assert!(has(&lines[2], "\"status\":400") && has(&lines[2], "\"method\":null"), "{}", lines[2]);
}

pub(crate) fn a_stalled_log_reader_delays_no_request(setup: &Setup) {
    const BATCH: usize = 20;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fifo");
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    // Opening it for reading alone would block until the proxy opens it.
    let reader = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let origin = Origin::responding(|_| "fine".to_owned());
    let proxy = setup.proxy(&[origin.addr()], |config| log_to(config, &path));
    // Closed before the proxy is stopped, so that its log writer does not block indefinitely.
    let reader = reader;
    let mut connection = proxy.connect();
    let long = "x".repeat(1000);
    let about = format!("User-Agent: {long}\r\nReferer: {long}\r\n");
    let one = request("GET", &format!("/{long}"), &about);
    for batch in 0..1000 / BATCH {
        connection.send(one.repeat(BATCH));
        for _ in 0..BATCH {
            let response = connection.final_response(Kind::Response);
            assert!(response.is_some(), "batch {batch}: no response: {:?}", connection.end);
        }
    }
    drop(reader);
    proxy.end();
}

pub(crate) fn rejected_requests_are_logged_with_input_and_reason(setup: &Setup) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let origin = Origin::responding(|_| "fine".to_owned());
    let proxy = setup.proxy(&[origin.addr()], |config| log_to(config, &path));
    let rejected = [
        "GET /\"quoted\x01 HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
        "GET /no-host HTTP/1.1\r\n\r\n".to_owned(),
        get(&format!("/{}", "x".repeat(100_000))),
    ];
    for bytes in rejected {
        assert!(exchange(&mut proxy.connect(), bytes).status() >= 400);
    }
    let lines = lines(&path, 3);
    proxy.end();
    assert_eq!(lines.len(), 3, "{lines:#?}");
    for (line, input) in
        lines.iter().zip([r#" "GET /\x22quoted\x01"#, r#" "GET /no-host"#, r#" "GET /xxxx"#])
    {
        assert!(has(line, input), "{input:?} is not in {line:?}");
        let mut ends = line.rsplit('"');
        let (end, reason, referer) = (ends.next(), ends.next(), ends.nth(3));
        assert_eq!((end, referer), (Some(""), Some("-")), "{line}");
        assert!(reason.is_some_and(|reason| reason.len() > 1), "no reason in {line:?}");
        assert!(line.len() < 8 << 10, "{} bytes", line.len());
    }
}
