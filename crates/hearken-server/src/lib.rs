#![doc = include_str!("../README.md")]
//!
//! # Modules
//!
//! | module | contents |
//! |---|---|
//! | [`config`] | settings and their defaults |
//! | [`runtime`] | threads, listeners, limits, logs, metrics; independent of handlers |
//! | `front` | client side of connections; performs no I/O |
//! | [`static_files`] | handler for the files of a directory |
//! | [`proxy`] | handler for upstream servers |
//! | `routes` | selects the handler of a request |
//! | `engine` | front, handler and acceptor of a worker over [`hearken::io::Io`] |
//! | `event_loop` | drives them by an event loop |
//! | `task_loop` | drives them by a task for each connection |
//! | `side_server` | a small server in a thread of its own |
//! | `admin` | metrics and upstream control, at the admin address |
//! | `redirect` | redirects clients without TLS |
//! | `start` | starts a server from these parts |
//! | `simulation` | runs a server over a simulated network (feature `simulation`) |
//!
//! A module uses only modules listed before it, and no handler uses another handler.

#[doc(hidden)]
pub mod admin;
pub mod config;
mod engine;
mod event_loop;
mod front;
pub mod proxy;
mod redirect;
mod routes;
pub mod runtime;
mod side_server;
#[cfg(feature = "simulation")]
pub mod simulation;
mod start;
pub mod static_files;
mod sync;
mod task_loop;

pub use config::Config;
pub use front::{HalfClose, Timeouts};
pub use runtime::event_loops::{Distribution, EventLoopConfig, Model};
pub use runtime::limit_reached::LimitReached;
pub use runtime::server::{Server, StartError};
pub use start::start;
