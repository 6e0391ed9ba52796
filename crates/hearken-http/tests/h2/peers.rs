//! The `h2` crate as client of our server, and as server of our client, over a pipe in memory.

use std::sync::Arc;

use bytes::Bytes;
use h2::Reason;
use hearken_http::RequestParser;
use hearken_http::h2::{Config, Connection, Event, HeadBuffer, Limits, StreamId};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

/// Runs a future to its end.
fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, future)
}

/// Content that waits to be sent, and trailer fields that follow.
struct Waiting {
    stream: StreamId,
    content: Vec<u8>,
    sent: usize,
    with_trailers: bool,
}

type OwnedFields = Vec<(Vec<u8>, Vec<u8>)>;

/// Answers each request with its content, after as many bytes as the path says. Fields that start with `x-`
/// are returned too.
async fn serve(mut pipe: DuplexStream, config: Config) {
    let (mut out, mut head) = (Vec::new(), HeadBuffer::new());
    let mut server = Connection::server(Arc::new(config), &mut out);
    let mut buffer = vec![0; 7000];
    let mut uploads: Vec<(StreamId, Vec<u8>, OwnedFields)> = Vec::new();
    let mut waiting: Vec<Waiting> = Vec::new();
    loop {
        pipe.write_all(&out).await.unwrap();
        out.clear();
        server.output_sent();
        let count = pipe.read(&mut buffer).await.unwrap();
        if count == 0 {
            return;
        }
        let mut input = &buffer[..count];
        while let Some(event) = server.receive(&mut input, &mut head, &mut out).unwrap() {
            let finished = match event {
                Event::Request { stream, request, end } => {
                    let fields = request.fields().filter(|(name, _)| name.starts_with(b"x-"));
                    let fields = fields.map(|(name, value)| (name.to_vec(), value.to_vec()));
                    let path = std::str::from_utf8(&request.raw_target[1..]).unwrap();
                    let content = vec![b'c'; path.parse().unwrap_or(0)];
                    uploads.push((stream, content, fields.collect()));
                    end.then_some(stream)
                }
                Event::Data { stream, data, end } => {
                    server.release(stream, data.len(), &mut out);
                    let upload = uploads.iter_mut().find(|upload| upload.0 == stream).unwrap();
                    upload.1.extend_from_slice(data);
                    end.then_some(stream)
                }
                Event::Trailers { stream, fields } => {
                    assert_eq!(fields.count(), 1);
                    Some(stream)
                }
                Event::Settings => None,
                Event::Goaway { .. } => None,
                other => panic!("{other:?}"),
            };
            let Some(stream) = finished else { continue };
            let at = uploads.iter().position(|upload| upload.0 == stream).unwrap();
            let (_, content, fields) = uploads.remove(at);
            let with_trailers = fields.iter().any(|(name, _)| name == b"x-trailers");
            assert!(server.respond(stream, 200, fields, false, &mut out));
            waiting.push(Waiting { stream, content, sent: 0, with_trailers });
            server.wait_for_turn(stream);
        }
        while let Some(stream) = server.next_writable() {
            let entry = waiting.iter_mut().find(|waiting| waiting.stream == stream).unwrap();
            let rest = &entry.content[entry.sent..];
            let chunk = &rest[..rest.len().min(10_000)];
            let is_last = chunk.len() == rest.len();
            let end = is_last && !entry.with_trailers;
            let count = server.send_data(stream, chunk, end, &mut out);
            entry.sent += count;
            if is_last && count == chunk.len() {
                if entry.with_trailers {
                    assert!(server.send_trailers(stream, [("x-sum", "1")], &mut out));
                }
                waiting.retain(|waiting| waiting.stream != stream);
            } else if count == chunk.len() {
                server.wait_for_turn(stream);
            }
        }
    }
}

