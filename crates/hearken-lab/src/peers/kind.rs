//! The kind of participants: servers, or proxies with an origin.

use serde::{Deserialize, Serialize};

use super::workload::{WORKLOADS, Workload};

/// The kind of the participants of a run. Servers and proxies are never compared with each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Servers that generate responses themselves.
    #[default]
    Server,
    /// Proxies that forward requests to a common origin server, which is not measured.
    Proxy,
}

impl Kind {
    /// Returns the workloads for this kind.
    pub fn workloads(self) -> impl Iterator<Item = &'static Workload> {
        WORKLOADS.iter().filter(move |workload| workload.kind == self)
    }

    /// Returns the default workload, which the idle connections use.
    pub(crate) fn default_workload(self) -> &'static Workload {
        // A test ensures that each kind has a workload.
        self.workloads().next().unwrap_or(&WORKLOADS[0])
    }

    /// Formats an error message for an unknown workload.
    pub(crate) fn unknown_workload(self, name: &str) -> String {
        let known: Vec<_> = self.workloads().map(|w| w.name).collect();
        let known = known.join(", ");
        format!("unknown workload '{name}' for a {} (available: {known})", self.name())
    }

    /// Returns the singular.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Server => "server",
            Kind::Proxy => "proxy",
        }
    }

    /// Returns the plural.
    pub fn plural(self) -> &'static str {
        match self {
            Kind::Server => "servers",
            Kind::Proxy => "proxies",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_own_workloads() {
        for kind in [Kind::Server, Kind::Proxy] {
            assert_eq!(kind.default_workload().kind, kind);
            assert!(
                kind.workloads().all(|w| (w.kind == Kind::Proxy) == w.name.contains("proxied"))
            );
        }
    }
}
