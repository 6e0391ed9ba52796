//! A load in which nothing succeeded names the most common cause.

use hearken_load::{Errors, Idle, Missed, Report, Requests, Timeouts};

/// Returns a load of 1,000 requests without a reply.
fn failed() -> Report {
    Report {
        complete: true,
        url: "http://127.0.0.1:9/".to_owned(),
        offered_rate: 100.0,
        requests: Requests { scheduled: 1000, ..Requests::default() },
        ..Report::default()
    }
}

fn with(errors: Errors) -> Report {
    Report { errors, ..failed() }
}

fn first(mut report: Report, kind: &str, reason: &str) -> Report {
    report.first_errors.insert(kind.to_owned(), reason.to_owned());
    report
}

#[test]
fn each_kind_of_failure_has_a_sentence() {
    let none = Errors::default();
    let timeouts = |timeouts| Report { timeouts, ..with(Errors { client_timo: 1000, ..none }) };
    let missed = |missed| Report { missed, ..failed() };
    for (report, expected) in [
        (
            with(Errors { conn_refused: 1000, ..none }),
            "1,000 of 1,000 connections were refused; check that a server listens at \
             http://127.0.0.1:9/",
        ),
        (
            first(with(Errors { status: 900, conn_reset: 100, ..none }), "status", "status 503"),
            "900 of 1,000 requests had an error status; first: status 503; check the URL",
        ),
        (
            first(with(Errors { check: 1000, ..none }), "check", "expected status 200, found 503"),
            "1,000 of 1,000 replies failed a check; first: expected status 200, found 503",
        ),
        (
            first(
                with(Errors { other: 1000, ..none }),
                "other",
                "the server's certificate is missing",
            ),
            "1,000 of 1,000 requests failed; first: the server's certificate is missing",
        ),
        (with(Errors { conn_reset: 1000, ..none }), "lost their connection"),
        (with(Errors { socket_timo: 1000, ..none }), "no answer from the network"),
        (with(Errors { surplus: 1000, ..none }), "more bytes than their reply"),
        (with(Errors { fd_unavail: 1000, ..none }), "ulimit -n"),
        (with(Errors { addr_unavail: 1000, ..none }), "--sources"),
        (
            timeouts(Timeouts { connect: 600, first_byte: 400, reply: 0 }),
            "600 of 1,000 requests timed out while connecting",
        ),
        (
            timeouts(Timeouts { connect: 0, first_byte: 1000, reply: 0 }),
            "timed out before the first byte",
        ),
        (
            timeouts(Timeouts { connect: 0, first_byte: 0, reply: 1000 }),
            "timed out before the end of the reply",
        ),
        (missed(Missed { no_connection: 1000, ..Missed::default() }), "no free connection"),
        (missed(Missed { generator: 1000, ..Missed::default() }), "could not keep up"),
        (missed(Missed { end_of_run: 1000, ..Missed::default() }), "before the end of the run"),
        (
            Report {
                requests: Requests { scheduled: 9, unfinished: 9, ..Requests::default() },
                ..failed()
            },
            "9 of 9 requests had no reply",
        ),
    ] {
        let found = report.total_failure().unwrap();
        assert!(found.starts_with("no request succeeded: "), "{found}");
        assert!(found.contains(expected), "{expected}: {found}");
        assert!(!found.contains('\n') && !found.ends_with('.'), "{found}");
    }
}

#[test]
fn a_success_or_an_early_stop_is_no_total_failure() {
    let mut report = with(Errors { conn_refused: 999, ..Errors::default() });
    report.requests.replies = 1;
    assert_eq!(report.total_failure(), None);
    assert_eq!(Report { complete: true, ..Report::default() }.total_failure(), None);
    assert_eq!(Report { complete: false, ..failed() }.total_failure(), None);
    let stopped = Report { complete: false, ..with(Errors { check: 3, ..Errors::default() }) };
    assert!(stopped.total_failure().is_some());
}

#[test]
fn a_load_of_idle_connections_fails_if_none_was_opened() {
    let idle = |open, lost| {
        let idle = Idle { requested: 100, open, lost, ..Idle::default() };
        let report = Report { complete: true, idle, ..Report::default() };
        first(report, "idle", "Connection refused (os error 111)").total_failure()
    };
    assert_eq!((idle(1, 0), idle(0, 1)), (None, None));
    let found = idle(0, 0).unwrap();
    let expected =
        "none of 100 idle connections could be opened (Connection refused (os error 111))";
    assert!(found.starts_with(expected), "{found}");
}
