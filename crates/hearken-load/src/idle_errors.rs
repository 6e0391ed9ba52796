//! Errors that prevented idle connections.

use std::io;

use crate::summary::Grouped;

/// The errors that prevented idle connections, with their counts. There are few kinds.
#[derive(Debug, Default)]
pub(crate) struct IdleErrors(Vec<IdleError>);

#[derive(Debug)]
struct IdleError {
    error: String,
    limit: Option<&'static str>,
    count: u64,
}

/// Maximum number of distinct errors.
const MAX_KINDS: usize = 32;

impl IdleErrors {
    /// Records an error of the kernel.
    pub(crate) fn record(&mut self, error: &io::Error) {
        self.add(error.to_string(), hearken::limit::describe(error), 1);
    }

    /// Records a failure without a kernel error.
    pub(crate) fn record_text(&mut self, reason: &str) {
        self.add(reason.to_owned(), None, 1);
    }

    fn add(&mut self, error: String, limit: Option<&'static str>, times: u64) {
        if let Some(miss) = self.0.iter_mut().find(|miss| miss.error == error) {
            miss.count += times;
        } else if self.0.len() < MAX_KINDS {
            self.0.push(IdleError { error, limit, count: times });
        }
    }

    /// Adds the errors of another thread.
    pub(crate) fn merge(&mut self, others: IdleErrors) {
        for IdleError { error, limit, count: times } in others.0 {
            self.add(error, limit, times);
        }
    }

    /// Returns the most common error.
    pub(crate) fn most_common(&self) -> Option<&str> {
        self.0.iter().max_by_key(|miss| miss.count).map(|miss| miss.error.as_str())
    }

    /// Returns a warning for each kind of error.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|IdleError { error, limit, count: times }| {
            let (times, plural) = (Grouped(*times), if *times == 1 { "" } else { "s" });
            let limit = limit.map(|limit| format!("; {limit}")).unwrap_or_default();
            format!("cannot open an idle connection ({times} time{plural}): {error}{limit}")
        })
    }
}
