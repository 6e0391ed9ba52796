//! Assertions that hold for all reports.

use hearken_load::{Histogram, Model, Report};

/// Asserts that totals, intervals and histograms account for each request once.
#[track_caller]
pub fn assert_sums(report: &Report) {
    let requests = report.requests;
    let context = || format!("{report}\n{requests:?} {:?} {:?}", report.sessions, report.errors);
    assert_eq!(
        requests.scheduled,
        requests.replies + requests.failed + requests.unfinished,
        "{}",
        context()
    );
    let (errors, timeouts) = (report.errors, report.timeouts);
    assert_eq!(requests.failed, errors.total(), "{}", context());
    let timed_out = timeouts.connect + timeouts.first_byte + timeouts.reply;
    assert_eq!(errors.client_timo, timed_out, "{timeouts:?} {}", context());
    assert!(requests.replies + errors.check <= requests.sent, "{}", context());
    assert!(requests.sent <= requests.scheduled, "{}", context());
    let complete: u64 = report.status.by_class()[1..].iter().map(|(_, count)| count).sum();
    assert_eq!(complete, requests.replies + errors.check, "{}", context());

    let histograms = &report.histograms;
    for (histogram, quantiles, count) in [
        (&histograms.latency, report.latency_ns, requests.replies),
        (&histograms.service, report.service_ns, requests.replies),
        (&histograms.connect, report.connect_ns, report.connections_opened),
    ] {
        assert_eq!((histogram.len(), quantiles.count), (count, count), "{}", context());
    }
    let sessions = report.sessions;
    let lateness = match report.model {
        Model::Requests => requests.scheduled,
        _ => sessions.started,
    };
    if report.model != Model::Closed {
        assert_eq!(histograms.lateness.len(), lateness, "{}", context());
    }
    assert!(sessions.completed + sessions.failed <= sessions.started, "{}", context());
    // Each failed session ended with a failed request.
    assert!(sessions.failed <= requests.failed, "{}", context());
    if report.model == Model::Requests {
        assert_eq!(sessions.started, 0);
    }

    let mut whole = Histogram::new();
    let mut sums = [0; 5];
    let mut at = 0.0;
    for interval in &report.intervals {
        let latency = Histogram::decode(&interval.latency).unwrap();
        assert_eq!(
            (latency.len(), interval.latency_ns.count),
            (interval.replies, interval.replies)
        );
        whole.add(&latency);
        let of = [
            interval.scheduled,
            interval.sent,
            interval.replies,
            interval.failed,
            interval.connections_opened,
        ];
        sums.iter_mut().zip(of).for_each(|(sum, of)| *sum += of);
        assert!((interval.offset_s - at).abs() < 1e-6, "{:?}", report.intervals);
        at = interval.offset_s + interval.duration_s;
    }
    let opened = report.connections_opened;
    let totals = [requests.scheduled, requests.sent, requests.replies, requests.failed, opened];
    assert_eq!(sums, totals, "{:?}\n{}", report.intervals, context());
    assert_eq!(whole, histograms.latency);
}

/// Asserts like [`assert_sums`], and that the run ended by itself.
#[track_caller]
pub fn assert_conserved(report: &Report) {
    assert_sums(report);
    assert!(report.complete, "{report}");
    assert_eq!(report.requests.unfinished, 0, "{report}");
}
