//! Loads over HTTP/2, against servers of the `h2` crate.

use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use h2::Reason;
use hearken_load::lockstep::{Driver, Settings};
use hearken_load::{
    Arrivals, Config, Count, Errors, Model, Profile, Report, RequestTemplate, StopSignal, run,
};

use crate::server::assertions::assert_conserved;
use crate::server::http2::{Answer, Counts, Http2Server, going_away};
use crate::server::tls::{Authority, Closing};

const ALL: u64 = 60;

fn config(url: String) -> Config {
    Config {
        url,
        rate: Profile::constant(600.0),
        duration: Some(Duration::from_millis(100)),
        arrivals: Arrivals::Constant,
        connections: NonZeroUsize::new(2),
        http2: NonZeroU32::new(100),
        timeout: Duration::from_secs(20),
        ..Config::default()
    }
}

fn load(config: &Config) -> Report {
    let report = run(config, &mut (), &StopSignal::new()).unwrap();
    assert_conserved(&report);
    report
}

fn streams(count: u32) -> Option<NonZeroU32> {
    NonZeroU32::new(count)
}

/// Returns settings of a closed loop that keeps this number of streams of one connection busy.
fn closed(url: String, count: u32, requests: u64) -> Config {
    Config {
        model: Some(Model::Closed),
        connections: NonZeroUsize::new(1),
        http2: streams(count),
        requests: NonZeroU64::new(requests),
        duration: None,
        ..config(url)
    }
}

#[test]
fn requests_share_connections() {
    let authority = Authority::new();
    let mut tls = (*authority.server_config()).clone();
    tls.alpn_protocols = vec![b"h2".to_vec()];
    for tls in [None, Some(Arc::new(tls))] {
        for length in [0, 5, 200_000] {
            let server = Http2Server::start(tls.clone(), |_| (), move |_| Answer::Content(length));
            let options = tls.as_ref().map(|_| authority.options()).unwrap_or_default();
            let template = RequestTemplate {
                expect: Some(format!("status=200,length={length}").parse().unwrap()),
                ..RequestTemplate::default()
            };
            let report = load(&Config { tls: options, template, ..config(server.url()) });
            assert_eq!(report.errors, Errors::default(), "{report}");
            assert_eq!((report.requests.replies, report.status.success), (ALL, ALL));
            assert_eq!(Counts::of(&server.counts.requests), ALL);
            assert_eq!(report.connections_opened, Counts::of(&server.counts.connections));
            assert_eq!(report.tls.full + report.tls.resumed, if tls.is_some() { 2 } else { 0 });
            assert!(report.bytes.received >= ALL * length as u64, "{report}");
            assert_eq!(report.http2.map(|http2| (http2.streams, http2.resent)), Some((100, 0)));
        }
    }
}

#[test]
fn needs_a_server_that_selects_http2() {
    let authority = Authority::new();
    // It ignores ALPN.
    let server = authority.start_server(Closing::Announced, |_| crate::server::Behaviour::Reply);
    let report = load(&Config { tls: authority.options(), ..config(server.url()) });
    assert_eq!(report.requests.replies, 0, "{report}");
    assert!(report.warnings.iter().any(|text| text.contains("ALPN")), "{report}");
}

#[test]
fn respects_the_maximum_of_streams() {
    for (permitted, wanted, peak) in [(3, 100, 3), (100, 4, 4), (1, 1, 1)] {
        let configure = move |builder: &mut h2::server::Builder| {
            builder.max_concurrent_streams(permitted);
        };
        let server = Http2Server::start(None, configure, |_| Answer::Content(100));
        let report = load(&closed(server.url(), wanted, 500));
        assert_eq!(report.errors, Errors::default(), "{report}");
        assert_eq!(report.requests.replies, 500, "{report}");
        assert_eq!(Counts::of(&server.counts.peak_streams), peak);
        assert_eq!(report.connections_opened, 1);
    }
}

#[test]
fn arrivals_wait_for_streams_and_connections() {
    // Each request times out after its full timeout, from when it left the queue.
    let server = Http2Server::start(
        None,
        |builder| {
            builder.max_concurrent_streams(2);
        },
        |_| Answer::Never,
    );
    let report = load(&Config {
        connections: NonZeroUsize::new(2),
        timeout: Duration::from_millis(300),
        ..config(server.url())
    });
    assert_eq!(report.requests.replies, 0, "{report}");
    assert!(report.requests.queued > 0 && report.requests.missed > 0, "{report}");
    assert!(Counts::of(&server.counts.peak_streams) <= 6, "{report}");
    assert_eq!(report.requests.failed, report.errors.client_timo, "{report}");
}

#[test]
fn a_stream_that_times_out_leaves_the_others_alone() {
    for first_byte_timeout in [None, Some(Duration::from_millis(200))] {
        let answer = |number| if number == 5 { Answer::Never } else { Answer::Content(3) };
        let server = Http2Server::plain(answer);
        let report = load(&Config {
            connections: NonZeroUsize::new(1),
            duration: Some(Duration::from_millis(1000)),
            timeout: Duration::from_millis(if first_byte_timeout.is_some() { 20_000 } else { 200 }),
            first_byte_timeout,
            rate: Profile::constant(60.0),
            ..config(server.url())
        });
        assert_eq!(report.errors, Errors { client_timo: 1, ..Errors::default() }, "{report}");
        assert_eq!(report.timeouts.first_byte, 1, "{report}");
        assert_eq!((report.requests.replies, report.connections_opened), (ALL - 1, 1), "{report}");
        assert_eq!(Counts::of(&server.counts.cancelled), 1);
    }
}

