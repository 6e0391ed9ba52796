//! The arguments of `hearken proxy`. Each has a key in its file, too: see `proxy/keys.rs`.

use std::num::{NonZeroU16, NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use hearken_server::proxy::config::{Balance, Passive, ProxyProtocol, Rule, Server};

use super::client::ClientArgs;
use super::events::{EventArgs, Switch};
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
On SIGTERM or SIGINT it stops accepting connections, completes requests in progress within --grace, and
exits with 0; a second signal ends it immediately. SIGHUP reopens the access log. SIGUSR1 prints statistics of
waits for events. Write DURATION as 500ms, 5s, 2m or 1h, and BYTES as a number or as 16k, 8M. docs/proxy.md
describes the file.")]
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
    pub(crate) client: ClientArgs,
    #[command(flatten)]
    pub(crate) body: BodyArgs,
    #[command(flatten)]
    pub(crate) times: UpstreamTimeArgs,
    #[command(flatten)]
    pub(crate) fields: FieldArgs,
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
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    pub(crate) slow_start: Duration,
    /// How often names are looked up again; 0 for never
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub(crate) resolve_every: Duration,
    /// Begin each connection to a server with a PROXY protocol header: v1, v2 or none
    #[arg(long, value_name = "VERSION", default_value = "none", value_parser = perhaps(values::proxy_protocol))]
    pub(crate) send_proxy_protocol: Perhaps<ProxyProtocol>,
    /// Leave a server out after so many failures in a row, for so long: FAILURES/DURATION, or off
    #[arg(long, value_name = "RULE", default_value = "3/10s", value_parser = values::passive)]
    pub(crate) passive: Perhaps<Passive>,
    /// Ask each server for PATH whether it is well, or "none"
    #[arg(long, value_name = "PATH", default_value = "none", value_parser = perhaps(values::path))]
    pub(crate) check_path: Perhaps<String>,
    /// The Host it is asked with, or "none" for its own address
    #[arg(long, value_name = "HOST", default_value = "none", value_parser = perhaps(values::host))]
    pub(crate) check_host: Perhaps<String>,
    /// How often it is asked
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = patience)]
    pub(crate) check_every: Duration,
    /// For the whole answer to that
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = patience)]
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
pub(crate) struct BodyArgs {
    /// Maximum size of a request body (413), or "none"
    #[arg(long, value_name = "BYTES", default_value = "none", value_parser = perhaps(size))]
    pub(crate) max_body: Perhaps<u64>,
}

#[derive(Args)]
#[command(next_help_heading = "Timeouts")]
pub(crate) struct UpstreamTimeArgs {
    /// Timeout in the queue for an upstream server (503)
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = patience)]
    pub(crate) queue_timeout: Duration,
    /// Timeout for connecting to an upstream server, including the name lookup (504)
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = patience)]
    pub(crate) connect_timeout: Duration,
    /// Timeout for an upstream server to receive the next bytes of a request (504)
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = patience)]
    pub(crate) server_send_timeout: Duration,
    /// Timeout for a response head, from the end of the request (504)
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = patience)]
    pub(crate) response_timeout: Duration,
    /// Timeout for the next bytes of a response body; the client's connection is closed
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = patience)]
    pub(crate) response_body_timeout: Duration,
    /// Timeout for a request as a whole (504, or the connection is closed); 0 for none
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    pub(crate) whole_timeout: Duration,
    /// Timeout for the next bytes in a tunnel, in either direction
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = patience)]
    pub(crate) tunnel_timeout: Duration,
    /// Timeout of idle connections to upstream servers
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = patience)]
    pub(crate) keep_timeout: Duration,
}

#[derive(Args)]
#[command(next_help_heading = "Fields")]
pub(crate) struct FieldArgs {
    /// Name of this proxy in Via, or "none" for no such field [default: hearken- and 8 random hex digits]
    #[arg(long, value_name = "NAME", value_parser = perhaps(values::via))]
    pub(crate) via: Option<Perhaps<String>>,
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
#[command(next_help_heading = "Events and experiments")]
pub(crate) struct ExperimentArgs {
    /// Copy long bodies and tunnels through this process instead of having the kernel move them
    #[arg(long, value_name = "yes|no", num_args = 0..=1, require_equals = true, hide_possible_values = true,
        default_value = "no", default_missing_value = "yes", hide_default_value = true)]
    pub(crate) no_splice: Switch,
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
