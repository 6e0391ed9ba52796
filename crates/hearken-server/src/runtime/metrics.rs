//! What a proxy counts, and the page that tells it (the text format of Prometheus, 0.0.4).
//!
//! Each worker has a [`Worker`] of its own and is the only one that writes to it, so that counting is
//! a load and a store: no instruction locks anything, and no line of the cache goes to and fro. Who
//! reads may see one figure a moment older than another.

mod exposition;
mod histogram;
mod process;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hearken::mechanism::Counters;

use super::access_log::LogSink;

pub use histogram::Histogram;

/// The type of the page that [`Metrics::render`] writes.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A figure that only grows. One thread at a time may write it: of two that do, one's are lost.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// So many more.
    #[inline]
    pub fn add(&self, number: u64) {
        self.set(self.get().wrapping_add(number));
    }

    /// The figure as it was counted elsewhere.
    #[inline]
    pub fn set(&self, number: u64) {
        self.0.store(number, Ordering::Relaxed);
    }

    /// The figure.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A figure that goes up and down, and not below zero. One thread at a time may write it.
#[derive(Debug, Default)]
pub struct Gauge(Counter);

impl Gauge {
    /// It is so many now.
    #[inline]
    pub fn set(&self, number: usize) {
        self.0.set(number as u64);
    }

    /// One more.
    #[inline]
    pub fn up(&self) {
        self.0.add(1);
    }

    /// One less.
    #[inline]
    pub fn down(&self) {
        self.0.set(self.get().saturating_sub(1));
    }

    /// The figure.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.get()
    }
}

