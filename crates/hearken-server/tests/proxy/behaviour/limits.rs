//! Limits, and waiting for room.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use hearken_server::Config;
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt,
};

use super::{ask, get, post, request};
use crate::harness::admin::admin;
use crate::harness::proxy::proxy_of;
use crate::harness::proxy::{limit_connections, listen_on, of, via};
use crate::harness::{HANG, Link, Notes, Origin, Proxy, Way, eventually, ms};

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
        proxy_of(config).timeouts.queue = ms(600);
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
    let proxy = way.proxy(&[origin.addr()], |config| proxy_of(config).body_limit = Some(1000));
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

/// Connects a new client, which is served at once.
fn admitted(proxy: &Proxy) -> Link {
    let mut link = proxy.connect();
    link.send(get("/new"));
    assert!(link.hears(ms(5000)), "a new client waits while connections are idle");
    assert_eq!(link.answer().text(), "/new");
    link
}

/// Sends a request on a connection that is still open.
fn is_served(link: &mut Link) {
    assert!(!link.hears(ms(0)), "a connection was closed that was not idle longest");
    assert_eq!(ask(link, get("/")).text(), "/");
    // The next connection becomes idle at a later time, whatever the resolution of the clock.
    std::thread::sleep(ms(20));
}

pub(crate) fn the_longest_idle_connection_makes_room(way: &Way) {
    let origin = Origin::answering(|request| request.target().to_owned());
    let proxy = way.proxy(&[origin.addr()], |config| limit_connections(config, 3));
    let [mut first, mut second, mut third] = [(); 3].map(|()| proxy.connect());
    for link in [&mut first, &mut second, &mut third] {
        is_served(link);
    }
    // Neither the order of accepting nor that of descriptors.
    is_served(&mut first);
    let mut fourth = admitted(&proxy);
    second.ends();
    is_served(&mut first);
    is_served(&mut fourth);
    let mut fifth = admitted(&proxy);
    third.ends();
    for link in [&mut first, &mut fourth, &mut fifth] {
        is_served(link);
    }
}

pub(crate) fn silent_connections_make_room(way: &Way) {
    let origin = Origin::answering(|request| request.target().to_owned());
    let proxy = way.proxy(&[origin.addr()], |config| limit_connections(config, 3));
    let [mut first, mut second] = [(); 2].map(|()| proxy.connect());
    // Accepted after the two before it.
    let mut third = admitted(&proxy);
    let mut fourth = admitted(&proxy);
    first.ends();
    for link in [&mut second, &mut third, &mut fourth] {
        is_served(link);
    }
}

pub(crate) fn requests_in_flight_are_not_closed(way: &Way) {
    let (origin, go, asked) = held();
    let proxy = way.proxy(&[origin.addr()], |config| limit_connections(config, 2));
    let mut busy = [("/1", proxy.connect()), ("/2", proxy.connect())];
    for (target, link) in &mut busy {
        link.send(get(target));
    }
    eventually("both are asked", || asked.len() == 2);
    let mut new = proxy.connect();
    new.send(get("/3"));
    assert!(!new.hears(ms(200)), "served beyond the limit");
    assert_eq!(asked.len(), 2, "served beyond the limit");
    go.send(()).unwrap();
    eventually("one is answered", || busy.iter().any(|(_, link)| link.hears(ms(0))));
    if !busy[0].1.hears(ms(0)) {
        busy.reverse();
    }
    let [(target, first), (other, second)] = &mut busy;
    assert_eq!(first.answer().text(), *target);
    go.send(()).unwrap();
    go.send(()).unwrap();
    assert!(new.hears(ms(5000)), "a new client waits though a response has ended");
    assert_eq!(new.answer().text(), "/3");
    assert_eq!(second.answer().text(), *other);
    first.ends();
}

/// After a refusal the proxy reads on only so far that the response is not lost.
pub(crate) fn lingering_close_is_bounded_in_bytes(way: &Way) {
    let origin = Origin::answering(|_| "fine".to_owned());
    let proxy = way.proxy(&[origin.addr()], |config| proxy_of(config).body_limit = Some(1000));
    let refused = [
        "no request\r\n\r\n".to_owned(),
        request("POST", "/", "Content-Length: 1000000000000\r\n"),
    ];
    for bytes in refused {
        let mut link = proxy.connect();
        link.send(bytes);
        let block = vec![b'x'; 1 << 18];
        while link.takes(HANG) {
            link.send_some(&block);
            // Most of it may be in the buffers of the two sockets.
            assert!(link.sent < 48 << 20, "it reads whatever comes");
        }
        assert!(link.is_gone(), "it is not closed");
    }
}

/// A proxy to itself, as `change` has it. The listening socket takes the port from one that is only
/// bound.
fn to_itself(way: &Way, change: impl FnOnce(&mut Config)) -> Proxy {
    let flags = SocketFlags::CLOEXEC;
    let bound = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
    sockopt::set_socket_reuseaddr(&bound, true).unwrap();
    bind(&bound, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let addr = SocketAddr::try_from(getsockname(&bound).unwrap()).unwrap();
    way.proxy(&[addr], |config| {
        listen_on(config, addr);
        // Without a bound of its own the loop ends here, and long before descriptors run out.
        limit_connections(config, 200);
        proxy_of(config).timeouts.response = ms(3000);
        change(config);
    })
}

pub(crate) fn a_loop_is_answered_with_508(way: &Way) {
    let proxy = to_itself(way, |_| ());
    assert_eq!(ask(&mut proxy.connect(), get("/")).status(), 508);
    assert_eq!(ask(&mut proxy.connect(), post("/", "body")).status(), 508);
}

pub(crate) fn a_loop_without_via_is_answered_with_508(way: &Way) {
    let proxy = to_itself(way, |config| via(config, ""));
    assert_eq!(ask(&mut proxy.connect(), get("/")).status(), 508);
}
