//! The text summary shows lines for existing values only, warnings and errors first, in 80 columns.

use crate::fixtures::{Piece, report};
use hearken_load::{
    Bottleneck, Bytes, ConnectionLimit, Errors, Handshakes, Http2, Idle, Missed, Model, Objectives,
    Part, Report, Server, ServerUsage, Sessions, Timeouts,
};

fn piece(count: usize, failed: u64) -> Piece {
    Piece { latencies: vec![5_000_000; count], failed, draining: false }
}

fn example() -> Report {
    Report { seed: 7, ..report(&[piece(90, 0), piece(110, 3)]) }
}

#[test]
fn shows_a_line_for_each_existing_value() {
    let mut report = example();
    let plain = report.to_string();
    let expected = "\
http://127.0.0.1:8080/
  load       100.0 requests/s offered for 2.0 s, poisson (seed 7)
  over       0 connections (limit 50); events by epoll-edge
  errors     client-timo 3 (1.48 % of the requests)
  timeouts   3 before the end of the reply
  replies    200 of 203: 100.0 per second
  reply rate min 90.0 avg 100.0 max 110.0 stddev 14.1 (2 samples)
  status     2xx 200
";
    assert!(plain.starts_with(expected), "{plain}");
    for absent in [
        "sessions",
        "TLS",
        "profile",
        "workload",
        "merged",
        "connect ",
        "on them",
        "missed",
        "bottleneck",
        "labels",
        "warning",
    ] {
        assert!(!plain.contains(absent), "{absent}: {plain}");
    }
    report.model = Model::Sessions;
    report.rate = "50..150@2s".to_owned();
    report.workload = "wsesslog a.log".to_owned();
    report.threads = 2;
    report.sessions = Sessions { started: 12, completed: 10, failed: 2 };
    report.timeouts = Timeouts { connect: 1, first_byte: 2, reply: 0 };
    report.tls = Handshakes { full: 3, resumed: 9, failed: 0 };
    report.connect_ns = report.latency_ns;
    report.idle = Idle { requested: 9, open: 9, requests: 4, replies: 3, ..Idle::default() };
    report.missed = Missed { no_connection: 20, generator: 0, end_of_run: 1 };
    report.peak_connections = 40;
    report.connections_limited_by = ConnectionLimit::Ports;
    report.labels =
        [("commit", "abc"), ("run", "3")].map(|(key, value)| (key.into(), value.into())).into();
    let all = report.to_string();
    for line in [
        "  load       100.0 sessions/s offered for 2.0 s, poisson (seed 7)\n",
        "  profile    50..150@2s\n",
        "  workload   wsesslog a.log\n",
        "  over       0 connections, at most 40 at once (limit 50, by local ports); 2\n",
        "             threads; events by epoll-edge\n",
        "  labels     commit=abc, run=3\n",
        "  timeouts   1 while connecting, 2 before the first byte\n",
        "  missed     no free connection 20, end of run 1 (10.34 % of the requests)\n",
        "  sessions   10 of 12 completed, 2 failed\n",
        "  TLS        full 3, resumed 9\n",
        " connect to open a connection\n",
        "             3 replies to 4 requests on them\n",
    ] {
        assert!(all.contains(line), "{line}: {all}");
    }
    report.model = Model::Closed;
    report.offered_rate = 0.0;
    assert!(report.to_string().contains("closed loop of 50 connections for 2.0 s\n"));
    report.model = Model::Requests;
    assert!(report.to_string().contains("idle connections only"));
}

#[test]
fn warnings_and_errors_stand_above_the_results() {
    let mut report = example();
    report.warnings.push("the generator was late".to_owned());
    report.errors.status = 5;
    let text = report.to_string();
    let positions = ["  warning    the generator was late", "  errors     status 5", "  replies"]
        .map(|line| text.find(line).unwrap_or_else(|| panic!("{line}: {text}")));
    assert!(positions.is_sorted(), "{text}");
}

#[test]
fn the_bottleneck_comes_with_a_remedy() {
    let mut report = example();
    let unwrapped = |report: &Report| report.to_string().replace("\n             ", " ");
    for (bottleneck, remedy) in [
        (Bottleneck::Server, "the server; it failed or delayed requests"),
        (Bottleneck::Connections, "all 50 connections were busy; raise --connections"),
        (Bottleneck::Generator, "use more threads (--threads) or a lower rate"),
        (Bottleneck::Ports, "more source addresses (--sources)"),
        (Bottleneck::Descriptors, "raise the limit (ulimit -n)"),
        (Bottleneck::Memory, "a machine with more memory"),
    ] {
        report.bottleneck = bottleneck;
        let text = unwrapped(&report);
        let line = text.lines().find(|line| line.starts_with("  bottleneck "));
        assert!(line.is_some_and(|line| line.contains(remedy)), "{remedy}: {text}");
    }
}

