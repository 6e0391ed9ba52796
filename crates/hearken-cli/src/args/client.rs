//! The client side of a server: the arguments that `serve` and `proxy` share.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use hearken_http::Limits;
use hearken_server::config::Handler;
use hearken_server::runtime::access_log::LogFormat;
use hearken_server::{Config, HalfClose, Loops, Timeouts};

use super::events::EventArgs;
use crate::proxy::perhaps::{Perhaps, perhaps};
use crate::proxy::values::{self, Networks};
use crate::size::size;
use crate::time::{duration, patience};

#[derive(Args)]
pub(crate) struct ClientArgs {
    #[command(flatten)]
    pub(crate) connections: ConnectionArgs,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
    #[command(flatten)]
    pub(crate) times: TimeArgs,
    #[command(flatten)]
    pub(crate) logs: LogArgs,
}

#[derive(Args)]
#[command(next_help_heading = "Client connections")]
pub(crate) struct ConnectionArgs {
    /// Address to listen on; port 0 selects a free port
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8080")]
    pub(crate) listen: SocketAddr,
    /// Networks whose connections begin with a PROXY protocol header: ADDRESS, ADDRESS/BITS, "all" or
    /// "none"; may be given several times [default: none]
    #[arg(long, value_name = "NETWORKS", value_delimiter = ',', value_parser = values::networks)]
    pub(crate) proxy_protocol: Vec<Networks>,
    /// How to treat a client that half-closes the connection while its request is in progress
    #[arg(long, value_name = "MEANING", default_value = "waits")]
    pub(crate) half_close: HalfCloseArg,
}

#[derive(Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitArgs {
    /// Minimum bytes per second that a client receives of a response and sends of a body; 0 for any
    /// progress
    #[arg(long, value_name = "BYTES", default_value = "256", value_parser = size)]
    pub(crate) min_rate: u64,
    /// Maximum size of a message head, 1k to 1M (431)
    #[arg(long, value_name = "BYTES", default_value = "16k", value_parser = values::head)]
    pub(crate) max_head: usize,
    /// Maximum number of fields in a head, 1 to 1000 (431)
    #[arg(long, value_name = "N", default_value = "100", value_parser = values::fields)]
    pub(crate) max_fields: usize,
    /// Maximum size of a request target, 64 to 1M (414)
    #[arg(long, value_name = "BYTES", default_value = "8k", value_parser = values::target)]
    pub(crate) max_target: usize,
}

#[derive(Args)]
#[command(next_help_heading = "Timeouts")]
pub(crate) struct TimeArgs {
    /// Timeout for a complete request head (408)
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = patience)]
    pub(crate) head_timeout: Duration,
    /// Period over which the rate of a request body is measured (408)
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = patience)]
    pub(crate) body_timeout: Duration,
    /// Timeout for a complete request body (408)
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = patience)]
    pub(crate) upload_timeout: Duration,
    /// Timeout for the next request on a connection
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = patience)]
    pub(crate) idle_timeout: Duration,
    /// Period over which the rate of a response to a client is measured
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = patience)]
    pub(crate) send_timeout: Duration,
    /// Grace period for requests in progress after SIGTERM
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub(crate) grace: Duration,
}

#[derive(Args)]
#[command(next_help_heading = "Logs and metrics")]
pub(crate) struct LogArgs {
    /// Access log, with a line for each request: FILE, "-" for standard output, or "none"
    #[arg(long, value_name = "FILE", default_value = "none", value_parser = perhaps(values::file))]
    pub(crate) access_log: Perhaps<PathBuf>,
    /// Format of the access log
    #[arg(long, value_name = "FORMAT", default_value = "combined")]
    pub(crate) log_format: LogFormatArg,
    /// Address for metrics, health and upstream control over HTTP, without access control, or "none"
    #[arg(long, value_name = "ADDR:PORT", default_value = "none", value_parser = perhaps(values::address))]
    pub(crate) admin: Perhaps<SocketAddr>,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum HalfCloseArg {
    /// It waits for the response
    Waits,
    /// It has disconnected, and its request is cancelled
    Left,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum LogFormatArg {
    /// Combined log format, for log analysers
    Combined,
    /// JSON object with the upstream server and times
    Json,
}

impl ClientArgs {
    /// Returns the settings of a server with this handler.
    pub(crate) fn config(self, how: EventArgs, handler: Handler) -> Config {
        let ClientArgs { connections, limits, times, logs } = self;
        let loops = how.loops();
        Config {
            loops: Loops { listen: connections.listen, grace: times.grace, ..loops },
            timeouts: Timeouts {
                head: times.head_timeout,
                body: times.body_timeout,
                request: times.upload_timeout,
                idle: times.idle_timeout,
                send: times.send_timeout,
            },
            min_rate: limits.min_rate,
            limits: limits.http(),
            half_close: match connections.half_close {
                HalfCloseArg::Waits => HalfClose::Waits,
                HalfCloseArg::Left => HalfClose::Left,
            },
            proxy_protocol: connections.proxy_protocol.into_iter().flat_map(|it| it.0).collect(),
            access_log: logs.access_log.0,
            log_format: match logs.log_format {
                LogFormatArg::Combined => LogFormat::Combined,
                LogFormatArg::Json => LogFormat::Json,
            },
            admin: logs.admin.0,
            ..Config::new(handler)
        }
    }
}

impl LimitArgs {
    /// Returns the limits of heads.
    pub(crate) fn http(&self) -> Limits {
        Limits { head_bytes: self.max_head, fields: self.max_fields, target_bytes: self.max_target }
    }
}
