//! Findings of histories.

use std::fmt;

/// A violation of an invariant, or a panic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The violated invariant, or the place of the panic. Histories with the same kind have probably
    /// the same cause.
    pub kind: String,
    /// The values that violate it.
    pub detail: String,
}

impl Finding {
    /// Creates a finding.
    pub fn new(kind: impl Into<String>, detail: impl Into<String>) -> Finding {
        Finding { kind: kind.into(), detail: detail.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.detail)
    }
}
