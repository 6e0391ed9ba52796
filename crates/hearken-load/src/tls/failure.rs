//! Errors of TLS sessions, each described on one line together with a remedy.

use rustls::pki_types::UnixTime;
use rustls::{AlertDescription, CertificateError, Error, InconsistentKeys, InvalidMessage};
use thiserror::Error as ThisError;

/// Maximum number of characters of a peer's text that a message contains.
const MAX_PEER_TEXT: usize = 200;
/// Maximum number of certificate names that a message contains.
const MAX_NAMES: usize = 3;

/// The error that ended a session.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
pub(crate) enum SessionError {
    /// The server's certificate is not trusted.
    #[error("the server's certificate {0}")]
    Certificate(String),
    /// The server ended the session with an alert.
    #[error("the server ended the TLS session: {0}")]
    Alert(String),
    /// The received bytes are not TLS.
    #[error("the server does not speak TLS; use http:// if the port serves plain HTTP")]
    NotTls,
    /// The server violated the protocol, or has no protocol version in common with the client.
    #[error("TLS failed: {0}")]
    Protocol(String),
    /// The connection ended before the handshake was done.
    #[error("the server closed the connection within the TLS handshake")]
    Handshake,
    /// The connection ended without a `close_notify` alert, so the response may be truncated.
    #[error("the server closed the connection without close_notify; the response may be truncated")]
    Truncated,
}

impl SessionError {
    /// Converts an error of the TLS library. `has_spoken_tls` is whether TLS was received before.
    pub(super) fn from_rustls(error: &Error, has_spoken_tls: bool) -> SessionError {
        match error {
            Error::InvalidCertificate(error) => SessionError::Certificate(certificate(error)),
            Error::NoCertificatesPresented => SessionError::Certificate("is missing".to_owned()),
            Error::AlertReceived(alert) => SessionError::Alert(self::alert(*alert)),
            Error::InvalidMessage(
                InvalidMessage::InvalidContentType
                | InvalidMessage::UnknownProtocolVersion
                | InvalidMessage::MessageTooLarge
                | InvalidMessage::InvalidEmptyPayload,
            ) if !has_spoken_tls => SessionError::NotTls,
            other => SessionError::Protocol(line(&other.to_string())),
        }
    }
}

fn alert(alert: AlertDescription) -> String {
    let hint = match alert {
        AlertDescription::CertificateRequired => {
            "; it requires a client certificate: set --cert FILE and --key FILE"
        }
        AlertDescription::UnrecognisedName => "; set another server name with --server-name NAME",
        AlertDescription::NoApplicationProtocol => "; it does not speak HTTP/1.1",
        _ => "",
    };
    format!("alert {alert:?}{hint}")
}

/// Returns whether webpki rejected the certificate because it belongs to an authority.
pub(super) fn is_authority_certificate(error: &CertificateError) -> bool {
    matches!(error, CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity"))
}

fn certificate(error: &CertificateError) -> String {
    let days = |from: &UnixTime, to: &UnixTime| to.as_secs().saturating_sub(from.as_secs()) / 86400;
    match error {
        CertificateError::UnknownIssuer => "is from an issuer that is not trusted; trust it with \
                                            --cacert FILE, or skip verification with --insecure"
            .to_owned(),
        CertificateError::NotValidForNameContext { expected, presented } => format!(
            "is not for {}, but for {}; set another server name, or skip verification with \
             --insecure",
            line(&expected.to_str()),
            names(presented)
        ),
        CertificateError::ExpiredContext { time, not_after } => {
            format!("expired {} days ago; skip verification with --insecure", days(not_after, time))
        }
        CertificateError::NotValidYetContext { time, not_before } => {
            let days = days(time, not_before);
            format!("is not valid for another {days} days; check the clock of this machine")
        }
        CertificateError::BadSignature => {
            "is not signed by the trusted authority of that name; trust another one with \
             --cacert FILE, or skip verification with --insecure"
                .to_owned()
        }
        error if is_authority_certificate(error) => {
            "is the certificate of an authority that is not trusted; trust it with --cacert FILE, \
             or skip verification with --insecure"
                .to_owned()
        }
        other => format!("is invalid: {}", line(&other.to_string())),
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

/// Describes an error of a local certificate or key.
pub(super) fn describe_local_error(error: &Error) -> String {
    match error {
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            "the private key does not match the certificate".to_owned()
        }
        Error::InvalidCertificate(CertificateError::BadEncoding) => "malformed encoding".to_owned(),
        other => line(&other.to_string()),
    }
}

/// Escapes control characters in `text` and truncates it, so that it fits on one line.
pub(super) fn line(text: &str) -> String {
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
