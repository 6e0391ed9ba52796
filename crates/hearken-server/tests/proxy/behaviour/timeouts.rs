//! What is waited for, and for how long.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Mutex, mpsc};
use std::time::Instant;

use hearken_server::Config;
use hearken_server::proxy::config::{Forward, HalfClose, To};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use super::{ask, get, request};
use crate::harness::proxy::proxy_of;
use crate::harness::proxy::{limit_uploads, of, request_timeout, request_timeout_of};
use crate::harness::{End, HANG, Kind, Notes, Origin, Peer, Way, eventually, ms};

pub(crate) fn as_a_whole(way: &Way) {
    let origin = Origin::new(|mut peer| {
        let Some(request) = peer.request() else { return };
        let link = &mut peer.link;
        if request.target() == "/half" {
            link.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nhalf");
        }
        // A byte now and then keeps the other time-outs away.
        while link.end.is_none() && !link.hears(ms(20)) {
            link.send(if request.target() == "/half" { "x" } else { "HTTP/1.1 103 x\r\n\r\n" });
        }
    });
    let proxy = way.proxy(&[origin.addr()], |config| {
        proxy_of(config).timeouts.whole = ms(400);
        proxy_of(config).timeouts.response = ms(10_000);
    });
    let since = Instant::now();
    assert_eq!(ask(&mut proxy.connect(), get("/none")).status(), 504);
    assert!(since.elapsed() >= ms(350), "after {:?}", since.elapsed());
    let mut link = proxy.connect();
    link.send(get("/half"));
    assert!(link.message().is_none());
    assert!(link.reader.has_head() && matches!(link.end, Some(End::Closed | End::Reset)));
    assert!(link.reader.message().text().starts_with("half"));
}

pub(crate) fn between_requests(way: &Way) {
    let origin = Origin::answering(|_| "fine".to_owned());
    let proxy = way.proxy(&[origin.addr()], |config| config.timeouts.idle = ms(300));
    let mut link = proxy.connect();
    ask(&mut link, get("/"));
    let since = Instant::now();
    assert_eq!(link.ending(), Ok(End::Closed));
    assert!(since.elapsed() >= ms(100), "after {:?}", since.elapsed());
}

pub(crate) fn trickling_heads(way: &Way) {
    let origin = Origin::answering(|_| "fine".to_owned());
    let proxy = way.proxy(&[origin.addr()], |config| config.timeouts.head = ms(400));
    let mut link = proxy.connect();
    link.send("GET / HTTP/1.1\r\nHost: a\r\nX: ");
    let since = Instant::now();
    while !link.hears(ms(30)) {
        link.send("x");
        assert!(since.elapsed() < HANG, "it can be trickled for ever");
    }
    assert_eq!(link.answer().status(), 408);
    link.ends();
    // The next one on a connection, too.
    let mut link = proxy.connect();
    ask(&mut link, get("/"));
    link.send("GET / HTTP/1.1\r\n");
    assert_eq!(link.answer().status(), 408);
}

/// A server that accepts nobody: its queue is full.
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

pub(crate) fn connecting(way: &Way) {
    let full = Full::new();
    let proxy = way.proxy(&[full.addr], |config| {
        proxy_of(config).timeouts.connect = ms(300);
        of(config).passive = None;
    });
    let since = Instant::now();
    assert_eq!(ask(&mut proxy.connect(), get("/")).status(), 504);
    assert!(since.elapsed() >= ms(250), "after {:?}", since.elapsed());
    // Where there is another, it is asked.
    let origin = Origin::answering(|_| "here".to_owned());
    let proxy = way.proxy(&[full.addr, origin.addr()], |config| {
        proxy_of(config).timeouts.connect = ms(200);
        of(config).passive = None;
    });
    let mut link = proxy.connect();
    for _ in 0..3 {
        assert_eq!(ask(&mut link, get("/")).text(), "here");
    }
}

