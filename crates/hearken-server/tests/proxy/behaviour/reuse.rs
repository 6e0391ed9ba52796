//! Connections to upstream servers: reuse, races with their end, and retries.

use std::num::{NonZeroU16, NonZeroU32};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use hearken_server::proxy::config::{
    Address, Balance, HashKey, ProxyMode, Server as Upstream, Upstreams,
};

use super::{exchange, get, post, request};
use crate::common::server::upstreams_config;
use crate::common::{Origin, Recorder, Refusing, Setup, TEST_TIMEOUT, content, ms, wait_until};

pub(crate) fn reuses_upstream_connections(setup: &Setup) {
    let origin = Origin::responding(|request| request.target().to_owned());
    let proxy = setup.proxy(&[origin.addr()], |_| ());
    for client in 0..3 {
        let mut connection = proxy.connect();
        for number in 0..5 {
            let target = format!("/{client}/{number}");
            assert_eq!(exchange(&mut connection, get(&target)).text(), target);
            assert_eq!(exchange(&mut connection, post(&target, "body")).text(), target);
        }
    }
    assert_eq!(origin.accepted(), 1, "sequential requests opened more than one connection");
}

pub(crate) fn closes_upstream_connections_without_keepalive(setup: &Setup) {
    let origin = Origin::responding(|request| request.field("connection").unwrap_or_default());
    let proxy = setup.proxy(&[origin.addr()], |config| upstreams_config(config).keepalive = 0);
    let mut connection = proxy.connect();
    for _ in 0..3 {
        let response = exchange(&mut connection, get("/"));
        assert_eq!(response.text(), "close", "the server is not notified of the last request");
        assert!(response.keeps(), "the client's connection is not persistent");
    }
    assert_eq!(origin.accepted(), 3);
}

pub(crate) fn keeps_idle_connections_up_to_the_limit(setup: &Setup) {
    let (go, resume_signal) = mpsc::channel::<()>();
    let resume_signal = Arc::new(Mutex::new(resume_signal));
    let (received, closed) = (Recorder::new(), Recorder::new());
    let (receives, ends) = (received.clone(), closed.clone());
    let origin = Origin::new(move |mut peer| {
        while let Some(request) = peer.request() {
            receives.add(());
            if request.target() == "/hold" {
                let _ = resume_signal.lock().unwrap().recv_timeout(TEST_TIMEOUT);
            }
            peer.respond("fine");
        }
        ends.add(());
    });
    let proxy = setup.proxy(&[origin.addr()], |config| upstreams_config(config).keepalive = 3);
    let mut clients: Vec<_> = (0..10).map(|_| proxy.connect()).collect();
    clients.iter_mut().for_each(|connection| connection.send(get("/hold")));
    wait_until("all requests reach the origin", || received.len() == 10);
    drop(go);
    for connection in &mut clients {
        assert_eq!(connection.expect_response().text(), "fine");
    }
    wait_until("seven connections are closed", || closed.len() == 7);
    for connection in &mut clients {
        assert_eq!(exchange(connection, get("/")).text(), "fine");
    }
    assert_eq!((origin.accepted(), closed.len()), (10, 7), "idle connections are not reused");
}

/// Starts an origin that closes each connection at its second request.
fn close_at_second_request(notes: &Recorder<String>) -> Origin {
    let notes = notes.clone();
    Origin::new(move |mut peer| {
        let Some(request) = peer.request() else { return };
        notes.add(request.start.clone());
        peer.respond(request.target());
        if let Some(request) = peer.request() {
            notes.add(request.start);
        }
    })
}

pub(crate) fn retries_safe_requests_lost_on_a_reused_connection(setup: &Setup) {
    let notes = Recorder::new();
    let origin = close_at_second_request(&notes);
    let proxy = setup.proxy(&[origin.addr()], |_| ());
    let mut connection = proxy.connect();
    assert_eq!(exchange(&mut connection, get("/1")).text(), "/1");
    // A safe request is sent again.
    assert_eq!(exchange(&mut connection, get("/2")).text(), "/2");
    assert_eq!(origin.accepted(), 2);
    notes.take();
    // An unsafe request may have been processed, so it is not sent again.
    let response = exchange(&mut connection, post("/3", "x"));
    assert_eq!(response.status(), 502, "{response:?}");
    assert_eq!(notes.take(), ["POST /3 HTTP/1.1"]);
    assert_eq!(
        exchange(&mut connection, post("/4", "x")).text(),
        "/4",
        "a new connection is opened"
    );
}

pub(crate) fn sends_a_lost_request_at_most_twice(setup: &Setup) {
    // With any number of attempts, a request is sent at most twice.
    let notes = Recorder::new();
    let noted = notes.clone();
    let origin = Origin::new(move |mut peer| {
        while let Some(request) = peer.request() {
            noted.add(request.target().to_owned());
            if request.target() == "/2" {
                return;
            }
            peer.respond(request.target());
        }
    });
    let proxy = setup.proxy(&[origin.addr()], |config| {
        upstreams_config(config).max_attempts = NonZeroU32::new(5).unwrap();
        upstreams_config(config).passive = None;
    });
    let mut connection = proxy.connect();
    assert_eq!(exchange(&mut connection, get("/1")).text(), "/1");
    assert_eq!(exchange(&mut connection, get("/2")).status(), 502);
    assert_eq!(exchange(&mut connection, get("/3")).text(), "/3");
    assert_eq!(notes.take(), ["/1", "/2", "/2", "/3"]);
}

