//! Counters of handshakes, which all workers of a server share. A handshake takes far longer than
//! the update of a shared counter.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::{SessionInfo, TlsFailure, TlsVersion};

/// Numbers of handshakes of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandshakeStats {
    /// Complete handshakes of a version.
    pub complete: [VersionStats; 2],
    /// Failed handshakes.
    pub failed: [(&'static str, u64); FAILURES.len()],
}

/// Numbers of complete handshakes of a version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VersionStats {
    /// Name of the version.
    pub version: &'static str,
    /// Full handshakes.
    pub full: u64,
    /// Handshakes that resumed a session.
    pub resumed: u64,
}

/// The names of reasons for failures.
const FAILURES: [&str; 6] =
    ["certificate", "alert", "not_tls", "protocol", "disconnected", "timeout"];

const VERSIONS: [TlsVersion; 2] = [TlsVersion::Tls12, TlsVersion::Tls13];

#[derive(Debug, Default)]
pub(crate) struct HandshakeCounters {
    full: [AtomicU64; VERSIONS.len()],
    resumed: [AtomicU64; VERSIONS.len()],
    failed: [AtomicU64; FAILURES.len()],
}

impl HandshakeCounters {
    /// Counts a complete handshake.
    pub(crate) fn record_complete(&self, info: &SessionInfo<'_>) {
        let counters = if info.resumed { &self.resumed } else { &self.full };
        if let Some(counter) = counters.get(info.version as usize) {
            counter.fetch_add(1, Relaxed);
        }
    }

    /// Counts a failed handshake. `failure` is `None` if the transport failed.
    pub(crate) fn record_failure(&self, failure: Option<&TlsFailure>) {
        let index = match failure {
            Some(TlsFailure::Certificate(_)) => 0,
            Some(TlsFailure::Alert(_)) => 1,
            Some(TlsFailure::NotTls) => 2,
            Some(TlsFailure::Protocol(_)) => 3,
            Some(TlsFailure::Handshake | TlsFailure::Truncated) | None => 4,
            Some(TlsFailure::Timeout) => 5,
        };
        if let Some(counter) = self.failed.get(index) {
            counter.fetch_add(1, Relaxed);
        }
    }

    pub(super) fn stats(&self) -> HandshakeStats {
        let value = |counters: &[AtomicU64], index: usize| {
            counters.get(index).map_or(0, |counter| counter.load(Relaxed))
        };
        HandshakeStats {
            complete: VERSIONS.map(|version| VersionStats {
                version: version.name(),
                full: value(&self.full, version as usize),
                resumed: value(&self.resumed, version as usize),
            }),
            failed: std::array::from_fn(|index| (FAILURES[index], value(&self.failed, index))),
        }
    }
}
