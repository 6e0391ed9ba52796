//! The TLS session of one connection, without I/O. Only this file names the connection types of
//! rustls.

use std::sync::Arc;

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::pki_types::ServerName;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncryptError, InsufficientSizeError, UnbufferedStatus,
    WriteTraffic,
};
use rustls::{ClientConfig, CommonState, Error, HandshakeKind, ProtocolVersion, ServerConfig};

use crate::failure::TlsFailure;
use crate::server::handshakes::HandshakeCounters;
use crate::server::sites::{self, Sites};
use crate::server::subject::subject;
use crate::{SessionInfo, TlsVersion};

/// Maximum size in bytes of the content of a record.
pub(crate) const MAX_RECORD_CONTENT: usize = 16 * 1024;
/// Upper bound in bytes of what a record adds to its content.
const MAX_RECORD_OVERHEAD: usize = 64;

/// Encrypted bytes to send. The memory is retained and stays initialised, so that records are
/// written without clearing it first.
#[derive(Debug, Default)]
pub struct Wire {
    memory: Vec<u8>,
    used: usize,
}

impl Wire {
    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.memory[..self.used]
    }

    /// Returns whether there are no bytes to send.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Removes all bytes, because they were sent.
    pub fn clear(&mut self) {
        self.used = 0;
    }

    /// Appends the output of `write`. Calls `write` with at least `size` bytes of memory, and again
    /// with more if it reports that it needs more.
    fn append<E: Into<WriteError>>(
        &mut self,
        size: usize,
        mut write: impl FnMut(&mut [u8]) -> Result<usize, E>,
    ) -> Result<(), Error> {
        let mut size = size;
        loop {
            if self.memory.len() < self.used + size {
                self.memory.resize(self.used + size, 0);
            }
            match write(&mut self.memory[self.used..]).map_err(Into::into) {
                Ok(written) => {
                    self.used += written;
                    return Ok(());
                }
                Err(WriteError::BufferTooSmall(needed)) if needed > size => size = needed,
                Err(_) => return Err(Error::EncryptError),
            }
        }
    }
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

/// Content for a session to send.
#[derive(Clone, Copy, Debug, Default)]
pub struct ToSend<'a> {
    /// Content to encrypt.
    pub content: &'a [u8],
    /// Whether `close_notify` follows the content.
    pub closes: bool,
}

impl ToSend<'_> {
    fn is_empty(&self) -> bool {
        self.content.is_empty() && !self.closes
    }
}

/// The outcome of processing received bytes.
#[derive(Debug)]
pub struct Progress {
    /// Number of received bytes that are no longer needed.
    pub consumed: usize,
    /// Whether the peer closed its side with `close_notify`.
    pub peer_closed: bool,
    /// Whether what was to be sent is encrypted: not before the handshake is complete.
    pub is_encrypted: bool,
    /// The error that ended the session.
    pub result: Result<(), TlsFailure>,
}

/// The session of one connection. It holds no buffers.
pub struct Session(Connection);

enum Connection {
    Client(UnbufferedClientConnection),
    Server(UnbufferedServerConnection, Site),
}

/// The result of a server's handshake that rustls does not store.
struct Site {
    sites: Arc<Sites>,
    /// The certificate that the client's server name selected, if it sent a name.
    selected: Option<u32>,
    /// The subject of the client's certificate.
    client_subject: Option<Box<str>>,
}

impl Site {
    /// Records the state of a handshake after a step of it.
    fn update(&mut self, connection: &CommonState) {
        self.selected = sites::take_selected().or(self.selected);
        if !connection.is_handshaking() {
            let chain = connection.peer_certificates().unwrap_or_default();
            self.client_subject = chain.first().and_then(subject);
        }
    }
}

impl Session {
    pub(crate) fn client(
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> Result<Session, Error> {
        UnbufferedClientConnection::new(config, name).map(Connection::Client).map(Session)
    }

    pub(crate) fn server(config: Arc<ServerConfig>, sites: Arc<Sites>) -> Result<Session, Error> {
        let connection = UnbufferedServerConnection::new(config)?;
        let site = Site { sites, selected: None, client_subject: None };
        Ok(Session(Connection::Server(connection, site)))
    }

    fn common(&self) -> &CommonState {
        match &self.0 {
            Connection::Client(connection) => connection,
            Connection::Server(connection, _) => connection,
        }
    }

    /// Returns whether this side is the client.
    pub fn is_client(&self) -> bool {
        matches!(self.0, Connection::Client(_))
    }

    /// Returns whether the handshake is in progress.
    pub fn is_handshaking(&self) -> bool {
        self.common().is_handshaking()
    }

    /// Returns the parameters of the session, once the handshake is complete.
    pub fn info(&self) -> Option<SessionInfo<'_>> {
        let common = self.common();
        if common.is_handshaking() {
            return None;
        }
        Some(SessionInfo {
            version: match common.protocol_version() {
                Some(ProtocolVersion::TLSv1_3) => TlsVersion::Tls13,
                _ => TlsVersion::Tls12,
            },
            resumed: common.handshake_kind() == Some(HandshakeKind::Resumed),
            alpn: common.alpn_protocol(),
            peer_certificate: common
                .peer_certificates()
                .and_then(|chain| chain.first())
                .map(|certificate| &**certificate),
            client_subject: match &self.0 {
                Connection::Server(_, site) => site.client_subject.as_deref(),
                Connection::Client(_) => None,
            },
        })
    }

