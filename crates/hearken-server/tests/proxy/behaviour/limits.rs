//! Limits and queues.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use hearken_server::Config;
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt,
};

use super::{exchange, get, post, request};
use crate::common::admin::{admin, wait_for_metric};
use crate::common::server::proxy_config;
use crate::common::server::{limit_connections, listen_on, upstreams_config, via};
use crate::common::{
    Connection, Origin, Recorder, RunningServer, Setup, TEST_TIMEOUT, ms, wait_until,
};

/// The number of requests that wait for an upstream server.
const QUEUED: &str = "hearken_requests_queued";

/// Starts an origin that responds after a message on the channel, and records the targets of requests.
fn delayed_origin() -> (Origin, mpsc::Sender<()>, Recorder<String>) {
    let (go, resume_signal) = mpsc::channel();
    let resume_signal = Arc::new(Mutex::new(resume_signal));
    let notes = Recorder::new();
    let received = notes.clone();
    let origin = Origin::responding(move |request| {
        received.add(request.target().to_owned());
        let _ = resume_signal.lock().unwrap().recv_timeout(TEST_TIMEOUT);
        request.target().to_owned()
    });
    (origin, go, notes)
}

pub(crate) fn limits_and_queues_requests_per_server(setup: &Setup) {
    let (origin, go, received) = delayed_origin();
    let proxy = setup.proxy(&[origin.addr()], |config| {
        upstreams_config(config).max_requests = NonZeroUsize::new(1);
        upstreams_config(config).max_queue = 1;
    });
    let [mut first, mut second, mut third] = [(); 3].map(|()| proxy.connect());
    first.send(get("/1"));
    wait_until("the request reaches the origin", || received.len() == 1);
    second.send(get("/2"));
    wait_for_metric(&proxy, QUEUED, 1.0);
    let response = exchange(&mut third, get("/3"));
    assert_eq!((response.status(), response.keeps()), (503, true), "{response:?}");
    assert_eq!(received.len(), 1, "the server has more requests than allowed");
    go.send(()).unwrap();
    assert_eq!(first.expect_response().text(), "/1");
    wait_until("the second request reaches the origin", || received.len() == 2);
    go.send(()).unwrap();
    assert_eq!(second.expect_response().text(), "/2");
    go.send(()).unwrap();
    assert_eq!(exchange(&mut third, get("/4")).text(), "/4");
}

pub(crate) fn queued_requests_time_out(setup: &Setup) {
    let (origin, go, received) = delayed_origin();
    let proxy = setup.proxy(&[origin.addr()], |config| {
        upstreams_config(config).max_requests = NonZeroUsize::new(1);
        // Longer than the interval in which the queue is checked.
        proxy_config(config).timeouts.queue = ms(600);
    });
    let [mut first, mut second] = [(); 2].map(|()| proxy.connect());
    first.send(get("/1"));
    wait_until("the request reaches the origin", || received.len() == 1);
    let since = Instant::now();
    assert_eq!(exchange(&mut second, post("/2", "body")).status(), 503);
    assert!(since.elapsed() >= ms(550), "after {:?}", since.elapsed());
    go.send(()).unwrap();
    assert_eq!(first.expect_response().text(), "/1");
    go.send(()).unwrap();
    assert_eq!(exchange(&mut first, get("/3")).text(), "/3");
    assert_eq!(received.take(), ["/1", "/3"]);
}

pub(crate) fn queued_requests_use_a_server_that_returns(setup: &Setup) {
    let (busy, go, received) = delayed_origin();
    let back = Origin::responding(|_| "back".to_owned());
    let proxy = setup.proxy(&[busy.addr(), back.addr()], |config| {
        upstreams_config(config).max_requests = NonZeroUsize::new(1);
        config.admin = Some(([127, 0, 0, 1], 0).into());
    });
    admin(&proxy, "POST", &format!("/upstreams/{}/drain", back.addr()));
    let [mut first, mut second] = [(); 2].map(|()| proxy.connect());
    first.send(get("/1"));
    wait_until("the request reaches the origin", || received.len() == 1);
    second.send(get("/2"));
    wait_for_metric(&proxy, QUEUED, 1.0);
    admin(&proxy, "POST", &format!("/upstreams/{}/ready", back.addr()));
    assert_eq!(second.expect_response().text(), "back");
    go.send(()).unwrap();
    assert_eq!(first.expect_response().text(), "/1");
}

