//! The handler that passes requests on to other servers: a reverse proxy, or a forward proxy.
//!
//! | part | contents |
//! |---|---|
//! | [`config`] | settings |
//! | `handler` | the interface to the front; the queue of what is to be done next |
//! | `exchange` | a request that is being forwarded, as a state machine |
//! | `upstream` | connections to servers, and those that are kept |
//! | `destination`, `route` | choosing a server, waiting for one, connecting, sending, retrying |
//! | `anywhere`, [`access`] | a forward proxy: the server that a request names, and who may be reached |
//! | `response`, `tunnel` | from the server to the client; bytes in both directions |
//! | `deadlines`, `ending` | slow servers; how exchanges end |
//! | [`balance`], [`servers`] | which server gets a request; what all workers know of each |
//! | [`health`], [`resolver`] | health checks and name look-ups, in threads beside the workers |

pub mod access;
pub mod balance;
pub mod config;
mod deadlines;
mod destination;
mod exchange;
mod forward;
mod handler;
pub mod health;
pub mod resolver;
mod response;
mod route;
pub mod servers;
mod start;
mod termination;
mod tunnel;
mod upstream;

pub use config::Config;
pub(crate) use handler::Proxy;
pub(crate) use start::SharedState;
