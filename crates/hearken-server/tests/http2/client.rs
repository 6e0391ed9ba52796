//! Clients: the `h2` crate, and one that sends any frames.

use std::future::Future;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use bytes::Bytes;
use h2::client::{SendRequest, handshake};
use hearken_http::h2::PREFACE;
use http::{HeaderMap, Method, Request, Response, Version};

use crate::common::TEST_TIMEOUT;

/// Runs a future to its end, within the time limit.
pub(crate) fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        tokio::time::timeout(TEST_TIMEOUT, future).await.expect("the server hangs")
    })
}

/// Connects with prior knowledge.
pub(crate) async fn connect(addr: SocketAddr) -> SendRequest<Bytes> {
    let stream = tokio::net::TcpStream::connect(addr).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (send, connection) = handshake(stream).await.unwrap();
    tokio::task::spawn_local(async {
        let _ = connection.await;
    });
    send.ready().await.unwrap()
}

/// A complete response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) fields: HeaderMap,
    pub(crate) content: Vec<u8>,
}

/// Returns a request with an absolute target.
pub(crate) fn request(method: &str, path: &str) -> Request<()> {
    let method = Method::from_bytes(method.as_bytes()).unwrap();
    let uri = format!("http://test{path}");
    Request::builder().method(method).uri(uri).version(Version::HTTP_2).body(()).unwrap()
}

/// Sends a request with this content, and receives the response.
pub(crate) async fn exchange(
    send: &mut SendRequest<Bytes>,
    request: Request<()>,
    content: &[u8],
) -> Result<Reply, h2::Error> {
    let (response, mut body) = send.send_request(request, content.is_empty())?;
    if !content.is_empty() {
        body.send_data(Bytes::copy_from_slice(content), true)?;
    }
    read(response.await?).await
}

/// Receives the content of a response.
pub(crate) async fn read(response: Response<h2::RecvStream>) -> Result<Reply, h2::Error> {
    let (head, mut body) = response.into_parts();
    let mut content = Vec::new();
    while let Some(data) = body.data().await {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        content.extend_from_slice(&data);
    }
    Ok(Reply { status: head.status.as_u16(), fields: head.headers, content })
}

/// A client that sends any bytes.
pub(crate) struct RawClient {
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

/// Types of frames.
pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;

/// Flags of frames.
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// The field block of `GET /small` at `http://a`.
pub(crate) const GET_SMALL: &[u8] = b"\x82\x86\x01\x01a\x04\x06/small";

/// Returns a frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Returns a request for `/small`.
pub(crate) fn get_small(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_STREAM | END_HEADERS, stream, GET_SMALL)
}

/// Returns the preface and a SETTINGS frame.
pub(crate) fn preface(settings: &[(u16, u32)]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (id, value) in settings {
        payload.extend(id.to_be_bytes());
        payload.extend(value.to_be_bytes());
    }
    [PREFACE.to_vec(), frame(SETTINGS, 0, 0, &payload)].concat()
}

impl RawClient {
    /// Connects, and sends the preface with these settings.
    pub(crate) fn connect(addr: SocketAddr, settings: &[(u16, u32)]) -> RawClient {
        let mut client = RawClient::silent(addr);
        client.send(preface(settings));
        client
    }

    /// Connects, and sends nothing.
    pub(crate) fn silent(addr: SocketAddr) -> RawClient {
        let stream = TcpStream::connect(addr).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(TEST_TIMEOUT)).unwrap();
        RawClient { stream, received: Vec::new() }
    }

    /// Returns a client that receives what another one receives.
    pub(crate) fn reading(other: &RawClient) -> RawClient {
        RawClient { stream: other.stream.try_clone().unwrap(), received: Vec::new() }
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    /// Sends bytes unless the server has closed the connection. Returns whether they were sent.
    pub(crate) fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).is_ok()
    }

    /// Receives the next frame. Returns `None` when the server has closed the connection.
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
    pub(crate) fn expect(&mut self, kind: u8) -> Frame {
        loop {
            let frame = self.frame().expect("the server closed the connection");
            if frame.kind == kind {
                return frame;
            }
        }
    }

    /// Receives frames until the server closes the connection. Returns the error code of the last GOAWAY
    /// frame.
    pub(crate) fn read_end(&mut self) -> Option<u32> {
        let mut code = None;
        while let Some(frame) = self.frame() {
            if frame.kind == GOAWAY {
                code = Some(u32::from_be_bytes(frame.payload[4..8].try_into().unwrap()));
            }
        }
        code
    }
}
