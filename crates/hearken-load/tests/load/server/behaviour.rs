//! The ways in which a test server responds to a request.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use rustix::net::sockopt;

/// The response to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    Reply,
    Missing,
    Slow,
    Chunked,
    ByteByByte,
    Interim,
    /// Sends a hundred interim responses before the final one.
    Flood,
    /// Sends more data than announced.
    TooShort,
    /// Sends other data after the reply.
    GarbageAfter,
    /// Replies and closes the connection without announcement.
    ThenClose,
    /// Replies with `Connection: close` and closes the connection.
    AnnouncedClose,
    /// Sends a reply that is delimited by the end of the connection.
    UntilClose,
    /// Closes the connection without a reply.
    Close,
    /// Resets the connection without a reply.
    Reset,
    /// Closes the connection within the body.
    Partial,
    /// Resets the connection within the body.
    ResetInBody,
    /// Sends data that is not HTTP.
    Garbage,
    /// Sends a head without end.
    EndlessHead,
    /// Announces more data than it sends, and waits.
    TooLong,
    /// Sends interim responses without end.
    EndlessInterim,
    /// Sends nothing.
    Never,
}

/// A connection to the client, plain or under TLS.
pub trait Wire: Read + Write {
    fn socket(&self) -> &TcpStream;

    /// Ends the stream, if the protocol can announce that.
    fn finish(&mut self) {}
}

impl Wire for TcpStream {
    fn socket(&self) -> &TcpStream {
        self
    }
}

pub const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

impl Behaviour {
    pub const ALL: [Behaviour; 21] = [
        Behaviour::Reply,
        Behaviour::Missing,
        Behaviour::Slow,
        Behaviour::Chunked,
        Behaviour::ByteByByte,
        Behaviour::Interim,
        Behaviour::Flood,
        Behaviour::TooShort,
        Behaviour::GarbageAfter,
        Behaviour::ThenClose,
        Behaviour::AnnouncedClose,
        Behaviour::UntilClose,
        Behaviour::Close,
        Behaviour::Reset,
        Behaviour::Partial,
        Behaviour::ResetInBody,
        Behaviour::Garbage,
        Behaviour::EndlessHead,
        Behaviour::TooLong,
        Behaviour::EndlessInterim,
        Behaviour::Never,
    ];

    /// Returns whether the reply is complete.
    pub fn replies(self) -> bool {
        self.keeps_connection() || self.ends_connection() || self.is_error()
    }

    /// Returns whether the reply is complete and an error.
    pub fn is_error(self) -> bool {
        matches!(self, Behaviour::Missing | Behaviour::TooShort | Behaviour::GarbageAfter)
    }

    /// Returns whether the reply is complete and the connection is reusable.
    pub fn keeps_connection(self) -> bool {
        use Behaviour::*;
        matches!(self, Reply | Slow | Chunked | ByteByByte | Interim | Flood)
    }

    /// Returns whether the reply is complete and the last on its connection.
    pub fn ends_connection(self) -> bool {
        matches!(self, Behaviour::ThenClose | Behaviour::AnnouncedClose | Behaviour::UntilClose)
    }

    /// Returns whether only a timeout of the client ends the request.
    pub fn never_completes(self) -> bool {
        matches!(self, Behaviour::TooLong | Behaviour::EndlessInterim | Behaviour::Never)
    }

    /// Sends the response. Returns true if the connection can carry another request.
    pub fn perform(self, peer: &mut dyn Wire) -> io::Result<bool> {
        const INTERIM: &[u8] = b"HTTP/1.1 103 Early Hints\r\n\r\n";
        match self {
            Behaviour::Reply | Behaviour::ThenClose => peer.write_all(OK)?,
            Behaviour::Missing => peer.write_all(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n")?,
            Behaviour::Slow => {
                thread::sleep(Duration::from_millis(5));
                peer.write_all(OK)?;
            }
            Behaviour::Chunked => peer.write_all(
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
            )?,
            Behaviour::ByteByByte => {
                for byte in OK {
                    peer.write_all(&[*byte])?;
                }
            }
            Behaviour::Interim => {
                peer.write_all(INTERIM)?;
                peer.write_all(OK)?;
            }
            Behaviour::Flood => {
                peer.write_all(&INTERIM.repeat(100))?;
                peer.write_all(OK)?;
            }
            Behaviour::TooShort => {
                peer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhello")?;
            }
            Behaviour::GarbageAfter => peer.write_all(&[OK, b"\0garbage\r\n"].concat())?,
            Behaviour::AnnouncedClose => peer.write_all(
                b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello",
            )?,
            Behaviour::UntilClose => peer.write_all(b"HTTP/1.1 200 OK\r\n\r\nhello")?,
            Behaviour::Close => {}
            Behaviour::Reset => reset(peer)?,
            Behaviour::Partial => peer.write_all(&OK[..OK.len() - 2])?,
            Behaviour::ResetInBody => {
                peer.write_all(&OK[..OK.len() - 2])?;
                reset(peer)?;
            }
            Behaviour::Garbage => peer.write_all(b"SSH-2.0-OpenSSH_9.6\r\n")?,
            Behaviour::EndlessHead => {
                peer.write_all(b"HTTP/1.1 200 OK\r\n")?;
                let lines = b"X-More: and more, and more, and more\r\n".repeat(100);
                loop {
                    peer.write_all(&lines)?;
                }
            }
            Behaviour::TooLong => {
                peer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello")?;
                wait(peer)?;
            }
            Behaviour::EndlessInterim => loop {
                peer.write_all(&INTERIM.repeat(10))?;
                thread::sleep(Duration::from_millis(10));
            },
            Behaviour::Never => wait(peer)?,
        }
        Ok(self.replies() && !self.ends_connection())
    }
}

fn reset(peer: &dyn Wire) -> io::Result<()> {
    Ok(sockopt::set_socket_linger(peer.socket(), Some(Duration::ZERO))?)
}

/// Waits until the client closes the connection.
fn wait(peer: &mut dyn Wire) -> io::Result<()> {
    while peer.read(&mut [0; 512])? > 0 {}
    Ok(())
}
