//! Starts the clients of a history.

use std::cell::Cell;
use std::net::IpAddr;
use std::rc::Rc;

use hearken::io::sim::{SimIoSettings, World};
use hearken::timer::Time;

use crate::client::{self, ClientSettings, Records, Script};
use crate::connector::Connector;
use crate::handshakes::{self, Bounds};
use crate::history::Simulation;
use crate::{http2, tls};

/// The clients of a history: those of HTTP/1.1, and those of HTTP/2 if the history has some.
pub(crate) struct ClientGroup<S: Script> {
    /// Address of all clients.
    pub(crate) address: IpAddr,
    /// Time at which they begin.
    pub(crate) start: Time,
    /// Settings. Their number of clients is that of all.
    pub(crate) settings: ClientSettings,
    /// The requests.
    pub(crate) script: S,
    /// Limits of TLS handshakes.
    pub(crate) handshakes: Bounds,
    /// Function that draws the settings of their `Io`.
    pub(crate) io: fn(&World) -> SimIoSettings,
    /// The finished connections.
    pub(crate) records: Records<S::Request>,
}

impl<S: Script + Clone + 'static> ClientGroup<S> {
    /// Starts the clients. Calls `ended` when all of them have ended.
    pub(crate) fn start(self, simulation: &mut Simulation, ended: impl Fn(&World) + 'static) {
        let ClientGroup { address, start, settings, script, handshakes, io, records } = self;
        let all = settings.clients;
        let with_http2 = match simulation.swarm.protocols.http2 {
            true => 1 + simulation.world.decide(all.into()) as u16,
            false => 0,
        };
        let profiles =
            match simulation.swarm.protocols.tls.then(|| tls::draw_clients(&simulation.world)) {
                Some(Err(error)) => return simulation.report.fail("TLS of clients", error),
                Some(Ok(profiles)) => Some(profiles),
                None => None,
            };
        let running = Rc::new(Cell::new(0));
        let end = Rc::new(ended);
        if let Some(profiles) = profiles.clone() {
            running.set(running.get() + 1);
            let host = simulation.host("handshakes", address);
            let (running, end, server) = (running.clone(), end.clone(), settings.server.clone());
            simulation.scheduler.spawn("handshakes", &host, move |program| {
                program.sleep_until(start);
                handshakes::run(program, &server, &profiles, &handshakes);
                running.set(running.get() - 1);
                if running.get() == 0 {
                    end(program.host().world());
                }
            });
        }
        for (name, count) in [("clients", all - with_http2), ("HTTP/2 clients", with_http2)] {
            if count == 0 {
                continue;
            }
            running.set(running.get() + 1);
            let host = simulation.host(name, address);
            let settings = ClientSettings { clients: count, ..settings.clone() };
            let (script, records) = (script.clone(), records.clone());
            let (running, end, profiles) = (running.clone(), end.clone(), profiles.clone());
            let is_http2 = name != "clients";
            simulation.scheduler.spawn(name, &host, move |program| {
                program.sleep_until(start);
                let world = program.host().world().clone();
                let connector = Connector::new(io(&world), profiles);
                match is_http2 {
                    false => client::run(program, connector, settings, script, records),
                    true => {
                        let first = all - count;
                        http2::run(program, connector, first, settings, script, records);
                    }
                }
                running.set(running.get() - 1);
                if running.get() == 0 {
                    end(&world);
                }
            });
        }
    }
}
