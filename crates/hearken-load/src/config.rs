//! What is to be done, and why it could not be.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use hearken::mechanism::{AUTO, SelectError};
use thiserror::Error;

use crate::arrivals::Arrivals;
use crate::profile::Profile;
use crate::rank::Rank;
use crate::report::Model;
use crate::shard::Shard;
use crate::tls::{TlsError, TlsOptions};
use crate::url::UrlError;
use crate::workload::{Asking, Count, Distribution, Source};

/// For how long requests are made where [`Config::duration`] does not say.
pub const DEFAULT_DURATION: Duration = Duration::from_secs(10);

/// What load is offered to which server.
#[derive(Clone, Debug)]
pub struct Config {
    /// `http://HOST[:PORT]/PATH`, or `https:`.
    pub url: String,
    /// Where it is said what to ask for.
    pub source: Source,
    /// What all requests have in common.
    pub asking: Asking,
    /// What arrives; without it, sessions if the source has sessions, and else requests.
    pub model: Option<Model>,
    /// Arrivals over time; none, and idle connections only, if it is zero.
    pub rate: Profile,
    /// For how long they arrive; without it, for as long as the rate or the trace says, for
    /// [`DEFAULT_DURATION`] if that says nothing, and until stopped if the rate is zero.
    pub duration: Option<Duration>,
    /// How they follow each other; a trace says so itself.
    pub arrivals: Arrivals,
    /// Keep-alive connections that carry the requests, one at a time each. They are opened before
    /// the first request; a request that finds none free waits, and its latency with it.
    pub connections: NonZeroUsize,
    /// Instead, where requests arrive: as many connections as it takes, each of which carries this
    /// many and is then closed. Where connections arrive, or in a closed loop: requests on each.
    pub per_connection: Option<Count>,
    /// Requests that are sent at once, where a connection has several.
    pub pipeline: NonZeroUsize,
    /// From the last reply to the next request, where a connection has several.
    pub think: Option<Distribution>,
    /// How long a connection lasts: no request is made on it after that, and where connections or
    /// sessions arrive, it is held for that long.
    pub connection_time: Option<Distribution>,
    /// How long after its intended time a request is given up.
    pub timeout: Duration,
    /// How long a connection may take to be made.
    pub connect_timeout: Option<Duration>,
    /// How long after it was sent a request's reply may take to begin.
    pub first_byte_timeout: Option<Duration>,
    /// Connections that are held besides, and made again when they are lost.
    pub idle: usize,
    /// Whether each idle connection makes one request first.
    pub idle_request: bool,
    /// How long an idle connection waits until it makes a request, again and again.
    pub idle_think: Option<Distribution>,
    /// How many idle connections are begun in a second, at most.
    pub idle_rate: Option<f64>,
    /// Local addresses to connect from, in turn. If empty, the kernel chooses, and on 127.x
    /// others are taken when ports run short.
    pub sources: Vec<IpAddr>,
    /// How TLS is spoken, where it is.
    pub tls: TlsOptions,
    /// Event loops, a thread each.
    pub threads: NonZeroUsize,
    /// How long the pieces are into which the report divides the run.
    pub interval: Duration,
    /// Of a load that several processes make together, on as many machines perhaps: which of them this
    /// is. All have the same settings but for this, a seed among them, and each makes its part.
    pub rank: Rank,
    /// When the first request is made, by the real-time clock; without it, as soon as all is ready.
    pub start_at: Option<SystemTime>,
    /// Decides the arrivals, and all else that is drawn; drawn itself, and told in the report, where
    /// it is not given.
    pub seed: Option<u64>,
    /// How events are had, as [`hearken::io::find`] takes it.
    pub events: String,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            url: "http://127.0.0.1:8080/".to_owned(),
            source: Source::default(),
            asking: Asking::default(),
            model: None,
            rate: Profile::constant(1000.0),
            duration: None,
            arrivals: Arrivals::Poisson,
            connections: NonZeroUsize::new(50).unwrap_or(NonZeroUsize::MIN),
            per_connection: None,
            pipeline: NonZeroUsize::MIN,
            think: None,
            connection_time: None,
            timeout: Duration::from_secs(5),
            connect_timeout: None,
            first_byte_timeout: None,
            idle: 0,
            idle_request: false,
            idle_think: None,
            idle_rate: None,
            sources: Vec::new(),
            tls: TlsOptions::default(),
            threads: NonZeroUsize::MIN,
            interval: Duration::from_secs(1),
            rank: Rank::ALONE,
            start_at: None,
            seed: None,
            events: AUTO.to_owned(),
        }
    }
}

/// Threads that make sense on any machine.
const MOST_THREADS: usize = 1024;

