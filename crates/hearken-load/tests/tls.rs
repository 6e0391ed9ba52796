//! TLS from end to end, against a server that speaks it by the same library.

mod server;

use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use hearken::io::{find, names};
use hearken_load::{
    Arrivals, Asking, Config, Count, Errors, Handshakes, Model, Profile, Report, Stop, TlsOptions,
    run,
};
use server::conserved::assert_conserved;
use server::tls::{Authority, Farewell};
use server::{Act, refusing};

const ALL: u64 = 30;

fn config(url: String, tls: TlsOptions) -> Config {
    Config {
        url,
        tls,
        rate: Profile::constant(300.0),
        duration: Some(Duration::from_millis(100)),
        arrivals: Arrivals::Constant,
        connections: NonZeroUsize::new(4).unwrap(),
        timeout: Duration::from_secs(20),
        ..Config::default()
    }
}

fn load(config: &Config) -> Report {
    let report = run(config, &mut (), &Stop::new()).unwrap();
    assert_conserved(&report);
    assert_eq!(report.requests.intended, ALL, "{report}");
    report
}

fn each(requests: u32) -> Option<Count> {
    NonZeroU32::new(requests).map(Count::exactly)
}

/// Over every mechanism, as plain HTTP is.
#[test]
fn connections_are_kept() {
    let authority = Authority::new();
    for events in names().filter(|name| find(name).unwrap().probe().is_ok()) {
        for act in [Act::Reply, Act::Chunked, Act::ByteByByte] {
            let server = authority.server(Farewell::Announced, move |_| act);
            let events = events.to_owned();
            let report = load(&Config { events, ..config(server.url(), authority.options()) });
            assert_eq!(report.errors, Errors::default(), "{report}");
            assert_eq!((report.requests.replies, server.replies()), (ALL, ALL));
            assert_eq!((report.connections_opened, server.accepted()), (4, 4));
            assert_eq!((report.tls.full + report.tls.resumed, report.tls.failed), (4, 0));
            // More than the content, less than much more.
            let received = report.bytes.received;
            assert!((ALL * 40..ALL * 5000).contains(&received), "{received}");
        }
    }
}

#[test]
fn new_connections_take_up_earlier_sessions() {
    let authority = Authority::new();
    for resumption in [true, false] {
        let server = authority.server(Farewell::Announced, |_| Act::Reply);
        let tls = TlsOptions { resumption, ..authority.options() };
        let report = load(&Config { per_connection: each(1), ..config(server.url(), tls) });
        assert_eq!(report.requests.replies, ALL, "{report}");
        let Handshakes { full, resumed, failed } = report.tls;
        assert_eq!((full + resumed, failed), (ALL, 0), "{report}");
        assert_eq!(resumed > 0, resumption, "{report}");
        assert_eq!(report.connections_opened, ALL);
    }
}

#[test]
fn whoever_is_not_vouched_for_is_not_asked() {
    let (authority, other) = (Authority::new(), Authority::new());
    let server = authority.server(Farewell::Announced, |_| Act::Reply);
    for (model, per_connection) in
        [(Model::Requests, None), (Model::Requests, each(1)), (Model::Connections, each(1))]
    {
        let model = Some(model);
        let base = config(server.url(), other.options());
        let report = load(&Config { model, per_connection, ..base.clone() });
        assert_eq!(report.errors, Errors { other: ALL, ..Errors::default() }, "{report}");
        assert!(report.tls.failed >= ALL, "{report}");
        assert_eq!((report.tls.full, report.connections_opened), (0, 0), "{report}");
        let told = report.warnings.iter().find(|text| text.contains("--cacert FILE"));
        assert!(told.is_some(), "{report}");
        let insecure = TlsOptions { insecure: true, ..other.options() };
        let report = load(&Config { model, per_connection, tls: insecure, ..base });
        assert_eq!(report.requests.replies, ALL, "{report}");
    }
    assert_eq!(server.requests(), 3 * ALL);
}

