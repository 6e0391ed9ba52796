//! Loads over TLS, against a server that uses the same TLS library.

use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use crate::server::assertions::assert_conserved;
use crate::server::tls::{Authority, Closing};
use crate::server::{Behaviour, refusing};
use hearken::io::{find, names};
use hearken_load::{
    Arrivals, Config, Count, Errors, Handshakes, Model, Profile, Report, RequestTemplate,
    StopSignal, TlsOptions, run,
};

const ALL: u64 = 30;

fn config(url: String, tls: TlsOptions) -> Config {
    Config {
        url,
        tls,
        rate: Profile::constant(300.0),
        duration: Some(Duration::from_millis(100)),
        arrivals: Arrivals::Constant,
        connections: NonZeroUsize::new(4),
        timeout: Duration::from_secs(20),
        ..Config::default()
    }
}

fn load(config: &Config) -> Report {
    let report = run(config, &mut (), &StopSignal::new()).unwrap();
    assert_conserved(&report);
    assert_eq!(report.requests.scheduled, ALL, "{report}");
    report
}

fn each(requests: u32) -> Option<Count> {
    NonZeroU32::new(requests).map(Count::exactly)
}

/// Checks all mechanisms.
#[test]
fn persistent_connections() {
    let authority = Authority::new();
    for events in names().filter(|name| find(name).unwrap().probe().is_ok()) {
        for behaviour in [Behaviour::Reply, Behaviour::Chunked, Behaviour::ByteByByte] {
            let server = authority.start_server(Closing::Announced, move |_| behaviour);
            let mechanism = events.to_owned();
            let report = load(&Config { mechanism, ..config(server.url(), authority.options()) });
            assert_eq!(report.errors, Errors::default(), "{report}");
            assert_eq!((report.requests.replies, server.replies()), (ALL, ALL));
            assert_eq!((report.connections_opened, server.accepted()), (4, 4));
            assert_eq!((report.tls.full + report.tls.resumed, report.tls.failed), (4, 0));
            // More than the content, but not much more.
            let received = report.bytes.received;
            assert!((ALL * 40..ALL * 5000).contains(&received), "{received}");
        }
    }
}

#[test]
fn new_connections_resume_sessions() {
    let authority = Authority::new();
    for resumption in [true, false] {
        let server = authority.start_server(Closing::Announced, |_| Behaviour::Reply);
        let tls = TlsOptions { resumption, ..authority.options() };
        let report =
            load(&Config { requests_per_connection: each(1), ..config(server.url(), tls) });
        assert_eq!(report.requests.replies, ALL, "{report}");
        let Handshakes { full, resumed, failed } = report.tls;
        assert_eq!((full + resumed, failed), (ALL, 0), "{report}");
        assert_eq!(resumed > 0, resumption, "{report}");
        assert_eq!(report.connections_opened, ALL);
    }
}

#[test]
fn sends_no_requests_to_untrusted_servers() {
    let (authority, other) = (Authority::new(), Authority::new());
    let server = authority.start_server(Closing::Announced, |_| Behaviour::Reply);
    for (model, requests_per_connection) in
        [(Model::Requests, None), (Model::Requests, each(1)), (Model::Connections, each(1))]
    {
        let model = Some(model);
        let base = config(server.url(), other.options());
        let report = load(&Config { model, requests_per_connection, ..base.clone() });
        assert_eq!(report.errors, Errors { other: ALL, ..Errors::default() }, "{report}");
        assert!(report.tls.failed >= ALL, "{report}");
        assert_eq!((report.tls.full, report.connections_opened), (0, 0), "{report}");
        let warning = report.warnings.iter().find(|text| text.contains("--cacert FILE"));
        assert!(warning.is_some(), "{report}");
        let insecure = TlsOptions { insecure: true, ..other.options() };
        let report = load(&Config { model, requests_per_connection, tls: insecure, ..base });
        assert_eq!(report.requests.replies, ALL, "{report}");
    }
    assert_eq!(server.requests(), 3 * ALL);
}

