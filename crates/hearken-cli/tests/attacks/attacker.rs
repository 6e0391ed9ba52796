//! A connection of an attack.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::set_socket_recv_buffer_size;
use rustls::crypto::cipher::{AeadKey, Iv, MessageEncrypter, OutboundChunks, OutboundPlainMessage};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, ConnectionTrafficSecrets, ContentType,
    ProtocolVersion, RootCertStore, SupportedCipherSuite,
};

use super::frames::preface;
use super::table::{Attack, Script, Then, Version};

/// Minimum number of bytes that are sent at a time, if the attack has as many.
const BATCH: usize = 1024;
/// Maximum number of received bytes that are stored.
const MAX_STORED: usize = 1024 * 1024;

/// The state of a connection after a send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sent {
    All,
    /// The server receives nothing at present.
    Stuck,
    /// The server has ended the connection.
    Ended,
}

/// A connection of an attack.
pub(crate) struct Attacker {
    socket: TcpStream,
    rounds: Rounds,
    round: u32,
    receives: bool,
    /// Number of bytes that were sent.
    pub(crate) sent: u64,
    /// Received bytes, from the first on.
    pub(crate) received: Vec<u8>,
}

enum Rounds {
    Frames(fn(u32) -> Vec<u8>),
    Bytes(Vec<u8>, fn(&[u8], u32) -> Vec<u8>),
    Records(Records),
    KeyUpdates(Box<ClientConnection>),
}

/// Records of a session with one content.
struct Records {
    encrypter: Box<dyn MessageEncrypter>,
    number: u64,
    version: ProtocolVersion,
    kind: u8,
    content: &'static [u8],
}

impl Records {
    fn next(&mut self) -> Vec<u8> {
        let payload = OutboundChunks::Single(self.content);
        let (typ, version) = (ContentType::from(self.kind), self.version);
        let message = OutboundPlainMessage { typ, version, payload };
        let number = self.number;
        self.number += 1;
        self.encrypter.encrypt(message, number).unwrap().encode()
    }
}

impl Attacker {
    /// Connects, and establishes a session if the attack needs one.
    pub(crate) fn connect(
        attack: &Attack,
        port: u16,
        certificate: &CertificateDer<'static>,
    ) -> Attacker {
        let socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
        socket.set_nodelay(true).unwrap();
        let receives = matches!(attack.then, Then::Continue);
        if !receives {
            // Otherwise the attack would fill the memory that the kernel has for all sockets.
            set_socket_recv_buffer_size(&socket, 64 * 1024).unwrap();
        }
        let mut begin = Vec::new();
        let rounds = match attack.script {
            Script::Frames(settings, round) => {
                begin = preface(settings);
                Rounds::Frames(round)
            }
            Script::Bytes(round) => Rounds::Bytes(hello(), round),
            Script::Records(version, kind, content) => {
                let session = establish(&socket, certificate, version);
                Rounds::Records(records(session, version, kind, content))
            }
            Script::KeyUpdates => {
                let session = establish(&socket, certificate, Version::Tls13);
                Rounds::KeyUpdates(Box::new(session))
            }
        };
        socket.set_nonblocking(true).unwrap();
        let mut attacker =
            Attacker { socket, rounds, round: 0, receives, sent: 0, received: Vec::new() };
        attacker.send(&begin);
        attacker
    }

    fn next_round(&mut self) -> Vec<u8> {
        let round = self.round;
        self.round += 1;
        match &mut self.rounds {
            Rounds::Frames(frames) => frames(round),
            Rounds::Bytes(hello, bytes) => bytes(hello, round),
            Rounds::Records(records) => records.next(),
            Rounds::KeyUpdates(session) => {
                let mut bytes = Vec::new();
                session.refresh_traffic_keys().unwrap();
                while session.wants_write() {
                    session.write_tls(&mut bytes).unwrap();
                }
                bytes
            }
        }
    }

    /// Sends up to `max` rounds, several at a time.
    pub(crate) fn send_rounds(&mut self, max: u32) -> Sent {
        let end = self.round.saturating_add(max);
        while self.round < end {
            let mut bytes = Vec::new();
            while bytes.len() < BATCH && self.round < end {
                bytes.extend(self.next_round());
            }
            match self.send(&bytes) {
                Sent::All => {}
                other => return other,
            }
        }
        Sent::All
    }

    fn send(&mut self, mut bytes: &[u8]) -> Sent {
        while !bytes.is_empty() {
            if self.receives && !self.receive() {
                return Sent::Ended;
            }
            match self.socket.write(bytes) {
                Ok(count) => {
                    self.sent += count as u64;
                    bytes = &bytes[count..];
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if !self.wait(PollFlags::OUT, Duration::from_secs(1)) {
                        return Sent::Stuck;
                    }
                }
                Err(_) => return Sent::Ended,
            }
        }
        Sent::All
    }

