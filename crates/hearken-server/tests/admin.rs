//! The admin address, as its clients and those of other sites find it.

use std::io::ErrorKind::WouldBlock;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hearken_server::admin::{self, Admin, NoSuch, What};
use hearken_server::proxy::servers::Order;
use hearken_server::runtime::metrics::{Metrics, UpstreamFigures};
use serde_json::{Value, json};

type Orders = Arc<Mutex<Vec<(String, Order)>>>;

struct Started {
    admin: Admin,
    orders: Orders,
    stopping: Arc<AtomicBool>,
}

fn start() -> Started {
    let orders = Orders::default();
    let stopping = Arc::<AtomicBool>::default();
    let (metrics, given) = (Metrics::new(1), Arc::clone(&orders));
    let what = What {
        metrics: Box::new(move |out| metrics.render(&[], out)),
        upstreams: Box::new(|| {
            let named = |name: &str| UpstreamFigures {
                name: name.to_owned(),
                state: "up",
                weight: 3,
                requests: 7,
                ..UpstreamFigures::default()
            };
            let last_failure = Some("connect: \"refused\"\n".to_owned());
            vec![named("127.0.0.1:9000"), UpstreamFigures { last_failure, ..named("/run/é.sock") }]
        }),
        order: Box::new(move |name, order| {
            if !["127.0.0.1:9000", "/run/é.sock"].contains(&name) {
                return Err(NoSuch);
            }
            given.lock().unwrap().push((name.to_owned(), order));
            Ok(())
        }),
        stopping: Arc::clone(&stopping),
    };
    let admin = admin::start("127.0.0.1:0".parse().unwrap(), what).unwrap();
    Started { admin, orders, stopping }
}

