//! The settings as the server takes them, and in one line.

use hearken_http::forward::Given;
use hearken_server::proxy::Config;
use hearken_server::proxy::config::{
    Active, Balance, Fields, Forward, HalfClose, HashKey, LogFormat, Timeouts, To, Upstreams,
};

use crate::args::proxy::{
    GivenArg, HalfCloseArg, HostArg, LogFormatArg, ProxyArgs, Switch, TimeArgs,
};

pub(crate) fn config(args: ProxyArgs) -> Config {
    let defaults = Config::new(to(&args));
    let (how, limits, fields) = (args.how, args.limits, args.fields);
    Config {
        loops: how.loops(args.place.listen),
        timeouts: timeouts(&args.times),
        min_rate: limits.min_rate,
        limits: hearken_http::Limits {
            head_bytes: limits.max_head,
            fields: limits.max_fields,
            target_bytes: limits.max_target,
        },
        body_limit: limits.max_body.0,
        fields: Fields {
            via: fields.via.0.unwrap_or_default(),
            x_forwarded: fields.x_forwarded.into(),
            forwarded: fields.forwarded.into(),
            keep_host: matches!(fields.host, HostArg::Keep),
        },
        accept_proxy_protocol: args.place.proxy_protocol == Switch::Yes,
        half_close: match args.place.half_close {
            HalfCloseArg::Waits => HalfClose::Waits,
            HalfCloseArg::Left => HalfClose::Left,
        },
        splice: args.experiments.no_splice == Switch::No,
        access_log: args.logs.access_log.0,
        log_format: match args.logs.log_format {
            LogFormatArg::Combined => LogFormat::Combined,
            LogFormatArg::Json => LogFormat::Json,
        },
        admin: args.logs.admin.0,
        meter_waits: args.experiments.meter_waits == Switch::Yes,
        ..defaults
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

fn timeouts(args: &TimeArgs) -> Timeouts {
    Timeouts {
        head: args.head_timeout,
        body: args.body_timeout,
        idle: args.idle_timeout,
        send: args.send_timeout,
        queue: args.queue_timeout,
        connect: args.connect_timeout,
        server_send: args.server_send_timeout,
        response: args.response_timeout,
        response_body: args.response_body_timeout,
        whole: args.whole_timeout,
        tunnel: args.tunnel_timeout,
        keep: args.keep_timeout,
        grace: args.grace,
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

/// What it does, for a line.
pub(crate) fn summary(config: &Config) -> String {
    let what = match &config.to {
        To::Anywhere(_) => "forward proxy".to_owned(),
        To::Upstreams(upstreams) => {
            format!("reverse proxy {}, {}", whereto(&config.to), policy(&upstreams.policy))
        }
    };
    format!("{what}, listening on {}", config.loops.listen)
}

/// `to 2 servers`, or `to wherever it is asked`.
pub(crate) fn whereto(to: &To) -> String {
    match to {
        To::Anywhere(_) => "to wherever is asked for".to_owned(),
        To::Upstreams(upstreams) => match upstreams.servers.len() {
            1 => "to 1 server".to_owned(),
            count => format!("to {count} servers"),
        },
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
