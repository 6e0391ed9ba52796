//! What is asked for: one URL, many by weight, a list, a trace, sessions.
//!
//! Everything is read, checked and turned into bytes before the first request is made. A
//! [`Workload`] is then shared by all threads, and each goes its way through it with a [`Cursor`].

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::config::LoadError;
use crate::url::Url;

mod access_log;
mod alias;
mod as_text;
mod count;
mod cursor;
mod distribution;
mod expect;
pub mod fileset;
mod lines;
mod message;
mod specweb;
#[cfg(test)]
mod tests;
mod trace;
mod urls;
mod wlog;
mod wsesslog;

pub use count::Count;
pub(crate) use cursor::{Cursor, Script};
pub use distribution::Distribution;
pub(crate) use expect::Check;
pub use expect::Expect;
pub(crate) use message::Message;

use alias::Alias;
use message::{Maker, Request, Unsendable};

/// The most requests that a file may name.
const STEPS_MAX: usize = 16_000_000;
const TOO_MANY: &str = "it is the 16,000,001st request; split the file";

/// Where it is written what is asked for. Paths in files are asked of the server of the run's URL;
/// URLs in them must be of that server.
#[derive(Clone, PartialEq, Debug, Default)]
#[non_exhaustive]
pub enum Source {
    /// The URL alone.
    #[default]
    Url,
    /// Lines of `[WEIGHT] PATH-or-URL [METHOD] [CHECK...]`, drawn by weight.
    Urls(PathBuf),
    /// Paths in their order, each ended by a NUL byte: httperf's `--wlog`.
    Wlog {
        /// The file.
        path: PathBuf,
        /// Whether to start over at the end.
        repeat: bool,
    },
    /// Sessions of bursts: httperf's `--wsesslog`.
    Wsesslog {
        /// How many sessions there are in all, the file's over and over; no end without it.
        sessions: Option<u64>,
        /// What is waited between bursts that do not say it.
        think: Duration,
        /// The file.
        path: PathBuf,
    },
    /// A SPECweb99-like mix of the file set that [`specweb::make`](crate::specweb::make) made.
    Specweb {
        /// Where it was made. The server has it at the path of the run's URL.
        dir: PathBuf,
    },
    /// An access log, in the combined format or JSON, with its times.
    AccessLog {
        /// The file.
        path: PathBuf,
        /// How many times as fast as it was logged.
        speed: f64,
        /// Whether lines that cannot be read are skipped, instead of being an error.
        skip_bad: bool,
    },
    /// Lines of `SECONDS PATH-or-URL [METHOD] [CHECK...]`, in the order of their times.
    Trace(PathBuf),
}

/// What all requests have in common, unless a file says otherwise.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asking {
    /// Any method but CONNECT.
    pub method: String,
    /// Fields besides `Host` and `User-Agent`, or instead of them, as `NAME: VALUE`.
    pub headers: Vec<String>,
    /// The body of those requests that have this method.
    pub body: Option<Vec<u8>>,
    /// What replies must be.
    pub expect: Option<Expect>,
}

impl Default for Asking {
    fn default() -> Asking {
        Asking { method: "GET".to_owned(), headers: Vec::new(), body: None, expect: None }
    }
}

/// What is asked for, ready to be sent.
#[derive(Debug)]
pub(crate) struct Workload {
    messages: Box<[Message]>,
    kind: Kind,
    per_connection: Option<Count>,
    think: Option<Distribution>,
    pipeline: u32,
    /// Lines of a log that could not be read.
    skipped: u64,
    source: Source,
}

/// Which message comes next.
#[derive(Debug)]
enum Kind {
    One,
    Weighted { alias: Alias, messages: Vec<u32> },
    List(List),
    Sessions(wsesslog::Sessions),
    Mix(specweb::Mix),
}

/// Messages in their order.
#[derive(Debug)]
struct List {
    steps: Box<[u32]>,
    repeat: bool,
    /// When each is sent, from the start of the run.
    at: Option<Arc<[Duration]>>,
}

impl List {
    fn get(&self, at: u64) -> Option<&u32> {
        let at = if self.repeat { at % self.steps.len() as u64 } else { at };
        self.steps.get(usize::try_from(at).ok()?)
    }
}

