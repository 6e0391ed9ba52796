//! The admin address: its responses, its rules against other sites, and slow or idle clients.

use std::io::ErrorKind::WouldBlock;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hearken_server::admin::{self, AdminServer};
use hearken_server::runtime::administration::{NoSuchUpstream, Order, Sources, Upstreams};
use hearken_server::runtime::metrics::{Metrics, UpstreamFigures};
use serde_json::{Value, json};

/// The names of the upstream servers.
const NAMES: [&str; 2] = ["127.0.0.1:9000", "/run/é.sock"];

/// Two upstream servers, and the orders that they received.
#[derive(Default)]
struct Recorder {
    orders: Mutex<Vec<(String, Order)>>,
}

impl Upstreams for Recorder {
    fn figures(&self) -> Vec<UpstreamFigures> {
        let last_failure = Some("connect: \"refused\"\n".to_owned());
        let figures = |name: &str, last_failure| UpstreamFigures {
            name: name.to_owned(),
            state: "up",
            weight: 3,
            requests: 7,
            last_failure,
            ..UpstreamFigures::default()
        };
        vec![figures(NAMES[0], None), figures(NAMES[1], last_failure)]
    }

    fn order(&self, name: &str, order: Order) -> Result<(), NoSuchUpstream> {
        if !NAMES.contains(&name) {
            return Err(NoSuchUpstream);
        }
        self.orders.lock().unwrap().push((name.to_owned(), order));
        Ok(())
    }
}

struct TestAdmin {
    admin: AdminServer,
    upstreams: Arc<Recorder>,
    stopping: Arc<AtomicBool>,
}

fn start() -> TestAdmin {
    let metrics = Metrics::new(1);
    start_with(move |out| metrics.render(&[], out))
}

fn start_with(metrics: impl Fn(&mut String) + Send + Sync + 'static) -> TestAdmin {
    let upstreams = Arc::<Recorder>::default();
    let stopping = Arc::<AtomicBool>::default();
    let sources = Sources {
        metrics: Box::new(metrics),
        upstreams: vec![upstreams.clone()],
        stopping: Arc::clone(&stopping),
    };
    let admin = admin::start("127.0.0.1:0".parse().unwrap(), sources).unwrap();
    TestAdmin { admin, upstreams, stopping }
}

