//! The HTTP proxy.

pub mod config;

pub use config::Config;
