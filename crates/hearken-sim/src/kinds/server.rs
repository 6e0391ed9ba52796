//! Histories of a server with static files: real workers, and clients of every kind.

mod admin;
mod checks;
mod clock;
mod multipart;
mod requests;
mod site_model;
mod stopping;
mod timing;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::time::Duration;

use hearken::io::sim::{Host, SimIoSettings, World};
use hearken_server::runtime::access_log::LogFormat;
use hearken_server::runtime::network::Network;
use hearken_server::simulation::{Fault, Memory, Operation, SimulatedServer};
use hearken_server::static_files::SiteConfig;
use hearken_server::{Config, HalfClose, Timeouts};

use crate::client::{self, ClientSettings, Records};
use crate::clients::ClientGroup;
use crate::connector::Connector;
use crate::handshakes::Bounds;
use crate::history::Simulation;
use crate::kinds::{Check, Kind, worker};
use crate::scheduler::Program;
use crate::swarm::{FaultLevel, Swarm};
use admin::{AdminFacts, AdminRequests};
use checks::Facts;
use clock::Clock;
use requests::{Requested, Requests};
use site_model::{Change, SharedModel, SiteModel};
use stopping::StopOnRequest;
use timing::{StopTimes, Timing};

/// A server with static files, and its clients.
#[derive(Debug)]
pub(crate) struct Server;

const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
const CLIENTS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 1, 1));
const ADMIN_CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 3, 1));
/// Time after which clients and changes begin, so that all workers listen.
const WARM_UP: Duration = Duration::from_secs(2);
/// Numbers of clients. Most histories are short, since many short ones find more than few long ones.
const CLIENT_COUNTS: [u16; 16] = [1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 5, 6, 8, 12, 16];
const ADMIN_PORT: u16 = 81;
/// Error numbers of file operations (EMFILE, ENFILE, ENOMEM, EACCES, EIO), and the statuses of the
/// responses.
const FILE_ERRORS: [(i32, u16); 5] = [(24, 503), (23, 503), (12, 503), (13, 403), (5, 500)];
const ELOOP: i32 = 40;

/// The drawn settings of a server.
struct Drawn {
    config: Config,
    timing: Timing,
    max_body: u64,
    /// Size of the descriptor table from which the limits are computed.
    descriptors: usize,
    /// Number of sockets that a worker can open, if that is limited.
    max_sockets: Option<usize>,
}

impl Drawn {
    fn new(simulation: &Simulation) -> Drawn {
        let seconds = Duration::from_secs;
        let ms = Duration::from_millis;
        let draw = |values: &[Duration]| simulation.draw(values);
        let timeouts = Timeouts {
            header: draw(&[seconds(10), seconds(10), seconds(1), ms(100)]),
            body: draw(&[seconds(30), seconds(30), seconds(1), ms(200)]),
            upload: draw(&[seconds(3600), seconds(60), seconds(2), ms(500)]),
            keepalive: draw(&[seconds(60), seconds(60), seconds(2), ms(50)]),
            send: draw(&[seconds(30), seconds(30), seconds(1), ms(300)]),
        };
        let grace = draw(&[seconds(10), seconds(10), seconds(1), ms(0)]);
        let mut site = SiteConfig { root: "/www".into(), ..SiteConfig::default() };
        site.max_cache_bytes = simulation.draw(&[64 << 20, 64 << 20, 3000, 0]);
        site.max_cached_file_bytes = simulation.draw(&[64 << 10, 64 << 10, 600, 0]);
        site.max_open_files = simulation.draw(&[64, 64, 1]);
        site.max_body_bytes = simulation.draw(&[10_000, 10_000, 100, 0]);
        let max_body = site.max_body_bytes;
        let mut config = Config::static_files(site);
        config.timeouts = timeouts;
        config.min_rate = simulation.draw(&[256, 256, 0, 64 * 1024]);
        config.half_close = simulation.draw(&[HalfClose::Respond, HalfClose::Cancel]);
        config.access_log = Some("access.log".into());
        use LogFormat::{Combined, Json};
        config.log_format = simulation.draw(&[Json, Json, Json, Combined]);
        if simulation.draw(&[false, false, true]) {
            config.admin = Some(SocketAddr::new(ADDRESS, ADMIN_PORT));
        }
        if simulation.draw(&[false, false, false, true]) {
            config.proxy_protocol = vec![Network::new(CLIENTS, 24)];
        }
        let loops = &mut config.event_loops;
        loops.listen = SocketAddr::new(ADDRESS, 80);
        loops.workers = NonZeroUsize::new(simulation.draw(&[1, 1, 2, 3]));
        loops.max_connections = NonZeroUsize::new(simulation.draw(&[0, 0, 0, 1, 3]));
        loops.defer_accept = draw(&[ms(0), ms(0), seconds(1)]);
        loops.shutdown_timeout = grace;
        let timing = Timing { timeouts, grace, defer: loops.defer_accept };
        // A worker needs eight descriptors besides those of connections and files.
        let descriptors = simulation.draw(&[4096, 4096, 4096, 28]);
        let max_sockets = simulation.draw(&[None, None, None, None, Some(3), Some(6)]);
        Drawn { config, timing, max_body, descriptors, max_sockets }
    }
}

