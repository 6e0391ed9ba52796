//! The byte stream of a connection: a blocking socket, plain or under TLS.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use hearken_tls::Wire;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::peer::PassError;
use crate::failure::Failure;
use crate::tls::{Session, State, WithRemedy};

/// A connection to the server.
#[derive(Debug)]
pub(super) struct Stream {
    socket: TcpStream,
    tls: Option<Tls>,
}

#[derive(Debug)]
struct Tls {
    session: Box<Session>,
    wire: Wire,
    /// Content that was received, but not yet returned.
    plain: Vec<u8>,
    state: State,
}

impl Stream {
    /// Connects, and completes the TLS handshake if there is a session.
    pub(super) fn connect(
        addr: SocketAddr,
        timeout: Duration,
        session: Option<Box<Session>>,
        buffer: &mut [u8],
    ) -> Result<Stream, PassError> {
        let failed = |error: io::Error| PassError::from_io("connecting", &error);
        let socket = TcpStream::connect_timeout(&addr, timeout).map_err(failed)?;
        socket.set_nodelay(true).map_err(failed)?;
        socket.set_read_timeout(Some(timeout)).map_err(failed)?;
        socket.set_write_timeout(Some(timeout)).map_err(failed)?;
        let tls = session.map(|session| Tls {
            session,
            wire: Wire::default(),
            plain: Vec::new(),
            state: State::Open,
        });
        let mut stream = Stream { socket, tls };
        stream.complete_handshake(buffer)?;
        Ok(stream)
    }

    fn complete_handshake(&mut self, buffer: &mut [u8]) -> Result<(), PassError> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        tls.session.start(&mut tls.wire);
        self.flush()?;
        while self.tls.as_ref().is_some_and(|tls| tls.session.is_handshaking()) {
            if self.read_records(buffer, RecvFlags::empty())? == Some(0) {
                return Err(PassError {
                    failure: Failure::ConnReset,
                    message: "the server closed a connection during its TLS handshake".to_owned(),
                });
            }
        }
        Ok(())
    }

    /// Returns whether the connection speaks an application protocol: without TLS by prior knowledge.
    pub(super) fn speaks(&self, protocol: &[u8]) -> bool {
        self.tls.as_ref().is_none_or(|tls| tls.session.has_selected(protocol))
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), PassError> {
        match &mut self.tls {
            None => write(&mut self.socket, bytes),
            Some(tls) => {
                tls.session.send(bytes, &mut tls.wire);
                self.flush()
            }
        }
    }

    /// Reads once. Returns `None` if the read would block, and 0 at the end of the stream.
    pub(super) fn read(
        &mut self,
        buffer: &mut [u8],
        blocking: bool,
    ) -> Result<Option<usize>, PassError> {
        let flags = if blocking { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
        if self.tls.is_none() {
            return receive(&self.socket, buffer, flags);
        }
        loop {
            if let Some(tls) = &mut self.tls {
                if !tls.plain.is_empty() {
                    let count = tls.plain.len().min(buffer.len());
                    buffer[..count].copy_from_slice(&tls.plain[..count]);
                    tls.plain.drain(..count);
                    return Ok(Some(count));
                }
                if tls.state == State::Closed {
                    return Ok(Some(0));
                }
            }
            match self.read_records(buffer, flags)? {
                // A record without content, such as a ticket.
                Some(1..) => {}
                other => return Ok(other),
            }
        }
    }

    /// Reads once and decrypts the records. Returns the number of bytes, or `None` if the read would block.
    fn read_records(
        &mut self,
        buffer: &mut [u8],
        flags: RecvFlags,
    ) -> Result<Option<usize>, PassError> {
        let count = receive(&self.socket, buffer, flags)?;
        if let (Some(count @ 1..), Some(tls)) = (count, &mut self.tls) {
            let received = tls.session.receive(&mut buffer[..count], &mut tls.plain, &mut tls.wire);
            // Alerts are sent even after an error.
            let flushed = self.flush();
            let state = received.map_err(|failure| PassError {
                failure: Failure::Other,
                message: format!("TLS: {}", WithRemedy(&failure)),
            })?;
            flushed?;
            if let Some(tls) = &mut self.tls {
                tls.state = state;
            }
        }
        Ok(count)
    }

    fn flush(&mut self) -> Result<(), PassError> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        let written = write(&mut self.socket, tls.wire.bytes());
        tls.wire.clear();
        written
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn write(socket: &mut TcpStream, bytes: &[u8]) -> Result<(), PassError> {
    socket.write_all(bytes).map_err(|error| PassError::from_io("sending", &error))
}

/// Receives once. Returns `None` if that would block.
fn receive(
    socket: &TcpStream,
    buffer: &mut [u8],
    flags: RecvFlags,
) -> Result<Option<usize>, PassError> {
    loop {
        match recv(socket, &mut *buffer, flags) {
            Ok((count, _)) => return Ok(Some(count)),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if flags.contains(RecvFlags::DONTWAIT) => return Ok(None),
            Err(error) => return Err(PassError::from_io("reading a reply", &error.into())),
        }
    }
}
