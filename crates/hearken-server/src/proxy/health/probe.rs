//! A health check: a request to a server and its response.

use std::io::{self, ErrorKind};
use std::time::Duration;

use hearken::io::{Address, CompletionKind, ConnectOptions, Io};
use hearken::{Token, limit};
use hearken_http::{Limits, Method, ResponseParser};
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
}

impl Probe {
    /// Starts to connect to one of the addresses, selected by `turn`.
    pub(super) fn start(
        io: &mut impl Io,
        endpoints: &Endpoints,
        turn: usize,
        tls: u32,
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
                if io.send_now(self.token, request) {
                    io.start(self.token);
                }
                return None;
            }
            CompletionKind::Sent(Ok(())) => {
                io.start(self.token);
                return None;
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
            if expected.map_or((200..400).contains(&status), |only| only == status) {
                return Ok(true);
            }
            let reason = hearken_http::reason(status);
            return Err(Failure::Server(format!("status {status} {reason}").trim_end().to_owned()));
        }
    }
}

/// Returns the failure of an operation, which is local if a limit of this host was reached.
fn failure(operation: &str, error: &io::Error) -> Failure {
    if limit::describe(error).is_some() {
        Failure::Local(format!("cannot perform the check: {operation}: {error}"))
    } else {
        Failure::Server(format!("{operation}: {error}"))
    }
}
