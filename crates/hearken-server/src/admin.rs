//! The admin address: metrics, and the state and control of upstream servers, over HTTP.
//!
//! Its event loop has its own thread, so it responds even if the workers are busy. Its requests do
//! not count in the server's metrics.
//!
//! Every client that can connect to the address may use it. A browser on the same machine can
//! connect on behalf of any site, so requests that pages of other sites cause are rejected. They are
//! recognised by their Origin and Sec-Fetch-Site fields. On a loopback address, a Host with a name is
//! rejected too, because the name may belong to a site that resolves it to this machine (DNS
//! rebinding).

mod handler;

use std::net::SocketAddr;
use std::sync::Arc;

use hearken::io::Relay;

use crate::runtime::administration::AdminSources;
use crate::runtime::server::{Service, StartError, Worker, WorkerContext};
pub use crate::side_server::SideServer;
use crate::side_server::worker;
use handler::Admin;

/// Maximum number of connections.
pub(crate) const MAX_CONNECTIONS: usize = 64;

/// Listens on `addr` and serves `sources` in a thread that shares the caller's descriptor table.
///
/// # Errors
/// Listening on the address failed, or the thread cannot be started.
pub fn start(addr: SocketAddr, sources: AdminSources) -> Result<SideServer, StartError> {
    SideServer::start("admin", addr, &AdminService(Arc::new(sources)), MAX_CONNECTIONS)
}

/// Creates the event loop of the admin address.
#[derive(Clone)]
pub(crate) struct AdminService(pub(crate) Arc<AdminSources>);

impl Service for AdminService {
    fn worker<I: Relay + 'static>(
        self,
        io: I,
        context: &WorkerContext,
    ) -> Result<Box<dyn Worker>, StartError> {
        worker(io, Admin::new(self.0), context)
    }
}