    /// Returns the counters of a server's handshakes.
    pub(crate) fn handshakes(&self) -> Option<&HandshakeCounters> {
        match &self.0 {
            Connection::Server(_, site) => Some(&site.sites.counters),
            Connection::Client(_) => None,
        }
    }

    /// Returns whether the client selected a certificate by name, and another one covers `host`.
    pub(crate) fn is_misdirected(&self, host: &[u8]) -> bool {
        match &self.0 {
            Connection::Server(_, Site { sites, selected: Some(selected), .. }) => {
                sites.is_misdirected(*selected, host)
            }
            _ => false,
        }
    }

    /// Processes all received bytes, which it decrypts in place, and then sends. Appends encrypted
    /// bytes to `wire`, also after an error, and passes decrypted content to `content`. The first call on
    /// a client's session begins the handshake.
    pub fn process(
        &mut self,
        incoming: &mut [u8],
        send: ToSend<'_>,
        wire: &mut Wire,
        content: impl FnMut(&[u8]),
    ) -> Progress {
        match &mut self.0 {
            Connection::Client(connection) => process(connection, incoming, send, wire, content),
            Connection::Server(connection, site) => {
                let was_handshaking = connection.is_handshaking();
                let progress = process(connection, incoming, send, wire, content);
                if was_handshaking {
                    site.update(connection);
                }
                progress
            }
        }
    }
}

/// A connection of rustls, of a client or server.
trait Process: std::ops::Deref<Target: std::ops::Deref<Target = CommonState>> {
    type Data;

    fn step<'c, 'i>(&'c mut self, incoming: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data>;
}

impl Process for UnbufferedClientConnection {
    type Data = ClientConnectionData;

    fn step<'c, 'i>(&'c mut self, incoming: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(incoming)
    }
}

impl Process for UnbufferedServerConnection {
    type Data = ServerConnectionData;

    fn step<'c, 'i>(&'c mut self, incoming: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(incoming)
    }
}

fn process<C: Process>(
    connection: &mut C,
    incoming: &mut [u8],
    send: ToSend<'_>,
    wire: &mut Wire,
    content: impl FnMut(&[u8]),
) -> Progress {
    let mut progress =
        Progress { consumed: 0, peer_closed: false, is_encrypted: false, result: Ok(()) };
    if let Err(error) = advance(connection, incoming, send, wire, content, &mut progress) {
        encode_alert(connection, &mut incoming[progress.consumed..], wire);
        let has_spoken_tls = connection.handshake_kind().is_some() || !connection.is_handshaking();
        progress.result = Err(TlsFailure::from_rustls(&error, has_spoken_tls));
    }
    progress
}

fn advance<C: Process>(
    connection: &mut C,
    incoming: &mut [u8],
    send: ToSend<'_>,
    wire: &mut Wire,
    mut content: impl FnMut(&[u8]),
    progress: &mut Progress,
) -> Result<(), Error> {
    loop {
        let UnbufferedStatus { mut discard, state, .. } =
            connection.step(&mut incoming[progress.consumed..]);
        let (mut is_done, mut has_content) = (false, false);
        let result = state.and_then(|state| {
            match state {
                ConnectionState::ReadTraffic(mut traffic) => {
                    has_content = true;
                    while let Some(record) = traffic.next_record() {
                        let record = record?;
                        discard += record.discard;
                        content(record.payload);
                    }
                }
                ConnectionState::EncodeTlsData(mut data) => {
                    wire.append(0, |memory| data.encode(memory))?;
                }
                ConnectionState::TransmitTlsData(data) => data.done(),
                ConnectionState::PeerClosed => progress.peer_closed = true,
                ConnectionState::WriteTraffic(mut traffic) => {
                    write(&mut traffic, send, wire)?;
                    progress.is_encrypted = true;
                    is_done = true;
                }
                _ => is_done = true,
            }
            Ok(())
        });
        progress.consumed += discard;
        // After the last record, a step would only report that content can be sent.
        is_done |= has_content
            && progress.consumed == incoming.len()
            && send.is_empty()
            && !connection.wants_write();
        if is_done || result.is_err() {
            return result;
        }
    }
}

fn write<Data>(
    traffic: &mut WriteTraffic<'_, Data>,
    ToSend { content, closes }: ToSend<'_>,
    wire: &mut Wire,
) -> Result<(), Error> {
    if !content.is_empty() {
        let records = content.len() / MAX_RECORD_CONTENT + 1;
        let size = content.len() + records * MAX_RECORD_OVERHEAD;
        wire.append(size, |memory| traffic.encrypt(content, memory))?;
    }
    if closes {
        wire.append(MAX_RECORD_OVERHEAD, |memory| traffic.queue_close_notify(memory))?;
    }
    Ok(())
}

/// Encodes the alert that reports an error to the peer.
fn encode_alert<C: Process>(connection: &mut C, incoming: &mut [u8], wire: &mut Wire) {
    while connection.wants_write() {
        let UnbufferedStatus { state, .. } = connection.step(incoming);
        let Ok(ConnectionState::EncodeTlsData(mut data)) = state else { return };
        if wire.append(0, |memory| data.encode(memory)).is_err() {
            return;
        }
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("handshaking", &self.is_handshaking())
            .finish_non_exhaustive()
    }
}
