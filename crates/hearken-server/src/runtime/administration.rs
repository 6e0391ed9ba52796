//! The data and commands that are available at the admin address.

use std::fmt;
use std::sync::Arc;

use hearken::timer::Time;

use super::metrics::UpstreamStats;
use crate::sync::AtomicBool;

/// A command for an upstream server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UpstreamCommand {
    /// Resume sending requests to the server.
    Ready,
    /// Send no new requests to the server. Requests in progress complete.
    Drain,
    /// Send no new requests to the server, and close idle connections to it.
    Off,
}

/// The error for an unknown upstream server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoSuchUpstream;

/// The upstream servers of one handler.
pub trait UpstreamControl: Send + Sync {
    /// Returns the state and counters of the servers at `now`.
    fn stats(&self, now: Time) -> Vec<UpstreamStats>;

    /// Applies a command that is given at `now` to the servers with this name.
    ///
    /// # Errors
    /// No server has this name.
    fn apply(&self, name: &str, order: UpstreamCommand, now: Time) -> Result<(), NoSuchUpstream>;
}

/// A function that appends the metrics page as of a time.
pub type MetricsPage = dyn Fn(Time, &mut String) + Send + Sync;

/// The data and commands of a server.
pub struct AdminSources {
    /// The metrics.
    pub metrics: Box<MetricsPage>,
    /// The upstream servers.
    pub upstreams: Vec<Arc<dyn UpstreamControl>>,
    /// Whether the server is stopping.
    pub stopping: Arc<AtomicBool>,
}

impl AdminSources {
    /// Returns the state and counters of all upstream servers at `now`.
    pub fn stats(&self, now: Time) -> Vec<UpstreamStats> {
        self.upstreams.iter().flat_map(|upstreams| upstreams.stats(now)).collect()
    }

    /// Applies a command that is given at `now` to the upstream servers with this name.
    ///
    /// # Errors
    /// No server has this name.
    pub fn apply(
        &self,
        name: &str,
        order: UpstreamCommand,
        now: Time,
    ) -> Result<(), NoSuchUpstream> {
        // Several handlers may have a server with this name.
        let applies =
            |upstreams: &&Arc<dyn UpstreamControl>| upstreams.apply(name, order, now).is_ok();
        match self.upstreams.iter().filter(applies).count() {
            0 => Err(NoSuchUpstream),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for AdminSources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources").field("stopping", &self.stopping).finish_non_exhaustive()
    }
}
