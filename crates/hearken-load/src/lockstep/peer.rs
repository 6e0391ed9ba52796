//! One connection of the driver: a blocking socket, and the replies that it is owed.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use hearken_http::Method;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use crate::failure::Failure;
use crate::reply::{Done, Reply};

/// Why a pass ends early.
#[derive(Debug)]
pub(super) struct Wrong {
    pub(super) failure: Failure,
    pub(super) text: String,
}

impl Wrong {
    fn call(action: &str, error: &io::Error) -> Wrong {
        // What a socket with a timeout says when it has passed.
        let timed_out = matches!(
            error.kind(),
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::WriteZero
        );
        if timed_out {
            let text = format!("{action}: the server did not answer within the timeout");
            return Wrong { failure: Failure::ClientTimo, text };
        }
        Wrong { failure: Failure::of(error), text: format!("{action}: {error}") }
    }
}

/// A connection and what it still owes.
#[derive(Debug)]
pub(super) struct Peer {
    stream: TcpStream,
    reply: Reply,
    /// Replies that are still to come.
    owed: usize,
    /// The last of them was the last that this connection carries.
    last: bool,
    /// The server has closed it.
    ended: bool,
    /// It is to be closed by the server before the round is over.
    closes: bool,
}

impl Peer {
    pub(super) fn connect(addr: SocketAddr, timeout: Duration) -> Result<Peer, Wrong> {
        let failed = |error: io::Error| Wrong::call("connecting", &error);
        let stream = TcpStream::connect_timeout(&addr, timeout).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        stream.set_read_timeout(Some(timeout)).map_err(failed)?;
        stream.set_write_timeout(Some(timeout)).map_err(failed)?;
        let reply = Reply::default();
        Ok(Peer { stream, reply, owed: 0, last: false, ended: false, closes: false })
    }

    /// Sends `message`, which asks for so many replies.
    pub(super) fn send(&mut self, message: &[u8], replies: usize) -> Result<(), Wrong> {
        self.owed = replies;
        self.stream.write_all(message).map_err(|error| Wrong::call("sending", &error))
    }

    /// Whether all is there that the round waits for.
    pub(super) fn is_done(&self) -> bool {
        self.owed == 0 && (self.ended || !self.closes)
    }

    /// Whether it can be asked again.
    pub(super) fn can_carry_more(&self) -> bool {
        !self.last && !self.ended
    }

    /// Reads once; nothing if it would block. The end of the stream is a read of 0 bytes.
    pub(super) fn receive(
        &mut self,
        buffer: &mut [u8],
        blocking: bool,
    ) -> Result<Option<usize>, Wrong> {
        let flags = if blocking { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
        loop {
            match recv(&self.stream, &mut *buffer, flags) {
                Ok((count, _)) => return Ok(Some(count)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if !blocking => return Ok(None),
                // After its reply, a server that closes may do so by a reset.
                Err(Errno::CONNRESET) if self.owed == 0 => return Ok(Some(0)),
                Err(error) => return Err(Wrong::call("reading a reply", &error.into())),
            }
        }
    }

    /// Takes in what was read; `replied` is told each reply that is complete. With `close`, the
    /// round waits for the end of the stream, too.
    pub(super) fn take(
        &mut self,
        mut bytes: &[u8],
        method: Method<'static>,
        close: bool,
        mut replied: impl FnMut(Done) -> Result<(), Wrong>,
    ) -> Result<(), Wrong> {
        self.closes = close;
        if bytes.is_empty() {
            self.ended = true;
            return match self.reply.end() {
                Some(done) if self.owed == 1 => {
                    self.owed = 0;
                    replied(done)
                }
                _ if self.owed == 0 => Ok(()),
                _ => {
                    let text = "the server closed a connection before its reply was complete";
                    Err(Wrong { failure: Failure::ConnReset, text: text.to_owned() })
                }
            };
        }
        while !bytes.is_empty() {
            if self.owed == 0 {
                return Err(Wrong::reply("more came than was asked for".to_owned()));
            }
            let fed = self.reply.next(&mut bytes, method, None, |_| (), |_| ());
            let fed =
                fed.map_err(|error| Wrong::reply(format!("a reply is malformed: {error}")))?;
            let Some(done) = fed else { return Ok(()) };
            self.owed -= 1;
            self.last = !done.keep_alive;
            replied(done)?;
        }
        Ok(())
    }
}

/// Waits until one of those that owe something has something to read.
pub(super) fn wait(peers: &[Peer], timeout: Duration) -> Result<(), Wrong> {
    let waiting = peers.iter().filter(|peer| !peer.is_done());
    let mut fds: Vec<_> = waiting.map(|peer| PollFd::new(&peer.stream, PollFlags::IN)).collect();
    let timeout = Timespec::try_from(timeout).ok();
    match poll(&mut fds, timeout.as_ref()) {
        Ok(0) => Err(Wrong::call("waiting for a reply", &io::ErrorKind::TimedOut.into())),
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(Wrong::call("poll", &error.into())),
    }
}