pub(crate) fn discards_unsolicited_responses(setup: &Setup) {
    // Bytes that a server sends on an idle connection are not the response to the next request.
    let closed = Arc::new(AtomicUsize::new(0));
    let counted = closed.clone();
    let origin = Origin::new(move |mut peer| {
        let Some(request) = peer.request() else { return };
        peer.respond(request.target());
        peer.respond("stale");
        assert!(peer.request().is_none());
        counted.fetch_add(1, Ordering::SeqCst);
    });
    let proxy = setup.proxy(&[origin.addr()], |_| ());
    let mut connection = proxy.connect();
    for number in 0..5 {
        let target = format!("/{number}");
        assert_eq!(exchange(&mut connection, get(&target)).text(), target);
        wait_until("the connection is closed", || closed.load(Ordering::SeqCst) == number + 1);
    }
}

pub(crate) fn discards_unsolicited_responses_after_long_bodies(setup: &Setup) {
    // The unsolicited bytes are in the socket, after a body that was spliced.
    let body = content(1, 1 << 20);
    let origin = Origin::new(move |mut peer| {
        while let Some(request) = peer.request() {
            if request.target() != "/long" {
                peer.respond(request.target());
                continue;
            }
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            let stale = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nstale";
            peer.connection.send([head.as_bytes(), body, stale].concat());
        }
    });
    let proxy = setup.proxy(&[origin.addr()], |_| ());
    let mut connection = proxy.connect();
    for number in 0..20 {
        assert!(exchange(&mut connection, get("/long")).body == body);
        let target = format!("/{number}");
        assert_eq!(exchange(&mut connection, get(&target)).text(), target);
    }
}

pub(crate) fn forwards_responses_before_the_request_is_complete(setup: &Setup) {
    let origin = Origin::new(|mut peer| {
        peer.connection.receive_until(|reader| {
            let _ = reader.advance();
            reader.has_head()
        });
        peer.respond("early");
        peer.request();
    });
    let proxy = setup.proxy(&[origin.addr()], |_| ());
    let mut connection = proxy.connect();
    connection.send(request("POST", "/", "Content-Length: 10\r\n\r\n12345"));
    assert_eq!(
        connection.expect_response().text(),
        "early",
        "forwarded before the body is complete"
    );
    // The next bytes are the rest of the body, and are not parsed as a request.
    connection.send("67890");
    connection.send(get("/next"));
    if let Some(response) = connection.final_response(crate::common::Kind::Response) {
        assert_eq!(response.text(), "early");
    }
}

pub(crate) fn retries_refused_connections_on_another_server(setup: &Setup) {
    let origin = Origin::responding(|_| "here".to_owned());
    let refusing = Refusing::new();
    let proxy = setup.proxy(&[refusing.addr, origin.addr()], |config| {
        upstreams_config(config).passive = None;
    });
    let mut connection = proxy.connect();
    for _ in 0..6 {
        // No server has received the request, so even an unsafe one is sent again.
        assert_eq!(exchange(&mut connection, post("/", "body")).text(), "here");
        assert_eq!(exchange(&mut connection, get("/")).text(), "here");
    }
}

pub(crate) fn answers_502_when_all_servers_refuse(setup: &Setup) {
    let [first, second] = [Refusing::new(), Refusing::new()];
    let proxy = setup.proxy(&[first.addr, second.addr], |config| {
        upstreams_config(config).passive = None;
    });
    let mut connection = proxy.connect();
    for _ in 0..3 {
        let response = exchange(&mut connection, get("/"));
        assert_eq!((response.status(), response.keeps()), (502, true), "{response:?}");
        let response = exchange(&mut proxy.connect(), post("/", "x"));
        assert_eq!(response.status(), 502, "{response:?}");
    }
}

pub(crate) fn retries_only_safe_requests_after_a_close(setup: &Setup) {
    let seen = Recorder::new();
    let notes = seen.clone();
    let failing = Origin::new(move |mut peer| {
        if let Some(request) = peer.request() {
            notes.add(request.method().to_owned());
        }
    });
    let done = Recorder::new();
    let notes = done.clone();
    let origin = Origin::responding(move |request| {
        notes.add(request.method().to_owned());
        "here".to_owned()
    });
    let proxy = setup
        .proxy(&[failing.addr(), origin.addr()], |config| upstreams_config(config).passive = None);
    let mut connection = proxy.connect();
    for _ in 0..6 {
        assert_eq!(exchange(&mut connection, get("/")).text(), "here");
    }
    seen.take();
    done.take();
    let responses: Vec<u16> =
        (0..6).map(|_| exchange(&mut connection, post("/", "x")).status()).collect();
    let failed = responses.iter().filter(|&&status| status == 502).count();
    assert_eq!(seen.take().len(), failed, "{responses:?}: each request is sent once");
    assert_eq!(
        done.take().len(),
        responses.len() - failed,
        "{responses:?}: each request is sent once"
    );
}

