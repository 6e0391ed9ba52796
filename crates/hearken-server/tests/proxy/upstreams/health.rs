//! Active health checks.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroU32;
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use hearken::timer::Time;
use hearken_server::proxy::config::{Address, HealthCheck, ProxyProtocol, Server, Upstreams};
use hearken_server::proxy::health::HealthChecker;
use hearken_server::proxy::servers::{Servers, State};
use rustix::net::{AddressFamily, SocketType};

use crate::common::{TEST_TIMEOUT, wait_until};

crate::test_list! {
    checks_are_well_formed_requests
    failed_checks_take_a_server_down_with_the_reason
    checks_without_a_response_time_out
    servers_that_refuse_connections_are_down
    only_the_expected_status_is_healthy
    a_different_outcome_resets_the_count
    checks_unix_sockets
    slow_servers_delay_neither_others_nor_the_stop
    checks_every_address_of_a_name
    sends_no_checks_by_default
}

/// The behaviour of an origin.
#[derive(Clone)]
enum Behaviour {
    Responds(&'static str),
    /// Responds byte by byte.
    RespondsSlowly(&'static str),
    /// Repeats these bytes indefinitely.
    RespondsEndlessly(&'static str),
    /// Alternately healthy and unhealthy.
    Alternates,
    Stalls,
}

const HEALTHY: Behaviour = Behaviour::Responds("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");

/// An origin whose connections have threads of their own.
struct Origin {
    address: Address,
    behaviour: Arc<Mutex<Behaviour>>,
    requests: mpsc::Receiver<String>,
}

trait Accept<S>: Send + 'static {
    fn accept_stream(&self) -> std::io::Result<S>;
}

impl Accept<std::net::TcpStream> for TcpListener {
    fn accept_stream(&self) -> std::io::Result<std::net::TcpStream> {
        self.accept().map(|accepted| accepted.0)
    }
}

impl Accept<std::os::unix::net::UnixStream> for UnixListener {
    fn accept_stream(&self) -> std::io::Result<std::os::unix::net::UnixStream> {
        self.accept().map(|accepted| accepted.0)
    }
}

impl Origin {
    fn start(behaviour: Behaviour) -> Origin {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::Inet(listener.local_addr().unwrap());
        Origin::over(listener, address, behaviour)
    }

    fn over<S>(listener: impl Accept<S>, address: Address, behaviour: Behaviour) -> Origin
    where
        S: Read + Write + Send + 'static,
    {
        let behaviour = Arc::new(Mutex::new(behaviour));
        let (sender, requests) = mpsc::channel();
        let shared = Arc::clone(&behaviour);
        thread::spawn(move || {
            let mut count = 0;
            while let Ok(mut stream) = listener.accept_stream() {
                count += 1;
                let sender = sender.clone();
                let behaviour = match shared.lock().unwrap().clone() {
                    Behaviour::Alternates if count % 2 == 0 => HEALTHY,
                    Behaviour::Alternates => Behaviour::Responds(""),
                    behaviour => behaviour,
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
                    let _ = sender.send(String::from_utf8_lossy(&request).into_owned());
                    match behaviour {
                        Behaviour::Responds(text) => drop(stream.write_all(text.as_bytes())),
                        Behaviour::RespondsSlowly(text) => {
                            for byte in text.bytes() {
                                let _ = stream.write_all(&[byte]);
                                let _ = stream.flush();
                                thread::yield_now();
                            }
                        }
                        Behaviour::RespondsEndlessly(text) => {
                            while stream.write_all(text.as_bytes()).is_ok() {}
                        }
                        Behaviour::Stalls | Behaviour::Alternates => {
                            // Returns when the checker closes the connection.
                            let _ = stream.read(&mut byte);
                        }
                    }
                });
            }
        });
        Origin { address, behaviour, requests }
    }

    fn set_behaviour(&self, behaviour: Behaviour) {
        *self.behaviour.lock().unwrap() = behaviour;
    }
}

fn frequent_checks() -> HealthCheck {
    HealthCheck {
        path: "/health?deep=1".to_owned(),
        interval: Duration::from_millis(5),
        timeout: TEST_TIMEOUT,
        ..HealthCheck::default()
    }
}

fn check(
    addresses: impl IntoIterator<Item = Address>,
    active: HealthCheck,
) -> (Upstreams, Arc<Servers>, HealthChecker) {
    let servers = addresses.into_iter().map(Server::new).collect();
    let config = Upstreams { health: Some(active), ..Upstreams::new(servers) };
    let servers = Arc::new(Servers::new(&config));
    let checker = HealthChecker::start(&config, Arc::clone(&servers), Arc::default(), 1).unwrap();
    (config, servers, checker)
}

/// Returns whether the first server is down for this reason.
fn is_down_with(servers: &Servers, reason: &str) -> bool {
    servers.state(0, Time::now()) == State::Down
        && servers.last_failure(0).is_some_and(|last| last.contains(reason))
}

fn checks_are_well_formed_requests() {
    let origin = Origin::start(HEALTHY);
    let (config, servers, checker) = check([origin.address.clone()], frequent_checks());
    let authority = servers.authority(0).to_owned();
    let request = origin.requests.recv_timeout(TEST_TIMEOUT).unwrap();
    assert_eq!(
        request,
        format!(
            "GET /health?deep=1 HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: hearken-check\r\n\
             Connection: close\r\n\r\n"
        )
    );
    wait_until("the server is checked repeatedly", || servers.stats(0).checks_ok > 5);
    assert_eq!((servers.state(0, Time::now()), servers.last_failure(0)), (State::Up, None));
    drop(checker);
    // The last request may still arrive.
    let all = servers.stats(0).checks_ok;
    while origin.requests.recv_timeout(Duration::from_millis(50)).is_ok() {}
    assert_eq!(servers.stats(0).checks_ok, all);

    for (protocol, preface) in [
        (ProxyProtocol::V1, "PROXY UNKNOWN\r\n"),
        (ProxyProtocol::V2, "\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"),
    ] {
        let active = HealthCheck { host: Some("site.example".to_owned()), ..frequent_checks() };
        let config = Upstreams {
            health: Some(active),
            send_proxy_protocol: Some(protocol),
            ..config.clone()
        };
        let _checker =
            HealthChecker::start(&config, Arc::clone(&servers), Arc::default(), 1).unwrap();
        let request = origin.requests.recv_timeout(TEST_TIMEOUT).unwrap();
        let rest = request.strip_prefix(preface).unwrap();
        assert!(rest.starts_with("GET /health?deep=1 HTTP/1.1\r\nHost: site.example\r\n"));
    }
}

fn failed_checks_take_a_server_down_with_the_reason() {
    let head = "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n";
    for (behaviour, reason) in [
        (Behaviour::Responds(head), "status 500 Internal Server Error"),
        (Behaviour::RespondsSlowly(head), "status 500 Internal Server Error"),
        (Behaviour::Responds("HTTP/1.1 799 \r\n\r\n"), "status 799"),
        (Behaviour::Responds("HTTP/1.1 101 Switching Protocols\r\n\r\n"), "status 101"),
        (Behaviour::Responds(""), "connection closed before the response"),
        (Behaviour::Responds("HTTP/1.1 200 OK\r\nServ"), "connection closed during the response"),
        (Behaviour::Responds("220 mail.example ESMTP\r\n"), "malformed response"),
        (
            Behaviour::RespondsEndlessly("HTTP/1.1 103 Early Hints\r\n\r\n"),
            "the response head is too long",
        ),
        (Behaviour::RespondsEndlessly("x"), "malformed response"),
    ] {
        let origin = Origin::start(behaviour);
        let (_, servers, _checker) = check([origin.address.clone()], frequent_checks());
        wait_until(reason, || {
            let down = servers.state(0, Time::now()) == State::Down;
            assert!(!down || servers.stats(0).checks_failed >= 3);
            down
        });
        assert!(is_down_with(&servers, reason), "{:?} and not {reason}", servers.last_failure(0));
        let ok = servers.stats(0).checks_ok;
        origin.set_behaviour(Behaviour::RespondsSlowly(
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n\
             HTTP/1.0 302 Found\r\n\r\n",
        ));
        wait_until("the server is up again", || {
            let up = servers.state(0, Time::now()) == State::Up;
            assert!(!up || servers.stats(0).checks_ok >= ok + 2);
            up
        });
    }
}

fn checks_without_a_response_time_out() {
    let origin = Origin::start(Behaviour::Stalls);
    let active = HealthCheck { timeout: Duration::from_millis(20), ..frequent_checks() };
    let (_, servers, _checker) = check([origin.address.clone()], active);
    wait_until("the server is down", || is_down_with(&servers, "no response within 20ms"));
}

fn servers_that_refuse_connections_are_down() {
    // The socket is bound to reserve the port, but does not listen.
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let addr = SocketAddr::try_from(rustix::net::getsockname(&socket).unwrap()).unwrap();
    let place = tempfile::tempdir().unwrap();
    for (address, reason) in [
        (Address::Inet(addr), "connect: Connection refused"),
        (Address::Unix(place.path().join("none")), "connect: No such file"),
        (Address::Unix("x".repeat(300).into()), "connect: "),
    ] {
        let (_, servers, _checker) = check([address], frequent_checks());
        wait_until(reason, || is_down_with(&servers, reason));
    }
}

fn only_the_expected_status_is_healthy() {
    let origin = Origin::start(HEALTHY);
    let active = HealthCheck { status: Some(204), ..frequent_checks() };
    let (_, servers, _checker) = check([origin.address.clone()], active);
    wait_until("the server is down", || is_down_with(&servers, "status 200 OK"));
    origin.set_behaviour(Behaviour::Responds("HTTP/1.1 204 No Content\r\n\r\n"));
    wait_until("the server is up", || servers.state(0, Time::now()) == State::Up);
}

fn a_different_outcome_resets_the_count() {
    let origin = Origin::start(Behaviour::Alternates);
    let two = NonZeroU32::new(2).unwrap();
    let (_, servers, _checker) =
        check([origin.address.clone()], HealthCheck { fall: two, rise: two, ..frequent_checks() });
    let wait_for_checks = |state| {
        let before = servers.stats(0);
        wait_until("the server is checked repeatedly", || {
            assert_eq!(servers.state(0, Time::now()), state);
            let now = servers.stats(0);
            now.checks_failed > before.checks_failed + 5 && now.checks_ok > before.checks_ok + 5
        });
    };
    wait_for_checks(State::Up);
    origin.set_behaviour(Behaviour::Responds(""));
    wait_until("the server is down", || servers.state(0, Time::now()) == State::Down);
    origin.set_behaviour(Behaviour::Alternates);
    wait_for_checks(State::Down);
}

fn checks_unix_sockets() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("socket");
    let address = Address::Unix(path.clone());
    let origin = Origin::over(UnixListener::bind(&path).unwrap(), address, HEALTHY);
    let (_, servers, _checker) = check([origin.address.clone()], frequent_checks());
    assert!(
        origin.requests.recv_timeout(TEST_TIMEOUT).unwrap().contains("\r\nHost: localhost\r\n")
    );
    wait_until("a check succeeds", || servers.stats(0).checks_ok > 0);
    origin.set_behaviour(Behaviour::Responds(""));
    wait_until("the server is down", || is_down_with(&servers, "before the response"));
}

