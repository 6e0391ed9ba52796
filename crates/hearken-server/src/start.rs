//! Starts a server: its handlers, its workers, and its background threads.

use std::sync::Arc;

use hearken::io::Relay;

use crate::admin;
use crate::config::{Config, Handler};
use crate::event_loop::EventLoop;
use crate::front::{self, Front, Settings};
use crate::proxy;
use crate::routes::{Routes, Selected};
use crate::runtime::access_log::AccessLog;
use crate::runtime::administration::{AdminSources, UpstreamControl};
use crate::runtime::metrics::Metrics;
use crate::runtime::server::{self, Server, StartError, WorkerContext, start_workers};
use crate::static_files::handler::StaticFiles;
use crate::static_files::{Site, SiteConfig};

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
    let workers = config.event_loops.workers.get();
    let metrics = Arc::new(Metrics::new(workers));
    let mut routes = Vec::new();
    let mut proxies = Vec::new();
    let mut warnings = Vec::new();
    for route in &config.routes {
        let handler = match &route.handler {
            Handler::StaticFiles(site) => Prepared::StaticFiles(site.clone()),
            Handler::Proxy(proxy) => {
                let (shared, threads, warned) = proxy::SharedState::start(proxy, workers)?;
                warnings.extend(warned);
                proxies.push((shared.clone(), threads));
                Prepared::Proxy(shared)
            }
        };
        routes.push((route.prefix.clone(), handler));
    }
    let service = Service { config: Arc::new(config.clone()), routes: routes.into() };
    let connects = !proxies.is_empty();
    let log = config.access_log.as_deref();
    let loops = &config.event_loops;
    let mut server = match &*service.routes {
        [] => return Err(StartError::NoHandler),
        // A server with only static files is monomorphised separately: its hot path does not
        // select a handler.
        [(prefix, Prepared::StaticFiles(_))] if prefix == "/" => {
            start_workers(loops, false, log, &metrics, &StaticService(service))?
        }
        _ => start_workers(loops, connects, log, &metrics, &service)?,
    };
    server.add_warnings(warnings);
    let mut upstreams: Vec<Arc<dyn UpstreamControl>> = Vec::new();
    for (shared, mut threads) in proxies {
        shared.start_background(&mut threads, server.wakers())?;
        server.add_background(threads);
        upstreams.push(Arc::new(shared));
    }
    if let Some(addr) = config.admin {
        let all = upstreams.clone();
        let sources = AdminSources {
            metrics: Box::new(move |out| {
                let stats: Vec<_> = all.iter().flat_map(|all| all.stats()).collect();
                metrics.render(&stats, out);
            }),
            upstreams,
            stopping: server.stopping(),
        };
        let admin =
            admin::start(addr, sources).map_err(|error| StartError::Listen { addr, error })?;
        server.set_admin_addr(admin.addr());
        server.add_background(admin);
    }
    Ok(server)
}

/// The shared part of a handler, from which each worker creates its own.
#[derive(Clone)]
enum Prepared {
    StaticFiles(SiteConfig),
    Proxy(proxy::SharedState),
}

/// Creates workers with handlers selected by routes.
#[derive(Clone)]
struct Service {
    config: Arc<Config>,
    routes: Arc<[(String, Prepared)]>,
}

/// Creates workers that serve the files of one directory.
#[derive(Clone)]
struct StaticService(Service);

impl Service {
    fn needs_peers(&self) -> bool {
        let by_handler = self.routes.iter().any(|(_, handler)| match handler {
            Prepared::Proxy(proxy) => proxy.needs_client_addresses(),
            Prepared::StaticFiles(_) => false,
        });
        by_handler || self.config.access_log.is_some() || !self.config.proxy_protocol.is_empty()
    }

    fn event_loop<I: Relay, H: front::Handler<I>>(
        &self,
        io: I,
        handler: H,
        context: &WorkerContext,
    ) -> Result<EventLoop<I, H>, StartError> {
        let config = &self.config;
        let settings = Settings {
            timeouts: config.timeouts,
            min_rate: config.min_rate,
            limits: config.limits,
            half_close: config.half_close,
            proxy_protocol: config.proxy_protocol.clone(),
            needs_peers: self.needs_peers(),
        };
        let log = context.log.clone().map(|sink| AccessLog::new(sink, config.log_format));
        let front = Front::new(settings, context.limits.descriptors, log, context.worker_metrics());
        if context.own_table {
            front.metrics().mark_own_table();
        }
        EventLoop::new(io, front, handler, context, &config.event_loops, self.needs_peers())
            .map_err(|error| StartError::Listen { addr: context.listen, error })
    }
}

/// Opens a directory for one worker.
fn static_files(site: &SiteConfig, context: &WorkerContext) -> Result<StaticFiles, StartError> {
    let mut site = site.clone();
    site.max_open_files = site.max_open_files.min(context.limits.open_files);
    let opened = Site::open(&site).map_err(|error| {
        let name = site.root.display().to_string();
        StartError::Handler { name, error }
    })?;
    Ok(StaticFiles::new(opened, site.max_body_bytes))
}

impl server::Service for Service {
    fn worker<I: Relay>(
        self,
        io: I,
        context: &WorkerContext,
    ) -> Result<impl server::Worker, StartError> {
        let mut routes = Vec::new();
        for (number, (prefix, handler)) in self.routes.iter().enumerate() {
            let selected = match handler {
                Prepared::StaticFiles(site) => {
                    Selected::StaticFiles(Box::new(static_files(site, context)?))
                }
                Prepared::Proxy(proxy) => {
                    Selected::Proxy(Box::new(proxy.handler(context, number as u32)))
                }
            };
            routes.push((prefix.clone(), selected));
        }
        self.event_loop(io, Routes::new(routes), context)
    }
}

impl server::Service for StaticService {
    fn worker<I: Relay>(
        self,
        io: I,
        context: &WorkerContext,
    ) -> Result<impl server::Worker, StartError> {
        let StaticService(service) = self;
        let site = match &*service.routes {
            [(_, Prepared::StaticFiles(site))] => site.clone(),
            _ => SiteConfig::default(),
        };
        service.event_loop(io, static_files(&site, context)?, context)
    }
}
