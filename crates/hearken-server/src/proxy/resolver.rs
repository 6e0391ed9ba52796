//! Looking names up, in threads of its own: getaddrinfo(3) blocks for as long as it likes.
//!
//! The names of servers are looked up again and again, and what they have told to [`Servers`]. Any
//! other name is looked up when a worker asks, through its [`Lookups`]; the same name is asked once for
//! all that want it at a time. There is room for so many names and no more.

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
pub use lookups::{Asked, Lookups};

/// How many names are looked up at a time.
const THREAD_COUNT: usize = 2;
/// How many questions may wait.
const MAX_PENDING: usize = 256;
/// How many addresses of a name are used.
const MAX_ADDRESSES: usize = 64;
/// When a server's name is looked up again that has no address at all.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

type Lookup = dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// The addresses of a name, or why there are none.
type Found = Result<Vec<SocketAddr>, String>;

/// The threads. Dropping it ends them, each once it is done with the name it is at.
pub struct Resolver {
    shared: Arc<Shared>,
    wakers: Arc<Wakers>,
}

/// Wakes the workers. Only those have it that live in the table of descriptors it was made in.
type Wakers = Mutex<Vec<Option<Waker>>>;

struct Shared {
    lookup: Box<Lookup>,
    work: Mutex<Work>,
    /// There is more of it, or no more.
    work_ready: Condvar,
    /// A server's name was looked up.
    watched_done: Condvar,
}

#[derive(Default)]
struct Work {
    /// Who wants each name that waits or is being looked up.
    pending: HashMap<Arc<str>, Vec<Arc<ResultQueue>>>,
    /// Those that wait.
    queue: VecDeque<Arc<str>>,
    watched: Vec<Watched>,
    mailboxes: usize,
    is_stopping: bool,
}

/// The name of one or several servers.
struct Watched {
    host: Arc<str>,
    servers: Arc<Servers>,
    /// Which, and their ports.
    targets: Vec<(usize, u16)>,
    interval: Duration,
    /// When it is looked up next; `None` while it is, or if it is no more.
    next_lookup: Option<Instant>,
    /// What became of it the last time.
    last_result: Option<Result<(), String>>,
}

/// What a thread does next.
enum Task {
    Pending(Arc<str>),
    Watched(usize, Arc<str>, u16),
}

impl Resolver {
    /// With the system's resolver.
    ///
    /// # Errors
    /// No thread can be had.
    pub fn start() -> io::Result<Resolver> {
        Resolver::with(|host, port| Ok((host, port).to_socket_addrs()?.collect()))
    }

