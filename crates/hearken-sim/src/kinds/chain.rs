//! Histories of a chain: the load generator, a proxy, and servers with static files behind it.

mod checks;
mod settings;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use hearken::io::sim::SimIoSettings;
use hearken::timer::Time;
use hearken_load::simulation::SimulatedLoad;
use hearken_server::simulation::Memory;

use super::load::observed::Observations;
use super::load::{DESCRIPTORS, workers};
use super::{proxy, service::Service};
use crate::content;
use crate::history::Simulation;
use crate::kinds::{Check, Kind};
use crate::origin::{self, HEALTH_PATH, Origins};
use checks::Facts;
use settings::{Change, Drawn, PATH};

/// A load, a proxy and its servers.
#[derive(Debug)]
pub(crate) struct Chain;

/// The services of a history, each with those that replace it.
#[derive(Debug, Default)]
struct Services {
    proxies: Vec<Rc<Service>>,
    servers: Vec<Rc<Service>>,
    origins: Rc<Origins>,
}

impl Services {
    /// Returns whether the workers of all proxies have ended.
    fn proxies_have_ended(&self) -> bool {
        self.proxies.iter().all(|proxy| proxy.has_ended())
    }
}

/// Returns a file system with the file that the load requests, and that of health checks.
fn create_files(simulation: &mut Simulation, length: u64) -> Memory {
    let clock = simulation.host("server clock", [10, 0, 254, 1].into());
    let files = Memory::new(move || clock.unix_time(), |_, _| None);
    let time = Duration::from_secs(1_700_000_000);
    let mut body = Vec::new();
    content::append(1, length, &mut body);
    files.create_directory("/www", time);
    files.write(format!("/www{PATH}"), body, time);
    files.write(format!("/www{HEALTH_PATH}"), Vec::new(), time);
    files
}

/// Stops or replaces a service at the drawn time. A replacement starts before its predecessor stops.
fn start_change(simulation: &mut Simulation, change: Change, at: Time, of: &Rc<Service>) {
    if change == Change::None {
        return;
    }
    let host = simulation.host("change", [10, 0, 2, 2].into());
    let of = of.clone();
    simulation.scheduler.spawn("change", &host, move |program| {
        program.sleep_until(at);
        of.stop(at);
    });
}

impl Kind for Chain {
    fn name(&self) -> &'static str {
        "chain"
    }

    fn start(&self, simulation: &mut Simulation) -> Check {
        let drawn = Drawn::new(simulation);
        let load = match SimulatedLoad::new(&drawn.load.config, DESCRIPTORS) {
            Ok(load) => Rc::new(load),
            Err(error) => {
                simulation.report.fail("the load did not start", error.to_string());
                return Box::new(|_| ());
            }
        };
        let began = simulation.world.now();
        let starts_at = began + drawn.warm_up;
        let changes_at = starts_at + drawn.change_after;
        let Some(services) = start_services(simulation, &drawn, began, changes_at) else {
            return Box::new(|_| ());
        };
        let clock = simulation.host("clock", [10, 0, 2, 3].into());
        let unix_offset = clock.unix_time().as_nanos() as u64 - began.as_nanos();
        let observations: Rc<RefCell<Observations>> = Rc::default();
        let stopped = services.clone();
        workers::start(simulation, &load, &observations, starts_at, drawn.stop_after, move |now| {
            stopped.proxies.iter().for_each(|proxy| proxy.stop(now));
        });
        Box::new(move |simulation| {
            let Some(load) = Rc::into_inner(load) else { return };
            let facts = Facts {
                report: load.report(),
                drawn: &drawn,
                unix_offset,
                observations: &observations.borrow(),
                proxies: &services.proxies,
                servers: &services.servers,
                swarm: &simulation.swarm,
                max_lateness: simulation.report.max_lateness(),
            };
            facts.check(simulation);
        })
    }
}

/// Starts proxies, servers and origins. The latter stop when all proxies have ended.
fn start_services(
    simulation: &mut Simulation,
    drawn: &Drawn,
    began: Time,
    changes_at: Time,
) -> Option<Rc<Services>> {
    let files = create_files(simulation, drawn.length);
    let mut services = Services::default();
    for (config, change) in &drawn.servers {
        for _ in 0..change.generations() {
            services.servers.push(Service::new(simulation, config, files.clone())?);
        }
    }
    let no_files = Memory::new(Duration::default, |_, _| None);
    for _ in 0..drawn.proxy_change.generations() {
        services.proxies.push(Service::new(simulation, &drawn.proxy, no_files.clone())?);
    }
    let services = Rc::new(services);
    let changes = drawn.servers.iter().map(|(_, change)| *change);
    let mut servers = services.servers.iter();
    for change in changes {
        start_generations(simulation, "server", change, began, changes_at, &mut servers, || ());
    }
    if let Some(origins) = drawn.origins.clone() {
        let host = simulation.host("origins", proxy::ORIGINS);
        let shared = services.origins.clone();
        simulation.scheduler.spawn("origins", &host, move |program| {
            origin::run(program, SimIoSettings::default(), origins, shared);
        });
    }
    let (of, world) = (services.clone(), simulation.world.clone());
    let ended = move || {
        if of.proxies_have_ended() {
            of.servers.iter().for_each(|server| server.stop(world.now()));
            of.origins.stop();
        }
    };
    let mut proxies = services.proxies.iter();
    let change = drawn.proxy_change;
    start_generations(simulation, "proxy", change, began, changes_at, &mut proxies, ended);
    Some(services)
}

/// Time for which a service and its replacement listen.
const OVERLAP: Duration = Duration::from_millis(5);

/// Starts a service, and its replacement if there is one.
fn start_generations<'s>(
    simulation: &mut Simulation,
    name: &str,
    change: Change,
    began: Time,
    changes_at: Time,
    services: &mut impl Iterator<Item = &'s Rc<Service>>,
    ended: impl Fn() + Clone + 'static,
) {
    for number in 0..change.generations() {
        let Some(service) = services.next() else { return };
        if number == 0 {
            service.start(simulation, name, began, ended.clone());
            start_change(simulation, change, changes_at + OVERLAP, service);
        } else {
            service.start(simulation, &format!("second {name}"), changes_at, ended.clone());
        }
    }
}
