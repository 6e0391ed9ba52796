//! What takes part in a run: servers, or proxies before an origin.

use serde::{Deserialize, Serialize};

use super::workload::{WORKLOADS, Workload};

/// What takes part. A run is of one kind: what a reply costs a server says nothing of a proxy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Servers, which answer by themselves.
    #[default]
    Server,
    /// Proxies, which have the answers from one origin that all of them share, and that is not counted.
    Proxy,
}

impl Kind {
    /// What is asked of this kind.
    pub fn workloads(self) -> impl Iterator<Item = &'static Workload> {
        WORKLOADS.iter().filter(move |workload| workload.of == self)
    }

    /// What is asked of it first, and by the idle connections.
    pub(crate) fn first(self) -> &'static Workload {
        // Each kind has one, which a test holds; any other's document would be served as well.
        self.workloads().next().unwrap_or(&WORKLOADS[0])
    }

    /// Says that it has no workload of that name, and which it has.
    pub(crate) fn no_workload(self, name: &str) -> String {
        let known: Vec<_> = self.workloads().map(|w| w.name).collect();
        let known = known.join(", ");
        format!("there is no workload \"{name}\" for a {} (known are {known})", self.name())
    }

    /// One of them, in a sentence.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Server => "server",
            Kind::Proxy => "proxy",
        }
    }

    /// Several of them.
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
    fn each_kind_has_workloads_of_its_own() {
        for kind in [Kind::Server, Kind::Proxy] {
            assert_eq!(kind.first().of, kind);
            assert!(kind.workloads().all(|w| (w.of == Kind::Proxy) == w.name.contains("proxied")));
        }
    }
}
