//! One connection's TLS, without I/O: what came goes in, what is to be sent comes out.

use std::fmt;
use std::mem;

use rustls::HandshakeKind;
use rustls::client::UnbufferedClientConnection as Connection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncryptError, InsufficientSizeError, UnbufferedStatus,
    WriteTraffic,
};

use super::SessionError;

/// What may wait for the rest of a message: the longest of the handshake in pieces of a record.
const MOST_INCOMPLETE: usize = 128 * 1024;
/// Content in a record, at most, and what a record adds to it, with room to spare.
const RECORD: usize = 16 * 1024;
const ADDED: usize = 64;
/// Room for content that is kept while nothing waits in it.
const KEPT: usize = 4096;

/// Whether the peer may send more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Open,
    /// It sent `close_notify`: all of its content is there.
    Closed,
}

/// The session of one connection. Holds no buffers while it is idle.
pub(crate) struct Session {
    connection: Connection,
    /// What came of a message that is not complete.
    incoming: Vec<u8>,
    /// What is to be sent besides content.
    outgoing: Vec<u8>,
    /// Content that waits for the end of the handshake, or for being taken.
    content: Vec<u8>,
    peer: State,
    closing: Closing,
    failed: Option<SessionError>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Closing {
    No,
    /// Once the content is on its way.
    Asked,
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

    /// Takes content to be sent, which waits for the end of the handshake if need be.
    pub(crate) fn send(&mut self, plain: &[u8]) {
        if self.failed.is_none() && self.closing == Closing::No {
            self.content.extend_from_slice(plain);
        }
    }

    /// Takes what came, and appends the content in it to `plain`: never more than came. What to
    /// send in return, be it an alert, is in [`outgoing`](Session::outgoing) then.
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

    /// Appends what is to be sent now, and tells whether there was anything.
    pub(crate) fn outgoing(&mut self, out: &mut Vec<u8>) -> bool {
        let before = out.len();
        out.append(&mut mem::take(&mut self.outgoing));
        if self.failed.is_none() && (!self.content.is_empty() || self.closing == Closing::Asked) {
            // Content is encrypted where it is to be.
            mem::swap(out, &mut self.outgoing);
            self.drive(&mut Vec::new());
            mem::swap(out, &mut self.outgoing);
        }
        out.len() > before
    }

    /// Whether content has to wait still.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Whether the handshake was cut short by a ticket of an earlier session; nothing before it is
    /// done.
    pub(crate) fn resumed(&self) -> Option<bool> {
        let kind = self.connection.handshake_kind().filter(|_| !self.is_handshaking());
        kind.map(|kind| kind == HandshakeKind::Resumed)
    }

    /// Tells the peer that no more content comes, by `close_notify`, behind what was given to be
    /// sent and, like that, once the handshake is done.
    pub(crate) fn close(&mut self) {
        if self.closing == Closing::No {
            self.closing = Closing::Asked;
        }
    }

    /// The peer has ended the connection: tells whether it should have said so.
    pub(crate) fn end(&mut self) -> Result<(), SessionError> {
        match &self.failed {
            Some(error) => Err(error.clone()),
            None if self.peer == State::Closed => Ok(()),
            None if self.is_handshaking() => Err(SessionError::Handshake),
            None => Err(SessionError::Truncated),
        }
    }

    /// Goes on as far as it can with what came.
    fn drive(&mut self, plain: &mut Vec<u8>) {
        if let Err(error) = self.advance(plain) {
            let spoken = self.connection.handshake_kind().is_some() || !self.is_handshaking();
            self.fail(SessionError::of(&error, spoken));
        } else if self.incoming.len() > MOST_INCOMPLETE {
            self.fail(SessionError::Protocol("the server's message does not end".to_owned()));
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
                    append(&mut self.outgoing, 0, |room| data.encode(room))?;
                }
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::PeerClosed) => self.peer = State::Closed,
                Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                    used += discard;
                    if !self.content.is_empty() {
                        encrypt(&mut traffic, &self.content, &mut self.outgoing)?;
                        self.content.clear();
                        self.content.shrink_to(KEPT);
                    }
                    if self.closing == Closing::Asked {
                        append(&mut self.outgoing, ADDED, |room| traffic.queue_close_notify(room))?;
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
            self.last_words();
        }
        result
    }

    /// The alert that tells the peer what it did wrong.
    fn last_words(&mut self) {
        while self.connection.wants_write() {
            let UnbufferedStatus { state, .. } =
                self.connection.process_tls_records(&mut self.incoming);
            let Ok(ConnectionState::EncodeTlsData(mut data)) = state else { return };
            if append(&mut self.outgoing, 0, |room| data.encode(room)).is_err() {
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
    let records = content.len() / RECORD + 2;
    append(out, content.len() + records * ADDED, |room| traffic.encrypt(content, room))
}

/// Why nothing was written: so much room is needed, or it cannot be done.
enum Refused {
    Room(usize),
    Never,
}

impl From<EncodeError> for Refused {
    fn from(error: EncodeError) -> Refused {
        match error {
            EncodeError::InsufficientSize(InsufficientSizeError { required_size }) => {
                Refused::Room(required_size)
            }
            EncodeError::AlreadyEncoded => Refused::Never,
        }
    }
}

impl From<EncryptError> for Refused {
    fn from(error: EncryptError) -> Refused {
        match error {
            EncryptError::InsufficientSize(InsufficientSizeError { required_size }) => {
                Refused::Room(required_size)
            }
            EncryptError::EncryptExhausted => Refused::Never,
        }
    }
}

/// Has `write` append to `out`, with room for `guess` bytes first, and for as many as it says then.
fn append<E: Into<Refused>>(
    out: &mut Vec<u8>,
    guess: usize,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, E>,
) -> Result<(), rustls::Error> {
    let (at, mut room) = (out.len(), guess);
    loop {
        out.resize(at + room, 0);
        match write(&mut out[at..]).map_err(Into::into) {
            Ok(written) => {
                out.truncate(at + written);
                return Ok(());
            }
            Err(Refused::Room(needed)) if needed > room => room = needed,
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
