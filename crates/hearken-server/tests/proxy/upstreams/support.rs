//! Helpers for balancers.

use std::net::SocketAddr;
use std::num::{NonZeroU16, NonZeroU32};
use std::sync::Arc;
use std::time::Duration;

use hearken::timer::Time;
use hearken_server::proxy::balance::{Balancer, Selection, TriedServers};
use hearken_server::proxy::config::{Address, Balance, HashKey, PassiveChecks, Server, Upstreams};
use hearken_server::proxy::servers::Servers;

pub(crate) const POLICIES: [Balance; 4] = [
    Balance::RoundRobin,
    Balance::LeastConnections,
    Balance::RandomTwo,
    Balance::Hash(HashKey::Target),
];

/// Configures servers with these weights.
pub(crate) fn weighted(balance: Balance, weights: &[u16]) -> Upstreams {
    let servers = weights.iter().enumerate().map(|(index, &weight)| Server {
        weight: NonZeroU16::new(weight).unwrap(),
        ..Server::new(Address::Inet(SocketAddr::from(([127, 0, 0, 1], 9000 + index as u16))))
    });
    Upstreams { balance, ..Upstreams::new(servers.collect()) }
}

/// Configures `count` servers of equal weight.
pub(crate) fn even(policy: Balance, count: usize) -> Upstreams {
    weighted(policy, &vec![1; count])
}

pub(crate) fn passive_checks(failures: u32, pause: u64) -> Option<PassiveChecks> {
    Some(PassiveChecks {
        max_fails: NonZeroU32::new(failures).unwrap(),
        fail_timeout: Duration::from_secs(pause),
    })
}

/// Creates the servers and the balancer of a single worker.
pub(crate) fn single_worker(config: &Upstreams) -> (Arc<Servers>, Balancer) {
    let servers = Arc::new(Servers::new(config));
    let balancer = Balancer::new(config, Arc::clone(&servers), 0, 1, 1);
    (servers, balancer)
}

/// Returns a time in seconds after the start of the clock, which is not zero.
pub(crate) fn at(seconds: f64) -> Time {
    Time::from_nanos(1 + (seconds * 1e9) as u64)
}

/// Returns the server for a request that was tried on no server.
pub(crate) fn pick(balancer: &mut Balancer, now: Time) -> usize {
    pick_key(balancer, now, 0)
}

pub(crate) fn pick_key(balancer: &mut Balancer, now: Time, key: u64) -> usize {
    match balancer.select(now, key, TriedServers::default()) {
        Selection::Server(server) => server,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn tried(servers: &[usize]) -> TriedServers {
    let mut tried = TriedServers::default();
    for &server in servers {
        tried.insert(server);
    }
    tried
}
