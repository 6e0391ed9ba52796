//! Histories of a proxy: real workers, health checks and name lookups, between clients and origins
//! of every kind.

mod checks;
mod form;
mod lateness;
mod requests;
mod usage;

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::num::{NonZeroU16, NonZeroU32, NonZeroUsize};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use hearken::io::sim::{SimIo, SimIoSettings, World};
use hearken::timer::Time;
use hearken_server::proxy::config::{
    Address, Balance, Config as ProxyConfig, HashKey, HealthCheck, PassiveChecks, ProxyMode,
    ProxyProtocol, Server, Timeouts as ProxyTimeouts, Upstreams,
};
use hearken_server::runtime::access_log::LogFormat;
use hearken_server::runtime::administration::UpstreamCommand;
use hearken_server::runtime::network::Network;
use hearken_server::simulation::{Memory, SimulatedProxy, SimulatedServer};
use hearken_server::{Config, HalfClose, Timeouts};

use crate::client::{ClientSettings, Records};
use crate::clients::ClientGroup;
use crate::handshakes::Bounds;
use crate::history::Simulation;
use crate::kinds::{Check, Kind, worker};
use crate::origin::{self, HEALTH_PATH, OriginSettings, Origins};
use crate::scheduler::Program;
use crate::swarm::{FaultLevel, Swarm};
use checks::Facts;
pub(super) use form::Form;
use requests::{Requested, Requests};

/// A proxy, its clients and its origins.
#[derive(Debug)]
pub(crate) struct Proxy;

pub(super) const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
const CLIENTS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 1, 1));
pub(super) const ORIGINS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 3, 1));
/// Port of the first origin.
pub(super) const FIRST_PORT: u16 = 8001;
/// Time after which clients begin, so that all workers listen.
pub(super) const WARM_UP: Duration = Duration::from_secs(2);

/// The limits that the checks compare with.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    client: Timeouts,
    server: ProxyTimeouts,
    half_close: HalfClose,
    grace: Duration,
    defer: Duration,
    max_attempts: u32,
    max_body: u64,
    /// Whether the number of client connections is limited.
    is_limited: bool,
    /// Whether origins do nothing that makes a request fail.
    has_good_origins: bool,
    form: Form,
    /// The version of the PROXY protocol header that clients send.
    client_header: Option<ProxyProtocol>,
    /// Maximum number of idle upstream connections of a worker.
    max_idle: usize,
    /// Maximum number of queued requests of a worker.
    max_queue: usize,
    /// Maximum number of bytes that are received ahead of their use, for each message.
    max_read_ahead: usize,
}

impl Limits {
    /// Returns a time within which something must happen on every connection.
    fn patience(&self) -> Duration {
        let Timeouts { header, body, upload, keepalive, send } = self.client;
        let of = &self.server;
        let upstream = of.queue + (of.connect + of.send + of.response_header) * self.max_attempts;
        let client = header + body + upload + keepalive + send * 2 + self.grace + self.defer;
        client + upstream * 2 + of.response_body + of.tunnel * 2 + Duration::from_secs(60)
    }
}

/// The drawn settings of a proxy and its origins.
struct Drawn {
    config: Config,
    limits: Limits,
    origins: OriginSettings,
}

fn non_zero(value: u32) -> NonZeroU32 {
    NonZeroU32::new(value).unwrap_or(NonZeroU32::MIN)
}

/// Draws the timeouts towards servers.
pub(super) fn draw_timeouts(simulation: &Simulation) -> ProxyTimeouts {
    let seconds = Duration::from_secs;
    let ms = Duration::from_millis;
    let draw = |values: &[Duration]| simulation.draw(values);
    ProxyTimeouts {
        queue: draw(&[seconds(5), seconds(1), ms(50)]),
        connect: draw(&[seconds(5), seconds(5), seconds(1), ms(100)]),
        send: draw(&[seconds(30), seconds(30), seconds(1), ms(200)]),
        response_header: draw(&[seconds(60), seconds(10), seconds(1), ms(200)]),
        response_body: draw(&[seconds(30), seconds(30), seconds(1), ms(200)]),
        request: draw(&[seconds(0), seconds(0), seconds(0), seconds(10), ms(500)]),
        tunnel: draw(&[seconds(600), seconds(10), ms(500)]),
        keepalive: draw(&[seconds(30), seconds(30), seconds(1), ms(20)]),
    }
}

