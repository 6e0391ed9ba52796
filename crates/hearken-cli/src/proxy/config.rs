//! The settings as the server takes them, and in one line.

use hearken_http::forward::Given;
use hearken_server::config::Handler;
use hearken_server::proxy::config::{
    Active, Balance, Fields, Forward, HashKey, Timeouts, To, Upstreams,
};
use hearken_server::{Config, proxy};

use crate::args::events::Switch;
use crate::args::proxy::{FieldArgs, GivenArg, HostArg, ProxyArgs, UpstreamTimeArgs};

pub(crate) fn config(args: ProxyArgs) -> Config {
    let handler = proxy::Config {
        timeouts: timeouts(&args.times),
        limits: args.client.limits.http(),
        body_limit: args.body.max_body.0,
        splice: args.experiments.no_splice == Switch::No,
        ..proxy::Config::new(to(&args))
    };
    let handler = proxy::Config { fields: fields(args.fields), ..handler };
    args.client.config(args.how, Handler::Proxy(Box::new(handler)))
}

fn fields(args: FieldArgs) -> Fields {
    let defaults = Fields::default();
    Fields {
        via: args.via.map_or(defaults.via, |via| via.0.unwrap_or_default()),
        x_forwarded: args.x_forwarded.into(),
        forwarded: args.forwarded.into(),
        keep_host: matches!(args.host, HostArg::Keep),
    }
}

fn to(args: &ProxyArgs) -> To {
    let (place, balance) = (&args.place, &args.balance);
    if place.forward {
        return To::Anywhere(Forward {
            allow: place.allow.clone(),
            deny: place.deny.clone(),
            connect_ports: place.connect_port.iter().map(|port| port.get()).collect(),
            keep: balance.keep,
        });
    }
    To::Upstreams(Upstreams {
        policy: balance.policy.clone(),
        keep: balance.keep,
        max_requests: balance.max_requests.0,
        queue: balance.queue,
        tries: balance.tries,
        passive: balance.passive.0,
        active: balance.check_path.0.clone().map(|path| Active {
            path,
            host: balance.check_host.0.clone(),
            every: balance.check_every,
            timeout: balance.check_timeout,
            fall: balance.check_fall,
            rise: balance.check_rise,
            status: balance.check_status.0,
        }),
        slow_start: balance.slow_start,
        resolve_every: balance.resolve_every,
        send_proxy_protocol: balance.send_proxy_protocol.0,
        ..Upstreams::new(place.to.clone())
    })
}

fn timeouts(args: &UpstreamTimeArgs) -> Timeouts {
    Timeouts {
        queue: args.queue_timeout,
        connect: args.connect_timeout,
        send: args.server_send_timeout,
        response: args.response_timeout,
        response_body: args.response_body_timeout,
        whole: args.whole_timeout,
        tunnel: args.tunnel_timeout,
        keep: args.keep_timeout,
    }
}

impl From<GivenArg> for Given {
    fn from(given: GivenArg) -> Given {
        match given {
            GivenArg::Replace => Given::Replace,
            GivenArg::Append => Given::Append,
            GivenArg::Keep => Given::Keep,
            GivenArg::Remove => Given::Remove,
        }
    }
}

/// Returns a line that says what the proxy does.
pub(crate) fn summary(args: &ProxyArgs) -> String {
    let what = match args.place.forward {
        true => "forward proxy".to_owned(),
        false => {
            format!("reverse proxy {}, {}", destination(args), policy(&args.balance.policy))
        }
    };
    format!("{what}, listening on {}", args.client.connections.listen)
}

/// Returns `to 2 servers`, or `to wherever is asked for`.
pub(crate) fn destination(args: &ProxyArgs) -> String {
    match (args.place.forward, args.place.to.len()) {
        (true, _) => "to wherever is asked for".to_owned(),
        (false, 1) => "to 1 server".to_owned(),
        (false, count) => format!("to {count} servers"),
    }
}

fn policy(policy: &Balance) -> String {
    match policy {
        Balance::RoundRobin => "round-robin".to_owned(),
        Balance::LeastConnections => "least-connections".to_owned(),
        Balance::RandomTwo => "random-two".to_owned(),
        Balance::Hash(HashKey::Client) => "hash:client".to_owned(),
        Balance::Hash(HashKey::Target) => "hash:target".to_owned(),
        Balance::Hash(HashKey::Host) => "hash:host".to_owned(),
        Balance::Hash(HashKey::Field(name)) => format!("hash:field={name}"),
    }
}
