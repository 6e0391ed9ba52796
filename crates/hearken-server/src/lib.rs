//! Hearken's static site server.
//!
//! [`start`] gives a running [`Server`]: one event loop for each worker thread, each with its own
//! listening socket, table of descriptors, mechanism, cache and connections; they share nothing but
//! a flag to stop.
//!
//! | module | what is in it |
//! |---|---|
//! | [`config`] | what can be set, and its defaults |
//! | [`server`] | starting, stopping, and the worker threads |
//! | `worker` | one event loop: accepting, deadlines, limits |
//! | `connection` | what a connection is doing |
//! | `door` | a worker's listening socket: who is let in, and when nobody is |
//! | `share` | what a worker may have of what the process has |
//! | [`limit`] | what keeps a worker from accepting |
//! | `log` | the access log |
//! | [`site`] | a directory turned into answers, without sockets |

mod clock;
pub mod config;
mod connection;
mod door;
pub mod limit;
mod log;
pub mod proxy;
mod rate;
pub mod server;
mod share;
pub mod site;
mod worker;

pub use config::{Config, Loops, Timeouts};
pub use limit::LimitMet;
pub use server::{Server, StartError, start};
