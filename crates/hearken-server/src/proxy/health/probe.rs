//! One question to a server, and its answer.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use hearken::timer::Time;
use hearken_http::{Limits, Method, ResponseParser};
use rustix::io::Errno;
use rustix::net::{
    self, AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt,
};

use crate::proxy::servers::Places;

/// How many bytes of an answer are read at most, interim ones included.
const MOST: usize = 64 * 1024;

/// Why a check told nothing good.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Failure {
    /// The server failed it.
    Of(String),
    /// It could not be made, which says nothing of the server.
    Own(String),
}

/// A check that is under way.
pub(super) struct Probe {
    fd: OwnedFd,
    pub(super) deadline: Time,
    /// To whom, if the server has more than one address.
    to: String,
    connected: bool,
    /// What is still to be sent.
    question: Vec<u8>,
    sent: usize,
    /// How many bytes of the answer have come, and those that are not done with.
    total: usize,
    received: Vec<u8>,
    parser: ResponseParser,
}

impl Probe {
    /// Begins to connect to one of `places`: that whose turn it is.
    pub(super) fn begin(
        places: &Places,
        turn: usize,
        question: &[u8],
        deadline: Time,
    ) -> Result<Probe, Failure> {
        let own = |error: Errno| Failure::Own(format!("cannot be checked: socket: {error}"));
        let socket = |family| {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            net::socket_with(family, SocketType::STREAM, flags, None).map_err(own)
        };
        let (fd, connected, to) = match places {
            Places::Inet(addresses) => {
                let none = || Failure::Of("its name has no address".to_owned());
                let at = turn.checked_rem(addresses.len()).ok_or_else(none)?;
                let addr = addresses[at];
                let family =
                    if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
                let to = if addresses.len() > 1 { format!(" to {addr}") } else { String::new() };
                let fd = socket(family)?;
                let connected = net::connect(&fd, &addr);
                (fd, connected, to)
            }
            Places::Unix(path) => {
                let fd = socket(AddressFamily::UNIX)?;
                let connected = connect_unix(&fd, path);
                (fd, connected, String::new())
            }
        };
        match connected {
            Ok(()) | Err(Errno::INPROGRESS) => Ok(Probe {
                fd,
                deadline,
                to,
                connected: connected.is_ok(),
                question: question.to_vec(),
                sent: 0,
                total: 0,
                received: Vec::new(),
                parser: ResponseParser::new(),
            }),
            Err(Errno::AGAIN) => {
                Err(Failure::Of("connect: as many wait to be accepted as may".to_owned()))
            }
            // No port is left, here.
            Err(error @ Errno::ADDRNOTAVAIL) => {
                Err(Failure::Own(format!("cannot be checked: connect{to}: {error}")))
            }
            Err(error) => Err(refused(&to, &error.into())),
        }
    }

    /// Whether it waits to send and not to receive.
    pub(super) fn is_sending(&self) -> bool {
        self.sent < self.question.len()
    }

    /// What is said if its time is over.
    pub(super) fn late(&self, timeout: Duration) -> Failure {
        Failure::Of(if self.connected {
            format!("no answer within {timeout:?}")
        } else {
            format!("no connection{} within {timeout:?}", self.to)
        })
    }

    /// Does what can be done now, and tells what came of it once that is known.
    pub(super) fn go_on(&mut self, expected: Option<u16>) -> Option<Result<(), Failure>> {
        match self.advance(expected) {
            Ok(true) => Some(Ok(())),
            Ok(false) => None,
            Err(reason) => Some(Err(reason)),
        }
    }

    fn advance(&mut self, expected: Option<u16>) -> Result<bool, Failure> {
        if !self.connected {
            match sockopt::socket_error(&self.fd) {
                Ok(Ok(())) => self.connected = true,
                Ok(Err(error)) | Err(error) => return Err(refused(&self.to, &error.into())),
            }
        }
        while self.is_sending() {
            match net::send(&self.fd, &self.question[self.sent..], SendFlags::NOSIGNAL) {
                Ok(count) => self.sent += count,
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(error) => return Err(broken("send", error)),
            }
        }
        let mut bytes = [0; 4096];
        loop {
            let count = match net::recv(&self.fd, &mut bytes[..], RecvFlags::empty()) {
                Ok((count, _)) => count,
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(broken("receive", error)),
            };
            if count == 0 {
                let when = if self.total == 0 { "before" } else { "within" };
                return Err(Failure::Of(format!("closed the connection {when} its answer")));
            }
            self.total += count;
            self.received.extend_from_slice(&bytes[..count]);
            if self.is_answered(expected)? {
                return Ok(true);
            }
            if self.total > MOST {
                return Err(Failure::Of("answered without end".to_owned()));
            }
        }
    }

    /// Whether the head of the final answer has come and says what it should.
    fn is_answered(&mut self, expected: Option<u16>) -> Result<bool, Failure> {
        loop {
            let parsed = self.parser.parse(&self.received, Method::Get, &Limits::default());
            let not_http = |bad| Failure::Of(format!("answered what is no HTTP response: {bad}"));
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
            return Err(Failure::Of(format!("answered {status} {reason}").trim_end().to_owned()));
        }
    }
}

impl AsFd for Probe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn connect_unix(fd: &OwnedFd, path: &Path) -> Result<(), Errno> {
    net::connect(fd, &SocketAddrUnix::new(path)?)
}

fn refused(to: &str, error: &io::Error) -> Failure {
    Failure::Of(format!("connect{to}: {error}"))
}

fn broken(call: &str, error: Errno) -> Failure {
    Failure::Of(format!("{call}: {}", io::Error::from(error)))
}