fn connect(admin: &Admin) -> TcpStream {
    let stream = TcpStream::connect(admin.addr()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

/// The head and the content that are answered to these bytes.
fn ask(admin: &Admin, request: &str) -> (String, String) {
    let mut stream = connect(admin);
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, content) = answer.split_once("\r\n\r\n").expect(&answer);
    if !request.starts_with("HEAD") {
        assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", content.len())), "{head}");
    }
    (head.to_owned(), content.to_owned())
}

fn request(admin: &Admin, line: &str, fields: &str) -> (String, String) {
    ask(admin, &format!("{line} HTTP/1.1\r\nHost: {}\r\n{fields}\r\n", admin.addr()))
}

fn status(answer: &(String, String)) -> u16 {
    answer.0["HTTP/1.1 ".len()..][..3].parse().unwrap()
}

#[test]
fn tells_what_there_is() {
    let it = start();
    let (head, page) = request(&it.admin, "GET /metrics", "");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(head.contains("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
    assert!(page.contains("\nhearken_connections_open{worker=\"0\"} 0\n"), "{page}");
    let (_, nothing) = request(&it.admin, "HEAD /metrics?x=1", "");
    assert_eq!(nothing, "");

    let (_, text) = request(&it.admin, "GET /upstreams", "");
    let upstreams: Value = serde_json::from_str(&text).unwrap();
    let first = json!({
        "name": "127.0.0.1:9000", "state": "up", "weight": 3, "requests": 7, "failures": 0,
        "in_flight": 0, "retries": 0, "checks_failed": 0, "last_failure": null,
    });
    assert_eq!(upstreams["upstreams"][0], first);
    assert_eq!(upstreams["upstreams"][1]["name"], "/run/é.sock");
    assert_eq!(upstreams["upstreams"][1]["last_failure"], "connect: \"refused\"\n");

    assert_eq!(request(&it.admin, "GET /healthz", "").1, "ok\n");
    it.stopping.store(true, Ordering::Release);
    let draining = request(&it.admin, "GET /healthz", "");
    assert_eq!((status(&draining), draining.1.as_str()), (503, "draining\n"));
}

#[test]
fn gives_orders() {
    let it = start();
    for (line, want) in [
        ("POST /upstreams/127.0.0.1:9000/drain", 200),
        ("POST /upstreams/127.0.0.1%3A9000/ready", 200),
        ("POST /upstreams/%2Frun%2F%c3%A9.sock/off", 200),
        ("POST /upstreams/127.0.0.1:9001/drain", 404),
        ("POST /upstreams/%2Frun%2F%c3.sock/off", 400),
        ("POST /upstreams/a%/off", 400),
        ("POST /upstreams/a%4/off", 400),
        ("POST /upstreams/a%+4/off", 400),
        ("POST /upstreams/127.0.0.1:9000/stop", 404),
        ("POST /upstreams/127.0.0.1:9000/drain/", 404),
        ("POST /upstreams/127.0.0.1:9000", 404),
        ("GET /upstreams/127.0.0.1:9000/drain", 405),
        ("PUT /upstreams/127.0.0.1:9000/drain", 405),
        ("POST /upstreams", 405),
        ("DELETE /metrics", 405),
        ("GET /", 404),
        ("GET /metrics/", 404),
        ("OPTIONS *", 404),
    ] {
        let answer = request(&it.admin, line, "Content-Length: 0\r\n");
        assert_eq!(status(&answer), want, "{line}: {answer:?}");
        let hint = match (want, line.ends_with("9001/drain")) {
            (404, true) => "127.0.0.1:9000\n",
            (404 | 405, _) => "GET /metrics\n",
            _ => "",
        };
        assert!(answer.1.contains(hint), "{line}: {answer:?}");
        assert_eq!(answer.0.contains("\r\nAllow: "), want == 405, "{line}: {answer:?}");
    }
    let want = [
        ("127.0.0.1:9000", Order::Drain),
        ("127.0.0.1:9000", Order::Ready),
        ("/run/é.sock", Order::Off),
    ];
    assert_eq!(*it.orders.lock().unwrap(), want.map(|(name, order)| (name.to_owned(), order)));
}

#[test]
fn pages_of_other_sites_give_no_orders() {
    let it = start();
    let port = it.admin.addr().port();
    let drain = |host: &str, fields: &str| {
        let line = "POST /upstreams/127.0.0.1:9000/drain HTTP/1.1\r\nHost: ";
        status(&ask(&it.admin, &format!("{line}{host}\r\n{fields}\r\n")))
    };
    let here = format!("127.0.0.1:{port}");
    for fields in [
        "Origin: http://evil.example\r\n".to_owned(),
        "Origin: null\r\n".to_owned(),
        "Origin:\r\n".to_owned(),
        format!("Origin: https://{here}\r\n"),
        format!("Origin: http://{here}.evil.example\r\n"),
        format!("Origin: http://{here}\r\nOrigin: http://evil.example\r\n"),
        "Sec-Fetch-Site: cross-site\r\n".to_owned(),
        "Sec-Fetch-Site: same-site\r\n".to_owned(),
        "sec-fetch-site: none\r\nSec-Fetch-Site: cross-site\r\n".to_owned(),
    ] {
        assert_eq!(drain(&here, &fields), 403, "{fields}");
    }
    for host in ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "", "127.1"]
    {
        assert_eq!(drain(host, ""), 403, "{host}");
        assert_eq!(drain(host, &format!("Origin: http://{host}\r\n")), 403, "{host}");
    }
    assert_eq!(it.orders.lock().unwrap().len(), 0);

    let own = format!("Origin: http://{here}\r\nSec-Fetch-Site: same-origin\r\n");
    assert_eq!(drain(&here, &own), 200);
    for host in ["localhost", "LOCALHOST:1", "[::1]", "[::1]:8", "10.0.0.1"] {
        assert_eq!(drain(host, "Sec-Fetch-Site: none\r\n"), 200, "{host}");
    }
}

#[test]
fn what_is_no_request_is_refused() {
    let it = start();
    let long = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(5_000));
    let many = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "A: b\r\n".repeat(100));
    let here = it.admin.addr();
    let body =
        format!("POST /upstreams/a/off HTTP/1.1\r\nHost: {here}\r\nContent-Length: 9\r\n\r\nx");
    for (bytes, want) in [("\0\r\n\r\n", 400), (&*long, 414), (&*many, 431), (&*body, 413)] {
        assert_eq!(status(&ask(&it.admin, bytes)), want);
    }
}

#[test]
fn nobody_is_kept_waiting_by_those_who_say_nothing() {
    let it = start();
    let silent: Vec<_> = (0..200)
        .map(|number| {
            let mut stream = connect(&it.admin);
            stream.write_all(&b"GET /metrics HTTP/1.1\r\n"[..number % 20]).unwrap();
            stream
        })
        .collect();
    // Long before the first of them has used up its time.
    assert_eq!(request(&it.admin, "GET /healthz", "").1, "ok\n");
    drop(silent);
    // Bytes one by one, and a peer that has ended its side.
    let mut stream = connect(&it.admin);
    for byte in format!("GET /healthz HTTP/1.1\r\nHost: {}\r\n\r\n", it.admin.addr()).bytes() {
        stream.write_all(&[byte]).unwrap();
    }
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("\r\n\r\nok\n"), "{answer}");
}

#[test]
fn it_ends_when_it_is_dropped_whoever_is_connected() {
    let it = start();
    let mut silent = connect(&it.admin);
    assert_eq!(request(&it.admin, "GET /healthz", "").1, "ok\n");
    let addr = it.admin.addr();
    drop(it);
    // Ended or reset, not just silent.
    let read = silent.read(&mut [0]);
    assert!(!matches!(&read, Ok(1)) && !matches!(&read, Err(error) if error.kind() == WouldBlock));
    assert!(TcpStream::connect(addr).is_err());
}
