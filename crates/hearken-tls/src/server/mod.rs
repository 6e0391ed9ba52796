//! TLS of a server: certificates, versions, tickets and client certificates.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use rustls::pki_types::UnixTime;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};

use crate::failure::{describe_error, line};
use crate::pem::{self, FileError};
use crate::session::Session;
use crate::{Provider, TlsVersion, provider};

mod certificate;
pub(crate) mod sites;
pub(crate) mod subject;
mod tickets;

use certificate::Certificate;
use sites::Sites;
use tickets::TicketKeys;

/// The files of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CertificateFiles {
    /// PEM file with the certificate, followed by the certificates of its issuers.
    pub certificate: PathBuf,
    /// PEM file with the private key.
    pub key: PathBuf,
    /// File with an OCSP response (DER), which is sent with the certificate.
    pub ocsp: Option<PathBuf>,
    /// Host names that the certificate must contain.
    pub names: Vec<String>,
}

impl CertificateFiles {
    /// Creates one from the files of a certificate and its key.
    pub fn new(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> CertificateFiles {
        CertificateFiles {
            certificate: certificate.into(),
            key: key.into(),
            ocsp: None,
            names: Vec::new(),
        }
    }
}

/// Whether clients authenticate with certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClientCertificates {
    /// No client certificate is requested.
    #[default]
    Off,
    /// Certificates are optional. The authorities in this PEM file verify them.
    Optional(PathBuf),
    /// Certificates are required. The authorities in this PEM file verify them.
    Required(PathBuf),
}

/// Settings of TLS at a server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerTlsSettings {
    /// The certificates, at least one. The name that a client requests selects among them. The first
    /// is sent if no other one has the name.
    pub certificates: Vec<CertificateFiles>,
    /// The lowest protocol version.
    pub min_version: TlsVersion,
    /// The application protocols in the order of preference (ALPN).
    pub alpn: Vec<Vec<u8>>,
    /// Whether clients authenticate with certificates.
    pub client_certificates: ClientCertificates,
    /// Time for which sessions can be resumed, at least; their keys change at this interval. Zero
    /// turns resumption off.
    pub ticket_lifetime: Duration,
    /// Maximum number of bytes of content in a record that is sent.
    pub max_fragment: Option<usize>,
    /// The cryptography.
    pub provider: Arc<Provider>,
}

impl ServerTlsSettings {
    /// Creates settings with one certificate.
    pub fn new(certificate: CertificateFiles) -> ServerTlsSettings {
        ServerTlsSettings {
            certificates: vec![certificate],
            min_version: TlsVersion::Tls12,
            alpn: vec![b"http/1.1".to_vec()],
            client_certificates: ClientCertificates::Off,
            ticket_lifetime: Duration::from_secs(12 * 3600),
            max_fragment: None,
            provider: provider(),
        }
    }
}

/// The error for TLS settings of a server that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ServerTlsError {
    /// A file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// No certificate is set.
    #[error("TLS needs a certificate: set at least one")]
    NoCertificate,
    /// The TLS library rejected the settings.
    #[error("cannot set up TLS: {0}")]
    Setup(String),
}

/// TLS of a server. Clones are cheap, and share the ticket keys and [reloads](ServerTls::reload).
#[derive(Clone)]
pub struct ServerTls(Arc<Shared>);

struct Shared {
    settings: ServerTlsSettings,
    current: RwLock<Current>,
    tickets: Option<Arc<TicketKeys>>,
}

#[derive(Clone)]
struct Current {
    config: Arc<ServerConfig>,
    sites: Arc<Sites>,
    expires: SystemTime,
}

impl ServerTls {
    /// Reads and validates the files that `settings` name.
    ///
    /// # Errors
    /// A file cannot be read or is malformed, a key does not match its certificate, or a certificate
    /// is not valid at this time or for a required name.
    pub fn load(settings: ServerTlsSettings) -> Result<ServerTls, ServerTlsError> {
        let tickets = match settings.ticket_lifetime {
            Duration::ZERO => None,
            lifetime => {
                let keys = TicketKeys::new(lifetime, settings.provider.secure_random);
                Some(Arc::new(keys.map_err(|error| setup_error(&error))?))
            }
        };
        let current = RwLock::new(read(&settings, tickets.as_ref())?);
        Ok(ServerTls(Arc::new(Shared { settings, current, tickets })))
    }

