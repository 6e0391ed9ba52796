//! The handler that forwards requests to other servers: a reverse proxy or a forward proxy.
//!
//! | part | contents |
//! |---|---|
//! | [`config`] | settings |
//! | `handler` | interface to the front; queue of pending tasks |
//! | `exchange` | state machine of a forwarded request |
//! | `upstream` | connections to upstream servers, including idle ones |
//! | `destination`, `route` | server selection, queueing, connecting, sending, retries |
//! | `http2` | HTTP/2 connections, whose streams take the place of connections |
//! | `forward`, `access` | requests to a forward proxy, and its access rules |
//! | `response`, `tunnel` | responses; request bodies and tunnels |
//! | `websocket` | the handshake of WebSocket between HTTP/2 and HTTP/1.1 |
//! | `deadlines`, `termination` | upstream timeouts; errors and cancellation |
//! | `balance`, `servers` | load balancing; the shared state of the servers |
//! | `health`, `resolver` | background threads for health checks and name resolution |
//! | `simulation` | health checks and name resolution without threads (feature `simulation`) |

#[doc(hidden)]
pub mod access;
#[doc(hidden)]
pub mod balance;
pub mod config;
mod deadlines;
mod destination;
mod exchange;
mod forward;
mod handler;
#[doc(hidden)]
pub mod health;
mod http2;
#[doc(hidden)]
pub mod resolver;
mod response;
mod route;
#[doc(hidden)]
pub mod servers;
#[cfg(feature = "simulation")]
pub mod simulation;
mod start;
mod termination;
pub(crate) mod tls;
mod tunnel;
mod upstream;
mod websocket;

pub use config::Config;
pub(crate) use handler::Proxy;
pub(crate) use start::SharedState;
