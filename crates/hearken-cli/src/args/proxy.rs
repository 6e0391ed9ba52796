//! The arguments of `hearken proxy`. Each has a key in its file, too: see `proxy/keys.rs`.

use std::net::SocketAddr;
use std::num::{NonZeroU16, NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use hearken_server::proxy::config::{Balance, Passive, ProxyProtocol, Rule, Server};

use super::events::EventArgs;
use crate::proxy::perhaps::{Perhaps, perhaps};
use crate::proxy::{rule, to, values};
use crate::size::size;
use crate::time::{duration, patience};

#[derive(Args)]
#[command(after_help = "\
Examples:
  hearken proxy --to http://127.0.0.1:9000
      What comes to http://127.0.0.1:8080 goes to that server.
  hearken proxy --to http://a:9000 --to 'http://b:9000;weight=3' --to 'unix:/run/c;backup' --listen 0.0.0.0:80
      To several, to whom all who can connect may speak; the last one only when no other is up.
  hearken proxy --to http://a:9000 --to http://b:9000 --policy least-connections --check-path /healthz
      To the one with the fewest requests in flight, of those that are well when asked every 5 s.
  hearken proxy --forward --allow .example.org --allow 10.1.0.0/16 --connect-port 443
      Wherever clients ask, if it is allowed.
  hearken proxy --config proxy.toml --check
      Whether a file is right. What is given on the command line as well wins over it.
  hearken proxy --to http://127.0.0.1:9000 --print-config > proxy.toml
      The same as a file, with every setting.
  hearken proxy --to http://127.0.0.1:9000 --keep 0 --io wait-first --accept-limit 1 --events poll
      As a paper's proxy did: a connection to the server for each request.

Prints \"proxying on http://ADDR:PORT to N servers (MECHANISM, N workers, M connections)\" when it is ready.
SIGTERM or SIGINT: accepts no more, finishes what is in flight within --grace, and exits with 0; a second
one ends it at once. SIGHUP: opens the access log anew. SIGUSR1: tells what waits have come to. TIME is as 500ms, 5s, 2m; SIZE in bytes or as 16k, 8M. docs/proxy.md tells of the file.")]
pub(crate) struct ProxyArgs {
    /// Read settings from FILE, which is TOML (- for stdin)
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Say whether file and options are right, and start nothing
    #[arg(long)]
    pub(crate) check: bool,
    /// Print all settings as a file, and start nothing
    #[arg(long, conflicts_with = "check")]
    pub(crate) print_config: bool,
    #[command(flatten)]
    pub(crate) place: WhereArgs,
    #[command(flatten)]
    pub(crate) balance: BalanceArgs,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
    #[command(flatten)]
    pub(crate) times: TimeArgs,
    #[command(flatten)]
    pub(crate) fields: FieldArgs,
    #[command(flatten)]
    pub(crate) logs: LogArgs,
    #[command(flatten, next_help_heading = "Events and experiments")]
    pub(crate) how: EventArgs,
    #[command(flatten)]
    pub(crate) experiments: ExperimentArgs,
    /// End when the process that started this one does
    #[arg(long, hide = true)]
    pub(crate) exit_with_parent: bool,
}

#[derive(Args)]
#[command(next_help_heading = "Where requests go")]
pub(crate) struct WhereArgs {
    /// A server: http://HOST[:PORT], HOST:PORT or unix:/PATH, then ;weight=N and ;backup if wanted; may
    /// be given several times
    #[arg(long, value_name = "SERVER", value_parser = to::server)]
    pub(crate) to: Vec<Server>,
    /// To whatever server a request names; CONNECT makes a tunnel
    #[arg(long)]
    pub(crate) forward: bool,
    /// With --forward, only there: ADDRESS, NETWORK/BITS, NAME, or .DOMAIN for all of it; may be given
    /// several times. This host and private networks need to be allowed by address
    #[arg(long, value_name = "RULE", value_parser = rule::rule)]
    pub(crate) allow: Vec<Rule>,
    /// With --forward, not there, whatever is allowed; may be given several times
    #[arg(long, value_name = "RULE", value_parser = rule::rule)]
    pub(crate) deny: Vec<Rule>,
    /// With --forward, a port that tunnels may go to; may be given several times [default: 443]
    #[arg(long, value_name = "PORT")]
    pub(crate) connect_port: Vec<NonZeroU16>,
    /// Where to listen; port 0 takes any that is free
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8080")]
    pub(crate) listen: SocketAddr,
    /// Connections begin with a PROXY protocol header, which tells the client's address
    #[arg(long, value_name = "yes|no", num_args = 0..=1, require_equals = true, hide_possible_values = true,
        default_value = "no", default_missing_value = "yes", hide_default_value = true)]
    pub(crate) proxy_protocol: Switch,
    /// What a client means that ends its side while its request is in flight
    #[arg(long, value_name = "WHAT", default_value = "waits")]
    pub(crate) half_close: HalfCloseArg,
}

