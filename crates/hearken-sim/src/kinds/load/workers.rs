//! The workers of a load as programs of a history.

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::time::Duration;

use hearken::io::Relay;
use hearken::timer::Time;
use hearken_load::LoadError;
use hearken_load::simulation::SimulatedLoad;

use super::observed::{Observations, Observer};
use crate::history::Simulation;
use crate::io_level::OverIo;

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

/// Starts the workers at `starts_at`, and stops them after `stop_after`, if that is given. Calls `ended`
/// when the last one has ended.
pub(in crate::kinds) fn start(
    simulation: &mut Simulation,
    load: &Rc<SimulatedLoad>,
    observations: &Rc<RefCell<Observations>>,
    starts_at: Time,
    stop_after: Option<Duration>,
    ended: impl Fn(Time) + 'static,
) {
    let running = Rc::new(Cell::new(load.workers()));
    let ended = Rc::new(ended);
    let swarm = simulation.swarm;
    for index in 0..load.workers() {
        let address = IpAddr::V4(Ipv4Addr::new(10, 0, 1, index as u8 + 1));
        let host = simulation.host(format!("worker {index}"), address);
        let (load, running, ended) = (load.clone(), running.clone(), ended.clone());
        let observations = observations.clone();
        simulation.scheduler.spawn(format!("worker {index}"), &host, move |program| {
            program.sleep_until(starts_at);
            let worker = Worker { load: &load, index, observations: &observations };
            if let Err(error) = swarm.io.run(program, worker) {
                program.report().fail("a worker failed", error.to_string());
            }
            running.set(running.get() - 1);
            if running.get() == 0 {
                let now = program.host().world().now();
                observations.borrow_mut().ended_at = Some(now);
                ended(now);
            }
        });
    }
    if let Some(after) = stop_after {
        let host = simulation.host("stop", [10, 0, 2, 1].into());
        let (load, observations) = (load.clone(), observations.clone());
        simulation.scheduler.spawn("stop", &host, move |program| {
            program.sleep_until(starts_at + after);
            if observations.borrow().ended_at.is_none() {
                load.stop();
            }
        });
    }
}
