//! Starts a server: its handlers, its workers, and its background threads.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::sync::Arc;

use hearken::io::Relay;
use hearken_http::h2;
use hearken_tls::{ClientTls, ServerTls, TlsIo, TlsLimits};

use crate::admin;
use crate::config::{Config, Handler};
use crate::event_loop::EventLoop;
use crate::front::{self, Front, Settings};
use crate::proxy;
use crate::redirect;
use crate::routes::{Routes, Selected};
use crate::runtime::access_log::AccessLog;
use crate::runtime::administration::{AdminSources, UpstreamControl};
use crate::runtime::certificate_watch::CertificateWatch;
use crate::runtime::event_loops::Model;
use crate::runtime::metrics::{Metrics, UpstreamStats};
use crate::runtime::server::{self, Server, StartError, StopFlag, WorkerContext, start_workers};
use crate::static_files::handler::StaticFiles;
use crate::static_files::{Disk, Files, Site, SiteConfig};
use crate::task_loop::TaskLoop;

/// Starts a server. The server accepts connections when this function returns.
///
/// ```
/// use hearken_server::static_files::SiteConfig;
/// use hearken_server::{Config, start};
///
/// let mut config = Config::static_files(SiteConfig::default());
/// config.event_loops.listen = "127.0.0.1:0".parse()?;
/// let server = start(&config)?;
/// println!("listening on {}", server.addr());
/// server.handle().stop();
/// server.wait()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`StartError`] if a directory, an address, the access log, the mechanism or a thread is
/// unavailable. An unreachable upstream server is not an error.
pub fn start(config: &Config) -> Result<Server, StartError> {
    let workers = config.event_loops.worker_limit();
    let metrics = match config.event_loops.model.has_thread_per_connection() {
        true => Metrics::new(workers).summed(),
        false => Metrics::new(workers),
    };
    let metrics = Arc::new(metrics);
    let mut routes = Vec::new();
    let mut proxies = Vec::new();
    let mut warnings = Vec::new();
    let mut profiles = Vec::new();
    for route in &config.routes {
        let handler = match &route.handler {
            Handler::StaticFiles(site) => {
                let site = SiteConfig { hsts: config.hsts_seconds(), ..site.clone() };
                Prepared::StaticFiles(site, Disk)
            }
            Handler::Proxy(proxy) => {
                let mut proxy = proxy.clone();
                proxy.fields.hsts = config.hsts_seconds();
                let (mut shared, threads, warned) = proxy::SharedState::start(&proxy, workers)?;
                shared.add_tls(&mut profiles);
                warnings.extend(warned);
                proxies.push((shared.clone(), threads));
                Prepared::Proxy(shared)
            }
        };
        routes.push((route.prefix.clone(), handler));
    }
    let service = Service { config: Arc::new(config.clone()), routes: routes.into() };
    let log = config.access_log.as_deref();
    let loops = &config.event_loops;
    if service.routes.is_empty() {
        return Err(StartError::NoHandler);
    }
    // A server with only static files is monomorphised separately: its hot path does not select a
    // handler.
    let connects = service.connects();
    let mut server = if config.tls.is_some() || !profiles.is_empty() {
        let (accepts, profiles) = (config.tls.clone(), profiles.into());
        let service = TlsService { service, accepts, profiles };
        start_workers(loops, connects, log, &metrics, &service)?
    } else if service.is_static() {
        start_workers(loops, connects, log, &metrics, &StaticService(service))?
    } else {
        start_workers(loops, connects, log, &metrics, &service)?
    };
    server.add_warnings(warnings);
    if let Some(tls) = &config.tls {
        metrics.set_tls(tls.clone());
        server.add_background(CertificateWatch::start(tls.clone(), config.on_tls_reload)?);
    }
    let mut upstreams: Vec<Arc<dyn UpstreamControl>> = Vec::new();
    for (shared, mut threads) in proxies {
        let seed = RandomState::new().build_hasher().finish();
        shared.start_background(&mut threads, server.wakers(), seed)?;
        server.add_background(threads);
        upstreams.push(Arc::new(shared));
    }
    if let Some(addr) = config.redirect {
        let redirect = redirect::start(addr, server.addr().port())?;
        server.set_redirect_addr(redirect.addr());
        server.add_background(redirect);
    }
    if let Some(addr) = config.admin {
        let sources = admin_sources(&metrics, upstreams, server.stopping(), Metrics::render);
        let admin = admin::start(addr, sources)?;
        server.set_admin_addr(admin.addr());
        server.add_background(admin);
    }
    Ok(server)
}

/// Collects the data and commands of the admin address. `render` appends the metrics page.
pub(crate) fn admin_sources(
    metrics: &Arc<Metrics>,
    upstreams: Vec<Arc<dyn UpstreamControl>>,
    stopping: StopFlag,
    render: fn(&Metrics, &[UpstreamStats], &mut String),
) -> AdminSources {
    let (metrics, all) = (metrics.clone(), upstreams.clone());
    let metrics = move |now, out: &mut String| {
        let stats: Vec<_> = all.iter().flat_map(|all| all.stats(now)).collect();
        render(&metrics, &stats, out);
    };
    AdminSources { metrics: Box::new(metrics), upstreams, stopping }
}

/// The shared part of a handler, from which each worker creates its own.
#[derive(Clone)]
pub(crate) enum Prepared<F> {
    StaticFiles(SiteConfig, F),
    Proxy(proxy::SharedState),
}

