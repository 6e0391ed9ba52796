//! The real server with static files, as the target of a load.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::time::Duration;

use hearken_server::Config;
use hearken_server::runtime::access_log::LogFormat;
use hearken_server::simulation::{Environment, Memory, SimulatedServer};
use hearken_server::static_files::SiteConfig;

use crate::history::Simulation;
use crate::kinds::worker;

/// Starts the server. Its access log has a line for each request.
pub(super) fn start(
    simulation: &mut Simulation,
    address: SocketAddr,
) -> Option<Rc<SimulatedServer>> {
    let clock = simulation.host("server clock", [10, 0, 254, 1].into());
    let files = Memory::new(move || clock.unix_time(), |_, _| None);
    let time = Duration::from_secs(1_700_000_000);
    let length = simulation.draw(&[100, 0, 3000]);
    files.create_directory("/www", time);
    if simulation.draw(&[true, true, true, false]) {
        files.write("/www/index.html", vec![b'f'; length], time);
    }
    let site = SiteConfig { root: "/www".into(), ..SiteConfig::default() };
    let mut config = Config::static_files(site);
    config.access_log = Some("access.log".into());
    config.log_format = LogFormat::Json;
    config.timeouts.keepalive = Duration::from_millis(simulation.draw(&[60_000, 60_000, 20]));
    let loops = &mut config.event_loops;
    loops.listen = address;
    loops.workers = NonZeroUsize::new(simulation.draw(&[1, 2])).unwrap_or(NonZeroUsize::MIN);
    loops.max_connections = NonZeroUsize::new(simulation.draw(&[0, 0, 0, 2]));
    loops.shutdown_timeout = Duration::from_millis(simulation.draw(&[10_000, 0]));
    let environment =
        Environment { seed: simulation.world.decide(1000).into(), descriptors: 4096, files };
    let server = match SimulatedServer::new(&config, environment) {
        Ok(server) => Rc::new(server),
        Err(error) => {
            simulation.report.fail("the server did not start", error.to_string());
            return None;
        }
    };
    for index in 0..server.workers() {
        let host = simulation.host(format!("server {index}"), address.ip());
        let (server, swarm) = (server.clone(), simulation.swarm);
        simulation.scheduler.spawn(format!("server {index}"), &host, move |program| {
            if let Err(error) = worker::run(&server, index, program, &swarm.io) {
                program.report().fail("a worker of the server failed", error.to_string());
            }
        });
    }
    Some(server)
}
