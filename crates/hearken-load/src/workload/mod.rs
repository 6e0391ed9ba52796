//! Workloads: one URL, weighted URLs, lists, traces and sessions.
//!
//! All requests are read, validated and encoded before the first one is sent. The threads share a
//! [`Workload`], and each iterates over its part with a [`Cursor`].

use std::num::{NonZeroU64, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::config::LoadError;
use crate::report::Model;
use crate::url::Url;

mod access_log;
mod alias_table;
mod checks;
mod cursor;
mod distribution;
pub mod fileset;
mod har;
mod lines;
mod message;
mod request_count;
mod serde_str;
mod specweb;
#[cfg(test)]
mod tests;
mod trace;
mod urls;
mod wlog;
mod wsesslog;

pub use checks::Expect;
pub(crate) use checks::ReplyCheck;
pub(crate) use cursor::{Cursor, SessionState};
pub use distribution::Distribution;
pub(crate) use distribution::parse_duration;
pub(crate) use message::Message;
pub use request_count::Count;
pub(crate) use wsesslog::Burst;

use alias_table::AliasTable;
use message::{MessageBuilder, Request, RequestError};
use wsesslog::Sessions;

/// Maximum number of requests in a file.
const MAX_REQUESTS: usize = 16_000_000;
const TOO_MANY: &str = "more than 16,000,000 requests; split the file";

/// The source of the requests. Paths in files refer to the server of the run's URL, and URLs in files must
/// have the same server.
#[derive(Clone, PartialEq, Debug, Default)]
#[non_exhaustive]
pub enum Source {
    /// The URL of the run.
    #[default]
    Url,
    /// Lines of `[WEIGHT] PATH-or-URL [METHOD] [CHECK...]`, selected by weight.
    Urls(PathBuf),
    /// Paths in order, each terminated by a NUL byte, as in httperf's `--wlog`.
    Wlog {
        /// Path of the file.
        path: PathBuf,
        /// Whether to restart at the end of the file.
        repeat: bool,
    },
    /// Sessions of bursts, as in httperf's `--wsesslog`.
    Wsesslog {
        /// Total number of sessions, repeating those in the file [default: unlimited].
        sessions: Option<u64>,
        /// Think time between bursts that specify none.
        think: Duration,
        /// Path of the file.
        path: PathBuf,
    },
    /// A SPECweb99-like mix of the file set created by [`specweb::create`](crate::specweb::create).
    Specweb {
        /// Directory of the file set. The server serves it at the path of the run's URL.
        dir: PathBuf,
    },
    /// An HTTP Archive (HAR 1.2). The requests of each page are a session, and the sessions are repeated.
    Har(PathBuf),
    /// An access log in the combined format or JSON, replayed with its times.
    AccessLog {
        /// Path of the file.
        path: PathBuf,
        /// Replay speed relative to the log.
        speed: f64,
        /// Whether to skip invalid lines instead of failing.
        skip_invalid: bool,
    },
    /// Lines of `SECONDS PATH-or-URL [METHOD] [CHECK...]`, sorted by time.
    Trace(PathBuf),
}

impl Source {
    /// Returns whether the source defines sessions.
    pub(crate) fn has_sessions(&self) -> bool {
        matches!(self, Source::Wsesslog { .. } | Source::Specweb { .. } | Source::Har(_))
    }
}

/// The properties that all requests share unless a file overrides them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestTemplate {
    /// Method, any except CONNECT.
    pub method: String,
    /// Header fields as `NAME: VALUE`, in addition to or in place of `Host` and `User-Agent`.
    pub headers: Vec<String>,
    /// Body of the requests with this method.
    pub body: Option<Vec<u8>>,
    /// Checks of the replies.
    pub expect: Option<Expect>,
    /// Whether each connection or session sends the cookies that the replies to it set.
    pub cookies: bool,
}

impl Default for RequestTemplate {
    fn default() -> RequestTemplate {
        RequestTemplate {
            method: "GET".to_owned(),
            headers: Vec::new(),
            body: None,
            expect: None,
            cookies: false,
        }
    }
}