    /// Receives what has arrived. Returns false after the end of the connection.
    fn receive(&mut self) -> bool {
        let mut buffer = [0; 16 * 1024];
        loop {
            match self.socket.read(&mut buffer) {
                Ok(0) => return false,
                Ok(count) if self.received.len() < MAX_STORED => {
                    self.received.extend_from_slice(&buffer[..count]);
                }
                Ok(_) => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
    }

    /// Waits until the socket is ready, or readable if the attack receives.
    fn wait(&self, events: PollFlags, timeout: Duration) -> bool {
        let events = if self.receives { events | PollFlags::IN } else { events };
        let timeout = Timespec::try_from(timeout).unwrap();
        poll(&mut [PollFd::new(&self.socket, events)], Some(&timeout)).unwrap() > 0
    }

    /// Receives until the server ends the connection. Returns whether it did in time.
    pub(crate) fn receive_end(&mut self, timeout: Duration) -> bool {
        let end = Instant::now() + timeout;
        self.receives = true;
        while self.receive() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            self.wait(PollFlags::IN, left);
        }
        true
    }

    /// Waits until the server ends the connection, and receives nothing. Returns whether it did in time.
    pub(crate) fn wait_end(&self, timeout: Duration) -> bool {
        let timeout = Timespec::try_from(timeout).unwrap();
        poll(&mut [PollFd::new(&self.socket, PollFlags::RDHUP)], Some(&timeout)).unwrap() > 0
    }

    /// Waits for the first response.
    pub(crate) fn receive_first(&mut self, timeout: Duration) {
        self.receives = true;
        if self.wait(PollFlags::IN, timeout) {
            self.receive();
        }
    }
}

/// Returns the settings of a client, which trusts one certificate.
pub(crate) fn config(
    certificate: Option<&CertificateDer<'static>>,
    version: Option<Version>,
) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    if let Some(certificate) = certificate {
        roots.add(certificate.clone()).unwrap();
    }
    let versions = match version {
        None => vec![&rustls::version::TLS13, &rustls::version::TLS12],
        Some(Version::Tls12) => vec![&rustls::version::TLS12],
        Some(Version::Tls13) => vec![&rustls::version::TLS13],
    };
    let mut config = ClientConfig::builder_with_provider(hearken_tls::provider())
        .with_protocol_versions(&versions)
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.enable_secret_extraction = true;
    Arc::new(config)
}

/// Creates a session with the server at `localhost`.
pub(crate) fn session(config: Arc<ClientConfig>) -> ClientConnection {
    ClientConnection::new(config, ServerName::try_from("localhost").unwrap()).unwrap()
}

/// Returns a ClientHello in a record.
fn hello() -> Vec<u8> {
    let mut session = session(config(None, None));
    let mut bytes = Vec::new();
    while session.wants_write() {
        session.write_tls(&mut bytes).unwrap();
    }
    bytes
}

/// Performs a handshake.
fn establish(
    mut socket: &TcpStream,
    certificate: &CertificateDer<'static>,
    version: Version,
) -> ClientConnection {
    let mut session = session(config(Some(certificate), Some(version)));
    while session.is_handshaking() {
        session.complete_io(&mut socket).unwrap();
    }
    session
}

/// Takes the keys of a session, to send records that its library does not.
fn records(
    session: ClientConnection,
    version: Version,
    kind: u8,
    content: &'static [u8],
) -> Records {
    let suite = session.negotiated_cipher_suite().unwrap();
    assert!(matches!(
        suite.suite(),
        CipherSuite::TLS13_AES_128_GCM_SHA256
            | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
    ));
    let (number, secrets) = session.dangerous_extract_secrets().unwrap().tx;
    let ConnectionTrafficSecrets::Aes128Gcm { key, iv } = secrets else { panic!("another suite") };
    let (encrypter, version) = match (suite, version) {
        (SupportedCipherSuite::Tls13(suite), Version::Tls13) => {
            (tls13(suite, key, iv), ProtocolVersion::TLSv1_2)
        }
        (SupportedCipherSuite::Tls12(suite), Version::Tls12) => {
            (tls12(suite, key, &iv), ProtocolVersion::TLSv1_2)
        }
        _ => panic!("another version"),
    };
    let mut records = Records { encrypter, number: 0, version, kind, content };
    // The first number that an encrypter gets must be 0.
    while records.number < number {
        records.next();
    }
    records
}

fn tls13(suite: &rustls::Tls13CipherSuite, key: AeadKey, iv: Iv) -> Box<dyn MessageEncrypter> {
    suite.aead_alg.encrypter(key, iv)
}

fn tls12(suite: &rustls::Tls12CipherSuite, key: AeadKey, iv: &Iv) -> Box<dyn MessageEncrypter> {
    let (fixed, explicit) = iv.as_ref().split_at(4);
    suite.aead_alg.encrypter(key, fixed, explicit)
}
