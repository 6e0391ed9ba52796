//! Hearken's static site server.
//!
//! [`start`] gives a running [`Server`]: one event loop for each worker thread, each with its own
//! listening socket, table of descriptors, mechanism, cache and connections; they share nothing but
//! a flag to stop.
//!
//! | module | what is in it |
//! |---|---|
//! | [`config`] | what can be set, and its defaults |
//! | [`runtime::server`] | starting, stopping, and the worker threads |
//! | `worker` | one event loop: accepting, deadlines, limits |
//! | `connection` | what a connection is doing |
//! | `runtime::acceptor` | a worker's listening socket: who is let in, and when nobody is |
//! | `runtime::limits` | what a worker may have of what the process has |
//! | [`runtime::limit_reached`] | reports why a worker cannot accept connections |
//! | `runtime::access_log` | the access log |
//! | [`static_files`] | a directory turned into answers, without sockets |

pub mod admin;
pub mod config;
mod connection;
pub mod proxy;
pub mod runtime;
pub mod static_files;
mod worker;

pub use config::{Config, Loops, Timeouts};
pub use runtime::limit_reached::LimitReached;
pub use runtime::server::{Server, StartError, start};
