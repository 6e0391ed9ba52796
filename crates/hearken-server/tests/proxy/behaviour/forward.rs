//! The forward proxy: absolute targets and CONNECT.

use std::net::SocketAddr;

use hearken_server::proxy::config::{Forward, ProxyMode, Rule};

use super::tunnels::echo_all;
use super::{exchange, request};
use crate::common::{End, Kind, Origin, Recorder, Refusing, RunningServer, Setup, content};

fn proxy(setup: &Setup, change: impl FnOnce(&mut Forward)) -> RunningServer {
    let mut forward = Forward {
        allow: vec![Rule::Network([127, 0, 0, 0].into(), 8)],
        keepalive: 10,
        ..Forward::default()
    };
    change(&mut forward);
    setup.proxy_to(ProxyMode::Forward(forward), |_| ())
}

fn absolute(addr: SocketAddr, path: &str) -> String {
    request("GET", &format!("http://{addr}{path}"), "Proxy-Authorization: Basic eDp5\r\n")
}

pub(crate) fn forwards_absolute_targets(setup: &Setup) {
    let notes = Recorder::new();
    let seen = notes.clone();
    let serve = move |request: &crate::common::Message| {
        seen.add(request.clone());
        request.target().to_owned()
    };
    let (one, other) = (Origin::responding(serve.clone()), Origin::responding(serve));
    let proxy = proxy(setup, |_| ());
    let mut connection = proxy.connect();
    for origin in [&one, &other, &one] {
        assert_eq!(exchange(&mut connection, absolute(origin.addr(), "/a?b")).text(), "/a?b");
        let seen = notes.take().remove(0);
        assert_eq!(seen.field("host"), Some(origin.addr().to_string()), "{seen:?}");
        assert_eq!(seen.field("proxy-authorization"), None, "{seen:?}");
        assert!(seen.field("via").is_some(), "{seen:?}");
    }
    assert_eq!(exchange(&mut connection, absolute(one.addr(), "")).text(), "/");
    assert_eq!(one.accepted(), 1, "the connection is not reused");
    let port = one.addr().port();
    let named = request("GET", &format!("http://localhost:{port}/name"), "");
    assert_eq!(exchange(&mut connection, named).text(), "/name");
    let refusing = Refusing::new();
    assert_eq!(exchange(&mut connection, absolute(refusing.addr, "/")).status(), 502);
}

fn connect(to: impl std::fmt::Display) -> String {
    format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n")
}

pub(crate) fn opens_connect_tunnels(setup: &Setup) {
    let origin = Origin::new(|mut peer| echo_all(&mut peer));
    let port = origin.addr().port();
    let proxy = proxy(setup, |forward| forward.connect_ports = vec![port]);
    let mut connection = proxy.connect();
    connection.send(connect(origin.addr()));
    let response = connection.final_response(Kind::Bodiless).expect("a response");
    assert_eq!(response.status(), 200);
    assert!(
        response.field("content-length").is_none() && response.field("transfer-encoding").is_none()
    );
    for round in 0..4 {
        connection.send(content(round, 1 << 20));
        assert!(connection.read_raw(1 << 20) == content(round, 1 << 20));
    }
    connection.shutdown_write();
    assert_eq!(connection.drain(), (0, End::Closed));
    // Bytes directly after the head belong to the tunnel.
    let mut connection = proxy.connect();
    connection.send(format!("{}GET / HTTP/1.1\r\n\r\n", connect(format!("localhost:{port}"))));
    assert_eq!(
        connection.final_response(Kind::Bodiless).map(|response| response.status()),
        Some(200)
    );
    assert_eq!(connection.read_raw(18), b"GET / HTTP/1.1\r\n\r\n");
}

pub(crate) fn rejects_disallowed_targets(setup: &Setup) {
    let origin = Origin::responding(|_| "forwarded".to_owned());
    let addr = origin.addr();
    let port = addr.port();
    let local = proxy(setup, |forward| forward.allow.clear());
    let status =
        |proxy: &RunningServer, request: String| exchange(&mut proxy.connect(), request).status();
    // This host is not a public address, so requests to it must be allowed explicitly.
    assert_eq!(status(&local, absolute(addr, "/")), 403);
    for host in ["localhost", "127.1", "2130706433", "0x7f.1", "[::1]", "[::ffff:127.0.0.1]", "0"] {
        let response_status = status(&local, request("GET", &format!("http://{host}:{port}/"), ""));
        assert!(matches!(response_status, 400 | 403 | 502), "{host}: {response_status}");
    }
    // Allowing the name does not allow its private address.
    let named = proxy(setup, |forward| forward.allow = vec![Rule::Name("localhost".to_owned())]);
    assert_eq!(status(&named, request("GET", &format!("http://localhost:{port}/"), "")), 403);
    let open = proxy(setup, |_| ());
    assert_eq!(status(&open, connect(addr)), 403, "the port is not allowed for tunnels");
    assert_eq!(status(&open, request("GET", "/", "")), 400, "a target without an authority");
    assert_eq!(status(&open, request("GET", "ftp://a/", "")), 400);
    assert_eq!(status(&open, request("GET", &format!("http://u@{addr}/"), "")), 400);
    let denied = proxy(setup, |forward| forward.deny = vec![Rule::Name("localhost".to_owned())]);
    assert_eq!(status(&denied, request("GET", &format!("http://LocalHost:{port}/"), "")), 403);
    let denied =
        proxy(setup, |forward| forward.deny = vec![Rule::Network([127, 0, 0, 1].into(), 32)]);
    assert_eq!(status(&denied, absolute(addr, "/")), 403);
    assert_eq!(origin.accepted(), 0);
    // A reverse proxy rejects CONNECT.
    let reverse = setup.proxy(&[addr], |_| ());
    assert_eq!(status(&reverse, connect(addr)), 405);
    assert_eq!(origin.accepted(), 0);
}
