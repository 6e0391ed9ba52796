//! What every server needs, whatever it answers: threads, listeners, limits, logs and metrics.
//!
//! | part | contents |
//! |---|---|
//! | [`server`] | starting and stopping worker threads |
//! | [`event_loops`] | settings of the event loops |
//! | `acceptor` | a worker's listening socket |
//! | `limits`, [`limit_reached`] | a worker's share of descriptors; reporting that it is used up |
//! | `access_log` | the access log and the thread that writes it |
//! | [`metrics`] | counters, and the page that shows them |
//! | [`administration`] | data and commands of the admin address |
//! | [`proxy_protocol`], [`network`] | the PROXY protocol; networks that may use it |
//! | `queue_thread` | background threads that wait in an event queue |
//! | `socket` | looking at a socket without receiving from it |
//! | `rate`, `clock` | minimum rates of clients; the time of day |

pub(crate) mod acceptor;
pub mod access_log;
pub mod administration;
pub mod event_loops;
pub mod limit_reached;
pub(crate) mod limits;
pub mod metrics;
pub mod network;
pub(crate) mod peek;
pub mod proxy_protocol;
pub(crate) mod queue_thread;
pub(crate) mod rate;
pub mod server;
pub(crate) mod unix_time;
