//! How a proxy ends.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Instant;

use super::tunnels::{agreeing, echo_all};
use super::{ask, get, post, request};
use crate::harness::{End, HANG, Notes, Origin, Way, eventually, ms};

pub(crate) fn finishes_what_is_in_flight(way: &Way) {
    let (go, gone) = mpsc::channel::<()>();
    let gone = Arc::new(Mutex::new(gone));
    let asked = Notes::new();
    let seen = asked.clone();
    let origin = Origin::answering(move |request| {
        seen.add(request.start.clone());
        let _ = gone.lock().unwrap().recv_timeout(HANG);
        "x".repeat(100_000)
    });
    let proxy = way.proxy(&[origin.addr()], |_| ());
    let (mut one, mut other) = (proxy.connect(), proxy.connect());
    one.send(get("/"));
    other.send(post("/", "body"));
    eventually("both are asked", || asked.len() == 2);
    let stopper = proxy.stopper();
    stopper.stop();
    drop(go);
    for link in [&mut one, &mut other] {
        let answer = link.answer();
        assert_eq!((answer.status(), answer.body.len()), (200, 100_000));
        assert!(!answer.keeps(), "the client is to know that it is the last: {answer:?}");
        link.ends();
    }
    proxy.end();
}

pub(crate) fn idle_clients_are_let_go(way: &Way) {
    let origin = Origin::answering(|_| "fine".to_owned());
    let proxy = way.proxy(&[origin.addr()], |_| ());
    let mut clients: Vec<_> = (0..20).map(|_| proxy.connect()).collect();
    for link in &mut clients[..10] {
        ask(link, get("/"));
    }
    let since = Instant::now();
    proxy.end();
    assert!(since.elapsed() < HANG / 4, "it took {:?}", since.elapsed());
    for link in &mut clients[..10] {
        assert_eq!(link.ending(), Ok(End::Closed));
    }
    // Those that have said nothing may have been in the queue of the listening socket.
    clients[10..].iter_mut().for_each(crate::harness::Link::ends);
}

pub(crate) fn grace_ends(way: &Way) {
    let origin = Origin::new(|mut peer| {
        peer.request();
        peer.link.drain();
    });
    let proxy = way.proxy(&[origin.addr()], |config| config.loops.grace = ms(300));
    let mut link = proxy.connect();
    link.send(get("/"));
    eventually("it is asked", || origin.accepted() == 1);
    let since = Instant::now();
    proxy.end();
    assert!(since.elapsed() >= ms(200), "after {:?}", since.elapsed());
    assert!(since.elapsed() < HANG / 4, "after {:?}", since.elapsed());
    link.ends();
}

pub(crate) fn a_tunnel_is_cut_when_grace_ends(way: &Way) {
    let origin = agreeing(echo_all);
    let proxy = way.proxy(&[origin.addr()], |config| config.loops.grace = ms(300));
    let mut link = proxy.connect();
    let lines = "Connection: Upgrade\r\nUpgrade: echo\r\n";
    assert_eq!(ask(&mut link, request("GET", "/", lines)).status(), 101);
    proxy.stopper().stop();
    link.send("still");
    assert_eq!(link.raw(5), b"still");
    let since = Instant::now();
    proxy.end();
    assert!(since.elapsed() < HANG / 4, "after {:?}", since.elapsed());
    link.drain();
    origin.end();
}
