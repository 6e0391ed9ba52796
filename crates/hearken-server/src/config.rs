//! Settings of a server and their defaults.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use hearken_tls::ServerTls;
use hearken_tls::server::ServerTlsError;

use crate::front::{HalfClose, Timeouts};
use crate::proxy;
use crate::runtime::access_log::LogFormat;
use crate::runtime::event_loops::EventLoopConfig;
use crate::runtime::network::Network;
use crate::static_files::SiteConfig;

/// Settings of a server.
///
/// [`static_files`](Config::static_files) and [`proxy`](Config::proxy) create settings with defaults.
/// Change the fields before the call of [`start`](crate::start()).
#[derive(Clone, Debug)]
pub struct Config {
    /// Handlers and the paths that they serve. At least one.
    pub routes: Vec<Route>,
    /// Settings of the listening socket and the event loops.
    pub event_loops: EventLoopConfig,
    /// TLS of the listening socket. The server reads files that change again. The caller can also
    /// [reload](ServerTls::reload) a clone.
    pub tls: Option<ServerTls>,
    /// Function that reports that changed certificates and keys were read, or why they cannot be used.
    /// A thread of the server calls it.
    pub on_tls_reload: fn(&Result<(), ServerTlsError>),
    /// Address at which clients without TLS are redirected to the listening socket with TLS.
    pub redirect: Option<SocketAddr>,
    /// Time for which browsers must use TLS, from each response on (RFC 6797). Ignored without TLS.
    pub hsts: Option<Duration>,
    /// Timeouts of the client side.
    pub timeouts: Timeouts,
    /// Minimum rate in bytes per second at which a client must receive a response and send a
    /// request body. If 0, a client must transfer at least one byte per timeout.
    pub min_rate: u64,
    /// Maximum size of the head of a request.
    pub limits: hearken_http::Limits,
    /// Whether clients may use HTTP/2: over TLS if both sides support it, and without TLS if they begin
    /// with its preface.
    pub http2: bool,
    /// Treatment of a client that half-closes the connection.
    pub half_close: HalfClose,
    /// Networks whose connections start with a PROXY protocol header (version 1 or 2) that contains
    /// the client's address. The server closes connections from these networks that have no header.
    /// On connections from other networks, a header is a malformed request.
    pub proxy_protocol: Vec<Network>,
    /// Path of the access log, with one line per request; `-` for standard output.
    pub access_log: Option<PathBuf>,
    /// Format of the access log.
    pub log_format: LogFormat,
    /// Admin address for metrics and for the control of upstream servers.
    pub admin: Option<SocketAddr>,
}

/// A handler and the prefix of the paths that it serves.
#[derive(Clone, Debug)]
pub struct Route {
    /// Prefix of the path, including the first slash. A prefix that ends with a slash matches whole
    /// segments. The longest matching prefix wins. Requests without a path, such as CONNECT, match
    /// `/`.
    pub prefix: String,
    /// The handler.
    pub handler: Handler,
}

/// Settings of a handler.
#[derive(Clone, Debug)]
pub enum Handler {
    /// Serves the files of a directory.
    StaticFiles(SiteConfig),
    /// Forwards requests to other servers.
    Proxy(Box<proxy::Config>),
}

impl Config {
    /// Creates default settings with one handler for all paths.
    pub fn new(handler: Handler) -> Config {
        Config {
            routes: vec![Route { prefix: "/".to_owned(), handler }],
            event_loops: EventLoopConfig::default(),
            tls: None,
            on_tls_reload: |_| (),
            redirect: None,
            hsts: None,
            timeouts: Timeouts::default(),
            min_rate: 256,
            limits: hearken_http::Limits::default(),
            http2: true,
            half_close: HalfClose::Respond,
            proxy_protocol: Vec::new(),
            access_log: None,
            log_format: LogFormat::Combined,
            admin: None,
        }
    }

    /// Creates settings to serve the files of a directory.
    ///
    /// ```
    /// use hearken_server::Config;
    /// use hearken_server::static_files::SiteConfig;
    ///
    /// let mut site = SiteConfig::default();
    /// site.root = "/srv/www".into();
    /// let config = Config::static_files(site);
    /// assert_eq!(config.routes[0].prefix, "/");
    /// ```
    pub fn static_files(site: SiteConfig) -> Config {
        Config::new(Handler::StaticFiles(site))
    }

    /// Creates settings to forward requests to other servers.
    ///
    /// ```
    /// use hearken_server::{Config, proxy};
    /// use proxy::config::{Address, ProxyMode, Server, Upstreams};
    ///
    /// let server = Server::new(Address::Inet("127.0.0.1:8080".parse()?));
    /// let upstreams = Upstreams::new(vec![server]);
    /// let config = Config::proxy(proxy::Config::new(ProxyMode::Reverse(upstreams)));
    /// assert!(config.access_log.is_none());
    /// # Ok::<(), std::net::AddrParseError>(())
    /// ```
    pub fn proxy(proxy: proxy::Config) -> Config {
        Config::new(Handler::Proxy(Box::new(proxy)))
    }

    /// Returns the time of [`hsts`](Config::hsts) in seconds, if clients use TLS.
    pub(crate) fn hsts_seconds(&self) -> Option<u64> {
        self.hsts.filter(|_| self.tls.is_some()).map(|time| time.as_secs())
    }

    /// Returns the settings of the first static files handler.
    pub fn static_files_mut(&mut self) -> Option<&mut SiteConfig> {
        self.routes.iter_mut().find_map(|route| match &mut route.handler {
            Handler::StaticFiles(site) => Some(site),
            Handler::Proxy(_) => None,
        })
    }

    /// Returns the settings of the first proxy handler.
    pub fn proxy_mut(&mut self) -> Option<&mut proxy::Config> {
        self.routes.iter_mut().find_map(|route| match &mut route.handler {
            Handler::Proxy(proxy) => Some(&mut **proxy),
            Handler::StaticFiles(_) => None,
        })
    }
}
