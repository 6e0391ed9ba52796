//! Checks of replies: status, length and hash.

use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use crate::server::assertions::assert_conserved;
use crate::server::{Behaviour, Server};
use hearken_load::{
    Arrivals, Config, Count, Errors, Model, Profile, Report, RequestTemplate, StopSignal, run,
};

/// SHA-256 hash of "hello".
const SHA256: &str = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";

fn load(server: &Server, expect: &str, model: Model, pipeline: usize) -> Report {
    let report = run(
        &Config {
            url: server.url(),
            template: RequestTemplate {
                expect: Some(expect.parse().unwrap()),
                ..RequestTemplate::default()
            },
            model: Some(model),
            rate: Profile::constant(if model == Model::Requests { 400.0 } else { 80.0 }),
            duration: Some(Duration::from_millis(100)),
            arrivals: Arrivals::Constant,
            connections: NonZeroUsize::new(4),
            requests_per_connection: NonZeroU32::new(5)
                .map(Count::exactly)
                .filter(|_| model != Model::Requests),
            pipeline: NonZeroUsize::new(pipeline).unwrap(),
            timeout: Duration::from_secs(20),
            ..Config::default()
        },
        &mut (),
        &StopSignal::new(),
    )
    .unwrap();
    assert_conserved(&report);
    report
}

#[test]
fn failed_checks_are_errors_of_their_own_kind() {
    for behaviour in
        [Behaviour::Reply, Behaviour::Chunked, Behaviour::ByteByByte, Behaviour::Interim]
    {
        let server = Server::start(move |_| behaviour);
        for (expect, warning) in [
            ("status=200".to_owned(), None),
            ("status=2xx,length=5".to_owned(), None),
            (format!("sha256={SHA256}"), None),
            (format!("status=200|204,length=5,sha256={SHA256}"), None),
            ("status=404".to_owned(), Some("expected status 404, found 200")),
            ("length=6".to_owned(), Some("expected 6 bytes of content, found 5")),
            (format!("sha256={}", SHA256.replace('2', "3")), Some("unexpected SHA-256 digest")),
        ] {
            let report = load(&server, &expect, Model::Requests, 1);
            let all = report.requests.scheduled;
            let check = if warning.is_some() { all } else { 0 };
            assert_eq!(report.errors, Errors { check, ..Errors::default() }, "{expect} {report}");
            assert_eq!(report.requests.replies, all - check);
            // The connection is reused.
            assert_eq!(report.connections_opened, 4, "{expect} {report}");
            assert_eq!(report.status.success, all);
            let warned = |warning| report.warnings.iter().any(|text| text.contains(warning));
            assert_eq!(warning.is_some_and(warned), warning.is_some(), "{report}");
        }
    }
}

/// Checks that one wrong reply in three does not affect the others, even if pipelined.
#[test]
fn checks_each_reply_independently() {
    for (model, pipeline) in
        [(Model::Requests, 1), (Model::Connections, 1), (Model::Connections, 5), (Model::Closed, 5)]
    {
        let server = Server::start(|number| match number % 3 {
            0 => Behaviour::Missing,
            1 => Behaviour::Chunked,
            _ => Behaviour::Reply,
        });
        let report = load(&server, &format!("status=200,sha256={SHA256}"), model, pipeline);
        let wrong = server.requests().div_ceil(3);
        assert_eq!(report.errors, Errors { check: wrong, ..Errors::default() }, "{report}");
        assert_eq!(report.requests.replies, server.requests() - wrong);
        assert_eq!(report.sessions.failed, 0, "a failed check does not end its session");
    }
}

/// Checks that a truncated body counts as a reset, not as a failed check.
#[test]
fn incomplete_replies_are_not_checked() {
    let server = Server::start(|_| Behaviour::Partial);
    let report = load(&server, "status=404", Model::Requests, 1);
    assert_eq!(report.errors.conn_reset, report.requests.scheduled, "{report}");
}
