//! Parser for `http://HOST[:PORT][/PATH]` and `https:` URLs.

use std::net::Ipv6Addr;

use thiserror::Error;

/// The parts of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    /// Whether the scheme is https.
    pub(crate) tls: bool,
    /// Name or address, without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Value of the `Host` field.
    pub(crate) authority: String,
    /// Path and query, at least "/".
    pub(crate) target: String,
}

/// An error in a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum UrlError {
    /// The scheme is neither http nor https.
    #[error("it does not begin with http:// or https://; expected http://HOST:PORT/PATH")]
    Scheme,
    /// The host is missing.
    #[error("missing host; expected http://HOST:PORT/PATH")]
    NoHost,
    /// The host contains an invalid character.
    #[error("the host contains an invalid character; enclose an IPv6 address in [brackets]")]
    Host,
    /// The text in brackets is not an IPv6 address.
    #[error("invalid IPv6 address in brackets; expected a URL such as http://[::1]:8080/")]
    Ipv6,
    /// The port is invalid.
    #[error("the port is not a number from 1 to 65535")]
    Port,
    /// The URL contains user information.
    #[error("user information is not supported; use an Authorization header field")]
    User,
    /// The path contains a character that must be encoded.
    #[error(
        "the path contains a space, a control or a non-ASCII character; percent-encode it, such as %20"
    )]
    Path,
}

impl Url {
    /// Returns whether both URLs identify the same server. Targets and spellings may differ.
    pub(crate) fn is_same_server(&self, other: &Url) -> bool {
        (self.tls, self.port) == (other.tls, other.port)
            && self.host.eq_ignore_ascii_case(&other.host)
    }

    pub(crate) fn parse(text: &str) -> Result<Url, UrlError> {
        let (scheme, rest) = text.split_once("://").ok_or(UrlError::Scheme)?;
        let tls = scheme.eq_ignore_ascii_case("https");
        if !tls && !scheme.eq_ignore_ascii_case("http") {
            return Err(UrlError::Scheme);
        }
        let rest = rest.split('#').next().unwrap_or_default();
        let (authority, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err(UrlError::User);
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(bracketed) => {
                let (host, port) = bracketed.split_once(']').ok_or(UrlError::Ipv6)?;
                host.parse::<Ipv6Addr>().map_err(|_| UrlError::Ipv6)?;
                let port = match port {
                    "" => "",
                    _ => port.strip_prefix(':').ok_or(UrlError::Port)?,
                };
                (host, port)
            }
            None => {
                let (host, port) = authority.split_once(':').unwrap_or((authority, ""));
                if host.is_empty() && !port.contains(':') {
                    return Err(UrlError::NoHost);
                }
                let is_name_byte =
                    |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
                // A second colon indicates an IPv6 address without brackets.
                if !host.bytes().all(is_name_byte) || port.contains(':') {
                    return Err(UrlError::Host);
                }
                (host, port)
            }
        };
        let port = match port {
            "" if tls => 443,
            "" => 80,
            // Servers may reject more digits, even if they are zeros.
            digits if digits.len() <= 5 && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse().ok().filter(|&port| port != 0).ok_or(UrlError::Port)?
            }
            _ => return Err(UrlError::Port),
        };
        if !target.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(UrlError::Path);
        }
        let slash = if target.starts_with('/') { "" } else { "/" };
        Ok(Url {
            tls,
            host: host.to_owned(),
            port,
            authority: authority.to_owned(),
            target: format!("{slash}{target}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Url, UrlError};

    #[test]
    fn parses_urls() {
        for (text, host, port, authority, target) in [
            ("http://h", "h", 80, "h", "/"),
            ("http://h/", "h", 80, "h", "/"),
            ("HTTP://h:8080/a?b=c#d", "h", 8080, "h:8080", "/a?b=c"),
            ("http://h?q", "h", 80, "h", "/?q"),
            ("http://127.0.0.1:1/x//y", "127.0.0.1", 1, "127.0.0.1:1", "/x//y"),
            ("http://[::1]", "::1", 80, "[::1]", "/"),
            ("http://[fe80::2]:65535/%20", "fe80::2", 65535, "[fe80::2]:65535", "/%20"),
            ("http://a-b.example:/", "a-b.example", 80, "a-b.example:", "/"),
            ("https://h/", "h", 443, "h", "/"),
            ("HTTPS://[::1]:8443", "::1", 8443, "[::1]:8443", "/"),
        ] {
            let url = Url::parse(text).unwrap();
            assert_eq!(
                (&*url.host, url.port, &*url.authority, &*url.target),
                (host, port, authority, target),
                "{text}"
            );
            assert_eq!(url.tls, text.to_ascii_lowercase().starts_with("https"), "{text}");
        }
    }

    #[test]
    fn rejects_invalid_urls() {
        for (text, error) in [
            ("", UrlError::Scheme),
            ("localhost:80/", UrlError::Scheme),
            ("ftp://h/", UrlError::Scheme),
            ("httpss://h/", UrlError::Scheme),
            ("https://", UrlError::NoHost),
            ("http://", UrlError::NoHost),
            ("http:///x", UrlError::NoHost),
            ("http://:80/", UrlError::NoHost),
            ("http://a b/", UrlError::Host),
            ("http://ä/", UrlError::Host),
            ("http://[::1/", UrlError::Ipv6),
            ("http://[h]/", UrlError::Ipv6),
            ("http://[::1]80/", UrlError::Port),
            ("http://h:0/", UrlError::Port),
            ("http://h:65536/", UrlError::Port),
            ("http://h:+1/", UrlError::Port),
            ("http://::1/", UrlError::Host),
            ("http://fe80::2:80/", UrlError::Host),
            ("http://u:p@h/", UrlError::User),
            ("http://h/a b", UrlError::Path),
            ("http://h/\r\nX: y", UrlError::Path),
        ] {
            assert_eq!(Url::parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn rejects_ports_of_more_than_five_digits() {
        assert_eq!(Url::parse("http://a:000080/"), Err(UrlError::Port));
        assert_eq!(Url::parse("http://a:00080/").unwrap().port, 80);
    }

    proptest! {
        #[test]
        fn never_panics(text in ".*") {
            let _ = Url::parse(&text);
        }

        #[test]
        fn a_parsed_url_fits_in_a_request_line(rest in "[ -~\\r\\n\\tä]*") {
            if let Ok(url) = Url::parse(&format!("http://{rest}")) {
                prop_assert!(url.target.starts_with('/'));
                prop_assert!(url.target.bytes().all(|byte| byte.is_ascii_graphic()));
                prop_assert!(url.authority.bytes().all(|byte| byte.is_ascii_graphic()));
            }
        }
    }
}