/// Draws the settings of a proxy, and returns them with the maximum length of a request body.
pub(super) fn draw_config(
    simulation: &Simulation,
    server: ProxyTimeouts,
    mode: ProxyMode,
) -> (Config, u64) {
    let seconds = Duration::from_secs;
    let ms = Duration::from_millis;
    let draw = |values: &[Duration]| simulation.draw(values);
    let mut proxy = ProxyConfig::new(mode);
    proxy.timeouts = server;
    proxy.fields.via = "sim".to_owned();
    proxy.fields.preserve_host = simulation.draw(&[true, false]);
    proxy.splice = simulation.draw(&[true, false]);
    let max_body = simulation.draw(&[u64::MAX, u64::MAX, 10_000, 100]);
    proxy.max_body_bytes = (max_body < u64::MAX).then_some(max_body);
    let mut config = Config::proxy(proxy);
    config.timeouts = Timeouts {
        header: draw(&[seconds(10), seconds(10), seconds(1), ms(100)]),
        body: draw(&[seconds(30), seconds(30), seconds(1), ms(200)]),
        upload: draw(&[seconds(3600), seconds(60), seconds(2), ms(500)]),
        keepalive: draw(&[seconds(60), seconds(60), seconds(2), ms(50)]),
        send: draw(&[seconds(30), seconds(30), seconds(1), ms(300)]),
    };
    config.min_rate = simulation.draw(&[256, 256, 0, 64 * 1024]);
    config.half_close = simulation.draw(&[HalfClose::Respond, HalfClose::Cancel]);
    config.access_log = Some("access.log".into());
    config.log_format = LogFormat::Json;
    let loops = &mut config.event_loops;
    loops.listen = SocketAddr::new(ADDRESS, 80);
    loops.workers = NonZeroUsize::new(simulation.draw(&[1, 1, 2, 3]));
    loops.max_connections = NonZeroUsize::new(simulation.draw(&[0, 0, 0, 0, 3]));
    loops.defer_accept = draw(&[ms(0), ms(0), seconds(1)]);
    loops.shutdown_timeout = draw(&[seconds(10), seconds(10), seconds(1), ms(0)]);
    (config, max_body)
}

impl Drawn {
    fn new(simulation: &Simulation) -> Drawn {
        let form = Form::draw(simulation);
        let server = draw_timeouts(simulation);
        let mut origins = draw_origins(simulation, form, server.response_header);
        let (mode, max_attempts, max_idle, max_queue) = if form == Form::Forward {
            let forward = form::draw_forward(simulation, &mut origins);
            let keepalive = forward.keepalive;
            (ProxyMode::Forward(forward), form::MAX_ADDRESSES, keepalive, 0)
        } else {
            let mut upstreams = draw_upstreams(simulation, &origins.addresses);
            upstreams.send_proxy_protocol = form.draw_header(simulation);
            origins.proxy_protocol = upstreams.send_proxy_protocol.is_some();
            if form == Form::Tunnels && simulation.draw(&[false, false, false, true]) {
                upstreams.balance = Balance::Hash(HashKey::Host);
            }
            let (max_idle, max_queue) = (upstreams.keepalive, upstreams.max_queue);
            let max_attempts = upstreams.max_attempts.get();
            (ProxyMode::Reverse(upstreams), max_attempts, max_idle, max_queue)
        };
        let (mut config, max_body) = draw_config(simulation, server, mode);
        let workers = config.event_loops.workers.map_or(1, NonZeroUsize::get);
        let client_header = form.draw_header(simulation);
        if client_header.is_some() {
            config.proxy_protocol = vec![Network::new(CLIENTS, 24)];
        }
        let loops = &config.event_loops;
        let limits = Limits {
            client: config.timeouts,
            server,
            half_close: config.half_close,
            grace: loops.shutdown_timeout,
            defer: loops.defer_accept,
            max_attempts,
            max_body,
            is_limited: loops.max_connections.is_some(),
            has_good_origins: origins.misbehave == 0 && !origins.disconnect && !origins.delay,
            form,
            client_header,
            max_idle: max_idle.div_ceil(workers),
            max_queue: max_queue.div_ceil(workers),
            max_read_ahead: usage::max_read_ahead(&simulation.swarm),
        };
        Drawn { config, limits, origins }
    }
}

