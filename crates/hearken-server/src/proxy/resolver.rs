//! Name resolution in separate threads, because getaddrinfo(3) may block for a long time.
//!
//! The names of upstream servers are resolved periodically, and the results are passed to
//! [`Servers`]. Workers resolve other names through [`Lookups`]. Concurrent lookups of the same name
//! are combined. The number of pending names is bounded.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use hearken::Waker;

use super::config::{Address, Upstreams};
use super::servers::{Servers, lock};

mod lookups;

use lookups::ResultQueue;
pub use lookups::{LookupResult, Lookups};

/// Number of threads, and thus of concurrent lookups.
const THREAD_COUNT: usize = 2;
/// Maximum number of pending names from workers.
const MAX_PENDING: usize = 256;
/// Maximum number of addresses per name.
const MAX_ADDRESSES: usize = 64;
/// Maximum interval between lookups of a server name without an address.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

type Lookup = dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// The addresses of a name, or the reason of a failure.
type Found = Result<Vec<SocketAddr>, String>;

/// The resolver threads. Dropping this ends each thread after its current lookup.
pub struct Resolver {
    shared: Arc<Shared>,
    wakers: Arc<Wakers>,
}

/// Wakers of the workers. They belong to the descriptor table of the resolver threads.
type Wakers = Mutex<Vec<Option<Waker>>>;

struct Shared {
    lookup: Box<Lookup>,
    work: Mutex<Work>,
    /// Notified when `work` changes.
    work_ready: Condvar,
    /// Notified when the name of a server was resolved.
    watched_done: Condvar,
}

#[derive(Default)]
struct Work {
    /// Pending names, with the queues of the workers that wait for them.
    pending: HashMap<Arc<str>, Vec<Arc<ResultQueue>>>,
    /// Names whose lookup has not started.
    queue: VecDeque<Arc<str>>,
    watched: Vec<Watched>,
    worker_count: usize,
    is_stopping: bool,
}

/// A host name of upstream servers, which is resolved periodically.
struct Watched {
    host: Arc<str>,
    servers: Arc<Servers>,
    /// Indices and ports of the servers with this name.
    targets: Vec<(usize, u16)>,
    interval: Duration,
    /// Time of the next lookup; `None` during a lookup, or if none follows.
    next_lookup: Option<Instant>,
    /// Result of the last lookup.
    last_result: Option<Result<(), String>>,
}

/// A task of a thread.
enum Task {
    Pending(Arc<str>),
    Watched(usize, Arc<str>, u16),
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
        let shared = Shared {
            lookup: Box::new(lookup),
            work: Mutex::default(),
            work_ready: Condvar::new(),
            watched_done: Condvar::new(),
        };
        // If a thread cannot be started, dropping the resolver ends the others.
        let resolver = Resolver { shared: Arc::new(shared), wakers: Arc::default() };
        for index in 0..THREAD_COUNT {
            let (shared, wakers) = (Arc::clone(&resolver.shared), Arc::clone(&resolver.wakers));
            thread::Builder::new()
                .name(format!("resolver-{index}"))
                .spawn(move || shared.run(&wakers))?;
        }
        Ok(resolver)
    }

    /// Starts to resolve the names of servers periodically. Waits up to `within` for the first
    /// results, and returns a message for each name without an address.
    pub fn watch_servers(
        &self,
        config: &Upstreams,
        servers: &Arc<Servers>,
        within: Duration,
    ) -> Vec<String> {
        let now = Instant::now();
        let mut work = lock(&self.shared.work);
        let first = work.watched.len();
        for (server, settings) in config.servers.iter().enumerate() {
            let Address::Name(host, port) = &settings.address else { continue };
            let known = work.watched[first..]
                .iter_mut()
                .find(|known| known.host.eq_ignore_ascii_case(host));
            match known {
                Some(known) => known.targets.push((server, *port)),
                None => work.watched.push(Watched {
                    host: host.as_str().into(),
                    servers: Arc::clone(servers),
                    targets: vec![(server, *port)],
                    interval: config.resolve_interval,
                    next_lookup: Some(now),
                    last_result: None,
                }),
            }
        }
        self.shared.work_ready.notify_all();
        let is_pending =
            |work: &mut Work| work.watched[first..].iter().any(|name| name.last_result.is_none());
        let (work, _) = self
            .shared
            .watched_done
            .wait_timeout_while(work, within, is_pending)
            .unwrap_or_else(PoisonError::into_inner);
        let mut messages = Vec::new();
        for name in &work.watched[first..] {
            match &name.last_result {
                Some(Ok(())) => {}
                Some(Err(reason)) => messages.push(reason.clone()),
                None => messages.push(format!(
                    "name '{}' is not resolved after {within:?}; its servers are down until it is",
                    name.host
                )),
            }
        }
        messages
    }

    /// Creates the lookups of the next worker, starting with worker 0.
    pub fn lookups(&self) -> Lookups {
        let mut work = lock(&self.shared.work);
        let result_queue = Arc::new(ResultQueue::new(work.worker_count));
        work.worker_count += 1;
        Lookups::new(Arc::clone(&self.shared), result_queue)
    }

    /// Sets the waker of a worker, which is woken when results are available. Must be called in the
    /// descriptor table in which the resolver was started.
    pub fn set_waker(&self, worker: usize, waker: Waker) {
        let mut wakers = lock(&self.wakers);
        if wakers.len() <= worker {
            wakers.resize(worker + 1, None);
        }
        // Results may already be available.
        waker.wake();
        wakers[worker] = Some(waker);
    }
}

