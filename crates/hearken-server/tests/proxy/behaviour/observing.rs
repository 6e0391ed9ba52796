//! What is told of what was done.

use std::fs;
use std::path::Path;

use hearken_server::proxy::config::{Config, LogFormat};

use super::{ask, get, has, post, request};
use crate::harness::admin::{admin, figure};
use crate::harness::{Origin, Proxy, Way, eventually};

pub(crate) fn metrics(way: &Way) {
    let origin = Origin::answering(|request| "x".repeat(request.body.len()));
    let proxy = way.proxy(&[origin.addr()], |config| {
        config.admin = Some(([127, 0, 0, 1], 0).into());
        config.body_limit = Some(1000);
    });
    let mut link = proxy.connect();
    for _ in 0..7 {
        ask(&mut link, get("/"));
    }
    for _ in 0..3 {
        ask(&mut link, post("/", "12345"));
    }
    assert_eq!(ask(&mut proxy.connect(), post("/", &"x".repeat(2000))).status(), 413);
    let refused = ask(&mut proxy.connect(), "nonsense\r\n\r\n");
    assert_eq!(refused.status(), 400);
    let page = || admin(&proxy, "GET", "/metrics");
    let requests = |page: &str, class: &str| {
        figure(page, "hearken_requests_total", &format!("status=\"{class}\""))
    };
    eventually("all are counted", || {
        let page = page();
        (requests(&page, "2xx"), requests(&page, "4xx")) == (10.0, 2.0)
    });
    eventually("the connection is idle", || {
        figure(&page(), "hearken_upstream_connections_idle", "") == 1.0
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
        assert_eq!(figure(&page, name, ""), expected, "{name} in:\n{page}");
    }
    assert!(figure(&page, "hearken_event_waits_total", "") > 0.0, "{page}");
}

fn logged(way: &Way, format: LogFormat, to: &Path) -> (Origin, Proxy) {
    let origin = Origin::answering(|_| "answer".to_owned());
    let change = |config: &mut Config| {
        config.access_log = Some(to.to_owned());
        config.log_format = format;
        config.fields.via = String::new();
    };
    let proxy = way.proxy(&[origin.addr()], change);
    let mut link = proxy.connect();
    let about = "User-Agent: a \"b\"\r\nReferer: http://c/\r\n";
    ask(&mut link, request("GET", "/a?b=c", about));
    ask(&mut link, post("/d", "12345"));
    ask(&mut link, "nonsense\r\n\r\n");
    (origin, proxy)
}

fn lines(path: &Path, count: usize) -> Vec<String> {
    let all = || fs::read_to_string(path).unwrap();
    eventually("the lines are written", || all().lines().count() >= count);
    all().lines().map(str::to_owned).collect()
}

pub(crate) fn log_lines(way: &Way) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let (_origin, proxy) = logged(way, LogFormat::Combined, &path);
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

pub(crate) fn log_objects(way: &Way) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let (origin, proxy) = logged(way, LogFormat::Json, &path);
    let lines = lines(&path, 3);
    proxy.end();
    let first = &lines[0];
    let server = format!("\"server\":\"{}\"", origin.addr());
    for part in [
        "\"method\":\"GET\"",
        "\"target\":\"/a?b=c\"",
        "\"host\":\"site.test\"",
        "\"status\":200",
        "\"sent\":6",
        "\"user_agent\":\"a \\\"b\\\"\"",
        "\"tries\":1",
        "\"end\":\"done\"",
        &server,
    ] {
        assert!(has(first, part), "{part} in {first}");
    }
    assert!(has(&lines[1], "\"received\":5"), "{}", lines[1]);
    assert!(has(&lines[2], "\"status\":400") && has(&lines[2], "\"method\":null"), "{}", lines[2]);
}