/// Returns the maximum length of bodies.
fn max_length(swarm: &Swarm) -> u64 {
    match swarm.network.min_window {
        _ if swarm.is_slow() => 300,
        0..=4096 => 20_000,
        _ => 70_000,
    }
}

fn draw_origins(simulation: &Simulation, form: Form, timeout: Duration) -> OriginSettings {
    let count = simulation.draw(&[3, 3, 2, 1]);
    let is_unix = form != Form::Forward && simulation.draw(&[false, false, false, true]);
    let address = |index: u16| match is_unix && index == 0 {
        true => hearken::io::Address::Unix(Path::new("/run/origin").into()),
        false => SocketAddr::new(ORIGINS, FIRST_PORT + index).into(),
    };
    OriginSettings {
        addresses: (0..count).map(address).collect(),
        misbehave: simulation.draw(&[0, 0, 50, 300]),
        disconnect: simulation.draw(&[false, true]),
        delay: simulation.draw(&[false, true]),
        timeout,
        max_length: max_length(&simulation.swarm),
        first_echo: usize::from(count),
        proxy_protocol: false,
    }
}

/// Draws how a proxy uses the servers at `addresses`. Some of them have names.
pub(super) fn draw_upstreams(
    simulation: &Simulation,
    addresses: &[hearken::io::Address],
) -> Upstreams {
    let seconds = Duration::from_secs;
    let ms = Duration::from_millis;
    let mut servers = Vec::new();
    for (index, address) in addresses.iter().enumerate() {
        let mut server = Server::new(match address {
            hearken::io::Address::Unix(path) => Address::Unix(path.to_path_buf()),
            hearken::io::Address::Inet(addr) => match simulation.draw(&[false, false, true]) {
                false => Address::Inet(*addr),
                true => Address::Name(format!("origin{index}.example"), addr.port()),
            },
        });
        server.weight = NonZeroU16::new(simulation.draw(&[1, 1, 3])).unwrap_or(NonZeroU16::MIN);
        server.backup = index > 0 && simulation.draw(&[false, false, false, true]);
        servers.push(server);
    }
    let mut upstreams = Upstreams::new(servers);
    upstreams.balance = match simulation.world.decide(7) {
        0 | 1 => Balance::RoundRobin,
        2 => Balance::LeastConnections,
        3 => Balance::RandomTwo,
        4 => Balance::Hash(HashKey::Target),
        5 => Balance::Hash(HashKey::Client),
        _ => Balance::Hash(HashKey::Field("X-Key".to_owned())),
    };
    upstreams.keepalive = simulation.draw(&[256, 256, 2, 1, 0]);
    upstreams.max_requests = NonZeroUsize::new(simulation.draw(&[0, 0, 1, 3]));
    upstreams.max_queue = simulation.draw(&[1024, 1024, 2, 0]);
    upstreams.max_attempts = non_zero(simulation.draw(&[2, 2, 1, 3]));
    upstreams.passive = simulation.draw(&[true, true, false]).then(|| PassiveChecks {
        max_fails: non_zero(simulation.draw(&[3, 1])),
        fail_timeout: simulation.draw(&[seconds(10), ms(100)]),
    });
    upstreams.health = simulation.draw(&[false, true]).then(|| HealthCheck {
        path: HEALTH_PATH.to_owned(),
        interval: simulation.draw(&[seconds(5), ms(500)]),
        timeout: simulation.draw(&[seconds(2), ms(100)]),
        fall: non_zero(simulation.draw(&[3, 1])),
        rise: non_zero(simulation.draw(&[2, 1])),
        ..HealthCheck::default()
    });
    upstreams.slow_start = simulation.draw(&[seconds(0), seconds(0), seconds(2)]);
    upstreams.resolve_interval = simulation.draw(&[seconds(30), seconds(1)]);
    upstreams
}

/// The proxy, its background programs, and when it was stopped.
struct Subject {
    server: SimulatedServer,
    /// Number of upstream servers of a reverse proxy.
    servers: usize,
    /// Whether some clients use HTTP/2.
    has_http2: bool,
    origins: Rc<Origins>,
    running: Cell<usize>,
    requested: Cell<Option<Time>>,
    ended: Cell<Option<Time>>,
}

