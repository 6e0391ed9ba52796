//! Settings of TLS.

use std::path::PathBuf;

use hearken_tls::server::{
    CertificateFiles, ClientCertificates, ServerTlsError, ServerTlsSettings,
};
use hearken_tls::{ServerTls, TlsVersion};

/// The settings of TLS, which is off without a certificate.
#[derive(Clone)]
pub(super) struct Tls {
    pub(super) cert: Option<PathBuf>,
    /// The file of the key; by default that of the certificate.
    pub(super) key: Option<PathBuf>,
    pub(super) ocsp: Option<PathBuf>,
    pub(super) min_version: TlsVersion,
    pub(super) client_ca: Option<PathBuf>,
    pub(super) client_auth: ClientAuth,
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
            cert: None,
            key: None,
            ocsp: None,
            min_version: TlsVersion::Tls12,
            client_ca: None,
            client_auth: ClientAuth::Required,
        }
    }
}

impl Tls {
    /// Reads the files.
    pub(super) fn load(&self) -> Result<Option<ServerTls>, ServerTlsError> {
        let Some(cert) = &self.cert else { return Ok(None) };
        let mut files = CertificateFiles::new(cert, self.key.as_ref().unwrap_or(cert));
        files.ocsp.clone_from(&self.ocsp);
        let mut settings = ServerTlsSettings::new(files);
        settings.min_version = self.min_version;
        settings.client_certificates = match (&self.client_ca, self.client_auth) {
            (None, _) => ClientCertificates::Off,
            (Some(path), ClientAuth::Required) => ClientCertificates::Required(path.clone()),
            (Some(path), ClientAuth::Optional) => ClientCertificates::Optional(path.clone()),
        };
        ServerTls::load(settings).map(Some)
    }
}
