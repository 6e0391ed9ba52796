//! How a server has its events: the arguments that `serve` and `proxy` share.

use std::io::{self, Write};
use std::num::{NonZeroU32, NonZeroUsize};
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use hearken::io::UnknownName;
use hearken::io::readiness::{InterestPolicy, Order};
use hearken_server::Loops;

use crate::time::duration;

#[derive(Args)]
pub(crate) struct EventArgs {
    /// The event mechanism, as `hearken mechanisms` lists them: NAME or NAME:OPTION=VALUE
    #[arg(long, value_name = "NAME", default_value = hearken::mechanism::AUTO)]
    pub(crate) events: String,
    /// Signals that may be queued for this process, for experiments with rt-signal (RLIMIT_SIGPENDING)
    #[arg(long, value_name = "N")]
    pub(crate) rt_queue: Option<u64>,
    /// Event loops, each a thread with a listening socket and a table of descriptors of its own
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) workers: NonZeroUsize,
    /// Connections accepted each time there are some to accept, or "all"
    #[arg(long, value_name = "N", default_value = "64")]
    pub(crate) accept_limit: AcceptLimit,
    /// How long the kernel keeps back a connection that says nothing yet, in whole seconds
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    pub(crate) defer_accept: Duration,
    /// Whether a call is tried before it is waited for
    #[arg(long, value_name = "ORDER", default_value_t = Order::default(),
        value_parser = named::<Order>(Order::ALL.iter().map(|order| order.name())))]
    pub(crate) io: Order,
    /// When interest in a connection is changed
    #[arg(long, value_name = "POLICY", default_value_t = InterestPolicy::default(),
        value_parser = named::<InterestPolicy>(InterestPolicy::ALL.iter().map(|policy| policy.name())))]
    pub(crate) interest: InterestPolicy,
    /// Maximum number of open connections [default: as many as the limit of open files allows]
    #[arg(long, value_name = "N")]
    pub(crate) max_connections: Option<NonZeroUsize>,
    /// Measure the CPU time of waits for events, and print it at exit
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

impl EventArgs {
    /// Returns the settings of event loops.
    pub(crate) fn loops(self) -> Loops {
        Loops {
            events: self.events,
            workers: self.workers,
            accept_limit: self.accept_limit.0,
            defer_accept: self.defer_accept,
            order: self.io,
            interest: self.interest,
            max_connections: self.max_connections,
            meter_waits: self.meter_waits == Switch::Yes,
            on_limit: |limit| {
                // Nobody may be there to be told.
                let _ = writeln!(io::stderr(), "hearken: {limit}");
            },
            ..Loops::default()
        }
    }
}

/// A number, or none for `all`.
#[derive(Clone, Copy)]
pub(crate) struct AcceptLimit(pub(crate) Option<NonZeroU32>);

impl FromStr for AcceptLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<AcceptLimit, String> {
        match text {
            "all" => Ok(AcceptLimit(None)),
            _ => match text.parse() {
                Ok(limit) => Ok(AcceptLimit(Some(limit))),
                Err(_) => Err(format!("\"{text}\" is neither a number of 1 or more nor \"all\"")),
            },
        }
    }
}

/// Parses a setting by its name and lists the names in the help text.
fn named<T: FromStr<Err = UnknownName> + Clone + Send + Sync + 'static>(
    names: impl IntoIterator<Item = &'static str>,
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(names).try_map(|name| name.parse())
}
