//! The settings of a chain, as a history draws them.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::time::Duration;

use hearken_load::RequestTemplate;
use hearken_server::Config;
use hearken_server::proxy::config::{ProxyMode, Timeouts, Upstreams};

use crate::client::RequestId;
use crate::content;
use crate::history::Simulation;
use crate::kinds::load::real_server;
use crate::kinds::load::settings::{self as load, Drawn as DrawnLoad};
use crate::kinds::proxy;
use crate::origin::{OriginSettings, request_phase};
use crate::swarm::FaultLevel;

/// Path of all requests. Scripted origins require an identity in it.
pub(super) const PATH: &str = "/id0-0-0.bin";
/// The identity.
const ID: RequestId = RequestId { client: 0, connection: 0, number: 0 };

/// The fate of a service while the load runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Change {
    /// No change.
    None,
    /// A graceful stop.
    Stop,
    /// A graceful stop after a replacement has started, as a reload does.
    Replace,
}

impl Change {
    /// Returns the number of services at the address, one after another.
    pub(super) fn generations(self) -> usize {
        1 + usize::from(self == Change::Replace)
    }

    /// Adapts the settings of a service. Only servers with several workers share their address.
    fn prepare(self, config: &mut Config) {
        let workers = &mut config.event_loops.workers;
        if self == Change::Replace {
            *workers = (*workers).max(NonZeroUsize::new(2));
        }
    }
}

/// The drawn settings.
#[derive(Debug)]
pub(super) struct Drawn {
    pub(super) load: DrawnLoad,
    /// Time after which the load is stopped, if it is.
    pub(super) stop_after: Option<Duration>,
    pub(super) proxy: Config,
    pub(super) proxy_change: Change,
    /// The servers with static files, and their fates.
    pub(super) servers: Vec<(Config, Change)>,
    /// Scripted servers, if there are any.
    pub(super) origins: Option<OriginSettings>,
    /// Length of the file that is requested.
    pub(super) length: u64,
    /// Time after which the load starts.
    pub(super) warm_up: Duration,
    /// Time after the start of the load at which services change.
    pub(super) change_after: Duration,
    /// Whether nothing but the timeouts of the load can make a request fail.
    pub(super) is_benign: bool,
}

impl Drawn {
    pub(super) fn new(simulation: &Simulation) -> Drawn {
        let ms = Duration::from_millis;
        let swarm = &simulation.swarm;
        let changes = [Change::None, Change::None, Change::None, Change::Stop, Change::Replace];
        let max_length = match swarm.network.min_window {
            _ if swarm.is_slow() => 200,
            0..=4096 => 3_000,
            _ => 70_000,
        };
        let length = simulation.draw(&[700, 0, 1, 5_000, 70_000]).min(max_length);
        let server_count = simulation.draw(&[2u16, 1, 2, 3]);
        let has_origins = simulation.draw(&[false, false, false, true]);
        let port = |index: u16| SocketAddr::new(proxy::ORIGINS, proxy::FIRST_PORT + index);
        let servers: Vec<_> = (0..server_count)
            .map(|index| {
                let mut config = real_server::draw_config(simulation, port(index));
                let change = if index == 0 { simulation.draw(&changes) } else { Change::None };
                change.prepare(&mut config);
                (config, change)
            })
            .collect();
        let timeouts = proxy::draw_timeouts(simulation);
        let origins = has_origins.then(|| OriginSettings {
            addresses: vec![port(server_count).into()],
            misbehave: simulation.draw(&[0, 0, 50, 300]),
            disconnect: simulation.draw(&[false, true]),
            delay: simulation.draw(&[false, true]),
            timeout: timeouts.response_header,
            max_length: max_length.min(5_000),
            first_echo: 1,
            proxy_protocol: false,
        });
        let count = server_count + u16::from(has_origins);
        let addresses: Vec<_> = (0..count).map(|index| port(index).into()).collect();
        let upstreams = proxy::draw_upstreams(simulation, &addresses);
        let has_good_upstreams = is_good(&upstreams);
        let (mut proxy, _) =
            proxy::draw_config(simulation, timeouts, ProxyMode::Reverse(upstreams));
        let proxy_change = simulation.draw(&changes);
        proxy_change.prepare(&mut proxy);
        let mut load = DrawnLoad::new(simulation, proxy.event_loops.listen);
        load.config.url = format!("{}{}", load.config.url, PATH.trim_start_matches('/'));
        proxy.tls = simulation.draw_tls();
        let method = simulation.draw(&["GET", "GET", "GET", "HEAD"]);
        if load.config.template.method == "GET" {
            let expect = format!("length={length}").parse().ok();
            load.config.template = RequestTemplate {
                method: method.to_owned(),
                expect: expect.filter(|_| origins.is_none()),
                ..load.config.template
            };
        } else if let Some(body) = &mut load.config.template.body {
            let length = std::mem::take(body).len() as u64;
            content::append(request_phase(ID), length, body);
        }
        let warm_up = simulation.draw(&[ms(2_000), ms(2_000), ms(0)]);
        let change_after = ms(simulation.draw(&[10, 1, 0, 100, 1_000]));
        let is_benign = swarm.level == FaultLevel::None
            && swarm.network.max_backlog > 1000
            && swarm.network.min_window >= 1024
            && !swarm.is_slow()
            && origins.is_none()
            && !warm_up.is_zero()
            && is_patient(&timeouts)
            && has_good_upstreams
            && proxy_change != Change::Stop
            && servers.iter().all(|(config, change)| {
                *change != Change::Stop
                    && config.event_loops.max_connections.is_none()
                    && config.event_loops.shutdown_timeout > Duration::from_secs(1)
            })
            && proxy.event_loops.max_connections.is_none()
            && proxy.event_loops.shutdown_timeout > Duration::from_secs(1)
            && load.config.template.method != "POST";
        let stop_after = load::draw_stop(simulation);
        Drawn {
            load,
            stop_after,
            proxy,
            proxy_change,
            servers,
            origins,
            length,
            warm_up,
            change_after,
            is_benign,
        }
    }
}

/// Returns whether no timeout expires over a network without faults.
fn is_patient(of: &Timeouts) -> bool {
    let second = Duration::from_secs(1);
    let shortest = [of.queue, of.connect, of.send, of.response_header, of.response_body];
    shortest.into_iter().all(|timeout| timeout > second)
        && (of.request.is_zero() || of.request > second)
}

/// Returns whether the proxy considers servers available as long as they are, and sends requests to them.
fn is_good(upstreams: &Upstreams) -> bool {
    let is_quick = |timeout: Duration| timeout < Duration::from_secs(1);
    upstreams.max_attempts.get() > 1
        && upstreams.health.as_ref().is_none_or(|health| !is_quick(health.timeout))
}
