//! The settings of a load and of its target, as a history draws them.

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::time::Duration;

use hearken_load::{
    Arrivals, Config, Count, Distribution, Model, Profile, QueueOrder, RequestTemplate, SlowOptions,
};

use crate::history::Simulation;
use crate::selection::Protocols;
use crate::swarm::Swarm;

use super::target::TargetSettings;

/// The drawn settings.
#[derive(Debug)]
pub(in crate::kinds) struct Drawn {
    pub(in crate::kinds) config: Config,
    /// Arrivals per second, if they arrive at a constant rate.
    pub(in crate::kinds) rate: Option<f64>,
    /// Whether connections at the side of the load send requests, too.
    pub(in crate::kinds) has_side: bool,
}

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Returns whether each byte costs events, because windows, buffers or turns are tiny.
fn is_tiny(swarm: &Swarm) -> bool {
    swarm.is_slow() || swarm.network.min_window < 1000
}

impl Drawn {
    /// Draws a load of the server at `address`.
    pub(in crate::kinds) fn new(simulation: &Simulation, address: SocketAddr) -> Drawn {
        let is_tiny = is_tiny(&simulation.swarm);
        let max_requests: u32 = if is_tiny { 4 } else { 40 };
        let model =
            simulation.draw(&[Model::Requests, Model::Requests, Model::Connections, Model::Closed]);
        let has_several = model != Model::Requests;
        let timeout = simulation.draw(&[ms(500), ms(100), ms(20), ms(3000), ms(3)]);
        let shorter = [None, None, None, Some(timeout / 2), Some(timeout / 8), Some(timeout * 2)];
        let wanted = 1 + simulation.world.decide(max_requests);
        let duration = simulation.draw(&[ms(200), ms(1000), ms(50), ms(10)]);
        let rate = f64::from(wanted) / duration.as_secs_f64();
        let is_ramp = simulation.draw(&[false, false, false, true]);
        let profile = if is_ramp {
            let text = format!("{rate}@{0}ms,{1}@{0}ms", duration.as_millis() / 2, rate / 2.0);
            text.parse().unwrap_or_else(|_| Profile::constant(rate))
        } else {
            Profile::constant(rate)
        };
        let arrivals = simulation.draw(&[Arrivals::Constant, Arrivals::Poisson, Arrivals::Uniform]);
        let is_constant = arrivals == Arrivals::Constant && !is_ramp && model == Model::Requests;
        let threads = simulation.draw(&[1, 1, 1, 2, 3]);
        let connections = simulation.draw(&[None, Some(4), Some(3), Some(8)]);
        let count = |max: u32| {
            let nonzero = |value| NonZeroU32::new(value).unwrap_or(NonZeroU32::MIN);
            Count::between(nonzero(1), nonzero(max))
        };
        let per_connection =
            simulation.draw(&[None, None, Some(count(1)), Some(count(3)), Some(count(6))]);
        let is_limited = model == Model::Closed || simulation.draw(&[false, false, true]);
        let limit = 1 + u64::from(simulation.world.decide(max_requests));
        let think = |simulation: &Simulation| {
            simulation.draw(&[None, None, Some("exp:5ms"), Some("uniform:0ms..50ms")])
        };
        let parsed = |text: Option<&str>| -> Option<Distribution> { text?.parse().ok() };
        let has_side = simulation.draw(&[false, false, false, true]);
        let slow = |simulation: &Simulation| {
            let rate = simulation.draw(&[1000.0, 200.0, 50.0]);
            simulation.draw(&[None, Some(SlowOptions { connections: 2, rate })])
        };
        let mut config = Config {
            url: format!("http://{address}/"),
            model: Some(model),
            rate: profile,
            duration: (!is_limited || simulation.draw(&[true, false])).then_some(duration),
            requests: is_limited.then(|| NonZeroU64::new(limit)).flatten(),
            arrivals,
            connections: connections.and_then(NonZeroUsize::new),
            queue: simulation.draw(&[QueueOrder::Lifo, QueueOrder::Fifo]),
            requests_per_connection: per_connection,
            timeout,
            connect_timeout: simulation.draw(&shorter),
            first_byte_timeout: simulation.draw(&shorter),
            threads: NonZeroUsize::new(threads).unwrap_or(NonZeroUsize::MIN),
            report_interval: simulation.draw(&[ms(1000), ms(100), ms(10)]),
            seed: Some(simulation.world.decide(1 << 16).into()),
            connection_lifetime: parsed(simulation.draw(&[None, None, None, Some("exp:30ms")])),
            ..Config::default()
        };
        if simulation.draw(&[false, false, false, true]) {
            let body = Some(vec![b'x'; simulation.draw(&[10, 0, 300])]);
            let method = "POST".to_owned();
            config.template = RequestTemplate { method, body, ..RequestTemplate::default() };
        }
        if has_several {
            config.pipeline =
                NonZeroUsize::new(simulation.draw(&[1, 1, 2, 4])).unwrap_or(NonZeroUsize::MIN);
            config.think_time = parsed(think(simulation));
            config.template.cookies = simulation.draw(&[false, false, true]);
        }
        if has_side {
            config.idle_connections = simulation.draw(&[1, 0, 3]);
            config.idle_sends_request = simulation.draw(&[false, true]);
            config.idle_think_time = parsed(think(simulation));
            config.idle_rate = simulation.draw(&[None, Some(100.0)]);
            config.slow_readers = slow(simulation);
            config.slow_senders = slow(simulation);
        }
        let Protocols { http2, tls } = simulation.swarm.protocols;
        if http2 {
            config.http2 = NonZeroU32::new(simulation.draw(&[10, 1, 2, 200]));
            config.pipeline = NonZeroUsize::MIN;
        }
        if tls {
            config.url = config.url.replace("http:", "https:");
            config.tls.insecure = true;
            config.tls.resumption = simulation.draw(&[true, false]);
        }
        Drawn { config, rate: is_constant.then_some(rate), has_side }
    }
}

/// Draws the behaviour of the scripted server at `address`, for a load with this timeout.
pub(super) fn draw_target(
    simulation: &Simulation,
    address: SocketAddr,
    timeout: Duration,
) -> TargetSettings {
    let is_tiny = is_tiny(&simulation.swarm);
    TargetSettings {
        address,
        timeout,
        is_slow: simulation.draw(&[false, true]),
        is_faulty: simulation.draw(&[false, true]),
        max_body: simulation.draw(&[100, 1, if is_tiny { 200 } else { 5_000 }]),
        listens_after: simulation.draw(&[ms(0), ms(0), ms(0), ms(5), ms(300)]),
        pauses_after: simulation.draw(&[None, None, None, Some(ms(30))]),
        accepts_late: simulation.draw(&[false, false, false, true]),
        backlog: simulation.draw(&[1000, 1000, 1, 2]),
    }
}

/// Draws the time after which the load is stopped, if it is.
pub(in crate::kinds) fn draw_stop(simulation: &Simulation) -> Option<Duration> {
    simulation.draw(&[None, None, None, Some(ms(0)), Some(ms(7)), Some(ms(60)), Some(ms(400))])
}
