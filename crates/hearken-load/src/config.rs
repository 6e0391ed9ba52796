//! What is to be done, and why it could not be.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use hearken::mechanism::{AUTO, SelectError};
use thiserror::Error;

use crate::arrivals::Arrivals;
use crate::url::UrlError;

/// For how long requests are made where [`Config::duration`] does not say.
pub const DEFAULT_DURATION: Duration = Duration::from_secs(10);

/// What load is offered to which server.
#[derive(Clone, Debug)]
pub struct Config {
    /// `http://HOST[:PORT]/PATH`.
    pub url: String,
    /// New requests per second; 0 for none, and idle connections only.
    pub rate: f64,
    /// For how long requests are made; without it, [`DEFAULT_DURATION`] if there is a rate, and
    /// until stopped if there is none.
    pub duration: Option<Duration>,
    /// How requests arrive.
    pub arrivals: Arrivals,
    /// Keep-alive connections that carry the requests, one at a time each. They are opened before
    /// the first request; a request that finds none free waits, and its latency with it.
    pub connections: NonZeroUsize,
    /// Instead: as many connections as it takes, each of which carries this many requests and is
    /// then closed.
    pub per_connection: Option<NonZeroU32>,
    /// How long after its intended time a request is given up.
    pub timeout: Duration,
    /// Connections that are held besides, and made again when they are lost.
    pub idle: usize,
    /// Whether each idle connection makes one request first.
    pub idle_request: bool,
    /// Local addresses to connect from, in turn. If empty, the kernel chooses, and on 127.x
    /// others are taken when ports run short.
    pub sources: Vec<IpAddr>,
    /// HEAD instead of GET.
    pub head: bool,
    /// Fields of each request besides `Host` and `User-Agent`, as `NAME: VALUE`.
    pub headers: Vec<String>,
    /// Decides the arrivals; drawn, and told in the report, where it is not given.
    pub seed: Option<u64>,
    /// How events are had, as [`hearken::io::find`] takes it.
    pub events: String,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            url: "http://127.0.0.1:8080/".to_owned(),
            rate: 1000.0,
            duration: None,
            arrivals: Arrivals::Poisson,
            connections: NonZeroUsize::new(50).unwrap_or(NonZeroUsize::MIN),
            per_connection: None,
            timeout: Duration::from_secs(5),
            idle: 0,
            idle_request: false,
            sources: Vec::new(),
            head: false,
            headers: Vec::new(),
            seed: None,
            events: AUTO.to_owned(),
        }
    }
}

impl Config {
    /// Refuses what makes no sense.
    pub(crate) fn check(&self) -> Result<(), LoadError> {
        if !(0.0..=1e9).contains(&self.rate) {
            return Err(LoadError::Config("the rate must be from 0 to 1e9 requests per second"));
        }
        if self.rate == 0.0 && self.idle == 0 {
            return Err(LoadError::Config(
                "a rate of 0 and no idle connections is nothing to do; give one of them",
            ));
        }
        if self.timeout.is_zero() {
            return Err(LoadError::Config("a timeout of 0 fails every request; give more"));
        }
        Ok(())
    }

    /// For how long requests are made, if not until stopped.
    pub(crate) fn length(&self) -> Option<Duration> {
        self.duration.or((self.rate > 0.0).then_some(DEFAULT_DURATION))
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
    /// The kernel refused what every run needs.
    #[error("cannot {action}: {source}")]
    System {
        /// What was tried.
        action: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}