#[test]
fn the_h2_client_understands_our_server() {
    run(async {
        let (near, far) = tokio::io::duplex(5000);
        let limits =
            Limits { stream_window: 20_000, connection_window: 70_000, ..Limits::default() };
        tokio::task::spawn_local(serve(far, Config { limits, ..Config::default() }));
        let (client, connection) = h2::client::handshake(near).await.unwrap();
        let connection = tokio::task::spawn_local(async move { connection.await.unwrap() });
        let mut tasks = Vec::new();
        for number in 0..40 {
            let mut client = client.clone().ready().await.unwrap();
            tasks.push(tokio::task::spawn_local(async move {
                let size = [0, 1, 1000, 100_000][number % 4];
                let upload = [0, 5, 50_000][number % 3];
                let long = "v".repeat(number * 17);
                let mut request = Request::builder()
                    .method(if upload == 0 { Method::GET } else { Method::POST })
                    .uri(format!("https://example.org/{size}"))
                    .header("x-number", number)
                    .header("x-long", &long);
                if number % 2 == 0 {
                    request = request.header("x-trailers", "yes");
                }
                let request = request.body(()).unwrap();
                let (response, mut body) = client.send_request(request, upload == 0).unwrap();
                if upload > 0 {
                    body.send_data(Bytes::from(vec![b'u'; upload]), upload == 5).unwrap();
                    if upload != 5 {
                        let mut trailers = HeaderMap::new();
                        trailers.insert("x-end", HeaderValue::from_static("1"));
                        body.send_trailers(trailers).unwrap();
                    }
                }
                let response = response.await.unwrap();
                assert_eq!(response.status(), StatusCode::OK);
                assert_eq!(response.headers()["x-number"], number.to_string());
                assert_eq!(response.headers()["x-long"], long);
                let mut body = response.into_body();
                let mut content = Vec::new();
                while let Some(data) = body.data().await {
                    let data = data.unwrap();
                    body.flow_control().release_capacity(data.len()).unwrap();
                    content.extend_from_slice(&data);
                }
                assert_eq!(content.len(), size + upload);
                let trailers = body.trailers().await.unwrap();
                assert_eq!(trailers.is_some(), number % 2 == 0);
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        drop(client);
        connection.await.unwrap();
    });
}

#[test]
fn the_h2_server_understands_our_client() {
    run(async {
        let (mut near, far) = tokio::io::duplex(5000);
        let server = tokio::task::spawn_local(async move {
            let mut builder = h2::server::Builder::new();
            let mut server =
                builder.initial_window_size(1000).handshake::<_, Bytes>(far).await.unwrap();
            while let Some(request) = server.accept().await {
                let (request, mut respond) = request.unwrap();
                tokio::task::spawn_local(async move {
                    let name = request.headers()["x-name"].clone();
                    assert_eq!(request.uri().path(), "/upload");
                    let mut body = request.into_body();
                    let mut length = 0;
                    while let Some(data) = body.data().await {
                        let data = data.unwrap();
                        body.flow_control().release_capacity(data.len()).unwrap();
                        length += data.len();
                    }
                    if length == 3 {
                        respond.send_reset(Reason::CANCEL);
                        return;
                    }
                    let response = Response::builder().header("x-name", name).body(()).unwrap();
                    let mut stream = respond.send_response(response, false).unwrap();
                    stream.send_data(Bytes::from(vec![b'r'; length]), true).unwrap();
                });
            }
        });
        let (mut out, mut head) = (Vec::new(), HeadBuffer::new());
        let mut client = Connection::client(Arc::new(Config::default()), &mut out);
        let sizes = [0, 1, 2, 3, 900, 5000, 70_000, 200_000];
        let mut open = Vec::new();
        for (number, size) in sizes.into_iter().enumerate() {
            let bytes = format!(
                "POST /upload HTTP/1.1\r\nHost: a\r\nX-Name: {number}\r\nCookie: a=b\r\n\
                 Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n"
            );
            let request =
                RequestParser::new().parse(bytes.as_bytes(), &Default::default()).unwrap().unwrap();
            let stream = client.send_request(&request, false, &mut out).unwrap();
            let sent = client.send_data(stream, &vec![b'u'; size], true, &mut out);
            // The number of bytes of the request and of the response that are still missing.
            open.push((stream, size - sent, size));
        }
        let mut buffer = vec![0; 3000];
        let (mut responses, mut resets) = (0, 0);
        while !open.is_empty() {
            near.write_all(&out).await.unwrap();
            out.clear();
            client.output_sent();
            let count = near.read(&mut buffer).await.unwrap();
            assert!(count > 0);
            let mut input = &buffer[..count];
            while let Some(event) = client.receive(&mut input, &mut head, &mut out).unwrap() {
                match event {
                    Event::Response { stream, response, .. } => {
                        assert_eq!(response.status, 200);
                        let number = open.iter().find(|(open, ..)| *open == stream).unwrap().2;
                        let number = sizes.iter().position(|size| *size == number).unwrap();
                        let name = number.to_string();
                        assert!(response.field_values("x-name").eq([name.as_bytes()]));
                        responses += 1;
                    }
                    Event::Data { stream, data, end } => {
                        client.release(stream, data.len(), &mut out);
                        let entry = open.iter_mut().find(|(open, ..)| *open == stream).unwrap();
                        entry.2 -= data.len();
                        if end {
                            assert_eq!((entry.1, entry.2), (0, 0));
                            open.retain(|(open, ..)| *open != stream);
                        }
                    }
                    Event::Reset { stream, .. } => {
                        resets += 1;
                        open.retain(|(open, ..)| *open != stream);
                    }
                    Event::Settings => {}
                    other => panic!("{other:?}"),
                }
            }
            while let Some(stream) = client.next_writable() {
                let entry = open.iter_mut().find(|(open, ..)| *open == stream).unwrap();
                entry.1 -= client.send_data(stream, &vec![b'u'; entry.1], true, &mut out);
            }
        }
        assert_eq!((responses, resets), (7, 1));
        client.shut_down(&mut out);
        near.write_all(&out).await.unwrap();
        drop(near);
        server.await.unwrap();
    });
}
