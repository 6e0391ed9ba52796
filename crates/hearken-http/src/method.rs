//! Request methods.

/// A request method, RFC 9110 section 9. Methods are case-sensitive.
///
/// ```
/// use hearken_http::Method;
///
/// assert_eq!(Method::from_token(b"GET"), Method::Get);
/// assert_eq!(Method::from_token(b"get"), Method::Other(b"get"));
/// assert_eq!(Method::Other(b"PURGE").as_bytes(), b"PURGE");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method<'b> {
    /// `GET`
    Get,
    /// `HEAD`: like GET, but the response has no body.
    Head,
    /// `OPTIONS`
    Options,
    /// `POST`
    Post,
    /// `PUT`
    Put,
    /// `DELETE`
    Delete,
    /// `CONNECT`: a 2xx response turns the connection into a tunnel.
    Connect,
    /// `TRACE`
    Trace,
    /// `PATCH`, RFC 5789.
    Patch,
    /// Any other token.
    Other(&'b [u8]),
}

impl<'b> Method<'b> {
    /// Returns the method that a token names, without validating the token.
    #[inline]
    pub fn from_token(token: &'b [u8]) -> Self {
        match token {
            b"GET" => Self::Get,
            b"HEAD" => Self::Head,
            b"OPTIONS" => Self::Options,
            b"POST" => Self::Post,
            b"PUT" => Self::Put,
            b"DELETE" => Self::Delete,
            b"CONNECT" => Self::Connect,
            b"TRACE" => Self::Trace,
            b"PATCH" => Self::Patch,
            other => Self::Other(other),
        }
    }

    /// Returns the method as written in a request line.
    pub fn as_bytes(&self) -> &'b [u8] {
        match self {
            Self::Get => b"GET",
            Self::Head => b"HEAD",
            Self::Options => b"OPTIONS",
            Self::Post => b"POST",
            Self::Put => b"PUT",
            Self::Delete => b"DELETE",
            Self::Connect => b"CONNECT",
            Self::Trace => b"TRACE",
            Self::Patch => b"PATCH",
            Self::Other(token) => token,
        }
    }
}