/// Returns the maximum length of files.
fn max_length(swarm: &Swarm) -> u64 {
    match swarm.network.min_window {
        _ if swarm.is_slow() => 300,
        0..=4096 => 20_000,
        _ => 200_000,
    }
}

/// Creates the files of the site.
fn create_files(simulation: &Simulation, model: &mut SiteModel, files: &Memory) {
    let max = max_length(&simulation.swarm);
    let count = 1 + simulation.world.decide(6);
    let time = Duration::from_secs(1_700_000_000);
    files.create_directory("/www", time);
    for index in 0..count {
        let length = simulation.draw(&[700, 0, 1, 300, 5_000, 20_000, 70_000, 200_000]).min(max);
        let name = match index {
            0 => "index.html".to_owned(),
            1 => "a/deep/b.txt".to_owned(),
            _ => format!("file{index}"),
        };
        let now = Change { at: simulation.world.now(), modified: time.as_secs() };
        let content = model.add(name.clone(), length, now).content();
        files.write(format!("/www/{name}"), content, time);
    }
}

/// Returns a file system whose operations fail as the history decides.
fn file_system(clock: &Host, level: FaultLevel, faults: &Rc<FileFaults>) -> Memory {
    let world = clock.world();
    let unlucky = if level == FaultLevel::Any { [0, 0, 20, 200] } else { [0; 4] };
    let odd = if level >= FaultLevel::Harmless { [0, 0, 0, 200] } else { [0; 4] };
    let draw = |values: [u32; 4]| values[world.decide(4) as usize];
    let (failures, cut, links) = (draw(unlucky), draw(unlucky), draw(odd));
    let (clock, world, faults) = (clock.clone(), world.clone(), faults.clone());
    // A server whose root cannot be opened does not start.
    let start = world.now() + WARM_UP;
    Memory::new(
        move || clock.unix_time(),
        move |operation, _| match operation {
            Operation::Find
            | Operation::Open
            | Operation::Reserve
            | Operation::Status
            | Operation::PathStatus
            | Operation::Read
                if failures > 0 && world.now() >= start && world.has_fault(failures) =>
            {
                let (number, status) = FILE_ERRORS[world.decide(5) as usize];
                faults.statuses.borrow_mut().insert(status);
                Some(Fault::Error(number))
            }
            Operation::Find | Operation::CheckLink if links > 0 && world.has_fault(links) => {
                Some(Fault::Error(ELOOP))
            }
            Operation::Send if cut > 0 && world.has_fault(cut) => {
                faults.were_cut.set(true);
                Some(Fault::Truncated(world.decide(1000).into()))
            }
            _ => None,
        },
    )
}

/// The file faults that occurred.
#[derive(Debug, Default)]
struct FileFaults {
    /// Statuses of responses to requests that met an error.
    statuses: RefCell<BTreeSet<u16>>,
    were_cut: Cell<bool>,
}

/// The server, and when it was stopped.
struct Subject {
    server: SimulatedServer,
    stop: Cell<StopTimes>,
    running: Cell<usize>,
    admin: AdminFacts,
}

impl Subject {
    fn stop(&self, world: &World) {
        let mut times = self.stop.get();
        if times.requested.is_none() {
            times.requested = Some(world.now());
            self.stop.set(times);
        }
        self.server.handle().stop();
    }

    fn run_worker(&self, index: usize, program: Program<'_>, swarm: &Swarm) {
        let world = program.host().world();
        if let Err(error) = worker::run(&self.server, index, program, &swarm.io) {
            program.report().fail("a worker failed", error.to_string());
        }
        let mut times = self.stop.get();
        if times.requested.is_none() {
            program.report().fail("a worker ended", "nothing stopped the server");
        }
        times.ended = Some(world.now());
        self.stop.set(times);
        self.running.set(self.running.get() - 1);
        if self.running.get() == 0 {
            self.admin.stopped_at.set(Some(world.now()));
            self.server.admin_handle().stop();
        }
    }