/// The encoded requests of a run and their order.
#[derive(Debug)]
pub(crate) struct Workload {
    messages: Box<[Message]>,
    selection: Selection,
    per_connection: Option<Count>,
    think: Option<Distribution>,
    pipeline: u32,
    /// Total number of requests and of sessions of all cursors.
    limits: Limits,
    /// Number of invalid lines that were skipped in a log, or of requests to other servers in an archive.
    skipped: u64,
    source: Source,
}

/// Total numbers after which cursors are at their end.
#[derive(Clone, Copy, Debug)]
struct Limits {
    requests: u64,
    sessions: u64,
}

impl Limits {
    const NONE: Limits = Limits { requests: u64::MAX, sessions: u64::MAX };
}

/// The selection of the next message.
#[derive(Debug)]
enum Selection {
    Single,
    Weighted { alias: AliasTable, messages: Vec<u32> },
    List(List),
    Sessions(Sessions),
    Mix(specweb::Mix),
}

/// Messages in a fixed order.
#[derive(Debug)]
struct List {
    steps: Box<[u32]>,
    repeat: bool,
    /// Scheduled times relative to the start of the run.
    times: Option<Arc<[Duration]>>,
}

impl List {
    fn find(&self, index: u64) -> Option<&u32> {
        let index = if self.repeat { index % self.steps.len() as u64 } else { index };
        self.steps.get(usize::try_from(index).ok()?)
    }
}

impl Workload {
    /// Loads the requests of `source`.
    ///
    /// A connection makes `per_connection` requests (or one), in bursts of `pipeline`, and waits `think`
    /// before each burst except the first. Session files define these settings, so the arguments must be
    /// omitted.
    pub(crate) fn load(
        url: &Url,
        source: &Source,
        asking: &RequestTemplate,
        per_connection: Option<Count>,
        think: Option<Distribution>,
        pipeline: NonZeroUsize,
    ) -> Result<Workload, LoadError> {
        if source.has_sessions() && per_connection.is_some() {
            return Err(LoadError::Config(
                "sessions define the number of requests per connection; omit that setting",
            ));
        }
        let has_bursts = think.is_some() || pipeline.get() > 1;
        if has_bursts && matches!(source, Source::Wsesslog { .. } | Source::Har(_)) {
            return Err(LoadError::Config(
                "a session file defines think times and pipelining; omit these settings",
            ));
        }
        let mut builder = MessageBuilder::new(url, asking)?;
        let mut skipped = 0;
        let selection = match source {
            Source::Url => match builder.add(&Request::new(&url.target)) {
                Ok(_) => Selection::Single,
                Err(RequestError::Other(reason)) => return Err(LoadError::Config(reason)),
                Err(RequestError::Url(reason)) => {
                    return Err(LoadError::Url { url: url.target.clone(), reason });
                }
            },
            Source::Urls(path) => urls::read(path, &mut builder)?,
            Source::Wlog { path, repeat } => wlog::read(path, *repeat, &mut builder)?,
            Source::Wsesslog { sessions, think, path } => {
                wsesslog::read(path, *sessions, *think, &mut builder)?
            }
            Source::Specweb { dir } => specweb::read(dir, url, &mut builder)?,
            Source::Har(path) => {
                let (selection, others) = har::read(path, url, &mut builder)?;
                skipped = others;
                selection
            }
            Source::AccessLog { path, speed, skip_invalid } => {
                let (selection, invalid) =
                    access_log::read(path, *speed, *skip_invalid, &mut builder)?;
                skipped = invalid;
                selection
            }
            Source::Trace(path) => trace::read(path, &mut builder)?,
        };
        Ok(Workload {
            messages: builder.finish(),
            selection,
            per_connection,
            think,
            pipeline: pipeline.get().try_into().unwrap_or(u32::MAX),
            limits: Limits::NONE,
            skipped,
            source: source.clone(),
        })
    }

