//! The TLS session of one connection, without I/O: the caller transfers the encrypted bytes.

use std::fmt;
use std::mem;

use rustls::HandshakeKind;
use rustls::client::UnbufferedClientConnection as Connection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncryptError, InsufficientSizeError, UnbufferedStatus,
    WriteTraffic,
};

use super::SessionError;

/// Maximum size in bytes of an incomplete message: the longest handshake message, in records.
const MAX_INCOMPLETE: usize = 128 * 1024;
/// Maximum size in bytes of the content of a record.
const MAX_RECORD_CONTENT: usize = 16 * 1024;
/// Upper bound in bytes of what a record adds to its content.
const MAX_RECORD_OVERHEAD: usize = 64;
/// Capacity in bytes of the content buffer that is retained while the buffer is empty.
const RETAINED_CAPACITY: usize = 4096;

/// The state of the peer's sending side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The peer may send more.
    Open,
    /// The peer sent `close_notify`, so all of its content was received.
    Closed,
}

/// The session of one connection. Holds no buffers while it is idle.
pub(crate) struct Session {
    connection: Connection,
    /// Received bytes of an incomplete message.
    incoming: Vec<u8>,
    /// Handshake messages, alerts and records to send.
    outgoing: Vec<u8>,
    /// Content that is not encrypted yet.
    content: Vec<u8>,
    peer: State,
    closing: Closing,
    failed: Option<SessionError>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Closing {
    No,
    /// `close_notify` follows the pending content.
    Requested,
    Done,
}

impl Session {
    pub(super) fn new(connection: Connection) -> Session {
        let mut session = Session {
            connection,
            incoming: Vec::new(),
            outgoing: Vec::new(),
            content: Vec::new(),
            peer: State::Open,
            closing: Closing::No,
            failed: None,
        };
        session.drive(&mut Vec::new());
        session
    }

    /// Queues content to send. The session sends it after the handshake.
    pub(crate) fn send(&mut self, plain: &[u8]) {
        if self.failed.is_none() && self.closing == Closing::No {
            self.content.extend_from_slice(plain);
        }
    }

    /// Decrypts received bytes and appends their content to `plain`. The content is never longer
    /// than `cipher`. Messages to send in return are available from
    /// [`outgoing`](Session::outgoing), even after an error.
    pub(crate) fn receive(
        &mut self,
        cipher: &[u8],
        plain: &mut Vec<u8>,
    ) -> Result<State, SessionError> {
        if self.failed.is_none() && self.peer == State::Open {
            self.incoming.extend_from_slice(cipher);
            self.drive(plain);
        }
        match &self.failed {
            Some(error) => Err(error.clone()),
            None => Ok(self.peer),
        }
    }

    /// Appends the bytes to send to `out`. Returns whether there were any.
    pub(crate) fn write_outgoing(&mut self, out: &mut Vec<u8>) -> bool {
        let before = out.len();
        out.append(&mut mem::take(&mut self.outgoing));
        if self.failed.is_none() && (!self.content.is_empty() || self.closing == Closing::Requested)
        {
            // Encrypts the content directly into `out`.
            mem::swap(out, &mut self.outgoing);
            self.drive(&mut Vec::new());
            mem::swap(out, &mut self.outgoing);
        }
        out.len() > before
    }

    /// Returns whether the handshake is in progress.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Returns whether the session resumes an earlier one; `None` during the handshake.
    pub(crate) fn resumed(&self) -> Option<bool> {
        let kind = self.connection.handshake_kind().filter(|_| !self.is_handshaking());
        kind.map(|kind| kind == HandshakeKind::Resumed)
    }

    /// Closes the sending side: `close_notify` follows the queued content, after the handshake.
    pub(crate) fn close(&mut self) {
        if self.closing == Closing::No {
            self.closing = Closing::Requested;
        }
    }

    /// Handles the end of the connection.
    ///
    /// # Errors
    /// The session failed before, or the peer did not close it with `close_notify`.
    pub(crate) fn end(&mut self) -> Result<(), SessionError> {
        match &self.failed {
            Some(error) => Err(error.clone()),
            None if self.peer == State::Closed => Ok(()),
            None if self.is_handshaking() => Err(SessionError::Handshake),
            None => Err(SessionError::Truncated),
        }
    }

