//! What can be set of a proxy, and its defaults.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::SocketAddr;
use std::num::{NonZeroU16, NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use hearken_http::forward::Given;

pub use crate::front::HalfClose;
pub use crate::runtime::access_log::LogFormat;
pub use crate::runtime::proxy_protocol::ProxyProtocol;

/// A proxy's settings.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where requests go.
    pub to: To,
    /// Timeouts of the upstream side.
    pub timeouts: Timeouts,
    /// Maximum size of a response's head.
    pub limits: hearken_http::Limits,
    /// Maximum size of a request's body in bytes (413); any size if `None`.
    pub body_limit: Option<u64>,
    /// Fields about the proxy and its clients.
    pub fields: Fields,
    /// Whether long bodies and tunnels are moved within the kernel, where that is available.
    pub splice: bool,
}

/// Where requests go.
#[derive(Clone, Debug)]
pub enum To {
    /// To servers that are named here: a reverse proxy.
    Upstreams(Upstreams),
    /// To whatever server the request names: a forward proxy.
    Anywhere(Forward),
}

/// The servers behind a reverse proxy.
#[derive(Clone, Debug)]
pub struct Upstreams {
    /// At least one.
    pub servers: Vec<Server>,
    /// Which of them gets a request.
    pub policy: Balance,
    /// How many connections to each may be kept between requests, over all workers; with 0, each
    /// request has a connection of its own, and says so (`Connection: close`).
    pub keep: usize,
    /// How many requests may be in flight at each server, over all workers; any number if `None`. Each
    /// worker has its share, at least one.
    pub max_requests: Option<NonZeroUsize>,
    /// How many requests may wait for one of the servers to have room, over all workers; those over
    /// it are answered with 503 at once.
    pub queue: usize,
    /// On how many servers a request is tried to which nobody has begun to listen.
    pub tries: NonZeroU32,
    /// When a server that fails is left out.
    pub passive: Option<Passive>,
    /// How servers are asked whether they are well.
    pub active: Option<Active>,
    /// Over what time a server that comes back gets up to its full share; zero for at once.
    pub slow_start: Duration,
    /// How often names are looked up again; never for zero.
    pub resolve_every: Duration,
    /// What each connection to a server begins with.
    pub send_proxy_protocol: Option<ProxyProtocol>,
}

/// A server behind a reverse proxy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Server {
    /// Where it is.
    pub address: Address,
    /// How many requests it gets, against the others' weights.
    pub weight: NonZeroU16,
    /// Gets requests only when all that are no backup are down.
    pub backup: bool,
}

/// Where a server is.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Address {
    /// At this address.
    Inet(SocketAddr),
    /// At the addresses that this name has, and on this port.
    Name(String, u16),
    /// At a socket in the file system.
    Unix(PathBuf),
}

/// Which server gets a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Balance {
    /// Each in turn, by weight.
    RoundRobin,
    /// The one with the fewest requests in flight, by weight.
    LeastConnections,
    /// The better of two that are drawn at random (Mitzenmacher, "The Power of Two Choices in
    /// Randomized Load Balancing", IEEE TPDS 2001).
    RandomTwo,
    /// The same for the same key, whatever other servers come and go.
    Hash(HashKey),
}

/// What a request is hashed by.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HashKey {
    /// The client's address.
    Client,
    /// Its target, with the query.
    Target,
    /// The host it is for.
    Host,
    /// The field of this name.
    Field(String),
}

/// When a server that fails is left out: connections that are refused, broken or too slow count, and
/// answers of 502, 503 and 504.
#[derive(Clone, Copy, Debug)]
pub struct Passive {
    /// After so many failures in a row.
    pub failures: NonZeroU32,
    /// For so long; then one request is tried.
    pub pause: Duration,
}

/// How servers are asked whether they are well.
#[derive(Clone, Debug)]
pub struct Active {
    /// What is asked for, with GET.
    pub path: String,
    /// The Host field of it; if `None`, the server's own address.
    pub host: Option<String>,
    /// How long it is from one time to the next.
    pub every: Duration,
    /// Until when the whole answer must have come.
    pub timeout: Duration,
    /// A server that is up is down after so many failures in a row.
    pub fall: NonZeroU32,
    /// A server that is down is up after so many successes in a row.
    pub rise: NonZeroU32,
    /// Which status is well; 200 to 399 if `None`.
    pub status: Option<u16>,
}

