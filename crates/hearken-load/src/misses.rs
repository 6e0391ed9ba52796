//! Why idle connections could not be had.

use std::io;

use crate::summary::Count;

/// How often which error kept a connection from being held. There are few kinds of errors.
#[derive(Debug, Default)]
pub(crate) struct Misses(Vec<Miss>);

#[derive(Debug)]
struct Miss {
    error: String,
    limit: Option<&'static str>,
    times: u64,
}

/// How many kinds are kept apart.
const MOST: usize = 32;

impl Misses {
    /// One more, for this error of the kernel.
    pub(crate) fn note(&mut self, error: &io::Error) {
        self.add(error.to_string(), hearken::limit::met(error), 1);
    }

    /// One more, without an error.
    pub(crate) fn note_other(&mut self, why: &str) {
        self.add(why.to_owned(), None, 1);
    }

    fn add(&mut self, error: String, limit: Option<&'static str>, times: u64) {
        if let Some(miss) = self.0.iter_mut().find(|miss| miss.error == error) {
            miss.times += times;
        } else if self.0.len() < MOST {
            self.0.push(Miss { error, limit, times });
        }
    }

    /// Takes over those of another thread.
    pub(crate) fn merge(&mut self, others: Misses) {
        for Miss { error, limit, times } in others.0 {
            self.add(error, limit, times);
        }
    }

    /// A sentence for each kind.
    pub(crate) fn sentences(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|Miss { error, limit, times }| {
            let (times, plural) = (Count(*times), if *times == 1 { "" } else { "s" });
            let limit = limit.map(|limit| format!("; {limit}")).unwrap_or_default();
            format!("an idle connection could not be had, {times} time{plural}: {error}{limit}")
        })
    }
}
