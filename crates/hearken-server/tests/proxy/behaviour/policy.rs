//! Selection of upstream servers.

use std::collections::HashMap;
use std::num::{NonZeroU16, NonZeroU32};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use hearken_server::proxy::config::{
    Address, Balance, HashKey, HealthCheck, PassiveChecks, ProxyMode, Server as Upstream, Upstreams,
};

use super::{exchange, get, has, post, request};
use crate::common::admin::admin;
use crate::common::server::proxy_config;
use crate::common::server::upstreams_config;
use crate::common::{Connection, Origin, Refusing, Setup, TEST_TIMEOUT, ms, wait_until};

/// Starts origins that respond with their number.
fn numbered(count: usize) -> Vec<Origin> {
    (0..count).map(|number| Origin::responding(move |_| number.to_string())).collect()
}

fn addrs(origins: &[Origin]) -> Vec<std::net::SocketAddr> {
    origins.iter().map(Origin::addr).collect()
}

fn times(connection: &mut Connection, count: usize) -> HashMap<String, usize> {
    let mut times = HashMap::new();
    for _ in 0..count {
        *times.entry(exchange(connection, get("/")).text()).or_default() += 1;
    }
    times
}

pub(crate) fn round_robin_follows_weights(setup: &Setup) {
    let origins = numbered(3);
    let proxy = setup.proxy(&addrs(&origins), |config| {
        upstreams_config(config).servers[1].weight = NonZeroU16::new(2).unwrap();
    });
    let times = times(&mut proxy.connect(), 40);
    assert_eq!((times["0"], times["1"], times["2"]), (10, 20, 10));
}

pub(crate) fn least_connections_selects_the_idle_server(setup: &Setup) {
    let (go, gone) = mpsc::channel::<()>();
    let gone = Arc::new(Mutex::new(gone));
    let begun = Arc::new(AtomicBool::new(false));
    let hanging = |number: usize| {
        let (gone, begun) = (gone.clone(), begun.clone());
        Origin::responding(move |request| {
            if request.target() == "/hang" {
                begun.store(true, Ordering::SeqCst);
                let _ = gone.lock().unwrap().recv_timeout(TEST_TIMEOUT);
            }
            number.to_string()
        })
    };
    let origins = [hanging(0), hanging(1)];
    let proxy = setup.proxy(&addrs(&origins), |config| {
        upstreams_config(config).balance = Balance::LeastConnections;
    });
    let mut busy = proxy.connect();
    busy.send(get("/hang"));
    wait_until("the request reaches the origin", || begun.load(Ordering::SeqCst));
    let times = times(&mut proxy.connect(), 10);
    assert_eq!(times.len(), 1, "{times:?}");
    go.send(()).unwrap();
    assert!(!times.contains_key(&busy.expect_response().text()), "the busy server was selected");
}

pub(crate) fn hashing_maps_equal_keys_to_one_server(setup: &Setup) {
    let origins = numbered(4);
    let proxy = setup.proxy(&addrs(&origins), |config| {
        upstreams_config(config).balance = Balance::Hash(HashKey::Field("X-Session".to_owned()));
    });
    let mut connection = proxy.connect();
    let mut used = HashMap::new();
    for round in 0..3 {
        for session in 0..20 {
            let line = format!("X-Session: {session}\r\n");
            let server = exchange(&mut connection, request("GET", "/", &line)).text();
            let first = used.entry(session).or_insert_with(|| server.clone());
            assert_eq!(*first, server, "session {session}, round {round}");
        }
    }
    let servers: std::collections::HashSet<_> = used.values().collect();
    assert!(servers.len() > 1, "{used:?}");
}

pub(crate) fn backup_servers_are_used_after_failures(setup: &Setup) {
    let failing = Arc::new(AtomicBool::new(false));
    let fails = failing.clone();
    let first = Origin::new(move |mut peer| {
        while peer.request().is_some() {
            if fails.load(Ordering::SeqCst) {
                return;
            }
            peer.respond("first");
        }
    });
    let backup = Origin::responding(|_| "backup".to_owned());
    let proxy = setup.proxy(&[first.addr(), backup.addr()], |config| {
        upstreams_config(config).servers[1].backup = true;
        upstreams_config(config).passive =
            Some(PassiveChecks { max_fails: NonZeroU32::MIN, fail_timeout: TEST_TIMEOUT });
    });
    let mut connection = proxy.connect();
    assert_eq!(times(&mut connection, 5)["first"], 5);
    failing.store(true, Ordering::SeqCst);
    // An unsafe request may have been processed, so it is not sent to another server.
    assert_eq!(exchange(&mut connection, post("/", "x")).status(), 502);
    wait_until("the first server is paused", || {
        exchange(&mut connection, get("/")).text() == "backup"
    });
    assert_eq!(times(&mut connection, 5)["backup"], 5);
}

