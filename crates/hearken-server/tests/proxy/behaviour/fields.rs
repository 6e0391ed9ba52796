//! Fields that the proxy removes, adds and changes.

use std::time::{SystemTime, UNIX_EPOCH};

use hearken_http::forward::HeaderPolicy;
use hearken_http::parse_http_date;
use hearken_server::Config;

use super::{exchange, get, request};
use crate::common::server::proxy_config;
use crate::common::server::x_forwarded;
use crate::common::wire::Message;
use crate::common::{Origin, Recorder, Setup};

/// Starts an origin that records requests, and responds with these field lines.
fn recording(lines: &'static str) -> (Origin, Recorder<Message>) {
    let notes = Recorder::new();
    let seen = notes.clone();
    let origin = Origin::new(move |mut peer| {
        while let Some(request) = peer.request() {
            seen.add(request);
            peer.connection
                .send(format!("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n{lines}\r\nbody"));
        }
    });
    (origin, notes)
}

pub(crate) fn removes_hop_by_hop_fields(setup: &Setup) {
    let (origin, notes) = recording(
        "Connection: X-Mine, close\r\nX-Mine: 1\r\nKeep-Alive: timeout=1\r\n\
         Proxy-Authenticate: Basic\r\nX-Passed: 1\r\nUpgrade: h2c\r\nTrailer: X-Sum\r\n",
    );
    let proxy = setup.proxy(&[origin.addr()], |_| ());
    let mut connection = proxy.connect();
    let lines = "Connection: X-Mine, TE, x-passed-not\r\nX-Mine: 1\r\nTE: trailers\r\nX-Passed: 1\r\n\
                 Keep-Alive: 300\r\nProxy-Connection: keep-alive\r\nX-Passed-Not: 1\r\n\
                 Upgrade: websocket\r\nUser-Agent: it\r\n";
    let response = exchange(&mut connection, request("GET", "/", lines));
    assert_eq!(response.text(), "body");
    assert!(response.keeps(), "the client's connection is not persistent");
    for name in ["x-mine", "keep-alive", "upgrade"] {
        assert_eq!(response.field(name), None, "{response:?}");
    }
    assert_eq!(response.field("x-passed").as_deref(), Some("1"));
    let seen = notes.take().remove(0);
    for name in ["x-mine", "x-passed-not", "keep-alive", "proxy-connection", "upgrade"] {
        assert_eq!(seen.field(name), None, "{seen:?}");
    }
    assert_eq!(seen.field("x-passed").as_deref(), Some("1"));
    assert_eq!(seen.field("user-agent").as_deref(), Some("it"));
    assert!(!seen.names("x-mine") && !seen.names("x-passed-not"), "{seen:?}");
}