pub(crate) fn an_upload_that_nobody_takes(way: &Way) {
    // Its receive buffer fills, then ours, and no time-out but this one ends it.
    let (done, ended) = mpsc::channel::<()>();
    let ended = Mutex::new(ended);
    let origin = Origin::new(move |_peer| {
        let _ = ended.lock().unwrap().recv_timeout(HANG);
    });
    let proxy = way.proxy(&[origin.addr()], |config| proxy_of(config).timeouts.send = ms(400));
    let mut link = proxy.connect();
    link.send(request("PUT", "/", "Content-Length: 1000000000\r\n\r\n"));
    let block = vec![b'x'; 1 << 20];
    while !link.hears(ms(0)) && !link.broken {
        link.send(&block);
    }
    assert_eq!(link.answer().status(), 504);
    drop(done);
}

/// Begins an answer that is very long, with `some` of it.
fn begin_answer(peer: &mut Peer, some: usize) {
    peer.link.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n");
    peer.link.send(vec![b'x'; some]);
}

pub(crate) fn a_download_that_nobody_takes(way: &Way) {
    let told = Notes::new();
    let tells = told.clone();
    let origin = Origin::new(move |mut peer| {
        peer.request();
        begin_answer(&mut peer, 0);
        let block = vec![b'x'; 1 << 16];
        while !peer.link.broken {
            peer.link.send(&block);
        }
        tells.add(());
    });
    let proxy = way.proxy(&[origin.addr()], |config| {
        config.timeouts.send = ms(300);
        config.min_rate = 0;
    });
    let mut link = proxy.connect().receiving(4096);
    link.send(get("/"));
    eventually("the server is told that nobody takes it", || told.len() == 1);
    // What is on its way, the client's system has, in as little room as it gave it.
    drop(link);
}

pub(crate) fn a_download_that_is_taken_too_slowly(way: &Way) {
    let origin = Origin::new(|mut peer| {
        peer.request();
        begin_answer(&mut peer, 0);
        let block = vec![b'x'; 1 << 16];
        while !peer.link.broken {
            peer.link.send(&block);
        }
    });
    let proxy = way.proxy(&[origin.addr()], |config| {
        config.timeouts.send = ms(300);
        config.min_rate = 1 << 30;
    });
    let mut link = proxy.connect().receiving(4096);
    link.send(get("/"));
    // It takes some in every span, and too little.
    assert_eq!(link.drain().1, End::Reset);
}

pub(crate) fn a_download_that_comes_slowly(way: &Way) {
    const SOME: usize = 100_000;
    let (done, ended) = mpsc::channel::<()>();
    let ended = Mutex::new(ended);
    let origin = Origin::new(move |mut peer| {
        peer.request();
        begin_answer(&mut peer, SOME);
        let _ = ended.lock().unwrap().recv_timeout(HANG);
    });
    let proxy = way.proxy(&[origin.addr()], |config| {
        config.timeouts.send = ms(1000);
        config.min_rate = 1 << 30;
    });
    let mut stream = TcpStream::connect(proxy.addr()).unwrap();
    sockopt::set_socket_recv_buffer_size(&stream, 4096).unwrap();
    stream.write_all(get("/").as_bytes()).unwrap();
    // There is always some that it has not taken, and never so much that more has to wait.
    let since = Instant::now();
    while since.elapsed() < ms(2300) {
        let read = stream.read(&mut [0; 1024]);
        assert!(matches!(read, Ok(1..)), "{read:?} after {:?}", since.elapsed());
        std::thread::sleep(ms(40));
    }
    drop(done);
}

pub(crate) fn both_ways_at_once(way: &Way) {
    const SOME: usize = 200_000;
    let origin = Origin::new(|mut peer| {
        peer.head();
        begin_answer(&mut peer, SOME);
        peer.link.drain();
    });
    let proxy = way.proxy(&[origin.addr()], |config| {
        let timeouts = &mut config.timeouts;
        (timeouts.send, timeouts.body) = (ms(300), ms(300));
        let timeouts = &mut proxy_of(config).timeouts;
        (timeouts.send, timeouts.response_body) = (ms(300), ms(300));
    });
    let mut link = proxy.connect();
    link.send(request("PUT", "/", "Content-Length: 1000000000\r\n\r\n"));
    link.send(vec![b'x'; SOME]);
    // Each has what there was, and owes the rest.
    assert!(matches!(link.drain().1, End::Closed | End::Reset));
}