    /// Limits the workload to `total` arrivals of `model`. In a closed loop, its cursors end after this number
    /// of requests or sessions. Otherwise only checks that the source has as many.
    pub(crate) fn limited_to(
        self,
        total: Option<NonZeroU64>,
        model: Model,
    ) -> Result<Workload, LoadError> {
        let Some(total) = total.map(NonZeroU64::get) else { return Ok(self) };
        let by_session = matches!(self.selection, Selection::Sessions(_) | Selection::Mix(_));
        let available = match &self.selection {
            Selection::List(list) if !list.repeat => Some(Plural(list.steps.len(), "request")),
            Selection::Sessions(Sessions { count: Some(count), .. })
                if model != Model::Requests =>
            {
                Some(Plural(*count as usize, "session"))
            }
            _ => None,
        };
        if let (Some(available), Some(path)) = (available, self.path())
            && (available.0 as u64) < total
        {
            let reason = format!(
                "it defines {available}, fewer than the total of {total}; use a lower total or omit it"
            );
            return Err(LoadError::File { path: path.to_owned(), line: None, reason });
        }
        let limits = match model {
            Model::Closed if by_session => Limits { sessions: total, ..Limits::NONE },
            Model::Closed => Limits { requests: total, ..Limits::NONE },
            Model::Requests | Model::Connections | Model::Sessions => Limits::NONE,
        };
        Ok(Workload { limits, ..self })
    }

    /// Returns the path of the source.
    fn path(&self) -> Option<&Path> {
        match &self.source {
            Source::Url => None,
            Source::Urls(path) | Source::Trace(path) | Source::Har(path) => Some(path),
            Source::Wlog { path, .. } | Source::AccessLog { path, .. } => Some(path),
            Source::Wsesslog { path, .. } | Source::Specweb { dir: path } => Some(path),
        }
    }

    /// Creates a workload of one request for the URL.
    pub(crate) fn for_url(url: &Url, asking: &RequestTemplate) -> Result<Workload, LoadError> {
        Workload::load(url, &Source::Url, asking, None, None, NonZeroUsize::MIN)
    }

    /// Returns the message with an index returned by a cursor.
    pub(crate) fn message(&self, index: u32) -> &Message {
        &self.messages[index as usize]
    }

    /// Returns all messages.
    pub(crate) fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Returns the scheduled times of a trace relative to the start of the run, in non-decreasing order.
    pub(crate) fn timestamps(&self) -> Option<&Arc<[Duration]>> {
        match &self.selection {
            Selection::List(list) => list.times.as_ref(),
            _ => None,
        }
    }

    /// Returns a cursor for thread `shard` of `shards`.
    pub(crate) fn cursor(self: &Arc<Self>, shard: u32, shards: u32, seed: u64) -> Cursor {
        Cursor::new(Arc::clone(self), shard, shards, seed)
    }

    /// Describes the workload in one line.
    pub(crate) fn describe(&self) -> String {
        let Some(path) = self.path() else { return "one URL".to_owned() };
        let path = path.display();
        match &self.selection {
            Selection::Single => "one URL".to_owned(),
            Selection::Weighted { messages, .. } => {
                format!("{} by weight from {path}", Plural(messages.len(), "URL"))
            }
            Selection::List(list) => {
                let mut text = format!("{} of {path}", Plural(list.steps.len(), "request"));
                if list.repeat {
                    text += ", repeated";
                }
                if let Some(last) = self.timestamps().and_then(|times| times.last()) {
                    text += &format!(" over {:.1} s", last.as_secs_f64());
                }
                match self.skipped {
                    0 => text,
                    count => format!("{text} ({} skipped)", Plural(count as usize, "invalid line")),
                }
            }
            Selection::Sessions(all) => {
                let file = Plural(all.sessions.len(), "session");
                let text = match all.count {
                    Some(count) => {
                        let all = Plural(count as usize, "session");
                        format!("{all} from the {file} of {path}")
                    }
                    None => format!("the {file} of {path}, repeated"),
                };
                match Plural(self.skipped as usize, "request") {
                    Plural(0, _) => text,
                    count => format!("{text} ({count} to other servers skipped)"),
                }
            }
            Selection::Mix(mix) => format!(
                "the SPECweb99-like mix of {path}: {}, {:.1} MB",
                Plural(mix.directories as usize, "directory"),
                mix.bytes as f64 / 1e6
            ),
        }
    }
}

/// A number with a noun in singular or plural.
struct Plural(usize, &'static str);

impl std::fmt::Display for Plural {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self, self.1.strip_suffix('y')) {
            (Plural(1, noun), _) => write!(f, "1 {noun}"),
            (Plural(count, _), Some(stem)) => write!(f, "{count} {stem}ies"),
            (Plural(count, noun), None) => write!(f, "{count} {noun}s"),
        }
    }
}
