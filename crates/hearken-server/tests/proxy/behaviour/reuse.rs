//! Connections to servers: kept, raced, and tried again.

use std::net::TcpListener;
use std::num::{NonZeroU16, NonZeroU32};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use hearken_server::proxy::config::{Address, Balance, HashKey, Server as Upstream, To, Upstreams};

use super::{ask, get, post, request};
use crate::harness::proxy::of;
use crate::harness::{HANG, Notes, Origin, Way, content, eventually, ms};

pub(crate) fn connections_are_kept(way: &Way) {
    let origin = Origin::answering(|request| request.target().to_owned());
    let proxy = way.proxy(&[origin.addr()], |_| ());
    for client in 0..3 {
        let mut link = proxy.connect();
        for number in 0..5 {
            let target = format!("/{client}/{number}");
            assert_eq!(ask(&mut link, get(&target)).text(), target);
            assert_eq!(ask(&mut link, post(&target, "body")).text(), target);
        }
    }
    assert_eq!(origin.accepted(), 1, "connections to the server for one request at a time");
}

pub(crate) fn none_is_kept_where_none_may_be(way: &Way) {
    let origin = Origin::answering(|request| request.field("connection").unwrap_or_default());
    let proxy = way.proxy(&[origin.addr()], |config| of(config).keep = 0);
    let mut link = proxy.connect();
    for _ in 0..3 {
        let answer = ask(&mut link, get("/"));
        assert_eq!(answer.text(), "close", "the server is to know that it is the last request");
        assert!(answer.keeps(), "the client's connection has nothing to do with it");
    }
    assert_eq!(origin.accepted(), 3);
}

pub(crate) fn no_more_are_kept_than_may_be(way: &Way) {
    let (go, gone) = mpsc::channel::<()>();
    let gone = Arc::new(Mutex::new(gone));
    let (asked, ended) = (Notes::new(), Notes::new());
    let (asks, ends) = (asked.clone(), ended.clone());
    let origin = Origin::new(move |mut peer| {
        while let Some(request) = peer.request() {
            asks.add(());
            if request.target() == "/hold" {
                let _ = gone.lock().unwrap().recv_timeout(HANG);
            }
            peer.answer("fine");
        }
        ends.add(());
    });
    let proxy = way.proxy(&[origin.addr()], |config| of(config).keep = 3);
    let mut clients: Vec<_> = (0..10).map(|_| proxy.connect()).collect();
    clients.iter_mut().for_each(|link| link.send(get("/hold")));
    eventually("all are asked", || asked.len() == 10);
    drop(go);
    for link in &mut clients {
        assert_eq!(link.answer().text(), "fine");
    }
    eventually("seven are closed", || ended.len() == 7);
    for link in &mut clients {
        assert_eq!(ask(link, get("/")).text(), "fine");
    }
    assert_eq!((origin.accepted(), ended.len()), (10, 7), "the others are used");
}

/// A server that closes a connection as its second request comes.
fn closing_at_the_second(notes: &Notes<String>) -> Origin {
    let notes = notes.clone();
    Origin::new(move |mut peer| {
        let Some(request) = peer.request() else { return };
        notes.add(request.start.clone());
        peer.answer(request.target());
        if let Some(request) = peer.request() {
            notes.add(request.start);
        }
    })
}

pub(crate) fn closed_as_it_is_used_again(way: &Way) {
    let notes = Notes::new();
    let origin = closing_at_the_second(&notes);
    let proxy = way.proxy(&[origin.addr()], |_| ());
    let mut link = proxy.connect();
    assert_eq!(ask(&mut link, get("/1")).text(), "/1");
    // Nobody can tell that it was asked twice.
    assert_eq!(ask(&mut link, get("/2")).text(), "/2");
    assert_eq!(origin.accepted(), 2);
    notes.take();
    // It may have been done, so it is not done again.
    let answer = ask(&mut link, post("/3", "x"));
    assert_eq!(answer.status(), 502, "{answer:?}");
    assert_eq!(notes.take(), ["POST /3 HTTP/1.1"]);
    assert_eq!(ask(&mut link, post("/4", "x")).text(), "/4", "one on a new connection is");
}

/// However often it may be tried, a request is sent twice at most.
pub(crate) fn closed_again_and_again(way: &Way) {
    let notes = Notes::new();
    let noted = notes.clone();
    let origin = Origin::new(move |mut peer| {
        while let Some(request) = peer.request() {
            noted.add(request.target().to_owned());
            if request.target() == "/2" {
                return;
            }
            peer.answer(request.target());
        }
    });
    let proxy = way.proxy(&[origin.addr()], |config| {
        of(config).tries = NonZeroU32::new(5).unwrap();
        of(config).passive = None;
    });
    let mut link = proxy.connect();
    assert_eq!(ask(&mut link, get("/1")).text(), "/1");
    assert_eq!(ask(&mut link, get("/2")).status(), 502);
    assert_eq!(ask(&mut link, get("/3")).text(), "/3");
    assert_eq!(notes.take(), ["/1", "/2", "/2", "/3"]);
}

