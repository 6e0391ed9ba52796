//! Name resolution in separate threads, because getaddrinfo(3) may block for a long time.
//!
//! The names of upstream servers are resolved periodically, and the results are passed to
//! [`Servers`]. Workers resolve other names through [`Lookups`]. Concurrent lookups of the same name
//! are combined. The number of pending names is bounded.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use hearken::Waker;
use hearken::timer::Time;

use super::config::Upstreams;
use super::servers::{Servers, lock};
use crate::runtime::wakers::Wakers;

mod lookups;
#[cfg(feature = "simulation")]
mod simulation;
mod work;

use lookups::ResultQueue;
pub use lookups::{LookupResult, Lookups};
#[cfg(feature = "simulation")]
pub(super) use simulation::ResolverLoop;
use work::{Step, Task, Work};

/// Number of threads, and thus of concurrent lookups.
const THREAD_COUNT: usize = 2;

type Lookup = dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// The addresses of a name, or the reason of a failure.
type Found = Result<Vec<SocketAddr>, String>;

/// The resolver threads. Dropping this ends each thread after its current lookup.
pub struct Resolver {
    shared: Arc<Shared>,
}

struct Shared {
    work: Mutex<Work>,
    /// Notified when `work` changes.
    work_ready: Condvar,
    /// Notified when the name of a server was resolved.
    watched_done: Condvar,
    /// Wakers of the workers. They belong to the descriptor table of the resolver threads.
    wakers: Mutex<Wakers>,
    /// Wakes a simulated resolver when `work` changes.
    #[cfg(feature = "simulation")]
    waker: Mutex<Option<Waker>>,
}

impl Resolver {
    /// Starts the threads with the resolver of the system.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start() -> io::Result<Resolver> {
        Resolver::with_lookup(|host, port| Ok((host, port).to_socket_addrs()?.collect()))
    }

    /// Starts the threads with another lookup function, which gets a host and a port.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn with_lookup(
        lookup: impl Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> io::Result<Resolver> {
        let lookup: Arc<Lookup> = Arc::new(lookup);
        // If a thread cannot be started, dropping the resolver ends the others.
        let resolver = Resolver::new();
        for index in 0..THREAD_COUNT {
            let (shared, lookup) = (Arc::clone(&resolver.shared), Arc::clone(&lookup));
            thread::Builder::new()
                .name(format!("resolver-{index}"))
                .spawn(move || shared.run(&*lookup))?;
        }
        Ok(resolver)
    }

    /// Creates a resolver without threads.
    fn new() -> Resolver {
        Resolver {
            shared: Arc::new(Shared {
                work: Mutex::default(),
                work_ready: Condvar::new(),
                watched_done: Condvar::new(),
                wakers: Mutex::default(),
                #[cfg(feature = "simulation")]
                waker: Mutex::default(),
            }),
        }
    }

    /// Starts to resolve the names of servers periodically. Waits up to `within` for the first
    /// results, and returns a message for each name without an address.
    pub fn watch_servers(
        &self,
        config: &Upstreams,
        servers: &Arc<Servers>,
        within: Duration,
    ) -> Vec<String> {
        let mut work = lock(&self.shared.work);
        let first = work.watch(config, servers, Time::now());
        self.shared.work_ready.notify_all();
        let (work, _) = self
            .shared
            .watched_done
            .wait_timeout_while(work, within, |work| work.is_unresolved(first))
            .unwrap_or_else(PoisonError::into_inner);
        work.warnings(first, within)
    }

    /// Creates the lookups of the next worker, starting with worker 0.
    pub fn lookups(&self) -> Lookups {
        let result_queue = lock(&self.shared.work).add_worker();
        Lookups::new(Arc::clone(&self.shared), result_queue)
    }

    /// Sets the wakers of the workers, which are woken when results are available. They must belong to
    /// the descriptor table of the resolver.
    pub(crate) fn set_wakers(&self, wakers: Wakers) {
        // Results may already be available.
        wakers.wake_all();
        *lock(&self.shared.wakers) = wakers;
    }

    /// Sets the waker of one worker. See [`set_wakers`](Resolver::set_wakers).
    pub fn set_waker(&self, worker: usize, waker: Waker) {
        // Results may already be available.
        lock(&self.shared.wakers).set(worker, waker, Waker::wake);
    }

    /// Ends each thread after its current lookup.
    pub(super) fn stop(&self) {
        lock(&self.shared.work).stop();
        self.shared.work_ready.notify_all();
        #[cfg(feature = "simulation")]
        self.shared.wake();
    }
}

impl Drop for Resolver {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    /// Submits a name for lookup. Returns false if too many names are pending.
    fn submit(&self, host: &Arc<str>, result_queue: &Arc<ResultQueue>) -> bool {
        let submitted = lock(&self.work).submit(host, result_queue);
        self.work_ready.notify_one();
        #[cfg(feature = "simulation")]
        self.wake();
        submitted
    }

    /// Runs a resolver thread.
    fn run(&self, lookup: &Lookup) {
        let mut work = lock(&self.work);
        loop {
            let now = Time::now();
            work = match work.next_step(now) {
                Step::LookUp(task) => {
                    drop(work);
                    let found = lookup(&task.host, task.port);
                    self.complete(&task, found, Time::now());
                    lock(&self.work)
                }
                Step::Wait(None) => {
                    self.work_ready.wait(work).unwrap_or_else(PoisonError::into_inner)
                }
                Step::Wait(Some(due)) => {
                    let waited = self.work_ready.wait_timeout(work, due.duration_since(now));
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                Step::Stop => return,
            };
        }
    }

    /// Records the result of a lookup that ended at `now`, and wakes all that wait for it.
    fn complete(&self, task: &Task, found: io::Result<Vec<SocketAddr>>, now: Time) {
        let workers = lock(&self.work).complete(task, found, now);
        let wakers = lock(&self.wakers).clone();
        for worker in workers {
            wakers.wake(worker);
        }
        self.watched_done.notify_all();
        // Lets another thread compute its new wake-up time.
        self.work_ready.notify_one();
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver")
            .field("waiting", &lock(&self.shared.work).queued())
            .finish_non_exhaustive()
    }
}