pub(crate) fn disconnected_clients_leave_the_queue(setup: &Setup) {
    let (origin, go, received) = delayed_origin();
    let proxy = setup.proxy(&[origin.addr()], |config| {
        upstreams_config(config).max_requests = NonZeroUsize::new(1);
        upstreams_config(config).max_queue = 2;
    });
    let [mut first, mut second, mut third, mut fourth] = [(); 4].map(|()| proxy.connect());
    first.send(get("/1"));
    wait_until("the request reaches the origin", || received.len() == 1);
    second.send(get("/2"));
    wait_for_metric(&proxy, QUEUED, 1.0);
    second.reset();
    wait_for_metric(&proxy, QUEUED, 0.0);
    third.send(get("/3"));
    wait_for_metric(&proxy, QUEUED, 1.0);
    fourth.send(get("/4"));
    wait_for_metric(&proxy, QUEUED, 2.0);
    for (connection, target) in [(&mut first, "/1"), (&mut third, "/3"), (&mut fourth, "/4")] {
        go.send(()).unwrap();
        assert_eq!(connection.expect_response().text(), target);
    }
    assert_eq!(received.take(), ["/1", "/3", "/4"]);
}

pub(crate) fn rejects_bodies_over_the_limit(setup: &Setup) {
    let seen = Recorder::new();
    let notes = seen.clone();
    let origin = Origin::new(move |mut peer| {
        while let Some(request) = peer.request() {
            notes.add(request.body.len());
            peer.respond("accepted");
        }
    });
    let proxy =
        setup.proxy(&[origin.addr()], |config| proxy_config(config).max_body_bytes = Some(1000));
    assert_eq!(exchange(&mut proxy.connect(), post("/", &"x".repeat(1000))).text(), "accepted");
    assert_eq!(exchange(&mut proxy.connect(), post("/", &"x".repeat(1001))).status(), 413);
    let chunk = format!("1f4\r\n{}\r\n", "x".repeat(500));
    let chunked = |chunks: usize| {
        let body = format!("{}0\r\n\r\n", chunk.repeat(chunks));
        request("POST", "/", &format!("Transfer-Encoding: chunked\r\n\r\n{body}"))
    };
    assert_eq!(exchange(&mut proxy.connect(), chunked(2)).text(), "accepted");
    assert_eq!(exchange(&mut proxy.connect(), chunked(3)).status(), 413);
    assert_eq!(exchange(&mut proxy.connect(), chunked(300)).status(), 413);
    assert_eq!(seen.take(), [1000, 1000]);
}

pub(crate) fn rejects_heads_over_the_limit(setup: &Setup) {
    let origin = Origin::responding(|_| "fine".to_owned());
    let proxy = setup.proxy(&[origin.addr()], |_| ());
    let field = |size: usize| request("GET", "/", &format!("X: {}\r\n", "x".repeat(size)));
    assert_eq!(exchange(&mut proxy.connect(), field(15_000)).text(), "fine");
    assert_eq!(exchange(&mut proxy.connect(), field(20_000)).status(), 431);
    assert_eq!(
        exchange(&mut proxy.connect(), get(&format!("/{}", "x".repeat(8000)))).text(),
        "fine"
    );
    assert_eq!(
        exchange(&mut proxy.connect(), get(&format!("/{}", "x".repeat(9000)))).status(),
        414
    );
    let many = |count: usize| request("GET", "/", &"X: x\r\n".repeat(count));
    assert_eq!(exchange(&mut proxy.connect(), many(98)).text(), "fine");
    assert_eq!(exchange(&mut proxy.connect(), many(101)).status(), 431);
    // The error response reaches a client that still sends.
    let mut endless = proxy.connect();
    endless.send(field(2 << 20));
    assert_eq!(endless.expect_response().status(), 431);
}

/// Connects a new client and asserts that it is served at once.
fn connect_and_get(proxy: &RunningServer) -> Connection {
    let mut connection = proxy.connect();
    connection.send(get("/new"));
    assert!(
        connection.is_readable_within(ms(5000)),
        "a new client waits although connections are idle"
    );
    assert_eq!(connection.expect_response().text(), "/new");
    connection
}

/// Asserts that a connection is open and served.
fn assert_served(connection: &mut Connection) {
    assert!(
        !connection.is_readable_within(ms(0)),
        "a connection was closed that was not the longest idle one"
    );
    assert_eq!(exchange(connection, get("/")).text(), "/");
    // The next connection becomes idle later, at any resolution of the clock.
    std::thread::sleep(ms(20));
}

