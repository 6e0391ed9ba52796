//! Stopping a proxy.

use std::fs;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Instant;

use hearken_server::proxy::config::LogFormat;

use super::tunnels::{echo_all, upgrading};
use super::{exchange, get, post, request};
use crate::common::{End, Origin, Recorder, Setup, TEST_TIMEOUT, ms, wait_until};

pub(crate) fn finishes_requests_in_flight(setup: &Setup) {
    let (go, resume_signal) = mpsc::channel::<()>();
    let resume_signal = Arc::new(Mutex::new(resume_signal));
    let received = Recorder::new();
    let seen = received.clone();
    let origin = Origin::responding(move |request| {
        seen.add(request.start.clone());
        let _ = resume_signal.lock().unwrap().recv_timeout(TEST_TIMEOUT);
        "x".repeat(100_000)
    });
    let proxy = setup.proxy(&[origin.addr()], |_| ());
    let (mut one, mut other) = (proxy.connect(), proxy.connect());
    one.send(get("/"));
    other.send(post("/", "body"));
    wait_until("both requests reach the origin", || received.len() == 2);
    let stopper = proxy.handle();
    stopper.stop();
    drop(go);
    for connection in [&mut one, &mut other] {
        let response = connection.expect_response();
        assert_eq!((response.status(), response.body.len()), (200, 100_000));
        assert!(!response.keeps(), "the last response does not announce the close: {response:?}");
        connection.assert_closed();
    }
    // The proxy waits for clients to close their sides.
    drop((one, other));
    proxy.end();
}

pub(crate) fn closes_idle_clients(setup: &Setup) {
    let origin = Origin::responding(|_| "fine".to_owned());
    let proxy = setup.proxy(&[origin.addr()], |_| ());
    let mut clients: Vec<_> = (0..20).map(|_| proxy.connect()).collect();
    for connection in &mut clients[..10] {
        exchange(connection, get("/"));
    }
    let since = Instant::now();
    proxy.end();
    assert!(since.elapsed() < TEST_TIMEOUT / 4, "stopped after {:?}", since.elapsed());
    for connection in &mut clients[..10] {
        assert_eq!(connection.read_end(), Ok(End::Closed));
    }
    // Connections without a request may still be in the accept queue, and are then reset.
    clients[10..].iter_mut().for_each(crate::common::Connection::assert_closed);
}

pub(crate) fn closes_connections_after_the_grace_period(setup: &Setup) {
    let origin = Origin::new(|mut peer| {
        peer.request();
        peer.connection.drain();
    });
    let proxy =
        setup.proxy(&[origin.addr()], |config| config.event_loops.shutdown_timeout = ms(200));
    let mut connection = proxy.connect();
    connection.send(get("/"));
    wait_until("the request reaches the origin", || origin.accepted() == 1);
    let since = Instant::now();
    proxy.end();
    assert!(since.elapsed() >= ms(100), "stopped after {:?}", since.elapsed());
    assert!(since.elapsed() < TEST_TIMEOUT / 4, "stopped after {:?}", since.elapsed());
    connection.assert_closed();
}

pub(crate) fn resets_and_logs_responses_cut_by_the_grace_period(setup: &Setup) {
    let origin = Origin::new(|mut peer| {
        peer.request();
        peer.connection.send("HTTP/1.1 200 OK\r\n\r\npart");
        peer.connection.drain();
    });
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let proxy = setup.proxy(&[origin.addr()], |config| {
        config.event_loops.shutdown_timeout = ms(200);
        config.access_log = Some(path.clone());
        config.log_format = LogFormat::Json;
    });
    let mut connection = proxy.connect();
    // The end of the connection delimits the response to an HTTP/1.0 client.
    connection.send("GET / HTTP/1.0\r\nHost: site.test\r\n\r\n");
    connection.receive_until(|reader| reader.rest().ends_with(b"part"));
    proxy.end();
    assert_eq!(connection.drain().1, End::Reset);
    let log = fs::read_to_string(&path).unwrap();
    assert!(log.contains("\"outcome\":\"shutdown-timeout\""), "{log}");
    assert!(log.contains("\"status\":200,\"bytes_sent\":4,"), "{log}");
}

pub(crate) fn closes_tunnels_after_the_grace_period(setup: &Setup) {
    let origin = upgrading(echo_all);
    let proxy =
        setup.proxy(&[origin.addr()], |config| config.event_loops.shutdown_timeout = ms(200));
    let mut connection = proxy.connect();
    let lines = "Connection: Upgrade\r\nUpgrade: echo\r\n";
    assert_eq!(exchange(&mut connection, request("GET", "/", lines)).status(), 101);
    proxy.handle().stop();
    connection.send("still");
    assert_eq!(connection.read_raw(5), b"still");
    let since = Instant::now();
    proxy.end();
    assert!(since.elapsed() < TEST_TIMEOUT / 4, "stopped after {:?}", since.elapsed());
    connection.drain();
    origin.end();
}
