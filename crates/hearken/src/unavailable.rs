//! The error for a kernel facility that is not available.

use std::{fmt, io};

/// A mechanism that is not available on this system, and the reason.
#[derive(Debug)]
pub struct Unavailable {
    /// The system call that the kernel refused.
    pub call: &'static str,
    /// The error of the call.
    pub error: io::Error,
    /// Advice on how to make the mechanism available.
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
