//! The sections of a result about WebSocket connections and slow clients.

use hearken_load::{
    MergeError, Reasons, Report, SlowClients, SlowGroup, WebSocketMode, WebSockets, merge,
};

use crate::fixtures::{Piece, histogram, part, report};

fn reasons(json: &str) -> Reasons {
    serde_json::from_str(json).unwrap()
}

fn group(number: u64) -> SlowGroup {
    let mut group = SlowGroup::default();
    group.rate = 10.0;
    group.requested = number;
    group.open = number;
    group.requests = 2 * number;
    group.completed = number;
    group.refused = 1;
    group.closed_by_server = 2;
    group.timed_out = 3;
    group.bytes = 1000 * number;
    group.failures = reasons("{\"refused\": 1}");
    group
}

/// Creates the result of the process with rank `rank`, which has no slow readers if it is the first.
fn of_rank(rank: u32) -> Report {
    let number = u64::from(rank) + 1;
    let mut websocket = WebSockets::default();
    websocket.mode = WebSocketMode::Echo;
    websocket.requested = 10;
    websocket.open = 9;
    websocket.lost = number;
    websocket.messages_sent = 5;
    websocket.handshake_failures = reasons(&format!("{{\"status 404\": {number}}}"));
    websocket.latency = histogram(&[1000 * number]);
    websocket.latency_ns = websocket.latency.quantiles();
    let mut slow = SlowClients::default();
    slow.readers = (rank > 0).then(|| group(2));
    slow.senders = Some(group(3));
    let mut report = report(&[Piece::default()]);
    report.websocket = Some(websocket);
    report.slow_clients = Some(slow);
    part(rank, 2, report)
}

#[test]
fn merging_adds_the_sections() {
    let merged = merge(&[of_rank(0), of_rank(1)]).unwrap();
    let websocket = merged.websocket.as_ref().unwrap();
    assert_eq!((websocket.requested, websocket.open, websocket.lost), (20, 18, 3));
    assert_eq!(websocket.handshake_failures, reasons("{\"status 404\": 3}"));
    assert_eq!(websocket.latency, histogram(&[1000, 2000]));
    assert_eq!(websocket.latency_ns, websocket.latency.quantiles());
    let slow = merged.slow_clients.as_ref().unwrap();
    assert_eq!(slow.readers, Some(group(2)));
    let senders = slow.senders.as_ref().unwrap();
    assert_eq!((senders.requested, senders.requests, senders.bytes), (6, 12, 6000));
    assert_eq!((senders.refused, senders.closed_by_server, senders.timed_out), (2, 4, 6));
    assert_eq!((senders.rate, senders.failures.total()), (10.0, 2));
    let read: Report = serde_json::from_str(&serde_json::to_string(&merged).unwrap()).unwrap();
    assert_eq!(read, merged);
    read.validate().unwrap();
}

#[test]
fn rejects_different_modes_and_wrong_histograms() {
    let mut other = of_rank(1);
    other.websocket.as_mut().unwrap().mode = WebSocketMode::Idle;
    let error = merge(&[of_rank(0), other]).unwrap_err();
    assert!(matches!(error, MergeError::FieldMismatch { field: "websocket.mode", .. }), "{error}");
    let mut other = of_rank(1);
    other.websocket.as_mut().unwrap().latency = histogram(&[]);
    let error = merge(&[of_rank(0), other]).unwrap_err();
    assert!(matches!(error, MergeError::HistogramMismatch { .. }), "{error}");
}

#[test]
fn validation_covers_the_sections() {
    let changes: [fn(&mut Report); 4] = [
        |report| report.websocket.as_mut().unwrap().pings_sent = u64::MAX,
        |report| {
            let reasons = &mut report.websocket.as_mut().unwrap().loss_reasons;
            *reasons = serde_json::from_str("{\"a\": 18446744073709551615}").unwrap();
        },
        |report| senders(report).bytes = u64::MAX,
        |report| senders(report).rate = f64::NAN,
    ];
    for change in changes {
        let mut report = of_rank(0);
        assert_eq!(report.validate(), Ok(()));
        change(&mut report);
        assert!(report.validate().is_err(), "{report}");
    }
    let mut report = of_rank(0);
    senders(&mut report).failures = reasons("{\"a\\u001b[2J\": 1}");
    report.sanitise();
    assert_eq!(senders(&mut report).failures, reasons("{\"a?[2J\": 1}"));
}

fn senders(report: &mut Report) -> &mut SlowGroup {
    report.slow_clients.as_mut().unwrap().senders.as_mut().unwrap()
}

#[test]
fn the_summary_shows_the_sections() {
    let mut report = of_rank(1);
    let text = report.to_string();
    for line in [
        "  slow reads 2 of 2 open at the end, 4 requests, 2.0 kB received\n",
        "  slow sends 3 of 3 open at the end, 6 requests, 3.0 kB sent\n",
        "             completed 3, refused 1, closed by server 2, timed out 3\n",
        "  failures   refused 1\n",
        "  websocket  9 of 10 open at the end, 2 lost, 0 re-established\n",
        "  sent       messages 5\n",
        "  handshakes status 404 2\n",
        "  echo ",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    report.offered_rate = 0.0;
    assert!(report.to_string().contains("connections on the side only"), "{report}");
}
