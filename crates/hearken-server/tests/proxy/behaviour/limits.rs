//! Limits, and waiting for room.

use std::num::NonZeroUsize;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::{ask, get, post, request};
use crate::harness::admin::admin;
use crate::harness::proxy::of;
use crate::harness::{HANG, Notes, Origin, Way, eventually, ms};

/// A server that answers when it is told to, and what it has been asked.
fn held() -> (Origin, mpsc::Sender<()>, Notes<String>) {
    let (go, gone) = mpsc::channel();
    let gone = Arc::new(Mutex::new(gone));
    let notes = Notes::new();
    let asked = notes.clone();
    let origin = Origin::answering(move |request| {
        asked.add(request.target().to_owned());
        let _ = gone.lock().unwrap().recv_timeout(HANG);
        request.target().to_owned()
    });
    (origin, go, notes)
}

pub(crate) fn requests_at_a_time(way: &Way) {
    let (origin, go, asked) = held();
    let proxy = way.proxy(&[origin.addr()], |config| {
        of(config).max_requests = NonZeroUsize::new(1);
        of(config).queue = 1;
    });
    let [mut first, mut second, mut third] = [(); 3].map(|()| proxy.connect());
    first.send(get("/1"));
    eventually("it is asked", || asked.len() == 1);
    second.send(get("/2"));
    // There is nothing to see of it, but that the third is one too many.
    assert!(!second.hears(ms(50)));
    let answer = ask(&mut third, get("/3"));
    assert_eq!((answer.status(), answer.keeps()), (503, true), "{answer:?}");
    assert_eq!(asked.len(), 1, "the server has more than it may");
    go.send(()).unwrap();
    assert_eq!(first.answer().text(), "/1");
    eventually("the second is asked", || asked.len() == 2);
    go.send(()).unwrap();
    assert_eq!(second.answer().text(), "/2");
    go.send(()).unwrap();
    assert_eq!(ask(&mut third, get("/4")).text(), "/4");
}

pub(crate) fn waiting_for_too_long(way: &Way) {
    let (origin, go, asked) = held();
    let proxy = way.proxy(&[origin.addr()], |config| {
        of(config).max_requests = NonZeroUsize::new(1);
        // Longer than it takes until it is looked again whether there is room.
        config.timeouts.queue = ms(600);
    });
    let [mut first, mut second] = [(); 2].map(|()| proxy.connect());
    first.send(get("/1"));
    eventually("it is asked", || asked.len() == 1);
    let since = Instant::now();
    assert_eq!(ask(&mut second, post("/2", "body")).status(), 503);
    assert!(since.elapsed() >= ms(550), "after {:?}", since.elapsed());
    go.send(()).unwrap();
    assert_eq!(first.answer().text(), "/1");
    go.send(()).unwrap();
    assert_eq!(ask(&mut first, get("/3")).text(), "/3");
    assert_eq!(asked.take(), ["/1", "/3"]);
}

pub(crate) fn waiting_until_a_server_is_back(way: &Way) {
    let (busy, go, asked) = held();
    let back = Origin::answering(|_| "back".to_owned());
    let proxy = way.proxy(&[busy.addr(), back.addr()], |config| {
        of(config).max_requests = NonZeroUsize::new(1);
        config.admin = Some(([127, 0, 0, 1], 0).into());
    });
    admin(&proxy, "POST", &format!("/upstreams/{}/drain", back.addr()));
    let [mut first, mut second] = [(); 2].map(|()| proxy.connect());
    first.send(get("/1"));
    eventually("it is asked", || asked.len() == 1);
    second.send(get("/2"));
    assert!(!second.hears(ms(50)));
    admin(&proxy, "POST", &format!("/upstreams/{}/ready", back.addr()));
    assert_eq!(second.answer().text(), "back");
    go.send(()).unwrap();
    assert_eq!(first.answer().text(), "/1");
}

pub(crate) fn a_queue_whose_clients_leave(way: &Way) {
    let (origin, go, asked) = held();
    let proxy = way.proxy(&[origin.addr()], |config| {
        of(config).max_requests = NonZeroUsize::new(1);
        of(config).queue = 2;
    });
    let [mut first, mut second, mut third, mut fourth] = [(); 4].map(|()| proxy.connect());
    first.send(get("/1"));
    eventually("it is asked", || asked.len() == 1);
    second.send(get("/2"));
    assert!(!second.hears(ms(50)));
    second.reset();
    third.send(get("/3"));
    assert!(!third.hears(ms(50)));
    fourth.send(get("/4"));
    assert!(!fourth.hears(ms(50)), "there is room for whom came after the one that left");
    for (link, target) in [(&mut first, "/1"), (&mut third, "/3"), (&mut fourth, "/4")] {
        go.send(()).unwrap();
        assert_eq!(link.answer().text(), target);
    }
    assert_eq!(asked.take(), ["/1", "/3", "/4"]);
}

pub(crate) fn bodies(way: &Way) {
    let seen = Notes::new();
    let notes = seen.clone();
    let origin = Origin::new(move |mut peer| {
        while let Some(request) = peer.request() {
            notes.add(request.body.len());
            peer.answer("whole");
        }
    });
    let proxy = way.proxy(&[origin.addr()], |config| config.body_limit = Some(1000));
    assert_eq!(ask(&mut proxy.connect(), post("/", &"x".repeat(1000))).text(), "whole");
    assert_eq!(ask(&mut proxy.connect(), post("/", &"x".repeat(1001))).status(), 413);
    let chunk = format!("1f4\r\n{}\r\n", "x".repeat(500));
    let chunked = |chunks: usize| {
        let body = format!("{}0\r\n\r\n", chunk.repeat(chunks));
        request("POST", "/", &format!("Transfer-Encoding: chunked\r\n\r\n{body}"))
    };
    assert_eq!(ask(&mut proxy.connect(), chunked(2)).text(), "whole");
    assert_eq!(ask(&mut proxy.connect(), chunked(3)).status(), 413);
    assert_eq!(ask(&mut proxy.connect(), chunked(300)).status(), 413);
    assert_eq!(seen.take(), [1000, 1000]);
}

pub(crate) fn heads(way: &Way) {
    let origin = Origin::answering(|_| "fine".to_owned());
    let proxy = way.proxy(&[origin.addr()], |_| ());
    let field = |size: usize| request("GET", "/", &format!("X: {}\r\n", "x".repeat(size)));
    assert_eq!(ask(&mut proxy.connect(), field(15_000)).text(), "fine");
    assert_eq!(ask(&mut proxy.connect(), field(20_000)).status(), 431);
    assert_eq!(ask(&mut proxy.connect(), get(&format!("/{}", "x".repeat(8000)))).text(), "fine");
    assert_eq!(ask(&mut proxy.connect(), get(&format!("/{}", "x".repeat(9000)))).status(), 414);
    let many = |count: usize| request("GET", "/", &"X: x\r\n".repeat(count));
    assert_eq!(ask(&mut proxy.connect(), many(98)).text(), "fine");
    assert_eq!(ask(&mut proxy.connect(), many(101)).status(), 431);
    // There is no end to it, so that its refusal has to reach who still sends.
    let mut endless = proxy.connect();
    endless.send(field(2 << 20));
    assert_eq!(endless.answer().status(), 431);
}
