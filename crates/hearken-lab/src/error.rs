//! Errors of the lab.

use std::path::{Path, PathBuf};

use thiserror::Error;

/// An error that ends a measurement or a whole run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LabError {
    /// The settings are invalid.
    #[error("invalid experiment: {0}")]
    Config(String),

    /// The description of a workload is invalid, or no server is able to serve it.
    #[error("invalid workload: {0}")]
    Workload(String),

    /// An operation on a file failed.
    #[error("cannot {action} '{}': {source}", path.display())]
    File {
        /// Operation, as a verb: "create", "write".
        action: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Error of the system call.
        source: std::io::Error,
    },

    /// A system call that does not involve a file failed.
    #[error("cannot {action}: {source}")]
    System {
        /// Operation, as a verb phrase.
        action: String,
        /// Error of the system call.
        source: std::io::Error,
    },

    /// A process failed or did not do what the lab expects.
    #[error("{process} {problem}{}", format_stderr(.stderr))]
    Process {
        /// Command line, shortened.
        process: String,
        /// Description of the failure, as a predicate.
        problem: String,
        /// Standard error of the process, truncated.
        stderr: String,
    },

    /// The output of a load generator is not a result in the expected format.
    #[error("cannot read the result of {process}: {problem} (are the versions the same?)")]
    LoadResult {
        /// Command line, shortened.
        process: String,
        /// Reason.
        problem: String,
    },

    /// The accounting of a process in `/proc` is not readable.
    #[error("cannot read the accounting of process {pid}: {source} (has it exited?)")]
    Accounting {
        /// Process id.
        pid: i32,
        /// Reason.
        source: procfs::ProcError,
    },

    /// The saturation of a server could not be determined.
    #[error("cannot determine the saturation of '{server}': {problem}")]
    Saturation {
        /// Name of the server.
        server: String,
        /// Reason.
        problem: String,
    },

    /// A server cannot be limited to a share of a processor.
    #[error("cannot limit CPU time: {call} '{}': {source}; run as root, or in a cgroup that is \
             delegated to you and has the cpu controller", path.display())]
    Throttle {
        /// System call.
        call: String,
        /// Path of the cgroup or of one of its files.
        path: PathBuf,
        /// Error of the system call.
        source: std::io::Error,
    },

    /// A target cannot be watched.
    #[error("cannot watch '{target}': {problem}")]
    Watch {
        /// Target as the user specified it.
        target: String,
        /// Reason and remedy.
        problem: String,
    },

    /// The stop flag was set. A run turns this into a partial report.
    #[error("interrupted")]
    Interrupted,

    /// The measurement was skipped because it failed repeatedly.
    #[error("skipped after {failures} consecutive failures")]
    Skipped {
        /// Number of consecutive failures.
        failures: u32,
    },

    /// Every measurement failed.
    #[error("all {failures} measurements failed; first failure: {first}")]
    AllFailed {
        /// Number of failed measurements.
        failures: usize,
        /// First failure.
        first: String,
    },
}

impl LabError {
    /// Returns a function for `map_err` that adds the operation and the path to an I/O error.
    pub(crate) fn file(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| LabError::File { action, path, source }
    }
}

/// Formats the standard error of a process for an error message.
fn format_stderr(stderr: &str) -> String {
    match stderr.trim() {
        "" => String::new(),
        text => format!("; its standard error: {text}"),
    }
}
