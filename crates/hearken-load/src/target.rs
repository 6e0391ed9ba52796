//! The server under load.

use std::io;
use std::ops::RangeInclusive;
use std::time::Duration;

use hearken::Token;
use hearken::io::{Address, ConnectOptions, Io};

use crate::channel::Channel;
use crate::config::{Config, LoadError};
use crate::server_address;
use crate::shard::Shard;
use crate::source_addresses::SourceAddresses;
use crate::tls::{Session, Tls};
use crate::url::Url;

/// The protocol of connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Protocol {
    /// HTTP/1.1, also of connections at the side of the load.
    Http1,
    Http2,
}

/// The properties of the server that all connections share.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    address: Address,
    source_addresses: SourceAddresses,
    tls: Option<Tls>,
    protocol: Protocol,
    /// Whether the server port is in the range of ephemeral ports on this host, so that a
    /// connection could connect to itself.
    may_self_connect: bool,
    /// Number of ephemeral ports of an address.
    port_count: usize,
    pub(crate) timeout: Duration,
    options: ConnectOptions,
}

impl Target {
    /// Creates the target. `ports` is the range of ephemeral ports, if it is known.
    pub(crate) fn new(
        config: &Config,
        url: &Url,
        ports: Option<RangeInclusive<u16>>,
    ) -> Result<Target, LoadError> {
        let port_count = ports.as_ref().map_or(DEFAULT_PORTS, RangeInclusive::len);
        let is_ephemeral = |port| ports.is_none_or(|ports| ports.contains(&port));
        let address = server_address::find(config, url)?;
        if let Address::Inet(addr) = address
            && let Some(&source) =
                config.source_addresses.iter().find(|ip| ip.is_ipv4() != addr.is_ipv4())
        {
            return Err(LoadError::Source { ip: source, addr });
        }
        let tls = if url.tls { Some(Tls::new(&url.host, &config.tls)?) } else { None };
        Ok(Target {
            source_addresses: match &address {
                Address::Inet(addr) => {
                    SourceAddresses::new(addr.ip(), &config.source_addresses, port_count)
                }
                Address::Unix(_) => SourceAddresses::none(),
            },
            tls,
            protocol: Protocol::Http1,
            may_self_connect: matches!(&address, Address::Inet(addr)
                if addr.ip().is_loopback() && is_ephemeral(addr.port())),
            address,
            port_count,
            timeout: config.timeout,
            options: ConnectOptions::default(),
        })
    }

    /// Returns the target for the thread with shard `share`.
    pub(crate) fn for_thread(&self, share: Shard) -> Target {
        Target { source_addresses: self.source_addresses.for_thread(share), ..self.clone() }
    }

    /// Returns the maximum number of concurrent connections that local ports allow.
    pub(crate) fn ports(&self) -> usize {
        match self.address {
            Address::Inet(_) => self.port_count * self.source_addresses.count(),
            Address::Unix(_) => usize::MAX,
        }
    }

    /// Returns the target for connections with a receive buffer of this size in bytes.
    pub(crate) fn with_receive_buffer(mut self, size: u32) -> Target {
        self.options.receive_buffer = Some(size);
        self
    }

    /// Returns the target for connections with a protocol.
    pub(crate) fn with_protocol(self, protocol: Protocol) -> Target {
        Target { protocol, ..self }
    }

    /// Returns whether connections use TLS.
    pub(crate) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Returns the server address.
    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Returns the session of a new connection, if connections use TLS.
    pub(crate) fn session(&self) -> io::Result<Option<Box<Session>>> {
        let session = self.tls.as_ref().map(|tls| tls.connect(self.protocol));
        session.transpose().map_err(io::Error::other)
    }

    /// Starts to connect. Returns the token and the byte stream of the connection.
    pub(crate) fn connect(&mut self, io: &mut impl Io) -> io::Result<(Token, Channel)> {
        let session = self.session()?;
        let stream = self.source_addresses.connect(io, &self.address, self.options)?;
        Ok((stream, Channel::new(session)))
    }

    /// Returns whether a connection has connected to itself. If no server listens on an ephemeral
    /// port of this host, the kernel may choose this very port as the source port. TCP then
    /// connects the socket to itself (simultaneous open).
    pub(crate) fn is_self_connection(&self, io: &impl Io, token: Token) -> bool {
        self.may_self_connect
            && io.local_addr(token).is_ok_and(|local| Address::Inet(local) == self.address)
    }
}

/// Number of ephemeral ports, if the range is unknown: the kernel's default.
const DEFAULT_PORTS: usize = 28_232;

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use hearken::io::readiness::{Policy, ReadinessIo};
    use hearken::io::{CompletionKind, Io};
    use hearken::mechanism;
    use hearken::timer::Time;

    use super::Target;
    use crate::config::Config;
    use crate::environment::port_range;
    use crate::url::Url;

    #[test]
    fn detects_a_connection_to_itself() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let config = Config { url: format!("http://{addr}/"), ..Config::default() };
        let target = Target::new(&config, &Url::parse(&config.url).unwrap(), port_range()).unwrap();
        let mechanism = mechanism::find("poll").unwrap().open().unwrap();
        let mut io = ReadinessIo::new(mechanism, Policy::default()).unwrap();
        let mut connected = |source| {
            let token = io.connect(&addr.into(), source).unwrap();
            loop {
                io.wait(Some(Time::now() + std::time::Duration::from_secs(10))).unwrap();
                if let Some(completion) = io.next() {
                    assert!(matches!(completion.kind, CompletionKind::Connected(Ok(()))));
                    let itself = target.is_self_connection(&io, token);
                    io.close(token);
                    return itself;
                }
            }
        };
        assert!(!connected(None));
        drop(listener);
        assert!(connected(Some(addr)));
    }
}