pub(crate) fn clients_that_have_left_with_more_to_ask(way: &Way) {
    const SOME: usize = 200_000;
    let told = Notes::new();
    let tells = told.clone();
    let origin = Origin::new(move |mut peer| {
        let Some(request) = peer.request() else { return };
        if request.target() == "/some" {
            begin_answer(&mut peer, SOME);
        }
        tells.add("asked");
        peer.link.drain();
        tells.add("left");
    });
    let proxy = way.proxy(&[origin.addr()], |_| ());
    for (target, some) in [("/none", 0), ("/some", SOME)] {
        let mut link = proxy.connect();
        link.send(get(target).repeat(2));
        eventually("it is asked", || told.len() == 1);
        link.raw(some);
        link.reset();
        eventually("the server is told", || told.len() == 2);
        told.take();
    }
}

pub(crate) fn half_closed_clients_that_have_left(way: &Way) {
    let told = Notes::new();
    let tells = told.clone();
    let origin = Origin::new(move |mut peer| {
        peer.request();
        tells.add("asked");
        peer.link.drain();
        tells.add("left");
    });
    let proxy = way.proxy(&[origin.addr()], |config| config.half_close = HalfClose::Left);
    let mut link = proxy.connect();
    link.send(get("/"));
    eventually("it is asked", || told.len() == 1);
    link.end_sending();
    link.ends();
    eventually("the server is told", || told.len() == 2);
}

/// Uploads a byte every 30 ms until the proxy ends it, and returns the status of the response. The
/// server has begun its response if `early`, reads to the end, and sees its connection close.
fn upload_slowly(way: &Way, early: bool, change: impl FnOnce(&mut Config)) -> Option<u16> {
    const BEGUN: &str = "early";
    let closed = Notes::new();
    let notes = closed.clone();
    let origin = Origin::new(move |mut peer| {
        peer.head();
        if early {
            peer.link.send(format!("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{BEGUN}"));
        }
        peer.link.drain();
        notes.add(());
    });
    let proxy = way.proxy(&[origin.addr()], change);
    let mut link = proxy.connect();
    link.send(request("PUT", "/", "Content-Length: 1000000\r\n\r\n"));
    if early {
        link.receive_until(|reader| {
            reader.advance().is_err() || reader.message().body.len() == BEGUN.len()
        });
    }
    let since = Instant::now();
    while !link.hears(ms(30)) {
        assert!(since.elapsed() < ms(5000), "it goes on at a byte every 30 ms");
        link.send("x");
    }
    let status = link.response(Kind::Response).map(|response| response.status());
    link.drain();
    assert!(matches!(link.end, Some(End::Closed | End::Reset)), "{:?}", link.end);
    eventually("the server's connection is closed", || closed.len() == 1);
    status
}

pub(crate) fn uploads_below_the_minimum_rate_end(way: &Way) {
    let limit = |config: &mut Config| limit_uploads(config, 10_000, ms(400));
    let status = upload_slowly(way, false, limit);
    assert!(matches!(status, None | Some(408)), "{status:?}");
    assert_eq!(upload_slowly(way, true, limit), None);
}

pub(crate) fn slow_uploads_end_at_the_request_timeout(way: &Way) {
    let limit = |config: &mut Config| {
        limit_uploads(config, 1, HANG);
        request_timeout(config, ms(400));
    };
    assert_eq!(upload_slowly(way, false, limit), Some(408));
    assert_eq!(upload_slowly(way, true, limit), None);
    let default = way.config(To::Anywhere(Forward::default()));
    assert!(!request_timeout_of(&default).is_zero(), "there is no request timeout by default");
}

pub(crate) fn uploads_wait_for_a_slow_server(way: &Way) {
    const SIZE: usize = 16 << 20;
    let origin = Origin::new(|mut peer| {
        peer.head();
        // The proxy stops reading from the client, whose rate is then nobody's fault but ours.
        std::thread::sleep(ms(1500));
        let whole = peer.request().unwrap();
        peer.answer(&whole.body.len().to_string());
    });
    let proxy = way.proxy(&[origin.addr()], |config| limit_uploads(config, 100_000, ms(400)));
    let mut link = proxy.connect();
    link.send(request("PUT", "/", &format!("Content-Length: {SIZE}\r\n\r\n")));
    link.send(vec![b'x'; SIZE]);
    assert_eq!(link.answer().text(), SIZE.to_string());
}
