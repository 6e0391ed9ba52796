//! Which server gets a request.

use std::collections::HashMap;
use std::num::{NonZeroU16, NonZeroU32};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use hearken_server::proxy::config::{
    Active, Address, Balance, HashKey, Passive, Server as Upstream, To, Upstreams,
};

use super::{ask, get, has, post, request};
use crate::harness::admin::admin;
use crate::harness::proxy::of;
use crate::harness::proxy::proxy_of;
use crate::harness::{HANG, Link, Origin, Way, eventually, ms};

/// Servers that answer with their number.
fn numbered(count: usize) -> Vec<Origin> {
    (0..count).map(|number| Origin::answering(move |_| number.to_string())).collect()
}

fn addrs(origins: &[Origin]) -> Vec<std::net::SocketAddr> {
    origins.iter().map(Origin::addr).collect()
}

fn times(link: &mut Link, count: usize) -> HashMap<String, usize> {
    let mut times = HashMap::new();
    for _ in 0..count {
        *times.entry(ask(link, get("/")).text()).or_default() += 1;
    }
    times
}

pub(crate) fn in_turn_by_weight(way: &Way) {
    let origins = numbered(3);
    let proxy = way.proxy(&addrs(&origins), |config| {
        of(config).servers[1].weight = NonZeroU16::new(2).unwrap();
    });
    let times = times(&mut proxy.connect(), 40);
    assert_eq!((times["0"], times["1"], times["2"]), (10, 20, 10));
}

pub(crate) fn the_fewest_in_flight(way: &Way) {
    let (go, gone) = mpsc::channel::<()>();
    let gone = Arc::new(Mutex::new(gone));
    let begun = Arc::new(AtomicBool::new(false));
    let hanging = |number: usize| {
        let (gone, begun) = (gone.clone(), begun.clone());
        Origin::answering(move |request| {
            if request.target() == "/hang" {
                begun.store(true, Ordering::SeqCst);
                let _ = gone.lock().unwrap().recv_timeout(HANG);
            }
            number.to_string()
        })
    };
    let origins = [hanging(0), hanging(1)];
    let proxy = way.proxy(&addrs(&origins), |config| of(config).policy = Balance::LeastConnections);
    let mut busy = proxy.connect();
    busy.send(get("/hang"));
    eventually("it is asked", || begun.load(Ordering::SeqCst));
    let times = times(&mut proxy.connect(), 10);
    assert_eq!(times.len(), 1, "{times:?}");
    go.send(()).unwrap();
    assert!(!times.contains_key(&busy.answer().text()), "the busy one had them");
}

pub(crate) fn the_same_for_the_same(way: &Way) {
    let origins = numbered(4);
    let proxy = way.proxy(&addrs(&origins), |config| {
        of(config).policy = Balance::Hash(HashKey::Field("X-Session".to_owned()));
    });
    let mut link = proxy.connect();
    let mut used = HashMap::new();
    for round in 0..3 {
        for session in 0..20 {
            let line = format!("X-Session: {session}\r\n");
            let server = ask(&mut link, request("GET", "/", &line)).text();
            let first = used.entry(session).or_insert_with(|| server.clone());
            assert_eq!(*first, server, "session {session}, round {round}");
        }
    }
    let servers: std::collections::HashSet<_> = used.values().collect();
    assert!(servers.len() > 1, "{used:?}");
}

pub(crate) fn reserves(way: &Way) {
    let failing = Arc::new(AtomicBool::new(false));
    let fails = failing.clone();
    let first = Origin::new(move |mut peer| {
        while peer.request().is_some() {
            if fails.load(Ordering::SeqCst) {
                return;
            }
            peer.answer("first");
        }
    });
    let backup = Origin::answering(|_| "backup".to_owned());
    let proxy = way.proxy(&[first.addr(), backup.addr()], |config| {
        of(config).servers[1].backup = true;
        of(config).passive = Some(Passive { failures: NonZeroU32::MIN, pause: HANG });
    });
    let mut link = proxy.connect();
    assert_eq!(times(&mut link, 5)["first"], 5);
    failing.store(true, Ordering::SeqCst);
    // It may have been done, so that it is not tried elsewhere.
    assert_eq!(ask(&mut link, post("/", "x")).status(), 502);
    eventually("the first is left out", || ask(&mut link, get("/")).text() == "backup");
    assert_eq!(times(&mut link, 5)["backup"], 5);
}