#[derive(Args)]
#[command(next_help_heading = "Balancing and health")]
pub(crate) struct BalanceArgs {
    /// Which server gets a request: round-robin, least-connections, random-two, hash:client, hash:target,
    /// hash:host or hash:field=NAME
    #[arg(long, value_name = "POLICY", default_value = "round-robin", value_parser = values::policy)]
    pub(crate) policy: Balance,
    /// Connections to each server (with --forward, to all) that are kept between requests; 0 for one
    /// a request
    #[arg(long, value_name = "N", default_value = "256")]
    pub(crate) keep: usize,
    /// Requests in flight at each server, or "none" for no limit
    #[arg(long, value_name = "N", default_value = "none", value_parser = perhaps(values::count))]
    pub(crate) max_requests: Perhaps<NonZeroUsize>,
    /// Requests that may wait for a server to have room; more are answered with 503
    #[arg(long, value_name = "N", default_value = "1024")]
    pub(crate) queue: usize,
    /// Servers that a request is tried on which none has begun to answer
    #[arg(long, value_name = "N", default_value = "2")]
    pub(crate) tries: NonZeroU32,
    /// Over what time a server that comes back gets up to its full share
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = duration)]
    pub(crate) slow_start: Duration,
    /// How often names are looked up again; 0 for never
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub(crate) resolve_every: Duration,
    /// Begin each connection to a server with a PROXY protocol header: v1, v2 or none
    #[arg(long, value_name = "VERSION", default_value = "none", value_parser = perhaps(values::proxy_protocol))]
    pub(crate) send_proxy_protocol: Perhaps<ProxyProtocol>,
    /// Leave a server out after so many failures in a row, for so long: FAILURES/TIME, or off
    #[arg(long, value_name = "RULE", default_value = "3/10s", value_parser = values::passive)]
    pub(crate) passive: Perhaps<Passive>,
    /// Ask each server for PATH whether it is well, or "none"
    #[arg(long, value_name = "PATH", default_value = "none", value_parser = perhaps(values::path))]
    pub(crate) check_path: Perhaps<String>,
    /// The Host it is asked with, or "none" for its own address
    #[arg(long, value_name = "HOST", default_value = "none", value_parser = perhaps(values::host))]
    pub(crate) check_host: Perhaps<String>,
    /// How often it is asked
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = patience)]
    pub(crate) check_every: Duration,
    /// For the whole answer to that
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = patience)]
    pub(crate) check_timeout: Duration,
    /// A server that is up is down after so many failures in a row
    #[arg(long, value_name = "N", default_value = "3")]
    pub(crate) check_fall: NonZeroU32,
    /// A server that is down is up after so many successes in a row
    #[arg(long, value_name = "N", default_value = "2")]
    pub(crate) check_rise: NonZeroU32,
    /// The status of a server that is well, or 200-399 for all of these
    #[arg(long, value_name = "STATUS", default_value = "200-399", value_parser = values::status)]
    pub(crate) check_status: Perhaps<u16>,
}

#[derive(Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitArgs {
    /// Bytes per second below which a client that is being sent to is cut off; 0: who takes nothing is
    #[arg(long, value_name = "RATE", default_value = "256", value_parser = size)]
    pub(crate) min_rate: u64,
    /// The head of a request or of a response, 1k to 1M (431, 502)
    #[arg(long, value_name = "SIZE", default_value = "16k", value_parser = values::head)]
    pub(crate) max_head: usize,
    /// Fields in a head, 1 to 1000 (431, 502)
    #[arg(long, value_name = "N", default_value = "100", value_parser = values::fields)]
    pub(crate) max_fields: usize,
    /// A request's target, 64 to 1M (414)
    #[arg(long, value_name = "SIZE", default_value = "8k", value_parser = values::target)]
    pub(crate) max_target: usize,
    /// A request's body (413), or "none" for no limit
    #[arg(long, value_name = "SIZE", default_value = "none", value_parser = perhaps(size))]
    pub(crate) max_body: Perhaps<u64>,
}

