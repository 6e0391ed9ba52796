//! Connections to upstream servers, including idle ones. The streams of HTTP/2 connections are entries of
//! the same table.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use hearken::Token;
use hearken::timer::Time;

use super::exchange::Route;

/// A connection to an upstream server.
#[derive(Debug)]
pub(super) struct Connection {
    /// Token of the connection, or of the one that carries the stream. If the slot is vacant, of the previous one.
    pub(super) token: Token,
    pub(super) route: Route,
    /// The connected address, if the route has several.
    pub(super) address: Option<SocketAddr>,
    /// The exchange that uses the connection.
    pub(super) exchange: Option<u32>,
    pub(super) flags: Flags,
    /// Number of incomplete sends.
    pub(super) sends: u8,
    /// Time at which the connection became idle.
    pub(super) idle_since: Time,
    /// Idle timeout that the server has announced.
    pub(super) keepalive_timeout: Option<Duration>,
}

bitflags::bitflags! {
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub(super) struct Flags: u16 {
        /// Receiving is paused.
        const PAUSED = 1;
        /// The server has closed its sending side.
        const ENDED = 2;
        /// The sending side was shut down.
        const SHUT = 4;
        /// The connection was used for a request before.
        const USED = 8;
        /// Sending or receiving failed.
        const BROKEN = 16;
        /// The transport relays received bytes to the client.
        const RELAYED = 32;
        /// The slot holds no connection.
        const VACANT = 64;
        /// The connection speaks HTTP/2, or may do so when it is established. Its streams have exchanges.
        const HTTP2 = 128;
        /// The connection has streams.
        const HAS_STREAMS = 256;
        /// The entry is a stream of another connection.
        const STREAM = 512;
        /// The entry is never in the pool: a stream, or a connection in HTTP/1.1 to a server that prefers
        /// HTTP/2.
        const NOT_POOLED = 1024;
    }
}

/// All connections to upstream servers, by their keys.
#[derive(Debug)]
pub(super) struct Connections {
    all: Vec<Connection>,
    free: Vec<u32>,
    idle: Idle,
}

/// The keys and tokens of idle connections. The connection that became idle last is used first,
/// because it is least likely to be closed. Entries of closed connections are skipped.
#[derive(Debug)]
struct Idle {
    servers: Vec<Vec<(u32, Token)>>,
    addresses: HashMap<SocketAddr, Vec<(u32, Token)>>,
    /// Maximum number of idle connections, per server for `servers`, in total for `addresses`.
    max_idle: usize,
    /// Number of entries in `addresses`, including closed connections.
    count: usize,
}

impl Connections {
    /// Creates a table for `servers` servers, with up to `max_idle` idle connections to each.
    pub(super) fn for_servers(servers: usize, max_idle: usize) -> Connections {
        Connections::new(Idle {
            servers: vec![Vec::new(); servers],
            addresses: HashMap::new(),
            max_idle,
            count: 0,
        })
    }

    /// Creates a table for any servers, with up to `max_idle` idle connections in total.
    pub(super) fn for_addresses(max_idle: usize) -> Connections {
        Connections::new(Idle {
            servers: Vec::new(),
            addresses: HashMap::new(),
            max_idle,
            count: 0,
        })
    }

    fn new(idle: Idle) -> Connections {
        Connections { all: Vec::new(), free: Vec::new(), idle }
    }

    /// Adds a connection that an exchange uses, and returns its key.
    pub(super) fn insert(
        &mut self,
        token: Token,
        route: Route,
        address: Option<SocketAddr>,
        exchange: u32,
    ) -> u32 {
        let connection = Connection {
            token,
            route,
            address,
            exchange: Some(exchange),
            flags: Flags::empty(),
            sends: 0,
            idle_since: Time::default(),
            keepalive_timeout: None,
        };
        match self.free.pop() {
            Some(key) => {
                self[key] = connection;
                key
            }
            None => {
                self.all.push(connection);
                self.all.len() as u32 - 1
            }
        }
    }

    /// Adds a stream of an HTTP/2 connection, which an exchange uses, and returns its key.
    pub(super) fn insert_stream(&mut self, connection: u32, exchange: u32, now: Time) -> u32 {
        let Connection { token, route, address, .. } = self[connection];
        let key = self.insert(token, route, address, exchange);
        self[key].flags = Flags::STREAM | Flags::NOT_POOLED;
        self[key].idle_since = now;
        key
    }

    /// Removes a connection.
    pub(super) fn remove(&mut self, key: u32) {
        let connection = &mut self[key];
        connection.exchange = None;
        connection.flags = Flags::VACANT;
        self.free.push(key);
    }

    /// Returns the keys of idle connections.
    pub(super) fn idle(&self) -> Vec<u32> {
        let all = self.all.iter().enumerate();
        let idle = all.filter(|(_, it)| it.is_idle());
        idle.map(|(key, _)| key as u32).collect()
    }

    /// Returns whether any connection is used by an exchange.
    pub(super) fn is_in_use(&self) -> bool {
        self.all.iter().any(|it| it.exchange.is_some())
    }

    /// Returns the number of connections, and of slots. Streams count instead of the connections that carry
    /// them.
    #[cfg(feature = "simulation")]
    pub(super) fn count(&self) -> (usize, usize) {
        let carriers = self.all.iter().filter(|it| it.flags.contains(Flags::HAS_STREAMS));
        (self.all.len() - self.free.len() - carriers.count(), self.all.len())
    }

    /// Returns an upper bound of the number of idle connections.
    pub(super) fn count_idle(&self) -> usize {
        self.idle.servers.iter().map(Vec::len).sum::<usize>() + self.idle.count
    }

