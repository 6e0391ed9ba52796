//! Histories of a load: the load generator against a scripted server.

pub(super) mod checks;
mod model;
pub(super) mod observed;
pub(super) mod real_server;
pub(super) mod settings;
mod target;
pub(super) mod workers;

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;

use hearken::io::sim::SimIoSettings;
use hearken_load::simulation::SimulatedLoad;

use crate::history::Simulation;
use crate::kinds::{Check, Kind};
use crate::selection::Protocols;
use checks::Facts;
use observed::Observations;
use settings::Drawn;
use target::{TargetSettings, TargetShared};

/// A load and a scripted server.
#[derive(Debug)]
pub(crate) struct Load;

const TARGET: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 80);
/// Number of descriptors of each process.
pub(super) const DESCRIPTORS: u64 = 1024;

/// Starts the scripted server.
fn start_target(simulation: &mut Simulation, target: TargetSettings, shared: &Rc<TargetShared>) {
    let host = simulation.host("target", target.address.ip());
    shared.set_waker(host.waker());
    let mut io = SimIoSettings::default();
    io.buffer_size = simulation.draw(&[16 * 1024, 16 * 1024, 1000]);
    let shared = shared.clone();
    simulation.scheduler.spawn("target", &host, move |program| {
        target::run(program, io, target, &shared);
    });
}

impl Kind for Load {
    fn name(&self) -> &'static str {
        "load"
    }

    fn start(&self, simulation: &mut Simulation) -> Check {
        let Drawn { config, rate, has_side } = Drawn::new(simulation, TARGET);
        let target = settings::draw_target(simulation, TARGET, config.timeout);
        let stop_after = settings::draw_stop(simulation);
        let load = match SimulatedLoad::new(&config, DESCRIPTORS) {
            Ok(load) => Rc::new(load),
            Err(error) => {
                simulation.report.fail("the load did not start", error.to_string());
                return Box::new(|_| ());
            }
        };
        let world = simulation.world.clone();
        let began = world.now();
        let shared: Rc<TargetShared> = Rc::default();
        // The scripted server speaks HTTP/1.1.
        let needs_server = simulation.swarm.protocols != Protocols::default();
        let server = match simulation.draw(&[false, false, false, true]) || needs_server {
            true => real_server::start(simulation, TARGET),
            false => {
                start_target(simulation, target, &shared);
                None
            }
        };
        let observations: Rc<RefCell<Observations>> = Rc::default();
        let clock = simulation.host("clock", [10, 0, 2, 2].into());
        let unix_offset = clock.unix_time().as_nanos() as u64 - began.as_nanos();
        let (stopped, of_server) = (shared.clone(), server.clone());
        workers::start(simulation, &load, &observations, began, stop_after, move |now| {
            stopped.stop();
            of_server.iter().for_each(|server| server.stop(now));
        });
        Box::new(move |simulation| {
            let Some(load) = Rc::into_inner(load) else { return };
            let facts = Facts {
                report: load.report(),
                config: &config,
                rate,
                has_side,
                stop_after,
                began,
                unix_offset,
                observations: &observations.borrow(),
                target: &shared.record.borrow(),
                log: server.map(|server| server.server.take_log_lines()),
                swarm: &simulation.swarm,
                max_lateness: simulation.report.max_lateness(),
            };
            facts.check(&simulation.report);
        })
    }
}
