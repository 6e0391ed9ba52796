//! The settings of a server, and their defaults.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::front::{HalfClose, Timeouts};
use crate::proxy;
use crate::runtime::access_log::LogFormat;
use crate::runtime::event_loops::Loops;
use crate::runtime::network::Network;
use crate::static_files::SiteConfig;

/// A server's settings.
#[derive(Clone, Debug)]
pub struct Config {
    /// Handlers, by the paths that they answer. At least one.
    pub routes: Vec<Route>,
    /// The listening socket and the event loops.
    pub loops: Loops,
    /// Timeouts of the client side.
    pub timeouts: Timeouts,
    /// Minimum rate in bytes per second at which a client takes a response, and sends a body. If 0,
    /// a client that takes nothing for [`Timeouts::send`], or sends nothing for
    /// [`Timeouts::body`], is too slow.
    pub min_rate: u64,
    /// Maximum size of a request's head.
    pub limits: hearken_http::Limits,
    /// Treatment of a client that half-closes the connection.
    pub half_close: HalfClose,
    /// Networks whose connections begin with a PROXY protocol header, version 1 or 2, which tells
    /// the client's address. A connection from there that does not is closed; on connections from
    /// elsewhere a header is a malformed request.
    pub proxy_protocol: Vec<Network>,
    /// The access log, with a line for each request; `-` for standard output.
    pub access_log: Option<PathBuf>,
    /// The format of the access log.
    pub log_format: LogFormat,
    /// Address at which metrics are served and upstream servers are controlled, if any.
    pub admin: Option<SocketAddr>,
}

/// The handler of the requests whose path begins with a prefix.
#[derive(Clone, Debug)]
pub struct Route {
    /// Prefix of the path, from its first slash; whole segments if it ends with a slash. The
    /// longest that matches counts. Requests without a path, such as CONNECT, go to `/`.
    pub prefix: String,
    /// The handler.
    pub handler: Handler,
}

/// Settings of a handler.
#[derive(Clone, Debug)]
pub enum Handler {
    /// Serves the files of a directory.
    StaticFiles(SiteConfig),
    /// Passes requests on to other servers.
    Proxy(Box<proxy::Config>),
}

impl Config {
    /// Creates settings with this handler for all requests, and defaults otherwise.
    pub fn new(handler: Handler) -> Config {
        Config {
            routes: vec![Route { prefix: "/".to_owned(), handler }],
            loops: Loops::default(),
            timeouts: Timeouts::default(),
            min_rate: 256,
            limits: hearken_http::Limits::default(),
            half_close: HalfClose::Waits,
            proxy_protocol: Vec::new(),
            access_log: None,
            log_format: LogFormat::Combined,
            admin: None,
        }
    }

    /// Creates settings to serve the files of a directory.
    pub fn static_files(site: SiteConfig) -> Config {
        Config::new(Handler::StaticFiles(site))
    }

    /// Creates settings to pass requests on.
    pub fn proxy(proxy: proxy::Config) -> Config {
        Config::new(Handler::Proxy(Box::new(proxy)))
    }

    /// Returns the settings of the first static handler.
    pub fn site(&mut self) -> Option<&mut SiteConfig> {
        self.routes.iter_mut().find_map(|route| match &mut route.handler {
            Handler::StaticFiles(site) => Some(site),
            Handler::Proxy(_) => None,
        })
    }

    /// Returns the settings of the first proxy.
    pub fn first_proxy(&mut self) -> Option<&mut proxy::Config> {
        self.routes.iter_mut().find_map(|route| match &mut route.handler {
            Handler::Proxy(proxy) => Some(&mut **proxy),
            Handler::StaticFiles(_) => None,
        })
    }
}
