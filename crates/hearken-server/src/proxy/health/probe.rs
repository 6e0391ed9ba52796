//! A health check: a request to a server and its response.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use hearken::io::{Address, CompletionKind, ConnectOptions, Io};
use hearken::{Token, limit};
use hearken_http::h2::{self, HeadBuffer};
use hearken_http::{Limits, Method, RequestParser, ResponseParser};
use rustix::io::Errno;

use crate::proxy::servers::Endpoints;

/// Maximum number of bytes to read, including interim responses.
const MAX_RESPONSE_BYTES: usize = 64 * 1024;

/// The failure of a health check.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Failure {
    /// The server failed the check.
    Server(String),
    /// The check could not be performed, for a local reason.
    Local(String),
}

/// A check in progress.
pub(super) struct Probe {
    token: Token,
    /// The text ` to ADDRESS` if the server has more than one address, otherwise empty.
    to: String,
    connected: bool,
    /// Number of received bytes.
    received_bytes: usize,
    /// Received bytes that are not parsed yet.
    received: Vec<u8>,
    parser: ResponseParser,
    /// Whether the server speaks HTTP/2 without negotiation.
    is_http2: bool,
    /// The state of the connection, if it speaks HTTP/2.
    frames: Option<Box<h2::Connection>>,
}

impl Probe {
    /// Starts to connect to one of the addresses, selected by `turn`.
    pub(super) fn start(
        io: &mut impl Io,
        endpoints: &Endpoints,
        turn: usize,
        (tls, is_http2): (u32, bool),
    ) -> Result<Probe, Failure> {
        let (address, to) = match endpoints {
            Endpoints::Inet(addresses) => {
                let none = || Failure::Server("the name has no address".to_owned());
                let at = turn.checked_rem(addresses.len()).ok_or_else(none)?;
                let addr = addresses[at];
                let to = if addresses.len() > 1 { format!(" to {addr}") } else { String::new() };
                (Address::Inet(addr), to)
            }
            Endpoints::Unix(path) => (Address::Unix(path.clone()), String::new()),
        };
        let mut options = ConnectOptions::default();
        options.tls = tls;
        match io.connect_with(&address, &options) {
            Ok(token) => Ok(Probe {
                token,
                to,
                connected: false,
                received_bytes: 0,
                received: Vec::new(),
                parser: ResponseParser::new(),
                is_http2,
                frames: None,
            }),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                Err(Failure::Server("connect: the accept queue of the server is full".to_owned()))
            }
            // All local ports are in use, or another resource is exhausted.
            Err(error) => Err(match Errno::from_io_error(&error) {
                Some(Errno::MFILE | Errno::NFILE) => failure("socket", &error),
                _ => failure(&format!("connect{to}"), &error),
            }),
        }
    }

    /// Returns the token of the connection.
    pub(super) fn token(&self) -> Token {
        self.token
    }

    /// Returns the failure of a check that timed out.
    pub(super) fn timed_out(&self, timeout: Duration) -> Failure {
        Failure::Server(if self.connected {
            format!("no response within {timeout:?}")
        } else {
            format!("no connection{} within {timeout:?}", self.to)
        })
    }

    /// Handles a completion of the connection: sends `request`, then receives the response. Returns
    /// the result when it is known.
    pub(super) fn resume(
        &mut self,
        io: &mut impl Io,
        kind: CompletionKind,
        request: &[u8],
        expected: Option<u16>,
    ) -> Option<Result<(), Failure>> {
        let failure = match kind {
            CompletionKind::Connected(Ok(())) => {
                self.connected = true;
                let security = io.security(self.token);
                let is_https = security.is_some();
                let is_selected =
                    security.is_some_and(|security| security.protocol == Some(h2::ALPN));
                let frames =
                    (self.is_http2 || is_selected).then(|| self.begin_http2(request, is_https));
                if io.send_now(self.token, frames.as_deref().unwrap_or(request)) {
                    io.start(self.token);
                }
                return None;
            }
            CompletionKind::Sent(Ok(())) => {
                io.start(self.token);
                return None;
            }
            CompletionKind::Received(bytes) if self.frames.is_some() => {
                return self.receive_frames(io, &bytes, expected).transpose();
            }
            CompletionKind::Received(bytes) => return self.receive(&bytes, expected).transpose(),
            CompletionKind::Connected(Err(error)) => {
                failure(&format!("connect{}", self.to), &error)
            }
            CompletionKind::Sent(Err(error)) => failure("send", &error),
            CompletionKind::ReceiveFailed(error) => failure("receive", &error),
            CompletionKind::End => {
                let when = if self.received_bytes == 0 { "before" } else { "during" };
                Failure::Server(format!("connection closed {when} the response"))
            }
            _ => return None,
        };
        Some(Err(failure))
    }

    fn receive(&mut self, bytes: &[u8], expected: Option<u16>) -> Result<Option<()>, Failure> {
        self.received_bytes += bytes.len();
        self.received.extend_from_slice(bytes);
        if self.has_final_response(expected)? {
            return Ok(Some(()));
        }
        if self.received_bytes > MAX_RESPONSE_BYTES {
            return Err(Failure::Server("the response head is too long".to_owned()));
        }
        Ok(None)
    }

    /// Begins an HTTP/2 connection. Returns the frames of the request.
    fn begin_http2(&mut self, request: &[u8], is_https: bool) -> Vec<u8> {
        let mut out = Vec::new();
        let config = Arc::new(h2::Config { is_https, ..h2::Config::default() });
        let mut frames = h2::Connection::client(config, &mut out);
        if let Ok(Some(request)) = RequestParser::new().parse(request, &Limits::default()) {
            // A new connection accepts any request without an upgrade.
            let _ = frames.send_request(&request, true, &mut out);
        }
        self.frames = Some(Box::new(frames));
        out
    }

    /// Receives frames of a server. Frames that answer them are not worth waiting for a send.
    fn receive_frames(
        &mut self,
        io: &mut impl Io,
        mut bytes: &[u8],
        expected: Option<u16>,
    ) -> Result<Option<()>, Failure> {
        let Some(frames) = &mut self.frames else { return Ok(None) };
        let (mut head, mut out) = (HeadBuffer::new(), Vec::new());
        let malformed = |reason: &str| Failure::Server(format!("malformed response: {reason}"));
        loop {
            let event = frames.receive(&mut bytes, &mut head, &mut out);
            match event.map_err(|error| malformed(error.reason))? {
                None => break,
                Some(h2::Event::Response { response, .. }) if response.status >= 200 => {
                    return check_status(response.status, expected).map(Some);
                }
                Some(h2::Event::Reset { code, reason: "", .. }) => {
                    let reason = format!("the server reset the stream with {code}");
                    return Err(Failure::Server(reason));
                }
                Some(h2::Event::Reset { reason, .. }) => return Err(malformed(reason)),
                Some(_) => {}
            }
        }
        frames.output_sent();
        if !out.is_empty() {
            io.send_now(self.token, &out);
        }
        Ok(None)
    }

    /// Returns whether the head of the final response was received and has the expected status.
    fn has_final_response(&mut self, expected: Option<u16>) -> Result<bool, Failure> {
        loop {
            let parsed = self.parser.parse(&self.received, Method::Get, &Limits::default());
            let not_http = |bad| Failure::Server(format!("malformed response: {bad}"));
            let Some(response) = parsed.map_err(not_http)? else { return Ok(false) };
            let (status, head_len) = (response.status, response.head_len);
            if (100..200).contains(&status) && status != 101 {
                self.received.drain(..head_len);
                continue;
            }
            return check_status(status, expected).map(|()| true);
        }
    }
}

/// Checks the status of a response.
fn check_status(status: u16, expected: Option<u16>) -> Result<(), Failure> {
    if expected.map_or((200..400).contains(&status), |only| only == status) {
        return Ok(());
    }
    let reason = hearken_http::reason(status);
    Err(Failure::Server(format!("status {status} {reason}").trim_end().to_owned()))
}

/// Returns the failure of an operation, which is local if a limit of this host was reached.
fn failure(operation: &str, error: &io::Error) -> Failure {
    if limit::describe(error).is_some() {
        Failure::Local(format!("cannot perform the check: {operation}: {error}"))
    } else {
        Failure::Server(format!("{operation}: {error}"))
    }
}
