//! Selects a certificate by the name that a client requests (SNI).

use std::collections::HashMap;
use std::sync::Arc;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::certificate::Certificate;

/// Certificates by host names. Several may have the same name, with keys of different types.
#[derive(Debug)]
pub(super) struct Resolver {
    default: Vec<Arc<CertifiedKey>>,
    exact: HashMap<String, Vec<Arc<CertifiedKey>>>,
    /// Certificates by the domain below the wildcard label.
    wildcard: HashMap<String, Vec<Arc<CertifiedKey>>>,
}

impl Resolver {
    /// Creates one. The first certificate is the default, with those that have its names.
    pub(super) fn new(certificates: Vec<Certificate>) -> Resolver {
        let mut resolver =
            Resolver { default: Vec::new(), exact: HashMap::new(), wildcard: HashMap::new() };
        let first_names = certificates.first().map(|first| first.names.clone()).unwrap_or_default();
        for (number, Certificate { key, names, .. }) in certificates.into_iter().enumerate() {
            if number == 0 || (!names.is_empty() && names == first_names) {
                resolver.default.push(Arc::clone(&key));
            }
            for name in names {
                let keys = match name.strip_prefix("*.") {
                    Some(domain) => resolver.wildcard.entry(domain.to_owned()),
                    None => resolver.exact.entry(name),
                };
                keys.or_default().push(Arc::clone(&key));
            }
        }
        resolver
    }

    /// Returns the certificates for a name. O(1).
    pub(super) fn find(&self, name: Option<&str>) -> &[Arc<CertifiedKey>] {
        // rustls has validated and lowercased the name.
        name.and_then(|name| {
            let wildcard = || self.wildcard.get(name.split_once('.')?.1);
            self.exact.get(name).or_else(wildcard)
        })
        .unwrap_or(&self.default)
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let keys = self.find(hello.server_name());
        let schemes = hello.signature_schemes();
        let usable = keys.iter().find(|key| key.key.choose_scheme(schemes).is_some());
        usable.or(keys.first()).cloned()
    }
}
