//! A reverse proxy over a simulated network: its worker, its client and its origin, in one thread.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::time::Duration;

use hearken::Token;
use hearken::io::sim::{Decisions, Host, NetworkSettings, SimIo, SimIoSettings, World};
use hearken::io::{CompletionKind, Io, ListenOptions};
use hearken_server::proxy::config::{Address, Config as ProxyConfig, ProxyMode, Server, Upstreams};
use hearken_server::simulation::{Environment, Memory, ProxyUsage, SimulatedServer};

const PROXY: ([u8; 4], u16) = ([10, 0, 0, 1], 80);
const ORIGIN: ([u8; 4], u16) = ([10, 0, 0, 2], 80);
const RESPONSE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// A program that runs in turns and collects the bytes of each connection.
struct Peer {
    io: SimIo,
    received: HashMap<Token, Vec<u8>>,
    /// Whether a connection has ended.
    has_ended: bool,
}

impl Peer {
    fn new(host: &Host) -> Peer {
        let io = SimIo::new(host, SimIoSettings::default());
        Peer { io, received: HashMap::new(), has_ended: false }
    }

    /// Runs a turn. A client sends `request`; an origin, which has none, answers requests.
    fn turn(&mut self, request: Option<&str>) {
        let now = self.io.now();
        self.io.wait(Some(now)).unwrap();
        while let Some(completion) = self.io.next() {
            let token = completion.token;
            match completion.kind {
                CompletionKind::Accepted { token, .. } => self.io.start(token),
                CompletionKind::Connected(Ok(())) => {
                    self.io.send_now(token, request.unwrap_or_default().as_bytes());
                    self.io.start(token);
                }
                CompletionKind::Received(bytes) => {
                    let received = self.received.entry(token).or_default();
                    received.extend_from_slice(&bytes);
                    if request.is_none() && received.ends_with(b"\r\n\r\n") {
                        self.io.send_now(token, RESPONSE.as_bytes());
                    }
                }
                CompletionKind::End | CompletionKind::ReceiveFailed(_) => {
                    self.has_ended = true;
                    self.io.close(token);
                }
                _ => {}
            }
        }
    }
}

/// The result of a request through a proxy.
#[derive(PartialEq, Debug)]
struct Outcome {
    response: String,
    /// Requests, failures and retries of each upstream server.
    upstreams: Vec<(u64, u64, u64)>,
    /// The usage during the request.
    peak: ProxyUsage,
    trace: u64,
}

/// Sends a request through a proxy for `servers`. Names are resolved to the origin.
fn forward(seed: u64, servers: Vec<Server>) -> Outcome {
    let mut settings = NetworkSettings::default();
    (settings.min_window, settings.short_sends) = (1, 300);
    let world = World::new(Decisions::from_seed(seed), settings);
    let [host, origin, client] =
        [PROXY.0, ORIGIN.0, [10, 0, 0, 3]].map(|address| world.host(address.into()));

    let mut proxy = ProxyConfig::new(ProxyMode::Reverse(Upstreams::new(servers)));
    proxy.fields.via = "proxy".to_owned();
    let mut config = hearken_server::Config::proxy(proxy);
    config.event_loops.listen = PROXY.into();
    config.event_loops.workers = NonZeroUsize::new(1);
    let files = Memory::new(Duration::default, |_, _| None);
    let environment = Environment { seed, descriptors: 1024, files };
    let server = Rc::new(SimulatedServer::new(&config, environment).unwrap());

    // Names are resolved before the worker runs, because the waiter below runs no resolver.
    let shared = &server.proxies()[0];
    let mut lookups = 0;
    let mut io = SimIo::new(&origin, SimIoSettings::default());
    let resolved = shared.run_resolver(&mut io, |name, port| {
        lookups += 1;
        assert_eq!(name, "origin.example");
        shared.stop();
        (Duration::from_millis(7), Ok(vec![(ORIGIN.0, port).into()]))
    });
    resolved.unwrap();
    assert_eq!(lookups, 1);

    let mut origin = Peer::new(&origin);
    let listener = origin.io.listen(&SocketAddr::from(ORIGIN).into(), &ListenOptions::default());
    origin.io.start(listener.unwrap());
    let client = Peer::new(&client);
    let peers = Rc::new(RefCell::new((origin, client, None, ProxyUsage::default())));
    let (shared, running, network, worker) =
        (Rc::clone(&peers), Rc::clone(&server), world.clone(), host.clone());
    host.set_waiter(move |until| {
        while !worker.is_ready() && until.is_none_or(|until| network.now() < until) {
            let (origin, client, connection, peak) = &mut *shared.borrow_mut();
            let usage = running.proxies()[0].usage(0);
            if usage.exchanges > peak.exchanges {
                *peak = usage;
            }
            let address = SocketAddr::from(PROXY).into();
            connection.get_or_insert_with(|| client.io.connect(&address, None).unwrap());
            client.turn(Some("GET /a HTTP/1.1\r\nHost: site\r\nConnection: close\r\n\r\n"));
            origin.turn(None);
            if client.has_ended {
                return running.handle().stop();
            }
            let next = [network.next_event(), until].into_iter().flatten().min();
            network.advance(next.unwrap().max(network.now()));
        }
    });
    server.run_worker(0, SimIo::new(&host, SimIoSettings::default())).unwrap();
    let now = world.now();
    let stats = server.proxies()[0].upstreams(now);
    assert!(stats.iter().all(|stats| stats.in_flight == 0), "{stats:?}");
    assert_eq!(server.proxies()[0].usage(0).exchanges, 0);
    assert_eq!(host.open_sockets(), 0);
    let peers = peers.borrow();
    Outcome {
        response: String::from_utf8(peers.1.received.values().flatten().copied().collect())
            .unwrap(),
        upstreams: stats.iter().map(|it| (it.requests, it.failures, it.retries)).collect(),
        peak: peers.3,
        trace: world.trace_hash(),
    }
}

fn named() -> Server {
    Server::new(Address::Name("origin.example".to_owned(), ORIGIN.1))
}

#[test]
fn a_request_is_forwarded_and_leaves_nothing_in_flight() {
    for seed in 0..10 {
        let outcome = forward(seed, vec![named()]);
        assert!(outcome.response.starts_with("HTTP/1.1 200 OK\r\n"), "{}", outcome.response);
        assert!(outcome.response.ends_with("\r\n\r\nhello"), "{}", outcome.response);
        assert_eq!(outcome.upstreams, [(1, 0, 0)]);
        assert_eq!((outcome.peak.connections, outcome.peak.exchanges), (1, 1));
        assert_eq!(outcome, forward(seed, vec![named()]));
    }
}

#[test]
fn a_refused_connection_is_retried_on_another_server() {
    let refusing = Server::new(Address::Inet((ORIGIN.0, 81).into()));
    let outcome = forward(1, vec![refusing, named()]);
    assert!(outcome.response.ends_with("\r\n\r\nhello"), "{}", outcome.response);
    assert_eq!(outcome.upstreams, [(1, 1, 0), (1, 0, 1)]);
}