    /// With another way to look a name up, for a port.
    ///
    /// # Errors
    /// As [`start`](Resolver::start).
    pub fn with(
        lookup: impl Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> io::Result<Resolver> {
        let shared = Shared {
            lookup: Box::new(lookup),
            work: Mutex::default(),
            work_ready: Condvar::new(),
            watched_done: Condvar::new(),
        };
        // If a thread cannot be had, dropping it ends those before.
        let resolver = Resolver { shared: Arc::new(shared), wakers: Arc::default() };
        for index in 0..THREAD_COUNT {
            let (shared, wakers) = (Arc::clone(&resolver.shared), Arc::clone(&resolver.wakers));
            thread::Builder::new()
                .name(format!("resolver-{index}"))
                .spawn(move || shared.run(&wakers))?;
        }
        Ok(resolver)
    }

    /// Looks the names of servers up, for as long as it is there, and waits for up to `within` until
    /// each was looked up once. Tells of each that has no address, and why.
    pub fn first_round(
        &self,
        config: &Upstreams,
        servers: &Arc<Servers>,
        within: Duration,
    ) -> Vec<String> {
        let now = Instant::now();
        let mut work = lock(&self.shared.work);
        let first = work.watched.len();
        for (server, of) in config.servers.iter().enumerate() {
            let Address::Name(host, port) = &of.address else { continue };
            let known = work.watched[first..]
                .iter_mut()
                .find(|known| known.host.eq_ignore_ascii_case(host));
            match known {
                Some(known) => known.targets.push((server, *port)),
                None => work.watched.push(Watched {
                    host: host.as_str().into(),
                    servers: Arc::clone(servers),
                    targets: vec![(server, *port)],
                    interval: config.resolve_every,
                    next_lookup: Some(now),
                    last_result: None,
                }),
            }
        }
        self.shared.work_ready.notify_all();
        let is_open =
            |work: &mut Work| work.watched[first..].iter().any(|name| name.last_result.is_none());
        let (work, _) = self
            .shared
            .watched_done
            .wait_timeout_while(work, within, is_open)
            .unwrap_or_else(PoisonError::into_inner);
        let mut bad = Vec::new();
        for name in &work.watched[first..] {
            match &name.last_result {
                Some(Ok(())) => {}
                Some(Err(reason)) => bad.push(reason.clone()),
                None => bad.push(format!(
                    "the name {} was not looked up within {within:?}; its servers are down until it is",
                    name.host
                )),
            }
        }
        bad
    }

    /// By which a worker asks: at the first call that of worker 0, at the next that of worker 1, and so
    /// on.
    pub fn lookups(&self) -> Lookups {
        let mut work = lock(&self.shared.work);
        let mailbox = Arc::new(ResultQueue::new(work.mailboxes));
        work.mailboxes += 1;
        Lookups::new(Arc::clone(&self.shared), mailbox)
    }

    /// Has a worker woken by `waker` when there are answers for it. From the thread, or at least the
    /// table of descriptors, in which this was started.
    pub fn add(&self, worker: usize, waker: Waker) {
        let mut wakers = lock(&self.wakers);
        if wakers.len() <= worker {
            wakers.resize(worker + 1, None);
        }
        // There may be some already.
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
    /// Puts a question, unless there are too many.
    fn submit(&self, host: &Arc<str>, mailbox: &Arc<ResultQueue>) -> bool {
        let mut work = lock(&self.work);
        if let Some(askers) = work.pending.get_mut(host) {
            askers.push(Arc::clone(mailbox));
            return true;
        }
        if work.queue.len() >= MAX_PENDING {
            return false;
        }
        work.pending.insert(Arc::clone(host), vec![Arc::clone(mailbox)]);
        work.queue.push_back(Arc::clone(host));
        self.work_ready.notify_one();
        true
    }

    /// All that a thread does.
    fn run(&self, wakers: &Wakers) {
        while let Some(task) = self.next_task() {
            match task {
                Task::Pending(host) => {
                    let found = self.look_up(&host, 0);
                    let askers = lock(&self.work).pending.remove(&host).unwrap_or_default();
                    for asker in askers {
                        asker.push(Arc::clone(&host), found.clone());
                        if let Some(Some(waker)) = lock(wakers).get(asker.worker()) {
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
                    // The next is later.
                    self.work_ready.notify_one();
                }
            }
        }
    }

    /// Waits for something to do; none once all is over. Servers come first.
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
            Ok(found) if found.is_empty() => Err(format!("the name {host} has no address")),
            Ok(mut found) => {
                found.truncate(MAX_ADDRESSES);
                found.shrink_to_fit();
                Ok(found)
            }
            Err(error) => Err(format!("cannot look up the name {host}: {error}")),
        }
    }
}

impl Watched {
    /// Tells its servers what was found, and when it is looked for again.
    fn record(&mut self, found: Found) {
        let mut wait = (!self.interval.is_zero()).then_some(self.interval);
        for &(server, port) in &self.targets {
            match &found {
                Ok(found) => {
                    let mut found = found.clone();
                    found.iter_mut().for_each(|addr| addr.set_port(port));
                    // In whatever order the answer has them, it is the same answer.
                    found.sort_unstable();
                    self.servers.resolved(server, Ok(&found));
                }
                Err(reason) => {
                    self.servers.resolved(server, Err(reason.clone()));
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