    /// Removes and returns an idle connection to this destination.
    #[inline(always)]
    pub(super) fn acquire_idle(&mut self, route: Route) -> Option<u32> {
        let (idle, all) = (&mut self.idle, &self.all);
        match route {
            Route::Server(server) => {
                let connections = idle.servers.get_mut(server)?;
                while let Some((key, token)) = connections.pop() {
                    if is_idle(all, key, token) {
                        return Some(key);
                    }
                }
                None
            }
            Route::Address(addr) => {
                let connections = idle.addresses.get_mut(&addr)?;
                let mut found = None;
                while found.is_none()
                    && let Some((key, token)) = connections.pop()
                {
                    idle.count -= 1;
                    found = is_idle(all, key, token).then_some(key);
                }
                if connections.is_empty() {
                    idle.addresses.remove(&addr);
                }
                found
            }
        }
    }

    /// Adds a connection to the idle ones. Returns false if the limit is reached.
    #[inline(always)]
    pub(super) fn release_idle(&mut self, key: u32) -> bool {
        let Connection { token, route, .. } = self[key];
        let (idle, all) = (&mut self.idle, &self.all);
        match route {
            Route::Server(server) => {
                let Some(connections) = idle.servers.get_mut(server) else { return false };
                if connections.len() >= idle.max_idle {
                    connections.retain(|&(key, token)| is_idle(all, key, token));
                }
                let has_capacity = connections.len() < idle.max_idle;
                if has_capacity {
                    connections.push((key, token));
                }
                has_capacity
            }
            Route::Address(addr) => {
                if idle.count >= idle.max_idle {
                    idle.addresses.retain(|_, connections| {
                        connections.retain(|&(key, token)| is_idle(all, key, token));
                        !connections.is_empty()
                    });
                    idle.count = idle.addresses.values().map(Vec::len).sum();
                }
                let has_capacity = idle.count < idle.max_idle;
                if has_capacity {
                    idle.addresses.entry(addr).or_default().push((key, token));
                    idle.count += 1;
                }
                has_capacity
            }
        }
    }
}

impl std::ops::Index<u32> for Connections {
    type Output = Connection;

    #[inline]
    fn index(&self, key: u32) -> &Connection {
        &self.all[key as usize]
    }
}

impl std::ops::IndexMut<u32> for Connections {
    #[inline]
    fn index_mut(&mut self, key: u32) -> &mut Connection {
        &mut self.all[key as usize]
    }
}

impl Connection {
    pub(super) fn is_idle(&self) -> bool {
        self.exchange.is_none() && !self.flags.intersects(Flags::VACANT | Flags::HAS_STREAMS)
    }
}

#[inline]
fn is_idle(all: &[Connection], key: u32, token: Token) -> bool {
    all.get(key as usize).is_some_and(|it| it.token == token && it.is_idle())
}

/// The observed lifetimes of idle connections to each server.
///
/// A request that cannot be retried is lost if the server closes the connection at the same time. It
/// is therefore sent only on connections that have been idle for less time than the shortest after
/// which the server closed one.
#[derive(Debug)]
pub(super) struct IdleLifetimes {
    servers: Vec<Duration>,
}

impl IdleLifetimes {
    pub(super) fn new(servers: usize) -> IdleLifetimes {
        IdleLifetimes { servers: vec![Duration::MAX; servers] }
    }

    /// Records that the server closed a connection that was idle for this time.
    pub(super) fn record_closed(&mut self, route: Route, idle: Duration) {
        if let Some(lifetime) = self.lifetime(route) {
            *lifetime = idle.min(*lifetime);
        }
    }

    /// Records that the server responded on a connection that was idle for this time.
    pub(super) fn record_reused(&mut self, route: Route, idle: Duration) {
        if let Some(lifetime) = self.lifetime(route)
            && *lifetime <= idle
        {
            *lifetime = idle + idle;
        }
    }

    /// Returns whether a connection that has been idle for this time is probably open.
    pub(super) fn is_safe(&mut self, route: Route, idle: Duration) -> bool {
        self.lifetime(route).is_none_or(|lifetime| idle < *lifetime)
    }

    fn lifetime(&mut self, route: Route) -> Option<&mut Duration> {
        match route {
            Route::Server(server) => self.servers.get_mut(server),
            Route::Address(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_other_idle_connections_to_an_address() {
        let mut connections = Connections::for_addresses(3);
        let address = SocketAddr::from(([192, 0, 2, 1], 80));
        let route = Route::Address(address);
        let add = |connections: &mut Connections, slot| {
            let key = connections.insert(Token::new(slot, 0), route, Some(address), 0);
            connections[key].exchange = None;
            connections.release_idle(key)
        };
        assert!((0..3).all(|slot| add(&mut connections, slot)));
        assert!(!add(&mut connections, 3));
        for key in [2, 1, 0] {
            assert_eq!(connections.acquire_idle(route), Some(key));
        }
        assert_eq!(connections.acquire_idle(route), None);
    }

    #[test]
    fn learns_the_lifetime_of_idle_connections() {
        let mut lifetimes = IdleLifetimes::new(1);
        let server = Route::Server(0);
        let ms = Duration::from_millis;
        assert!(lifetimes.is_safe(server, ms(50_000)));
        lifetimes.record_closed(server, ms(20));
        assert!(lifetimes.is_safe(server, ms(19)) && !lifetimes.is_safe(server, ms(20)));
        lifetimes.record_reused(server, ms(5));
        assert!(!lifetimes.is_safe(server, ms(20)));
        lifetimes.record_reused(server, ms(40));
        assert!(lifetimes.is_safe(server, ms(79)));
    }
}