/// Whom a forward proxy connects to.
#[derive(Clone, Debug, Default)]
pub struct Forward {
    /// If not empty, only these.
    pub allow: Vec<Rule>,
    /// Not these, whatever is allowed.
    pub deny: Vec<Rule>,
    /// Ports that tunnels (CONNECT) may go to; 443 alone if empty.
    pub connect_ports: Vec<u16>,
    /// How many connections are kept between requests, over all workers.
    pub keep: usize,
}

/// Some servers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Rule {
    /// Those whose address begins with so many bits. Where such a rule allows addresses of this host
    /// or of private networks, these may be connected to; they may not otherwise.
    Network(std::net::IpAddr, u8),
    /// The one of this name, in lower case.
    Name(String),
    /// That one and all below it: `.example.org`, in lower case.
    Domain(String),
}

/// What the fields about the proxy and its clients say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fields {
    /// The name in `Via`; none is added if it is empty. A request whose `Via` has it is answered
    /// with 508. The default is random, so that no two proxies have the same.
    pub via: String,
    /// `X-Forwarded-For`, `X-Forwarded-Proto` and `X-Forwarded-Host`.
    pub x_forwarded: Given,
    /// `Forwarded` (RFC 7239).
    pub forwarded: Given,
    /// Whether the server is told the host that the client named; else its own address.
    pub keep_host: bool,
}

/// Timeouts of the upstream side, all on the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// In the queue, for a server to have room (503).
    pub queue: Duration,
    /// For a connection to a server, the look-up of its name included (504, once no other is left
    /// to try).
    pub connect: Duration,
    /// For the server to take part of the request (504).
    pub send: Duration,
    /// From the end of the request to the end of the response's head (504).
    pub response: Duration,
    /// For the next bytes of a response's body (the client's connection is ended).
    pub response_body: Duration,
    /// For a request as a whole, from its head to the end of the response (504, or the connection
    /// is ended); any time for zero.
    pub whole: Duration,
    /// For the next bytes in a tunnel, in either direction.
    pub tunnel: Duration,
    /// How long an idle connection to a server is kept.
    pub keep: Duration,
}

impl Config {
    /// Creates settings with defaults, to `to`.
    pub fn new(to: To) -> Config {
        Config {
            to,
            timeouts: Timeouts::default(),
            limits: hearken_http::Limits::default(),
            body_limit: None,
            fields: Fields::default(),
            splice: true,
        }
    }
}

impl Upstreams {
    /// The defaults, for these servers.
    pub fn new(servers: Vec<Server>) -> Upstreams {
        Upstreams {
            servers,
            policy: Balance::RoundRobin,
            keep: 256,
            max_requests: None,
            queue: 1024,
            tries: NonZeroU32::new(2).unwrap_or(NonZeroU32::MIN),
            passive: Some(Passive::default()),
            active: None,
            slow_start: Duration::ZERO,
            resolve_every: Duration::from_secs(30),
            send_proxy_protocol: None,
        }
    }
}

impl Server {
    /// One like the others.
    pub fn new(address: Address) -> Server {
        Server { address, weight: NonZeroU16::MIN, backup: false }
    }
}

impl Default for Passive {
    fn default() -> Passive {
        Passive {
            failures: NonZeroU32::new(3).unwrap_or(NonZeroU32::MIN),
            pause: Duration::from_secs(10),
        }
    }
}

impl Default for Active {
    fn default() -> Active {
        Active {
            path: "/".to_owned(),
            host: None,
            every: Duration::from_secs(5),
            timeout: Duration::from_secs(2),
            fall: NonZeroU32::new(3).unwrap_or(NonZeroU32::MIN),
            rise: NonZeroU32::new(2).unwrap_or(NonZeroU32::MIN),
            status: None,
        }
    }
}

impl Default for Fields {
    fn default() -> Fields {
        Fields {
            via: random_name(),
            x_forwarded: Given::Replace,
            forwarded: Given::Remove,
            keep_host: true,
        }
    }
}

/// Creates a name such as `hearken-5eed1e55`.
fn random_name() -> String {
    format!("hearken-{:08x}", RandomState::new().build_hasher().finish() as u32)
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts {
            queue: Duration::from_secs(5),
            connect: Duration::from_secs(5),
            send: Duration::from_secs(30),
            response: Duration::from_secs(60),
            response_body: Duration::from_secs(30),
            whole: Duration::ZERO,
            tunnel: Duration::from_secs(600),
            keep: Duration::from_secs(30),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Fields;

    #[test]
    fn proxies_have_different_names_by_default() {
        let [one, other] = [Fields::default().via, Fields::default().via];
        assert_ne!(one, other);
        let digits = one.strip_prefix("hearken-").unwrap();
        assert!(digits.len() == 8 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
    }
}
