//! The admin address: its responses, its rules against other sites, and slow or idle clients.

use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use hearken::timer::Time;
use hearken_server::admin::{self, SideServer};
use hearken_server::runtime::administration::{
    AdminSources, NoSuchUpstream, UpstreamCommand, UpstreamControl,
};
use hearken_server::runtime::metrics::{Metrics, UpstreamStats};
use serde_json::{Value, json};

use crate::common::client::Response;
use crate::common::{Client, TEST_TIMEOUT};

/// The names of the upstream servers.
const NAMES: [&str; 2] = ["127.0.0.1:9000", "/run/é.sock"];

/// Two upstream servers, and the orders that they received.
#[derive(Default)]
struct Recorder {
    orders: Mutex<Vec<(String, UpstreamCommand)>>,
}

impl UpstreamControl for Recorder {
    fn stats(&self, _: Time) -> Vec<UpstreamStats> {
        let last_failure = Some("connect: \"refused\"\n".to_owned());
        let figures = |name: &str, last_failure| UpstreamStats {
            name: name.to_owned(),
            state: "up",
            weight: 3,
            requests: 7,
            last_failure,
            ..UpstreamStats::default()
        };
        vec![figures(NAMES[0], None), figures(NAMES[1], last_failure)]
    }

    fn apply(&self, name: &str, order: UpstreamCommand, _: Time) -> Result<(), NoSuchUpstream> {
        if !NAMES.contains(&name) {
            return Err(NoSuchUpstream);
        }
        self.orders.lock().unwrap().push((name.to_owned(), order));
        Ok(())
    }
}

struct TestAdmin {
    admin: SideServer,
    upstreams: Arc<Recorder>,
    stopping: Arc<AtomicBool>,
}

fn start() -> TestAdmin {
    let metrics = Metrics::new(1);
    start_with(move |_, out| metrics.render(&[], out))
}

fn start_with(metrics: impl Fn(Time, &mut String) + Send + Sync + 'static) -> TestAdmin {
    let upstreams = Arc::<Recorder>::default();
    let stopping = Arc::<AtomicBool>::default();
    let sources = AdminSources {
        metrics: Box::new(metrics),
        upstreams: vec![upstreams.clone()],
        stopping: Arc::clone(&stopping),
    };
    let admin = admin::start("127.0.0.1:0".parse().unwrap(), sources).unwrap();
    TestAdmin { admin, upstreams, stopping }
}

/// Sends a request on a connection of its own, after which the server must close the connection.
fn exchange(admin: &SideServer, request: &str) -> Response {
    let mut client = Client::connect(admin.addr());
    client.send(request);
    client.shutdown_write();
    let response = if request.starts_with("HEAD") { client.head() } else { client.response() };
    assert!(response.field("Content-Length").is_some(), "{response:?}");
    client.assert_closed();
    response
}

fn request(admin: &SideServer, line: &str, fields: &str) -> Response {
    exchange(admin, &format!("{line} HTTP/1.1\r\nHost: {}\r\n{fields}\r\n", admin.addr()))
}

fn text(response: &Response) -> &str {
    std::str::from_utf8(&response.body).unwrap()
}

#[test]
fn responds_at_each_endpoint() {
    let test = start();
    let metrics = request(&test.admin, "GET /metrics", "");
    assert_eq!(metrics.status, 200);
    let content_type = metrics.field("Content-Type");
    assert_eq!(content_type, Some("text/plain; version=0.0.4; charset=utf-8"));
    let page = text(&metrics);
    assert!(page.contains("\nhearken_connections_open{worker=\"0\"} 0\n"), "{page}");
    assert_eq!(request(&test.admin, "HEAD /metrics?x=1", "").status, 200);

    let upstreams = request(&test.admin, "GET /upstreams", "");
    let upstreams: Value = serde_json::from_slice(&upstreams.body).unwrap();
    let first = json!({
        "name": "127.0.0.1:9000", "state": "up", "weight": 3, "requests": 7, "failures": 0,
        "in_flight": 0, "retries": 0, "checks_failed": 0, "last_failure": null,
    });
    assert_eq!(upstreams["upstreams"][0], first);
    assert_eq!(upstreams["upstreams"][1]["name"], "/run/é.sock");
    assert_eq!(upstreams["upstreams"][1]["last_failure"], "connect: \"refused\"\n");

    assert_eq!(request(&test.admin, "GET /healthz", "").body, b"ok\n");
    test.stopping.store(true, Ordering::Release);
    let draining = request(&test.admin, "GET /healthz", "");
    assert_eq!((draining.status, text(&draining)), (503, "draining\n"));
}

#[test]
fn passes_orders_to_upstreams() {
    let test = start();
    for (line, expected) in [
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
        let response = request(&test.admin, line, "Content-Length: 0\r\n");
        assert_eq!(response.status, expected, "{line}: {response:?}");
        let hint = match (expected, line.ends_with("9001/drain")) {
            (404, true) => "127.0.0.1:9000\n",
            (404 | 405, _) => "GET /metrics\n",
            _ => "",
        };
        assert!(text(&response).contains(hint), "{line}: {response:?}");
        assert_eq!(response.field("Allow").is_some(), expected == 405, "{line}: {response:?}");
    }
    let expected = [
        ("127.0.0.1:9000", UpstreamCommand::Drain),
        ("127.0.0.1:9000", UpstreamCommand::Ready),
        ("/run/é.sock", UpstreamCommand::Off),
    ];
    assert_eq!(
        *test.upstreams.orders.lock().unwrap(),
        expected.map(|(name, order)| (name.to_owned(), order))
    );
}

