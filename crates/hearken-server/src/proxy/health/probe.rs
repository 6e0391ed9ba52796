//! A health check: a request to a server and its response.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use hearken::{Interest, Registration};
use hearken_http::{Limits, Method, ResponseParser};
use rustix::io::Errno;
use rustix::net::{
    self, AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt,
};

use super::Queue;
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
    socket: Registration<OwnedFd>,
    /// The text ` to ADDRESS` if the server has more than one address, otherwise empty.
    to: String,
    connected: bool,
    request: Vec<u8>,
    sent: usize,
    /// Number of received bytes.
    received_bytes: usize,
    /// Received bytes that are not parsed yet.
    received: Vec<u8>,
    parser: ResponseParser,
}

impl Probe {
    /// Starts to connect to one of the addresses, selected by `turn`. Events have the payload
    /// `server`.
    pub(super) fn start(
        queue: &Queue,
        server: usize,
        endpoints: &Endpoints,
        turn: usize,
        request: &[u8],
    ) -> Result<Probe, Failure> {
        let own =
            |error: Errno| Failure::Local(format!("cannot perform the check: socket: {error}"));
        let socket = |family| {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            net::socket_with(family, SocketType::STREAM, flags, None).map_err(own)
        };
        let (fd, connected, to) = match endpoints {
            Endpoints::Inet(addresses) => {
                let none = || Failure::Server("the name has no address".to_owned());
                let at = turn.checked_rem(addresses.len()).ok_or_else(none)?;
                let addr = addresses[at];
                let family =
                    if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
                let to = if addresses.len() > 1 { format!(" to {addr}") } else { String::new() };
                let fd = socket(family)?;
                let connected = net::connect(&fd, &addr);
                (fd, connected, to)
            }
            Endpoints::Unix(path) => {
                let fd = socket(AddressFamily::UNIX)?;
                let connected = connect_unix(&fd, path);
                (fd, connected, String::new())
            }
        };
        match connected {
            Ok(()) | Err(Errno::INPROGRESS) => {
                let declared = queue.declare_interest(fd, Interest::WRITE, server);
                let (socket, _) = declared.map_err(|refused| registration_error(&refused.error))?;
                Ok(Probe {
                    socket,
                    to,
                    connected: connected.is_ok(),
                    request: request.to_vec(),
                    sent: 0,
                    received_bytes: 0,
                    received: Vec::new(),
                    parser: ResponseParser::new(),
                })
            }
            Err(Errno::AGAIN) => {
                Err(Failure::Server("connect: the accept queue of the server is full".to_owned()))
            }
            // All local ports are in use.
            Err(error @ Errno::ADDRNOTAVAIL) => {
                Err(Failure::Local(format!("cannot perform the check: connect{to}: {error}")))
            }
            Err(error) => Err(connect_error(&to, &error.into())),
        }
    }

    /// Returns the failure of a check that timed out.
    pub(super) fn timed_out(&self, timeout: Duration) -> Failure {
        Failure::Server(if self.connected {
            format!("no response within {timeout:?}")
        } else {
            format!("no connection{} within {timeout:?}", self.to)
        })
    }

    /// Sends and receives without blocking. Returns the result when it is known.
    pub(super) fn resume(&mut self, expected: Option<u16>) -> Option<Result<(), Failure>> {
        match self.advance(expected) {
            Ok(true) => Some(Ok(())),
            Ok(false) => None,
            Err(reason) => Some(Err(reason)),
        }
    }

    fn advance(&mut self, expected: Option<u16>) -> Result<bool, Failure> {
        if !self.connected {
            match sockopt::socket_error(&*self.socket) {
                Ok(Ok(())) => self.connected = true,
                Ok(Err(error)) | Err(error) => return Err(connect_error(&self.to, &error.into())),
            }
        }
        while self.sent < self.request.len() {
            match net::send(&*self.socket, &self.request[self.sent..], SendFlags::NOSIGNAL) {
                Ok(count) => {
                    self.sent += count;
                    if self.sent == self.request.len() {
                        let changed = self.socket.change_interest(Interest::READ);
                        changed.map_err(|error| registration_error(&error))?;
                    }
                }
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(error) => return Err(io_error("send", error)),
            }
        }
        let mut bytes = [0; 4096];
        loop {
            let count = match net::recv(&*self.socket, &mut bytes[..], RecvFlags::empty()) {
                Ok((count, _)) => count,
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(io_error("receive", error)),
            };
            if count == 0 {
                let when = if self.received_bytes == 0 { "before" } else { "during" };
                return Err(Failure::Server(format!("connection closed {when} the response")));
            }
            self.received_bytes += count;
            self.received.extend_from_slice(&bytes[..count]);
            if self.has_final_response(expected)? {
                return Ok(true);
            }
            if self.received_bytes > MAX_RESPONSE_BYTES {
                return Err(Failure::Server("the response head is too long".to_owned()));
            }
        }
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

fn connect_unix(fd: &OwnedFd, path: &Path) -> Result<(), Errno> {
    net::connect(fd, &SocketAddrUnix::new(path)?)
}

fn registration_error(error: &io::Error) -> Failure {
    Failure::Local(format!("cannot perform the check: declaring interest: {error}"))
}

fn connect_error(to: &str, error: &io::Error) -> Failure {
    Failure::Server(format!("connect{to}: {error}"))
}

fn io_error(call: &str, error: Errno) -> Failure {
    Failure::Server(format!("{call}: {}", io::Error::from(error)))
}