    /// Processes the received bytes as far as possible.
    fn drive(&mut self, plain: &mut Vec<u8>) {
        if let Err(error) = self.advance(plain) {
            let has_spoken_tls =
                self.connection.handshake_kind().is_some() || !self.is_handshaking();
            self.fail(SessionError::from_rustls(&error, has_spoken_tls));
        } else if self.incoming.len() > MAX_INCOMPLETE {
            self.fail(SessionError::Protocol("a message of the server is too long".to_owned()));
        }
        if self.incoming.is_empty() || self.peer == State::Closed || self.failed.is_some() {
            self.incoming = Vec::new();
        }
    }

    fn fail(&mut self, error: SessionError) {
        self.content = Vec::new();
        self.failed = Some(error);
    }

    fn advance(&mut self, plain: &mut Vec<u8>) -> Result<(), rustls::Error> {
        let mut used = 0;
        let result = loop {
            let UnbufferedStatus { discard, state, .. } =
                self.connection.process_tls_records(&mut self.incoming[used..]);
            let mut discard = discard;
            match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record?;
                        discard += record.discard;
                        plain.extend_from_slice(record.payload);
                    }
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    append(&mut self.outgoing, 0, |buffer| data.encode(buffer))?;
                }
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::PeerClosed) => self.peer = State::Closed,
                Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                    used += discard;
                    if !self.content.is_empty() {
                        encrypt(&mut traffic, &self.content, &mut self.outgoing)?;
                        self.content.clear();
                        self.content.shrink_to(RETAINED_CAPACITY);
                    }
                    if self.closing == Closing::Requested {
                        append(&mut self.outgoing, MAX_RECORD_OVERHEAD, |buffer| {
                            traffic.queue_close_notify(buffer)
                        })?;
                        self.closing = Closing::Done;
                    }
                    break Ok(());
                }
                Ok(_) => {
                    used += discard;
                    break Ok(());
                }
                Err(error) => {
                    used += discard;
                    break Err(error);
                }
            }
            used += discard;
        };
        self.incoming.drain(..used);
        if result.is_err() {
            self.queue_alert();
        }
        result
    }

    /// Queues the alert that reports an error to the peer.
    fn queue_alert(&mut self) {
        while self.connection.wants_write() {
            let UnbufferedStatus { state, .. } =
                self.connection.process_tls_records(&mut self.incoming);
            let Ok(ConnectionState::EncodeTlsData(mut data)) = state else { return };
            if append(&mut self.outgoing, 0, |buffer| data.encode(buffer)).is_err() {
                return;
            }
        }
    }
}

fn encrypt(
    traffic: &mut WriteTraffic<'_, rustls::client::ClientConnectionData>,
    content: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), rustls::Error> {
    let records = content.len() / MAX_RECORD_CONTENT + 2;
    let size = content.len() + records * MAX_RECORD_OVERHEAD;
    append(out, size, |buffer| traffic.encrypt(content, buffer))
}

/// The error of a write into a buffer.
enum WriteError {
    /// The buffer is too small. Contains the required size in bytes.
    BufferTooSmall(usize),
    /// The message cannot be written to a buffer of any size.
    Failed,
}

impl From<EncodeError> for WriteError {
    fn from(error: EncodeError) -> WriteError {
        match error {
            EncodeError::InsufficientSize(InsufficientSizeError { required_size }) => {
                WriteError::BufferTooSmall(required_size)
            }
            EncodeError::AlreadyEncoded => WriteError::Failed,
        }
    }
}

impl From<EncryptError> for WriteError {
    fn from(error: EncryptError) -> WriteError {
        match error {
            EncryptError::InsufficientSize(InsufficientSizeError { required_size }) => {
                WriteError::BufferTooSmall(required_size)
            }
            EncryptError::EncryptExhausted => WriteError::Failed,
        }
    }
}

/// Appends the output of `write` to `out`. Calls `write` with a buffer of `size` bytes, and again
/// with a larger one if it reports that it needs more.
fn append<E: Into<WriteError>>(
    out: &mut Vec<u8>,
    size: usize,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, E>,
) -> Result<(), rustls::Error> {
    let (at, mut size) = (out.len(), size);
    loop {
        out.resize(at + size, 0);
        match write(&mut out[at..]).map_err(Into::into) {
            Ok(written) => {
                out.truncate(at + written);
                return Ok(());
            }
            Err(WriteError::BufferTooSmall(needed)) if needed > size => size = needed,
            Err(_) => {
                out.truncate(at);
                return Err(rustls::Error::EncryptError);
            }
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("handshaking", &self.is_handshaking())
            .field("peer", &self.peer)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}