#[test]
fn reports_servers_without_tls() {
    let authority = Authority::new();
    // The client hello looks like an incomplete request, so the server must not wait for its end.
    let addr = crate::server::hasty(b"HTTP/1.1 400 Bad Request\r\n\r\n", 5);
    let url = format!("https://{addr}/");
    let report =
        load(&Config { requests_per_connection: each(1), ..config(url, authority.options()) });
    assert_eq!(report.errors, Errors { other: ALL, ..Errors::default() }, "{report}");
    assert_eq!(report.tls, Handshakes { failed: ALL, ..Handshakes::default() });
    assert!(report.warnings.iter().any(|text| text.contains("TLS")), "{report}");
    // A server that closes the connection immediately.
    let url = format!("https://{}/", crate::server::hanging_up());
    let report =
        load(&Config { requests_per_connection: each(1), ..config(url, authority.options()) });
    assert_eq!(report.errors, Errors { conn_reset: ALL, ..Errors::default() }, "{report}");
    assert_eq!(report.tls, Handshakes { failed: ALL, ..Handshakes::default() });
    // A port on which no server listens.
    let (url, _held) = refusing();
    let url = url.replace("http:", "https:");
    let report =
        load(&Config { requests_per_connection: each(1), ..config(url, authority.options()) });
    assert_eq!(report.errors, Errors { conn_refused: ALL, ..Errors::default() }, "{report}");
    assert_eq!(report.tls, Handshakes::default());
}

/// Checks that without `close_notify`, replies with a length are complete, and replies delimited by
/// the end of the connection are not.
#[test]
fn distinguishes_announced_and_truncated_closes() {
    let authority = Authority::new();
    for closing in [Closing::Announced, Closing::Lingering, Closing::None, Closing::Garbage] {
        let announced = matches!(closing, Closing::Announced | Closing::Lingering);
        for (behaviour, complete) in [
            (Behaviour::AnnouncedClose, true),
            (Behaviour::UntilClose, announced),
            (Behaviour::Partial, false),
            (Behaviour::Close, false),
            (Behaviour::Reset, false),
            (Behaviour::ResetInBody, false),
        ] {
            let server = authority.start_server(closing, move |_| behaviour);
            let requests_per_connection = each(1);
            let base = config(server.url(), authority.options());
            let report = load(&Config { requests_per_connection, ..base });
            let failed = if complete { 0 } else { ALL };
            assert_eq!(report.requests.failed, failed, "{behaviour:?} {closing:?} {report}");
            let Errors { conn_reset, other, .. } = report.errors;
            assert_eq!(conn_reset + other, failed, "{behaviour:?} {closing:?} {report}");
            assert!(
                closing == Closing::Garbage || other == 0,
                "{behaviour:?} {closing:?} {report}"
            );
            assert_eq!(report.tls.failed, 0, "{behaviour:?} {closing:?} {report}");
        }
    }
}

#[test]
fn pipelines_requests() {
    let authority = Authority::new();
    for (model, behaviour) in [
        (Model::Connections, Behaviour::Reply),
        (Model::Closed, Behaviour::Reply),
        (Model::Closed, Behaviour::Flood),
    ] {
        let server = authority.start_server(Closing::None, move |_| behaviour);
        let report = run(
            &Config {
                model: Some(model),
                requests_per_connection: each(8),
                pipeline: NonZeroUsize::new(4).unwrap(),
                rate: Profile::constant(50.0),
                threads: NonZeroUsize::new(2).unwrap(),
                ..config(server.url(), authority.options())
            },
            &mut (),
            &StopSignal::new(),
        )
        .unwrap();
        assert_conserved(&report);
        assert_eq!(report.errors, Errors::default(), "{report}");
        assert!(report.requests.replies >= 8, "{report}");
        assert_eq!(report.requests.replies, server.replies());
    }
}

#[test]
fn checks_content() {
    let authority = Authority::new();
    let server = authority.start_server(Closing::Announced, |_| Behaviour::Chunked);
    let sum = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    for (expect, check) in [(format!("sha256={sum}"), 0), ("length=4".to_owned(), ALL)] {
        let template =
            RequestTemplate { expect: Some(expect.parse().unwrap()), ..RequestTemplate::default() };
        let report = load(&Config { template, ..config(server.url(), authority.options()) });
        assert_eq!(report.errors, Errors { check, ..Errors::default() }, "{report}");
        assert_eq!(report.connections_opened, 4);
    }
}

#[test]
fn holds_idle_connections() {
    let authority = Authority::new();
    let server = authority.start_server(Closing::Announced, |_| Behaviour::Reply);
    for idle_sends_request in [false, true] {
        let base = config(server.url(), authority.options());
        let report = load(&Config { idle_connections: 20, idle_sends_request, ..base });
        let requests = if idle_sends_request { 20 } else { 0 };
        assert_eq!((report.idle.open, report.idle.lost), (20, 0), "{report}");
        assert_eq!((report.idle.requests, report.idle.replies), (requests, requests), "{report}");
        assert_eq!(report.tls.full + report.tls.resumed, 24, "{report}");
        assert_eq!(report.connections_opened, 4);
    }
}
