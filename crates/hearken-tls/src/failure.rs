//! Errors of TLS sessions, each described on one line.

use std::{fmt, io};

use rustls::pki_types::UnixTime;
use rustls::{AlertDescription, CertificateError, Error, InconsistentKeys, InvalidMessage};

/// Maximum number of characters of a peer's text that a message contains.
const MAX_PEER_TEXT: usize = 200;
/// Maximum number of certificate names that a message contains.
const MAX_NAMES: usize = 3;

/// The error that ended a session. [`io::Error::get_ref`] of a failed completion returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TlsFailure {
    /// The peer's certificate is not trusted.
    Certificate(CertificateProblem),
    /// The peer ended the session with this alert.
    Alert(String),
    /// The received bytes are not TLS.
    NotTls,
    /// The peer violated the protocol, or has no version or algorithm in common with this side.
    Protocol(String),
    /// The connection ended before the handshake was complete.
    Handshake,
    /// The handshake took longer than its timeout.
    Timeout,
    /// The connection ended without a `close_notify` alert, so content may be missing.
    Truncated,
}

/// A reason why a certificate is not trusted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateProblem {
    /// The peer sent no certificate.
    #[error("is missing")]
    Missing,
    /// No trusted authority issued it.
    #[error("is from an issuer that is not trusted")]
    UnknownIssuer,
    /// Other names in the certificate.
    #[error("is not for {expected}, but for {presented}")]
    OtherName {
        /// The name of the server.
        expected: String,
        /// The first names of the certificate.
        presented: String,
    },
    /// The number of days since it expired.
    #[error("expired {0} days ago")]
    Expired(u64),
    /// The number of days until it becomes valid.
    #[error("is not valid for another {0} days")]
    NotYetValid(u64),
    /// Its signature is not that of the trusted authority.
    #[error("is not signed by the trusted authority of that name")]
    Signature,
    /// A certificate of an authority, used by a server or client.
    #[error("is the certificate of an authority that is not trusted")]
    Authority,
    /// Any other reason.
    #[error("is invalid: {0}")]
    Invalid(String),
}

impl CertificateProblem {
    /// Converts an error of the TLS library.
    pub fn from_rustls(error: &CertificateError) -> CertificateProblem {
        let days =
            |from: &UnixTime, to: &UnixTime| to.as_secs().saturating_sub(from.as_secs()) / 86_400;
        match error {
            CertificateError::UnknownIssuer => CertificateProblem::UnknownIssuer,
            CertificateError::NotValidForNameContext { expected, presented } => {
                CertificateProblem::OtherName {
                    expected: line(&expected.to_str()),
                    presented: names(presented),
                }
            }
            CertificateError::ExpiredContext { time, not_after } => {
                CertificateProblem::Expired(days(not_after, time))
            }
            CertificateError::NotValidYetContext { time, not_before } => {
                CertificateProblem::NotYetValid(days(time, not_before))
            }
            CertificateError::BadSignature => CertificateProblem::Signature,
            // webpki rejects certificates of authorities for servers and clients.
            CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
                CertificateProblem::Authority
            }
            other => CertificateProblem::Invalid(line(&other.to_string())),
        }
    }
}

impl TlsFailure {
    /// Converts an error of the TLS library. `has_spoken_tls` is whether TLS was received before.
    pub(crate) fn from_rustls(error: &Error, has_spoken_tls: bool) -> TlsFailure {
        match error {
            Error::InvalidCertificate(error) => {
                TlsFailure::Certificate(CertificateProblem::from_rustls(error))
            }
            Error::NoCertificatesPresented => TlsFailure::Certificate(CertificateProblem::Missing),
            Error::AlertReceived(AlertDescription::Unknown(code)) => {
                TlsFailure::Alert(code.to_string())
            }
            Error::AlertReceived(alert) => TlsFailure::Alert(format!("{alert:?}")),
            Error::InvalidMessage(
                InvalidMessage::InvalidContentType
                | InvalidMessage::UnknownProtocolVersion
                | InvalidMessage::MessageTooLarge
                | InvalidMessage::InvalidEmptyPayload,
            ) if !has_spoken_tls => TlsFailure::NotTls,
            other => TlsFailure::Protocol(line(&other.to_string())),
        }
    }

    /// Returns a description that calls the peer by a name, such as `server`.
    pub fn describe(&self, peer: &str) -> String {
        match self {
            TlsFailure::Certificate(problem) => format!("the {peer}'s certificate {problem}"),
            TlsFailure::Alert(alert) => format!("the {peer} ended the TLS session: alert {alert}"),
            TlsFailure::NotTls => format!("the {peer} does not speak TLS"),
            TlsFailure::Protocol(reason) => format!("TLS failed: {reason}"),
            TlsFailure::Handshake => {
                format!("the {peer} closed the connection within the TLS handshake")
            }
            TlsFailure::Timeout => "the TLS handshake timed out".to_owned(),
            TlsFailure::Truncated => format!(
                "the {peer} closed the connection without close_notify; content may be missing"
            ),
        }
    }

    fn kind(&self) -> io::ErrorKind {
        match self {
            TlsFailure::Handshake | TlsFailure::Truncated => io::ErrorKind::UnexpectedEof,
            TlsFailure::Timeout => io::ErrorKind::TimedOut,
            _ => io::ErrorKind::InvalidData,
        }
    }
}

impl fmt::Display for TlsFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe("peer"))
    }
}

impl std::error::Error for TlsFailure {}

impl From<TlsFailure> for io::Error {
    fn from(failure: TlsFailure) -> io::Error {
        io::Error::new(failure.kind(), failure)
    }
}

/// Formats names as `a, b, c and 5 others`.
fn names(all: &[String]) -> String {
    if all.is_empty() {
        return "no name".to_owned();
    }
    let mut text = line(&all[..all.len().min(MAX_NAMES)].join(", "));
    if all.len() > MAX_NAMES {
        text.push_str(&format!(" and {} others", all.len() - MAX_NAMES));
    }
    text
}

/// Describes an error of a local certificate or key on one line.
pub fn describe_error(error: &Error) -> String {
    match error {
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            "the private key does not match the certificate".to_owned()
        }
        Error::InvalidCertificate(CertificateError::BadEncoding) => "malformed encoding".to_owned(),
        other => line(&other.to_string()),
    }
}

/// Escapes control characters in `text` and truncates it, so that it fits on one line.
pub fn line(text: &str) -> String {
    let mut line: String = text.chars().take(MAX_PEER_TEXT).flat_map(escape).collect();
    if text.chars().nth(MAX_PEER_TEXT).is_some() {
        line.push_str("...");
    }
    line
}

fn escape(character: char) -> impl Iterator<Item = char> {
    let control = character.is_control();
    let escaped = control.then(|| character.escape_debug()).into_iter().flatten();
    escaped.chain((!control).then_some(character))
}
