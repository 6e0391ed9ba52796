//! A simulated server whose workers are programs of a history.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use hearken::timer::Time;
use hearken_server::Config;
use hearken_server::simulation::{Memory, SimulatedProxy, SimulatedServer};

use super::proxy::{self, Form};
use super::worker;
use crate::history::Simulation;
use crate::swarm::FaultLevel;

/// A server or proxy, and when it was stopped.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) server: SimulatedServer,
    /// Shutdown timeout.
    pub(super) grace: Duration,
    running: Cell<usize>,
    starts_at: Cell<Time>,
    /// Time of the request to stop.
    pub(super) stopped_at: Cell<Option<Time>>,
    /// Time at which the last worker ended.
    pub(super) ended_at: Cell<Option<Time>>,
}

impl Service {
    /// Creates a service without starting it. Reports a failure.
    pub(super) fn new(
        simulation: &Simulation,
        config: &Config,
        files: Memory,
    ) -> Option<Rc<Service>> {
        let server = worker::create(simulation, config, 4096, files)?;
        Some(Rc::new(Service {
            grace: config.event_loops.shutdown_timeout,
            running: Cell::new(server.workers()),
            server,
            starts_at: Cell::default(),
            stopped_at: Cell::default(),
            ended_at: Cell::default(),
        }))
    }

    /// Starts the workers at `starts_at`. Calls `ended` when the last one has ended.
    pub(super) fn start(
        self: &Rc<Service>,
        simulation: &mut Simulation,
        name: &str,
        starts_at: Time,
        ended: impl Fn() + 'static,
    ) {
        self.starts_at.set(starts_at);
        let ended = Rc::new(ended);
        let swarm = simulation.swarm;
        for index in 0..self.server.workers() {
            let name = format!("{name} {index}");
            let host = simulation.host(name.clone(), self.server.addr().ip());
            let (of, ended) = (self.clone(), ended.clone());
            simulation.scheduler.spawn(name, &host, move |program| {
                program.sleep_until(starts_at);
                if let Err(error) = worker::run(&of.server, index, program, &swarm.io) {
                    program.report().fail("a worker of a server failed", error.to_string());
                }
                if of.stopped_at.get().is_none() {
                    program.report().fail("a worker ended", "nothing stopped its server");
                }
                of.ended_at.set(Some(program.host().world().now()));
                of.running.set(of.running.get() - 1);
                if of.running.get() == 0 {
                    of.server.proxies().iter().for_each(SimulatedProxy::stop);
                    ended();
                }
            });
        }
        if !self.server.proxies().is_empty() {
            self.start_background(simulation, name);
        }
    }

    /// Starts the health checks and the name lookups of a proxy.
    fn start_background(self: &Rc<Service>, simulation: &mut Simulation, name: &str) {
        let of = self.clone();
        let host = simulation.host(format!("checks of {name}"), [10, 0, 0, 2].into());
        simulation.scheduler.spawn("checks", &host, move |program| {
            proxy::run_checks(&of.server.proxies()[0], program);
        });
        let of = self.clone();
        let has_bad_names = simulation.swarm.level == FaultLevel::Any;
        let host = simulation.host(format!("resolver of {name}"), [10, 0, 0, 3].into());
        simulation.scheduler.spawn("resolver", &host, move |program| {
            proxy::run_resolver(&of.server.proxies()[0], program, Form::Reverse, has_bad_names);
        });
    }

    /// Stops the workers gracefully, once they have started.
    pub(super) fn stop(&self, now: Time) {
        if self.stopped_at.get().is_none() {
            self.stopped_at.set(Some(now.max(self.starts_at.get())));
        }
        self.server.handle().stop();
    }

    /// Returns whether all workers have ended.
    pub(super) fn has_ended(&self) -> bool {
        self.running.get() == 0
    }

    /// Returns whether the shutdown timeout may have ended connections.
    pub(super) fn was_cut(&self) -> bool {
        match (self.stopped_at.get(), self.ended_at.get()) {
            (Some(stopped), Some(ended)) => ended.duration_since(stopped) >= self.grace,
            _ => true,
        }
    }
}