fn connect(admin: &AdminServer) -> TcpStream {
    let stream = TcpStream::connect(admin.addr()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

/// Sends a request on a connection of its own. Returns the head and the content of the response.
fn exchange(admin: &AdminServer, request: &str) -> (String, String) {
    let mut stream = connect(admin);
    stream.write_all(request.as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    let (head, content) = response.split_once("\r\n\r\n").expect(&response);
    if !request.starts_with("HEAD") {
        assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", content.len())), "{head}");
    }
    (head.to_owned(), content.to_owned())
}

fn request(admin: &AdminServer, line: &str, fields: &str) -> (String, String) {
    exchange(admin, &format!("{line} HTTP/1.1\r\nHost: {}\r\n{fields}\r\n", admin.addr()))
}

fn status(response: &(String, String)) -> u16 {
    response.0["HTTP/1.1 ".len()..][..3].parse().unwrap()
}

#[test]
fn responds_at_each_endpoint() {
    let test = start();
    let (head, page) = request(&test.admin, "GET /metrics", "");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(head.contains("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
    assert!(page.contains("\nhearken_connections_open{worker=\"0\"} 0\n"), "{page}");
    let (_, nothing) = request(&test.admin, "HEAD /metrics?x=1", "");
    assert_eq!(nothing, "");

    let (_, text) = request(&test.admin, "GET /upstreams", "");
    let upstreams: Value = serde_json::from_str(&text).unwrap();
    let first = json!({
        "name": "127.0.0.1:9000", "state": "up", "weight": 3, "requests": 7, "failures": 0,
        "in_flight": 0, "retries": 0, "checks_failed": 0, "last_failure": null,
    });
    assert_eq!(upstreams["upstreams"][0], first);
    assert_eq!(upstreams["upstreams"][1]["name"], "/run/é.sock");
    assert_eq!(upstreams["upstreams"][1]["last_failure"], "connect: \"refused\"\n");

    assert_eq!(request(&test.admin, "GET /healthz", "").1, "ok\n");
    test.stopping.store(true, Ordering::Release);
    let draining = request(&test.admin, "GET /healthz", "");
    assert_eq!((status(&draining), draining.1.as_str()), (503, "draining\n"));
}

#[test]
fn passes_orders_to_upstreams() {
    let test = start();
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
        let response = request(&test.admin, line, "Content-Length: 0\r\n");
        assert_eq!(status(&response), want, "{line}: {response:?}");
        let hint = match (want, line.ends_with("9001/drain")) {
            (404, true) => "127.0.0.1:9000\n",
            (404 | 405, _) => "GET /metrics\n",
            _ => "",
        };
        assert!(response.1.contains(hint), "{line}: {response:?}");
        assert_eq!(response.0.contains("\r\nAllow: "), want == 405, "{line}: {response:?}");
    }
    let want = [
        ("127.0.0.1:9000", Order::Drain),
        ("127.0.0.1:9000", Order::Ready),
        ("/run/é.sock", Order::Off),
    ];
    assert_eq!(
        *test.upstreams.orders.lock().unwrap(),
        want.map(|(name, order)| (name.to_owned(), order))
    );
}

#[test]
fn rejects_requests_caused_by_other_sites() {
    let test = start();
    let port = test.admin.addr().port();
    let drain = |host: &str, fields: &str| {
        let line = "POST /upstreams/127.0.0.1:9000/drain HTTP/1.1\r\nHost: ";
        status(&exchange(&test.admin, &format!("{line}{host}\r\n{fields}\r\n")))
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
    for (bytes, want) in [("\0\r\n\r\n", 400), (&*long, 414), (&*many, 431), (&*body, 413)] {
        assert_eq!(status(&exchange(&test.admin, bytes)), want);
    }
}

#[test]
fn silent_clients_do_not_block_others() {
    let test = start();
    let silent: Vec<_> = (0..200)
        .map(|number| {
            let mut stream = connect(&test.admin);
            stream.write_all(&b"GET /metrics HTTP/1.1\r\n"[..number % 20]).unwrap();
            stream
        })
        .collect();
    // This response is due before the first client times out.
    assert_eq!(request(&test.admin, "GET /healthz", "").1, "ok\n");
    drop(silent);
    // A request byte by byte, from a client that then shuts down its side.
    let mut stream = connect(&test.admin);
    for byte in format!("GET /healthz HTTP/1.1\r\nHost: {}\r\n\r\n", test.admin.addr()).bytes() {
        stream.write_all(&[byte]).unwrap();
    }
    stream.shutdown(Shutdown::Write).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    assert!(response.ends_with("\r\n\r\nok\n"), "{response}");
}

#[test]
fn dropping_the_server_closes_all_connections() {
    let test = start();
    let mut silent = connect(&test.admin);
    assert_eq!(request(&test.admin, "GET /healthz", "").1, "ok\n");
    let addr = test.admin.addr();
    drop(test);
    // The connection is closed or reset, not only silent.
    let read = silent.read(&mut [0]);
    assert!(!matches!(&read, Ok(1)) && !matches!(&read, Err(error) if error.kind() == WouldBlock));
    assert!(TcpStream::connect(addr).is_err());
}

/// Reads one response and leaves the connection open. Returns its content.
fn read_response(stream: &mut TcpStream) -> Vec<u8> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.extend(byte);
    }
    let head = String::from_utf8(head).unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    let length = head.split_once("\r\nContent-Length: ").unwrap().1;
    let length = length.split_once("\r\n").unwrap().0.parse().unwrap();
    let mut content = vec![0; length];
    stream.read_exact(&mut content).unwrap();
    content
}

fn send_get(stream: &mut TcpStream, path: &str) {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
}

/// Returns the content at a path, requested on a connection that is kept open.
fn get(stream: &mut TcpStream, path: &str) -> Vec<u8> {
    send_get(stream, path);
    read_response(stream)
}

/// Returns whether the server has closed a connection.
fn is_closed(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() != WouldBlock,
    }
}

#[test]
fn connections_are_persistent() {
    let test = start();
    let mut stream = connect(&test.admin);
    assert_eq!(get(&mut stream, "/healthz"), b"ok\n");
    assert!(get(&mut stream, "/upstreams").starts_with(b"{\"upstreams\":"));
    // Two requests in one segment, the first with empty content.
    let both = "POST /upstreams/127.0.0.1:9000/off HTTP/1.1\r\nHost: localhost\r\n\
        Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: [::1]\r\n\r\n";
    stream.write_all(both.as_bytes()).unwrap();
    assert_eq!(read_response(&mut stream), b"off\n");
    assert_eq!(read_response(&mut stream), b"ok\n");

    stream.write_all(b"GET /healthz HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").unwrap();
    assert_eq!(read_response(&mut stream), b"ok\n");
    stream.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").unwrap();
    assert_eq!(read_response(&mut stream), b"ok\n");
    assert!(is_closed(&mut stream));
}

#[test]
fn closes_the_longest_idle_connection_for_a_new_one() {
    let test = start();
    let mut idle: Vec<_> = (0..64).map(|_| connect(&test.admin)).collect();
    for stream in &mut idle {
        assert_eq!(get(stream, "/healthz"), b"ok\n");
    }
    assert_eq!(get(&mut idle[0], "/healthz"), b"ok\n");
    let mut another = connect(&test.admin);
    assert_eq!(get(&mut another, "/healthz"), b"ok\n");
    assert!(is_closed(&mut idle[1]));
    for index in [0, 2, 63] {
        assert_eq!(get(&mut idle[index], "/healthz"), b"ok\n");
    }
}

#[test]
fn slow_readers_do_not_delay_others() {
    // The page exceeds the buffers of a connection.
    let page = "x".repeat(32 << 20);
    let expected = page.clone();
    let test = start_with(move |out| out.push_str(&page));
    let mut slow = connect(&test.admin);
    send_get(&mut slow, "/metrics");
    send_get(&mut slow, "/healthz");
    // The response has begun.
    assert_eq!(slow.peek(&mut [0]).unwrap(), 1);
    let mut other = connect(&test.admin);
    assert_eq!(get(&mut other, "/healthz"), b"ok\n");
    assert!(read_response(&mut slow) == expected.as_bytes());
    assert_eq!(read_response(&mut slow), b"ok\n");
    assert_eq!(get(&mut slow, "/healthz"), b"ok\n");
}
