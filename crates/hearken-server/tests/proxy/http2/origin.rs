//! Origins: the `h2` crate, and one that sends any frames.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use bytes::Bytes;
use h2::RecvStream;
use h2::server::{self, SendResponse};
use hearken_http::h2::PREFACE;
use http::{HeaderMap, Request, Response};

use crate::common::{TEST_TIMEOUT, content};

/// Types of frames.
pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PUSH_PROMISE: u8 = 5;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;

/// Flags of frames.
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
pub(crate) const ACK: u8 = 1;

/// Settings.
pub(crate) const MAX_CONCURRENT_STREAMS: u16 = 3;
pub(crate) const INITIAL_WINDOW_SIZE: u16 = 4;

/// Error codes.
pub(crate) const INTERNAL_ERROR: u32 = 2;
pub(crate) const REFUSED_STREAM: u32 = 7;
pub(crate) const HTTP_1_1_REQUIRED: u32 = 13;

/// An origin that uses the `h2` crate.
pub(crate) struct H2Origin {
    addr: SocketAddr,
    accepted: Arc<AtomicUsize>,
}

impl H2Origin {
    /// Starts an origin that permits this number of concurrent streams.
    pub(crate) fn new(max_streams: u32) -> H2Origin {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let addr = listener.local_addr().unwrap();
        let accepted = Arc::<AtomicUsize>::default();
        let count = accepted.clone();
        // The thread ends with the process.
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let local = tokio::task::LocalSet::new();
            local.block_on(&runtime.unwrap(), accept(listener, max_streams, count));
        });
        H2Origin { addr, accepted }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns the number of accepted connections.
    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }
}

async fn accept(listener: TcpListener, max_streams: u32, accepted: Arc<AtomicUsize>) {
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        accepted.fetch_add(1, Ordering::Relaxed);
        stream.set_nodelay(true).unwrap();
        tokio::task::spawn_local(async move {
            let mut builder = server::Builder::new();
            builder.max_concurrent_streams(max_streams).enable_connect_protocol();
            // The crate rejects many small frames that wait, in proportion to this window.
            builder.initial_connection_window_size(1 << 20);
            let Ok(mut connection) = builder.handshake::<_, Bytes>(stream).await else { return };
            while let Some(Ok((request, respond))) = connection.accept().await {
                tokio::task::spawn_local(async move {
                    // The proxy may reset the stream.
                    let _ = respond_to(request, respond).await;
                });
            }
        });
    }
}

/// Returns the fields of a request as fields of a response.
fn echoed(request: &Request<RecvStream>) -> HeaderMap {
    let mut fields = HeaderMap::new();
    fields.insert("x-method", request.method().as_str().parse().unwrap());
    fields.insert("x-uri", request.uri().to_string().parse().unwrap());
    for (name, value) in request.headers() {
        fields.append(http::HeaderName::try_from(format!("x-got-{name}")).unwrap(), value.clone());
    }
    fields
}

/// Answers a request according to its path.
async fn respond_to(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) -> Result<(), h2::Error> {
    let path = request.uri().path().to_owned();
    let mut response = Response::new(());
    *response.headers_mut() = echoed(&request);
    let number = |prefix: &str| -> Option<usize> {
        path.strip_prefix(prefix).and_then(|rest| rest.parse().ok())
    };
    if let Some(status) = number("/status/") {
        *response.status_mut() = http::StatusCode::from_u16(status as u16).unwrap();
        respond.send_response(response, true)?;
    } else if let Some(length) = number("/bytes/") {
        let mut send = respond.send_response(response, false)?;
        send_content(&mut send, content(1, length)).await?;
        send.send_data(Bytes::new(), true)?;
    } else if path == "/announced" {
        response.headers_mut().insert("content-length", 9.into());
        let mut send = respond.send_response(response, false)?;
        send.send_data(Bytes::from("announced"), false)?;
        tokio::task::yield_now().await;
        send.send_data(Bytes::new(), true)?;
    } else if path == "/trailers" {
        let mut send = respond.send_response(response, false)?;
        send.send_data(Bytes::from("content"), false)?;
        let mut trailers = HeaderMap::new();
        trailers.insert("x-checksum", "17".parse().unwrap());
        trailers.insert("set-cookie", "a=b".parse().unwrap());
        send.send_trailers(trailers)?;
    } else {
        // Echoes the content, and the trailer section as one.
        let mut send = respond.send_response(response, false)?;
        let mut body = request.into_body();
        while let Some(data) = body.data().await {
            let data = data?;
            send_content(&mut send, &data).await?;
            body.flow_control().release_capacity(data.len())?;
        }
        match body.trailers().await? {
            Some(trailers) => send.send_trailers(trailers)?,
            None => send.send_data(Bytes::new(), true)?,
        }
    }
    Ok(())
}

