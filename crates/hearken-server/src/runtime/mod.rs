//! What every server needs, whatever it answers: threads, listeners, limits, logs and metrics.

pub(crate) mod acceptor;
pub(crate) mod access_log;
pub(crate) mod clock;
pub mod limit_reached;
pub(crate) mod limits;
pub mod metrics;
pub mod proxy_protocol;
pub(crate) mod rate;
pub mod server;
