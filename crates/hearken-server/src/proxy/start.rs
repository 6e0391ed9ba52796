//! The state that the workers of a proxy share, and the background threads of a proxy.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hearken::timer::Time;
use hearken_tls::ClientTls;

use super::balance::hash;
use super::config::{Config, ProxyMode, Upstreams};
use super::destination::{self, Destination};
use super::handler::Proxy;
use super::health::HealthChecker;
use super::resolver::{Lookups, Resolver};
use super::servers::{Servers, State};
#[cfg(feature = "simulation")]
use super::simulation::SharedUsage;
use super::tls;
use crate::runtime::administration::{self, NoSuchUpstream, UpstreamCommand};
use crate::runtime::metrics::UpstreamStats;
use crate::runtime::server::{StartError, WorkerContext};
use crate::runtime::wakers::Wakers;

/// Maximum time for which the start waits until the names of the servers are resolved.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(2);

/// The state that the workers of a proxy share.
#[derive(Clone)]
pub(crate) struct SharedState {
    pub(super) config: Arc<Config>,
    pub(super) servers: Arc<Servers>,
    weights: Arc<[u32]>,
    /// TLS settings of the servers that have them, and the number of settings of other proxies that
    /// precede them in the list of a worker.
    tls: Arc<[ClientTls]>,
    tls_offset: u32,
    /// Prototypes of the lookups of the workers, by their indices.
    lookups: Arc<[Lookups]>,
    #[cfg(feature = "simulation")]
    pub(super) usage: Option<SharedUsage>,
}

/// The background threads of a proxy. Dropping this ends them.
pub(crate) struct Threads {
    resolver: Resolver,
    checker: Option<HealthChecker>,
}

impl SharedState {
    /// Prepares a proxy with `workers` workers and resolves the names of its servers. Returns
    /// warnings about names without an address.
    ///
    /// # Errors
    /// No upstream server is configured, or a thread cannot be started.
    pub(crate) fn start(
        config: &Config,
        workers: usize,
    ) -> Result<(SharedState, Threads, Vec<String>), StartError> {
        let resolver = Resolver::start()?;
        let shared = SharedState::new(config, workers, &resolver)?;
        let warnings = match &config.mode {
            ProxyMode::Reverse(upstreams) => {
                resolver.watch_servers(upstreams, &shared.servers, RESOLVE_TIMEOUT)
            }
            ProxyMode::Forward(_) => Vec::new(),
        };
        Ok((shared, Threads { resolver, checker: None }, warnings))
    }

    /// Creates the state of a proxy with `workers` workers, whose lookups `resolver` performs.
    ///
    /// # Errors
    /// No upstream server is configured.
    pub(super) fn new(
        config: &Config,
        workers: usize,
        resolver: &Resolver,
    ) -> Result<SharedState, StartError> {
        let none = Upstreams::new(Vec::new());
        let (upstreams, lookups) = match &config.mode {
            ProxyMode::Reverse(upstreams) if upstreams.servers.is_empty() => {
                return Err(StartError::NoUpstream);
            }
            ProxyMode::Reverse(upstreams) => (upstreams, 0),
            ProxyMode::Forward(_) => (&none, workers),
        };
        Ok(SharedState {
            config: Arc::new(config.clone()),
            servers: Arc::new(Servers::new(upstreams)),
            weights: upstreams.servers.iter().map(|server| server.weight.get().into()).collect(),
            tls: tls::profiles(config)?,
            tls_offset: 0,
            lookups: (0..lookups).map(|_| resolver.lookups()).collect(),
            #[cfg(feature = "simulation")]
            usage: None,
        })
    }

    /// Creates the handler of one worker.
    pub(crate) fn handler(&self, context: &WorkerContext, route: u32) -> Proxy {
        let lookups = self.lookups.get(context.index).map(Lookups::of_new_thread);
        let seed = hash::mix(context.seed ^ u64::from(route));
        let position = (context.index, context.workers);
        let destination = Destination::new(&self.config, &self.servers, lookups, position, seed);
        let metrics = context.worker_metrics();
        Proxy {
            #[cfg(feature = "simulation")]
            usage: self.usage.clone().map(|usage| (usage, context.index)),
            tls_offset: self.tls_offset,
            ..Proxy::new(self.config.clone(), destination, metrics, route)
        }
    }

    /// Adds the TLS settings of the proxy to those of a worker.
    pub(crate) fn add_tls(&mut self, profiles: &mut Vec<ClientTls>) {
        self.tls_offset = profiles.len() as u32;
        profiles.extend(self.tls.iter().cloned());
    }

    /// Returns whether the proxy needs the addresses of clients.
    pub(crate) fn needs_client_addresses(&self) -> bool {
        destination::needs_client_addresses(&self.config)
    }

    /// Starts health checks, whose jitter `seed` determines, and passes the wakers of the workers to
    /// the resolver.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub(crate) fn start_background(
        &self,
        threads: &mut Threads,
        wakers: Wakers,
        seed: u64,
    ) -> io::Result<()> {
        threads.resolver.set_wakers(wakers);
        if let ProxyMode::Reverse(upstreams) = &self.config.mode {
            threads.checker = Some(HealthChecker::start(
                upstreams,
                self.servers.clone(),
                self.tls.clone(),
                seed,
            )?);
        }
        Ok(())
    }
}

impl administration::UpstreamControl for SharedState {
    fn stats(&self, now: Time) -> Vec<UpstreamStats> {
        let snapshot = |server| {
            let stats = self.servers.stats(server);
            UpstreamStats {
                name: self.servers.name(server).to_owned(),
                state: match self.servers.state(server, now) {
                    State::Up => "up",
                    State::Starting => "starting",
                    State::Paused => "paused",
                    State::Down => "down",
                    State::Draining => "draining",
                    State::Off => "off",
                },
                weight: self.weights.get(server).copied().unwrap_or(1),
                requests: stats.requests,
                failures: stats.failures,
                in_flight: stats.in_flight,
                retries: stats.retries,
                checks_failed: stats.checks_failed,
                last_failure: self.servers.last_failure(server),
            }
        };
        (0..self.servers.len()).map(snapshot).collect()
    }

    fn apply(&self, name: &str, order: UpstreamCommand, now: Time) -> Result<(), NoSuchUpstream> {
        let all = 0..self.servers.len();
        let named: Vec<usize> = all.filter(|&server| self.servers.name(server) == name).collect();
        named.iter().for_each(|&server| self.servers.apply(server, order, now));
        if named.is_empty() { Err(NoSuchUpstream) } else { Ok(()) }
    }
}