/// Creates workers with handlers selected by routes.
#[derive(Clone)]
pub(crate) struct Service<F> {
    pub(crate) config: Arc<Config>,
    pub(crate) routes: Arc<[(String, Prepared<F>)]>,
}

/// Creates workers that serve the files of one directory.
#[derive(Clone)]
pub(crate) struct StaticService<F>(pub(crate) Service<F>);

/// Creates the workers of a service over TLS.
#[derive(Clone)]
pub(crate) struct TlsService<F> {
    pub(crate) service: Service<F>,
    /// TLS of clients, if they use it.
    pub(crate) accepts: Option<ServerTls>,
    /// TLS settings of connections to servers.
    pub(crate) profiles: Arc<[ClientTls]>,
}

impl<F: Files> server::Service for TlsService<F> {
    fn worker<I: Relay + 'static>(
        self,
        io: I,
        context: &WorkerContext,
    ) -> Result<Box<dyn server::Worker>, StartError> {
        let mut limits = TlsLimits::default();
        limits.handshake_timeout = self.service.config.timeouts.header;
        let mut io = TlsIo::new(io, limits);
        io.set_accepts(self.accepts);
        io.set_profiles(self.profiles);
        self.service.worker(io, context)
    }
}

impl<F: Files> Service<F> {
    /// Returns whether the files of one directory are served at all paths.
    pub(crate) fn is_static(&self) -> bool {
        matches!(&*self.routes, [(prefix, Prepared::StaticFiles(..))] if prefix == "/")
    }

    /// Returns whether the workers open upstream connections.
    pub(crate) fn connects(&self) -> bool {
        self.routes.iter().any(|(_, handler)| matches!(handler, Prepared::Proxy(_)))
    }

    fn needs_peers(&self) -> bool {
        let by_handler = self.routes.iter().any(|(_, handler)| match handler {
            Prepared::Proxy(proxy) => proxy.needs_client_addresses(),
            Prepared::StaticFiles(..) => false,
        });
        by_handler || self.config.access_log.is_some() || !self.config.proxy_protocol.is_empty()
    }

    /// Creates a worker of the configured model.
    fn driver<I: Relay + 'static, H: front::Handler<I> + 'static>(
        &self,
        io: I,
        handler: H,
        context: &WorkerContext,
    ) -> Result<Box<dyn server::Worker>, StartError> {
        let config = &self.config;
        let settings = Settings {
            timeouts: config.timeouts,
            min_rate: config.min_rate,
            limits: config.limits,
            half_close: config.half_close,
            proxy_protocol: config.proxy_protocol.clone(),
            needs_peers: self.needs_peers(),
            hsts: config.hsts_seconds(),
            http2: config.http2.then(|| h2::Config {
                limits: h2::Limits { head: config.limits, ..h2::Limits::default() },
                extended_connect: self.connects(),
                seed: context.seed,
                ..h2::Config::default()
            }),
        };
        let log = context.log.clone().map(|sink| AccessLog::new(sink, config.log_format));
        let front = Front::new(settings, context.limits.descriptors, log, context.worker_metrics());
        if context.own_table {
            front.metrics().mark_own_table();
        }
        let (loops, peers) = (&config.event_loops, self.needs_peers());
        let worker: io::Result<Box<dyn server::Worker>> = match loops.model {
            Model::Tasks => TaskLoop::new(io, front, handler, context, loops, peers)
                .map(|worker| Box::new(worker) as _),
            Model::Events | Model::Hybrid | Model::Threads | Model::Pool => {
                EventLoop::new(io, front, handler, context, loops, peers)
                    .map(|worker| Box::new(worker) as _)
            }
        };
        worker.map_err(|error| StartError::Listen { addr: context.listen, error })
    }
}

/// Opens a directory for one worker.
fn static_files<F: Files>(
    (site, files): (&SiteConfig, &F),
    route: u32,
    context: &WorkerContext,
) -> Result<StaticFiles<F>, StartError> {
    let mut site = site.clone();
    site.max_open_files = site.max_open_files.min(context.limits.open_files);
    site.max_cache_bytes /= context.limits.cache_shares;
    let seed = context.seed.wrapping_add(route.into());
    let opened = Site::open_in(files.clone(), &site, seed).map_err(|error| {
        let name = site.root.display().to_string();
        StartError::Handler { name, error }
    })?;
    Ok(StaticFiles::new(opened, site.max_body_bytes))
}

impl<F: Files> server::Service for Service<F> {
    fn worker<I: Relay + 'static>(
        self,
        io: I,
        context: &WorkerContext,
    ) -> Result<Box<dyn server::Worker>, StartError> {
        let mut routes = Vec::new();
        for (number, (prefix, handler)) in (0..).zip(&*self.routes) {
            let selected = match handler {
                Prepared::StaticFiles(site, files) => {
                    Selected::StaticFiles(Box::new(static_files((site, files), number, context)?))
                }
                Prepared::Proxy(proxy) => Selected::Proxy(Box::new(proxy.handler(context, number))),
            };
            routes.push((prefix.clone(), selected));
        }
        self.driver(io, Routes::new(routes), context)
    }
}

impl<F: Files> server::Service for StaticService<F> {
    fn worker<I: Relay + 'static>(
        self,
        io: I,
        context: &WorkerContext,
    ) -> Result<Box<dyn server::Worker>, StartError> {
        let StaticService(service) = self;
        match &*service.routes {
            [(_, Prepared::StaticFiles(site, files))] => {
                service.driver(io, static_files((site, files), 0, context)?, context)
            }
            _ => Err(StartError::NoHandler),
        }
    }
}
