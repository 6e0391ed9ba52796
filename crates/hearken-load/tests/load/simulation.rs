//! Loads over a simulated network, in virtual time.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::rc::Rc;
use std::time::Duration;

use hearken::Token;
use hearken::io::sim::{Decisions, Host, NetworkSettings, SimIo, SimIoSettings, World};
use hearken::io::{CompletionKind, Io, ListenOptions};
use hearken_http::h2;
use hearken_load::simulation::SimulatedLoad;
use hearken_load::{
    Config, Expect, Model, Profile, QueueOrder, Report, RequestTemplate, SlowOptions,
    WebSocketOptions,
};
use proptest::prelude::*;
use tungstenite::handshake::derive_accept_key;

use crate::cases;

const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nSet-Cookie: a=1; \
                       Expires=Fri, 01 Jan 2100 00:00:00 GMT\r\n\r\nok";

/// The requests and bytes that a server has received.
#[derive(Default)]
struct Received {
    requests: u64,
    bytes: Vec<u8>,
}

/// A server that answers each request head, and accepts upgrades to WebSocket.
struct Server {
    io: SimIo,
    /// The received bytes of each connection, up to the last complete head.
    heads: Vec<(Token, Vec<u8>)>,
    /// Connections of HTTP/2.
    http2: Vec<(Token, h2::Connection)>,
    /// Errors of servers of HTTP/2, if they make any.
    errors: Option<fastrand::Rng>,
    received: Rc<RefCell<Received>>,
}

impl Server {
    fn new(host: &Host, received: &Rc<RefCell<Received>>, seed: u64) -> Server {
        let mut io = SimIo::new(host, SimIoSettings::default());
        let address = SocketAddr::new(host.address(), 80);
        let listener = io.listen(&address.into(), &ListenOptions::default()).unwrap();
        io.start(listener);
        let errors = (seed > 1).then(|| fastrand::Rng::with_seed(seed));
        let (heads, http2) = (Vec::new(), Vec::new());
        Server { io, heads, http2, errors, received: received.clone() }
    }

    /// Performs what can be done at once.
    fn turn(&mut self) {
        self.io.wait(Some(self.io.clock())).unwrap();
        while let Some(completion) = self.io.next() {
            let token = completion.token;
            match completion.kind {
                CompletionKind::Accepted { token, .. } => {
                    self.io.start(token);
                    self.heads.push((token, Vec::new()));
                }
                CompletionKind::Received(bytes) => self.receive(token, &bytes),
                CompletionKind::End
                | CompletionKind::ReceiveFailed(_)
                | CompletionKind::Sent(Err(_)) => {
                    self.heads.retain(|(other, _)| *other != token);
                    self.http2.retain(|(other, _)| *other != token);
                    self.io.close(token);
                }
                _ => {}
            }
        }
    }

    fn receive(&mut self, token: Token, bytes: &[u8]) {
        self.received.borrow_mut().bytes.extend_from_slice(bytes);
        if let Some(index) = self.http2.iter().position(|(other, _)| *other == token) {
            return self.receive_http2(index, bytes);
        }
        let Some((_, head)) = self.heads.iter_mut().find(|(other, _)| *other == token) else {
            return;
        };
        head.extend_from_slice(bytes);
        if let Some(true) = h2::is_preface(head) {
            let (mut out, bytes) = (Vec::new(), std::mem::take(head));
            let limits = h2::Limits { max_streams: 5, ..h2::Limits::default() };
            let config = h2::Config { limits, ..h2::Config::default() };
            self.http2.push((token, h2::Connection::server(config.into(), &mut out)));
            self.io.send_now(token, &out);
            return self.receive_http2(self.http2.len() - 1, &bytes);
        }
        while let Some(end) = head.windows(4).position(|window| window == b"\r\n\r\n") {
            let complete: Vec<u8> = head.drain(..end + 4).collect();
            let text = String::from_utf8(complete).unwrap();
            match text.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: ")) {
                Some(key) => {
                    let accept = derive_accept_key(key.as_bytes());
                    let reply = format!(
                        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
                         Connection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
                    );
                    self.io.send_now(token, reply.as_bytes());
                }
                None => {
                    self.received.borrow_mut().requests += 1;
                    self.io.send_now(token, REPLY);
                }
            }
        }
    }
}

