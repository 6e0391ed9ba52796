//! The admin address: metrics, and upstreams taken out and put back, over HTTP.
//!
//! It has a thread of its own, which waits for what its few connections do and never for one of them: a
//! peer that is slow has a deadline, and where there are too many the oldest makes room for the newest.
//! Each connection is for one request.
//!
//! Whoever reaches the address may use it. A browser on the same machine reaches it too, whatever site
//! its page is of; so requests that pages of other sites cause are refused: by their Origin and
//! Sec-Fetch-Site fields, and, on a loopback address, by a Host that is a name (which its owner may have
//! pointed here).

mod answer;
mod connection;

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::proxy::servers::Order;
use crate::runtime::metrics::UpstreamFigures;
use connection::Connection;

/// How many connections there may be at a time.
const MOST: usize = 64;
/// How many may wait to be accepted.
const BACKLOG: i32 = 1024;
/// For how long nothing is accepted after that has failed.
const PAUSE: Duration = Duration::from_millis(100);

/// There is no upstream of this name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoSuch;

/// What the admin address tells, and what it tells to. All of it is called in its thread.
pub struct What {
    /// Adds the page of metrics.
    pub metrics: Box<dyn Fn(&mut String) + Send + Sync>,
    /// The upstreams as they are.
    pub upstreams: Box<dyn Fn() -> Vec<UpstreamFigures> + Send + Sync>,
    /// Orders something of the upstream that has this name.
    #[expect(clippy::type_complexity, reason = "it is said but once")]
    pub order: Box<dyn Fn(&str, Order) -> Result<(), NoSuch> + Send + Sync>,
    /// Whether the proxy is to stop.
    pub stopping: Arc<AtomicBool>,
}

impl fmt::Debug for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("What").field("stopping", &self.stopping).finish_non_exhaustive()
    }
}

/// An admin address that is listened on, until this is dropped.
#[derive(Debug)]
pub struct Admin {
    addr: SocketAddr,
    /// The thread ends when it is closed.
    alive: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Admin {
    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        drop(self.alive.take());
        if let Some(thread) = self.thread.take() {
            // It has nothing to tell but a panic, which was told.
            let _ = thread.join();
        }
    }
}

/// Listens on `addr` and answers there, in a thread that shares the table of descriptors of this one.
///
/// # Errors
/// The address cannot be listened on, or the thread not be started.
pub fn start(addr: SocketAddr, what: What) -> io::Result<Admin> {
    let listener = TcpListener::bind(addr)?;
    listener.set_nonblocking(true)?;
    // More than the standard library asks for: where the queue is full, who comes waits for a second.
    rustix::net::listen(&listener, BACKLOG)?;
    let addr = listener.local_addr()?;
    let (alive, ends) = UnixStream::pair()?;
    let thread = thread::Builder::new().name("admin".to_owned());
    let thread = thread.spawn(move || run(&listener, &ends, &what))?;
    Ok(Admin { addr, alive: Some(alive), thread: Some(thread) })
}

fn run(listener: &TcpListener, ends: &UnixStream, what: &What) {
    // The oldest first.
    let mut connections: Vec<Connection> = Vec::new();
    let mut pause: Option<Instant> = None;
    loop {
        let deadlines = connections.iter().map(Connection::deadline).chain(pause);
        let Some(ready) = wait(listener, ends, &connections, deadlines.min(), pause.is_none())
        else {
            return;
        };
        let now = Instant::now();
        let mut ready = ready.into_iter();
        connections.retain_mut(|connection| {
            let ready = ready.next().unwrap_or(false);
            now < connection.deadline() && (!ready || connection.go_on(now, what))
        });
        if pause.is_none_or(|until| now >= until) {
            pause = match accept(listener, &mut connections, now, what) {
                Ok(()) => None,
                // There are too few descriptors, or something else that may pass.
                Err(_) => Some(now + PAUSE),
            };
        }
    }
}

/// Waits for something to be done, and tells which connections it is for; `None` if all is to end.
fn wait(
    listener: &TcpListener,
    ends: &UnixStream,
    connections: &[Connection],
    until: Option<Instant>,
    accepting: bool,
) -> Option<Vec<bool>> {
    let mut fds = vec![PollFd::new(ends, PollFlags::IN)];
    fds.extend(connections.iter().map(|it| PollFd::from_borrowed_fd(it.as_fd(), it.interest())));
    if accepting {
        fds.push(PollFd::new(listener, PollFlags::IN));
    }
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    let left = left.and_then(|left| Timespec::try_from(left).ok());
    if let Err(error) = poll(&mut fds, left.as_ref())
        && error != rustix::io::Errno::INTR
    {
        // Memory is short: no reason to go round at full speed.
        thread::sleep(PAUSE);
    }
    let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
    let ended = ready.next().unwrap_or(true);
    (!ended).then(|| ready.take(connections.len()).collect())
}

/// Takes in those who wait to be connected, as many as there may be at most.
fn accept(
    listener: &TcpListener,
    connections: &mut Vec<Connection>,
    now: Instant,
    what: &What,
) -> io::Result<()> {
    for _ in 0..MOST {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            // One that is gone already.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
            Err(error) => return Err(error),
        };
        let mut connection = Connection::new(stream, now)?;
        // Its request is often there by now.
        if connection.go_on(now, what) {
            if connections.len() >= MOST {
                connections.remove(0);
            }
            connections.push(connection);
        }
    }
    Ok(())
}
