//! Servers are asked whether they are well, and what they do is told of.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroU32;
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use hearken_server::proxy::config::{Active, Address, ProxyProtocol, Server, Upstreams};
use hearken_server::proxy::health::Checker;
use hearken_server::proxy::servers::{Servers, State};
use rustix::net::{AddressFamily, SocketType};

use crate::support::until;

const LONG: Duration = Duration::from_secs(60);

/// What an origin does with a request.
#[derive(Clone)]
enum Does {
    Says(&'static str),
    /// The same, byte by byte.
    Trickles(&'static str),
    /// And goes on with this for ever.
    Repeats(&'static str),
    /// Is well, and the next time is not.
    Alternates,
    Holds,
}

const WELL: Does = Does::Says("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");

/// An origin on loopback, in threads of its own.
struct Origin {
    address: Address,
    does: Arc<Mutex<Does>>,
    heard: mpsc::Receiver<String>,
    _hold: Arc<()>,
}

trait Listens<S>: Send + 'static {
    fn accepts(&self) -> std::io::Result<S>;
}

impl Listens<std::net::TcpStream> for TcpListener {
    fn accepts(&self) -> std::io::Result<std::net::TcpStream> {
        self.accept().map(|accepted| accepted.0)
    }
}

impl Listens<std::os::unix::net::UnixStream> for UnixListener {
    fn accepts(&self) -> std::io::Result<std::os::unix::net::UnixStream> {
        self.accept().map(|accepted| accepted.0)
    }
}

impl Origin {
    fn start(does: Does) -> Origin {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::Inet(listener.local_addr().unwrap());
        Origin::over(listener, address, does)
    }

    fn over<S>(listener: impl Listens<S>, address: Address, does: Does) -> Origin
    where
        S: Read + Write + Send + 'static,
    {
        let does = Arc::new(Mutex::new(does));
        let (tell, heard) = mpsc::channel();
        let hold = Arc::new(());
        let (todo, alive) = (Arc::clone(&does), Arc::downgrade(&hold));
        thread::spawn(move || {
            let mut count = 0;
            while let Ok(mut stream) = listener.accepts() {
                count += 1;
                let (tell, alive) = (tell.clone(), alive.clone());
                let does = match todo.lock().unwrap().clone() {
                    Does::Alternates if count % 2 == 0 => WELL,
                    Does::Alternates => Does::Says(""),
                    does => does,
                };
                thread::spawn(move || {
                    let mut request = Vec::new();
                    let mut byte = [0];
                    while !request.ends_with(b"\r\nConnection: close\r\n\r\n") {
                        match stream.read(&mut byte) {
                            Ok(1) => request.push(byte[0]),
                            _ => return,
                        }
                    }
                    let _ = tell.send(String::from_utf8_lossy(&request).into_owned());
                    match does {
                        Does::Says(text) => drop(stream.write_all(text.as_bytes())),
                        Does::Trickles(text) => {
                            for byte in text.bytes() {
                                let _ = stream.write_all(&[byte]);
                                let _ = stream.flush();
                                thread::yield_now();
                            }
                        }
                        Does::Repeats(text) => while stream.write_all(text.as_bytes()).is_ok() {},
                        Does::Holds | Does::Alternates => {
                            while alive.strong_count() > 0 {
                                thread::sleep(Duration::from_millis(10));
                            }
                        }
                    }
                });
            }
        });
        Origin { address, does, heard, _hold: hold }
    }

    fn now(&self, does: Does) {
        *self.does.lock().unwrap() = does;
    }
}

fn quickly() -> Active {
    Active {
        path: "/health?deep=1".to_owned(),
        every: Duration::from_millis(5),
        timeout: LONG,
        ..Active::default()
    }
}

fn check(
    addresses: impl IntoIterator<Item = Address>,
    active: Active,
) -> (Upstreams, Arc<Servers>, Checker) {
    let servers = addresses.into_iter().map(Server::new).collect();
    let config = Upstreams { active: Some(active), ..Upstreams::new(servers) };
    let servers = Arc::new(Servers::new(&config));
    let checker = Checker::start(&config, Arc::clone(&servers)).unwrap();
    (config, servers, checker)
}

/// Whether this server is found down, for this reason.
fn found_down(servers: &Servers, reason: &str) -> bool {
    servers.state(0) == State::Down
        && servers.last_failure(0).is_some_and(|last| last.contains(reason))
}

#[test]
fn it_asks_politely() {
    let origin = Origin::start(WELL);
    let (config, servers, checker) = check([origin.address.clone()], quickly());
    let authority = servers.authority(0).to_owned();
    let asked = origin.heard.recv_timeout(LONG).unwrap();
    assert_eq!(
        asked,
        format!(
            "GET /health?deep=1 HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: hearken-check\r\n\
             Connection: close\r\n\r\n"
        )
    );
    until("it is asked once only", || servers.figures(0).checks_ok > 5);
    assert_eq!((servers.state(0), servers.last_failure(0)), (State::Up, None));
    drop(checker);
    // What was asked last may still be heard.
    let all = servers.figures(0).checks_ok;
    while origin.heard.recv_timeout(Duration::from_millis(50)).is_ok() {}
    assert_eq!(servers.figures(0).checks_ok, all);

    for (protocol, preface) in [
        (ProxyProtocol::V1, "PROXY UNKNOWN\r\n"),
        (ProxyProtocol::V2, "\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"),
    ] {
        let active = Active { host: Some("site.example".to_owned()), ..quickly() };
        let config = Upstreams {
            active: Some(active),
            send_proxy_protocol: Some(protocol),
            ..config.clone()
        };
        let _checker = Checker::start(&config, Arc::clone(&servers)).unwrap();
        let asked = origin.heard.recv_timeout(LONG).unwrap();
        let rest = asked.strip_prefix(preface).unwrap();
        assert!(rest.starts_with("GET /health?deep=1 HTTP/1.1\r\nHost: site.example\r\n"));
    }
}

#[test]
fn what_a_server_does_is_told_and_it_comes_back() {
    let head = "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n";
    for (does, reason) in [
        (Does::Says(head), "answered 500 Internal Server Error"),
        (Does::Trickles(head), "answered 500 Internal Server Error"),
        (Does::Says("HTTP/1.1 799 \r\n\r\n"), "answered 799"),
        (Does::Says("HTTP/1.1 101 Switching Protocols\r\n\r\n"), "answered 101"),
        (Does::Says(""), "closed the connection before its answer"),
        (Does::Says("HTTP/1.1 200 OK\r\nServ"), "closed the connection within its answer"),
        (Does::Says("220 mail.example ESMTP\r\n"), "answered what is no HTTP response"),
        (Does::Repeats("HTTP/1.1 103 Early Hints\r\n\r\n"), "answered without end"),
        (Does::Repeats("x"), "answered what is no HTTP response"),
    ] {
        let origin = Origin::start(does);
        let (_, servers, _checker) = check([origin.address.clone()], quickly());
        until(reason, || {
            let down = servers.state(0) == State::Down;
            assert!(!down || servers.figures(0).checks_failed >= 3);
            down
        });
        assert!(found_down(&servers, reason), "{:?} and not {reason}", servers.last_failure(0));
        let ok = servers.figures(0).checks_ok;
        origin.now(Does::Trickles(
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n\
             HTTP/1.0 302 Found\r\n\r\n",
        ));
        until("it does not come back", || {
            let up = servers.state(0) == State::Up;
            assert!(!up || servers.figures(0).checks_ok >= ok + 2);
            up
        });
    }
}

#[test]
fn a_server_that_does_not_answer_is_down() {
    let origin = Origin::start(Does::Holds);
    let active = Active { timeout: Duration::from_millis(20), ..quickly() };
    let (_, servers, _checker) = check([origin.address.clone()], active);
    until("it is not down", || found_down(&servers, "no answer within 20ms"));
}

#[test]
fn a_server_that_is_not_there_is_down() {
    // Bound, so that nobody else gets the port, and not listening.
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let addr = SocketAddr::try_from(rustix::net::getsockname(&socket).unwrap()).unwrap();
    let place = tempfile::tempdir().unwrap();
    for (address, reason) in [
        (Address::Inet(addr), "connect: Connection refused"),
        (Address::Unix(place.path().join("none")), "connect: No such file"),
        (Address::Unix("x".repeat(300).into()), "connect: "),
    ] {
        let (_, servers, _checker) = check([address], quickly());
        until(reason, || found_down(&servers, reason));
    }
}

#[test]
fn only_the_status_that_is_asked_for_is_well() {
    let origin = Origin::start(WELL);
    let active = Active { status: Some(204), ..quickly() };
    let (_, servers, _checker) = check([origin.address.clone()], active);
    until("it is not down", || found_down(&servers, "answered 200 OK"));
    origin.now(Does::Says("HTTP/1.1 204 No Content\r\n\r\n"));
    until("it is not up", || servers.state(0) == State::Up);
}

#[test]
fn outcomes_in_between_begin_the_count_anew() {
    let origin = Origin::start(Does::Alternates);
    let two = NonZeroU32::new(2).unwrap();
    let (_, servers, _checker) =
        check([origin.address.clone()], Active { fall: two, rise: two, ..quickly() });
    let go_on = |state| {
        let before = servers.figures(0);
        until("it is not asked", || {
            assert_eq!(servers.state(0), state);
            let now = servers.figures(0);
            now.checks_failed > before.checks_failed + 5 && now.checks_ok > before.checks_ok + 5
        });
    };
    go_on(State::Up);
    origin.now(Does::Says(""));
    until("it is not down", || servers.state(0) == State::Down);
    origin.now(Does::Alternates);
    go_on(State::Down);
}

#[test]
fn a_unix_socket_is_asked() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("socket");
    let address = Address::Unix(path.clone());
    let origin = Origin::over(UnixListener::bind(&path).unwrap(), address, WELL);
    let (_, servers, _checker) = check([origin.address.clone()], quickly());
    assert!(origin.heard.recv_timeout(LONG).unwrap().contains("\r\nHost: localhost\r\n"));
    until("no check is well", || servers.figures(0).checks_ok > 0);
    origin.now(Does::Says(""));
    until("it is not down", || found_down(&servers, "before its answer"));
}

#[test]
fn slow_servers_hold_up_no_other_and_not_the_end() {
    let slow: Vec<Origin> = (0..100).map(|_| Origin::start(Does::Holds)).collect();
    let quick = Origin::start(WELL);
    let addresses = slow.iter().map(|origin| origin.address.clone()).chain([quick.address.clone()]);
    let (_, servers, checker) = check(addresses, quickly());
    for origin in &slow {
        origin.heard.recv_timeout(LONG).unwrap();
    }
    let before = servers.figures(100).checks_ok;
    until("the quick one has to wait", || servers.figures(100).checks_ok > before + 5);
    let start = Instant::now();
    drop(checker);
    assert!(start.elapsed() < LONG / 2);
    assert!((0..100).all(|server| servers.figures(server).checks_failed == 0));
}

#[test]
fn every_address_of_a_name_is_asked_and_none_without() {
    let [one, other] = [Origin::start(WELL), Origin::start(WELL)];
    let [Address::Inet(first), Address::Inet(second)] = [&one.address, &other.address] else {
        panic!("no addresses")
    };
    let named = [Address::Name("origin.example".to_owned(), 80), one.address.clone()];
    let (_, servers, _checker) = check(named, quickly());
    until("no check is made", || servers.figures(1).checks_ok > 5);
    assert_eq!((servers.figures(0).checks_ok, servers.figures(0).checks_failed), (0, 0));
    servers.resolved(0, Ok(&[*first, *second]));
    assert!(other.heard.recv_timeout(LONG).unwrap().contains("\r\nHost: origin.example\r\n"));
    other.now(Does::Says(""));
    until("the other is not asked", || servers.figures(0).checks_failed > 2);
    assert_eq!(servers.state(0), State::Up);
}

#[test]
fn without_a_configuration_nothing_is_asked() {
    let origin = Origin::start(WELL);
    let config = Upstreams::new(vec![Server::new(origin.address.clone())]);
    let servers = Arc::new(Servers::new(&config));
    drop(Checker::start(&config, servers).unwrap());
    assert!(origin.heard.try_recv().is_err());
}