#[test]
fn replaces_connections_of_a_silent_server() {
    // The first timeouts may only reset streams, because a reply arrived after their requests were sent.
    let server = Http2Server::plain(|number| match number {
        21..=40 => Answer::Never,
        _ => Answer::Content(1),
    });
    let report = load(&Config {
        connections: NonZeroUsize::new(1),
        timeout: Duration::from_millis(200),
        ..closed(server.url(), 10, 100)
    });
    assert_eq!(report.errors, Errors { client_timo: 20, ..Errors::default() }, "{report}");
    assert!(report.connections_opened > 1, "{report}");
    assert_eq!(report.requests.replies, 80, "{report}");
}

#[test]
fn counts_resets_and_refusals() {
    let server = Http2Server::plain(|number| match number % 4 {
        0 => Answer::Reset(Reason::INTERNAL_ERROR),
        1 => Answer::Reset(Reason::REFUSED_STREAM),
        2 => Answer::Status(503),
        _ => Answer::Content(1),
    });
    let report = load(&config(server.url()));
    let each = ALL / 4;
    let expected =
        Errors { stream_reset: each, stream_refused: each, status: each, ..Errors::default() };
    assert_eq!(report.errors, expected, "{report}");
    assert_eq!(report.requests.replies, each, "{report}");
    assert!(report.first_errors["stream-reset"].contains("INTERNAL_ERROR"), "{report}");
}

#[test]
fn sends_refused_requests_again_when_a_server_goes_away() {
    for model in [Model::Requests, Model::Closed, Model::Connections] {
        let base = closed(going_away(7), 5, 100);
        let report = match model {
            Model::Closed => load(&base),
            Model::Requests => load(&Config {
                model: None,
                rate: Profile::constant(5000.0),
                http2: streams(100),
                ..base
            }),
            _ => load(&Config {
                model: Some(model),
                requests: NonZeroU64::new(10),
                requests_per_connection: Some(Count::exactly(NonZeroU32::new(10).unwrap())),
                rate: Profile::constant(100.0),
                connections: None,
                ..base
            }),
        };
        assert_eq!(report.errors, Errors::default(), "{model:?} {report}");
        assert_eq!(report.requests.replies, 100, "{model:?} {report}");
        assert!(report.connections_opened > 10, "{model:?} {report}");
        assert!(report.http2.unwrap().resent > 0, "{model:?} {report}");
    }
}

#[test]
fn counts_requests_that_every_connection_refuses() {
    let server = going_away(0);
    let report = load(&Config {
        connections: NonZeroUsize::new(1),
        timeout: Duration::from_secs(2),
        ..closed(server, 4, 40)
    });
    let Errors { stream_refused, .. } = report.errors;
    assert_eq!((report.requests.replies, stream_refused), (0, 40), "{report}");
}

#[test]
fn large_bodies_and_slow_windows() {
    for window in [1_000, 65_535, 1 << 20] {
        let configure = move |builder: &mut h2::server::Builder| {
            builder.initial_window_size(window);
        };
        let server = Http2Server::start(None, configure, |_| Answer::Content(100_000));
        let template = RequestTemplate {
            method: "POST".to_owned(),
            body: Some(vec![b'u'; 300_000]),
            ..RequestTemplate::default()
        };
        let report = load(&Config { template, ..closed(server.url(), 8, 40) });
        assert_eq!(report.errors, Errors::default(), "{report}");
        assert_eq!(report.requests.replies, 40, "{report}");
        assert_eq!(Counts::of(&server.counts.received), 40 * 300_000);
    }
}

#[test]
fn connections_carry_a_number_of_requests() {
    let each = |count| Some(Count::exactly(NonZeroU32::new(count).unwrap()));
    for count in [1, 7] {
        let server = Http2Server::plain(|_| Answer::Content(1));
        let report = load(&Config {
            requests_per_connection: each(count),
            connections: None,
            ..config(server.url())
        });
        assert_eq!(report.requests.replies, ALL, "{report}");
        assert!(report.connections_opened >= ALL / u64::from(count), "{report}");
    }
}

#[test]
fn refuses_pipelining() {
    let settings = Config {
        pipeline: NonZeroUsize::new(2).unwrap(),
        ..closed("http://127.0.0.1:1/".to_owned(), 2, 1)
    };
    let error = run(&settings, &mut (), &StopSignal::new()).unwrap_err();
    assert!(error.to_string().contains("pipelining"), "{error}");
    let upgrade = RequestTemplate {
        headers: vec!["Connection: upgrade".to_owned(), "Upgrade: websocket".to_owned()],
        ..RequestTemplate::default()
    };
    let settings = Config { template: upgrade, ..config("http://127.0.0.1:1/".to_owned()) };
    let error = run(&settings, &mut (), &StopSignal::new()).unwrap_err();
    assert!(error.to_string().contains("not valid in HTTP/2"), "{error}");
}

#[test]
fn works_in_lockstep() {
    let configure = |builder: &mut h2::server::Builder| {
        builder.max_concurrent_streams(20);
    };
    let server = Http2Server::start(None, configure, |_| Answer::Content(3));
    let config = config(server.url());
    let settings = Settings { batch: NonZeroUsize::new(2).unwrap(), ..Settings::default() };
    let with = |count| Config { http2: streams(count), ..config.clone() };
    let mut driver = Driver::new(&with(8), settings).unwrap();
    let report = driver.run(100, &AtomicBool::new(false));
    assert!(report.complete && report.http2, "{report}");
    assert_eq!((report.requests.replies, report.connections_opened), (112, 2), "{report}");
    assert_eq!((report.content_bytes, report.pipeline), (3, 8));
    assert_eq!(Counts::of(&server.counts.requests), 112);
    let mut driver = Driver::new(&with(1000), settings).unwrap();
    let report = driver.run(100, &AtomicBool::new(false));
    assert!(report.warnings[0].contains("--streams 20"), "{report}");
}
