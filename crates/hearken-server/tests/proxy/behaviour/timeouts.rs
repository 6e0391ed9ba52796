//! Timeouts and minimum rates.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Mutex, mpsc};
use std::time::Instant;

use hearken_server::Config;
use hearken_server::proxy::config::{Forward, HalfClose, ProxyMode};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use super::{exchange, get, request};
use crate::common::server::proxy_config;
use crate::common::server::{limit_uploads, request_timeout, upstreams_config};
use crate::common::{End, Kind, Origin, Peer, Recorder, Setup, TEST_TIMEOUT, ms, wait_until};

pub(crate) fn exchanges_time_out(setup: &Setup) {
    let origin = Origin::new(|mut peer| {
        let Some(request) = peer.request() else { return };
        let connection = &mut peer.connection;
        if request.target() == "/half" {
            connection.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nhalf");
        }
        // Bytes at intervals prevent the other timeouts.
        while connection.end.is_none() && !connection.is_readable_within(ms(20)) {
            connection.send(if request.target() == "/half" {
                "x"
            } else {
                "HTTP/1.1 103 x\r\n\r\n"
            });
        }
    });
    let proxy = setup.proxy(&[origin.addr()], |config| {
        proxy_config(config).timeouts.request = ms(250);
        proxy_config(config).timeouts.response_header = ms(10_000);
    });
    let since = Instant::now();
    assert_eq!(exchange(&mut proxy.connect(), get("/none")).status(), 504);
    assert!(since.elapsed() >= ms(200), "after {:?}", since.elapsed());
    let mut connection = proxy.connect();
    connection.send(get("/half"));
    assert!(connection.message().is_none());
    assert!(
        connection.reader.has_head() && matches!(connection.end, Some(End::Closed | End::Reset))
    );
    assert!(connection.reader.message().text().starts_with("half"));
}

pub(crate) fn idle_connections_time_out(setup: &Setup) {
    let origin = Origin::responding(|_| "fine".to_owned());
    let proxy = setup.proxy(&[origin.addr()], |config| config.timeouts.keepalive = ms(300));
    let mut connection = proxy.connect();
    exchange(&mut connection, get("/"));
    let since = Instant::now();
    assert_eq!(connection.read_end(), Ok(End::Closed));
    assert!(since.elapsed() >= ms(100), "after {:?}", since.elapsed());
}

pub(crate) fn slow_heads_time_out(setup: &Setup) {
    let origin = Origin::responding(|_| "fine".to_owned());
    let proxy = setup.proxy(&[origin.addr()], |config| config.timeouts.header = ms(250));
    let mut connection = proxy.connect();
    connection.send("GET / HTTP/1.1\r\nHost: a\r\nX: ");
    let since = Instant::now();
    while !connection.is_readable_within(ms(30)) {
        connection.send("x");
        assert!(since.elapsed() < TEST_TIMEOUT, "a slow head does not time out");
    }
    assert_eq!(connection.expect_response().status(), 408);
    connection.assert_closed();
    // The second head on a connection times out too.
    let mut connection = proxy.connect();
    exchange(&mut connection, get("/"));
    connection.send("GET / HTTP/1.1\r\n");
    assert_eq!(connection.expect_response().status(), 408);
}

/// A server whose accept queue is full.
struct Full {
    _listener: rustix::fd::OwnedFd,
    _queued: Vec<TcpStream>,
    addr: SocketAddr,
}

