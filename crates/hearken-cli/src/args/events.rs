//! How a server has its events: the arguments that `serve` and `proxy` share.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};
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
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = duration)]
    pub(crate) defer_accept: Duration,
    /// Whether a call is tried before it is waited for
    #[arg(long, value_name = "ORDER", default_value = "try-first")]
    pub(crate) io: IoOrder,
    /// When interest in a connection is changed
    #[arg(long, value_name = "POLICY", default_value = "when-needed")]
    pub(crate) interest: Interest,
    /// Connections open at a time [default: what the limit of open files allows]
    #[arg(long, value_name = "N")]
    pub(crate) max_connections: Option<NonZeroUsize>,
}

impl EventArgs {
    /// The same for a server that listens there.
    pub(crate) fn loops(self, listen: SocketAddr) -> Loops {
        Loops {
            listen,
            events: self.events,
            workers: self.workers,
            accept_limit: self.accept_limit.0,
            defer_accept: self.defer_accept,
            order: self.io.into(),
            interest: self.interest.into(),
            max_connections: self.max_connections,
            on_limit: |met| {
                // Nobody may be there to be told.
                let _ = writeln!(io::stderr(), "hearken: {met}");
            },
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

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum IoOrder {
    /// Call, and wait if it would block
    TryFirst,
    /// Wait, then call
    WaitFirst,
}

impl From<IoOrder> for Order {
    fn from(order: IoOrder) -> Order {
        match order {
            IoOrder::TryFirst => Order::TryFirst,
            IoOrder::WaitFirst => Order::WaitFirst,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Interest {
    /// Changed to just what is waited for, at every change of state
    EveryState,
    /// Added when it is missing, taken back when it wakes in vain
    WhenNeeded,
    /// Declared once, for both directions
    Once,
}

impl From<Interest> for InterestPolicy {
    fn from(interest: Interest) -> InterestPolicy {
        match interest {
            Interest::EveryState => InterestPolicy::EveryState,
            Interest::WhenNeeded => InterestPolicy::WhenNeeded,
            Interest::Once => InterestPolicy::Once,
        }
    }
}