#[derive(Args)]
#[command(next_help_heading = "Time-outs")]
pub(crate) struct TimeArgs {
    /// For a request's whole head, however it trickles (then 408)
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = patience)]
    pub(crate) head_timeout: Duration,
    /// For the next bytes of a request's body (then 408)
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = patience)]
    pub(crate) body_timeout: Duration,
    /// For the next request on a connection
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = patience)]
    pub(crate) idle_timeout: Duration,
    /// Over what time the rate of sending to a client is measured
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = patience)]
    pub(crate) send_timeout: Duration,
    /// For a server to have room, in the queue (then 503)
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = patience)]
    pub(crate) queue_timeout: Duration,
    /// For a connection to a server, its name's look-up included (then 504)
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = patience)]
    pub(crate) connect_timeout: Duration,
    /// For a server to take some of a request (then 504)
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = patience)]
    pub(crate) server_send_timeout: Duration,
    /// From the end of a request to the end of the response's head (then 504)
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = patience)]
    pub(crate) response_timeout: Duration,
    /// For the next bytes of a response's body (then the client is cut off)
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = patience)]
    pub(crate) response_body_timeout: Duration,
    /// For a request as a whole (then 504, or cut off); 0 for any time
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = duration)]
    pub(crate) whole_timeout: Duration,
    /// For the next bytes in a tunnel, either way
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = patience)]
    pub(crate) tunnel_timeout: Duration,
    /// How long a connection to a server is kept that nobody uses
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = patience)]
    pub(crate) keep_timeout: Duration,
    /// For requests in flight to end after SIGTERM
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub(crate) grace: Duration,
}

#[derive(Args)]
#[command(next_help_heading = "Fields")]
pub(crate) struct FieldArgs {
    /// The name in Via, or "none" for no such field
    #[arg(long, value_name = "NAME", default_value = "hearken", value_parser = perhaps(values::via))]
    pub(crate) via: Perhaps<String>,
    /// What becomes of X-Forwarded-For, -Proto and -Host
    #[arg(long, value_name = "HOW", default_value = "replace")]
    pub(crate) x_forwarded: GivenArg,
    /// What becomes of Forwarded (RFC 7239)
    #[arg(long, value_name = "HOW", default_value = "remove")]
    pub(crate) forwarded: GivenArg,
    /// The Host that a server is sent
    #[arg(long, value_name = "WHOSE", default_value = "keep")]
    pub(crate) host: HostArg,
}

#[derive(Args)]
#[command(next_help_heading = "Logs and metrics")]
pub(crate) struct LogArgs {
    /// Append a line for each request to FILE (- for stdout), or "none"
    #[arg(long, value_name = "FILE", default_value = "none", value_parser = perhaps(values::file))]
    pub(crate) access_log: Perhaps<PathBuf>,
    /// How that line is written
    #[arg(long, value_name = "FORMAT", default_value = "combined")]
    pub(crate) log_format: LogFormatArg,
    /// Where metrics are told and servers can be drained, over HTTP, or "none"; who can connect there may
    #[arg(long, value_name = "ADDR:PORT", default_value = "none", value_parser = perhaps(values::address))]
    pub(crate) admin: Perhaps<SocketAddr>,
}

#[derive(Args)]
#[command(next_help_heading = "Events and experiments")]
pub(crate) struct ExperimentArgs {
    /// Copy long bodies and tunnels through this process instead of having the kernel move them
    #[arg(long, value_name = "yes|no", num_args = 0..=1, require_equals = true, hide_possible_values = true,
        default_value = "no", default_missing_value = "yes", hide_default_value = true)]
    pub(crate) no_splice: Switch,
    /// Measure what waits for events cost, and tell it at the end
    #[arg(long, value_name = "yes|no", num_args = 0..=1, require_equals = true, hide_possible_values = true,
        default_value = "no", default_missing_value = "yes", hide_default_value = true)]
    pub(crate) meter_waits: Switch,
}

/// On or off, so that the command line can also turn off what a file turned on.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    Yes,
    No,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum HalfCloseArg {
    /// It waits for the answer
    Waits,
    /// It has gone, and its request is given up
    Left,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum GivenArg {
    /// Taken off, and ours set: who sent them is not believed
    Replace,
    /// What we know is added behind them
    Append,
    /// Passed on as they came, and none added
    Keep,
    /// Taken off, and none added
    Remove,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum HostArg {
    /// What the client named
    Keep,
    /// The server's own address
    Server,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum LogFormatArg {
    /// As log analysers read it
    Combined,
    /// A JSON object, with the server and the times
    Json,
}
