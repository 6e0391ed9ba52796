//! Connections to servers that nobody uses just now.

use std::collections::HashMap;
use std::net::SocketAddr;

use hearken::Token;

use super::connection::{Connection, Role, Route};

/// The last that was put is the first that is taken: it is the least likely to have been closed.
///
/// Connections that were closed meanwhile are passed over when they come up.
#[derive(Debug)]
pub(super) struct Idle {
    servers: Vec<Vec<Token>>,
    anywhere: HashMap<SocketAddr, Vec<Token>>,
    /// How many may be kept: to each server, or altogether.
    most: usize,
    /// How many are in `anywhere`, those closed meanwhile among them.
    count: usize,
}

impl Idle {
    /// For so many servers, up to `most` connections each.
    pub(super) fn of_servers(servers: usize, most: usize) -> Idle {
        Idle { servers: vec![Vec::new(); servers], anywhere: HashMap::new(), most, count: 0 }
    }

    /// For any servers, up to `most` connections altogether.
    pub(super) fn anywhere(most: usize) -> Idle {
        Idle { servers: Vec::new(), anywhere: HashMap::new(), most, count: 0 }
    }

    /// A connection to there.
    #[inline]
    pub(super) fn take(&mut self, route: Route, connections: &[Connection]) -> Option<Token> {
        match route {
            Route::Server(server) => {
                let kept = self.servers.get_mut(server)?;
                while let Some(token) = kept.pop() {
                    if is_idle(token, connections) {
                        return Some(token);
                    }
                }
                None
            }
            Route::Address(addr) => {
                let kept = self.anywhere.get_mut(&addr)?;
                let mut found = None;
                while let (None, Some(token)) = (found, kept.pop()) {
                    self.count -= 1;
                    found = is_idle(token, connections).then_some(token);
                }
                if kept.is_empty() {
                    self.anywhere.remove(&addr);
                }
                found
            }
        }
    }

    /// Keeps a connection to there, and tells whether there was room for it.
    #[inline]
    pub(super) fn put(&mut self, route: Route, token: Token, connections: &[Connection]) -> bool {
        match route {
            Route::Server(server) => {
                let Some(kept) = self.servers.get_mut(server) else { return false };
                if kept.len() >= self.most {
                    kept.retain(|&token| is_idle(token, connections));
                }
                let room = kept.len() < self.most;
                if room {
                    kept.push(token);
                }
                room
            }
            Route::Address(addr) => {
                if self.count >= self.most {
                    self.anywhere.retain(|_, kept| {
                        kept.retain(|&token| is_idle(token, connections));
                        !kept.is_empty()
                    });
                    self.count = self.anywhere.values().map(Vec::len).sum();
                }
                let room = self.count < self.most;
                if room {
                    self.anywhere.entry(addr).or_default().push(token);
                    self.count += 1;
                }
                room
            }
        }
    }

    /// How many there are, at most.
    pub(super) fn len(&self) -> usize {
        self.servers.iter().map(Vec::len).sum::<usize>() + self.count
    }
}

fn is_idle(token: Token, connections: &[Connection]) -> bool {
    connections
        .get(token.slot() as usize)
        .is_some_and(|of| of.token == token && of.role == Role::Server && of.exchange.is_none())
}
