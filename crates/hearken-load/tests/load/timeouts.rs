//! Timeouts of the client: each is counted by its kind, and none affects the arrivals.

use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use crate::server::assertions::assert_conserved;
use crate::server::{Behaviour, Server, black_hole};
use hearken_load::{
    Arrivals, Config, Count, Errors, Model, Profile, Report, StopSignal, Timeouts, run,
};

const LIMIT: Duration = Duration::from_millis(60);
const LONG: Duration = Duration::from_secs(20);
const ALL: u64 = 30;

fn config(url: String) -> Config {
    Config {
        url,
        rate: Profile::constant(300.0),
        duration: Some(Duration::from_millis(100)),
        arrivals: Arrivals::Constant,
        connections: None,
        timeout: LONG,
        ..Config::default()
    }
}

/// Runs a load in which all requests time out.
fn load(config: &Config) -> Report {
    let report = run(config, &mut (), &StopSignal::new()).unwrap();
    assert_conserved(&report);
    assert_eq!(report.requests.scheduled, ALL, "{report}");
    assert_eq!(report.errors, Errors { client_timo: ALL, ..Errors::default() }, "{report}");
    report
}

fn one() -> Option<Count> {
    Some(Count::exactly(NonZeroU32::MIN))
}

#[test]
fn connect_timeout() {
    let (url, _held) = black_hole();
    let connect_timeout = Some(LIMIT);
    for (model, requests_per_connection) in [(Model::Requests, one()), (Model::Connections, None)] {
        let model = Some(model);
        let report = load(&Config {
            model,
            requests_per_connection,
            connect_timeout,
            ..config(url.clone())
        });
        assert_eq!(report.timeouts, Timeouts { connect: ALL, ..Timeouts::default() });
        assert_eq!((report.requests.sent, report.connections_opened), (0, 0));
    }
    // Persistent connections, opened ahead of the requests or for them, time out, too.
    let report = load(&Config { connect_timeout, timeout: 2 * LIMIT, ..config(url) });
    assert_eq!((report.requests.sent, report.connections_opened), (0, 0));
    assert!(report.timeouts.connect > 0, "{:?}", report.timeouts);
}

/// Checks that the request timeout limits connecting if there is no connect timeout.
#[test]
fn the_request_timeout_includes_connecting() {
    let (url, _held) = black_hole();
    let report = load(&Config { requests_per_connection: one(), timeout: LIMIT, ..config(url) });
    assert_eq!(report.timeouts, Timeouts { connect: ALL, ..Timeouts::default() });
}

#[test]
fn first_byte_timeout() {
    let server = Server::start(|_| Behaviour::Never);
    let first_byte_timeout = Some(LIMIT);
    for (requests_per_connection, model) in
        [(one(), Model::Requests), (None, Model::Requests), (one(), Model::Connections)]
    {
        let model = Some(model);
        let config =
            Config { model, requests_per_connection, first_byte_timeout, ..config(server.url()) };
        let report = load(&config);
        assert_eq!(report.timeouts, Timeouts { first_byte: ALL, ..Timeouts::default() });
        assert_eq!(report.requests.sent, ALL);
    }
}

/// Checks that a request timeout is counted by the phase in which it expires.
#[test]
fn the_request_timeout_includes_the_wait_for_the_first_byte() {
    let server = Server::start(|_| Behaviour::Never);
    let timeout = 2 * LIMIT;
    let report = load(&Config { requests_per_connection: one(), timeout, ..config(server.url()) });
    assert_eq!(report.timeouts.reply, 0, "{report}");
    assert_eq!(report.timeouts.first_byte + report.timeouts.connect, ALL, "{report}");
}

/// Checks that the first-byte timeout does not apply to a reply that has begun.
#[test]
fn request_timeout() {
    let server = Server::start(|_| Behaviour::TooLong);
    let first_byte_timeout = Some(LONG / 2);
    let requests_per_connection = one();
    let timeout = 2 * LIMIT;
    for first_byte_timeout in [None, first_byte_timeout] {
        let base = config(server.url());
        let report = load(&Config { requests_per_connection, timeout, first_byte_timeout, ..base });
        assert_eq!(report.timeouts.first_byte, 0, "{report}");
        assert_eq!(report.timeouts.reply + report.timeouts.connect, ALL, "{report}");
    }
}

/// Checks that the first-byte timeout of a pipelined request begins with the end of the previous
/// reply.
#[test]
fn the_first_byte_timeout_applies_to_each_pipelined_request() {
    let server =
        Server::start(|number| if number % 4 == 3 { Behaviour::Never } else { Behaviour::Reply });
    let report = run(
        &Config {
            model: Some(Model::Connections),
            rate: Profile::constant(100.0),
            requests_per_connection: NonZeroU32::new(4).map(Count::exactly),
            pipeline: NonZeroUsize::new(4).unwrap(),
            first_byte_timeout: Some(Duration::from_secs(1)),
            duration: Some(Duration::from_millis(1)),
            ..config(server.url())
        },
        &mut (),
        &StopSignal::new(),
    )
    .unwrap();
    assert_conserved(&report);
    assert_eq!((report.requests.scheduled, report.requests.replies), (4, 3), "{report}");
    assert_eq!(report.timeouts, Timeouts { first_byte: 1, ..Timeouts::default() });
    assert_eq!((report.sessions.started, report.sessions.failed), (1, 1));
}

/// Checks that timeouts do not reduce the offered load.
#[test]
fn timeouts_do_not_reduce_the_offered_load() {
    let server = Server::start(|_| Behaviour::Never);
    let report = run(
        &Config {
            rate: Profile::constant(5000.0),
            duration: Some(Duration::from_millis(200)),
            timeout: LIMIT,
            ..config(server.url())
        },
        &mut (),
        &StopSignal::new(),
    )
    .unwrap();
    assert_conserved(&report);
    assert_eq!(report.requests.scheduled, 1000, "{report}");
    assert_eq!(report.errors.client_timo + report.requests.missed, 1000, "{report}");
}