macro_rules! errors {
    ($($(#[$doc:meta])* $kind:ident = $name:literal,)*) => {
        /// What went wrong with a request, or with a client's connection.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Error {
            $($(#[$doc])* $kind,)*
        }

        impl Error {
            /// All of them.
            pub const ALL: &[Error] = &[$(Error::$kind,)*];

            /// The word for it.
            pub fn name(self) -> &'static str {
                match self {
                    $(Error::$kind => $name,)*
                }
            }
        }
    };
}

errors! {
    /// What a client sent is no request, or none that may be passed on (4xx).
    BadRequest = "bad_request",
    /// What a server sent is no response, or none that may be passed on (502).
    BadResponse = "bad_response",
    /// A server could not be connected to (502).
    ConnectFailed = "connect_failed",
    /// A server could not be connected to in time (504).
    ConnectTimeout = "connect_timeout",
    /// A server did not take the request in time (504).
    SendTimeout = "send_timeout",
    /// The head of a response did not come in time (504).
    ResponseTimeout = "response_timeout",
    /// The next bytes of a response's body did not come in time.
    BodyTimeout = "body_timeout",
    /// The request took longer as a whole than it may.
    WholeTimeout = "whole_timeout",
    /// A client did not send its request in time (408), or took its response too slowly.
    ClientTimeout = "client_timeout",
    /// A client left before it had its response.
    ClientLeft = "client_left",
    /// No server had room, and too many requests waited for it (503).
    QueueFull = "queue_full",
    /// A request waited too long for a server to have room (503).
    QueueTimeout = "queue_timeout",
    /// All servers are down, or taken out (503).
    NoServer = "no_server",
    /// A server's name has no address (502).
    NameNotFound = "name_not_found",
    /// A server closed the connection before its response's head was whole (502).
    ServerLeft = "server_left",
    /// A response ended before it was whole, so that the client's was cut off.
    Truncated = "truncated",
    /// The rules of access do not let this server be connected to (403).
    Refused = "refused",
    /// A request came through this proxy before, or through too many (508).
    Loop = "loop",
    /// A connection did not begin with a header of the PROXY protocol.
    BadProxyHeader = "bad_proxy_header",
    /// There were too many connections, or no descriptors or memory for one more.
    Limit = "limit",
}

/// The first digits of a status, and the word for none.
const CLASSES: [&str; 6] = ["none", "1xx", "2xx", "3xx", "4xx", "5xx"];

/// What one worker counts. All of it is written by that worker alone.
// Two lines of the cache, as processors fetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Worker {
    /// Connections that clients made.
    pub connections_accepted: Counter,
    /// Idle connections that were closed to make room for new ones.
    pub connections_evicted: Counter,
    /// Connections of clients that are open.
    pub connections_open: Gauge,
    /// Requests that have come and are not yet answered as a whole, those that are queued included.
    pub requests_in_flight: Gauge,
    /// Requests that wait for a server to have room.
    pub requests_queued: Gauge,
    /// Bytes from clients.
    pub bytes_received_client: Counter,
    /// Bytes to clients.
    pub bytes_sent_client: Counter,
    /// Bytes from servers.
    pub bytes_received_upstream: Counter,
    /// Bytes to servers.
    pub bytes_sent_upstream: Counter,
    /// Bytes among all these that went from socket to socket within the kernel.
    pub spliced_bytes: Counter,
    /// Connections made to servers.
    pub upstream_connections_opened: Counter,
    /// Requests that were sent on a connection which had been kept.
    pub upstream_connections_reused: Counter,
    /// Connections to servers that are kept, with no request on them.
    pub upstream_connections_idle: Gauge,
    /// Requests that were tried again, each time.
    pub retries: Counter,
    /// Tunnels and upgraded connections that are open.
    pub tunnels_open: Gauge,
    statuses: [Counter; CLASSES.len()],
    errors: [Counter; Error::ALL.len()],
    durations: Histogram,
    responses: Histogram,
    waits: Waits,
    /// The thread's number, if it has a table of descriptors of its own.
    own_table: AtomicU64,
}

/// What waiting for events came to.
#[derive(Debug, Default)]
struct Waits {
    waits: Counter,
    empty_waits: Counter,
    events: Counter,
    spurious: Counter,
    changes: Counter,
    overflows: Counter,
    calls: Counter,
    cpu_nanoseconds: Counter,
}

impl Worker {
    /// A request was answered with this status; 0 if none was sent.
    #[inline]
    pub fn answered(&self, status: u16) {
        let class = usize::from(status / 100).min(CLASSES.len() - 1);
        if let Some(counter) = self.statuses.get(class) {
            counter.add(1);
        }
    }

    /// Counts responses by the class of their status, and requests that took no time.
    pub(crate) fn record_responses(&self, classes: &[u64; CLASSES.len()]) {
        for (counter, number) in self.statuses.iter().zip(classes) {
            counter.add(*number);
        }
        self.durations.record_shortest(classes.iter().sum());
    }

    /// Something went wrong.
    #[inline]
    pub fn error(&self, error: Error) {
        if let Some(counter) = self.errors.get(error as usize) {
            counter.add(1);
        }
    }

    /// How long a request took, from its head to the end of its response.
    #[inline]
    pub fn took(&self, nanoseconds: u64) {
        self.durations.add(nanoseconds);
    }

    /// How long a server took, from when it had a request's head to when we had its response's.
    #[inline]
    pub fn responded(&self, nanoseconds: u64) {
        self.responses.add(nanoseconds);
    }

    /// What the library has counted up to now; told now and then, not for each wait.
    pub fn events(&self, counters: &Counters) {
        let waits = &self.waits;
        waits.waits.set(counters.waits);
        waits.empty_waits.set(counters.empty_waits);
        waits.events.set(counters.events);
        waits.spurious.set(counters.spurious);
        waits.changes.set(counters.changes);
        waits.overflows.set(counters.overflows);
        waits.calls.set(counters.calls);
    }

    /// The processor time that one wait for events took.
    #[inline]
    pub fn waited(&self, cpu: Duration) {
        self.waits.cpu_nanoseconds.add(u64::try_from(cpu.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Is called in the worker's thread if that has a table of descriptors of its own, which are
    /// then counted too.
    pub fn has_own_table(&self) {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        self.own_table.store(u64::from(thread.unsigned_abs()), Ordering::Relaxed);
    }

    fn thread_of_table(&self) -> Option<u64> {
        Some(self.own_table.load(Ordering::Relaxed)).filter(|&thread| thread != 0)
    }
}

/// What a proxy counts.
#[derive(Debug)]
pub struct Metrics {
    /// By the number of the worker.
    pub workers: Box<[Arc<Worker>]>,
    /// Queue of the access log, which counts what it drops.
    access_log: OnceLock<LogSink>,
    /// Since 1970-01-01 00:00:00 UTC.
    started: Duration,
}

/// What is told of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamFigures {
    /// How it is called in the configuration.
    pub name: String,
    /// A word for whether it gets requests.
    pub state: &'static str,
    /// How many requests it gets, against the others' weights.
    pub weight: u32,
    /// Requests sent to it.
    pub requests: u64,
    /// Those of them that failed.
    pub failures: u64,
    /// Those of them that are not yet answered.
    pub in_flight: u64,
    /// Requests that were tried elsewhere after it had failed them.
    pub retries: u64,
    /// Active checks that failed.
    pub checks_failed: u64,
    /// What the last failure was.
    pub last_failure: Option<String>,
}

/// What waits for events (calls of `next_events`) have come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitFigures {
    /// Waits made.
    pub waits: u64,
    /// Those that brought no event.
    pub empty_waits: u64,
    /// Events that they brought.
    pub events: u64,
    /// Registrations, changes of interest and revocations.
    pub changes: u64,
    /// System calls made for all of that.
    pub calls: u64,
    /// Processor time of the waits, user and system; none if it was not metered.
    pub cpu: Duration,
}

impl fmt::Display for WaitFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WaitFigures { waits, empty_waits, events, changes, calls, cpu } = self;
        let each = *events as f64 / (waits - empty_waits.min(waits)).max(1) as f64;
        write!(
            f,
            "{waits} waits ({empty_waits} without an event) brought {events} events, {each:.2} each; \
             {changes} changes of interest, {calls} system calls"
        )?;
        if !cpu.is_zero() {
            let per_wait = cpu.as_secs_f64() * 1e6 / (*waits).max(1) as f64;
            let per_event = cpu.as_secs_f64() * 1e6 / (*events).max(1) as f64;
            write!(
                f,
                "; processor time of waits {:.3} s, {per_wait:.2} us a wait, {per_event:.2} us an event",
                cpu.as_secs_f64()
            )?;
        }
        Ok(())
    }
}