impl Full {
    fn new() -> Full {
        let flags = SocketFlags::CLOEXEC;
        let listener =
            rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
        rustix::net::bind(&listener, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let addr = rustix::net::getsockname(&listener).unwrap();
        let addr = SocketAddr::try_from(addr).unwrap();
        let connect = |_| TcpStream::connect_timeout(&addr, ms(100)).ok();
        Full { _queued: (0..4).map_while(connect).collect(), _listener: listener, addr }
    }
}

pub(crate) fn connection_attempts_time_out(setup: &Setup) {
    let full = Full::new();
    let proxy = setup.proxy(&[full.addr], |config| {
        proxy_config(config).timeouts.connect = ms(200);
        upstreams_config(config).passive = None;
    });
    let since = Instant::now();
    assert_eq!(exchange(&mut proxy.connect(), get("/")).status(), 504);
    assert!(since.elapsed() >= ms(150), "after {:?}", since.elapsed());
    // Another server is tried.
    let origin = Origin::responding(|_| "here".to_owned());
    let proxy = setup.proxy(&[full.addr, origin.addr()], |config| {
        proxy_config(config).timeouts.connect = ms(200);
        upstreams_config(config).passive = None;
    });
    let mut connection = proxy.connect();
    for _ in 0..2 {
        assert_eq!(exchange(&mut connection, get("/")).text(), "here");
    }
}

pub(crate) fn uploads_that_the_server_does_not_read_time_out(setup: &Setup) {
    // The buffers of both connections fill, and only the send timeout ends the request.
    let (done, ended) = mpsc::channel::<()>();
    let ended = Mutex::new(ended);
    let origin = Origin::new(move |_peer| {
        let _ = ended.lock().unwrap().recv_timeout(TEST_TIMEOUT);
    });
    let proxy =
        setup.proxy(&[origin.addr()], |config| proxy_config(config).timeouts.send = ms(250));
    let mut connection = proxy.connect();
    connection.send(request("PUT", "/", "Content-Length: 1000000000\r\n\r\n"));
    let block = vec![b'x'; 1 << 20];
    // Stops at the response: sending more would prolong the lingering close.
    while !connection.is_readable_within(ms(0)) && !connection.broken {
        if connection.is_writable_within(ms(5)) {
            connection.send_some(&block);
        }
    }
    assert_eq!(connection.expect_response().status(), 504);
    drop(done);
}

/// Sends the head of a very long response, and `some` bytes of its body.
fn begin_response(peer: &mut Peer, some: usize) {
    peer.connection.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n");
    peer.connection.send(vec![b'x'; some]);
}

pub(crate) fn downloads_that_the_client_does_not_read_time_out(setup: &Setup) {
    let recorded = Recorder::new();
    let recorder = recorded.clone();
    let origin = Origin::new(move |mut peer| {
        peer.request();
        begin_response(&mut peer, 0);
        let block = vec![b'x'; 1 << 16];
        while !peer.connection.broken {
            peer.connection.send(&block);
        }
        recorder.add(());
    });
    let proxy = setup.proxy(&[origin.addr()], |config| {
        config.timeouts.send = ms(300);
        config.min_rate = 0;
    });
    let mut connection = proxy.connect().with_receive_buffer(4096);
    connection.send(get("/"));
    wait_until("the origin's connection is closed", || recorded.len() == 1);
    // The client has read nothing until now.
    drop(connection);
}

pub(crate) fn downloads_below_the_minimum_rate_are_reset(setup: &Setup) {
    let origin = Origin::new(|mut peer| {
        peer.request();
        begin_response(&mut peer, 0);
        let block = vec![b'x'; 1 << 16];
        while !peer.connection.broken {
            peer.connection.send(&block);
        }
    });
    let proxy = setup.proxy(&[origin.addr()], |config| {
        config.timeouts.send = ms(300);
        config.min_rate = 1 << 30;
    });
    let mut connection = proxy.connect().with_receive_buffer(4096);
    connection.send(get("/"));
    // The client reads in every period, but too little.
    assert_eq!(connection.drain().1, End::Reset);
}

pub(crate) fn slow_servers_do_not_time_out_slow_clients(setup: &Setup) {
    const SOME: usize = 100_000;
    let (done, ended) = mpsc::channel::<()>();
    let ended = Mutex::new(ended);
    let origin = Origin::new(move |mut peer| {
        peer.request();
        begin_response(&mut peer, SOME);
        let _ = ended.lock().unwrap().recv_timeout(TEST_TIMEOUT);
    });
    let proxy = setup.proxy(&[origin.addr()], |config| {
        // A shorter period may end between two probes of a full receive window.
        config.timeouts.send = ms(1000);
        config.min_rate = 1 << 30;
    });
    let mut stream = TcpStream::connect(proxy.addr()).unwrap();
    sockopt::set_socket_recv_buffer_size(&stream, 4096).unwrap();
    stream.write_all(get("/").as_bytes()).unwrap();
    // Some bytes are always unread, but never so many that the proxy waits for the client.
    let since = Instant::now();
    while since.elapsed() < ms(2300) {
        let read = stream.read(&mut [0; 1024]);
        assert!(matches!(read, Ok(1..)), "{read:?} after {:?}", since.elapsed());
        std::thread::sleep(ms(40));
    }
    drop(done);
}

pub(crate) fn stalls_in_both_directions_time_out(setup: &Setup) {
    const SOME: usize = 200_000;
    let origin = Origin::new(|mut peer| {
        peer.head();
        begin_response(&mut peer, SOME);
        peer.connection.drain();
    });
    let proxy = setup.proxy(&[origin.addr()], |config| {
        let timeouts = &mut config.timeouts;
        (timeouts.send, timeouts.body) = (ms(300), ms(300));
        let timeouts = &mut proxy_config(config).timeouts;
        (timeouts.send, timeouts.response_body) = (ms(300), ms(300));
    });
    let mut connection = proxy.connect();
    connection.send(request("PUT", "/", "Content-Length: 1000000000\r\n\r\n"));
    connection.send(vec![b'x'; SOME]);
    // Both sides have stopped sending.
    assert!(matches!(connection.drain().1, End::Closed | End::Reset));
}

pub(crate) fn notices_disconnects_behind_pipelined_requests(setup: &Setup) {
    const SOME: usize = 200_000;
    let recorded = Recorder::new();
    let recorder = recorded.clone();
    let origin = Origin::new(move |mut peer| {
        let Some(request) = peer.request() else { return };
        if request.target() == "/some" {
            begin_response(&mut peer, SOME);
        }
        recorder.add("received");
        peer.connection.drain();
        recorder.add("closed");
    });
    let proxy = setup.proxy(&[origin.addr()], |_| ());
    for (target, some) in [("/none", 0), ("/some", SOME)] {
        let mut connection = proxy.connect();
        connection.send(get(target).repeat(2));
        wait_until("the request reaches the origin", || recorded.len() == 1);
        connection.read_raw(some);
        connection.reset();
        wait_until("the origin's connection is closed", || recorded.len() == 2);
        recorded.take();
    }
}

pub(crate) fn half_closed_clients_may_count_as_disconnected(setup: &Setup) {
    let recorded = Recorder::new();
    let recorder = recorded.clone();
    let origin = Origin::new(move |mut peer| {
        peer.request();
        recorder.add("received");
        peer.connection.drain();
        recorder.add("closed");
    });
    let proxy = setup.proxy(&[origin.addr()], |config| config.half_close = HalfClose::Cancel);
    let mut connection = proxy.connect();
    connection.send(get("/"));
    wait_until("the request reaches the origin", || recorded.len() == 1);
    connection.shutdown_write();
    connection.assert_closed();
    wait_until("the origin's connection is closed", || recorded.len() == 2);
}

/// Uploads a byte every 30 ms until the proxy ends the request. Returns the status of the response. The
/// origin begins its response at once if `early`, and reads until its connection is closed.
fn upload_slowly(setup: &Setup, early: bool, change: impl FnOnce(&mut Config)) -> Option<u16> {
    const BEGUN: &str = "early";
    let closed = Recorder::new();
    let notes = closed.clone();
    let origin = Origin::new(move |mut peer| {
        peer.head();
        if early {
            peer.connection.send(format!("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{BEGUN}"));
        }
        peer.connection.drain();
        notes.add(());
    });
    let proxy = setup.proxy(&[origin.addr()], change);
    let mut connection = proxy.connect();
    connection.send(request("PUT", "/", "Content-Length: 1000000\r\n\r\n"));
    if early {
        connection.receive_until(|reader| {
            reader.advance().is_err() || reader.message().body.len() == BEGUN.len()
        });
    }
    let since = Instant::now();
    while !connection.is_readable_within(ms(30)) {
        assert!(since.elapsed() < ms(5000), "an upload of a byte every 30 ms does not time out");
        connection.send("x");
    }
    let status = connection.final_response(Kind::Response).map(|response| response.status());
    connection.drain();
    assert!(matches!(connection.end, Some(End::Closed | End::Reset)), "{:?}", connection.end);
    wait_until("the origin's connection is closed", || closed.len() == 1);
    status
}

pub(crate) fn uploads_below_the_minimum_rate_end(setup: &Setup) {
    let limit = |config: &mut Config| limit_uploads(config, 10_000, ms(250));
    let status = upload_slowly(setup, false, limit);
    assert!(matches!(status, None | Some(408)), "{status:?}");
    assert_eq!(upload_slowly(setup, true, limit), None);
}

pub(crate) fn slow_uploads_end_at_the_request_timeout(setup: &Setup) {
    let limit = |config: &mut Config| {
        limit_uploads(config, 1, TEST_TIMEOUT);
        request_timeout(config, ms(300));
    };
    assert_eq!(upload_slowly(setup, false, limit), Some(408));
    assert_eq!(upload_slowly(setup, true, limit), None);
    let default = setup.proxy_config(ProxyMode::Forward(Forward::default()));
    assert!(!default.timeouts.upload.is_zero(), "there is no request timeout by default");
}

pub(crate) fn uploads_wait_for_a_slow_server(setup: &Setup) {
    const SIZE: usize = 16 << 20;
    let origin = Origin::new(|mut peer| {
        peer.head();
        // The proxy stops reading from the client, which must not count as a slow client.
        std::thread::sleep(ms(900));
        let request = peer.request().unwrap();
        peer.respond(&request.body.len().to_string());
    });
    let proxy = setup.proxy(&[origin.addr()], |config| limit_uploads(config, 100_000, ms(250)));
    let mut connection = proxy.connect();
    connection.send(request("PUT", "/", &format!("Content-Length: {SIZE}\r\n\r\n")));
    connection.send(vec![b'x'; SIZE]);
    assert_eq!(connection.expect_response().text(), SIZE.to_string());
}
