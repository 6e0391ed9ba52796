//! WebSocket connections, with a server that uses the same protocol library.
//!
//! The server sends a ping after each message. Its pong proves that the generator has handled the
//! message.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use hearken::io::{find, names};
use hearken_load::{Config, Profile, Rank, Report, StopSignal, WebSocketMode, WebSockets, run};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use tungstenite::{Bytes, Message, WebSocket};

use crate::server::tls::Authority;
use crate::server::{Behaviour, Server, refusing};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Echo,
    /// Sends each message to all other connections.
    Broadcast,
    /// Reads messages without a reply.
    Silent,
    /// Sends text that is not valid UTF-8.
    Invalid,
}

#[derive(Default)]
struct Counts {
    accepted: AtomicU64,
    /// Number of connections that have answered the first ping of the server.
    established: AtomicU64,
    /// Number of answers to later pings.
    confirmed: AtomicU64,
    /// Number of completed close handshakes.
    closed: AtomicU64,
    /// Sizes of the messages.
    sizes: Mutex<Vec<usize>>,
    peers: Mutex<Vec<TcpStream>>,
}

struct WebSocketServer {
    addr: SocketAddr,
    counts: Arc<Counts>,
}

impl WebSocketServer {
    fn start(mode: Mode, tls: Option<Arc<ServerConfig>>) -> WebSocketServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let counts = Arc::new(Counts::default());
        let shared = counts.clone();
        thread::spawn(move || {
            for peer in listener.incoming().flatten() {
                let (shared, tls) = (shared.clone(), tls.clone());
                shared.accepted.fetch_add(1, SeqCst);
                thread::spawn(move || match tls {
                    None => serve(peer.try_clone().unwrap(), &peer, mode, &shared),
                    Some(tls) => {
                        let session = ServerConnection::new(tls).unwrap();
                        let socket = peer.try_clone().unwrap();
                        serve(StreamOwned::new(session, socket), &peer, mode, &shared)
                    }
                });
            }
        });
        WebSocketServer { addr, counts }
    }

    /// Waits until `done` returns true. Panics after a minute.
    fn until(&self, done: impl Fn(&Counts) -> bool) {
        let start = Instant::now();
        while !done(&self.counts) {
            assert!(start.elapsed() < Duration::from_secs(60), "the server makes no progress");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until this number of connections is established, and the generator has handled this
    /// number of messages.
    fn until_confirmed(&self, connections: u64, messages: u64) {
        self.until(|counts| {
            counts.established.load(SeqCst) >= connections
                && counts.confirmed.load(SeqCst) >= messages
        });
    }
}

/// Serves a connection to its end.
fn serve(stream: impl Read + Write, socket: &TcpStream, mode: Mode, counts: &Counts) -> Option<()> {
    let mut peer: WebSocket<_> = tungstenite::accept(stream).ok()?;
    // A broadcast before the handshake would be an invalid response to it.
    counts.peers.lock().unwrap().push(socket.try_clone().unwrap());
    let ping = || Message::Ping(Bytes::new());
    peer.send(ping()).ok()?;
    let mut answered = &counts.established;
    loop {
        match peer.read() {
            Ok(Message::Pong(_)) => {
                answered.fetch_add(1, SeqCst);
                answered = &counts.confirmed;
            }
            Ok(Message::Close(_)) => {
                counts.closed.fetch_add(1, SeqCst);
            }
            Ok(Message::Ping(_)) => peer.send(ping()).ok()?,
            Ok(message) => {
                counts.sizes.lock().unwrap().push(message.len());
                match mode {
                    Mode::Echo => {
                        peer.send(message).ok()?;
                        peer.send(ping()).ok()?;
                    }
                    Mode::Broadcast => broadcast(&message.into_data(), socket, counts),
                    Mode::Silent => {}
                    Mode::Invalid => (&mut &*socket).write_all(&[0x81, 1, 0xff]).ok()?,
                }
            }
            Err(_) => {
                let _ = socket.shutdown(Shutdown::Both);
                return None;
            }
        }
    }
}

/// Sends a text message and a ping to all connections except one.
fn broadcast(message: &[u8], from: &TcpStream, counts: &Counts) {
    let mut bytes = vec![0x81, u8::try_from(message.len()).unwrap()];
    bytes.extend_from_slice(message);
    bytes.extend_from_slice(&[0x89, 0]);
    for mut peer in counts.peers.lock().unwrap().iter() {
        if peer.peer_addr().ok() != from.peer_addr().ok() {
            let _ = peer.write_all(&bytes);
        }
    }
}

fn config(server: SocketAddr, websocket: &str) -> Config {
    Config {
        url: format!("http://{server}/chat"),
        rate: Profile::constant(0.0),
        websockets: Some(websocket.parse().unwrap()),
        timeout: Duration::from_secs(20),
        ..Config::default()
    }
}

/// Runs `config` concurrently with `watch`, and stops it when `watch` returns.
fn while_running(config: &Config, watch: impl FnOnce()) -> (Report, WebSockets) {
    let report = crate::while_running(config, watch);
    let websocket = report.websocket.clone().unwrap();
    (report, websocket)
}

fn assert_undisturbed(report: &Report, websocket: &WebSockets, connections: u64) {
    assert_eq!((websocket.requested, websocket.open), (connections, connections), "{report}");
    assert_eq!((websocket.lost, websocket.handshake_failures.total()), (0, 0), "{report}");
    assert_eq!(websocket.latency.len(), websocket.latency_ns.count);
    assert_eq!(report.requests.scheduled, 0);
}

#[test]
fn measures_the_time_to_an_echo() {
    for mechanism in names().filter(|name| find(name).unwrap().probe().is_ok()) {
        let server = WebSocketServer::start(Mode::Echo, None);
        let config = Config {
            mechanism: mechanism.to_owned(),
            ..config(server.addr, "5,mode=echo,every=1ms,size=100")
        };
        let (report, websocket) = while_running(&config, || server.until_confirmed(5, 10));
        assert_undisturbed(&report, &websocket, 5);
        assert!(websocket.messages_received >= 10, "{report}");
        assert!(websocket.messages_sent >= websocket.messages_received, "{report}");
        assert_eq!(websocket.latency.len(), websocket.messages_received, "{report}");
        assert!(websocket.pings_received >= 15 && websocket.pings_sent == 0, "{report}");
        assert!(server.counts.sizes.lock().unwrap().iter().all(|&size| size == 100));
    }
}

#[test]
fn measures_large_binary_echoes_under_tls() {
    let authority = Authority::new();
    let server = WebSocketServer::start(Mode::Echo, Some(authority.server_config()));
    let config = Config {
        url: format!("https://{}/", server.addr),
        tls: authority.options(),
        ..config(server.addr, "3,mode=echo,every=5ms,size=100000,type=binary")
    };
    let (report, websocket) = while_running(&config, || server.until_confirmed(3, 10));
    assert_undisturbed(&report, &websocket, 3);
    assert!(websocket.latency.len() >= 10, "{report}");
    assert_eq!((report.tls.full + report.tls.resumed, report.tls.failed), (3, 0));
    assert!(server.counts.sizes.lock().unwrap().iter().all(|&size| size == 100_000));
}

#[test]
fn idle_connections_send_pings() {
    let server = WebSocketServer::start(Mode::Silent, None);
    let config = config(server.addr, "5,every=1ms");
    let (report, websocket) = while_running(&config, || server.until_confirmed(5, 10));
    assert_undisturbed(&report, &websocket, 5);
    assert!(websocket.pongs_received >= 10, "{report}");
    assert!(websocket.pings_sent >= websocket.pongs_received, "{report}");
    assert_eq!(websocket.latency.len(), websocket.pongs_received, "{report}");
    assert_eq!(websocket.messages_sent, 0);
}

#[test]
fn one_connection_sends_broadcasts_and_the_others_measure_them() {
    let server = WebSocketServer::start(Mode::Broadcast, None);
    let config = Config {
        threads: 2.try_into().unwrap(),
        ..config(server.addr, "6,mode=broadcast,every=10ms")
    };
    let (report, websocket) = while_running(&config, || server.until_confirmed(6, 15));
    assert_undisturbed(&report, &websocket, 6);
    assert!(websocket.messages_received >= 15, "{report}");
    assert!(websocket.messages_received <= 5 * websocket.messages_sent, "{report}");
    assert_eq!(websocket.latency.len(), websocket.messages_received, "{report}");
}

#[test]
fn closes_connections_with_a_handshake_at_the_end() {
    let server = WebSocketServer::start(Mode::Echo, None);
    let config =
        Config { duration: Some(Duration::from_millis(20)), ..config(server.addr, "5,every=1s") };
    let report = run(&config, &mut (), &StopSignal::new()).unwrap();
    assert!(report.complete, "{report}");
    assert_undisturbed(&report, report.websocket.as_ref().unwrap(), 5);
    server.until(|counts| counts.closed.load(SeqCst) == 5);
}

/// Checks that the results of all processes of a load can be merged.
#[test]
fn a_process_without_a_share_reports_the_mode() {
    let server = WebSocketServer::start(Mode::Echo, None);
    let config = Config {
        rank: Rank::new(1, 2).unwrap(),
        seed: Some(1),
        slow_senders: Some("1,rate=5".parse().unwrap()),
        duration: Some(Duration::from_millis(1)),
        ..config(server.addr, "1,mode=echo")
    };
    let report = run(&config, &mut (), &StopSignal::new()).unwrap();
    let websocket = report.websocket.as_ref().unwrap();
    assert_eq!((websocket.requested, websocket.mode), (0, WebSocketMode::Echo), "{report}");
    let senders = report.slow_clients.unwrap().senders.unwrap();
    assert_eq!((senders.requested, senders.rate), (0, 5.0));
}

#[test]
fn replaces_lost_connections() {
    let server = WebSocketServer::start(Mode::Silent, None);
    let (report, websocket) = while_running(&config(server.addr, "10"), || {
        server.until_confirmed(10, 0);
        for peer in server.counts.peers.lock().unwrap().iter() {
            let _ = peer.shutdown(Shutdown::Both);
        }
        server.until_confirmed(20, 0);
    });
    assert_eq!((websocket.open, websocket.lost, websocket.reestablished), (10, 10, 10), "{report}");
    assert_eq!(websocket.loss_reasons.total(), 10, "{report}");
}

#[test]
fn closes_connections_without_an_answer() {
    let server = WebSocketServer::start(Mode::Silent, None);
    let config =
        Config { timeout: Duration::from_secs(1), ..config(server.addr, "1,mode=echo,every=10ms") };
    let (report, websocket) = while_running(&config, || {
        server.until(|counts| counts.accepted.load(SeqCst) > 1);
    });
    assert!(websocket.loss_reasons.iter().any(|(reason, _)| reason == "timed out"), "{report}");
    assert_eq!(websocket.latency.len(), 0, "{report}");
}

#[test]
fn reports_protocol_errors() {
    let server = WebSocketServer::start(Mode::Invalid, None);
    let (report, websocket) = while_running(&config(server.addr, "1,mode=echo,every=1ms"), || {
        server.until(|counts| counts.accepted.load(SeqCst) > 1);
    });
    let reasons: Vec<_> = websocket.loss_reasons.iter().collect();
    assert!(reasons.iter().any(|(reason, _)| reason.contains("UTF-8")), "{reasons:?} {report}");
}

#[test]
fn reports_failed_handshakes_by_reason() {
    let server = Server::start(|_| Behaviour::Missing);
    let (report, websocket) =
        while_running(&config(server.addr, "3"), || server.until(|server| server.requests() >= 6));
    assert_eq!((websocket.open, websocket.lost), (0, 0), "{report}");
    let reasons: Vec<_> = websocket.handshake_failures.iter().collect();
    assert!(matches!(reasons[..], [("status 404", 3..)]), "{reasons:?}");
    let (url, _port) = refusing();
    let config = Config {
        url,
        duration: Some(Duration::from_millis(1)),
        timeout: Duration::from_millis(200),
        ..config(server.addr, "1")
    };
    let report = run(&config, &mut (), &StopSignal::new()).unwrap();
    let websocket = report.websocket.as_ref().unwrap();
    let reasons: Vec<_> = websocket.handshake_failures.iter().collect();
    assert!(reasons[0].0.contains("refused"), "{reasons:?}");
    assert!(report.to_string().contains("refused"), "{report}");
}
