//! The real server with static files, as the target of a load.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::time::Duration;

use hearken_server::Config;
use hearken_server::runtime::access_log::LogFormat;
use hearken_server::simulation::Memory;
use hearken_server::static_files::SiteConfig;

use crate::history::Simulation;
use crate::kinds::service::Service;

/// Starts the server. Its access log has a line for each request.
pub(super) fn start(simulation: &mut Simulation, address: SocketAddr) -> Option<Rc<Service>> {
    let clock = simulation.host("server clock", [10, 0, 254, 1].into());
    let files = Memory::new(move || clock.unix_time(), |_, _| None);
    let time = Duration::from_secs(1_700_000_000);
    let length = simulation.draw(&[100, 0, 3000]);
    files.create_directory("/www", time);
    if simulation.draw(&[true, true, true, false]) {
        files.write("/www/index.html", vec![b'f'; length], time);
    }
    let mut config = draw_config(simulation, address);
    config.tls = simulation.draw_tls();
    let server = Service::new(simulation, &config, files)?;
    server.start(simulation, "server", simulation.world.now(), || ());
    Some(server)
}

/// Draws the settings of a server with the files in `/www`.
pub(in crate::kinds) fn draw_config(simulation: &Simulation, address: SocketAddr) -> Config {
    let site = SiteConfig { root: "/www".into(), ..SiteConfig::default() };
    let mut config = Config::static_files(site);
    config.access_log = Some("access.log".into());
    config.log_format = LogFormat::Json;
    config.timeouts.keepalive = Duration::from_millis(simulation.draw(&[60_000, 60_000, 20]));
    let loops = &mut config.event_loops;
    loops.listen = address;
    loops.workers = NonZeroUsize::new(simulation.draw(&[1, 2]));
    loops.max_connections = NonZeroUsize::new(simulation.draw(&[0, 0, 0, 2]));
    loops.shutdown_timeout = Duration::from_millis(simulation.draw(&[10_000, 0]));
    config
}
