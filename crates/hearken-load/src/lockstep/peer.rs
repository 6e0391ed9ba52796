//! A connection of the driver and its outstanding replies.

use std::io;
use std::time::Duration;

use hearken_http::Method;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::stream::Stream;
use crate::failure::Failure;
use crate::http2::Streams;
use crate::reply::{CompleteReply, Heads, Reply};
use crate::workload::Workload;

/// An error that ends a pass.
#[derive(Debug)]
pub(super) struct PassError {
    pub(super) failure: Failure,
    pub(super) message: String,
}

impl PassError {
    pub(super) fn from_io(action: &str, error: &io::Error) -> PassError {
        // Errors of a socket whose timeout has expired.
        let timed_out = matches!(
            error.kind(),
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::WriteZero
        );
        if timed_out {
            let text = format!("{action}: no reply within the timeout");
            return PassError { failure: Failure::ClientTimo, message: text };
        }
        PassError { failure: Failure::from_error(error), message: format!("{action}: {error}") }
    }
}

/// A connection and its outstanding replies.
#[derive(Debug)]
pub(super) struct Peer {
    stream: Stream,
    reply: Reply,
    /// Number of outstanding replies.
    pub(super) outstanding: usize,
    /// Whether the last reply ended the connection's reuse.
    pub(super) connection_close: bool,
    /// Whether the server has closed the connection.
    pub(super) closed_by_server: bool,
    /// Whether the round lasts until the server closes the connection.
    awaits_close: bool,
    /// The state of HTTP/2, if it is used, in place of `reply`.
    pub(super) streams: Option<Box<Streams>>,
}

impl Peer {
    pub(super) fn new(stream: Stream) -> Peer {
        Peer {
            stream,
            reply: Reply::default(),
            outstanding: 0,
            connection_close: false,
            closed_by_server: false,
            awaits_close: false,
            streams: None,
        }
    }

    /// Sends `message`, which contains `replies` requests, or in HTTP/2 the only request of the
    /// workload as often. Returns the number of bytes sent.
    pub(super) fn send(
        &mut self,
        message: &[u8],
        replies: usize,
        workload: &Workload,
    ) -> Result<usize, PassError> {
        self.outstanding = replies;
        if self.is_http2() {
            return self.send_on_streams(replies, workload);
        }
        self.write(message)?;
        Ok(message.len())
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), PassError> {
        self.stream.write(bytes)
    }

    /// Returns whether the round needs nothing more from this connection.
    pub(super) fn is_done(&self) -> bool {
        self.outstanding == 0 && (self.closed_by_server || !self.awaits_close)
    }

    /// Returns whether the connection can carry another request.
    pub(super) fn can_carry_more(&self) -> bool {
        !self.connection_close && !self.closed_by_server
    }

    /// Reads once. Returns `None` if the read would block, and 0 at the end of the stream.
    pub(super) fn receive(
        &mut self,
        buffer: &mut [u8],
        blocking: bool,
    ) -> Result<Option<usize>, PassError> {
        match self.stream.read(buffer, blocking) {
            // After its reply, a server that closes may reset the connection.
            Err(error) if self.outstanding == 0 && error.failure == Failure::ConnReset => {
                Ok(Some(0))
            }
            other => other,
        }
    }

    /// Parses received bytes and calls `replied` for each complete reply. With `close`, the round
    /// also waits for the end of the stream.
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
                return Err(PassError::reply(
                    "the server sent data after its last reply".to_owned(),
                ));
            }
            let fed = self.reply.feed_next(&mut bytes, method, Heads::Parsed, |_| (), |_| ());
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

/// Waits until a connection with outstanding replies is readable.
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
