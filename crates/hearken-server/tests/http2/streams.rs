//! Requests on streams.

use std::net::Shutdown;
use std::{fs, thread};

use bytes::Bytes;
use hearken_server::HalfClose;

use crate::client::{
    DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, RST_STREAM, RawClient, WINDOW_UPDATE, connect,
    exchange, frame, get_small, preface, read, request, run,
};
use crate::common::{LARGE, Origin, Setup, Site, log_to, ms, pattern, wait_until};

/// Returns the setups that several tests run with.
fn setups() -> Vec<Setup> {
    let all = [Setup::named("epoll-edge"), Setup::tasks("epoll-edge"), Setup::named("uring")];
    all.into_iter().filter_map(Setup::available).collect()
}

#[test]
fn answers_many_requests_at_once() {
    let site = Site::with_large();
    for setup in setups() {
        let server = setup.serve(&site, |_| {});
        run(async {
            let mut send = connect(server.addr()).await;
            let mut waiting = Vec::new();
            for path in ["/small", "/large", "/cached", "/empty", "/nothing", "/inline"].repeat(8) {
                send = send.ready().await.unwrap();
                let (response, _) = send.send_request(request("GET", path), true).unwrap();
                // All are received concurrently, since unread content keeps the window closed.
                let reply = async { read(response.await.unwrap()).await.unwrap() };
                waiting.push((path, tokio::task::spawn_local(reply)));
            }
            for (path, reply) in waiting {
                let reply = reply.await.unwrap();
                let (status, length) = match path {
                    "/small" => (200, 6),
                    "/large" => (200, LARGE),
                    "/cached" => (200, 50_000),
                    "/inline" => (200, 4000),
                    "/empty" => (200, 0),
                    _ => (404, reply.content.len()),
                };
                assert_eq!((reply.status, reply.content.len()), (status, length), "{path}");
                if status == 200 && length > 6 {
                    assert!(reply.content == pattern()[..length], "{path}");
                }
            }
        });
    }
}

#[test]
fn accepts_the_preface_in_pieces() {
    let site = Site::new();
    let server = Setup::named("epoll-edge").serve(&site, |_| {});
    for piece in [1, 2, 5, 7, 23] {
        let mut client = RawClient::silent(server.addr());
        let bytes = [preface(&[]), get_small(1)].concat();
        for part in bytes.chunks(piece) {
            client.send(part);
            thread::sleep(ms(1));
        }
        assert_eq!(client.expect(HEADERS).stream, 1);
        let data = client.expect(DATA);
        assert_eq!((data.payload.as_slice(), data.flags), (&b"small\n"[..], END_STREAM));
    }
}

#[test]
fn rejects_http2_if_disabled() {
    let site = Site::new();
    let server = Setup::named("epoll-edge").serve(&site, |config| config.http2 = false);
    let mut client = server.client();
    client.send(hearken_http::h2::PREFACE);
    assert_eq!(client.response().status, 400);
}

#[test]
fn forwards_bodies_in_both_directions() {
    for setup in setups() {
        let origin = Origin::new(|mut peer| {
            while let Some(request) = peer.request() {
                let length = request.body.len();
                let head = match request.target() {
                    "/chunked" => "Transfer-Encoding: chunked".to_owned(),
                    _ => format!("Content-Length: {length}"),
                };
                let via = request.field("via").unwrap_or_default();
                let head = format!("HTTP/1.1 200 OK\r\n{head}\r\nX-Via: {via}\r\n\r\n");
                let mut response = head.into_bytes();
                if request.target() == "/chunked" {
                    for chunk in request.body.chunks(40_000) {
                        response.extend(format!("{:x}\r\n", chunk.len()).into_bytes());
                        response.extend(chunk);
                        response.extend(b"\r\n");
                    }
                    response.extend(b"0\r\n\r\n");
                } else {
                    response.extend(&request.body);
                }
                peer.connection.send(response);
            }
        });
        let proxy = setup.proxy(&[origin.addr()], |_| {});
        run(async {
            let mut send = connect(proxy.addr()).await;
            for length in [1, 100, 70_000, 3_000_000] {
                for path in ["/length", "/chunked"] {
                    for announced in [true, false] {
                        send = send.ready().await.unwrap();
                        let mut request = request("POST", path);
                        if announced {
                            request.headers_mut().insert("content-length", length.into());
                        }
                        let (response, mut body) = send.send_request(request, false).unwrap();
                        let content = Bytes::from_static(&pattern()[..length]);
                        body.send_data(content, true).unwrap();
                        let reply = read(response.await.unwrap()).await.unwrap();
                        assert_eq!(reply.status, 200);
                        assert!(reply.content == pattern()[..length], "{path} {length}");
                    }
                }
            }
        });
    }
}

