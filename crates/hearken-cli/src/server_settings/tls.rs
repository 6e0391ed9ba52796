//! Settings of TLS.

use std::path::PathBuf;

use hearken_tls::server::{
    CertificateFiles, ClientCertificates, ServerTlsError, ServerTlsSettings,
};
use hearken_tls::{ClientProfile, ClientTlsError, ClientTlsSettings, ServerTls, TlsVersion, Trust};

/// The settings of TLS, which is off without a certificate.
#[derive(Clone)]
pub(super) struct Tls {
    pub(super) certs: Vec<PathBuf>,
    /// The files of the keys, in the order of the certificates; by default those of the certificates.
    pub(super) keys: Vec<PathBuf>,
    /// The files of OCSP responses, in the order of the certificates.
    pub(super) ocsp: Vec<Option<PathBuf>>,
    pub(super) min_version: TlsVersion,
    pub(super) client_ca: Option<PathBuf>,
    pub(super) client_auth: ClientAuth,
    /// The file of ticket keys.
    pub(super) ticket_keys: Option<PathBuf>,
}

/// Whether clients must have a certificate, if there is an authority that issues them.
#[derive(Clone, Copy)]
pub(super) enum ClientAuth {
    Required,
    Optional,
}

impl Default for Tls {
    fn default() -> Tls {
        Tls {
            certs: Vec::new(),
            keys: Vec::new(),
            ocsp: Vec::new(),
            min_version: TlsVersion::Tls12,
            client_ca: None,
            client_auth: ClientAuth::Required,
            ticket_keys: None,
        }
    }
}

impl Tls {
    /// Reads the files. `http2` is whether clients may negotiate HTTP/2.
    pub(super) fn load(&self, http2: bool) -> Result<Option<ServerTls>, ServerTlsError> {
        let mut files = self.certs.iter().enumerate().map(|(number, cert)| {
            let mut files = CertificateFiles::new(cert, self.keys.get(number).unwrap_or(cert));
            files.ocsp = self.ocsp.get(number).cloned().flatten();
            files
        });
        let Some(first) = files.next() else { return Ok(None) };
        let mut settings = ServerTlsSettings::new(first);
        settings.certificates.extend(files);
        settings.min_version = self.min_version;
        settings.ticket_keys.clone_from(&self.ticket_keys);
        if http2 {
            settings.alpn.insert(0, b"h2".to_vec());
        }
        settings.client_certificates = match (&self.client_ca, self.client_auth) {
            (None, _) => ClientCertificates::Off,
            (Some(path), ClientAuth::Required) => ClientCertificates::Required(path.clone()),
            (Some(path), ClientAuth::Optional) => ClientCertificates::Optional(path.clone()),
        };
        ServerTls::load(settings).map(Some)
    }
}

/// The settings of TLS to upstream servers.
#[derive(Clone)]
pub(super) struct UpstreamTls {
    pub(super) ca: Option<PathBuf>,
    pub(super) cert: Option<PathBuf>,
    /// The file of the key; by default that of the certificate.
    pub(super) key: Option<PathBuf>,
    pub(super) min_version: TlsVersion,
    /// Whether certificates of servers are not verified.
    pub(super) insecure: bool,
}

impl Default for UpstreamTls {
    fn default() -> UpstreamTls {
        UpstreamTls {
            ca: None,
            cert: None,
            key: None,
            min_version: TlsVersion::Tls12,
            insecure: false,
        }
    }
}

impl UpstreamTls {
    /// Reads the files.
    pub(super) fn load(&self) -> Result<ClientProfile, ClientTlsError> {
        let mut settings = ClientTlsSettings::default();
        settings.trust = match (&self.ca, self.insecure) {
            (_, true) => Trust::AllServers,
            (Some(path), false) => Trust::Authorities(path.clone()),
            (None, false) => Trust::System,
        };
        settings.certificate = self
            .cert
            .as_ref()
            .map(|cert| CertificateFiles::new(cert, self.key.as_ref().unwrap_or(cert)));
        settings.min_version = self.min_version;
        settings.load()
    }
}
