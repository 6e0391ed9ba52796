//! Errors of TLS sessions, each described on one line.

use std::io;

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};

/// Maximum number of characters of a peer's text that a message contains.
const MAX_PEER_TEXT: usize = 200;

/// The error that ended a session. [`io::Error::get_ref`] of a failed completion returns it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsFailure {
    /// The peer's certificate is not trusted.
    #[error("the peer's certificate is not trusted: {0}")]
    Certificate(String),
    /// The peer ended the session with an alert.
    #[error("the peer ended the TLS session: alert {0}")]
    Alert(String),
    /// The received bytes are not TLS.
    #[error("the peer does not speak TLS")]
    NotTls,
    /// The peer violated the protocol, or has no version or algorithm in common with this side.
    #[error("TLS failed: {0}")]
    Protocol(String),
    /// The connection ended before the handshake was complete.
    #[error("the peer closed the connection within the TLS handshake")]
    Handshake,
    /// The handshake took longer than its timeout.
    #[error("the TLS handshake timed out")]
    Timeout,
    /// The connection ended without a `close_notify` alert, so content may be missing.
    #[error("the peer closed the connection without close_notify; content may be missing")]
    Truncated,
}

impl TlsFailure {
    /// Converts an error of the TLS library. `has_spoken_tls` is whether TLS was received before.
    pub(crate) fn from_rustls(error: &Error, has_spoken_tls: bool) -> TlsFailure {
        match error {
            Error::InvalidCertificate(error) => TlsFailure::Certificate(describe(error)),
            Error::NoCertificatesPresented => TlsFailure::Certificate("it is missing".to_owned()),
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

    fn kind(&self) -> io::ErrorKind {
        match self {
            TlsFailure::Handshake | TlsFailure::Truncated => io::ErrorKind::UnexpectedEof,
            TlsFailure::Timeout => io::ErrorKind::TimedOut,
            _ => io::ErrorKind::InvalidData,
        }
    }
}

impl From<TlsFailure> for io::Error {
    fn from(failure: TlsFailure) -> io::Error {
        io::Error::new(failure.kind(), failure)
    }
}

fn describe(error: &CertificateError) -> String {
    line(&error.to_string())
}

/// Escapes control characters in `text` and truncates it, so that it fits on one line.
pub(crate) fn line(text: &str) -> String {
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
