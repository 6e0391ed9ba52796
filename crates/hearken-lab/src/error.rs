//! What can go wrong in a lab run, said as: what was tried, on what, what to do.

use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why a measurement, or a whole run, ended without its result.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LabError {
    /// The settings do not describe an experiment.
    #[error("cannot plan the experiment: {0}")]
    Config(String),

    /// A file or a kernel object could not be used.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// What was tried, as a verb: "create", "write".
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the kernel said.
        source: std::io::Error,
    },

    /// A system call that is not about a file failed.
    #[error("cannot {action}: {source}")]
    System {
        /// What was tried.
        action: String,
        /// What the kernel said.
        source: std::io::Error,
    },

    /// A process did not do what the lab needs of it.
    #[error("{process} {problem}{}", tail(.stderr))]
    Process {
        /// The command line, shortened.
        process: String,
        /// What it did, or failed to do.
        problem: String,
        /// The end of what it wrote to standard error.
        stderr: String,
    },

    /// What a load generator printed is not a result that the lab understands.
    #[error("cannot read the result of {process}: {problem}; is it of the same version?")]
    LoadResult {
        /// The command line, shortened.
        process: String,
        /// Why.
        problem: String,
    },

    /// `/proc` did not answer.
    #[error("cannot read the accounting of process {pid}: {source}; has it ended?")]
    Accounting {
        /// Whose.
        pid: i32,
        /// Why.
        source: procfs::ProcError,
    },

    /// What was to be watched cannot be.
    #[error("cannot watch \"{what}\": {problem}")]
    Watch {
        /// As it was asked for.
        what: String,
        /// Why, and what to write or do instead.
        problem: String,
    },

    /// The stop flag was raised. [`quick`](crate::quick) turns it into a partial report.
    #[error("interrupted")]
    Interrupted,

    /// It failed so often in a row that it is tried no more.
    #[error("it failed {failures} times in a row and is tried no more")]
    GivenUp {
        /// How often.
        failures: u32,
    },

    /// So many measurements failed one after another that going on is useless.
    #[error("{failures} measurements failed and none succeeded; the first: {first}")]
    NothingMeasured {
        /// How many were tried.
        failures: usize,
        /// Why the first failed.
        first: String,
    },
}

impl LabError {
    /// For `map_err`: a file that could not be used.
    pub(crate) fn file(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| LabError::File { action, path, source }
    }
}

fn tail(stderr: &str) -> String {
    match stderr.trim() {
        "" => String::new(),
        said => format!("; it said: {said}"),
    }
}