pub(crate) fn retries_requests_lost_at_a_server_shutdown(setup: &Setup) {
    // A server that stops may close its connections before it stops accepting.
    let ending = Arc::new(AtomicBool::new(false));
    let ends = ending.clone();
    let first = Origin::new(move |mut peer| {
        while peer.request().is_some() && !ends.load(Ordering::SeqCst) {
            peer.respond("first");
        }
    });
    let second = Origin::responding(|_| "second".to_owned());
    let proxy = setup.proxy(&[first.addr(), second.addr()], |config| {
        // The first server would be selected again.
        upstreams_config(config).servers[0].weight = NonZeroU16::new(100).unwrap();
        upstreams_config(config).passive = None;
    });
    let mut connection = proxy.connect();
    assert_eq!(exchange(&mut connection, get("/")).text(), "first");
    ending.store(true, Ordering::SeqCst);
    assert_eq!(exchange(&mut connection, get("/")).text(), "second");
}

pub(crate) fn retries_on_the_same_server_with_hash_balancing(setup: &Setup) {
    // With hash balancing, a closed connection does not move a request to another server.
    let origins = [(); 2].map(|()| {
        let notes = Recorder::new();
        (close_at_second_request(&notes), notes)
    });
    let addrs = [origins[0].0.addr(), origins[1].0.addr()];
    let proxy = setup
        .proxy(&addrs, |config| upstreams_config(config).balance = Balance::Hash(HashKey::Target));
    let mut connection = proxy.connect();
    for _ in 0..4 {
        assert_eq!(exchange(&mut connection, get("/")).text(), "/");
    }
    let received = origins.map(|(_, notes)| notes.len());
    assert!(received.contains(&0), "{received:?}");
}

pub(crate) fn connects_to_unix_sockets(setup: &Setup) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let origin = Origin::unix(&path, |mut peer| {
        while let Some(request) = peer.request() {
            peer.respond(&format!("{} {}", request.target(), request.body.len()));
        }
    });
    let at = Upstream::new(Address::Unix(path));
    let proxy = setup.proxy_to(ProxyMode::Reverse(Upstreams::new(vec![at])), |_| ());
    let mut connection = proxy.connect();
    assert_eq!(exchange(&mut connection, get("/a")).text(), "/a 0");
    let body = "x".repeat(300_000);
    assert_eq!(exchange(&mut connection, post("/b", &body)).text(), "/b 300000");
    assert_eq!(origin.accepted(), 1);
}

/// Starts an origin that closes each connection with its first response, in the same segment and
/// without announcing it.
fn close_silently() -> (Origin, Recorder<()>) {
    let notes = Recorder::new();
    let closed = notes.clone();
    let origin = Origin::new(move |mut peer| {
        let Some(request) = peer.request() else { return };
        // The partial segment is sent with the end of the stream.
        peer.connection.cork();
        peer.respond(request.target());
        drop(peer);
        closed.add(());
    });
    (origin, notes)
}

pub(crate) fn silently_closed_connections_are_not_reused(setup: &Setup) {
    let (origin, closed) = close_silently();
    let proxy = setup.proxy(&[origin.addr()], |config| upstreams_config(config).passive = None);
    let mut connection = proxy.connect();
    for number in 0..100 {
        let target = format!("/{number}");
        let response = exchange(&mut connection, post(&target, "body"));
        assert_eq!((response.status(), response.text()), (200, target));
        wait_until("the server has closed", || closed.len() == number + 1);
    }
    // The next request arrives before the proxy notices the end of the connection.
    for batch in 0..20 {
        let targets = [(); 10].map(|()| format!("/{batch}"));
        connection.send(targets.each_ref().map(|target| post(target, "body")).concat());
        for target in targets {
            let response = connection.expect_response();
            assert_eq!((response.status(), response.text()), (200, target));
        }
    }
    assert_eq!(origin.accepted(), 300);
}

pub(crate) fn connections_are_not_reused_after_their_announced_timeout(setup: &Setup) {
    let announcing = |timeout: u32| {
        Origin::new(move |mut peer| {
            while peer.request().is_some() {
                let lines = format!("Keep-Alive: timeout={timeout}\r\nContent-Length: 4");
                peer.connection.send(format!("HTTP/1.1 200 OK\r\n{lines}\r\n\r\nfine"));
            }
        })
    };
    let run = |timeout: u32, expected: usize| {
        let origin = announcing(timeout);
        let proxy = setup.proxy(&[origin.addr()], |_| ());
        let mut connection = proxy.connect();
        assert_eq!(exchange(&mut connection, post("/", "body")).text(), "fine");
        // The field has a resolution of a second.
        thread::sleep(ms(1200));
        assert_eq!(exchange(&mut connection, post("/", "body")).text(), "fine");
        assert_eq!(origin.accepted(), expected, "after Keep-Alive: timeout={timeout}");
    };
    thread::scope(|scope| {
        scope.spawn(|| run(100, 1));
        scope.spawn(|| run(1, 2));
    });
}
