//! Settings of a proxy and their defaults.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::SocketAddr;
use std::num::{NonZeroU16, NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use hearken_http::forward::HeaderPolicy;
use hearken_tls::ClientProfile;

pub use crate::front::HalfClose;
pub use crate::runtime::access_log::LogFormat;
pub use crate::runtime::proxy_protocol::ProxyProtocol;

/// Settings of a proxy.
#[derive(Clone, Debug)]
pub struct Config {
    /// Mode and upstream servers of the proxy.
    pub mode: ProxyMode,
    /// Timeouts of the upstream side.
    pub timeouts: Timeouts,
    /// Maximum size of the head of a response.
    pub limits: hearken_http::Limits,
    /// Maximum size in bytes of a request body (413); unlimited if `None`.
    pub max_body_bytes: Option<u64>,
    /// Settings of the forwarding header fields.
    pub fields: Fields,
    /// Whether to move long bodies and tunnels within the kernel by splice(2), if available.
    pub splice: bool,
}

/// The mode of a proxy.
#[derive(Clone, Debug)]
pub enum ProxyMode {
    /// A reverse proxy, which forwards requests to configured servers.
    Reverse(Upstreams),
    /// A forward proxy, which forwards requests to the servers that they name.
    Forward(Forward),
}

/// The upstream servers of a reverse proxy.
#[derive(Clone, Debug)]
pub struct Upstreams {
    /// Servers; at least one.
    pub servers: Vec<Server>,
    /// Load balancing method.
    pub balance: Balance,
    /// Maximum number of idle connections kept open to each server, over all workers. With 0, each
    /// request uses a new connection and has the field `Connection: close`.
    pub keepalive: usize,
    /// Maximum number of requests in flight at each server, over all workers; unlimited if `None`.
    /// The workers divide the limit, and each may have at least one.
    pub max_requests: Option<NonZeroUsize>,
    /// Maximum number of queued requests over all workers. If the queue is full, requests are
    /// answered with 503.
    pub max_queue: usize,
    /// Maximum number of servers to try per request. A request is retried only if no server can
    /// have processed it, or if its method is safe.
    pub max_attempts: NonZeroU32,
    /// Passive health checks; disabled if `None`.
    pub passive: Option<PassiveChecks>,
    /// Active health checks; disabled if `None`.
    pub health: Option<HealthCheck>,
    /// Time over which the weight of a recovered server increases to its full value. Zero disables
    /// the slow start.
    pub slow_start: Duration,
    /// Interval at which names are resolved again. Zero disables it.
    pub resolve_interval: Duration,
    /// TLS settings of connections to servers with TLS.
    pub tls: Option<ClientProfile>,
    /// Name of servers with TLS, which is sent and verified. Defaults to the host of each address.
    pub tls_name: Option<String>,
    /// Whether servers with TLS may select HTTP/2 (ALPN).
    pub http2: bool,
    /// Version of the PROXY protocol header to send on each connection, if any. It cannot precede TLS or HTTP/2. Such
    /// connections are not reused.
    pub send_proxy_protocol: Option<ProxyProtocol>,
}

/// An upstream server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Server {
    /// Address of the server.
    pub address: Address,
    /// Weight in load balancing, relative to the other servers.
    pub weight: NonZeroU16,
    /// Whether the server is a backup, which gets requests only if all other servers are down.
    pub backup: bool,
    /// Whether connections to the server use TLS.
    pub tls: bool,
    /// Whether connections without TLS use HTTP/2, with prior knowledge.
    pub http2: bool,
}

/// The protocol of connections to an upstream server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Protocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2 with prior knowledge.
    Http2,
    /// The protocol that the server selects by ALPN.
    Negotiated,
}

/// The address of an upstream server.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Address {
    /// An IP address and port.
    Inet(SocketAddr),
    /// A host name, with all its addresses, and a port.
    Name(String, u16),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

/// A load balancing method.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Balance {
    /// Weighted round-robin.
    RoundRobin,
    /// The server with the fewest requests in flight relative to its weight.
    LeastConnections,
    /// The less loaded of two randomly drawn servers (Mitzenmacher, "The Power of Two Choices in
    /// Randomized Load Balancing", IEEE TPDS 2001).
    RandomTwo,
    /// Consistent hashing: the same key selects the same server. When servers come or go, only
    /// their own keys move.
    Hash(HashKey),
}

/// The part of a request that is hashed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HashKey {
    /// Address of the client.
    Client,
    /// Request target, including the query.
    Target,
    /// Host of the request.
    Host,
    /// Value of the field with this name.
    Field(String),
}

/// Settings of passive health checks.
///
/// A failure is a connection that fails or times out, or a response with status 502, 503 or 504.
#[derive(Clone, Copy, Debug)]
pub struct PassiveChecks {
    /// Number of consecutive failures after which a server is paused.
    pub max_fails: NonZeroU32,
    /// Time for which a failed server is paused. Afterwards it gets one request as a trial.
    pub fail_timeout: Duration,
}

/// Settings of active health checks.
#[derive(Clone, Debug)]
pub struct HealthCheck {
    /// Request target of the GET request.
    pub path: String,
    /// Value of the Host field. Defaults to the address of the server.
    pub host: Option<String>,
    /// Interval between checks of a server.
    pub interval: Duration,
    /// Timeout of a check.
    pub timeout: Duration,
    /// Number of consecutive failed checks after which a server is down.
    pub fall: NonZeroU32,
    /// Number of consecutive successful checks after which a server is up.
    pub rise: NonZeroU32,
    /// Status of a healthy response; 200 to 399 if `None`.
    pub status: Option<u16>,
}