impl Drop for Resolver {
    fn drop(&mut self) {
        lock(&self.shared.work).is_stopping = true;
        self.shared.work_ready.notify_all();
    }
}

impl Shared {
    /// Submits a name for lookup. Returns false if too many names are pending.
    fn submit(&self, host: &Arc<str>, result_queue: &Arc<ResultQueue>) -> bool {
        let mut work = lock(&self.work);
        if let Some(queues) = work.pending.get_mut(host) {
            queues.push(Arc::clone(result_queue));
            return true;
        }
        if work.queue.len() >= MAX_PENDING {
            return false;
        }
        work.pending.insert(Arc::clone(host), vec![Arc::clone(result_queue)]);
        work.queue.push_back(Arc::clone(host));
        self.work_ready.notify_one();
        true
    }

    /// Runs a resolver thread.
    fn run(&self, wakers: &Wakers) {
        while let Some(task) = self.next_task() {
            match task {
                Task::Pending(host) => {
                    let found = self.look_up(&host, 0);
                    let queues = lock(&self.work).pending.remove(&host).unwrap_or_default();
                    for queue in queues {
                        queue.push(Arc::clone(&host), found.clone());
                        if let Some(Some(waker)) = lock(wakers).get(queue.worker()) {
                            waker.wake();
                        }
                    }
                }
                Task::Watched(index, host, port) => {
                    let found = self.look_up(&host, port);
                    if let Some(name) = lock(&self.work).watched.get_mut(index) {
                        name.record(found);
                    }
                    self.watched_done.notify_all();
                    // Lets another thread compute its new wake-up time.
                    self.work_ready.notify_one();
                }
            }
        }
    }

    /// Waits for the next task. Names of servers take precedence. Returns `None` when the resolver
    /// is dropped.
    fn next_task(&self) -> Option<Task> {
        let mut work = lock(&self.work);
        loop {
            if work.is_stopping {
                return None;
            }
            let now = Instant::now();
            let mut first = None;
            for (index, name) in work.watched.iter_mut().enumerate() {
                let Some(due) = name.next_lookup else { continue };
                if due <= now {
                    name.next_lookup = None;
                    let port = name.targets.first().map_or(0, |of| of.1);
                    return Some(Task::Watched(index, Arc::clone(&name.host), port));
                }
                first = first.map_or(Some(due), |first: Instant| Some(first.min(due)));
            }
            if let Some(host) = work.queue.pop_front() {
                return Some(Task::Pending(host));
            }
            work = match first {
                None => self.work_ready.wait(work).unwrap_or_else(PoisonError::into_inner),
                Some(due) => {
                    let waited = self.work_ready.wait_timeout(work, due.duration_since(now));
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    fn look_up(&self, host: &str, port: u16) -> Found {
        match (self.lookup)(host, port) {
            Ok(found) if found.is_empty() => Err(format!("name '{host}' has no address")),
            Ok(mut found) => {
                found.truncate(MAX_ADDRESSES);
                found.shrink_to_fit();
                Ok(found)
            }
            Err(error) => Err(format!("cannot resolve name '{host}': {error}")),
        }
    }
}

impl Watched {
    /// Records the result of a lookup for its servers, and schedules the next lookup.
    fn record(&mut self, found: Found) {
        let mut wait = (!self.interval.is_zero()).then_some(self.interval);
        for &(server, port) in &self.targets {
            match &found {
                Ok(found) => {
                    let mut found = found.clone();
                    found.iter_mut().for_each(|addr| addr.set_port(port));
                    // Sorted, so that another order does not count as a change.
                    found.sort_unstable();
                    self.servers.record_resolution(server, Ok(&found));
                }
                Err(reason) => {
                    self.servers.record_resolution(server, Err(reason.clone()));
                    if !self.servers.has_address(server) {
                        wait = Some(wait.map_or(RETRY_INTERVAL, |wait| wait.min(RETRY_INTERVAL)));
                    }
                }
            }
        }
        self.next_lookup = wait.and_then(|wait| Instant::now().checked_add(wait));
        self.last_result = Some(found.map(drop));
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver")
            .field("waiting", &lock(&self.shared.work).queue.len())
            .finish_non_exhaustive()
    }
}