    fn run_admin(&self, program: Program<'_>, swarm: &Swarm) {
        if let Err(error) = worker::run_admin(&self.server, program, &swarm.io) {
            program.report().fail("the admin address failed", error.to_string());
        }
        if self.admin.stopped_at.get().is_none() {
            program.report().fail("the admin address ended", "nothing stopped it");
        }
    }

    /// Returns the index of the last worker.
    fn last(&self) -> usize {
        self.server.workers() - 1
    }
}

/// Starts the event loop of the admin address and a client.
fn start_admin(simulation: &mut Simulation, subject: &Rc<Subject>, address: SocketAddr) {
    let swarm = simulation.swarm;
    let host = simulation.host("admin", ADDRESS);
    subject.admin.host.set(Some(host.index()));
    let of_admin = subject.clone();
    simulation.scheduler.spawn("admin", &host, move |program| of_admin.run_admin(program, &swarm));
    let settings = ClientSettings {
        server: address.into(),
        clients: 1,
        max_requests: if swarm.is_slow() { 1 } else { 4 },
        misbehave: false,
        timeout: Duration::from_millis(simulation.draw(&[10, 1_000])),
        patience: Duration::from_secs(3600),
    };
    let requests = AdminRequests {
        world: simulation.world.clone(),
        subject: subject.clone(),
        counters: BTreeMap::new(),
    };
    let start = simulation.world.now() + WARM_UP;
    let host = simulation.host("admin client", ADMIN_CLIENT);
    let records = subject.admin.records.clone();
    simulation.scheduler.spawn("admin client", &host, move |program| {
        program.sleep_until(start);
        let connector = Connector::new(SimIoSettings::default(), None);
        client::run(program, connector, settings, requests, records);
    });
}

/// Changes files at drawn times.
fn change_files(program: Program<'_>, model: &SharedModel, files: &Memory, max: u64) {
    let world = program.host().world();
    let draw = |values: &[u64]| values[world.decide(values.len() as u32) as usize];
    for _ in 0..draw(&[0, 0, 1, 4]) {
        let pause = Duration::from_millis(draw(&[1, 5, 19, 100, 3000]));
        program.sleep_until(world.now() + pause);
        let time = program.host().unix_time();
        let mut model = model.borrow_mut();
        let now = Change { at: world.now(), modified: time.as_secs() };
        let file = world.decide(model.files.len() as u32) as usize;
        let path = format!("/www/{}", model.files[file].name);
        let length = draw(&[700, 701, 0, 20_000, 70_000]).min(max);
        match world.decide(3) {
            0 => files.replace(path, model.replace(file, length, now).content(), time),
            1 => files.write(path, model.replace(file, length, now).content(), time),
            _ => {
                model.truncate(file, length, now);
                files.truncate(path, length as usize, time);
            }
        }
    }
}

