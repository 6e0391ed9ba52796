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
//! | `admin` | handler for metrics and upstream control, at the admin address |
//! | `routes` | selects the handler of a request |
//! | `event_loop` | drives the front over [`hearken::io::Io`] |
//! | `start` | starts a server from these parts |
//!
//! A module uses only modules listed before it, and no handler uses another handler.

#[doc(hidden)]
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
pub use runtime::event_loops::EventLoopConfig;
pub use runtime::limit_reached::LimitReached;
pub use runtime::server::{Server, StartError};
pub use start::start;