impl Metrics {
    /// Nothing counted yet, for so many workers.
    pub fn new(workers: usize) -> Metrics {
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let workers = (0..workers).map(|_| Arc::default()).collect();
        Metrics { workers, access_log: OnceLock::new(), started }
    }

    /// Includes the counters of the access log. Call once.
    pub(crate) fn set_access_log(&self, log: LogSink) {
        let _ = self.access_log.set(log);
    }

    /// What waits for events have come to, over all workers.
    pub fn waits(&self) -> WaitFigures {
        let sum = |of: fn(&Waits) -> &Counter| {
            self.workers.iter().map(|worker| of(&worker.waits).get()).sum::<u64>()
        };
        WaitFigures {
            waits: sum(|waits| &waits.waits),
            empty_waits: sum(|waits| &waits.empty_waits),
            events: sum(|waits| &waits.events),
            changes: sum(|waits| &waits.changes),
            calls: sum(|waits| &waits.calls),
            cpu: Duration::from_nanos(sum(|waits| &waits.cpu_nanoseconds)),
        }
    }

    /// Adds the page, in the text format of Prometheus.
    pub fn render(&self, upstreams: &[UpstreamFigures], out: &mut String) {
        exposition::render(self, upstreams, out);
        process::render(self, out);
    }
}