impl Subject {
    fn stop(&self, world: &World) {
        if self.requested.get().is_none() {
            self.requested.set(Some(world.now()));
        }
        self.server.handle().stop();
    }

    fn run_worker(&self, index: usize, program: Program<'_>, swarm: &Swarm) {
        let world = program.host().world();
        if let Err(error) = worker::run(&self.server, index, program, &swarm.io) {
            program.report().fail("a worker failed", error.to_string());
        }
        if self.requested.get().is_none() {
            program.report().fail("a worker ended", "nothing stopped the proxy");
        }
        self.ended.set(Some(world.now()));
        self.running.set(self.running.get() - 1);
        if self.running.get() == 0 {
            self.server.proxies().iter().for_each(SimulatedProxy::stop);
            self.origins.stop();
        }
    }

    /// Gives commands for upstream servers at drawn times.
    fn run_commands(&self, program: Program<'_>) {
        let world = program.host().world().clone();
        let proxy = &self.server.proxies()[0];
        let servers = proxy.upstreams(world.now());
        if servers.is_empty() {
            return;
        }
        for _ in 0..1 + world.decide(4) {
            let pause = [1, 10, 100, 1_000][world.decide(4) as usize];
            program.sleep_until(world.now() + Duration::from_millis(pause));
            let name = &servers[world.decide(servers.len() as u32) as usize].name;
            let command = [UpstreamCommand::Ready, UpstreamCommand::Drain, UpstreamCommand::Off]
                [world.decide(3) as usize];
            if proxy.apply(name, command, world.now()).is_err() {
                program.report().fail("unknown upstream server", name.clone());
            }
        }
        for server in &servers {
            let _ = proxy.apply(&server.name, UpstreamCommand::Ready, world.now());
        }
    }
}

/// Performs health checks until the proxy stops.
pub(super) fn run_checks(proxy: &SimulatedProxy, program: Program<'_>) {
    let mut io = program.io(SimIo::new(program.host(), SimIoSettings::default()));
    let seed = program.host().world().decide(1000).into();
    if let Err(error) = proxy.run_health_checks(&mut io, seed) {
        program.report().fail("health checks failed", error.to_string());
    }
}

/// Resolves names until the proxy stops. The answers change if `is_faulty` is set, and more with a
/// forward proxy.
pub(super) fn run_resolver(
    proxy: &SimulatedProxy,
    program: Program<'_>,
    form: Form,
    is_faulty: bool,
) {
    let world = program.host().world().clone();
    let mut io = program.io(SimIo::new(program.host(), SimIoSettings::default()));
    let draw = |values: &[u64]| values[world.decide(values.len() as u32) as usize];
    let resolved = proxy.run_resolver(&mut io, |name, port| {
        if form == Form::Forward {
            return form::resolve(&world, name, port);
        }
        let delay = Duration::from_millis(draw(&[1, 0, 20, 500]));
        let origin = SocketAddr::new(ORIGINS, port);
        let closed = SocketAddr::new(ORIGINS, 9);
        let answer = match draw(&[0, 0, 0, 1, 2, 3]) {
            1 if is_faulty => Err(std::io::Error::other("temporary failure")),
            2 if is_faulty => Ok(Vec::new()),
            3 if is_faulty => Ok(vec![closed, origin]),
            _ => Ok(vec![origin]),
        };
        (delay, answer)
    });
    if let Err(error) = resolved {
        program.report().fail("name resolution failed", error.to_string());
    }
}

