//! The admin address: metrics, and the state and control of upstream servers, over HTTP.
//!
//! Its connections have their own thread, front and event queue, so it responds even if the workers
//! are busy. Its requests do not count in the server's metrics.
//!
//! Every client that can connect to the address may use it. A browser on the same machine can
//! connect on behalf of any site, so requests that pages of other sites cause are rejected. They are
//! recognised by their Origin and Sec-Fetch-Site fields. On a loopback address, a Host with a name is
//! rejected too, because the name may belong to a site that resolves it to this machine (DNS
//! rebinding).
//!
//! | part | contents |
//! |---|---|
//! | `handler` | responses to requests |
//! | `driver` | drives the front over [`hearken::EventQueue`] |
//! | `sockets` | transport over non-blocking sockets |

mod driver;
mod handler;
mod sockets;

use std::io;
use std::net::{SocketAddr, TcpListener};

use crate::runtime::administration::AdminSources;
use crate::runtime::queue_thread::QueueThread;
use driver::Driver;
pub(crate) use handler::Admin;

/// Length of the accept queue. With the 128 of the standard library, clients of a burst would have to
/// retransmit their SYN after one second.
const BACKLOG: i32 = 1024;

/// A server at the admin address. Dropping it closes all connections and ends its thread at once.
#[derive(Debug)]
pub struct AdminServer {
    addr: SocketAddr,
    _thread: QueueThread,
}

impl AdminServer {
    /// Returns the address of the listening socket.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }
}

/// Listens on `addr` and serves `sources` in a thread that shares the caller's descriptor table.
///
/// # Errors
/// Listening on the address failed, or the thread cannot be started.
pub fn start(addr: SocketAddr, sources: AdminSources) -> io::Result<AdminServer> {
    let listener = TcpListener::bind(addr)?;
    listener.set_nonblocking(true)?;
    rustix::net::listen(&listener, BACKLOG)?;
    let addr = listener.local_addr()?;
    let thread = QueueThread::start("admin", move |queue| {
        let driver = Driver::new(&queue, listener, Admin::new(sources))?;
        Ok(move || driver.run(&queue))
    })?;
    Ok(AdminServer { addr, _thread: thread })
}