impl Kind for Server {
    fn name(&self) -> &'static str {
        "server"
    }

    fn start(&self, simulation: &mut Simulation) -> Check {
        let Drawn { mut config, timing, max_body, descriptors, max_sockets } =
            Drawn::new(simulation);
        let world = simulation.world.clone();
        let swarm = simulation.swarm;
        let file_faults: Rc<FileFaults> = Rc::default();
        let model: SharedModel = Rc::default();
        let clock = simulation.host("clock", [10, 0, 254, 1].into());
        let files = file_system(&clock, swarm.level, &file_faults);
        create_files(simulation, &mut model.borrow_mut(), &files);
        config.tls = simulation.draw_tls();
        let Some(server) = worker::create(simulation, &config, descriptors, files.clone()) else {
            return Box::new(|_| ());
        };
        let workers = server.workers();
        let subject = Rc::new(Subject {
            server,
            stop: Cell::default(),
            running: Cell::new(workers),
            admin: AdminFacts::default(),
        });
        for index in 0..workers {
            let host = simulation.host(format!("worker {index}"), ADDRESS);
            if let Some(max) = max_sockets {
                host.limit_sockets(max);
            }
            let subject = subject.clone();
            simulation.scheduler.spawn(format!("worker {index}"), &host, move |program| {
                subject.run_worker(index, program, &swarm);
            });
        }
        let start = world.now() + WARM_UP;
        let time = Clock::new(&clock);
        let changed = time.clone();
        simulation.scheduler.spawn("clock", &clock, move |program| {
            program.sleep_until(start);
            clock::change(program, &changed);
        });
        if let Some(address) = config.admin {
            start_admin(simulation, &subject, address);
        }
        let host = simulation.host("files", [10, 0, 2, 1].into());
        let (changed, max) = (model.clone(), max_length(&swarm));
        simulation.scheduler.spawn("files", &host, move |program| {
            program.sleep_until(start);
            change_files(program, &changed, &files, max);
        });
        if simulation.draw(&[false, false, true]) {
            let host = simulation.host("stop", [10, 0, 2, 2].into());
            let delay = simulation.draw(&[1, 0, 10, 100, 1_000, 20_000]);
            let stopped = subject.clone();
            simulation.scheduler.spawn("stop", &host, move |program| {
                program.sleep_until(start + Duration::from_millis(delay));
                stopped.stop(program.host().world());
            });
        }
        let host = simulation.host("stop on request", [10, 0, 2, 3].into());
        let number = simulation.draw(&[0, 0, 0, 1, 2, 4]);
        let delay = swarm.network.max_delay + swarm.network.jitter + swarm.io.latency();
        let stop_on_request = Rc::new(StopOnRequest::new(number, delay, host.waker()));
        let (stop, stopped) = (stop_on_request.clone(), subject.clone());
        simulation.scheduler.spawn("stop on request", &host, move |program| {
            if stop.wait(program) {
                stopped.stop(program.host().world());
            }
        });
        let is_limited = config.event_loops.max_connections.is_some()
            || max_sockets.is_some()
            || descriptors < 4096;
        let (numbers, max_requests) =
            if swarm.is_slow() { (&CLIENT_COUNTS[..8], 2) } else { (&CLIENT_COUNTS[..], 4) };
        let patience = timing.patience() + Duration::from_secs(60);
        let settings = ClientSettings {
            server: config.event_loops.listen.into(),
            clients: simulation.draw(numbers),
            max_requests,
            misbehave: simulation.draw(&[false, true]),
            timeout: simulation.draw(&[
                timing.timeouts.keepalive,
                timing.timeouts.header,
                timing.timeouts.send,
                Duration::from_millis(10),
            ]),
            patience: if is_limited { patience * 300 } else { patience },
        };
        let sends_proxy_header = !config.proxy_protocol.is_empty();
        let requests = Requests {
            world: world.clone(),
            model: model.clone(),
            timing,
            clock: time,
            stop: stop_on_request.clone(),
            faults: file_faults.clone(),
            max_body,
            sends_proxy_header,
        };
        let records: Records<Requested> = Rc::new(RefCell::default());
        let clients = ClientGroup {
            address: CLIENTS,
            start,
            settings,
            script: requests,
            handshakes: Bounds {
                timeout: timing.timeouts.header,
                slack: (swarm.has_no_delays() && !is_limited)
                    .then_some(timing.defer + delay * 2 + timing::TICK),
                may_fail: is_limited || swarm.level == FaultLevel::Any,
                is_stopped: {
                    let stopped = subject.clone();
                    Rc::new(move || stopped.stop.get().requested.is_some())
                },
            },
            io: client_io,
            records: records.clone(),
        };
        let stopped = subject.clone();
        clients.start(simulation, move |world| {
            stop_on_request.cancel();
            stopped.stop(world);
        });
        Box::new(move |simulation| {
            let metrics = subject.server.metrics();
            let evicted = metrics.workers.iter().map(|of| of.connections_evicted.get()).sum();
            let log = String::from_utf8_lossy(&subject.server.take_log_lines()).into_owned();
            let facts = Facts {
                swarm: &simulation.swarm,
                timing,
                half_close: config.half_close,
                stop: subject.stop.get(),
                is_limited,
                had_file_faults: file_faults.were_cut.get(),
                evicted,
                log: &log,
                log_format: config.log_format,
                sends_proxy_header,
                metrics: &metrics,
                records: &records.borrow(),
            };
            facts.check(&simulation.report);
            subject.admin.check(&simulation.swarm, &simulation.report);
            check_ends(simulation, &subject, timing);
        })
    }
}

/// Draws the settings of the clients' `Io`.
fn client_io(world: &World) -> SimIoSettings {
    let mut io = SimIoSettings::default();
    io.buffer_size = [16 * 1024, 16 * 1024, 16 * 1024, 1000][world.decide(4) as usize];
    io
}

/// Checks that programs released everything, unless the shutdown timeout ended a worker.
fn check_ends(simulation: &Simulation, subject: &Subject, timing: Timing) {
    // Connections that were closed remain until their transport has taken `close_notify`.
    if simulation.swarm.protocols.tls {
        return;
    }
    for end in simulation.report.ends() {
        if subject.admin.host.get() == Some(end.host) {
            continue; // Its connections are closed at once.
        }
        let since = subject.stop.get().requested.map(|requested| end.at.duration_since(requested));
        if since.is_none_or(|since| since >= timing.grace) {
            continue;
        }
        if end.open > 0 || end.buffers > 0 {
            let detail = format!("{:?} after a stop: {end:?}", since.unwrap_or_default());
            simulation.report.fail("resources at the end of a program", detail);
        }
    }
}
