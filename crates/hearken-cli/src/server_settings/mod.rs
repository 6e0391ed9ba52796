//! The settings of `hearken serve` and `hearken proxy`.

use std::io::{self, Write};
use std::num::NonZeroU32;
use std::path::PathBuf;

use hearken_server::config::Handler;
use hearken_server::proxy::config::{Forward, HealthCheck, PassiveChecks, ProxyMode, Upstreams};
use hearken_server::runtime::network::Network;
use hearken_server::static_files::SiteConfig;
use hearken_server::{Config, proxy};

use crate::Failure;
use crate::settings::Table;

pub(crate) mod address;
mod formats;
mod preset;
mod rule;
mod table;
#[cfg(test)]
mod tests;
mod tls;
mod validate;

pub(crate) use formats::print_balance;
pub(crate) use validate::{validate_proxy, validate_serve};

/// The configuration of both commands. [`table`] describes its fields.
#[derive(Clone)]
pub(crate) struct Options {
    /// The server of the literature whose settings were applied.
    preset: Option<preset::Preset>,
    /// The server without its handler.
    server: Config,
    tls: tls::Tls,
    upstream_tls: tls::UpstreamTls,
    root: Option<PathBuf>,
    site: SiteConfig,
    /// The proxy without `to`.
    proxy: proxy::Config,
    /// Name in `Via`; the default is random.
    via: Option<String>,
    is_forward: bool,
    upstreams: Upstreams,
    /// Connections kept open to each upstream server, or by a forward proxy.
    keepalive: usize,
    /// Consecutive failures after which a server is unavailable. Zero turns this off.
    max_fails: u32,
    fail_timeout: std::time::Duration,
    health_path: Option<String>,
    health: HealthCheck,
    forward: Forward,
    proxy_protocol: Vec<Networks>,
    /// Limit of signals queued for the process.
    pub(crate) rt_queue: Option<u64>,
}

/// Networks, and the text that stands for them.
#[derive(Clone)]
struct Networks {
    text: String,
    networks: Vec<Network>,
}

pub(crate) const SERVE: Table<Options> = Table {
    command: "hearken serve",
    bit: table::SERVE,
    settings: table::SETTINGS,
    sections: table::SECTIONS,
    defaults: Options::default,
};

pub(crate) const PROXY: Table<Options> =
    Table { command: "hearken proxy", bit: table::PROXY, ..SERVE };

impl Default for Options {
    fn default() -> Options {
        let upstreams = Upstreams::new(Vec::new());
        let passive = upstreams.passive.unwrap_or_default();
        Options {
            preset: None,
            server: Config { routes: Vec::new(), ..Config::static_files(SiteConfig::default()) },
            tls: tls::Tls::default(),
            upstream_tls: tls::UpstreamTls::default(),
            root: None,
            site: SiteConfig::default(),
            proxy: proxy::Config::new(ProxyMode::Forward(Forward::default())),
            via: None,
            is_forward: false,
            keepalive: upstreams.keepalive,
            max_fails: passive.max_fails.get(),
            fail_timeout: passive.fail_timeout,
            health_path: None,
            health: HealthCheck::default(),
            forward: Forward::default(),
            upstreams,
            proxy_protocol: Vec::new(),
            rt_queue: None,
        }
    }
}

impl Options {
    /// Reads the files of certificates.
    pub(crate) fn load_tls(&mut self) -> Result<(), Failure> {
        self.server.tls = self.tls.load(self.server.http2).map_err(Failure::usage)?;
        if self.has_secure_upstream() {
            self.upstreams.tls = Some(self.upstream_tls.load().map_err(Failure::usage)?);
        }
        Ok(())
    }

    /// Returns whether an upstream server uses TLS.
    fn has_secure_upstream(&self) -> bool {
        self.upstreams.servers.iter().any(|server| server.tls)
    }

    /// Returns the configuration of a server for static files.
    pub(crate) fn into_static_files(self) -> Config {
        let site = SiteConfig { root: self.root.clone().unwrap_or_default(), ..self.site.clone() };
        self.into_config(Handler::StaticFiles(site))
    }

    /// Returns the configuration of a proxy.
    pub(crate) fn into_proxy(self) -> Config {
        let mut proxy = self.proxy.clone();
        proxy.limits = self.server.limits;
        if let Some(via) = &self.via {
            proxy.fields.via.clone_from(via);
        }
        proxy.mode = match self.is_forward {
            true => {
                ProxyMode::Forward(Forward { keepalive: self.keepalive, ..self.forward.clone() })
            }
            false => ProxyMode::Reverse(Upstreams {
                keepalive: self.keepalive,
                passive: NonZeroU32::new(self.max_fails)
                    .map(|max_fails| PassiveChecks { max_fails, fail_timeout: self.fail_timeout }),
                health: self
                    .health_path
                    .clone()
                    .map(|path| HealthCheck { path, ..self.health.clone() }),
                ..self.upstreams.clone()
            }),
        };
        self.into_config(Handler::Proxy(Box::new(proxy)))
    }

    fn into_config(self, handler: Handler) -> Config {
        let mut config = Config { routes: Config::new(handler).routes, ..self.server };
        config.proxy_protocol =
            self.proxy_protocol.into_iter().flat_map(|it| it.networks).collect();
        config.on_tls_reload = crate::serve::report_reload;
        config.event_loops.on_limit = |limit| {
            // Standard error may be closed.
            let _ = writeln!(io::stderr(), "hearken: {limit}");
        };
        config
    }

    /// Returns one line that describes the proxy.
    pub(crate) fn summary(&self) -> String {
        let kind = match self.is_forward {
            true => "forward proxy".to_owned(),
            false => {
                let balance = print_balance(&self.upstreams.balance);
                format!("reverse proxy {}, {balance}", self.destination())
            }
        };
        format!("{kind}, listening on {}", self.listen())
    }

    /// Returns `to 2 servers`, or `to any server`.
    pub(crate) fn destination(&self) -> String {
        match (self.is_forward, self.upstreams.servers.len()) {
            (true, _) => "to any server".to_owned(),
            (false, 1) => "to 1 server".to_owned(),
            (false, count) => format!("to {count} servers"),
        }
    }

    pub(crate) fn listen(&self) -> std::net::SocketAddr {
        self.server.event_loops.listen
    }

    pub(crate) fn root(&self) -> Option<&PathBuf> {
        self.root.as_ref()
    }
}
