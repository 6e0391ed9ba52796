//! A test server with TLS, and the certificate authority that signs its certificate.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;

use hearken_load::TlsOptions;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use tempfile::TempDir;

use super::{Behaviour, Server, Wire};

/// The closing behaviour of the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Closing {
    /// Sends `close_notify` and closes.
    Announced,
    /// Sends `close_notify` and waits for the client to close.
    Lingering,
    /// Closes without `close_notify`.
    None,
    /// Sends data that is not TLS.
    Garbage,
}

/// A certificate authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    dir: TempDir,
}

impl Authority {
    pub fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        std::fs::write(dir.path().join("ca.pem"), pem).unwrap();
        Authority { issuer: Issuer::new(params, key), dir }
    }

    pub fn file(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    /// Returns options that trust the authority.
    pub fn options(&self) -> TlsOptions {
        TlsOptions { ca: Some(self.file()), ..TlsOptions::default() }
    }

    /// Creates the settings of a server with a certificate of the authority.
    pub fn server_config(&self) -> Arc<ServerConfig> {
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let key = KeyPair::generate().unwrap();
        let chain = vec![params.signed_by(&key, &self.issuer).unwrap().der().clone()];
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let provider = hearken_tls::provider();
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        Arc::new(config)
    }

    /// Starts a server with a certificate of the authority.
    pub fn start_server(
        &self,
        closing: Closing,
        behaviour: impl Fn(u64) -> Behaviour + Send + Sync + 'static,
    ) -> Server {
        let config = self.server_config();
        let wire = move |socket| -> Box<dyn Wire> {
            let session = ServerConnection::new(config.clone()).unwrap();
            Box::new(Under { stream: StreamOwned::new(session, socket), closing })
        };
        Server::speaking("https", wire, behaviour)
    }
}

struct Under {
    stream: StreamOwned<ServerConnection, TcpStream>,
    closing: Closing,
}

impl Read for Under {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.read(bytes)
    }
}

impl Write for Under {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

impl Wire for Under {
    fn socket(&self) -> &TcpStream {
        &self.stream.sock
    }

    fn finish(&mut self) {
        match self.closing {
            Closing::Announced | Closing::Lingering => {
                self.stream.conn.send_close_notify();
                let _ = self.stream.flush();
            }
            Closing::Garbage => drop(self.stream.sock.write_all(b"HTTP/1.1 500 No\r\n\r\n")),
            Closing::None => {}
        }
        if self.closing == Closing::Lingering {
            let _ = io::copy(&mut self.stream.sock, &mut io::sink());
        }
    }
}
