//! Connections to upstream servers, and those that are kept between requests.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use hearken::Token;
use hearken::timer::Time;

use super::exchange::Route;

/// A connection to an upstream server.
#[derive(Debug)]
pub(super) struct Connection {
    /// Its token; that of an earlier connection if the slot is vacant.
    pub(super) token: Token,
    pub(super) route: Route,
    /// The address connected to, if the route has several.
    pub(super) address: Option<SocketAddr>,
    /// The exchange that uses it.
    pub(super) exchange: Option<u32>,
    pub(super) flags: Flags,
    /// Sends that are not complete.
    pub(super) sends: u8,
    /// When it became idle.
    pub(super) idle_since: Time,
    /// How long the server keeps it, as the server has announced.
    pub(super) keepalive_timeout: Option<Duration>,
}

bitflags::bitflags! {
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub(super) struct Flags: u8 {
        /// Receiving is paused.
        const PAUSED = 1;
        /// The server has ended its side.
        const ENDED = 2;
        /// The sending side was shut down.
        const SHUT = 4;
        /// The connection has carried a request before.
        const USED = 8;
        /// Nothing more can be sent on it.
        const BROKEN = 16;
        /// The transport moves what it receives to the client.
        const RELAYED = 32;
        /// The slot holds no connection.
        const VACANT = 64;
    }
}

/// All connections to upstream servers, by their keys.
#[derive(Debug)]
pub(super) struct Connections {
    all: Vec<Connection>,
    free: Vec<u32>,
    idle: Idle,
}

/// The keys and tokens of connections between requests. The last that became idle is used first: it
/// is the least likely to have been closed. Connections that were closed are passed over.
#[derive(Debug)]
struct Idle {
    servers: Vec<Vec<(u32, Token)>>,
    addresses: HashMap<SocketAddr, Vec<(u32, Token)>>,
    /// Maximum number of idle connections, to each server or altogether.
    max_idle: usize,
    /// Entries in `addresses`, closed connections included.
    count: usize,
}

impl Connections {
    /// Creates a table for so many servers, with up to `most` idle connections to each.
    pub(super) fn for_servers(servers: usize, most: usize) -> Connections {
        Connections::new(Idle {
            servers: vec![Vec::new(); servers],
            addresses: HashMap::new(),
            max_idle: most,
            count: 0,
        })
    }

    /// Creates a table for any servers, with up to `most` idle connections altogether.
    pub(super) fn for_addresses(most: usize) -> Connections {
        Connections::new(Idle {
            servers: Vec::new(),
            addresses: HashMap::new(),
            max_idle: most,
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

    /// Forgets a connection.
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

    /// Returns the number of idle connections, at most.
    pub(super) fn count_idle(&self) -> usize {
        self.idle.servers.iter().map(Vec::len).sum::<usize>() + self.idle.count
    }

    /// Takes an idle connection to this destination.
    #[inline(always)]
    pub(super) fn acquire_idle(&mut self, route: Route) -> Option<u32> {
        let (idle, all) = (&mut self.idle, &self.all);
        match route {
            Route::Server(server) => {
                let kept = idle.servers.get_mut(server)?;
                while let Some((key, token)) = kept.pop() {
                    if is_idle(all, key, token) {
                        return Some(key);
                    }
                }
                None
            }
            Route::Address(addr) => {
                let kept = idle.addresses.get_mut(&addr)?;
                let mut found = None;
                while let (None, Some((key, token))) = (found, kept.pop()) {
                    idle.count -= 1;
                    found = is_idle(all, key, token).then_some(key);
                }
                if kept.is_empty() {
                    idle.addresses.remove(&addr);
                }
                found
            }
        }
    }

    /// Keeps a connection for another request, and returns whether there was room for it.
    #[inline(always)]
    pub(super) fn release_idle(&mut self, key: u32) -> bool {
        let Connection { token, route, .. } = self[key];
        let (idle, all) = (&mut self.idle, &self.all);
        match route {
            Route::Server(server) => {
                let Some(kept) = idle.servers.get_mut(server) else { return false };
                if kept.len() >= idle.max_idle {
                    kept.retain(|&(key, token)| is_idle(all, key, token));
                }
                let has_room = kept.len() < idle.max_idle;
                if has_room {
                    kept.push((key, token));
                }
                has_room
            }
            Route::Address(addr) => {
                if idle.count >= idle.max_idle {
                    idle.addresses.retain(|_, kept| {
                        kept.retain(|&(key, token)| is_idle(all, key, token));
                        !kept.is_empty()
                    });
                    idle.count = idle.addresses.values().map(Vec::len).sum();
                }
                let has_room = idle.count < idle.max_idle;
                if has_room {
                    idle.addresses.entry(addr).or_default().push((key, token));
                    idle.count += 1;
                }
                has_room
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
        self.exchange.is_none() && !self.flags.contains(Flags::VACANT)
    }
}

#[inline]
fn is_idle(all: &[Connection], key: u32, token: Token) -> bool {
    all.get(key as usize).is_some_and(|it| it.token == token && it.is_idle())
}

/// How long each server has been seen to keep idle connections.
///
/// A request that cannot be repeated is lost if it is sent on a connection that the server is about
/// to close. So it is sent only on a connection that has been idle for less than the shortest time
/// after which the server was seen to close one.
#[derive(Debug)]
pub(super) struct IdleLifetimes {
    servers: Vec<Duration>,
}

impl IdleLifetimes {
    pub(super) fn new(servers: usize) -> IdleLifetimes {
        IdleLifetimes { servers: vec![Duration::MAX; servers] }
    }

    /// The server closed a connection that had been idle for so long.
    pub(super) fn record_closed(&mut self, route: Route, idle: Duration) {
        if let Some(lifetime) = self.lifetime(route) {
            *lifetime = idle.min(*lifetime);
        }
    }

    /// The server answered on a connection that had been idle for so long.
    pub(super) fn record_reused(&mut self, route: Route, idle: Duration) {
        if let Some(lifetime) = self.lifetime(route)
            && *lifetime <= idle
        {
            *lifetime = idle + idle;
        }
    }

    /// Returns whether a connection that has been idle for so long is likely to be open.
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
    fn learns_how_long_a_server_keeps_connections() {
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
