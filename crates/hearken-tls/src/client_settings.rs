//! TLS settings of connections to servers, with files.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, Error, RootCertStore, SupportedProtocolVersion};

use crate::failure::{describe_error, line};
use crate::pem::{self, FileError};
use crate::server::CertificateFiles;
use crate::{ClientTls, Provider, TlsVersion, Verifier, provider, time_provider};

/// The servers that are trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// Servers with a certificate from an authority that the system trusts.
    #[default]
    System,
    /// Servers with a certificate from an authority in this PEM file, or with a certificate in it.
    Authorities(PathBuf),
    /// All servers. Certificates are not verified.
    AllServers,
}

/// TLS settings of connections to servers.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientTlsSettings {
    /// The servers that are trusted.
    pub trust: Trust,
    /// The certificate of this side, and its key.
    pub certificate: Option<CertificateFiles>,
    /// The lowest protocol version.
    pub min_version: TlsVersion,
    /// The application protocols in the order of preference (ALPN).
    pub alpn: Vec<Vec<u8>>,
    /// The store of sessions that later connections resume.
    pub resumption: Resumption,
    /// The cryptography.
    pub provider: Arc<Provider>,
}

impl Default for ClientTlsSettings {
    fn default() -> ClientTlsSettings {
        ClientTlsSettings {
            trust: Trust::System,
            certificate: None,
            min_version: TlsVersion::Tls12,
            alpn: vec![b"http/1.1".to_vec()],
            resumption: Resumption::default(),
            provider: provider(),
        }
    }
}

/// The error for TLS settings of a client that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClientTlsError {
    /// A file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// The system has no trusted authorities.
    #[error(
        "cannot read the authorities that the system trusts: {0}; name a file with authorities"
    )]
    System(String),
    /// The TLS library rejected the settings.
    #[error("cannot set up TLS: {0}")]
    Setup(String),
}

/// Loaded TLS settings for any server. Clones share the tickets of sessions.
#[derive(Clone)]
pub struct ClientProfile(Arc<ClientConfig>);

impl ClientProfile {
    /// Returns these settings with other application protocols, in the order of preference (ALPN).
    #[must_use]
    pub fn with_alpn(&self, protocols: &[&[u8]]) -> ClientProfile {
        let mut config = ClientConfig::clone(&self.0);
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        ClientProfile(Arc::new(config))
    }

    /// Returns the settings for the server with this name or IP address, or `None` if it is neither.
    pub fn for_server(&self, name: &str) -> Option<ClientTls> {
        let name = ServerName::try_from(name.to_owned()).ok()?;
        Some(ClientTls::new(Arc::clone(&self.0), name))
    }
}

impl std::fmt::Debug for ClientProfile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientProfile").finish_non_exhaustive()
    }
}

impl ClientTlsSettings {
    /// Reads the files that the settings name.
    ///
    /// # Errors
    /// A file cannot be read or is malformed, a key does not match its certificate, or the system has
    /// no authorities.
    pub fn load(&self) -> Result<ClientProfile, ClientTlsError> {
        let versions: &[&SupportedProtocolVersion] = match self.min_version {
            TlsVersion::Tls12 => &[&TLS13, &TLS12],
            TlsVersion::Tls13 => &[&TLS13],
        };
        let builder = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(versions)
            .map_err(|error| setup_error(&error))?;
        let verifier = match &self.trust {
            Trust::System => None,
            Trust::Authorities(path) => Some(Verifier::certificates(path, &self.provider)?),
            Trust::AllServers => Some(Verifier::any_server(&self.provider)),
        };
        let builder = match verifier {
            None => builder.with_root_certificates(system_roots()?),
            Some(verifier) => {
                builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
            }
        };
        let mut config = match &self.certificate {
            None => builder.with_no_client_auth(),
            Some(files) => {
                let chain = pem::certificates(&files.certificate)?;
                let chain = chain.into_iter().map(|(_, certificate)| certificate).collect();
                let key = pem::key(&files.key)?;
                builder.with_client_auth_cert(chain, key).map_err(|error| {
                    let certificate = files.certificate.display();
                    let error = describe_error(&error);
                    let reason = format!("with the certificate in {certificate}: {error}");
                    FileError::new(&files.key, reason)
                })?
            }
        };
        config.alpn_protocols.clone_from(&self.alpn);
        config.resumption = self.resumption.clone();
        config.time_provider = time_provider();
        Ok(ClientProfile(Arc::new(config)))
    }
}

fn setup_error(error: &Error) -> ClientTlsError {
    ClientTlsError::Setup(line(&error.to_string()))
}

fn system_roots() -> Result<RootCertStore, ClientTlsError> {
    let found = rustls_native_certs::load_native_certs();
    let errors: Vec<_> = found.errors.iter().map(ToString::to_string).collect();
    parse_roots(found.certs, &errors)
}

/// Ignores certificates that cannot be parsed, unless there are no others.
fn parse_roots(
    certificates: Vec<CertificateDer<'static>>,
    errors: &[String],
) -> Result<RootCertStore, ClientTlsError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates);
    if roots.is_empty() {
        // The other errors report the same problem for other files.
        let reason = errors.first().map_or("there are none".to_owned(), |error| line(error));
        return Err(ClientTlsError::System(reason));
    }
    Ok(roots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_a_system_without_authorities() {
        let error = |certificates, errors: &[&str]| {
            let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
            parse_roots(certificates, &errors).unwrap_err().to_string()
        };
        let named = error(Vec::new(), &["cannot read /x", "cannot read /y"]);
        assert!(named.contains("cannot read /x;"), "{named}");
        let malformed = error(vec![vec![0; 3].into()], &[]);
        assert!(malformed.contains("there are none"), "{malformed}");
        let valid = rcgen::generate_simple_self_signed(Vec::new()).unwrap().cert.der().clone();
        assert_eq!(parse_roots(vec![vec![0; 3].into(), valid], &[]).unwrap().len(), 1);
    }
}
