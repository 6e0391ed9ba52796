//! TLS settings shared by all connections of a run: trusted authorities, the client's certificate,
//! and session tickets for resumption.

use std::path::PathBuf;
use std::sync::Arc;

use hearken_http::h2;
use hearken_tls::server::CertificateFiles;
use hearken_tls::{ClientTls, ClientTlsError, ClientTlsSettings, Trust, pem};
use rustls::client::Resumption;
use thiserror::Error;

use crate::target::Protocol;

mod failure;
mod session;
#[cfg(test)]
mod tests;
mod tickets;

pub(crate) use failure::WithRemedy;
pub(crate) use session::{Session, State};

use tickets::TicketStore;

/// TLS settings for `https://` URLs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsOptions {
    /// PEM file with trusted certificates. Replaces the authorities that this system trusts.
    pub ca: Option<PathBuf>,
    /// Whether to skip verification of the server's certificate.
    pub insecure: bool,
    /// Whether connections resume earlier sessions if the server offers it.
    pub resumption: bool,
    /// Server name to send (SNI) and to verify. Defaults to the host of the URL.
    pub server_name: Option<String>,
    /// PEM file with the client certificate, followed by the certificates of its issuers.
    pub cert: Option<PathBuf>,
    /// PEM file with the private key of the client certificate. Defaults to the file in `cert`.
    pub key: Option<PathBuf>,
}

impl Default for TlsOptions {
    fn default() -> TlsOptions {
        TlsOptions {
            ca: None,
            insecure: false,
            resumption: true,
            server_name: None,
            cert: None,
            key: None,
        }
    }
}

/// The error for TLS settings that cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file of certificates or keys cannot be used.
    #[error("cannot use {}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason, and the expected content.
        reason: String,
    },
    /// No trusted authority was found on this system. Contains the reason.
    #[error(
        "cannot find trusted certificates on this system ({0}); set --cacert FILE, or skip \
         verification with --insecure"
    )]
    NoAuthorities(String),
    /// A client key is set without a certificate.
    #[error("--key is set without --cert; set --cert FILE to the certificate of the key")]
    KeyWithoutCertificate,
    /// The server name is neither a host name nor an address.
    #[error("invalid server name '{0}': expected a host name or an IP address")]
    ServerName(String),
    /// The TLS library rejected the settings.
    #[error("cannot set up TLS: {0}")]
    Setup(String),
}

impl From<ClientTlsError> for TlsError {
    fn from(error: ClientTlsError) -> TlsError {
        match error {
            ClientTlsError::File(pem::FileError { path, reason }) => {
                TlsError::File { path, reason }
            }
            ClientTlsError::System(reason) => TlsError::NoAuthorities(reason),
            other => TlsError::Setup(other.to_string()),
        }
    }
}

/// The TLS configuration of all connections of a run. Clones are cheap and share the tickets.
#[derive(Clone, Debug)]
pub(crate) struct Tls {
    http1: ClientTls,
    http2: ClientTls,
}

impl Tls {
    /// Creates the configuration for the server at `host`, a name or an address without brackets.
    /// Reads the files named in `options`.
    pub(crate) fn new(host: &str, options: &TlsOptions) -> Result<Tls, TlsError> {
        let name = options.server_name.as_deref().unwrap_or(host);
        let mut settings = ClientTlsSettings::default();
        settings.trust = match &options.ca {
            _ if options.insecure => Trust::AllServers,
            Some(path) => Trust::Authorities(path.clone()),
            None => Trust::System,
        };
        settings.certificate = match (&options.cert, &options.key) {
            (None, Some(_)) => return Err(TlsError::KeyWithoutCertificate),
            (None, None) => None,
            (Some(cert), key) => Some(CertificateFiles::new(cert, key.as_ref().unwrap_or(cert))),
        };
        settings.resumption = if options.resumption {
            Resumption::store(Arc::new(TicketStore::default()))
        } else {
            Resumption::disabled()
        };
        let profile = settings.load()?;
        let offering = |protocol: &[u8]| {
            let tls = profile.with_alpn(&[protocol]).for_server(name);
            tls.ok_or_else(|| TlsError::ServerName(name.escape_debug().to_string()))
        };
        Ok(Tls { http1: offering(b"http/1.1")?, http2: offering(h2::ALPN)? })
    }

    /// Creates the session of a new connection, which offers one protocol.
    pub(crate) fn connect(&self, protocol: Protocol) -> Result<Box<Session>, TlsError> {
        let tls = match protocol {
            Protocol::Http1 => &self.http1,
            Protocol::Http2 => &self.http2,
        };
        let session = tls.session().map_err(|error| TlsError::Setup(error.to_string()))?;
        Ok(Box::new(Session::new(session)))
    }
}