/// What a server sends on a kept connection is no answer to the next request.
pub(crate) fn what_nobody_asked_for(way: &Way) {
    let closed = Arc::new(AtomicUsize::new(0));
    let counted = closed.clone();
    let origin = Origin::new(move |mut peer| {
        let Some(request) = peer.request() else { return };
        peer.answer(request.target());
        peer.answer("stale");
        assert!(peer.request().is_none());
        counted.fetch_add(1, Ordering::SeqCst);
    });
    let proxy = way.proxy(&[origin.addr()], |_| ());
    let mut link = proxy.connect();
    for number in 0..5 {
        let target = format!("/{number}");
        assert_eq!(ask(&mut link, get(&target)).text(), target);
        eventually("the connection is closed", || closed.load(Ordering::SeqCst) == number + 1);
    }
}

/// Neither where it lies in the socket, behind what was moved from there within the kernel.
pub(crate) fn what_nobody_asked_for_behind_a_long_body(way: &Way) {
    let body = content(1, 1 << 20);
    let origin = Origin::new(move |mut peer| {
        while let Some(request) = peer.request() {
            if request.target() != "/long" {
                peer.answer(request.target());
                continue;
            }
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            let stale = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nstale";
            peer.link.send([head.as_bytes(), body, stale].concat());
        }
    });
    let proxy = way.proxy(&[origin.addr()], |_| ());
    let mut link = proxy.connect();
    for number in 0..20 {
        assert!(ask(&mut link, get("/long")).body == body);
        let target = format!("/{number}");
        assert_eq!(ask(&mut link, get(&target)).text(), target);
    }
}

pub(crate) fn an_answer_before_its_request_is_whole(way: &Way) {
    let origin = Origin::new(|mut peer| {
        peer.link.receive_until(|reader| {
            let _ = reader.advance();
            reader.has_head()
        });
        peer.answer("early");
        peer.request();
    });
    let proxy = way.proxy(&[origin.addr()], |_| ());
    let mut link = proxy.connect();
    link.send(request("POST", "/", "Content-Length: 10\r\n\r\n12345"));
    assert_eq!(link.answer().text(), "early", "before the body has come");
    // What follows may be the rest of the body, or not: nothing of it is a request.
    link.send("67890");
    link.send(get("/next"));
    if let Some(answer) = link.response(crate::harness::Kind::Response) {
        assert_eq!(answer.text(), "early");
    }
}

/// An address at which nobody listens.
fn nobody() -> std::net::SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

pub(crate) fn refused_and_tried_elsewhere(way: &Way) {
    let origin = Origin::answering(|_| "here".to_owned());
    let proxy = way.proxy(&[nobody(), origin.addr()], |config| of(config).passive = None);
    let mut link = proxy.connect();
    for _ in 0..6 {
        // Nobody has had the request, so that any can be tried again.
        assert_eq!(ask(&mut link, post("/", "body")).text(), "here");
        assert_eq!(ask(&mut link, get("/")).text(), "here");
    }
}

pub(crate) fn nobody_listens(way: &Way) {
    let proxy = way.proxy(&[nobody(), nobody()], |config| of(config).passive = None);
    let mut link = proxy.connect();
    for _ in 0..3 {
        let answer = ask(&mut link, get("/"));
        assert_eq!((answer.status(), answer.keeps()), (502, true), "{answer:?}");
        let answer = ask(&mut proxy.connect(), post("/", "x"));
        assert_eq!(answer.status(), 502, "{answer:?}");
    }
}

pub(crate) fn closed_and_tried_elsewhere(way: &Way) {
    let seen = Notes::new();
    let notes = seen.clone();
    let failing = Origin::new(move |mut peer| {
        if let Some(request) = peer.request() {
            notes.add(request.method().to_owned());
        }
    });
    let done = Notes::new();
    let notes = done.clone();
    let origin = Origin::answering(move |request| {
        notes.add(request.method().to_owned());
        "here".to_owned()
    });
    let proxy = way.proxy(&[failing.addr(), origin.addr()], |config| of(config).passive = None);
    let mut link = proxy.connect();
    for _ in 0..6 {
        assert_eq!(ask(&mut link, get("/")).text(), "here");
    }
    seen.take();
    done.take();
    let answers: Vec<u16> = (0..6).map(|_| ask(&mut link, post("/", "x")).status()).collect();
    let failed = answers.iter().filter(|&&status| status == 502).count();
    assert_eq!(seen.take().len(), failed, "{answers:?}: each is asked once");
    assert_eq!(done.take().len(), answers.len() - failed, "{answers:?}: each is asked once");
}