impl Server {
    /// Answers requests of HTTP/2, or makes an error.
    fn receive_http2(&mut self, index: usize, mut bytes: &[u8]) {
        let (token, connection) = &mut self.http2[index];
        let (mut head, mut out, mut begun) = (h2::HeadBuffer::new(), Vec::new(), Vec::new());
        let is_intact = loop {
            match connection.receive(&mut bytes, &mut head, &mut out) {
                Ok(Some(h2::Event::Request { stream, .. })) => begun.push(stream),
                Ok(Some(_)) => {}
                Ok(None) => break true,
                Err(_) => break false,
            }
        };
        for stream in begun {
            let choice = self.errors.as_mut().map_or(99, |random| random.u32(0..100));
            match choice {
                0..5 => connection.reset(stream, h2::ErrorCode::INTERNAL_ERROR, &mut out),
                5..10 => connection.reset(stream, h2::ErrorCode::REFUSED_STREAM, &mut out),
                10..15 => connection.shut_down(&mut out),
                15..20 => continue,
                _ => {}
            }
            let fields = [("content-length", "2"), ("set-cookie", "a=1")];
            if choice >= 10 && connection.respond(stream, 200, fields, false, &mut out) {
                self.received.borrow_mut().requests += 1;
                // Some replies stop in the middle.
                if choice >= 25 {
                    connection.send_data(stream, b"ok", true, &mut out);
                }
            }
        }
        connection.output_sent();
        self.io.send_now(*token, &out);
        if !is_intact {
            self.io.close(*token);
            self.http2.remove(index);
        }
    }
}

/// The outcome of a simulation.
struct Outcome {
    report: Report,
    /// Number of HTTP requests that the server received.
    requests: u64,
    /// All bytes that the server received, in order.
    received: Vec<u8>,
    /// Hash of all operations on the network.
    trace: u64,
}

fn config() -> Config {
    Config {
        url: "http://10.0.0.1/".to_owned(),
        rate: Profile::constant(500.0),
        duration: Some(Duration::from_secs(2)),
        connections: NonZeroUsize::new(4),
        seed: Some(1),
        ..Config::default()
    }
}

/// Runs the load that `config` describes, and stops it after `limit`.
fn simulate(config: &Config, network: NetworkSettings, limit: Duration) -> Outcome {
    simulate_with_faults(config, (network, SimIoSettings::default()), 1, limit)
}

/// Runs a load like [`simulate`], with faults from `seed`.
fn simulate_with_faults(
    config: &Config,
    (network, settings): (NetworkSettings, SimIoSettings),
    seed: u64,
    limit: Duration,
) -> Outcome {
    let world = World::new(Decisions::from_seed(seed), network);
    let received = Rc::<RefCell<Received>>::default();
    let server = RefCell::new(Server::new(&world.host([10, 0, 0, 1].into()), &received, seed));
    let client = world.host([10, 0, 0, 2].into());
    let load = Rc::new(SimulatedLoad::new(config, 1024).unwrap());
    let end = world.now() + limit;
    let is_stopped = Cell::new(false);
    client.set_waiter({
        let (world, client, load) = (world.clone(), client.clone(), load.clone());
        move |until| {
            while !client.is_ready() && until.is_none_or(|until| world.now() < until) {
                if world.now() >= end && !is_stopped.replace(true) {
                    load.stop();
                }
                server.borrow_mut().turn();
                let next = [world.next_event(), until, Some(end).filter(|&end| world.now() < end)];
                world.advance(next.into_iter().flatten().min().unwrap());
            }
        }
    });
    load.run_worker(0, SimIo::new(&client, settings)).unwrap();
    client.set_waiter(|_| ());
    let trace = world.trace_hash();
    let report = Rc::into_inner(load).unwrap().report();
    report.check_accounts().unwrap();
    let received = received.take();
    Outcome { report, requests: received.requests, received: received.bytes, trace }
}

/// Longer than all loads.
const NO_LIMIT: Duration = Duration::from_secs(100);

