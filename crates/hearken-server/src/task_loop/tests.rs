use std::cell::RefCell;
use std::fmt::Write;
use std::net::SocketAddr;
use std::time::Duration;

use hearken::io::Body;
use hearken::io::sim::{Decisions, NetworkSettings, SimIo, SimIoSettings, World};
use hearken::io::{Address, Io};
use hearken_http::{Limits, Request, h2};

use super::*;
use crate::front::{Answer, Context, Deferred, HalfClose, Handled, Incoming, RequestId};
use crate::front::{Settings, Timeouts};
use crate::runtime::access_log::Outcome;
use crate::runtime::metrics::Metrics;
use crate::runtime::server::{StopFlag, Worker};
use crate::side_server;

const SERVER: [u8; 4] = [10, 0, 0, 1];
const CLIENTS: [u8; 4] = [10, 0, 0, 2];
/// Nothing listens at this address.
const UPSTREAM: [u8; 4] = [10, 0, 0, 3];
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// A handler that panics as the target of a request says.
#[derive(Default)]
struct Panics {
    panics_when_cancelled: bool,
    cancelled: Rc<RefCell<usize>>,
    waiting: Option<RequestId>,
}

impl<I: Relay> Handler<I> for Panics {
    const CONNECTS: bool = true;

    fn on_request(&mut self, incoming: Incoming<'_, I>, request: &Request<'_>) -> Handled {
        match request.raw_target {
            b"/panic" => panic!("planned"),
            b"/defer" | b"/defer-twice" => {
                let Ok(_) = incoming.defer(request, 1, 0) else { return Handled::Stop };
                self.panics_when_cancelled = request.raw_target == b"/defer-twice";
                panic!("planned after the request was deferred");
            }
            b"/upstream" => {
                let Ok((cx, id)) = incoming.defer(request, 1, 0) else { return Handled::Stop };
                let token = cx.io.connect(&Address::Inet((UPSTREAM, 80).into()), None).unwrap();
                cx.front.insert_handler(token, 7, 0);
                self.waiting = Some(id);
                Handled::Deferred
            }
            _ => {
                let (body, length) = (Body::None, 0);
                incoming.respond(request, Answer { ready: OK, body, status: 200, length })
            }
        }
    }

    fn on_cancelled(&mut self, _: &mut Context<'_, I>, _: Deferred) {
        *self.cancelled.borrow_mut() += 1;
        assert!(!self.panics_when_cancelled, "planned");
    }

    fn on_own_completion(
        &mut self,
        cx: &mut Context<'_, I>,
        owner: (u32, u32),
        completion: Completion,
    ) {
        assert_eq!(owner, (7, 0));
        match completion.kind {
            CompletionKind::ReceiveFailed(_) => {
                cx.front.close_handler(cx.io, completion.token);
                let id = self.waiting.take().unwrap();
                cx.front.respond_error(cx.io, id, 502, "failed", Outcome::Rejected);
            }
            _ => panic!("planned"),
        }
    }
}

/// A worker with clients, each of which has sent text and collects the response.
struct Server {
    world: World,
    worker: TaskLoop<SimIo, Panics>,
    clients: SimIo,
    received: Vec<(Token, Vec<u8>, bool)>,
    metrics: std::sync::Arc<Metrics>,
    cancelled: Rc<RefCell<usize>>,
}

impl Server {
    fn new() -> Server {
        let world = World::new(Decisions::from_bytes(&[]), NetworkSettings::default());
        let io = |host: [u8; 4]| SimIo::new(&world.host(host.into()), SimIoSettings::default());
        let settings = Settings {
            timeouts: Timeouts::default(),
            min_rate: 0,
            limits: Limits::default(),
            half_close: HalfClose::Respond,
            proxy_protocol: Vec::new(),
            needs_peers: false,
            hsts: None,
            http2: Some(h2::Config::default()),
        };
        let address: SocketAddr = (SERVER, 80).into();
        let mut context = side_server::context(address, StopFlag::default(), 64);
        context.metrics = std::sync::Arc::new(Metrics::new(1));
        let front = Front::new(settings, 8, None, context.worker_metrics());
        let handler = Panics::default();
        let cancelled = handler.cancelled.clone();
        let loops = EventLoopConfig::default();
        let worker = TaskLoop::new(io(SERVER), front, handler, &context, &loops, false).unwrap();
        let (clients, received) = (io(CLIENTS), Vec::new());
        Server { world, worker, clients, received, metrics: context.metrics, cancelled }
    }