/// A server that is ending may close its connections before it stops to accept.
pub(crate) fn closed_by_a_server_that_is_ending(way: &Way) {
    let ending = Arc::new(AtomicBool::new(false));
    let ends = ending.clone();
    let first = Origin::new(move |mut peer| {
        while peer.request().is_some() && !ends.load(Ordering::SeqCst) {
            peer.answer("first");
        }
    });
    let second = Origin::answering(|_| "second".to_owned());
    let proxy = way.proxy(&[first.addr(), second.addr()], |config| {
        // So that it would be its turn again.
        of(config).servers[0].weight = NonZeroU16::new(100).unwrap();
        of(config).passive = None;
    });
    let mut link = proxy.connect();
    assert_eq!(ask(&mut link, get("/")).text(), "first");
    ending.store(true, Ordering::SeqCst);
    assert_eq!(ask(&mut link, get("/")).text(), "second");
}

/// Where requests belong to a server, they are not taken to another for a connection that was closed.
pub(crate) fn closed_and_tried_where_it_belongs(way: &Way) {
    let origins = [(); 2].map(|()| {
        let notes = Notes::new();
        (closing_at_the_second(&notes), notes)
    });
    let addrs = [origins[0].0.addr(), origins[1].0.addr()];
    let proxy = way.proxy(&addrs, |config| of(config).policy = Balance::Hash(HashKey::Target));
    let mut link = proxy.connect();
    for _ in 0..4 {
        assert_eq!(ask(&mut link, get("/")).text(), "/");
    }
    let asked = origins.map(|(_, notes)| notes.len());
    assert!(asked.contains(&0), "{asked:?}");
}

pub(crate) fn at_a_socket_in_the_file_system(way: &Way) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let origin = Origin::unix(&path, |mut peer| {
        while let Some(request) = peer.request() {
            peer.answer(&format!("{} {}", request.target(), request.body.len()));
        }
    });
    let at = Upstream::new(Address::Unix(path));
    let proxy = way.to(To::Upstreams(Upstreams::new(vec![at])), |_| ());
    let mut link = proxy.connect();
    assert_eq!(ask(&mut link, get("/a")).text(), "/a 0");
    let body = "x".repeat(300_000);
    assert_eq!(ask(&mut link, post("/b", &body)).text(), "/b 300000");
    assert_eq!(origin.accepted(), 1);
}

/// A server that closes each connection with its first response, in the same packet, and does not
/// announce it.
fn closing_silently() -> (Origin, Notes<()>) {
    let notes = Notes::new();
    let closed = notes.clone();
    let origin = Origin::new(move |mut peer| {
        let Some(request) = peer.request() else { return };
        // What is not full waits for the end.
        peer.link.cork();
        peer.answer(request.target());
        drop(peer);
        closed.add(());
    });
    (origin, notes)
}

pub(crate) fn silently_closed_connections_are_not_reused(way: &Way) {
    let (origin, closed) = closing_silently();
    let proxy = way.proxy(&[origin.addr()], |config| of(config).passive = None);
    let mut link = proxy.connect();
    for number in 0..200 {
        let target = format!("/{number}");
        let answer = ask(&mut link, post(&target, "body"));
        assert_eq!((answer.status(), answer.text()), (200, target));
        eventually("the server has closed", || closed.len() == number + 1);
    }
    // The next request is there before the end of the connection is noticed.
    for batch in 0..20 {
        let targets = [(); 10].map(|()| format!("/{batch}"));
        link.send(targets.each_ref().map(|target| post(target, "body")).concat());
        for target in targets {
            let answer = link.answer();
            assert_eq!((answer.status(), answer.text()), (200, target));
        }
    }
    assert_eq!(origin.accepted(), 400);
}

pub(crate) fn connections_are_not_reused_after_their_announced_timeout(way: &Way) {
    let announcing = |timeout: u32| {
        Origin::new(move |mut peer| {
            while peer.request().is_some() {
                let lines = format!("Keep-Alive: timeout={timeout}\r\nContent-Length: 4");
                peer.link.send(format!("HTTP/1.1 200 OK\r\n{lines}\r\n\r\nfine"));
            }
        })
    };
    for (timeout, connections) in [(100, 1), (1, 2)] {
        let origin = announcing(timeout);
        let proxy = way.proxy(&[origin.addr()], |_| ());
        let mut link = proxy.connect();
        assert_eq!(ask(&mut link, post("/", "body")).text(), "fine");
        std::thread::sleep(ms(1300));
        assert_eq!(ask(&mut link, post("/", "body")).text(), "fine");
        assert_eq!(origin.accepted(), connections, "after Keep-Alive: timeout={timeout}");
    }
}