#[test]
fn an_open_loop_runs_in_virtual_time() {
    let Outcome { report, requests, .. } =
        simulate(&config(), NetworkSettings::default(), NO_LIMIT);
    assert!(report.complete && report.warnings.is_empty(), "{report}");
    assert!((900..1100).contains(&report.requests.replies), "{report}");
    assert_eq!(report.requests.replies, report.requests.scheduled, "{report}");
    assert_eq!(report.requests.replies, requests, "{report}");
    assert_eq!((report.duration_s, report.generator_cpu_utilisation), (2.0, 0.0));
}

#[test]
fn a_closed_loop_runs_in_virtual_time() {
    let duration = Some(Duration::from_millis(500));
    let config = Config { model: Some(Model::Closed), duration, ..config() };
    let Outcome { report, requests, .. } = simulate(&config, NetworkSettings::default(), NO_LIMIT);
    assert!(report.complete, "{report}");
    assert!(report.requests.replies > 1000, "{report}");
    assert_eq!(report.requests.replies, requests, "{report}");
}

#[test]
fn requests_over_http2_run_in_virtual_time() {
    for model in [Model::Requests, Model::Closed, Model::Connections] {
        let config = Config {
            model: Some(model),
            duration: Some(Duration::from_millis(500)),
            http2: NonZeroU32::new(8),
            ..config()
        };
        let Outcome { report, requests, .. } =
            simulate(&config, NetworkSettings::default(), NO_LIMIT);
        assert!(report.complete && report.requests.failed == 0, "{report}");
        assert!(report.requests.replies > 200, "{report}");
        assert_eq!(report.requests.replies, requests, "{report}");
    }
}

#[test]
fn broken_connections_are_accounted_for() {
    let network = |breaks| {
        let mut network = NetworkSettings::default();
        (network.breaks, network.short_sends, network.refusals) = (breaks, 100, 100);
        network
    };
    let Outcome { report, requests, .. } = simulate(&config(), network(20), NO_LIMIT);
    assert!(report.requests.failed > 0 && report.requests.replies > 0, "{report}");
    assert!(report.requests.replies <= requests && requests <= report.requests.sent, "{report}");
}

/// Returns settings that vary with `seed`, and the faults.
fn arbitrary(seed: u64) -> (Config, (NetworkSettings, SimIoSettings)) {
    let mut random = fastrand::Rng::with_seed(seed);
    let models = [Model::Requests, Model::Connections, Model::Sessions, Model::Closed];
    let model = random.choice(models).unwrap();
    let has_sessions = model != Model::Requests;
    let http2 = if random.bool() { NonZeroU32::new(random.u32(1..8)) } else { None };
    let has_bursts = has_sessions && http2.is_none();
    let config = Config {
        model: Some(model),
        http2,
        rate: Profile::constant(random.choice([10.0, 200.0, 2000.0]).unwrap()),
        duration: Some(Duration::from_millis(random.u64(1..300))),
        requests: random.bool().then(|| NonZeroU64::new(random.u64(1..100)).unwrap()),
        connections: NonZeroUsize::new(random.usize(1..10)),
        queue: random.choice([QueueOrder::Lifo, QueueOrder::Fifo]).unwrap(),
        requests_per_connection: random.bool().then(|| "1..5".parse().unwrap()),
        pipeline: NonZeroUsize::new(if has_bursts { random.usize(1..4) } else { 1 }).unwrap(),
        think_time: (has_sessions && random.bool()).then(|| "exp:5ms".parse().unwrap()),
        connection_lifetime: random.bool().then(|| "exp:30ms".parse().unwrap()),
        template: RequestTemplate { cookies: has_sessions, ..RequestTemplate::default() },
        timeout: Duration::from_millis(random.u64(1..50)),
        connect_timeout: random.bool().then(|| Duration::from_millis(random.u64(1..20))),
        first_byte_timeout: random.bool().then(|| Duration::from_millis(random.u64(1..20))),
        idle_connections: random.usize(0..4),
        idle_sends_request: random.bool(),
        idle_think_time: random.bool().then(|| "exp:20ms".parse().unwrap()),
        websockets: random.bool().then(|| WebSocketOptions::idle(2)),
        slow_readers: random.bool().then_some(SlowOptions { connections: 2, rate: 200.0 }),
        slow_senders: random.bool().then_some(SlowOptions { connections: 2, rate: 200.0 }),
        report_interval: Duration::from_millis(random.u64(10..100)),
        seed: Some(seed),
        ..config()
    };
    let mut chance = || if random.bool() { 0 } else { random.u32(0..100) };
    let (mut network, mut settings) = (NetworkSettings::default(), SimIoSettings::default());
    (network.breaks, network.lost_requests, network.refusals) = (chance(), chance(), chance());
    (network.short_sends, network.stalls) = (chance(), chance());
    network.overtaking_resets = chance();
    let faults = &mut settings.faults;
    (faults.short_receives, faults.deferred_sends, faults.reordering) =
        (chance(), chance(), chance());
    (faults.early_waits, faults.receives_after_stop) = (chance(), chance());
    (faults.open_failures, faults.transfer_failures) = (chance(), chance());
    (config, (network, settings))
}