/// Sends content as the window permits.
async fn send_content(send: &mut h2::SendStream<Bytes>, content: &[u8]) -> Result<(), h2::Error> {
    let mut rest = content;
    while !rest.is_empty() {
        send.reserve_capacity(rest.len().min(65_536));
        let capacity = std::future::poll_fn(|cx| send.poll_capacity(cx)).await;
        let Some(capacity) = capacity.transpose()? else { return Ok(()) };
        let (now, later) = rest.split_at(capacity.min(rest.len()));
        send.send_data(Bytes::copy_from_slice(now), false)?;
        rest = later;
    }
    Ok(())
}

/// An origin that sends any frames. Each connection is served by a function, in a thread of its own.
pub(crate) struct RawOrigin {
    addr: SocketAddr,
    accepted: Arc<AtomicUsize>,
}

impl RawOrigin {
    /// Starts an origin. `serve` gets the number of each connection.
    pub(crate) fn new(serve: impl Fn(usize, RawPeer) + Send + Sync + 'static) -> RawOrigin {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let accepted = Arc::<AtomicUsize>::default();
        let (count, serve) = (accepted.clone(), Arc::new(serve));
        // The thread ends with the process.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let number = count.fetch_add(1, Ordering::Relaxed);
                let (stream, serve) = (stream.unwrap(), serve.clone());
                thread::spawn(move || serve(number, RawPeer::new(stream)));
            }
        });
        RawOrigin { addr, accepted }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns the number of accepted connections.
    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }
}

/// A connection from the proxy.
pub(crate) struct RawPeer {
    pub(crate) stream: TcpStream,
    received: Vec<u8>,
}

/// A received frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

/// Returns a frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Returns a SETTINGS frame.
pub(crate) fn settings(settings: &[(u16, u32)]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (id, value) in settings {
        payload.extend(id.to_be_bytes());
        payload.extend(value.to_be_bytes());
    }
    frame(SETTINGS, 0, 0, &payload)
}

/// Returns a frame that resets a stream.
pub(crate) fn reset(stream: u32, code: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &code.to_be_bytes())
}

/// Returns a GOAWAY frame with the last stream that is processed.
pub(crate) fn goaway(last: u32, code: u32) -> Vec<u8> {
    frame(GOAWAY, 0, 0, &[last.to_be_bytes(), code.to_be_bytes()].concat())
}

/// Returns a field block of literals without indexing.
pub(crate) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in fields {
        bytes.push(0);
        for part in [name, value] {
            assert!(part.len() < 127);
            bytes.push(part.len() as u8);
            bytes.extend(part.as_bytes());
        }
    }
    bytes
}

/// Returns the head of a response.
pub(crate) fn head(stream: u32, flags: u8, fields: &[(&str, &str)]) -> Vec<u8> {
    frame(HEADERS, flags | END_HEADERS, stream, &block(fields))
}

/// Returns a complete response with status 200.
pub(crate) fn ok(stream: u32, content: &str) -> Vec<u8> {
    let data = frame(DATA, END_STREAM, stream, content.as_bytes());
    [head(stream, 0, &[(":status", "200")]), data].concat()
}

impl RawPeer {
    fn new(stream: TcpStream) -> RawPeer {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(TEST_TIMEOUT)).unwrap();
        RawPeer { stream, received: Vec::new() }
    }

    /// Receives the preface, and sends settings.
    pub(crate) fn begin(&mut self, with: &[(u16, u32)]) {
        let mut preface = [0; PREFACE.len()];
        // The proxy may close the connection at any time.
        if self.stream.read_exact(&mut preface).is_ok() {
            assert_eq!(&preface, PREFACE);
        }
        self.send(settings(with));
    }

    /// Sends bytes unless the proxy has closed the connection.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.stream.write_all(bytes.as_ref());
    }

    /// Receives the next frame. Returns `None` when the proxy has closed the connection.
    pub(crate) fn frame(&mut self) -> Option<Frame> {
        loop {
            if let Some((&[a, b, c, kind, flags, d, e, f, g], rest)) =
                self.received.split_first_chunk()
            {
                let length = u32::from_be_bytes([0, a, b, c]) as usize;
                if let Some(payload) = rest.get(..length) {
                    let stream = u32::from_be_bytes([d, e, f, g]);
                    let frame = Frame { kind, flags, stream, payload: payload.to_vec() };
                    self.received.drain(..9 + length);
                    return Some(frame);
                }
            }
            let mut buffer = [0; 16 * 1024];
            match self.stream.read(&mut buffer) {
                Ok(0) => return None,
                Ok(count) => self.received.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no frame: {error}"),
            }
        }
    }

    /// Receives frames up to one of this type.
    pub(crate) fn expect(&mut self, kind: u8) -> Option<Frame> {
        loop {
            let frame = self.frame()?;
            if frame.kind == kind {
                return Some(frame);
            }
        }
    }

    /// Receives the head of the next request. Returns its stream.
    pub(crate) fn request(&mut self) -> Option<u32> {
        self.expect(HEADERS).map(|frame| frame.stream)
    }

    /// Receives frames until the proxy closes the connection.
    pub(crate) fn drain(&mut self) {
        while self.frame().is_some() {}
    }
}
