//! Frames written and read by hand, and a server that records its events as text.

use std::sync::Arc;

use hearken_http::h2::{
    Config, Connection, ConnectionError, ErrorCode, Event, HeadBuffer, PREFACE, StreamId,
};

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PUSH_PROMISE: u8 = 5;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const PRIORITY_UPDATE: u8 = 16;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
pub(crate) const PADDED: u8 = 8;
pub(crate) const ACK: u8 = 1;

/// Fields of a request for `/`.
pub(crate) const GET: &[(&str, &str)] =
    &[(":method", "GET"), (":scheme", "https"), (":authority", "a"), (":path", "/")];
/// Fields of a request with a body.
pub(crate) const POST: &[(&str, &str)] =
    &[(":method", "POST"), (":scheme", "https"), (":authority", "a"), (":path", "/")];

/// Returns a frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = (payload.len() as u32).to_be_bytes();
    let mut bytes = vec![len[1], len[2], len[3], kind, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Returns a field block of literals without indexing.
pub(crate) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in fields {
        bytes.push(0);
        for part in [name, value] {
            // A length of 127 or more continues in further bytes.
            match part.len() {
                len @ 0..127 => bytes.push(len as u8),
                len => {
                    let rest = len - 127;
                    bytes.extend([127, rest as u8 & 0x7f | 0x80, (rest >> 7) as u8 & 0x7f | 0x80]);
                    bytes.push((rest >> 14) as u8);
                }
            }
            bytes.extend(part.as_bytes());
        }
    }
    bytes
}

/// Returns a HEADERS frame with a complete block.
pub(crate) fn headers(stream: u32, fields: &[(&str, &str)], end: bool) -> Vec<u8> {
    let flags = END_HEADERS | if end { END_STREAM } else { 0 };
    frame(HEADERS, flags, stream, &block(fields))
}

/// Returns the preface and empty settings of a client.
pub(crate) fn preface() -> Vec<u8> {
    [&PREFACE[..], &frame(SETTINGS, 0, 0, &[]), &frame(SETTINGS, ACK, 0, &[])].concat()
}

/// A received frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

/// Splits output into frames.
pub(crate) fn frames(mut bytes: &[u8]) -> Vec<Frame> {
    let mut frames = Vec::new();
    while let Some((header, rest)) = bytes.split_first_chunk::<9>() {
        let [a, b, c, kind, flags, stream @ ..] = *header;
        let (payload, rest) = rest.split_at(u32::from_be_bytes([0, a, b, c]) as usize);
        let stream = u32::from_be_bytes(stream);
        frames.push(Frame { kind, flags, stream, payload: payload.to_vec() });
        bytes = rest;
    }
    assert!(bytes.is_empty(), "incomplete frame");
    frames
}

/// Describes an event and everything that it borrows.
pub(crate) fn describe(event: &Event<'_>) -> String {
    match event {
        Event::Request { stream, request, end } => {
            let head = request
                .fields()
                .map(|(name, value)| format!("{}: {}", name.escape_ascii(), value.escape_ascii()));
            let head: Vec<_> = head.collect();
            let (method, target) = (request.method.as_bytes(), request.raw_target);
            format!(
                "request {} end={end} {} {} {:?} {head:?}",
                stream.get(),
                method.escape_ascii(),
                target.escape_ascii(),
                request.body,
            )
        }
        Event::Response { stream, response, end } => {
            let head = response
                .fields()
                .map(|(name, value)| format!("{}: {}", name.escape_ascii(), value.escape_ascii()));
            let head: Vec<_> = head.collect();
            let (status, body) = (response.status, response.body);
            format!("response {} end={end} {status} {body:?} {head:?}", stream.get())
        }
        Event::Trailers { stream, fields } => {
            let fields: Vec<_> = fields
                .map(|(n, v)| format!("{}: {}", n.escape_ascii(), v.escape_ascii()))
                .collect();
            format!("trailers {} {fields:?}", stream.get())
        }
        Event::Data { stream, data, end } => {
            format!("data {} end={end} {}", stream.get(), data.escape_ascii())
        }
        Event::Rejected { stream, reject } => {
            format!("rejected {} {}", stream.get(), reject.status)
        }
        Event::Reset { stream, code, .. } => format!("reset {} {code}", stream.get()),
        Event::Goaway { code } => format!("goaway {code}"),
        other => format!("{other:?}"),
    }
}

