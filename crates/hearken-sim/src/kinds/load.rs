//! Histories of a load: the load generator against a scripted server.

mod checks;
mod model;
mod observed;
mod real_server;
mod settings;
mod target;

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;

use hearken::io::Relay;
use hearken::io::sim::SimIoSettings;
use hearken_load::LoadError;
use hearken_load::simulation::SimulatedLoad;

use crate::history::Simulation;
use crate::io_level::OverIo;
use crate::kinds::{Check, Kind};
use checks::Facts;
use observed::{Observations, Observer};
use settings::Drawn;
use target::{TargetSettings, TargetShared};

/// A load and a scripted server.
#[derive(Debug)]
pub(crate) struct Load;

const TARGET: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 80);
/// Number of descriptors of each process.
const DESCRIPTORS: u64 = 1024;

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

/// A worker of the load.
struct Worker<'l> {
    load: &'l SimulatedLoad,
    index: usize,
    observations: &'l Rc<RefCell<Observations>>,
}

impl OverIo for Worker<'_> {
    type Output = Result<(), LoadError>;

    fn run<I: Relay>(self, io: I) -> Result<(), LoadError> {
        self.load.run_worker(self.index, Observer::new(io, self.observations))
    }
}

impl Kind for Load {
    fn name(&self) -> &'static str {
        "load"
    }

    fn start(&self, simulation: &mut Simulation) -> Check {
        let Drawn { config, target, rate, stop_after, has_side } = Drawn::new(simulation, TARGET);
        let load = match SimulatedLoad::new(&config, DESCRIPTORS) {
            Ok(load) => Rc::new(load),
            Err(error) => {
                simulation.report.fail("the load did not start", error.to_string());
                return Box::new(|_| ());
            }
        };
        let world = simulation.world.clone();
        let began = world.now();
        let swarm = simulation.swarm;
        let shared: Rc<TargetShared> = Rc::default();
        let server = match simulation.draw(&[false, false, false, true]) {
            true => real_server::start(simulation, TARGET),
            false => {
                start_target(simulation, target, &shared);
                None
            }
        };
        let observations: Rc<RefCell<Observations>> = Rc::default();
        let running = Rc::new(Cell::new(load.workers()));
        let clock = simulation.host("clock", [10, 0, 2, 2].into());
        let unix_offset = clock.unix_time().as_nanos() as u64 - began.as_nanos();
        for index in 0..load.workers() {
            let address = IpAddr::V4(Ipv4Addr::new(10, 0, 1, index as u8 + 1));
            let host = simulation.host(format!("worker {index}"), address);
            let (load, running, shared) = (load.clone(), running.clone(), shared.clone());
            let (observations, server) = (observations.clone(), server.clone());
            simulation.scheduler.spawn(format!("worker {index}"), &host, move |program| {
                let worker = Worker { load: &load, index, observations: &observations };
                if let Err(error) = swarm.io.run(program, worker) {
                    program.report().fail("a worker failed", error.to_string());
                }
                running.set(running.get() - 1);
                if running.get() == 0 {
                    observations.borrow_mut().ended_at = Some(program.host().world().now());
                    shared.stop();
                    server.iter().for_each(|server| server.handle().stop());
                }
            });
        }
        if let Some(after) = stop_after {
            let host = simulation.host("stop", [10, 0, 2, 1].into());
            let (load, shared) = (load.clone(), shared.clone());
            simulation.scheduler.spawn("stop", &host, move |program| {
                program.sleep_until(began + after);
                if !shared.is_done.get() {
                    load.stop();
                }
            });
        }
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
                log: server.map(|server| server.take_log_lines()),
                swarm: &simulation.swarm,
            };
            facts.check(&simulation.report);
        })
    }
}
