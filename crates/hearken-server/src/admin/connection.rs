//! A connection to the admin address: reading one request, answering it, and closing.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use hearken_http::{Limits, RequestParser};
use rustix::event::PollFlags;

use super::What;
use super::answer::{answer, refuse};

/// For the request's head to come.
const HEAD: Duration = Duration::from_secs(5);
/// For the answer to be taken.
const SEND: Duration = Duration::from_secs(10);
/// For the peer to close, so that what it still sends does not cost it the answer; and so many bytes.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 64 * 1024;

const LIMITS: Limits = Limits { head_bytes: 8 * 1024, fields: 64, target_bytes: 4 * 1024 };

#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    /// It came to this machine's own address, which no other machine can reach.
    loopback: bool,
    deadline: Instant,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    Reading { bytes: Vec<u8>, parser: RequestParser },
    Writing { answer: Vec<u8>, sent: usize },
    Lingering { read: usize },
}

impl Connection {
    pub(super) fn new(stream: TcpStream, now: Instant) -> io::Result<Connection> {
        stream.set_nonblocking(true)?;
        let loopback = stream.local_addr()?.ip().to_canonical().is_loopback();
        let phase = Phase::Reading { bytes: Vec::new(), parser: RequestParser::new() };
        Ok(Connection { stream, loopback, deadline: now + HEAD, phase })
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// What it waits for.
    pub(super) fn interest(&self) -> PollFlags {
        match self.phase {
            Phase::Writing { .. } => PollFlags::OUT,
            _ => PollFlags::IN,
        }
    }

    /// Does what can be done now, and tells whether there is more to come.
    pub(super) fn go_on(&mut self, now: Instant, what: &What) -> bool {
        loop {
            match self.step(now, what) {
                Ok(true) => {}
                Ok(false) => return false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
    }

    /// One call, and what follows of it; false if the connection is done with.
    fn step(&mut self, now: Instant, what: &What) -> io::Result<bool> {
        match &mut self.phase {
            Phase::Reading { bytes, parser } => {
                let mut piece = [0; 4096];
                let count = self.stream.read(&mut piece)?;
                bytes.extend_from_slice(piece.get(..count).unwrap_or_default());
                let answer = match parser.parse(bytes, &LIMITS) {
                    Ok(Some(request)) => answer(&request, self.loopback, what),
                    Ok(None) => return Ok(count > 0),
                    Err(reject) => refuse(reject),
                };
                self.phase = Phase::Writing { answer, sent: 0 };
                self.deadline = now + SEND;
            }
            Phase::Writing { answer, sent } => {
                *sent += self.stream.write(answer.get(*sent..).unwrap_or_default())?;
                if *sent >= answer.len() {
                    self.stream.shutdown(Shutdown::Write)?;
                    self.phase = Phase::Lingering { read: 0 };
                    self.deadline = now + LINGER;
                }
            }
            Phase::Lingering { read } => {
                let count = self.stream.read(&mut [0; 4096])?;
                *read += count;
                return Ok(count > 0 && *read < LINGER_BYTES);
            }
        }
        Ok(true)
    }
}