#[test]
fn rejects_requests_caused_by_other_sites() {
    let test = start();
    let port = test.admin.addr().port();
    let drain = |host: &str, fields: &str| {
        let line = "POST /upstreams/127.0.0.1:9000/drain HTTP/1.1\r\nHost: ";
        exchange(&test.admin, &format!("{line}{host}\r\n{fields}\r\n")).status
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
    assert_eq!(test.upstreams.orders.lock().unwrap().len(), 0);

    let own = format!("Origin: http://{here}\r\nSec-Fetch-Site: same-origin\r\n");
    assert_eq!(drain(&here, &own), 200);
    for host in ["localhost", "LOCALHOST:1", "[::1]", "[::1]:8", "10.0.0.1"] {
        assert_eq!(drain(host, "Sec-Fetch-Site: none\r\n"), 200, "{host}");
    }
}

#[test]
fn rejects_malformed_requests() {
    let test = start();
    let long = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(5_000));
    let many = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "A: b\r\n".repeat(100));
    let here = test.admin.addr();
    let body =
        format!("POST /upstreams/a/off HTTP/1.1\r\nHost: {here}\r\nContent-Length: 9\r\n\r\nx");
    for (bytes, expected) in [("\0\r\n\r\n", 400), (&*long, 414), (&*many, 431), (&*body, 413)] {
        assert_eq!(exchange(&test.admin, bytes).status, expected);
    }
}

#[test]
fn silent_clients_do_not_block_others() {
    let test = start();
    let silent: Vec<_> = (0..200)
        .map(|number| {
            let mut client = connect(&test.admin);
            client.send(&b"GET /metrics HTTP/1.1\r\n"[..number % 20]);
            client
        })
        .collect();
    // This response is due before the first client times out.
    assert_eq!(request(&test.admin, "GET /healthz", "").body, b"ok\n");
    drop(silent);
    // A request byte by byte, from a client that then shuts down its side.
    let mut client = connect(&test.admin);
    for byte in format!("GET /healthz HTTP/1.1\r\nHost: {}\r\n\r\n", test.admin.addr()).bytes() {
        client.send([byte]);
    }
    client.shutdown_write();
    assert_eq!(client.response().body, b"ok\n");
    client.assert_closed();
}

#[test]
fn dropping_the_server_closes_all_connections() {
    let test = start();
    let mut silent = connect(&test.admin);
    assert_eq!(request(&test.admin, "GET /healthz", "").body, b"ok\n");
    let addr = test.admin.addr();
    drop(test);
    silent.drain();
    assert!(TcpStream::connect(addr).is_err());
}

/// Returns a client whose requests name a local host.
fn connect(admin: &SideServer) -> Client {
    Client::connect(admin.addr())
}

fn send_get(client: &mut Client, path: &str) {
    client.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
}

/// Returns the body of the next response, which must be successful.
fn read_body(client: &mut Client) -> Vec<u8> {
    let response = client.response();
    assert_eq!(response.status, 200, "{response:?}");
    response.body
}

/// Returns the content at a path, over a persistent connection.
fn get(client: &mut Client, path: &str) -> Vec<u8> {
    send_get(client, path);
    read_body(client)
}

#[test]
fn connections_are_persistent() {
    let test = start();
    let mut client = connect(&test.admin);
    assert_eq!(get(&mut client, "/healthz"), b"ok\n");
    assert!(get(&mut client, "/upstreams").starts_with(b"{\"upstreams\":"));
    // Two requests in one segment, the first with empty content.
    let both = "POST /upstreams/127.0.0.1:9000/off HTTP/1.1\r\nHost: localhost\r\n\
        Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: [::1]\r\n\r\n";
    client.send(both);
    assert_eq!(read_body(&mut client), b"off\n");
    assert_eq!(read_body(&mut client), b"ok\n");

    client.send(b"GET /healthz HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_eq!(read_body(&mut client), b"ok\n");
    client.send(b"GET /healthz HTTP/1.0\r\n\r\n");
    assert_eq!(read_body(&mut client), b"ok\n");
    client.assert_closed();
}

#[test]
fn closes_the_longest_idle_connection_for_a_new_one() {
    let test = start();
    let mut idle: Vec<_> = (0..64).map(|_| connect(&test.admin)).collect();
    for client in &mut idle {
        assert_eq!(get(client, "/healthz"), b"ok\n");
    }
    assert_eq!(get(&mut idle[0], "/healthz"), b"ok\n");
    let mut another = connect(&test.admin);
    assert_eq!(get(&mut another, "/healthz"), b"ok\n");
    idle[1].assert_closed();
    for index in [0, 2, 63] {
        assert_eq!(get(&mut idle[index], "/healthz"), b"ok\n");
    }
}

#[test]
fn slow_readers_do_not_delay_others() {
    // The page exceeds the buffers of a connection.
    let page = "x".repeat(32 << 20);
    let expected = page.clone();
    let test = start_with(move |_, out| out.push_str(&page));
    let mut slow = connect(&test.admin);
    send_get(&mut slow, "/metrics");
    send_get(&mut slow, "/healthz");
    // The response has begun.
    assert!(slow.is_readable_within(TEST_TIMEOUT));
    let mut other = connect(&test.admin);
    assert_eq!(get(&mut other, "/healthz"), b"ok\n");
    assert!(read_body(&mut slow) == expected.as_bytes());
    assert_eq!(read_body(&mut slow), b"ok\n");
    assert_eq!(get(&mut slow, "/healthz"), b"ok\n");
}