#[test]
fn rejects_bodies_beyond_the_limit() {
    let site = Site::new();
    let server = Setup::named("epoll-edge").serve(&site, |config| {
        config.static_files_mut().unwrap().max_body_bytes = 1000;
    });
    run(async {
        let mut send = connect(server.addr()).await;
        let reply = exchange(&mut send, request("GET", "/small"), &[0; 1000]).await.unwrap();
        assert_eq!((reply.status, reply.content.as_slice()), (200, &b"small\n"[..]));
        let reply = exchange(&mut send, request("GET", "/small"), &[0; 1001]).await.unwrap();
        assert_eq!(reply.status, 413);
        let reply = exchange(&mut send, request("GET", "/small"), &[]).await.unwrap();
        assert_eq!(reply.status, 200);
    });
}

#[test]
fn resets_a_response_that_the_upstream_server_truncates() {
    let origin = Origin::new(|mut peer| {
        peer.request();
        peer.connection.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort");
    });
    let proxy = Setup::named("epoll-edge").proxy(&[origin.addr()], |_| {});
    run(async {
        let mut send = connect(proxy.addr()).await;
        let error = exchange(&mut send, request("GET", "/"), &[]).await.unwrap_err();
        assert_eq!(error.reason(), Some(h2::Reason::INTERNAL_ERROR));
    });
}

#[test]
fn logs_the_protocol() {
    let site = Site::new();
    let log = tempfile::NamedTempFile::new().unwrap();
    let server = Setup::named("epoll-edge").serve(&site, |config| log_to(config, log.path()));
    run(async {
        let mut send = connect(server.addr()).await;
        exchange(&mut send, request("GET", "/small"), &[]).await.unwrap();
        exchange(&mut send, request("GET", "/small"), b"body").await.unwrap();
    });
    let lines = || fs::read_to_string(log.path()).unwrap();
    wait_until("both requests are logged", || lines().lines().count() == 2);
    for line in lines().lines() {
        assert!(line.contains("\"GET /small HTTP/2.0\" 200 6 "), "{line}");
    }
}

#[test]
fn half_closed_connections_get_their_responses() {
    let origin = Origin::new(|mut peer| {
        while let Some(request) = peer.request() {
            if request.method() == "GET" {
                thread::sleep(ms(200));
                peer.respond("end");
            }
        }
    });
    for half_close in [HalfClose::Respond, HalfClose::Cancel] {
        let proxy = Setup::named("epoll-edge").proxy(&[origin.addr()], |config| {
            config.half_close = half_close;
        });
        let mut client = RawClient::connect(proxy.addr(), &[]);
        // The last request is incomplete.
        let open = frame(HEADERS, END_HEADERS, 5, b"\x83\x86\x01\x01a\x04\x06/small");
        client.send([get_small(1), get_small(3), open].concat());
        client.stream.shutdown(Shutdown::Write).unwrap();
        let mut responses = 0;
        while let Some(frame) = client.frame() {
            responses += usize::from(frame.kind == DATA && frame.payload == b"end");
        }
        assert_eq!(responses, if half_close == HalfClose::Respond { 2 } else { 0 });
        wait_until("the connection is closed", || {
            let workers = &proxy.metrics().workers;
            workers.iter().all(|worker| worker.connections_open.get() == 0)
        });
    }
}

#[test]
fn content_after_a_request_does_not_begin_another_one() {
    let site = Site::new();
    let server = Setup::named("epoll-edge").serve(&site, |_| {});
    // Only the first stream has a window.
    let mut client = RawClient::connect(server.addr(), &[(4, 0)]);
    let window = frame(WINDOW_UPDATE, 0, 1, &100_u32.to_be_bytes());
    client.send([get_small(1), window].concat());
    assert_eq!(client.expect(DATA).flags, END_STREAM);
    client.send([get_small(3), get_small(5), get_small(7)].concat());
    for stream in [3, 5, 7] {
        assert_eq!(client.expect(HEADERS).stream, stream);
    }
    client.send(frame(DATA, 0, 1, b"x"));
    let reset = client.expect(RST_STREAM);
    assert_eq!((reset.stream, reset.payload[3]), (1, 5));
    // An error of the connection ends all requests.
    client.send(frame(DATA, 0, 0, b"x"));
    client.expect(GOAWAY);
    let mut other = RawClient::connect(server.addr(), &[]);
    other.send(get_small(1));
    assert_eq!(other.expect(DATA).payload, b"small\n");
}