pub(crate) fn administrators_drain_and_restore_servers(setup: &Setup) {
    let origins = numbered(2);
    let proxy = setup.proxy(&addrs(&origins), |config| {
        config.admin = Some(([127, 0, 0, 1], 0).into());
    });
    let mut connection = proxy.connect();
    assert_eq!(times(&mut connection, 4).len(), 2);
    let name = origins[0].addr().to_string();
    admin(&proxy, "POST", &format!("/upstreams/{name}/drain"));
    wait_until("the drained server gets no requests", || times(&mut connection, 4).len() == 1);
    assert_eq!(times(&mut connection, 4)["1"], 4);
    let page = admin(&proxy, "GET", "/upstreams");
    assert!(has(&page, "draining") && has(&page, &name), "{page}");
    admin(&proxy, "POST", &format!("/upstreams/{name}/ready"));
    wait_until("the restored server gets requests", || times(&mut connection, 4).len() == 2);
}

pub(crate) fn failed_servers_are_paused_and_tried_again(setup: &Setup) {
    let refusing = Refusing::new();
    let origin = Origin::responding(|_| "here".to_owned());
    let proxy = setup.proxy(&[refusing.addr, origin.addr()], |config| {
        upstreams_config(config).passive =
            Some(PassiveChecks { max_fails: NonZeroU32::MIN, fail_timeout: ms(200) });
    });
    let mut connection = proxy.connect();
    for _ in 0..10 {
        assert_eq!(exchange(&mut connection, get("/")).text(), "here");
    }
    // The server returns, and is tried after the pause.
    let back = refusing.listen(|mut peer| {
        while peer.request().is_some() {
            peer.respond("back");
        }
    });
    wait_until("the server is used again", || exchange(&mut connection, get("/")).text() == "back");
    drop(back);
}

pub(crate) fn health_checks_take_servers_down_and_up(setup: &Setup) {
    let healthy = Arc::new(AtomicBool::new(true));
    let is_healthy = healthy.clone();
    let origin = Origin::new(move |mut peer| {
        while let Some(request) = peer.request() {
            if request.target() == "/health" && !is_healthy.load(Ordering::SeqCst) {
                peer.connection.send("HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n");
            } else {
                peer.respond("here");
            }
        }
    });
    let proxy = setup.proxy(&[origin.addr()], |config| {
        upstreams_config(config).health = Some(HealthCheck {
            path: "/health".to_owned(),
            interval: ms(20),
            fall: NonZeroU32::new(2).unwrap(),
            rise: NonZeroU32::new(2).unwrap(),
            ..HealthCheck::default()
        });
    });
    let mut connection = proxy.connect();
    assert_eq!(exchange(&mut connection, get("/")).text(), "here");
    healthy.store(false, Ordering::SeqCst);
    wait_until("the server is down", || exchange(&mut proxy.connect(), get("/")).status() == 503);
    healthy.store(true, Ordering::SeqCst);
    wait_until("the server is up", || exchange(&mut proxy.connect(), get("/")).status() == 200);
}

pub(crate) fn resolves_server_names(setup: &Setup) {
    let origin = Origin::responding(|request| request.field("host").unwrap_or_default());
    let named = |name: &str| {
        let at = Address::Name(name.to_owned(), origin.addr().port());
        let to = ProxyMode::Reverse(Upstreams::new(vec![Upstream::new(at)]));
        setup.proxy_to(to, |config| proxy_config(config).fields.preserve_host = false)
    };
    let port = origin.addr().port();
    let here = named("localhost");
    let host = exchange(&mut here.connect(), get("/")).text();
    assert_eq!(host, format!("localhost:{port}"));
    // RFC 6761: names in .invalid have no address.
    let nowhere = named("unknown.invalid");
    let status = exchange(&mut nowhere.connect(), get("/")).status();
    assert!(matches!(status, 502..=504), "{status}");
}