    /// Reads the files again, for later connections. After an error, the previous certificates remain
    /// in use.
    ///
    /// # Errors
    /// As [`load`](ServerTls::load).
    pub fn reload(&self) -> Result<(), ServerTlsError> {
        let Shared { settings, current, tickets } = &*self.0;
        let new = read(settings, tickets.as_ref())?;
        // A resumed session is not verified again, so the authorities of old tickets may differ.
        if settings.client_certificates != ClientCertificates::Off
            && let Some(tickets) = tickets
        {
            tickets.replace().map_err(|error| setup_error(&error))?;
        }
        *current.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }

    /// Returns the time at which the first certificate expires.
    pub fn expires(&self) -> SystemTime {
        self.current().expires
    }

    fn current(&self) -> Current {
        self.0.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn session(&self) -> Result<Session, rustls::Error> {
        let Current { config, sites, .. } = self.current();
        Session::server(config, sites)
    }
}

fn setup_error(error: &rustls::Error) -> ServerTlsError {
    ServerTlsError::Setup(line(&error.to_string()))
}

/// Reads the files, and creates the configuration of the TLS library.
fn read(
    settings: &ServerTlsSettings,
    tickets: Option<&Arc<TicketKeys>>,
) -> Result<Current, ServerTlsError> {
    let versions: &[&SupportedProtocolVersion] = match settings.min_version {
        TlsVersion::Tls12 => &[&TLS13, &TLS12],
        TlsVersion::Tls13 => &[&TLS13],
    };
    let now = UnixTime::now();
    let mut certificates = Vec::new();
    for files in &settings.certificates {
        let certificate = Certificate::read(files, &settings.provider, now)?;
        if certificate.names.is_empty() && !certificates.is_empty() {
            let reason = "the certificate has no host name, so no client can select it; \
                          add a subjectAltName, or remove it";
            return Err(FileError::new(&files.certificate, reason).into());
        }
        certificates.push(certificate);
    }
    let expires = certificates.iter().map(|certificate| certificate.expires).min();
    let expires = expires.ok_or(ServerTlsError::NoCertificate)?;
    let builder = ServerConfig::builder_with_provider(Arc::clone(&settings.provider))
        .with_protocol_versions(versions)
        .map_err(|error| setup_error(&error))?;
    let builder = match &settings.client_certificates {
        ClientCertificates::Off => builder.with_no_client_auth(),
        ClientCertificates::Optional(path) | ClientCertificates::Required(path) => {
            let roots = Arc::new(read_roots(path)?);
            let provider = Arc::clone(&settings.provider);
            let mut verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
            if matches!(settings.client_certificates, ClientCertificates::Optional(_)) {
                verifier = verifier.allow_unauthenticated();
            }
            let verifier = verifier.build();
            builder.with_client_cert_verifier(
                verifier.map_err(|error| ServerTlsError::Setup(line(&error.to_string())))?,
            )
        }
    };
    let sites = Arc::new(Sites::new(certificates));
    let mut config = builder.with_cert_resolver(Arc::clone(&sites) as _);
    config.alpn_protocols.clone_from(&settings.alpn);
    // By the cost of the suites, see `provider`.
    config.ignore_client_order = true;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.max_fragment_size = settings.max_fragment;
    match tickets {
        None => config.send_tls13_tickets = 0,
        Some(tickets) => {
            config.ticketer = Arc::clone(tickets) as _;
            // A client needs one ticket for its next connection, and receives another one there.
            config.send_tls13_tickets = 1;
        }
    }
    Ok(Current { config: Arc::new(config), sites, expires })
}

/// Reads the authorities that issue client certificates.
fn read_roots(path: &std::path::Path) -> Result<RootCertStore, FileError> {
    let mut roots = RootCertStore::empty();
    for (number, certificate) in pem::certificates(path)? {
        roots.add(certificate).map_err(|error| {
            let reason = describe_error(&error);
            FileError::new(path, format!("line {number}: not a certificate: {reason}"))
        })?;
    }
    Ok(roots)
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls").field("settings", &self.0.settings).finish_non_exhaustive()
    }
}
