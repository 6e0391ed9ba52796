//! The HTTP proxy.

pub mod balance;
pub mod config;
mod start;
pub mod resolver;
pub mod servers;
pub mod metrics;
pub mod proxy_protocol;

pub use config::Config;
pub(crate) use start::Beside;
