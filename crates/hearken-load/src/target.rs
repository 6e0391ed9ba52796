//! The server that is asked.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use hearken::Token;
use hearken::io::Io;

use crate::config::{Config, LoadError};
use crate::share::Share;
use crate::sources::Sources;
use crate::tls::{Session, Tls, TlsError};
use crate::url::Url;

/// What requests and idle connections have in common.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    addr: SocketAddr,
    sources: Sources,
    tls: Option<Tls>,
    pub(crate) timeout: Duration,
}

impl Target {
    pub(crate) fn new(config: &Config, url: &Url) -> Result<Target, LoadError> {
        let addr = resolve(url)?;
        if let Some(&source) = config.sources.iter().find(|ip| ip.is_ipv4() != addr.is_ipv4()) {
            return Err(LoadError::Source { ip: source, addr });
        }
        let tls = if url.tls { Some(Tls::new(&url.host, &config.tls)?) } else { None };
        let connections = config.idle.saturating_add(config.connections.get());
        Ok(Target {
            addr,
            sources: Sources::new(addr.ip(), &config.sources, connections),
            tls,
            timeout: config.timeout,
        })
    }

    /// For the thread with that share, which has so many connections at a time.
    pub(crate) fn of_thread(&self, share: Share, connections: usize) -> Target {
        Target { sources: self.sources.of_thread(share, connections), ..self.clone() }
    }

    /// The server's address.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Begins to connect.
    pub(crate) fn connect(&mut self, io: &mut impl Io) -> io::Result<Token> {
        self.sources.connect(io, self.addr)
    }

    /// What a connection speaks TLS by, where it does.
    pub(crate) fn session(&self) -> Result<Option<Box<Session>>, TlsError> {
        self.tls.as_ref().map(Tls::connect).transpose()
    }
}

fn resolve(url: &Url) -> Result<SocketAddr, LoadError> {
    let failed = |source| LoadError::Resolve { host: url.host.clone(), source };
    let found: Vec<_> = (url.host.as_str(), url.port).to_socket_addrs().map_err(failed)?.collect();
    // "localhost" is both, and more servers listen on 127.0.0.1 than on ::1.
    let first = found.iter().find(|addr| addr.is_ipv4()).or_else(|| found.first());
    first.copied().ok_or_else(|| failed(io::Error::other("it has no address")))
}
