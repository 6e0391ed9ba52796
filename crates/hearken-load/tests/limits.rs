//! The client's limits: each is counted by its name, and none changes what is offered.

mod server;

use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use hearken_load::{Arrivals, Config, Count, Errors, Model, Profile, Report, Stop, Timeouts, run};
use server::conserved::assert_conserved;
use server::{Act, Server, black_hole};

const LIMIT: Duration = Duration::from_millis(60);
const LONG: Duration = Duration::from_secs(20);
const ALL: u64 = 30;

fn config(url: String) -> Config {
    Config {
        url,
        rate: Profile::constant(300.0),
        duration: Some(Duration::from_millis(100)),
        arrivals: Arrivals::Constant,
        connections: NonZeroUsize::new(4).unwrap(),
        timeout: LONG,
        ..Config::default()
    }
}

/// All requests ran out of time, as many as were asked for.
fn load(config: &Config) -> Report {
    let report = run(config, &mut (), &Stop::new()).unwrap();
    assert_conserved(&report);
    assert_eq!(report.requests.intended, ALL, "{report}");
    assert_eq!(report.errors, Errors { client_timo: ALL, ..Errors::default() }, "{report}");
    report
}

fn one() -> Option<Count> {
    Some(Count::exactly(NonZeroU32::MIN))
}

#[test]
fn connecting() {
    let (url, _held) = black_hole();
    let connect_timeout = Some(LIMIT);
    for (model, per_connection) in [(Model::Requests, one()), (Model::Connections, None)] {
        let model = Some(model);
        let report =
            load(&Config { model, per_connection, connect_timeout, ..config(url.clone()) });
        assert_eq!(report.timeouts, Timeouts { connect: ALL, ..Timeouts::default() });
        assert_eq!((report.requests.sent, report.connections_opened), (0, 0));
    }
    // Those that are to be kept are waited for, and in vain.
    let report = load(&Config { connect_timeout, timeout: 2 * LIMIT, ..config(url) });
    assert_eq!((report.requests.sent, report.connections_opened), (0, 0));
    assert!(report.timeouts.connect > 0, "{:?}", report.timeouts);
}

/// Without a limit of its own, connecting has that of the reply.
#[test]
fn connecting_within_the_whole() {
    let (url, _held) = black_hole();
    let report = load(&Config { per_connection: one(), timeout: LIMIT, ..config(url) });
    assert_eq!(report.timeouts, Timeouts { connect: ALL, ..Timeouts::default() });
}

#[test]
fn the_first_byte() {
    let server = Server::start(|_| Act::Never);
    let first_byte_timeout = Some(LIMIT);
    for (per_connection, model) in
        [(one(), Model::Requests), (None, Model::Requests), (one(), Model::Connections)]
    {
        let model = Some(model);
        let config = Config { model, per_connection, first_byte_timeout, ..config(server.url()) };
        let report = load(&config);
        assert_eq!(report.timeouts, Timeouts { first_byte: ALL, ..Timeouts::default() });
        assert_eq!(report.requests.sent, ALL);
    }
}

/// A reply that has begun is not held to the limit of its first byte, and one that is complete to none.
#[test]
fn the_whole_reply() {
    let server = Server::start(|_| Act::TooLong);
    let first_byte_timeout = Some(LONG / 2);
    let per_connection = one();
    let timeout = 2 * LIMIT;
    for first_byte_timeout in [None, first_byte_timeout] {
        let base = config(server.url());
        let report = load(&Config { per_connection, timeout, first_byte_timeout, ..base });
        assert_eq!(report.timeouts.first_byte, 0, "{report}");
        assert_eq!(report.timeouts.reply + report.timeouts.connect, ALL, "{report}");
    }
}

/// The second of two that were sent at once may take as long again.
#[test]
fn the_first_byte_of_each_of_several() {
    let server = Server::start(|number| if number % 4 == 3 { Act::Never } else { Act::Reply });
    let report = run(
        &Config {
            model: Some(Model::Connections),
            rate: Profile::constant(100.0),
            per_connection: NonZeroU32::new(4).map(Count::exactly),
            pipeline: NonZeroUsize::new(4).unwrap(),
            first_byte_timeout: Some(Duration::from_secs(1)),
            duration: Some(Duration::from_millis(1)),
            ..config(server.url())
        },
        &mut (),
        &Stop::new(),
    )
    .unwrap();
    assert_conserved(&report);
    assert_eq!((report.requests.intended, report.requests.replies), (4, 3), "{report}");
    assert_eq!(report.timeouts, Timeouts { first_byte: 1, ..Timeouts::default() });
    assert_eq!((report.sessions.begun, report.sessions.failed), (1, 1));
}

/// However much is given up, all of it is offered, in its time.
#[test]
fn what_is_offered_stays_as_asked() {
    let server = Server::start(|_| Act::Never);
    let report = run(
        &Config {
            rate: Profile::constant(5000.0),
            duration: Some(Duration::from_millis(200)),
            timeout: LIMIT,
            ..config(server.url())
        },
        &mut (),
        &Stop::new(),
    )
    .unwrap();
    assert_conserved(&report);
    assert_eq!(report.requests.intended, 1000, "{report}");
    assert_eq!(report.errors.client_timo, 1000, "{report}");
}
