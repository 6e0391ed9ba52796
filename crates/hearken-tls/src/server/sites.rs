//! Selects a certificate by the name that a client requests (SNI).

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::certificate::Certificate;
use super::handshakes::HandshakeCounters;

thread_local! {
    /// The certificate that a handshake on this thread has selected by name. rustls does not return
    /// the name of a session without I/O, so the session takes the certificate from here.
    static SELECTED: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Takes the certificate that a handshake on this thread has selected by name.
pub(crate) fn take_selected() -> Option<u32> {
    SELECTED.take()
}

/// Certificates by host names. Several may have the same name, with keys of different types.
#[derive(Debug)]
pub(crate) struct Sites {
    certificates: Vec<(Arc<CertifiedKey>, Vec<String>)>,
    /// Numbers of certificates.
    default: Vec<u32>,
    exact: HashMap<String, Vec<u32>>,
    /// Certificates by the domain below the wildcard label.
    wildcard: HashMap<String, Vec<u32>>,
    /// Counters of the server.
    pub(crate) counters: Arc<HandshakeCounters>,
}

impl Sites {
    /// Creates one. The first certificate is the default, with those that have its names.
    pub(super) fn new(certificates: Vec<Certificate>, counters: Arc<HandshakeCounters>) -> Sites {
        let mut sites = Sites {
            certificates: Vec::new(),
            default: Vec::new(),
            exact: HashMap::new(),
            wildcard: HashMap::new(),
            counters,
        };
        let first_names = certificates.first().map(|first| first.names.clone()).unwrap_or_default();
        for (number, Certificate { key, names, .. }) in (0..).zip(certificates) {
            if number == 0 || (!names.is_empty() && names == first_names) {
                sites.default.push(number);
            }
            for name in &names {
                let numbers = match name.strip_prefix("*.") {
                    Some(domain) => sites.wildcard.entry(domain.to_owned()),
                    None => sites.exact.entry(name.clone()),
                };
                numbers.or_default().push(number);
            }
            sites.certificates.push((key, names));
        }
        sites
    }

    /// Returns the numbers of the certificates for a name in lower case. O(1).
    fn find(&self, name: &str) -> Option<&[u32]> {
        let wildcard = || self.wildcard.get(name.split_once('.')?.1);
        self.exact.get(name).or_else(wildcard).map(Vec::as_slice)
    }

    /// Returns whether a request for `host` belongs on another connection than one whose client
    /// selected a certificate: the certificate does not cover the host, but another one does.
    pub(crate) fn is_misdirected(&self, selected: u32, host: &[u8]) -> bool {
        if self.certificates.len() < 2 {
            return false;
        }
        let Some(name) = host_name(host) else { return false };
        let names = self.certificates.get(selected as usize).map(|(_, names)| names.as_slice());
        if names.is_some_and(|names| names.iter().any(|pattern| covers(pattern, name))) {
            return false;
        }
        self.find(&name.to_ascii_lowercase()).is_some()
    }
}

/// Returns the name in a Host field, without its port and the dot of the root. `None` for an IPv6
/// address.
fn host_name(host: &[u8]) -> Option<&str> {
    let host = std::str::from_utf8(host).ok()?;
    let name = host.split(':').next().filter(|name| !name.starts_with('['))?;
    Some(name.strip_suffix('.').unwrap_or(name))
}

/// Returns whether a name of a certificate covers a host name.
fn covers(pattern: &str, name: &str) -> bool {
    match pattern.strip_prefix("*.") {
        None => name.eq_ignore_ascii_case(pattern),
        Some(domain) => {
            let parent = name.split_once('.').filter(|(label, _)| !label.is_empty());
            parent.is_some_and(|(_, parent)| parent.eq_ignore_ascii_case(domain))
        }
    }
}

impl ResolvesServerCert for Sites {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // rustls has validated and lowercased the name.
        let name = hello.server_name();
        let numbers = name.and_then(|name| self.find(name)).unwrap_or(&self.default);
        let keys = || {
            let key = |number: &u32| Some((*number, &self.certificates.get(*number as usize)?.0));
            numbers.iter().filter_map(key)
        };
        let schemes = hello.signature_schemes();
        let usable = keys().find(|(_, key)| key.key.choose_scheme(schemes).is_some());
        let (number, key) = usable.or_else(|| keys().next())?;
        SELECTED.set(name.map(|_| number));
        Some(Arc::clone(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cover_hosts() {
        for (pattern, name, expected) in [
            ("a.example", "a.example", true),
            ("a.example", "A.Example", true),
            ("a.example", "b.a.example", false),
            ("*.example", "a.example", true),
            ("*.example", "A.EXAMPLE", true),
            ("*.example", "b.a.example", false),
            ("*.example", "example", false),
            ("*.example", ".example", false),
        ] {
            assert_eq!(covers(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn host_fields_contain_names() {
        for (host, name) in [
            (&b"a.example"[..], Some("a.example")),
            (b"a.example:443", Some("a.example")),
            (b"a.example.:443", Some("a.example")),
            (b"[::1]:443", None),
            (b"\xff", None),
            (b"", Some("")),
        ] {
            assert_eq!(host_name(host), name);
        }
    }
}
