//! Parameters of connections under TLS.

/// The parameters of a connection's TLS session, from [`Io::security`](super::Io::security).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Security<'a> {
    /// Name of the protocol version, such as `TLSv1.3`.
    pub version: &'static str,
    /// Whether the session resumes an earlier one.
    pub resumed: bool,
    /// The application protocol, if one was negotiated (ALPN).
    pub protocol: Option<&'a [u8]>,
    /// The subject of the client's certificate (RFC 4514), if a server verified one.
    pub client_subject: Option<&'a str>,
}

impl Security<'_> {
    /// Creates the parameters of a full handshake, without the optional parts.
    pub fn new(version: &'static str) -> Security<'static> {
        Security { version, resumed: false, protocol: None, client_subject: None }
    }
}