pub(crate) fn adds_date(setup: &Setup) {
    let (origin, _) = recording("");
    let proxy = setup.proxy(&[origin.addr()], |_| ());
    let date = exchange(&mut proxy.connect(), get("/")).field("date").unwrap();
    let recorded = parse_http_date(date.as_bytes()).unwrap();
    assert!(recorded.abs_diff(now()) < 60, "{date}");
    let (origin, _) = recording("Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n");
    let proxy = setup.proxy(&[origin.addr()], |_| ());
    let date = exchange(&mut proxy.connect(), get("/")).field("date");
    assert_eq!(date.as_deref(), Some("Thu, 01 Jan 1970 00:00:00 GMT"));
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

const ABOUT: &str = "X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: https\r\n\
                     X-Forwarded-Host: other.test\r\nForwarded: for=192.0.2.7;proto=https\r\n";

pub(crate) fn replaces_fields_about_the_client(setup: &Setup) {
    let (origin, notes) = recording("");
    let proxy = setup.proxy(&[origin.addr()], |_| ());
    exchange(&mut proxy.connect(), request("GET", "/", ABOUT));
    let seen = notes.take().remove(0);
    assert_eq!(seen.field("x-forwarded-for").as_deref(), Some("127.0.0.1"));
    assert_eq!(seen.field("x-forwarded-proto").as_deref(), Some("http"));
    assert_eq!(seen.field("x-forwarded-host").as_deref(), Some("site.test"));
    assert_eq!(seen.field("forwarded"), None);
}

pub(crate) fn appends_keeps_or_removes_fields_about_the_client(setup: &Setup) {
    let (origin, notes) = recording("");
    let with = |x_forwarded, forwarded| {
        let proxy = setup.proxy(&[origin.addr()], |config| {
            proxy_config(config).fields.x_forwarded = x_forwarded;
            proxy_config(config).fields.forwarded = forwarded;
        });
        exchange(&mut proxy.connect(), request("GET", "/", ABOUT));
        notes.take().remove(0)
    };
    let appended = with(HeaderPolicy::Append, HeaderPolicy::Append);
    assert_eq!(appended.field("x-forwarded-for").as_deref(), Some("192.0.2.7, 127.0.0.1"));
    let forwarded = appended.field("forwarded").unwrap();
    let added = forwarded.strip_prefix("for=192.0.2.7;proto=https, ");
    assert!(added.is_some_and(|added| super::has(added, "for=127.0.0.1")), "{forwarded}");
    let kept = with(HeaderPolicy::Keep, HeaderPolicy::Keep);
    assert_eq!(kept.field("x-forwarded-for").as_deref(), Some("192.0.2.7"));
    assert_eq!(kept.field("forwarded").as_deref(), Some("for=192.0.2.7;proto=https"));
    let none = with(HeaderPolicy::Remove, HeaderPolicy::Replace);
    assert!(!none.fields.iter().any(|(name, _)| name.starts_with("x-forwarded")), "{none:?}");
    let added = none.field("forwarded").unwrap();
    assert!(super::has(&added, "for=127.0.0.1") && !super::has(&added, "192.0.2.7"), "{added}");
}

pub(crate) fn sets_or_keeps_host(setup: &Setup) {
    let (origin, notes) = recording("");
    for keep in [true, false] {
        let proxy = setup
            .proxy(&[origin.addr()], |config| proxy_config(config).fields.preserve_host = keep);
        exchange(&mut proxy.connect(), get("/"));
        let host = if keep { "site.test".to_owned() } else { origin.addr().to_string() };
        assert_eq!(notes.take().remove(0).field("host"), Some(host));
        // The authority of the target overrides Host.
        exchange(&mut proxy.connect(), request("GET", "http://named.test/x", ""));
        let seen = notes.take().remove(0);
        let host = if keep { "named.test".to_owned() } else { origin.addr().to_string() };
        assert_eq!((seen.target(), seen.field("host")), ("/x", Some(host)), "{seen:?}");
    }
}

pub(crate) fn appends_via(setup: &Setup) {
    let (origin, notes) = recording("Via: 1.1 behind\r\n");
    let proxy =
        setup.proxy(&[origin.addr()], |config| proxy_config(config).fields.via = "it".to_owned());
    let response = exchange(&mut proxy.connect(), request("GET", "/", "Via: 1.0 before\r\n"));
    assert_eq!(response.field("via").as_deref(), Some("1.1 behind, 1.1 it"));
    assert_eq!(notes.take().remove(0).field("via").as_deref(), Some("1.0 before, 1.1 it"));
    let proxy =
        setup.proxy(&[origin.addr()], |config| proxy_config(config).fields.via = String::new());
    let response = exchange(&mut proxy.connect(), get("/"));
    assert_eq!(response.field("via").as_deref(), Some("1.1 behind"));
    assert_eq!(notes.take().remove(0).field("via"), None);
}

pub(crate) fn upgrades_http_1_0_requests(setup: &Setup) {
    let (origin, notes) = recording("");
    let proxy = setup.proxy(&[origin.addr()], |_| ());
    let mut connection = proxy.connect();
    // HTTP/1.0 requests may omit Host, HTTP/1.1 requests must not.
    let response = exchange(&mut connection, "GET / HTTP/1.0\r\n\r\n");
    assert_eq!(response.text(), "body");
    connection.assert_closed();
    let seen = notes.take().remove(0);
    assert!(seen.start.ends_with("HTTP/1.1") && seen.field("host").is_some(), "{seen:?}");
    assert!(seen.field("via").is_some_and(|via| via.starts_with("1.0 hearken-")), "{seen:?}");
}

pub(crate) fn answers_requests_with_max_forwards_zero(setup: &Setup) {
    let (origin, notes) = recording("");
    let proxy = setup.proxy(&[origin.addr()], |_| ());
    let with = |method: &str, target: &str, hops: &str| {
        request(method, target, &format!("Max-Forwards: {hops}\r\nCookie: secret\r\n"))
    };
    let mut connection = proxy.connect();
    assert_eq!(exchange(&mut connection, with("OPTIONS", "*", "0")).status(), 200);
    let traced = exchange(&mut proxy.connect(), with("TRACE", "/", "0"));
    assert!(!super::has(&traced.text(), "secret"), "{traced:?}");
    assert!(notes.take().is_empty(), "a request with Max-Forwards: 0 was forwarded");
    assert_eq!(exchange(&mut connection, with("OPTIONS", "/", "1")).text(), "body");
    let seen = notes.take().remove(0);
    assert_eq!((seen.method(), seen.field("max-forwards").as_deref()), ("OPTIONS", Some("0")));
    // Other methods ignore Max-Forwards.
    assert_eq!(exchange(&mut connection, with("GET", "/", "0")).text(), "body");
    assert_eq!(notes.take().remove(0).field("max-forwards").as_deref(), Some("0"));
}

pub(crate) fn unverified_fields_about_the_client(setup: &Setup) {
    const FIELDS: [(&str, &str); 7] = [
        ("x-real-ip", "192.0.2.7"),
        ("true-client-ip", "192.0.2.8"),
        ("x-forwarded-port", "4711"),
        ("x-forwarded-scheme", "wss"),
        ("x-forwarded-ssl", "on"),
        ("x-forwarded-prefix", "/prefix"),
        ("x-forwarded-server", "other.test"),
    ];
    let (origin, notes) = recording("");
    let lines: String = FIELDS.map(|(name, value)| format!("{name}: {value}\r\n")).concat();
    let with = |change: fn(&mut Config)| {
        let proxy = setup.proxy(&[origin.addr()], change);
        exchange(&mut proxy.connect(), request("GET", "/", &lines));
        notes.take().remove(0)
    };
    let changes: [fn(&mut Config); 2] =
        [|_| (), |config| x_forwarded(config, HeaderPolicy::Remove)];
    for change in changes {
        let seen = with(change);
        for (name, value) in FIELDS {
            let value_seen = seen.field(name).unwrap_or_default();
            assert!(!super::has(&value_seen, value), "{name} in {seen:?}");
        }
    }
    let changes: [fn(&mut Config); 2] = [
        |config| x_forwarded(config, HeaderPolicy::Keep),
        |config| x_forwarded(config, HeaderPolicy::Append),
    ];
    for change in changes {
        let seen = with(change);
        for (name, value) in FIELDS {
            assert_eq!(seen.field(name).as_deref(), Some(value), "{seen:?}");
        }
    }
}
