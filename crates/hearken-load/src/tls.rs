//! TLS settings shared by all connections of a run: trusted authorities, the client's certificate,
//! and session tickets for resumption.

use std::path::PathBuf;
use std::sync::Arc;

use hearken_http::h2;
use hearken_tls::failure::{describe_error, line};
use hearken_tls::{ClientTls, Verifier, pem, provider};
use rustls::client::Resumption;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
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
    /// No trusted authority was found on this system. Contains the errors of reading certificates.
    #[error(
        "cannot find trusted certificates on this system{}; set --cacert FILE, or skip \
         verification with --insecure",
        details(.0)
    )]
    NoAuthorities(Vec<String>),
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

fn details(found: &[String]) -> String {
    // The other errors report the same problem for other files.
    found.first().map(|first| format!(" ({first})")).unwrap_or_default()
}

impl From<pem::FileError> for TlsError {
    fn from(pem::FileError { path, reason }: pem::FileError) -> TlsError {
        TlsError::File { path, reason }
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
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_| TlsError::ServerName(name.escape_debug().to_string()))?;
        let provider = provider();
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::Setup(error.to_string()))?;
        let verifier = match &options.ca {
            _ if options.insecure => Some(Verifier::any_server(&provider)),
            Some(path) => Some(Verifier::certificates(path, &provider)?),
            None => None,
        };
        let builder = match verifier {
            Some(verifier) => {
                builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
            }
            None => builder.with_root_certificates(load_system_roots()?),
        };
        let mut config = match load_client_certificate(options)? {
            Some((path, chain, key)) => builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| TlsError::File { path, reason: describe_error(&error) })?,
            None => builder.with_no_client_auth(),
        };
        config.resumption = if options.resumption {
            Resumption::store(Arc::new(TicketStore::default()))
        } else {
            Resumption::disabled()
        };
        let offering = |protocol: &[u8]| {
            let mut config = config.clone();
            config.alpn_protocols = vec![protocol.to_vec()];
            ClientTls::new(Arc::new(config), name.clone())
        };
        Ok(Tls { http1: offering(b"http/1.1"), http2: offering(h2::ALPN) })
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

/// Loads the authorities that this system trusts. Certificates that cannot be read are ignored.
fn load_system_roots() -> Result<RootCertStore, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    let errors = found.errors.iter().map(|error| line(&error.to_string())).collect();
    parse_roots(found.certs, errors)
}

fn parse_roots(
    certificates: Vec<CertificateDer<'static>>,
    errors: Vec<String>,
) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    match roots.add_parsable_certificates(certificates) {
        (0, _) => Err(TlsError::NoAuthorities(errors)),
        _ => Ok(roots),
    }
}

/// The file of the key (for error messages), the certificate chain, and the key.
type ClientCertificate = (PathBuf, Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// Loads the client certificate and its key, if they are set.
fn load_client_certificate(options: &TlsOptions) -> Result<Option<ClientCertificate>, TlsError> {
    let Some(cert) = &options.cert else {
        return if options.key.is_some() { Err(TlsError::KeyWithoutCertificate) } else { Ok(None) };
    };
    let chain = pem::certificates(cert)?.into_iter().map(|(_, certificate)| certificate).collect();
    let path = options.key.as_ref().unwrap_or(cert);
    Ok(Some((path.clone(), chain, pem::key(path)?)))
}
