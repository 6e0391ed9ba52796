//! The certificate of all tests, and settings of both sides.

use std::fs;
use std::sync::{Arc, LazyLock};

use hearken_tls::server::{CertificateFiles, ServerTlsSettings};
use hearken_tls::{ClientTls, ServerTls, TlsVersion, provider};
use rcgen::{CertifiedKey, KeyPair};
use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore};

static CERTIFICATE: LazyLock<CertifiedKey<KeyPair>> =
    LazyLock::new(|| rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap());

/// Properties of sessions.
#[derive(Clone, Copy)]
pub(crate) struct Sessions {
    pub(crate) version: TlsVersion,
    /// Maximum number of bytes of content in a record.
    pub(crate) max_fragment: Option<usize>,
}

impl Sessions {
    /// Returns the settings of a server. It sends no tickets, since some clauses close clients that
    /// have not received everything, which resets their connections.
    pub(crate) fn server(self) -> ServerTls {
        let dir = tempfile::tempdir().unwrap();
        let [certificate, key] = ["certificate", "key"].map(|name| dir.path().join(name));
        fs::write(&certificate, CERTIFICATE.cert.pem()).unwrap();
        fs::write(&key, CERTIFICATE.signing_key.serialize_pem()).unwrap();
        let mut settings = ServerTlsSettings::new(CertificateFiles::new(certificate, key));
        settings.max_fragment = self.max_fragment;
        settings.ticket_lifetime = std::time::Duration::ZERO;
        ServerTls::load(settings).unwrap()
    }

    /// Returns the settings of a client.
    pub(crate) fn client(self) -> ClientTls {
        let mut roots = RootCertStore::empty();
        roots.add(CERTIFICATE.cert.der().clone()).unwrap();
        let versions = match self.version {
            TlsVersion::Tls12 => [&TLS12],
            TlsVersion::Tls13 => [&TLS13],
        };
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&versions)
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.max_fragment_size = self.max_fragment;
        ClientTls::new(Arc::new(config), ServerName::try_from("localhost").unwrap())
    }
}