#[test]
fn an_empty_load_has_no_table() {
    let mut report = report(&[]);
    report.requests.scheduled = 0;
    let text = report.to_string();
    assert!(text.contains("  replies    none, because no requests were scheduled\n"), "{text}");
    assert!(!text.contains("p99"), "{text}");
}

/// Returns a result with the largest valid value in every field.
fn extreme() -> Report {
    const MAX: u64 = 1 << 53;
    let mut report = example();
    report.offered_rate = 1e12;
    report.duration_s = 1e10;
    report.reply_rate = 1e12;
    let samples = &mut report.reply_rate_samples;
    (samples.min, samples.mean, samples.max) = (1e12, 1e12, 1e12);
    (samples.stddev, samples.count) = (1e12, MAX);
    report.rate = "1000..20000@60s,".repeat(30);
    report.workload = "100 sessions from the file of sessions ".repeat(5);
    report.requests_per_connection = Some(u32::MAX.to_string());
    report.connections_limited_by = ConnectionLimit::Descriptors;
    report.bottleneck = Bottleneck::Connections;
    (report.connections, report.connections_opened) = (MAX, MAX);
    (report.peak_connections, report.threads, report.seed) = (MAX, MAX, u64::MAX);
    report.requests.scheduled = MAX;
    (report.requests.replies, report.requests.unfinished) = (MAX, MAX);
    report.errors = Errors {
        client_timo: MAX,
        socket_timo: MAX,
        conn_refused: MAX,
        conn_reset: MAX,
        stream_refused: MAX,
        stream_reset: MAX,
        fd_unavail: MAX,
        addr_unavail: MAX,
        status: MAX,
        check: MAX,
        surplus: MAX,
        other: MAX,
    };
    report.http2 = Some(Http2 { streams: u32::MAX, resent: MAX });
    report.timeouts = Timeouts { connect: MAX, first_byte: MAX, reply: MAX };
    report.missed = Missed { no_connection: MAX, generator: MAX, end_of_run: MAX };
    report.sessions = Sessions { started: MAX, completed: MAX, failed: MAX };
    report.tls = Handshakes { full: MAX, resumed: MAX, failed: MAX };
    report.idle = Idle {
        requested: MAX,
        open: MAX,
        lost: MAX,
        reestablished: MAX,
        requests: MAX,
        replies: MAX,
        descriptor_tables: MAX,
    };
    report.bytes = Bytes { received: u64::MAX, sent: u64::MAX };
    report.status.server_error = MAX;
    report.status.client_error = MAX;
    report.labels = [("branch".to_owned(), "a word ".repeat(20))].into();
    report.warnings = vec!["one of the reasons to doubt the values ".repeat(5)];
    report.parts = vec![Part { size: u32::MAX, ..Part::default() }];
    let of = &mut report.latency_ns;
    (of.p50, of.p90, of.p95) = (u64::MAX, u64::MAX, u64::MAX);
    (of.p99, of.p999, of.max) = (u64::MAX, u64::MAX, u64::MAX);
    report.service_ns = report.latency_ns;
    report.connect_ns = report.latency_ns;
    report.lateness_ns = report.latency_ns;
    let objectives: Objectives = "p99.999<3599.123456789s,rate>=99%".parse().unwrap();
    report.objectives = objectives.evaluate(&report);
    let total = ServerUsage {
        duration_s: 1.0,
        cores: Some(1e6),
        user_ns: Some(MAX),
        system_ns: Some(MAX),
        peak_threads: Some(MAX),
        peak_resident_bytes: Some(MAX),
        peak_sockets: Some(MAX),
        ..ServerUsage::default()
    };
    let unavailable = vec!["instructions: the hardware does not count them ".repeat(3)];
    report.server = Some(Server { total, unavailable, processes: MAX, ..Server::default() });
    report
}

#[test]
fn every_line_fits_80_columns() {
    for model in [Model::Requests, Model::Sessions, Model::Closed] {
        let report = Report { model, ..extreme() };
        let text = report.to_string();
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}\n{text}");
        }
        assert!(text.lines().count() > 40, "{text}");
    }
}
