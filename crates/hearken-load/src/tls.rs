//! What the TLS connections of a run have in common: whom they trust, who they are, and the tickets
//! by which one resumes the session of another.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::{Resumption, UnbufferedClientConnection, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use thiserror::Error;

mod failure;
mod pem;
mod session;
#[cfg(test)]
mod tests;
mod tickets;
mod verifier;

pub(crate) use failure::SessionError;
pub(crate) use session::{Session, State};

use tickets::Tickets;
use verifier::{Believes, Verifier};

/// How `https://` is spoken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsOptions {
    /// The authorities that are trusted, as a file of PEM certificates, instead of this system's.
    pub ca: Option<PathBuf>,
    /// Whether the server's certificate is believed whoever issued it, for whatever name.
    pub insecure: bool,
    /// Whether a connection resumes the session of an earlier one, where the server offers it.
    pub resumption: bool,
    /// The name that the server is asked for (SNI) and must have, instead of the URL's host.
    pub server_name: Option<String>,
    /// What is shown to a server that asks who we are: a file with a PEM certificate and those of
    /// its issuers.
    pub cert: Option<PathBuf>,
    /// Its private key, as a PEM file; without it, the key is in the certificate's file.
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

/// Why TLS cannot be spoken as it was asked for.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file of certificates or keys cannot be used.
    #[error("cannot use {}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why not, and what it should be.
        reason: String,
    },
    /// This system names no authorities.
    #[error(
        "no certificate of an authority was found on this system{}; give one with --cacert FILE, \
         or believe any server with --insecure",
        details(.0)
    )]
    NoAuthorities(Vec<String>),
    /// A key without a certificate.
    #[error("a private key was given without its certificate; give it with --cert FILE")]
    KeyAlone,
    /// What is to be the server's name cannot be one.
    #[error("\"{0}\" cannot be a server's name; give a host name or an address")]
    Name(String),
    /// The TLS library refused.
    #[error("cannot set up TLS: {0}")]
    Setup(String),
}

fn details(found: &[String]) -> String {
    // All the others say the same of other files.
    found.first().map(|first| format!(" ({first})")).unwrap_or_default()
}

/// What all connections of a run have in common. A clone is cheap and shares the tickets.
#[derive(Clone)]
pub(crate) struct Tls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Tls {
    /// For the server at `host`, a name or an address without brackets. Reads the files.
    pub(crate) fn new(host: &str, options: &TlsOptions) -> Result<Tls, TlsError> {
        let name = options.server_name.as_deref().unwrap_or(host);
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_| TlsError::Name(name.escape_debug().to_string()))?;
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::Setup(error.to_string()))?;
        let believes = match &options.ca {
            _ if options.insecure => Some(Believes::Anyone),
            Some(path) => Some(those_of(path, &provider)?),
            None => None,
        };
        let builder = match believes {
            Some(believes) => {
                let algorithms = provider.signature_verification_algorithms;
                let verifier = Arc::new(Verifier { algorithms, believes });
                builder.dangerous().with_custom_certificate_verifier(verifier)
            }
            None => builder.with_root_certificates(roots_of_system()?),
        };
        let mut config = match identity(options)? {
            Some((path, chain, key)) => builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| TlsError::File { path, reason: failure::of_own(&error) })?,
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.resumption = if options.resumption {
            Resumption::store(Arc::new(Tickets::default()))
        } else {
            Resumption::disabled()
        };
        Ok(Tls { config: Arc::new(config), name })
    }

    /// Begins a connection's session: what is to be sent first is there at once.
    pub(crate) fn connect(&self) -> Result<Box<Session>, TlsError> {
        let config = Arc::clone(&self.config);
        UnbufferedClientConnection::new(config, self.name.clone())
            .map(|connection| Box::new(Session::new(connection)))
            .map_err(|error| TlsError::Setup(error.to_string()))
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The authorities in a file, and the servers whose own certificate is there.
fn those_of(path: &Path, provider: &Arc<CryptoProvider>) -> Result<Believes, TlsError> {
    let (mut roots, mut given) = (RootCertStore::empty(), Vec::new());
    for (line, certificate) in pem::certificates(path)? {
        roots.add(certificate.clone()).map_err(|error| TlsError::File {
            path: path.to_owned(),
            reason: format!("line {line}: not a certificate: {}", failure::of_own(&error)),
        })?;
        given.push(certificate);
    }
    let builder = WebPkiServerVerifier::builder_with_provider(roots.into(), Arc::clone(provider));
    let webpki = builder.build().map_err(|error| TlsError::Setup(error.to_string()))?;
    Ok(Believes::These { webpki, given })
}

/// The authorities that this system trusts. A few that cannot be read or understood are left out.
fn roots_of_system() -> Result<RootCertStore, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    let errors = found.errors.iter().map(|error| failure::line(&error.to_string())).collect();
    roots_among(found.certs, errors)
}

fn roots_among(
    certificates: Vec<CertificateDer<'static>>,
    errors: Vec<String>,
) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    match roots.add_parsable_certificates(certificates) {
        (0, _) => Err(TlsError::NoAuthorities(errors)),
        _ => Ok(roots),
    }
}

/// A certificate chain, its key, and the file that is to be named if the two do not fit.
type Identity = (PathBuf, Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// What is shown to a server that asks who we are.
fn identity(options: &TlsOptions) -> Result<Option<Identity>, TlsError> {
    let Some(cert) = &options.cert else {
        return if options.key.is_some() { Err(TlsError::KeyAlone) } else { Ok(None) };
    };
    let chain = pem::certificates(cert)?.into_iter().map(|(_, certificate)| certificate).collect();
    let path = options.key.as_ref().unwrap_or(cert);
    Ok(Some((path.clone(), chain, pem::key(path)?)))
}
