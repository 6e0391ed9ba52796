//! Why idle connections could not be had.

use std::io;

use crate::summary::Grouped;

/// How often which error kept a connection from being held. There are few kinds of errors.
#[derive(Debug, Default)]
pub(crate) struct IdleErrors(Vec<IdleError>);

#[derive(Debug)]
struct IdleError {
    error: String,
    limit: Option<&'static str>,
    count: u64,
}

/// How many kinds are kept apart.
const MAX_KINDS: usize = 32;

impl IdleErrors {
    /// One more, for this error of the kernel.
    pub(crate) fn record(&mut self, error: &io::Error) {
        self.add(error.to_string(), hearken::limit::met(error), 1);
    }

    /// One more, without an error.
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

    /// Takes over those of another thread.
    pub(crate) fn merge(&mut self, others: IdleErrors) {
        for IdleError { error, limit, count: times } in others.0 {
            self.add(error, limit, times);
        }
    }

    /// A sentence for each kind.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|IdleError { error, limit, count: times }| {
            let (times, plural) = (Grouped(*times), if *times == 1 { "" } else { "s" });
            let limit = limit.map(|limit| format!("; {limit}")).unwrap_or_default();
            format!("an idle connection could not be had, {times} time{plural}: {error}{limit}")
        })
    }
}
