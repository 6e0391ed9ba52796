//! Threads, listeners, limits, logs and metrics of a server, independent of its handlers.
//!
//! | part | contents |
//! |---|---|
//! | [`server`] | starting and stopping worker threads |
//! | [`event_loops`] | settings of the event loops |
//! | `acceptor` | source of a worker's connections |
//! | `group`, `dispatcher` | workers that exchange connections; the thread that accepts for them |
//! | `wakers` | wakers of all threads |
//! | `limits`, [`limit_reached`] | limits of a worker; reports of exhausted limits |
//! | [`access_log`] | access log and its writer thread |
//! | [`metrics`] | counters and the metrics page |
//! | `certificate_watch` | replaces TLS certificates when their files change |
//! | `administration` | data and commands of the admin address |
//! | `proxy_protocol`, [`network`] | PROXY protocol; networks that may use it |
//! | `wait_meter` | measurements of waits for events |
//! | `rate` | minimum transfer rate of clients |

pub(crate) mod acceptor;
pub mod access_log;
#[doc(hidden)]
pub mod administration;
pub(crate) mod certificate_watch;
mod dispatcher;
pub mod event_loops;
pub(crate) mod group;
pub mod limit_reached;
pub(crate) mod limits;
pub mod metrics;
pub mod network;
#[doc(hidden)]
pub mod proxy_protocol;
pub(crate) mod rate;
pub mod server;
pub(crate) mod wait_meter;
pub(crate) mod wakers;
