//! The admin address: metrics, the state of upstream servers, and orders to them, over HTTP.
//!
//! Its connections have a thread, a front and an event queue of their own, so that it responds
//! whatever the workers do. Requests to it are not among the server's figures.
//!
//! Every client that reaches the address may use it. A browser on the same machine reaches it for
//! any site. So requests caused by pages of other sites are refused: by their Origin and
//! Sec-Fetch-Site fields, and, on a loopback address, by a Host that is a name, because the owner of
//! a name may have pointed it at this machine.
//!
//! | part | contents |
//! |---|---|
//! | `handler` | responses to requests |
//! | `driver` | the driver of the front over [`hearken::EventQueue`] |
//! | `sockets` | its transport: connections over non-blocking sockets |

mod driver;
mod handler;
mod sockets;

use std::io;
use std::net::{SocketAddr, TcpListener};

use crate::runtime::administration::Sources;
use crate::runtime::queue_thread::QueueThread;
use driver::Driver;
pub(crate) use handler::Admin;

/// Maximum number of connections waiting to be accepted. With the 128 of the standard library, a
/// burst of clients would have to retry after a second.
const BACKLOG: i32 = 1024;

/// A server at the admin address. Dropping it closes all connections and ends its thread at once.
#[derive(Debug)]
pub struct AdminServer {
    addr: SocketAddr,
    _thread: QueueThread,
}

impl AdminServer {
    /// Returns the address that it listens on.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }
}

/// Listens on `addr` and serves `sources` in a thread that shares the descriptor table of this one.
///
/// # Errors
/// The address cannot be listened on, or the thread cannot be started.
pub fn start(addr: SocketAddr, sources: Sources) -> io::Result<AdminServer> {
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
