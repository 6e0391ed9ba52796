//! Certificates for tests, servers that use them, and connections between sessions and servers.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use hearken_tls::{TlsFailure, Wire};
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DistinguishedName, IsCa, Issuer, KeyPair,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig, ServerConnection, SupportedProtocolVersion};
use tempfile::TempDir;

use super::super::session::{Session, State};
use super::super::{Tls, TlsOptions};
use crate::target::Protocol;

/// Each version of TLS alone.
pub(super) static EACH_VERSION: [&[&SupportedProtocolVersion]; 2] = [&[&TLS12], &[&TLS13]];

/// The issuer of the servers' certificates.
pub(super) struct Authority {
    pub(super) certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
    dir: TempDir,
}

pub(super) static AUTHORITY: LazyLock<Authority> = LazyLock::new(|| {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name = DistinguishedName::new();
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("ca.pem"), certificate.pem()).unwrap();
    Authority { certificate, issuer: Issuer::new(params, key), dir }
});

impl Authority {
    pub(super) fn file(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    /// Issues a certificate. Returns it and its key.
    pub(super) fn issue(&self, params: &CertificateParams) -> (Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }
}

/// A server's configuration. By default, [`AUTHORITY`] issues a certificate for localhost and
/// 127.0.0.1.
pub(super) struct Server {
    pub(super) params: CertificateParams,
    pub(super) versions: &'static [&'static SupportedProtocolVersion],
    pub(super) alpn: Vec<Vec<u8>>,
    pub(super) requires_client_certificate: bool,
    /// A certificate that replaces the one from [`AUTHORITY`].
    pub(super) own: Option<(Certificate, KeyPair)>,
}

impl Default for Server {
    fn default() -> Server {
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        Server {
            params: CertificateParams::new(names).unwrap(),
            versions: rustls::ALL_VERSIONS,
            alpn: Vec::new(),
            requires_client_certificate: false,
            own: None,
        }
    }
}

impl Server {
    pub(super) fn config(self) -> Arc<ServerConfig> {
        let (certificate, key) = self.own.unwrap_or_else(|| AUTHORITY.issue(&self.params));
        let provider = hearken_tls::provider();
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(self.versions)
            .unwrap();
        let builder = if self.requires_client_certificate {
            let mut roots = RootCertStore::empty();
            roots.add(AUTHORITY.certificate.der().clone()).unwrap();
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.unwrap())
        } else {
            builder.with_no_client_auth()
        };
        let chain: Vec<CertificateDer<'static>> = vec![certificate.der().clone()];
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let mut config = builder.with_single_cert(chain, key).unwrap();
        config.alpn_protocols = self.alpn;
        Arc::new(config)
    }
}

/// The two ends of a connection.
pub(super) struct Pair {
    pub(super) client: Box<Session>,
    pub(super) server: ServerConnection,
    /// Bytes that the client sends.
    pub(super) up: Wire,
    /// Content that each end received.
    pub(super) at_client: Vec<u8>,
    pub(super) at_server: Vec<u8>,
    pub(super) state: State,
    /// All bytes that the server sent.
    pub(super) wire: Vec<u8>,
}

impl Pair {
    pub(super) fn new(tls: &Tls, server: &Arc<ServerConfig>) -> Pair {
        Pair::of(tls, Protocol::Http1, server)
    }

    pub(super) fn of(tls: &Tls, protocol: Protocol, server: &Arc<ServerConfig>) -> Pair {
        let mut server = ServerConnection::new(Arc::clone(server)).unwrap();
        server.set_buffer_limit(None);
        let (mut client, mut up) = (tls.connect(protocol).unwrap(), Wire::default());
        client.start(&mut up);
        Pair {
            client,
            server,
            up,
            at_client: Vec::new(),
            at_server: Vec::new(),
            state: State::Open,
            wire: Vec::new(),
        }
    }

    /// Transfers bytes in both directions until there are none, in pieces of these sizes in turn.
    pub(super) fn transfer(&mut self, pieces: &[usize]) -> Result<(), TlsFailure> {
        let mut sizes = pieces.iter().copied().cycle();
        loop {
            let mut up = self.up.bytes().to_vec();
            self.up.clear();
            cut(&mut up, &mut sizes, |piece| {
                self.serve(piece);
                Ok(())
            })?;
            let mut down = Vec::new();
            while self.server.wants_write() {
                self.server.write_tls(&mut down).unwrap();
            }
            self.wire.extend_from_slice(&down);
            let (client, at_client) = (&mut self.client, &mut self.at_client);
            cut(&mut down, &mut sizes, |piece| {
                let before = at_client.len();
                self.state = client.receive(piece, at_client, &mut self.up)?;
                // Each record has a header, so the content is shorter than the records.
                assert!(at_client.len() - before < 20_000 + piece.len());
                Ok(())
            })?;
            if up.is_empty() && down.is_empty() {
                return Ok(());
            }
        }
    }

    /// Passes bytes to the server.
    fn serve(&mut self, mut piece: &[u8]) {
        while !piece.is_empty() {
            self.server.read_tls(&mut piece).unwrap();
            // The server reports errors by an alert.
            if self.server.process_new_packets().is_err() {
                return;
            }
            let mut content = [0; 4096];
            while let Ok(count @ 1..) = self.server.reader().read(&mut content) {
                self.at_server.extend_from_slice(&content[..count]);
            }
        }
    }

    pub(super) fn send(&mut self, content: &[u8]) {
        self.client.send(content, &mut self.up);
    }

    pub(super) fn close(&mut self) {
        self.client.close(&mut self.up);
    }

    pub(super) fn receive(&mut self, wire: &[u8]) -> Result<State, TlsFailure> {
        self.client.receive(&mut wire.to_vec(), &mut self.at_client, &mut self.up)
    }

    pub(super) fn answer(&mut self, content: &[u8]) {
        self.server.writer().write_all(content).unwrap();
    }
}

fn cut(
    mut bytes: &mut [u8],
    sizes: &mut impl Iterator<Item = usize>,
    mut each: impl FnMut(&mut [u8]) -> Result<(), TlsFailure>,
) -> Result<(), TlsFailure> {
    while !bytes.is_empty() {
        let (piece, rest) = bytes.split_at_mut(sizes.next().unwrap().min(bytes.len()));
        each(piece)?;
        bytes = rest;
    }
    Ok(())
}

/// The sizes of pieces for a transfer in one piece.
pub(super) const ONE_PIECE: &[usize] = &[usize::MAX];

/// Returns options that trust [`AUTHORITY`].
pub(super) fn trusting() -> TlsOptions {
    TlsOptions { ca: Some(AUTHORITY.file()), ..TlsOptions::default() }
}

/// Performs a handshake with `localhost`.
pub(super) fn handshake(options: &TlsOptions, server: Server) -> Result<Pair, TlsFailure> {
    let mut pair = Pair::new(&Tls::new("localhost", options).unwrap(), &server.config());
    pair.transfer(ONE_PIECE).map(|()| pair)
}