pub(crate) fn closes_the_longest_idle_connection(setup: &Setup) {
    let origin = Origin::responding(|request| request.target().to_owned());
    let proxy = setup.proxy(&[origin.addr()], |config| limit_connections(config, 3));
    let [mut first, mut second, mut third] = [(); 3].map(|()| proxy.connect());
    for connection in [&mut first, &mut second, &mut third] {
        assert_served(connection);
    }
    // Differs from the order of accepting and the order of descriptors.
    assert_served(&mut first);
    let mut fourth = connect_and_get(&proxy);
    second.assert_closed();
    assert_served(&mut first);
    assert_served(&mut fourth);
    let mut fifth = connect_and_get(&proxy);
    third.assert_closed();
    for connection in [&mut first, &mut fourth, &mut fifth] {
        assert_served(connection);
    }
}

pub(crate) fn closes_connections_without_a_request(setup: &Setup) {
    let origin = Origin::responding(|request| request.target().to_owned());
    let proxy = setup.proxy(&[origin.addr()], |config| limit_connections(config, 3));
    let [mut first, mut second] = [(); 2].map(|()| proxy.connect());
    // The first two are accepted before it.
    let mut third = connect_and_get(&proxy);
    let mut fourth = connect_and_get(&proxy);
    first.assert_closed();
    for connection in [&mut second, &mut third, &mut fourth] {
        assert_served(connection);
    }
}

pub(crate) fn keeps_requests_in_flight(setup: &Setup) {
    let (origin, go, received) = delayed_origin();
    let proxy = setup.proxy(&[origin.addr()], |config| limit_connections(config, 2));
    let mut busy = [("/1", proxy.connect()), ("/2", proxy.connect())];
    for (target, connection) in &mut busy {
        connection.send(get(target));
    }
    wait_until("both requests reach the origin", || received.len() == 2);
    let mut new = proxy.connect();
    new.send(get("/3"));
    assert!(!new.is_readable_within(ms(200)), "served over the limit");
    assert_eq!(received.len(), 2, "served over the limit");
    go.send(()).unwrap();
    wait_until("one response arrives", || {
        busy.iter().any(|(_, connection)| connection.is_readable_within(ms(0)))
    });
    if !busy[0].1.is_readable_within(ms(0)) {
        busy.reverse();
    }
    let [(target, first), (other, second)] = &mut busy;
    assert_eq!(first.expect_response().text(), *target);
    go.send(()).unwrap();
    go.send(()).unwrap();
    assert!(new.is_readable_within(ms(5000)), "a new client waits although a response has ended");
    assert_eq!(new.expect_response().text(), "/3");
    assert_eq!(second.expect_response().text(), *other);
    first.assert_closed();
}

pub(crate) fn lingering_close_is_bounded_in_bytes(setup: &Setup) {
    // After an error response the proxy discards a bounded number of bytes, so that the response is not
    // lost.
    let origin = Origin::responding(|_| "fine".to_owned());
    let proxy =
        setup.proxy(&[origin.addr()], |config| proxy_config(config).max_body_bytes = Some(1000));
    let refused = [
        "no request\r\n\r\n".to_owned(),
        request("POST", "/", "Content-Length: 1000000000000\r\n"),
    ];
    for bytes in refused {
        let mut connection = proxy.connect();
        connection.send(bytes);
        let block = vec![b'x'; 1 << 18];
        while connection.is_writable_within(TEST_TIMEOUT) {
            connection.send_some(&block);
            // The buffers of the two sockets may hold most of this.
            assert!(connection.sent < 48 << 20, "the proxy reads an endless body");
        }
        assert!(connection.wait_closed(), "the connection is not closed");
    }
}

/// Starts a proxy to itself. Its listening socket shares the port with a bound socket that reserved it.
fn proxy_to_itself(setup: &Setup, change: impl FnOnce(&mut Config)) -> RunningServer {
    let flags = SocketFlags::CLOEXEC;
    let bound = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
    sockopt::set_socket_reuseaddr(&bound, true).unwrap();
    bind(&bound, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let addr = SocketAddr::try_from(getsockname(&bound).unwrap()).unwrap();
    setup.proxy(&[addr], |config| {
        listen_on(config, addr);
        // Ends an undetected loop before descriptors run out.
        limit_connections(config, 200);
        proxy_config(config).timeouts.response_header = ms(3000);
        change(config);
    })
}

pub(crate) fn a_loop_is_answered_with_508(setup: &Setup) {
    let proxy = proxy_to_itself(setup, |_| ());
    assert_eq!(exchange(&mut proxy.connect(), get("/")).status(), 508);
    assert_eq!(exchange(&mut proxy.connect(), post("/", "body")).status(), 508);
}

pub(crate) fn a_loop_without_via_is_answered_with_508(setup: &Setup) {
    let proxy = proxy_to_itself(setup, |config| via(config, ""));
    assert_eq!(exchange(&mut proxy.connect(), get("/")).status(), 508);
}