fn slow_servers_delay_neither_others_nor_the_stop() {
    let slow: Vec<Origin> = (0..100).map(|_| Origin::start(Behaviour::Stalls)).collect();
    let quick = Origin::start(HEALTHY);
    let addresses = slow.iter().map(|origin| origin.address.clone()).chain([quick.address.clone()]);
    let (_, servers, checker) = check(addresses, frequent_checks());
    for origin in &slow {
        origin.requests.recv_timeout(TEST_TIMEOUT).unwrap();
    }
    let before = servers.stats(100).checks_ok;
    wait_until("the quick server is checked repeatedly", || {
        servers.stats(100).checks_ok > before + 5
    });
    let start = Instant::now();
    drop(checker);
    assert!(start.elapsed() < TEST_TIMEOUT / 2);
    assert!((0..100).all(|server| servers.stats(server).checks_failed == 0));
}

fn checks_every_address_of_a_name() {
    let [one, other] = [Origin::start(HEALTHY), Origin::start(HEALTHY)];
    let [Address::Inet(first), Address::Inet(second)] = [&one.address, &other.address] else {
        panic!("no addresses")
    };
    let named = [Address::Name("origin.example".to_owned(), 80), one.address.clone()];
    let (_, servers, _checker) = check(named, frequent_checks());
    wait_until("the server with an address is checked", || servers.stats(1).checks_ok > 5);
    assert_eq!((servers.stats(0).checks_ok, servers.stats(0).checks_failed), (0, 0));
    servers.record_resolution(0, Ok(&[*first, *second]));
    assert!(
        other.requests.recv_timeout(TEST_TIMEOUT).unwrap().contains("\r\nHost: origin.example\r\n")
    );
    other.set_behaviour(Behaviour::Responds(""));
    wait_until("checks of the second address fail", || servers.stats(0).checks_failed > 2);
    assert_eq!(servers.state(0, Time::now()), State::Up);
}

fn sends_no_checks_by_default() {
    let origin = Origin::start(HEALTHY);
    let config = Upstreams::new(vec![Server::new(origin.address.clone())]);
    let servers = Arc::new(Servers::new(&config));
    drop(HealthChecker::start(&config, servers, Arc::default(), 1).unwrap());
    assert!(origin.requests.try_recv().is_err());
}