impl Workload {
    /// Reads what `source` names. A connection makes `per_connection` requests (or one), in bursts
    /// of `pipeline`, and waits `think` before each but the first; sessions say themselves what
    /// they do, and refuse what would say otherwise.
    pub(crate) fn load(
        url: &Url,
        source: &Source,
        asking: &Asking,
        per_connection: Option<Count>,
        think: Option<Distribution>,
        pipeline: NonZeroUsize,
    ) -> Result<Workload, LoadError> {
        let sessions = matches!(source, Source::Wsesslog { .. } | Source::Specweb { .. });
        if sessions && per_connection.is_some() {
            return Err(LoadError::Config(
                "sessions say themselves how many requests they have; ask for no number of them \
                 per connection",
            ));
        }
        let bursts = think.is_some() || pipeline.get() > 1;
        if bursts && matches!(source, Source::Wsesslog { .. }) {
            return Err(LoadError::Config(
                "a file of sessions says itself how they pause and pipeline; leave out both",
            ));
        }
        let mut maker = Maker::new(url, asking)?;
        let mut skipped = 0;
        let kind = match source {
            Source::Url => match maker.add(&Request::of(&url.target)) {
                Ok(_) => Kind::One,
                Err(Unsendable::Other(reason)) => return Err(LoadError::Config(reason)),
                Err(Unsendable::Url(reason)) => {
                    return Err(LoadError::Url { url: url.target.clone(), reason });
                }
            },
            Source::Urls(path) => urls::read(path, &mut maker)?,
            Source::Wlog { path, repeat } => wlog::read(path, *repeat, &mut maker)?,
            Source::Wsesslog { sessions, think, path } => {
                wsesslog::read(path, *sessions, *think, &mut maker)?
            }
            Source::Specweb { dir } => specweb::read(dir, url, &mut maker)?,
            Source::AccessLog { path, speed, skip_bad } => {
                let (kind, bad) = access_log::read(path, *speed, *skip_bad, &mut maker)?;
                skipped = bad;
                kind
            }
            Source::Trace(path) => trace::read(path, &mut maker)?,
        };
        Ok(Workload {
            messages: maker.finish(),
            kind,
            per_connection,
            think,
            pipeline: pipeline.get().try_into().unwrap_or(u32::MAX),
            skipped,
            source: source.clone(),
        })
    }

    /// The URL alone, asked for once.
    pub(crate) fn of_url(url: &Url, asking: &Asking) -> Result<Workload, LoadError> {
        Workload::load(url, &Source::Url, asking, None, None, NonZeroUsize::MIN)
    }

    /// The message of an index that a cursor gave.
    pub(crate) fn message(&self, index: u32) -> &Message {
        &self.messages[index as usize]
    }

    /// When request k of a trace is made, from the start of the run; never decreasing.
    pub(crate) fn timestamps(&self) -> Option<&Arc<[Duration]>> {
        match &self.kind {
            Kind::List(list) => list.at.as_ref(),
            _ => None,
        }
    }

    /// The way of the thread with the number `shard` of `shards` through it.
    pub(crate) fn cursor(self: &Arc<Self>, shard: u32, shards: u32, seed: u64) -> Cursor {
        Cursor::new(Arc::clone(self), shard, shards, seed)
    }

    /// What is asked for, in one line.
    pub(crate) fn describe(&self) -> String {
        let path = match &self.source {
            Source::Url => return "one URL".to_owned(),
            Source::Urls(path) | Source::Trace(path) => path,
            Source::Wlog { path, .. } | Source::AccessLog { path, .. } => path,
            Source::Wsesslog { path, .. } | Source::Specweb { dir: path } => path,
        };
        let path = path.display();
        match &self.kind {
            Kind::One => "one URL".to_owned(),
            Kind::Weighted { messages, .. } => {
                format!("{} by weight, from {path}", Many(messages.len(), "URL"))
            }
            Kind::List(list) => {
                let mut text = format!("{} of {path}", Many(list.steps.len(), "request"));
                if list.repeat {
                    text += ", over and over";
                }
                if let Some(last) = self.timestamps().and_then(|at| at.last()) {
                    text += &format!(", as they came in {:.1} s", last.as_secs_f64());
                }
                match self.skipped {
                    0 => text,
                    bad => format!("{text} ({} skipped)", Many(bad as usize, "unreadable line")),
                }
            }
            Kind::Sessions(all) => {
                let file = Many(all.sessions.len(), "session");
                match all.count {
                    Some(count) => {
                        let all = Many(count as usize, "session");
                        format!("{all}, by the {file} of {path} in turn")
                    }
                    None => format!("the {file} of {path}, over and over"),
                }
            }
            Kind::Mix(mix) => format!(
                "the SPECweb99-like mix of {path}: {}, {:.1} MB",
                Many(mix.directories as usize, "directory"),
                mix.bytes as f64 / 1e6
            ),
        }
    }
}

/// A number of things.
struct Many(usize, &'static str);

impl std::fmt::Display for Many {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self, self.1.strip_suffix('y')) {
            (Many(1, what), _) => write!(f, "1 {what}"),
            (Many(count, _), Some(stem)) => write!(f, "{count} {stem}ies"),
            (Many(count, what), None) => write!(f, "{count} {what}s"),
        }
    }
}
