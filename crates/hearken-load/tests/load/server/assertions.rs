//! Assertions that hold for all reports.

use hearken_load::{Histogram, Model, Report, Requests};

/// Asserts that totals, intervals and histograms account for each request once.
#[track_caller]
pub fn assert_sums(report: &Report) {
    let requests = report.requests;
    let context = || format!("{report}\n{requests:?} {:?} {:?}", report.sessions, report.errors);
    assert_eq!(
        requests.scheduled,
        requests.replies + requests.failed + requests.missed + requests.unfinished,
        "{}",
        context()
    );
    let (errors, timeouts) = (report.errors, report.timeouts);
    assert_eq!(requests.failed, errors.total(), "{}", context());
    assert_eq!(requests.missed, report.missed.total(), "{}", context());
    assert!(requests.answerable <= requests.scheduled, "{}", context());
    let timed_out = timeouts.connect + timeouts.first_byte + timeouts.reply;
    assert_eq!(errors.client_timo, timed_out, "{timeouts:?} {}", context());
    let received = requests.replies + errors.check + errors.status + errors.surplus;
    assert!(received <= requests.sent, "{}", context());
    assert!(requests.sent <= requests.scheduled, "{}", context());
    let complete: u64 = report.status.by_class()[1..].iter().map(|(_, count)| count).sum();
    assert_eq!(complete, received, "{}", context());

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
        Model::Requests => requests.scheduled - report.missed.generator,
        _ => sessions.started - report.missed.generator,
    };
    if report.model != Model::Closed {
        assert_eq!(histograms.lateness.len(), lateness, "{}", context());
    }
    assert!(sessions.completed + sessions.failed <= sessions.started, "{}", context());
    // Each failed session ended with a failed or missed request.
    assert!(sessions.failed <= requests.failed + requests.missed, "{}", context());
    if report.model == Model::Requests {
        assert_eq!(sessions.started, 0);
    }

    let mut whole = Histogram::new();
    let mut sums = [0; 6];
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
            interval.missed,
            interval.connections_opened,
        ];
        sums.iter_mut().zip(of).for_each(|(sum, of)| *sum += of);
        assert!((interval.offset_s - at).abs() < 1e-6, "{:?}", report.intervals);
        at = interval.offset_s + interval.duration_s;
    }
    let opened = report.connections_opened;
    let Requests { scheduled, sent, replies, failed, missed, .. } = requests;
    let totals = [scheduled, sent, replies, failed, missed, opened];
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
