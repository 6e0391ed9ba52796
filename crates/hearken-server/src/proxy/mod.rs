//! The HTTP proxy.

pub mod config;
mod start;

pub use config::Config;
pub(crate) use start::Beside;
