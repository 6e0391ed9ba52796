//! The HTTP proxy.

pub mod access;
mod anywhere;
pub mod balance;
pub mod config;
mod connection;
mod deadlines;
mod ending;
pub mod health;
mod idle;
mod request;
pub mod resolver;
mod response;
mod route;
pub mod servers;
mod splice;
mod start;
mod tunnel;
mod worker;

pub use config::Config;
pub(crate) use start::Beside;
pub use start::start;
