#![doc = include_str!("../README.md")]

pub mod client;
mod client_settings;
pub mod failure;
pub mod pem;
mod provider;
pub mod server;
mod session;
mod tls_io;
mod verifier;

pub use client::ClientTls;
pub use client_settings::{ClientProfile, ClientTlsError, ClientTlsSettings, Trust};
pub use failure::TlsFailure;
#[cfg(feature = "simulation")]
pub use provider::simulate;
pub use provider::{Provider, provider, time_provider};
pub use server::ServerTls;
pub use session::{Progress, Session, ToSend, Wire};
pub use tls_io::{TlsIo, TlsLimits};
pub use verifier::Verifier;

/// A protocol version.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum TlsVersion {
    /// TLS 1.2.
    Tls12,
    /// TLS 1.3.
    Tls13,
}

impl TlsVersion {
    /// Returns the name, as OpenSSL writes it.
    pub fn name(self) -> &'static str {
        match self {
            TlsVersion::Tls12 => "TLSv1.2",
            TlsVersion::Tls13 => "TLSv1.3",
        }
    }
}

/// The parameters of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SessionInfo<'a> {
    /// The protocol version.
    pub version: TlsVersion,
    /// Whether the session resumes an earlier one.
    pub resumed: bool,
    /// The application protocol, if one was negotiated (ALPN).
    pub alpn: Option<&'a [u8]>,
    /// The peer's certificate (DER), if it sent one.
    pub peer_certificate: Option<&'a [u8]>,
    /// The subject of the client's certificate (RFC 4514), if a server received one.
    pub client_subject: Option<&'a str>,
}
