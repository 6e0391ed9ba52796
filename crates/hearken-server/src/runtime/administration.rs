//! The data and commands that are offered at the admin address.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::metrics::UpstreamFigures;

/// A command to an upstream server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// It gets requests again.
    Ready,
    /// It gets no more requests; those in progress end.
    Drain,
    /// It gets no requests at all.
    Off,
}

/// There is no upstream server of this name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoSuchUpstream;

/// The upstream servers of one handler.
pub trait Upstreams: Send + Sync {
    /// Returns their figures.
    fn figures(&self) -> Vec<UpstreamFigures>;

    /// Gives a command to those that have this name.
    ///
    /// # Errors
    /// There is none.
    fn order(&self, name: &str, order: Order) -> Result<(), NoSuchUpstream>;
}

/// The data and commands that are offered at the admin address.
pub struct Sources {
    /// Appends the page of metrics.
    pub metrics: Box<dyn Fn(&mut String) + Send + Sync>,
    /// The upstream servers.
    pub upstreams: Vec<Arc<dyn Upstreams>>,
    /// Whether the server is stopping.
    pub stopping: Arc<AtomicBool>,
}

impl Sources {
    /// Returns the figures of all upstream servers.
    pub fn figures(&self) -> Vec<UpstreamFigures> {
        self.upstreams.iter().flat_map(|upstreams| upstreams.figures()).collect()
    }

    /// Gives a command to the upstream servers that have this name.
    ///
    /// # Errors
    /// There is none.
    pub fn order(&self, name: &str, order: Order) -> Result<(), NoSuchUpstream> {
        // Each handler that has one obeys.
        let obey = |upstreams: &&Arc<dyn Upstreams>| upstreams.order(name, order).is_ok();
        match self.upstreams.iter().filter(obey).count() {
            0 => Err(NoSuchUpstream),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources").field("stopping", &self.stopping).finish_non_exhaustive()
    }
}
