//! Why something cannot be had from this kernel.

use std::{fmt, io};

/// Why a mechanism cannot be had.
#[derive(Debug)]
pub struct Unavailable {
    /// The system call that was refused.
    pub call: &'static str,
    /// The kernel's answer.
    pub error: io::Error,
    /// What would allow it.
    pub remedy: &'static str,
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.call, self.error, self.remedy)
    }
}

impl std::error::Error for Unavailable {}

impl From<Unavailable> for io::Error {
    fn from(unavailable: Unavailable) -> io::Error {
        io::Error::new(unavailable.error.kind(), unavailable)
    }
}
