//! Hearken's HTTP server: static files and a proxy on one runtime.
//!
//! [`start`] returns a running [`Server`]: one event loop per worker thread, each with its own
//! listening socket, table of descriptors, mechanism and connections.
//!
//! | module | contents |
//! |---|---|
//! | [`config`] | settings and their defaults |
//! | [`runtime`] | threads, listeners, limits, logs, metrics; knows no handler |
//! | `front` | the client side of connections; performs no I/O |
//! | [`static_files`] | handler: the files of a directory |
//! | [`proxy`] | handler: other servers |
//! | [`admin`] | handler: metrics and upstream control, at an address of its own |
//! | `routes` | selects the handler of a request |
//! | `event_loop` | the driver of the front over [`hearken::io::Io`] |
//! | `start` | puts all of these together |
//!
//! Modules use only those above them, and no handler uses another.

pub mod admin;
pub mod config;
mod event_loop;
mod front;
pub mod proxy;
mod routes;
pub mod runtime;
mod start;
pub mod static_files;

pub use config::Config;
pub use front::{HalfClose, Timeouts};
pub use runtime::event_loops::Loops;
pub use runtime::limit_reached::LimitReached;
pub use runtime::server::{Server, StartError};
pub use start::start;