proptest! {
    #![proptest_config(cases(16))]

    #[test]
    fn accounts_balance_under_arbitrary_faults(seed: u64) {
        let (config, faults) = arbitrary(seed);
        let limit = if seed.is_multiple_of(8) { Duration::from_millis(100) } else { NO_LIMIT };
        let Outcome { report, requests, .. } = simulate_with_faults(&config, faults, seed, limit);
        prop_assert!(report.requests.replies <= requests, "{report}");
        prop_assert!(report.complete || limit < NO_LIMIT, "{report}");
    }
}

#[test]
fn the_seed_determines_everything() {
    let mut websockets = WebSocketOptions::idle(2);
    websockets.every = Some(Duration::from_millis(100));
    let mut config = Config {
        model: Some(Model::Connections),
        requests_per_connection: Some("3".parse().unwrap()),
        think_time: Some("uniform:1ms..20ms".parse().unwrap()),
        template: RequestTemplate {
            cookies: true,
            expect: Some(Expect::default()),
            ..RequestTemplate::default()
        },
        idle_connections: 3,
        idle_think_time: Some("exp:50ms".parse().unwrap()),
        websockets: Some(websockets),
        slow_senders: Some(SlowOptions { connections: 2, rate: 100.0 }),
        rate: Profile::constant(100.0),
        connections: NonZeroUsize::new(50),
        timeout: Duration::from_millis(500),
        ..config()
    };
    let run = |config: &Config| {
        let outcome = simulate(config, NetworkSettings::default(), NO_LIMIT);
        (serde_json::to_string(&outcome.report).unwrap(), outcome.trace, outcome.received)
    };
    let first = run(&config);
    assert!(run(&config) == first);
    let sockets = simulate(&config, NetworkSettings::default(), NO_LIMIT).report.websocket.unwrap();
    assert!(sockets.pings_sent > 2 && sockets.handshake_failures.total() == 0, "{sockets:?}");
    config.seed = Some(2);
    assert!(run(&config) != first);
}

#[test]
fn a_stopped_load_reports_unfinished_requests() {
    let Outcome { report, .. } =
        simulate(&config(), NetworkSettings::default(), Duration::from_secs(1));
    assert!(!report.complete && report.duration_s < 1.1, "{report}");
}

#[test]
fn replies_after_the_end_do_not_count() {
    let config = Config {
        model: Some(Model::Closed),
        websockets: Some(WebSocketOptions::idle(2)),
        ..config()
    };
    // Checks that the intervals contain all replies.
    simulate(&config, NetworkSettings::default(), Duration::from_millis(100));
}

#[test]
fn a_worker_runs_once() {
    let load = SimulatedLoad::new(&config(), 1024).unwrap();
    assert_eq!(load.workers(), 1);
    let world = World::new(Decisions::from_seed(1), NetworkSettings::default());
    let io = SimIo::new(&world.host([10, 0, 0, 2].into()), SimIoSettings::default());
    assert!(load.run_worker(1, io).unwrap_err().to_string().contains("no such worker"));
    assert!(!load.report().complete);
}