/// Settings of a forward proxy.
#[derive(Clone, Debug, Default)]
pub struct Forward {
    /// Servers that clients may access. If empty, all public servers.
    pub allow: Vec<Rule>,
    /// Servers that clients may not access. Takes precedence over `allow`.
    pub deny: Vec<Rule>,
    /// Ports that tunnels (CONNECT) may use; only 443 if empty.
    pub connect_ports: Vec<u16>,
    /// Maximum number of idle upstream connections kept open, over all workers.
    pub keepalive: usize,
}

/// An access rule that matches servers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Rule {
    /// Addresses in a network, given by an address and a prefix length. Only such a rule allows
    /// access to addresses of this host and of private networks.
    Network(std::net::IpAddr, u8),
    /// A host name in lower case.
    Name(String),
    /// A domain and all its subdomains, in lower case: `.example.org`.
    Domain(String),
}

/// Settings of the forwarding header fields.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fields {
    /// Name of the proxy in `Via`. If empty, the field is not added. A request whose `Via` contains
    /// this name is answered with 508 (Loop Detected). The default is random, so that proxies have
    /// different names.
    pub via: String,
    /// Policy for `X-Forwarded-For`, `X-Forwarded-Proto` and `X-Forwarded-Host`.
    pub x_forwarded: HeaderPolicy,
    /// Policy for `Forwarded` (RFC 7239).
    pub forwarded: HeaderPolicy,
    /// Whether to send the client's Host to the server. Otherwise, Host is the server's address.
    pub preserve_host: bool,
    /// Name of the field with the subject of the client's certificate, if any.
    pub client_subject: Option<String>,
    /// Time in seconds in Strict-Transport-Security, which is added to responses without this field.
    pub hsts: Option<u64>,
}

/// Timeouts of the upstream side.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// Time that a request may spend in the queue (503).
    pub queue: Duration,
    /// Time to connect to a server, including name resolution (504 after the last attempt).
    pub connect: Duration,
    /// Time for the server to receive the next part of a request (504).
    pub send: Duration,
    /// Time from the end of the request to the end of the response head (504).
    pub response_header: Duration,
    /// Time between two reads of a response body. When it expires, the client connection is closed.
    pub response_body: Duration,
    /// Time for a complete request, from its head to the end of the response (504, or the client
    /// connection is closed). Zero disables the timeout.
    pub request: Duration,
    /// Time without bytes in either direction after which a tunnel is closed.
    pub tunnel: Duration,
    /// Time for which an idle upstream connection stays open.
    pub keepalive: Duration,
}

impl Config {
    /// Creates default settings for a mode.
    pub fn new(mode: ProxyMode) -> Config {
        Config {
            mode,
            timeouts: Timeouts::default(),
            limits: hearken_http::Limits::default(),
            max_body_bytes: None,
            fields: Fields::default(),
            splice: true,
        }
    }
}

impl Upstreams {
    /// Creates default settings for servers.
    pub fn new(servers: Vec<Server>) -> Upstreams {
        Upstreams {
            servers,
            balance: Balance::RoundRobin,
            keepalive: 256,
            max_requests: None,
            max_queue: 1024,
            max_attempts: NonZeroU32::new(2).unwrap_or(NonZeroU32::MIN),
            passive: Some(PassiveChecks::default()),
            health: None,
            slow_start: Duration::ZERO,
            resolve_interval: Duration::from_secs(30),
            tls: None,
            tls_name: None,
            http2: true,
            send_proxy_protocol: None,
        }
    }
}

impl Server {
    /// Creates a server of weight 1 that is not a backup.
    pub fn new(address: Address) -> Server {
        Server { address, weight: NonZeroU16::MIN, backup: false, tls: false, http2: false }
    }
}

impl Upstreams {
    /// Returns the protocol of connections to one of the servers.
    pub(super) fn protocol(&self, server: &Server) -> Protocol {
        match (server.tls, server.http2) {
            (true, _) if self.http2 => Protocol::Negotiated,
            (false, true) => Protocol::Http2,
            _ => Protocol::Http1,
        }
    }
}

impl Default for PassiveChecks {
    fn default() -> PassiveChecks {
        PassiveChecks {
            max_fails: NonZeroU32::new(3).unwrap_or(NonZeroU32::MIN),
            fail_timeout: Duration::from_secs(10),
        }
    }
}

impl Default for HealthCheck {
    fn default() -> HealthCheck {
        HealthCheck {
            path: "/".to_owned(),
            host: None,
            interval: Duration::from_secs(5),
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
            x_forwarded: HeaderPolicy::Replace,
            forwarded: HeaderPolicy::Remove,
            preserve_host: true,
            client_subject: None,
            hsts: None,
        }
    }
}

/// Returns a random name such as `hearken-5eed1e55`.
fn random_name() -> String {
    format!("hearken-{:08x}", RandomState::new().build_hasher().finish() as u32)
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts {
            queue: Duration::from_secs(5),
            connect: Duration::from_secs(5),
            send: Duration::from_secs(30),
            response_header: Duration::from_secs(60),
            response_body: Duration::from_secs(30),
            request: Duration::ZERO,
            tunnel: Duration::from_secs(600),
            keepalive: Duration::from_secs(30),
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
