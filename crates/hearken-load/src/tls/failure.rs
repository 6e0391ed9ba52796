//! What ends a session, in one line that says what to do.

use rustls::pki_types::UnixTime;
use rustls::{AlertDescription, CertificateError, Error, InconsistentKeys, InvalidMessage};
use thiserror::Error as ThisError;

/// How much of what a peer says is repeated.
const MOST: usize = 200;
/// How many of the names in a certificate are told.
const NAMES: usize = 3;

/// Why a session ended otherwise than it should.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
pub(crate) enum SessionError {
    /// The server is not believed to be who it should.
    #[error("the server's certificate {0}")]
    Certificate(String),
    /// The server said why it ended the session.
    #[error("the server refused TLS: {0}")]
    Alert(String),
    /// What came is no TLS.
    #[error("the server does not speak TLS; is it an http:// port?")]
    NotTls,
    /// The server broke the protocol, or speaks none that we do.
    #[error("TLS failed: {0}")]
    Protocol(String),
    /// The connection ended before the handshake was done.
    #[error("the server closed the connection within the TLS handshake")]
    Handshake,
    /// The connection ended without a `close_notify`: somebody may have cut it.
    #[error("the server closed the connection without close_notify: what came may be cut short")]
    Truncated,
}

impl SessionError {
    /// Of what the TLS library says; `spoken` tells whether TLS came before.
    pub(super) fn of(error: &Error, spoken: bool) -> SessionError {
        match error {
            Error::InvalidCertificate(error) => SessionError::Certificate(certificate(error)),
            Error::NoCertificatesPresented => SessionError::Certificate("is missing".to_owned()),
            Error::AlertReceived(alert) => SessionError::Alert(self::alert(*alert)),
            Error::InvalidMessage(
                InvalidMessage::InvalidContentType
                | InvalidMessage::UnknownProtocolVersion
                | InvalidMessage::MessageTooLarge
                | InvalidMessage::InvalidEmptyPayload,
            ) if !spoken => SessionError::NotTls,
            other => SessionError::Protocol(line(&other.to_string())),
        }
    }
}

fn alert(alert: AlertDescription) -> String {
    let hint = match alert {
        AlertDescription::CertificateRequired => {
            "; it wants to know who we are: give --cert FILE and --key FILE"
        }
        AlertDescription::UnrecognisedName => "; it has no such name: give another server name",
        AlertDescription::NoApplicationProtocol => "; it does not speak HTTP/1.1",
        _ => "",
    };
    format!("alert {alert:?}{hint}")
}

/// True if the server shows the certificate of an authority as its own, in webpki's words.
pub(super) fn is_of_an_authority(error: &CertificateError) -> bool {
    matches!(error, CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity"))
}

fn certificate(error: &CertificateError) -> String {
    let days = |from: &UnixTime, to: &UnixTime| to.as_secs().saturating_sub(from.as_secs()) / 86400;
    match error {
        CertificateError::UnknownIssuer => "is from an issuer that is not trusted; trust it with \
                                            --cacert FILE, or believe any server with --insecure"
            .to_owned(),
        CertificateError::NotValidForNameContext { expected, presented } => format!(
            "is not for {}, but for {}; ask for another name, or believe it with --insecure",
            line(&expected.to_str()),
            names(presented)
        ),
        CertificateError::ExpiredContext { time, not_after } => {
            format!("expired {} days ago; believe it with --insecure", days(not_after, time))
        }
        CertificateError::NotValidYetContext { time, not_before } => {
            let days = days(time, not_before);
            format!("is valid only in {days} days; is the clock right?")
        }
        CertificateError::BadSignature => {
            "is not signed by the authority of that name that is trusted; trust another with \
             --cacert FILE, or believe any server with --insecure"
                .to_owned()
        }
        error if is_of_an_authority(error) => {
            "is that of an authority, and not the one that is trusted; trust it with --cacert \
             FILE, or believe any server with --insecure"
                .to_owned()
        }
        other => format!("cannot be believed: {}", line(&other.to_string())),
    }
}

/// "a, b, c and 5 others".
fn names(all: &[String]) -> String {
    if all.is_empty() {
        return "no name".to_owned();
    }
    let mut text = line(&all[..all.len().min(NAMES)].join(", "));
    if all.len() > NAMES {
        text.push_str(&format!(" and {} others", all.len() - NAMES));
    }
    text
}

/// What is wrong with a certificate or key of ours.
pub(super) fn of_own(error: &Error) -> String {
    match error {
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            "the private key is not the certificate's".to_owned()
        }
        Error::InvalidCertificate(CertificateError::BadEncoding) => {
            "its encoding is broken".to_owned()
        }
        other => line(&other.to_string()),
    }
}

/// `text` on one line, and not too long.
pub(super) fn line(text: &str) -> String {
    let mut line: String = text.chars().take(MOST).flat_map(escape).collect();
    if text.chars().nth(MOST).is_some() {
        line.push_str("...");
    }
    line
}

fn escape(character: char) -> impl Iterator<Item = char> {
    let control = character.is_control();
    let escaped = control.then(|| character.escape_debug()).into_iter().flatten();
    escaped.chain((!control).then_some(character))
}
