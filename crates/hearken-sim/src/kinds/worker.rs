//! Event loops of a simulated server or proxy.

use std::io;

use hearken::io::Relay;
use hearken_server::simulation::{Environment, Memory, SimulatedServer};
use hearken_server::{Config, Model};

use crate::history::Simulation;
use crate::io_level::{IoLevel, OverIo};
use crate::scheduler::Program;

/// Creates a server, whose model and seed are drawn. Reports a failure.
pub(super) fn create(
    simulation: &Simulation,
    config: &Config,
    descriptors: usize,
    files: Memory,
) -> Option<SimulatedServer> {
    // One decision for both, so that histories that were stored before there were models replay.
    let drawn = simulation.world.decide(1000);
    let mut config = config.clone();
    config.event_loops.model = if drawn < 500 { Model::Events } else { Model::Tasks };
    let environment = Environment { seed: drawn.into(), descriptors, files };
    match SimulatedServer::new(&config, environment) {
        Ok(server) => Some(server),
        Err(error) => {
            simulation.report.fail("the server did not start", error.to_string());
            None
        }
    }
}

struct Worker<'s> {
    server: &'s SimulatedServer,
    index: usize,
}

impl OverIo for Worker<'_> {
    type Output = io::Result<()>;

    fn run<I: Relay + 'static>(self, io: I) -> io::Result<()> {
        self.server.run_worker(self.index, io)
    }
}

struct Admin<'s>(&'s SimulatedServer);

impl OverIo for Admin<'_> {
    type Output = io::Result<()>;

    fn run<I: Relay + 'static>(self, io: I) -> io::Result<()> {
        self.0.run_admin(io)
    }
}

/// Runs the worker at `index` until its server has stopped.
///
/// # Errors
/// As [`SimulatedServer::run_worker`].
pub(super) fn run(
    server: &SimulatedServer,
    index: usize,
    program: Program<'_>,
    io: &IoLevel,
) -> io::Result<()> {
    io.run(program, Worker { server, index })
}

/// Runs the event loop of the admin address until its handle stops it.
///
/// # Errors
/// As [`SimulatedServer::run_admin`].
pub(super) fn run_admin(
    server: &SimulatedServer,
    program: Program<'_>,
    io: &IoLevel,
) -> io::Result<()> {
    io.run(program, Admin(server))
}