#[test]
fn what_is_no_tls_is_named() {
    let authority = Authority::new();
    // It takes the first bytes for a request that is not complete, so it has to be one that ends.
    let addr = server::hasty(b"HTTP/1.1 400 Bad Request\r\n\r\n", 5);
    let url = format!("https://{addr}/");
    let report = load(&Config { per_connection: each(1), ..config(url, authority.options()) });
    assert_eq!(report.errors, Errors { other: ALL, ..Errors::default() }, "{report}");
    assert_eq!(report.tls, Handshakes { failed: ALL, ..Handshakes::default() });
    assert!(report.warnings.iter().any(|text| text.contains("TLS")), "{report}");
    // One that leaves before it has said anything.
    let url = format!("https://{}/", server::hanging_up());
    let report = load(&Config { per_connection: each(1), ..config(url, authority.options()) });
    assert_eq!(report.errors, Errors { conn_reset: ALL, ..Errors::default() }, "{report}");
    assert_eq!(report.tls, Handshakes { failed: ALL, ..Handshakes::default() });
    // Nobody.
    let (url, _held) = refusing();
    let url = url.replace("http:", "https:");
    let report = load(&Config { per_connection: each(1), ..config(url, authority.options()) });
    assert_eq!(report.errors, Errors { conn_refused: ALL, ..Errors::default() }, "{report}");
    assert_eq!(report.tls, Handshakes::default());
}

/// Without a farewell, what ends by its length is whole, and what ends with the connection is not.
#[test]
fn how_the_server_leaves() {
    let authority = Authority::new();
    for farewell in [Farewell::Announced, Farewell::Lingering, Farewell::None, Farewell::Garbage] {
        let announced = matches!(farewell, Farewell::Announced | Farewell::Lingering);
        for (act, whole) in [
            (Act::AnnouncedClose, true),
            (Act::UntilClose, announced),
            (Act::Partial, false),
            (Act::Close, false),
            (Act::Reset, false),
            (Act::ResetInBody, false),
        ] {
            let server = authority.server(farewell, move |_| act);
            let per_connection = each(1);
            let base = config(server.url(), authority.options());
            let report = load(&Config { per_connection, ..base });
            let failed = if whole { 0 } else { ALL };
            assert_eq!(report.requests.failed, failed, "{act:?} {farewell:?} {report}");
            let Errors { conn_reset, other, .. } = report.errors;
            assert_eq!(conn_reset + other, failed, "{act:?} {farewell:?} {report}");
            assert!(farewell == Farewell::Garbage || other == 0, "{act:?} {farewell:?} {report}");
            assert_eq!(report.tls.failed, 0, "{act:?} {farewell:?} {report}");
        }
    }
}

#[test]
fn several_at_once() {
    let authority = Authority::new();
    for (model, act) in
        [(Model::Connections, Act::Reply), (Model::Closed, Act::Reply), (Model::Closed, Act::Flood)]
    {
        let server = authority.server(Farewell::None, move |_| act);
        let report = run(
            &Config {
                model: Some(model),
                per_connection: each(8),
                pipeline: NonZeroUsize::new(4).unwrap(),
                rate: Profile::constant(50.0),
                threads: NonZeroUsize::new(2).unwrap(),
                ..config(server.url(), authority.options())
            },
            &mut (),
            &Stop::new(),
        )
        .unwrap();
        assert_conserved(&report);
        assert_eq!(report.errors, Errors::default(), "{report}");
        assert!(report.requests.replies >= 8, "{report}");
        assert_eq!(report.requests.replies, server.replies());
    }
}

#[test]
fn content_is_checked() {
    let authority = Authority::new();
    let server = authority.server(Farewell::Announced, |_| Act::Chunked);
    let sum = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    for (expect, check) in [(format!("sha256={sum}"), 0), ("length=4".to_owned(), ALL)] {
        let asking = Asking { expect: Some(expect.parse().unwrap()), ..Asking::default() };
        let report = load(&Config { asking, ..config(server.url(), authority.options()) });
        assert_eq!(report.errors, Errors { check, ..Errors::default() }, "{report}");
        assert_eq!(report.connections_opened, 4);
    }
}

#[test]
fn idle_connections() {
    let authority = Authority::new();
    let server = authority.server(Farewell::Announced, |_| Act::Reply);
    for idle_request in [false, true] {
        let base = config(server.url(), authority.options());
        let report = load(&Config { idle: 20, idle_request, ..base });
        let asked = if idle_request { 20 } else { 0 };
        assert_eq!((report.idle.held, report.idle.lost), (20, 0), "{report}");
        assert_eq!((report.idle.requests, report.idle.replies), (asked, asked), "{report}");
        assert_eq!(report.tls.full + report.tls.resumed, 24, "{report}");
        assert_eq!(report.connections_opened, 4);
    }
}