impl Kind for Proxy {
    fn name(&self) -> &'static str {
        "proxy"
    }

    fn start(&self, simulation: &mut Simulation) -> Check {
        let Drawn { mut config, mut limits, origins: settings } = Drawn::new(simulation);
        config.tls = simulation.draw_tls();
        let world = simulation.world.clone();
        let swarm = simulation.swarm;
        let files = Memory::new(Duration::default, |_, _| None);
        let Some(server) = worker::create(simulation, &config, 4096, files) else {
            return Box::new(|_| ());
        };
        let origins: Rc<Origins> = Rc::default();
        let workers = server.workers();
        let servers = server.proxies()[0].upstreams(world.now()).len();
        let subject = Rc::new(Subject {
            server,
            servers,
            has_http2: swarm.protocols.http2,
            origins: origins.clone(),
            running: Cell::new(workers),
            requested: Cell::default(),
            ended: Cell::default(),
        });
        let host = simulation.host("origins", ORIGINS);
        let (shared, of_origins) = (origins.clone(), settings.clone());
        simulation.scheduler.spawn("origins", &host, move |program| {
            origin::run(program, SimIoSettings::default(), of_origins, shared);
        });
        let max_sockets = match swarm.level {
            FaultLevel::Any => simulation.draw(&[0, 0, 0, 12, 4]),
            _ => 0,
        };
        for index in 0..workers {
            let host = simulation.host(format!("worker {index}"), ADDRESS);
            if max_sockets > 0 {
                host.limit_sockets(max_sockets);
            }
            let subject = subject.clone();
            simulation.scheduler.spawn(format!("worker {index}"), &host, move |program| {
                subject.run_worker(index, program, &swarm);
            });
        }
        let checked = subject.clone();
        let host = simulation.host("checks", [10, 0, 0, 2].into());
        simulation.scheduler.spawn("checks", &host, move |program| {
            run_checks(&checked.server.proxies()[0], program);
        });
        let resolving = subject.clone();
        let form = limits.form;
        let has_bad_names = swarm.level == FaultLevel::Any;
        let host = simulation.host("resolver", [10, 0, 0, 3].into());
        simulation.scheduler.spawn("resolver", &host, move |program| {
            run_resolver(&resolving.server.proxies()[0], program, form, has_bad_names);
        });
        let start = world.now() + WARM_UP;
        if simulation.draw(&[false, false, true]) {
            limits.has_good_origins = false;
            let host = simulation.host("admin", [10, 0, 2, 1].into());
            let commanded = subject.clone();
            simulation.scheduler.spawn("admin", &host, move |program| {
                program.sleep_until(start);
                commanded.run_commands(program);
            });
        }
        if simulation.draw(&[false, false, true]) {
            let host = simulation.host("stop", [10, 0, 2, 2].into());
            let delay = simulation.draw(&[1, 0, 10, 100, 1_000, 20_000]);
            let stopped = subject.clone();
            simulation.scheduler.spawn("stop", &host, move |program| {
                program.sleep_until(start + Duration::from_millis(delay));
                stopped.stop(program.host().world());
            });
        }
        let (max_clients, max_requests) = if swarm.is_slow() { (3, 2) } else { (8, 5) };
        let patience = limits.patience();
        let clients = ClientSettings {
            server: config.event_loops.listen.into(),
            clients: 1 + world.decide(max_clients) as u16,
            max_requests,
            misbehave: simulation.draw(&[false, true]),
            timeout: simulation.draw(&[
                limits.client.keepalive,
                limits.client.header,
                limits.server.response_header,
                Duration::from_millis(10),
            ]),
            patience: if limits.is_limited { patience * 300 } else { patience },
        };
        let requests = Requests {
            world: world.clone(),
            limits: limits.clone(),
            origins: settings.first_echo,
            max_length: max_length(&swarm),
            subject: subject.clone(),
        };
        let records: Records<Requested> = Rc::new(RefCell::default());
        let clients = ClientGroup {
            address: CLIENTS,
            start,
            settings: clients,
            script: requests,
            handshakes: Bounds {
                timeout: limits.client.header,
                slack: None,
                may_fail: limits.is_limited || swarm.level == FaultLevel::Any,
                is_stopped: {
                    let stopped = subject.clone();
                    Rc::new(move || stopped.requested.get().is_some())
                },
            },
            io: |_| SimIoSettings::default(),
            records: records.clone(),
        };
        let stopped = subject.clone();
        clients.start(simulation, move |world| stopped.stop(world));
        Box::new(move |simulation| {
            let log = String::from_utf8_lossy(&subject.server.take_log_lines()).into_owned();
            let metrics = subject.server.metrics();
            let evicted = metrics.workers.iter().map(|of| of.connections_evicted.get()).sum();
            let facts = Facts {
                swarm: &simulation.swarm,
                limits: &limits,
                has_few_sockets: max_sockets > 0,
                requested: subject.requested.get(),
                ended: subject.ended.get(),
                evicted,
                sends_header: settings.proxy_protocol,
                log: &log,
                records: &records.borrow(),
                arrivals: &origins.arrivals.borrow(),
                server: &subject.server,
            };
            facts.check(simulation);
        })
    }
}
