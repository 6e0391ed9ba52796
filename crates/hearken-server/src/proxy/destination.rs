//! Where requests go, for one worker.

use std::borrow::Cow;
use std::sync::Arc;

use super::access::Access;
use super::balance::Balancer;
use super::config::{Balance, Config, HashKey, ProxyProtocol, To};
use super::exchange::Route;
use super::resolver::Lookups;
use super::servers::Servers;
use super::upstream::Connections;

/// Where requests go.
pub(crate) enum Destination {
    /// To upstream servers that are configured: a reverse proxy.
    Servers(Box<ToServers>),
    /// To the server that each request names: a forward proxy.
    Anywhere(Box<Anywhere>),
}

pub(crate) struct ToServers {
    pub(super) balancer: Balancer,
    pub(super) servers: Arc<Servers>,
    /// The part of a request that it is hashed by.
    pub(super) hash: Option<HashKey>,
    keep: usize,
    pub(super) queue: usize,
    pub(super) attempts: u8,
    /// What each connection begins with.
    pub(super) header: Option<ProxyProtocol>,
}

pub(crate) struct Anywhere {
    pub(super) access: Access,
    pub(super) lookups: Lookups,
    keep: usize,
}

impl Destination {
    /// Creates that of the worker at `index` of so many.
    pub(super) fn new(
        config: &Config,
        servers: &Arc<Servers>,
        lookups: Option<Lookups>,
        (index, workers): (usize, usize),
        seed: u64,
    ) -> Destination {
        let share = |all: usize| all.div_ceil(workers);
        let upstreams = match (&config.to, lookups) {
            (To::Anywhere(forward), Some(lookups)) => {
                let (access, keep) = (Access::new(forward), share(forward.keep));
                return Destination::Anywhere(Box::new(Anywhere { access, lookups, keep }));
            }
            (To::Anywhere(_), None) => &super::config::Upstreams::new(Vec::new()),
            (To::Upstreams(upstreams), _) => upstreams,
        };
        Destination::Servers(Box::new(ToServers {
            balancer: Balancer::new(upstreams, servers.clone(), index, workers, seed),
            servers: servers.clone(),
            hash: match &upstreams.policy {
                Balance::Hash(key) => Some(key.clone()),
                _ => None,
            },
            // A connection whose header names one client cannot carry another's requests.
            keep: match upstreams.send_proxy_protocol {
                Some(_) => 0,
                None => share(upstreams.keep),
            },
            queue: share(upstreams.queue),
            attempts: u8::try_from(upstreams.tries.get()).unwrap_or(u8::MAX),
            header: upstreams.send_proxy_protocol,
        }))
    }

    pub(super) fn is_anywhere(&self) -> bool {
        matches!(self, Destination::Anywhere(_))
    }

    pub(super) fn balancer(&mut self) -> Option<&mut Balancer> {
        match self {
            Destination::Servers(to) => Some(&mut to.balancer),
            Destination::Anywhere(_) => None,
        }
    }

    /// Returns the number of configured servers.
    pub(super) fn servers(&self) -> usize {
        match self {
            Destination::Servers(to) => to.servers.len(),
            Destination::Anywhere(_) => 0,
        }
    }

    /// Creates the table of upstream connections.
    pub(super) fn connections(&self) -> Connections {
        match self {
            Destination::Servers(to) => Connections::of_servers(to.servers.len(), to.keep),
            Destination::Anywhere(to) => Connections::of_addresses(to.keep),
        }
    }

    /// Returns whether connections to this destination are kept.
    #[inline]
    pub(super) fn keeps(&self, route: Route) -> bool {
        match (self, route) {
            (Destination::Servers(to), Route::Server(server)) => {
                to.keep > 0 && to.servers.condition(server).fit
            }
            (Destination::Anywhere(to), _) => to.keep > 0,
            _ => false,
        }
    }

    /// Returns the name of a destination in the log.
    pub(super) fn name(&self, route: Route) -> Cow<'_, str> {
        match (self, route) {
            (Destination::Servers(to), Route::Server(server)) => to.servers.name(server).into(),
            (_, Route::Address(addr)) => addr.to_string().into(),
            _ => "".into(),
        }
    }
}

/// Returns whether the clients' addresses are needed.
pub(super) fn needs_clients(config: &Config) -> bool {
    use hearken_http::forward::Given::{Append, Replace};
    let is_told = |given| matches!(given, Append | Replace);
    let by_address = match &config.to {
        To::Upstreams(upstreams) => {
            upstreams.policy == Balance::Hash(HashKey::Client)
                || upstreams.send_proxy_protocol.is_some()
        }
        To::Anywhere(_) => false,
    };
    by_address || is_told(config.fields.x_forwarded) || is_told(config.fields.forwarded)
}
