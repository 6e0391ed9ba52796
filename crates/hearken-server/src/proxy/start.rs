//! Starting a proxy: its workers, and what runs beside them.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hearken::io::Relay;
use hearken::timer::Time;

use super::config::{Config, To, Upstreams};
use super::health::Checker;
use super::resolver::{Lookups, Resolver};
use super::route::Destination;
use super::servers::{Servers, State};
use super::worker;
use crate::admin::{self, Admin, NoSuch};
use crate::runtime::access_log::AccessLog;
use crate::runtime::metrics::{Metrics, UpstreamFigures};
use crate::runtime::server::{self, Seat, Server, Service, StartError, launch};

/// For how long, at most, it waits for the servers' names before it starts.
const FIRST_ROUND: Duration = Duration::from_secs(2);

/// Starts a proxy: when this returns, it accepts connections.
///
/// # Errors
/// [`StartError`]: an address, the log, the mechanism, or the limits of the process. A server that
/// cannot be reached is none.
pub fn start(config: &Config) -> Result<Server, StartError> {
    let nobody = Upstreams::new(Vec::new());
    let upstreams = match &config.to {
        To::Upstreams(upstreams) => upstreams,
        To::Anywhere(_) => &nobody,
    };
    let anywhere = matches!(config.to, To::Anywhere(_));
    if upstreams.servers.is_empty() && !anywhere {
        return Err(io::Error::other("there is no server to pass requests on to").into());
    }
    let servers = Arc::new(Servers::new(upstreams));
    let metrics = Arc::new(Metrics::new(config.loops.workers.get()));
    let resolver = Resolver::start()?;
    let warnings = resolver.first_round(upstreams, &servers, FIRST_ROUND);
    let lookups = if anywhere { config.loops.workers.get() } else { 0 };
    let service = Proxy {
        config: Arc::new(config.clone()),
        servers: servers.clone(),
        metrics: metrics.clone(),
        lookups: Arc::new(Mutex::new((0..lookups).map(|_| resolver.lookups()).collect())),
    };
    let mut server = launch(&config.loops, true, config.access_log.as_deref(), &service)?;
    for (worker, waker) in server.wakers().into_iter().enumerate() {
        resolver.add(worker, waker);
    }
    if let Some(log) = server.log_sink() {
        metrics.set_access_log(log);
    }
    let checker = Checker::start(upstreams, servers.clone())?;
    let weights: Arc<[u32]> =
        upstreams.servers.iter().map(|server| server.weight.get().into()).collect();
    let counted = metrics.clone();
    let admin = config.admin.map(|addr| {
        let what = admin::What {
            metrics: Box::new({
                let (servers, weights) = (servers.clone(), weights.clone());
                move |out: &mut String| metrics.render(&figures(&servers, &weights), out)
            }),
            upstreams: Box::new({
                let servers = servers.clone();
                move || figures(&servers, &weights)
            }),
            order: Box::new(move |name: &str, order| {
                let found = (0..servers.len()).filter(|&server| servers.name(server) == name);
                let all: Vec<usize> = found.collect();
                all.iter().for_each(|&server| servers.set(server, order));
                if all.is_empty() { Err(NoSuch) } else { Ok(()) }
            }),
            stopping: server.stopping(),
        };
        admin::start(addr, what).map_err(|error| StartError::Listen { addr, error })
    });
    server.beside = Some(Beside {
        metrics: counted,
        warnings,
        admin: admin.transpose()?,
        _checker: checker,
        _resolver: resolver,
    });
    Ok(server)
}

/// What is told of servers.
fn figures(servers: &Servers, weights: &[u32]) -> Vec<UpstreamFigures> {
    let of = |server| {
        let figures = servers.figures(server);
        UpstreamFigures {
            name: servers.name(server).to_owned(),
            state: match servers.state(server) {
                State::Up => "up",
                State::Starting => "starting",
                State::Paused => "paused",
                State::Down => "down",
                State::Draining => "draining",
                State::Off => "off",
            },
            weight: weights.get(server).copied().unwrap_or(1),
            requests: figures.requests,
            failures: figures.failures,
            in_flight: figures.in_flight,
            retries: figures.retries,
            checks_failed: figures.checks_failed,
            last_failure: servers.last_failure(server),
        }
    };
    (0..servers.len()).map(of).collect()
}

/// What runs beside the workers, and ends after them.
pub(crate) struct Beside {
    pub(crate) warnings: Vec<String>,
    pub(crate) metrics: Arc<Metrics>,
    admin: Option<Admin>,
    _checker: Checker,
    _resolver: Resolver,
}

impl Beside {
    pub(crate) fn admin_addr(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(Admin::addr)
    }
}

impl fmt::Debug for Beside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Beside").field("admin", &self.admin_addr()).finish_non_exhaustive()
    }
}

/// What the workers of a proxy are made of.
#[derive(Clone)]
struct Proxy {
    config: Arc<Config>,
    servers: Arc<Servers>,
    metrics: Arc<Metrics>,
    /// For the workers that are yet to start, the first one's first.
    lookups: Arc<Mutex<VecDeque<Lookups>>>,
}

impl Service for Proxy {
    fn worker<I: Relay>(self, io: I, seat: &Seat) -> Result<impl server::Worker, StartError> {
        let Proxy { config, servers, metrics, lookups } = self;
        let log = seat.log.clone().map(|sink| AccessLog::new(sink, config.log_format));
        if let (true, Some(figures)) = (seat.own_table, metrics.workers.get(seat.index)) {
            figures.has_own_table();
        }
        let lookups = lookups.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let seed = Time::now().as_nanos() ^ u64::from(std::process::id()) << 32;
        let to = Destination::new(&config, &servers, lookups, seat, seed);
        worker::Worker::new(io, config, to, log, metrics, seat)
            .map_err(|error| StartError::Listen { addr: seat.listen, error })
    }
}