    /// Connects a client. Returns its index.
    fn connect(&mut self) -> usize {
        let token = self.clients.connect(&Address::Inet((SERVER, 80).into()), None).unwrap();
        self.received.push((token, Vec::new(), false));
        self.run();
        self.received.len() - 1
    }

    /// Sends requests for these targets, and runs until nothing happens. Returns what the client has
    /// received, and whether its connection is closed.
    fn request(&mut self, client: usize, targets: &[&str]) -> (String, bool) {
        let mut text = String::new();
        for target in targets {
            write!(text, "GET {target} HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        }
        self.exchange(client, text.as_bytes());
        let (_, bytes, closed) = &self.received[client];
        (String::from_utf8(bytes.clone()).unwrap(), *closed)
    }

    /// Sends bytes and runs until nothing happens.
    fn exchange(&mut self, client: usize, bytes: &[u8]) {
        self.received[client].1.clear();
        self.clients.send_now(self.received[client].0, bytes);
        self.run();
    }

    /// Runs the worker and the clients for a second.
    fn run(&mut self) {
        let end = self.world.now() + Duration::from_secs(1);
        while self.world.now() < end {
            let now = self.world.now();
            self.worker.turn(Some(now)).unwrap();
            self.clients.wait(Some(now)).unwrap();
            while let Some(completion) = self.clients.next() {
                let token = completion.token;
                let client = self.received.iter_mut().find(|(of, ..)| *of == token).unwrap();
                match completion.kind {
                    CompletionKind::Connected(connected) => connected.unwrap(),
                    CompletionKind::Received(bytes) => client.1.extend_from_slice(&bytes),
                    CompletionKind::End | CompletionKind::ReceiveFailed(_) => client.2 = true,
                    _ => {}
                }
                self.clients.start(token);
            }
            let next = self.world.next_event().unwrap_or(end).max(now + Duration::from_millis(1));
            self.world.advance(next.min(end));
        }
    }

    /// Asserts that after one panic only the connection of the client `other` is left, and works.
    fn assert_released(&mut self, other: usize) {
        let ok = String::from_utf8(OK.to_vec()).unwrap();
        assert_eq!(self.request(other, &["/", "/"]), (ok.repeat(2), false));
        let engine = self.worker.shared.engine.borrow();
        assert_eq!((engine.front.open(), engine.front.in_progress()), (1, 0));
        drop(engine);
        assert_eq!(self.worker.executor.task_count(), 1);
        assert_eq!(self.worker.shared.io.with(|io| io.open_count()), 2);
        let mut page = String::new();
        self.metrics.render_without_process(&[], &mut page);
        assert!(page.contains("hearken_errors_total{kind=\"panic\"} 1\n"), "{page}");
        let client = self.connect();
        assert_eq!(self.request(client, &["/"]), (ok, false));
    }
}

#[test]
fn a_panic_closes_only_its_own_connection() {
    let mut server = Server::new();
    let (other, client) = (server.connect(), server.connect());
    // The response that was gathered before the panic is not sent to another client.
    assert_eq!(server.request(client, &["/", "/panic"]), (String::new(), true));
    server.assert_released(other);
}

#[test]
fn a_panic_cancels_its_request() {
    for target in ["/defer", "/defer-twice"] {
        let mut server = Server::new();
        let (other, client) = (server.connect(), server.connect());
        assert_eq!(server.request(client, &[target]), (String::new(), true));
        assert_eq!(*server.cancelled.borrow(), 1);
        server.assert_released(other);
    }
}

#[test]
fn a_panic_on_an_upstream_connection_fails_that_connection() {
    let mut server = Server::new();
    let client = server.connect();
    let (response, is_closed) = server.request(client, &["/upstream"]);
    assert!(response.starts_with("HTTP/1.1 502 "), "{response}");
    assert!(!is_closed);
    server.assert_released(client);
}

#[test]
fn a_panic_at_the_end_of_a_turn_closes_only_its_own_connection() {
    let mut server = Server::new();
    let (other, client) = (server.connect(), server.connect());
    // The first bytes of a connection with HTTP/2 are processed at the end of the turn: SETTINGS, and
    // HEADERS of a request for `/panic`.
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    let head = b"\0\0\x0d\x01\x05\0\0\0\x01\x82\x86\x01\x01a\x04\x06/panic";
    server.exchange(client, &[&h2::PREFACE[..], &settings, head].concat());
    assert!(server.received[client].2, "the connection is open");
    server.assert_released(other);
}