/// An endpoint whose peer is written by hand.
pub(crate) struct Endpoint {
    pub(crate) connection: Connection,
    pub(crate) head: HeadBuffer,
    pub(crate) out: Vec<u8>,
    pub(crate) events: Vec<String>,
}

impl Endpoint {
    /// Returns a server that has received the preface.
    pub(crate) fn server(config: Config) -> Self {
        let mut out = Vec::new();
        let connection = Connection::server(Arc::new(config), &mut out);
        let mut server = Self { connection, head: HeadBuffer::new(), out, events: Vec::new() };
        server.receive(&preface()).unwrap();
        server.out.clear();
        server.events.clear();
        server
    }

    /// Returns a client that has received settings with this payload.
    pub(crate) fn client(config: Config, settings: &[u8]) -> Self {
        let mut out = Vec::new();
        let connection = Connection::client(Arc::new(config), &mut out);
        let mut client = Self { connection, head: HeadBuffer::new(), out, events: Vec::new() };
        client.receive(&frame(SETTINGS, 0, 0, settings)).unwrap();
        client.receive(&frame(SETTINGS, ACK, 0, &[])).unwrap();
        client.out.clear();
        client.events.clear();
        client
    }

    /// Receives bytes and records the events. Releases content at once.
    pub(crate) fn receive(&mut self, mut bytes: &[u8]) -> Result<(), ConnectionError> {
        loop {
            let event = self.connection.receive(&mut bytes, &mut self.head, &mut self.out)?;
            let Some(event) = event else { break };
            self.events.push(describe(&event));
            if let Event::Data { stream, data, .. } = event {
                self.connection.release(stream, data.len(), &mut self.out);
            }
        }
        assert!(bytes.is_empty());
        Ok(())
    }

    /// Receives bytes that end the connection, and checks that the output ends with GOAWAY.
    pub(crate) fn fail(&mut self, bytes: &[u8]) -> ConnectionError {
        let error = self.receive(bytes).expect_err("the connection fails");
        let last = frames(&self.out).pop().expect("output");
        assert_eq!((last.kind, &last.payload[4..8]), (GOAWAY, &error.code.0.to_be_bytes()[..]));
        assert_eq!(&last.payload[8..], error.reason.as_bytes());
        // Further input is ignored.
        self.out.clear();
        self.receive(&headers(99, GET, true)).unwrap();
        assert_eq!((&*self.out, self.connection.active_streams()), (&[][..], 0));
        error
    }

    /// Returns the output as frames, and empties it.
    pub(crate) fn sent(&mut self) -> Vec<Frame> {
        frames(&std::mem::take(&mut self.out))
    }

    /// Returns the recorded events, and forgets them.
    pub(crate) fn events(&mut self) -> Vec<String> {
        std::mem::take(&mut self.events)
    }

    /// Answers a request with status 200 and this content. Returns the number of bytes that were accepted.
    pub(crate) fn answer(&mut self, stream: StreamId, content: &[u8]) -> usize {
        let none: [(&str, &str); 0] = [];
        assert!(self.connection.respond(stream, 200, none, false, &mut self.out));
        self.connection.send_data(stream, content, true, &mut self.out)
    }

    /// Receives one request and returns its stream.
    pub(crate) fn request(&mut self, mut bytes: &[u8]) -> StreamId {
        match self.connection.receive(&mut bytes, &mut self.head, &mut self.out) {
            Ok(Some(Event::Request { stream, .. })) => stream,
            other => panic!("{other:?}"),
        }
    }
}

/// Returns the code of the RST_STREAM frame in `frames`.
pub(crate) fn reset_code(frames: &[Frame]) -> Option<ErrorCode> {
    let reset = frames.iter().find(|frame| frame.kind == RST_STREAM)?;
    Some(ErrorCode(u32::from_be_bytes(reset.payload[..].try_into().ok()?)))
}
