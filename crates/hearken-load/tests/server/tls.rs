//! A server of the same kind that speaks TLS, and those who vouch for it.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;

use hearken_load::TlsOptions;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use tempfile::TempDir;

use super::{Act, Server, Wire};

/// How the server ends a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Farewell {
    /// It says so first, as it must.
    Announced,
    /// It says so, and waits for the client to close.
    Lingering,
    /// It closes.
    None,
    /// It sends what is no TLS.
    Garbage,
}

/// Who vouches for a server.
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

    /// Trusts it.
    pub fn options(&self) -> TlsOptions {
        TlsOptions { ca: Some(self.file()), ..TlsOptions::default() }
    }

    /// A server for which it vouches.
    pub fn server(
        &self,
        farewell: Farewell,
        act: impl Fn(u64) -> Act + Send + Sync + 'static,
    ) -> Server {
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let key = KeyPair::generate().unwrap();
        let chain = vec![params.signed_by(&key, &self.issuer).unwrap().der().clone()];
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        let config = Arc::new(config);
        let wire = move |socket| -> Box<dyn Wire> {
            let session = ServerConnection::new(config.clone()).unwrap();
            Box::new(Under { stream: StreamOwned::new(session, socket), farewell })
        };
        Server::speaking("https", wire, act)
    }
}

struct Under {
    stream: StreamOwned<ServerConnection, TcpStream>,
    farewell: Farewell,
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
        match self.farewell {
            Farewell::Announced | Farewell::Lingering => {
                self.stream.conn.send_close_notify();
                let _ = self.stream.flush();
            }
            Farewell::Garbage => drop(self.stream.sock.write_all(b"HTTP/1.1 500 No\r\n\r\n")),
            Farewell::None => {}
        }
        if self.farewell == Farewell::Lingering {
            let _ = io::copy(&mut self.stream.sock, &mut io::sink());
        }
    }
}
