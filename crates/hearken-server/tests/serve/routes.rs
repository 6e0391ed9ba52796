//! Routes: one server serves files under one path and proxies another.
//!
//! The route with the longest prefix of its path handles a request. Without a route it gets a 404.
//! Routing does not change the path.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;

use hearken_server::config::{Handler, Route};
use hearken_server::proxy;
use hearken_server::proxy::config::{Address, ProxyMode, Server as Upstream, Upstreams};
use hearken_server::static_files::SiteConfig;

use crate::common::{Client, RunningServer, Setup, Site, TEST_TIMEOUT, get, ms, pattern, request};

/// Serves `site` at `/files/` and forwards requests for `/api/` to `upstream`.
fn routed(setup: &Setup, site: &Site, upstream: SocketAddr) -> RunningServer {
    let files = SiteConfig { root: site.root(), ..SiteConfig::default() };
    let servers = vec![Upstream::new(Address::Inet(upstream))];
    setup.serve(site, |config| {
        config.routes = vec![
            Route { prefix: "/files/".into(), handler: Handler::StaticFiles(files) },
            Route {
                prefix: "/api/".into(),
                handler: Handler::Proxy(Box::new(proxy::Config::new(ProxyMode::Reverse(
                    Upstreams::new(servers),
                )))),
            },
        ];
    })
}

/// Creates a site with the directory that the route for files names.
fn site() -> Site {
    let site = Site::new();
    std::fs::create_dir(site.root().join("files")).unwrap();
    site.add("files/small", b"small\n");
    site.add("files/long", &pattern()[..1 << 20]);
    std::fs::create_dir(site.root().join("api")).unwrap();
    site.add("api/file", b"must not be served\n");
    site
}

/// Starts an upstream server that responds to each request with its method, target and content, once
/// `ready` has a message or is closed.
fn upstream(ready: mpsc::Receiver<()>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        // The proxy opens a single connection.
        let Ok((mut stream, _)) = listener.accept() else { return };
        while let Some((head, content)) = read_request(&mut stream) {
            let _ = ready.recv_timeout(TEST_TIMEOUT);
            let line = head.split(" HTTP/").next().unwrap_or_default();
            let text = format!("{line} {content}");
            let length = text.len();
            let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{text}");
        }
    });
    addr
}

/// Reads a head and the content after it, whose length is in Content-Length.
fn read_request(stream: &mut TcpStream) -> Option<(String, String)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).ok()?;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    let mut content = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut content).ok()?;
    Some((head, String::from_utf8(content).ok()?))
}

fn text(client: &mut Client, path: &str) -> String {
    String::from_utf8(client.get(path).body).unwrap()
}

pub(crate) fn selects_handlers_by_path(setup: &Setup) {
    let site = site();
    let (_, ready) = mpsc::channel();
    let server = routed(setup, &site, upstream(ready));
    assert_eq!(text(&mut server.client(), "/files/small"), "small\n");
    assert_eq!(text(&mut server.client(), "/api/file?query"), "GET /api/file?query ");
    assert_eq!(server.client().get("/files/missing").status, 404);
    // The file exists, but no route leads to it.
    assert_eq!(server.client().get("/small").status, 404);
    assert_eq!(server.client().get("/apiary").status, 404);
}

pub(crate) fn one_connection_reaches_all_handlers(setup: &Setup) {
    let site = site();
    let (_, ready) = mpsc::channel();
    let server = routed(setup, &site, upstream(ready));
    let mut client = server.client();
    client.send(
        ["/api/1", "/files/small", "/nowhere", "/files/long", "/api/2", "/files/small"]
            .map(get)
            .concat(),
    );
    // Responses are in the order of the requests.
    assert_eq!(client.response().body, b"GET /api/1 ");
    assert_eq!(client.response().body, b"small\n");
    assert_eq!(client.response().status, 404);
    assert!(client.response().body == pattern()[..1 << 20]);
    assert_eq!(client.response().body, b"GET /api/2 ");
    assert_eq!(client.response().body, b"small\n");
}

pub(crate) fn requests_with_a_body_reach_their_handler(setup: &Setup) {
    let site = site();
    let (_, ready) = mpsc::channel();
    let server = routed(setup, &site, upstream(ready));
    let mut client = server.client();
    let post = |path| {
        let head = request(&format!("POST {path}"), "Content-Length: 4\r\n");
        [head, b"body".to_vec()].concat()
    };
    client.send([post("/api/1"), post("/files/small"), post("/api/2")].concat());
    assert_eq!(client.response().body, b"POST /api/1 body");
    assert_eq!(client.response().status, 405, "files are read only");
    assert_eq!(client.response().body, b"POST /api/2 body");
}

pub(crate) fn a_proxied_request_does_not_delay_files(setup: &Setup) {
    let site = site();
    let (go, ready) = mpsc::channel();
    let server = routed(setup, &site, upstream(ready));
    let mut waiting = server.client();
    waiting.send(get("/api/wait"));
    assert!(!waiting.is_readable_within(ms(50)));
    assert_eq!(text(&mut server.client(), "/files/small"), "small\n");
    go.send(()).unwrap();
    assert_eq!(waiting.response().body, b"GET /api/wait ");
}
