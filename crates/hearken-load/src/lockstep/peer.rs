//! One connection of the driver: a blocking socket, and the replies that it is owed.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use hearken_http::Method;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use crate::failure::Failure;
use crate::reply::{CompleteReply, Reply};

/// Why a pass ends early.
#[derive(Debug)]
pub(super) struct PassError {
    pub(super) failure: Failure,
    pub(super) message: String,
}

impl PassError {
    fn from_io(action: &str, error: &io::Error) -> PassError {
        // What a socket with a timeout says when it has passed.
        let timed_out = matches!(
            error.kind(),
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::WriteZero
        );
        if timed_out {
            let text = format!("{action}: the server did not answer within the timeout");
            return PassError { failure: Failure::ClientTimo, message: text };
        }
        PassError { failure: Failure::from_error(error), message: format!("{action}: {error}") }
    }
}

/// A connection and what it still owes.
#[derive(Debug)]
pub(super) struct Peer {
    stream: TcpStream,
    reply: Reply,
    /// Replies that are still to come.
    outstanding: usize,
    /// The last of them was the last that this connection carries.
    connection_close: bool,
    /// The server has closed it.
    closed_by_server: bool,
    /// It is to be closed by the server before the round is over.
    awaits_close: bool,
}

impl Peer {
    pub(super) fn connect(addr: SocketAddr, timeout: Duration) -> Result<Peer, PassError> {
        let failed = |error: io::Error| PassError::from_io("connecting", &error);
        let stream = TcpStream::connect_timeout(&addr, timeout).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        stream.set_read_timeout(Some(timeout)).map_err(failed)?;
        stream.set_write_timeout(Some(timeout)).map_err(failed)?;
        let reply = Reply::default();
        Ok(Peer {
            stream,
            reply,
            outstanding: 0,
            connection_close: false,
            closed_by_server: false,
            awaits_close: false,
        })
    }

    /// Sends `message`, which asks for so many replies.
    pub(super) fn send(&mut self, message: &[u8], replies: usize) -> Result<(), PassError> {
        self.outstanding = replies;
        self.stream.write_all(message).map_err(|error| PassError::from_io("sending", &error))
    }

    /// Whether all is there that the round waits for.
    pub(super) fn is_done(&self) -> bool {
        self.outstanding == 0 && (self.closed_by_server || !self.awaits_close)
    }

    /// Whether it can be asked again.
    pub(super) fn can_carry_more(&self) -> bool {
        !self.connection_close && !self.closed_by_server
    }

    /// Reads once; nothing if it would block. The end of the stream is a read of 0 bytes.
    pub(super) fn receive(
        &mut self,
        buffer: &mut [u8],
        blocking: bool,
    ) -> Result<Option<usize>, PassError> {
        let flags = if blocking { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
        loop {
            match recv(&self.stream, &mut *buffer, flags) {
                Ok((count, _)) => return Ok(Some(count)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if !blocking => return Ok(None),
                // After its reply, a server that closes may do so by a reset.
                Err(Errno::CONNRESET) if self.outstanding == 0 => return Ok(Some(0)),
                Err(error) => return Err(PassError::from_io("reading a reply", &error.into())),
            }
        }
    }

    /// Takes in what was read; `replied` is told each reply that is complete. With `close`, the
    /// round waits for the end of the stream, too.
    pub(super) fn on_received(
        &mut self,
        mut bytes: &[u8],
        method: Method<'static>,
        close: bool,
        mut replied: impl FnMut(CompleteReply) -> Result<(), PassError>,
    ) -> Result<(), PassError> {
        self.awaits_close = close;
        if bytes.is_empty() {
            self.closed_by_server = true;
            return match self.reply.on_end_of_stream() {
                Some(done) if self.outstanding == 1 => {
                    self.outstanding = 0;
                    replied(done)
                }
                _ if self.outstanding == 0 => Ok(()),
                _ => {
                    let text = "the server closed a connection before its reply was complete";
                    Err(PassError { failure: Failure::ConnReset, message: text.to_owned() })
                }
            };
        }
        while !bytes.is_empty() {
            if self.outstanding == 0 {
                return Err(PassError::reply("more came than was asked for".to_owned()));
            }
            let fed = self.reply.feed_next(&mut bytes, method, None, |_| (), |_| ());
            let fed =
                fed.map_err(|error| PassError::reply(format!("a reply is malformed: {error}")))?;
            let Some(done) = fed else { return Ok(()) };
            self.outstanding -= 1;
            self.connection_close = !done.keep_alive;
            replied(done)?;
        }
        Ok(())
    }
}

/// Waits until one of those that owe something has something to read.
pub(super) fn wait(peers: &[Peer], timeout: Duration) -> Result<(), PassError> {
    let waiting = peers.iter().filter(|peer| !peer.is_done());
    let mut fds: Vec<_> = waiting.map(|peer| PollFd::new(&peer.stream, PollFlags::IN)).collect();
    let timeout = Timespec::try_from(timeout).ok();
    match poll(&mut fds, timeout.as_ref()) {
        Ok(0) => Err(PassError::from_io("waiting for a reply", &io::ErrorKind::TimedOut.into())),
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(PassError::from_io("poll", &error.into())),
    }
}
