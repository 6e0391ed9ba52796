//! TLS of a server: certificates, versions, tickets and client certificates.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use rustls::pki_types::UnixTime;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, SupportedProtocolVersion};

use crate::failure::line;
use crate::pem::{self, FileError};
use crate::session::Session;
use crate::{Provider, TlsVersion, provider, time_provider};

mod certificate;
pub(crate) mod handshakes;
pub(crate) mod sites;
mod stamps;
pub(crate) mod subject;
mod ticket_file;
mod tickets;

use certificate::Certificate;
use handshakes::HandshakeCounters;
pub use handshakes::{HandshakeStats, VersionStats};
use sites::Sites;
use stamps::Stamps;
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
    /// File with ticket keys, of which the first encrypts and all decrypt: lines of 32 or 80 bytes in
    /// Base64, or these bytes one after another. By default the keys are random.
    pub ticket_keys: Option<PathBuf>,
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
            ticket_keys: None,
            max_fragment: None,
            provider: provider(),
        }
    }
}

impl ServerTlsSettings {
    /// Returns the state of all files.
    fn stamps(&self) -> Stamps {
        let certificates = self.certificates.iter();
        let files = certificates
            .flat_map(|files| [Some(&files.certificate), Some(&files.key), files.ocsp.as_ref()]);
        let authorities = match &self.client_certificates {
            ClientCertificates::Off => None,
            ClientCertificates::Optional(path) | ClientCertificates::Required(path) => Some(path),
        };
        let files = files.chain([authorities, self.ticket_keys.as_ref()]);
        Stamps::of(files.flatten().map(PathBuf::as_path))
    }

    /// Returns bytes in which servers must agree to accept each other's tickets. A resumed session is
    /// not verified again.
    fn ticket_context(&self) -> Result<Vec<u8>, FileError> {
        let (mode, authorities) = match &self.client_certificates {
            ClientCertificates::Off => (0, Vec::new()),
            ClientCertificates::Optional(path) => (1, pem::read(path)?),
            ClientCertificates::Required(path) => (2, pem::read(path)?),
        };
        Ok([vec![mode], authorities].concat())
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
    handshakes: Arc<HandshakeCounters>,
    failed_reloads: AtomicU64,
    files: Mutex<Files>,
}

/// The files of the settings.
#[derive(Default)]
struct Files {
    /// Their state before they were read.
    read: Stamps,
    /// Their state at the last check.
    seen: Stamps,
}

#[derive(Clone)]
struct Current {
    config: Arc<ServerConfig>,
    sites: Arc<Sites>,
    /// The times at which the certificates expire.
    expires: Arc<[SystemTime]>,
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
        let handshakes = Arc::new(HandshakeCounters::default());
        let stamps = settings.stamps();
        let current = RwLock::new(read(&settings, tickets.as_ref(), &handshakes)?);
        if let (Some(tickets), Some(path)) = (&tickets, &settings.ticket_keys) {
            let secrets = ticket_file::read(path)?;
            let context = settings.ticket_context()?;
            tickets.replace_by(&secrets, &context).map_err(|error| setup_error(&error))?;
        }
        let files = Mutex::new(Files { read: stamps.clone(), seen: stamps });
        let failed_reloads = AtomicU64::new(0);
        let shared = Shared { settings, current, tickets, handshakes, failed_reloads, files };
        Ok(ServerTls(Arc::new(shared)))
    }

    /// Reads the files again, for later connections. After an error, the previous certificates remain
    /// in use.
    ///
    /// # Errors
    /// As [`load`](ServerTls::load).
    pub fn reload(&self) -> Result<(), ServerTlsError> {
        // They may change while they are read.
        let stamps = self.0.settings.stamps();
        self.files().read = stamps;
        let result = self.read_again();
        if result.is_err() {
            self.0.failed_reloads.fetch_add(1, Relaxed);
        }
        result
    }

    fn read_again(&self) -> Result<(), ServerTlsError> {
        let Shared { settings, current, tickets, handshakes, .. } = &*self.0;
        let new = read(settings, tickets.as_ref(), handshakes)?;
        if let Some(tickets) = tickets {
            let replaced = match &settings.ticket_keys {
                Some(path) => {
                    tickets.replace_by(&ticket_file::read(path)?, &settings.ticket_context()?)
                }
                // A resumed session is not verified again, so the authorities of old tickets may
                // differ.
                None if settings.client_certificates != ClientCertificates::Off => {
                    tickets.replace()
                }
                None => Ok(()),
            };
            replaced.map_err(|error| setup_error(&error))?;
        }
        *current.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }

    /// [Reloads](ServerTls::reload) files that have changed since they were read, and not since the
    /// last call, because a key and its certificate are not replaced at the same moment. Returns
    /// `None` if it did not read them. Call it at an interval.
    pub fn reload_changed(&self) -> Option<Result<(), ServerTlsError>> {
        let now = self.0.settings.stamps();
        let has_settled = {
            let mut files = self.files();
            let is_stable = files.seen == now;
            files.seen = now;
            is_stable && files.seen != files.read
        };
        has_settled.then(|| self.reload())
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        self.0.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the files of the certificates, and the times at which they expire.
    pub fn expiries(&self) -> Vec<(&Path, SystemTime)> {
        let files = self.0.settings.certificates.iter().map(|files| &*files.certificate);
        files.zip(self.current().expires.iter().copied()).collect()
    }

    /// Returns the numbers of handshakes.
    pub fn handshakes(&self) -> HandshakeStats {
        self.0.handshakes.stats()
    }

    /// Returns the number of reloads that failed.
    pub fn failed_reloads(&self) -> u64 {
        self.0.failed_reloads.load(Relaxed)
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
    handshakes: &Arc<HandshakeCounters>,
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
    if certificates.is_empty() {
        return Err(ServerTlsError::NoCertificate);
    }
    let expires = certificates.iter().map(|certificate| certificate.expires).collect();
    let builder = ServerConfig::builder_with_provider(Arc::clone(&settings.provider))
        .with_protocol_versions(versions)
        .map_err(|error| setup_error(&error))?;
    let builder = match &settings.client_certificates {
        ClientCertificates::Off => builder.with_no_client_auth(),
        ClientCertificates::Optional(path) | ClientCertificates::Required(path) => {
            let roots = Arc::new(pem::roots(path)?.0);
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
    let sites = Arc::new(Sites::new(certificates, Arc::clone(handshakes)));
    let mut config = builder.with_cert_resolver(Arc::clone(&sites) as _);
    config.alpn_protocols.clone_from(&settings.alpn);
    // By the cost of the suites, see `provider`.
    config.ignore_client_order = true;
    config.time_provider = time_provider();
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

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls").field("settings", &self.0.settings).finish_non_exhaustive()
    }
}