pub(crate) fn taken_out_and_put_back(way: &Way) {
    let origins = numbered(2);
    let proxy = way.proxy(&addrs(&origins), |config| {
        config.admin = Some(([127, 0, 0, 1], 0).into());
    });
    let mut link = proxy.connect();
    assert_eq!(times(&mut link, 4).len(), 2);
    let name = origins[0].addr().to_string();
    admin(&proxy, "POST", &format!("/upstreams/{name}/drain"));
    eventually("none goes there", || times(&mut link, 4).len() == 1);
    assert_eq!(times(&mut link, 4)["1"], 4);
    let told = admin(&proxy, "GET", "/upstreams");
    assert!(has(&told, "draining") && has(&told, &name), "{told}");
    admin(&proxy, "POST", &format!("/upstreams/{name}/ready"));
    eventually("some go there again", || times(&mut link, 4).len() == 2);
}

pub(crate) fn left_out_after_failures(way: &Way) {
    let refusing = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = refusing.local_addr().unwrap();
    drop(refusing);
    let origin = Origin::answering(|_| "here".to_owned());
    let proxy = way.proxy(&[addr, origin.addr()], |config| {
        of(config).passive = Some(Passive { failures: NonZeroU32::MIN, pause: ms(300) });
    });
    let mut link = proxy.connect();
    for _ in 0..10 {
        assert_eq!(ask(&mut link, get("/")).text(), "here");
    }
    // It comes back, and after the pause it is found.
    let back = Origin::at(addr, |mut peer| {
        while peer.request().is_some() {
            peer.answer("back");
        }
    });
    eventually("it is asked again", || ask(&mut link, get("/")).text() == "back");
    drop(back);
}

pub(crate) fn asked_whether_it_is_well(way: &Way) {
    let well = Arc::new(AtomicBool::new(true));
    let is = well.clone();
    let origin = Origin::new(move |mut peer| {
        while let Some(request) = peer.request() {
            if request.target() == "/health" && !is.load(Ordering::SeqCst) {
                peer.link.send("HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n");
            } else {
                peer.answer("here");
            }
        }
    });
    let proxy = way.proxy(&[origin.addr()], |config| {
        of(config).active = Some(Active {
            path: "/health".to_owned(),
            every: ms(20),
            fall: NonZeroU32::new(2).unwrap(),
            rise: NonZeroU32::new(2).unwrap(),
            ..Active::default()
        });
    });
    let mut link = proxy.connect();
    assert_eq!(ask(&mut link, get("/")).text(), "here");
    well.store(false, Ordering::SeqCst);
    eventually("it is down", || ask(&mut proxy.connect(), get("/")).status() == 503);
    well.store(true, Ordering::SeqCst);
    eventually("it is up", || ask(&mut proxy.connect(), get("/")).status() == 200);
}

pub(crate) fn by_its_name(way: &Way) {
    let origin = Origin::answering(|request| request.field("host").unwrap_or_default());
    let named = |name: &str| {
        let at = Address::Name(name.to_owned(), origin.addr().port());
        let to = To::Upstreams(Upstreams::new(vec![Upstream::new(at)]));
        way.to(to, |config| proxy_of(config).fields.keep_host = false)
    };
    let port = origin.addr().port();
    let here = named("localhost");
    let host = ask(&mut here.connect(), get("/")).text();
    assert_eq!(host, format!("localhost:{port}"));
    // RFC 6761: nobody has this name.
    let nowhere = named("nobody.invalid");
    let status = ask(&mut nowhere.connect(), get("/")).status();
    assert!(matches!(status, 502..=504), "{status}");
}
