//! What a server may do about a request.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use rustix::net::sockopt;

/// What is done about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    Reply,
    Missing,
    Slow,
    Chunked,
    ByteByByte,
    Interim,
    /// A hundred interim replies, and then one.
    Flood,
    /// Says that there is less than it sends; or sends something behind the reply.
    TooShort,
    GarbageAfter,
    /// Replies, and then closes: unannounced, or announced; or the end of the reply is the close.
    ThenClose,
    AnnouncedClose,
    UntilClose,
    /// Does not reply, but closes or resets.
    Close,
    Reset,
    /// Closes, or resets, in the middle of the body.
    Partial,
    ResetInBody,
    /// Sends what is no reply, or one whose head does not end.
    Garbage,
    EndlessHead,
    /// Says that there is more than it sends, and waits; or sends interim replies without end; or
    /// nothing.
    TooLong,
    EndlessInterim,
    Never,
}

/// A connection to the client, whatever it speaks.
pub trait Wire: Read + Write {
    fn socket(&self) -> &TcpStream;

    /// Tells the client that all was sent, where that is told.
    fn finish(&mut self) {}
}

impl Wire for TcpStream {
    fn socket(&self) -> &TcpStream {
        self
    }
}

pub const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

impl Act {
    pub const ALL: [Act; 21] = [
        Act::Reply,
        Act::Missing,
        Act::Slow,
        Act::Chunked,
        Act::ByteByByte,
        Act::Interim,
        Act::Flood,
        Act::TooShort,
        Act::GarbageAfter,
        Act::ThenClose,
        Act::AnnouncedClose,
        Act::UntilClose,
        Act::Close,
        Act::Reset,
        Act::Partial,
        Act::ResetInBody,
        Act::Garbage,
        Act::EndlessHead,
        Act::TooLong,
        Act::EndlessInterim,
        Act::Never,
    ];

    /// Whether the reply is a whole one.
    pub fn replies(self) -> bool {
        self.keeps() || self.ends() || matches!(self, Act::TooShort | Act::GarbageAfter)
    }

    /// Whether the reply is whole and the connection can carry another.
    pub fn keeps(self) -> bool {
        use Act::*;
        matches!(self, Reply | Missing | Slow | Chunked | ByteByByte | Interim | Flood)
    }

    /// Whether the reply is whole and the last.
    pub fn ends(self) -> bool {
        matches!(self, Act::ThenClose | Act::AnnouncedClose | Act::UntilClose)
    }

    /// Whether only a limit of the client ends it.
    pub fn is_endless(self) -> bool {
        matches!(self, Act::TooLong | Act::EndlessInterim | Act::Never)
    }

    /// Does it; true if the connection can carry another request.
    pub fn perform(self, peer: &mut dyn Wire) -> io::Result<bool> {
        const INTERIM: &[u8] = b"HTTP/1.1 103 Early Hints\r\n\r\n";
        match self {
            Act::Reply | Act::ThenClose => peer.write_all(OK)?,
            Act::Missing => peer.write_all(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n")?,
            Act::Slow => {
                thread::sleep(Duration::from_millis(5));
                peer.write_all(OK)?;
            }
            Act::Chunked => peer.write_all(
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
            )?,
            Act::ByteByByte => {
                for byte in OK {
                    peer.write_all(&[*byte])?;
                }
            }
            Act::Interim => {
                peer.write_all(INTERIM)?;
                peer.write_all(OK)?;
            }
            Act::Flood => {
                peer.write_all(&INTERIM.repeat(100))?;
                peer.write_all(OK)?;
            }
            Act::TooShort => {
                peer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhello")?;
            }
            Act::GarbageAfter => peer.write_all(&[OK, b"\0garbage\r\n"].concat())?,
            Act::AnnouncedClose => peer.write_all(
                b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello",
            )?,
            Act::UntilClose => peer.write_all(b"HTTP/1.1 200 OK\r\n\r\nhello")?,
            Act::Close => {}
            Act::Reset => reset(peer)?,
            Act::Partial => peer.write_all(&OK[..OK.len() - 2])?,
            Act::ResetInBody => {
                peer.write_all(&OK[..OK.len() - 2])?;
                reset(peer)?;
            }
            Act::Garbage => peer.write_all(b"SSH-2.0-OpenSSH_9.6\r\n")?,
            Act::EndlessHead => {
                peer.write_all(b"HTTP/1.1 200 OK\r\n")?;
                let lines = b"X-More: and more, and more, and more\r\n".repeat(100);
                loop {
                    peer.write_all(&lines)?;
                }
            }
            Act::TooLong => {
                peer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello")?;
                wait(peer)?;
            }
            Act::EndlessInterim => loop {
                peer.write_all(&INTERIM.repeat(10))?;
                thread::sleep(Duration::from_millis(10));
            },
            Act::Never => wait(peer)?,
        }
        Ok(self.replies() && !self.ends())
    }
}

fn reset(peer: &dyn Wire) -> io::Result<()> {
    Ok(sockopt::set_socket_linger(peer.socket(), Some(Duration::ZERO))?)
}

/// Until the client gives up.
fn wait(peer: &mut dyn Wire) -> io::Result<()> {
    while peer.read(&mut [0; 512])? > 0 {}
    Ok(())
}