impl Config {
    /// Refuses what makes no sense.
    pub(crate) fn check(&self) -> Result<(), LoadError> {
        let refuse = |why| Err(LoadError::Config(why));
        let closed = self.model == Some(Model::Closed);
        let trace = self.has_times();
        if self.rate.is_zero() && self.idle == 0 && !closed && !trace {
            return refuse(
                "a rate of 0 and no idle connections is nothing to do; give one of them",
            );
        }
        if self.arrivals == Arrivals::Trace && !trace {
            return refuse("arrivals as in a trace need one; give a log or a trace of requests");
        }
        let limits = [Some(self.timeout), self.connect_timeout, self.first_byte_timeout];
        if limits.into_iter().flatten().any(|limit| limit.is_zero()) {
            return refuse("a timeout of 0 fails every request; give more");
        }
        if self.idle_rate.is_some_and(|rate| !(rate > 0.0 && rate <= 1e9)) {
            return refuse("idle connections must be begun at a rate above 0 and up to 1e9");
        }
        if self.threads.get() > MOST_THREADS {
            return refuse("more than 1,024 threads are not of use");
        }
        if self.rank.size() > 1 && self.seed.is_none() {
            return refuse("all parts of a load must be drawn from the same seed; give one");
        }
        let model = self.model();
        if model == Model::Requests && (self.think.is_some() || self.pipeline.get() > 1) {
            return refuse(
                "requests that arrive one by one neither pause nor come several at once; have \
                 connections arrive, or none in a closed loop",
            );
        }
        let kept = match model {
            Model::Requests => self.per_connection.is_none(),
            Model::Closed => true,
            Model::Connections | Model::Sessions => false,
        };
        let loops = self.share(0).count;
        if kept && !self.is_silent() && (self.connections.get() as u64) < loops {
            return refuse("there are fewer connections than threads to make requests on them");
        }
        if self.interval < Duration::from_millis(10) {
            return refuse("intervals must be of 10 ms at least");
        }
        Ok(())
    }
}

impl Config {
    /// What arrives.
    pub(crate) fn model(&self) -> Model {
        let by_itself = if self.has_sessions() { Model::Sessions } else { Model::Requests };
        self.model.unwrap_or(by_itself)
    }

    /// True if no request arrives.
    pub(crate) fn is_silent(&self) -> bool {
        self.rate.is_zero() && !self.has_times()
    }

    /// True if the source says when requests arrive.
    fn has_times(&self) -> bool {
        matches!(self.source, Source::AccessLog { .. } | Source::Trace(_))
    }

    /// True if what the source says is sessions.
    pub(crate) fn has_sessions(&self) -> bool {
        matches!(self.source, Source::Wsesslog { .. } | Source::Specweb { .. })
    }

    /// True if the source comes to an end.
    pub(crate) fn is_finite(&self) -> bool {
        match self.source {
            Source::Wlog { repeat, .. } => !repeat,
            Source::Wsesslog { sessions, .. } => sessions.is_some(),
            Source::Url | Source::Urls(_) | Source::Specweb { .. } => false,
            Source::AccessLog { .. } | Source::Trace(_) => true,
        }
    }

    /// What a thread's share of all is.
    pub(crate) fn share(&self, thread: usize) -> Shard {
        let threads = self.threads.get() as u64;
        let first = u64::from(self.rank.rank()).saturating_mul(threads);
        let of = u64::from(self.rank.size()).saturating_mul(threads);
        Shard { index: first + thread as u64, count: of }
    }

    /// How many idle connections this process holds.
    pub(crate) fn idle_here(&self) -> usize {
        self.rank.share(self.idle as u64) as usize
    }

    /// How many connections for requests it has, where these are kept.
    pub(crate) fn connections_here(&self) -> usize {
        (0..self.threads.get())
            .map(|thread| self.share(thread).share_of(self.connections.get()))
            .sum()
    }
}

/// Why no load could be offered.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The URL cannot be used.
    #[error("cannot use the URL \"{url}\": {reason}")]
    Url {
        /// What was given.
        url: String,
        /// Why not.
        reason: UrlError,
    },
    /// A field of the request cannot be used.
    #[error("cannot send the header \"{field}\": {reason}")]
    Header {
        /// What was given.
        field: String,
        /// Why not.
        reason: &'static str,
    },
    /// A file cannot be used.
    #[error("cannot use {}{}: {reason}", path.display(), of_line(*line))]
    File {
        /// Its name.
        path: PathBuf,
        /// The line that is wrong, from 1 on.
        line: Option<u64>,
        /// What is wrong.
        reason: String,
    },
    /// The settings do not describe a load.
    #[error("cannot offer this load: {0}")]
    Config(&'static str),
    /// A source address is of another family than the server's.
    #[error(
        "cannot connect from {ip} to {addr}: one is IPv4 and the other IPv6; give other sources"
    )]
    Source {
        /// The local address.
        ip: IpAddr,
        /// The server's.
        addr: SocketAddr,
    },
    /// The host's name has no address.
    #[error("cannot find the address of {host}: {source}; is the name right?")]
    Resolve {
        /// The name.
        host: String,
        /// What the resolver said.
        source: io::Error,
    },
    /// The event mechanism cannot be had.
    #[error(transparent)]
    Events(#[from] SelectError),
    /// TLS cannot be spoken as it was asked for.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The kernel refused what every run needs.
    #[error("cannot {action}: {source}")]
    System {
        /// What was tried.
        action: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

fn of_line(line: Option<u64>) -> String {
    line.map(|line| format!(", line {line}")).unwrap_or_default()
}
