//! The text summary shows lines for existing values only.

use crate::fixtures::{Piece, report};
use hearken_load::{Handshakes, Idle, Model, Sessions, Timeouts};

#[test]
fn shows_a_line_for_each_existing_value() {
    let piece =
        |count, failed| Piece { latencies: vec![5_000_000; count], failed, draining: false };
    let mut report = report(&[piece(90, 0), piece(110, 3)]);
    report.seed = 7;
    let plain = report.to_string();
    let expected = "\
http://127.0.0.1:8080/
  load       100.0 requests/s offered for 2.0 s, poisson (seed 7)
  over       50 persistent connections (0 opened); events by epoll-edge
  replies    200 of 203: 100.0 per second
  reply rate min 90.0 avg 100.0 max 110.0 stddev 14.1 (2 samples)
  status     2xx 200
  errors     client-timo 3
  timeouts   reply 3
";
    assert!(plain.starts_with(expected), "{plain}");
    for absent in ["sessions", "TLS", "profile", "workload", "merged", "connect ", "on them"] {
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
    let all = report.to_string();
    for line in [
        "  load       100.0 sessions/s offered for 2.0 s, poisson (seed 7)\n",
        "  profile    50..150@2s\n",
        "  workload   wsesslog a.log\n",
        "; 2 threads, events by epoll-edge\n",
        "  timeouts   connect 1, first byte 2\n",
        "  sessions   10 of 12 completed, 2 failed\n",
        "  TLS        full 3, resumed 9\n",
        "   to open a connection\n",
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
