//! Counters of a server, and the metrics page in the Prometheus text format (version 0.0.4).
//!
//! Each worker has its own [`WorkerMetrics`] and is its only writer. Counting is a load and a store, without
//! a locked instruction and without moving cache lines between processors. A reader may see some
//! values slightly older than others.

mod exposition;
mod histogram;
mod process;
mod tls;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hearken::mechanism::Counters;
use hearken_tls::ServerTls;

use super::access_log::LogSink;

pub use histogram::{Histogram, PerWait};

/// Content type of the page from [`Metrics::render`].
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A value that only increases. Only one thread may write it; concurrent writes lose increments.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `number` to the value.
    #[inline]
    pub fn add(&self, number: u64) {
        self.set(self.get().wrapping_add(number));
    }

    /// Sets the value, for values that are counted elsewhere.
    #[inline]
    pub fn set(&self, number: u64) {
        self.0.store(number, Ordering::Relaxed);
    }

    /// Returns the value.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Sizes of the tables and buffers of a worker's client side at the end of its last turn, to check
/// their bounds in simulations.
#[cfg(feature = "simulation")]
#[derive(Debug, Default)]
pub struct Usage {
    /// Number of client connections.
    pub connections: Gauge,
    /// Number of slots in the table of connections, which also holds upstream connections.
    pub connection_slots: Gauge,
    /// Number of requests in progress.
    pub requests: Gauge,
    /// Number of slots in the table of requests.
    pub request_slots: Gauge,
    /// Number of received bytes that requests hold.
    pub buffered_bytes: Gauge,
}

/// A value that increases and decreases, but not below zero. Only one thread may write it.
#[derive(Debug, Default)]
pub struct Gauge(Counter);

impl Gauge {
    /// Sets the value.
    #[inline]
    pub fn set(&self, number: usize) {
        self.0.set(number as u64);
    }

    /// Increments the value.
    #[inline]
    pub fn increment(&self) {
        self.0.add(1);
    }

    /// Decrements the value.
    #[inline]
    pub fn decrement(&self) {
        self.0.set(self.get().saturating_sub(1));
    }

    /// Returns the value.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.get()
    }
}

macro_rules! errors {
    ($($(#[$doc:meta])* $kind:ident = $name:literal,)*) => {
        /// The kind of an error of a request or a client connection.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[non_exhaustive]
        pub enum Error {
            $($(#[$doc])* $kind,)*
        }

        impl Error {
            /// All kinds.
            pub const ALL: &[Error] = &[$(Error::$kind,)*];

            /// Returns the value of the `kind` label.
            pub fn name(self) -> &'static str {
                match self {
                    $(Error::$kind => $name,)*
                }
            }
        }
    };
}

errors! {
    /// A client sent a malformed or unacceptable request (4xx).
    BadRequest = "bad_request",
    /// An upstream server sent a malformed or unacceptable response (502).
    BadResponse = "bad_response",
    /// Connecting to an upstream server failed (502).
    ConnectFailed = "connect_failed",
    /// Connecting to an upstream server timed out (504).
    ConnectTimeout = "connect_timeout",
    /// Sending the request to an upstream server timed out (504).
    SendTimeout = "send_timeout",
    /// Waiting for the head of a response timed out (504).
    ResponseTimeout = "response_timeout",
    /// Waiting for more of the body of a response timed out.
    ResponseBodyTimeout = "response_body_timeout",
    /// The request timeout expired.
    RequestTimeout = "request_timeout",
    /// A client sent its request or received its response too slowly (408 for requests).
    ClientTimeout = "client_timeout",
    /// A client disconnected before the end of its response.
    ClientDisconnected = "client_disconnected",
    /// The queue for an upstream server was full (503).
    QueueFull = "queue_full",
    /// A request was in the queue for too long (503).
    QueueTimeout = "queue_timeout",
    /// No upstream server was available (503).
    NoServer = "no_server",
    /// The name of a server has no address (502).
    NameNotFound = "name_not_found",
    /// An upstream server closed the connection before the end of the response head (502).
    ServerClosed = "server_closed",
    /// An upstream server closed the connection before the end of the response body.
    Truncated = "response_truncated",
    /// The access rules deny the requested server (403).
    AccessDenied = "access_denied",
    /// A request passed this proxy before, or passed too many proxies (508).
    Loop = "loop",
    /// A connection did not start with a valid PROXY protocol header.
    BadProxyHeader = "bad_proxy_header",
    /// No descriptor or memory was available for an upstream connection.
    ResourceLimit = "resource_limit",
    /// A panic closed the connection that a task served, or the connections of a thread.
    Panic = "panic",
}

/// Status classes, by the first digit of the status; 0 stands for no response.
const CLASSES: [&str; 6] = ["none", "1xx", "2xx", "3xx", "4xx", "5xx"];

/// The counters of one worker, which is their only writer.
// Aligned to two cache lines, because processors prefetch pairs of lines.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct WorkerMetrics {
    /// Sizes of the tables and buffers of the client side.
    #[cfg(feature = "simulation")]
    pub usage: Usage,
    /// Client connections accepted.
    pub connections_accepted: Counter,
    /// Idle client connections closed to accept new ones.
    pub connections_evicted: Counter,
    /// Open client connections.
    pub connections_open: Gauge,
    /// Requests in progress, including queued ones.
    pub requests_in_flight: Gauge,
    /// Requests in the queue for an upstream server.
    pub requests_queued: Gauge,
    /// Bytes received from clients.
    pub bytes_received_client: Counter,
    /// Bytes sent to clients.
    pub bytes_sent_client: Counter,
    /// Bytes received from upstream servers.
    pub bytes_received_upstream: Counter,
    /// Bytes sent to upstream servers.
    pub bytes_sent_upstream: Counter,
    /// Bytes moved between sockets within the kernel. They are also counted as received and sent.
    pub spliced_bytes: Counter,
    /// Connections opened to upstream servers.
    pub upstream_connections_opened: Counter,
    /// Connections opened to upstream servers that use HTTP/2.
    pub upstream_http2_connections_opened: Counter,
    /// Requests of clients in HTTP/2.
    pub http2_requests: Counter,
    /// Requests sent on a reused upstream connection.
    pub upstream_connections_reused: Counter,
    /// Idle connections to upstream servers.
    pub upstream_connections_idle: Gauge,
    /// Retries of requests.
    pub retries: Counter,
    /// Open tunnels, including upgraded connections.
    pub tunnels_open: Gauge,
    statuses: [Counter; CLASSES.len()],
    errors: [Counter; Error::ALL.len()],
    durations: Histogram,
    responses: Histogram,
    waits: Waits,
    /// Thread ID of the worker if it has its own descriptor table; otherwise 0.
    own_table: AtomicU64,
}

/// Counters of waits for events.
#[derive(Debug, Default)]
struct Waits {
    waits: Counter,
    empty_waits: Counter,
    events: Counter,
    spurious: Counter,
    changes: Counter,
    overflows: Counter,
    signals: Counter,
    calls: Counter,
    measured: MeasuredWaits,
}

/// Counters of waits that are only maintained if waits are measured.
#[derive(Debug, Default)]
struct MeasuredWaits {
    cpu_nanoseconds: Counter,
    useful_waits: Counter,
    events: PerWait,
    accepts: PerWait,
}

/// The consequences of one wait for events, which the turn after it found.
#[derive(Clone, Copy, Debug)]
pub struct WaitOutcome {
    /// Events that the wait returned.
    pub events: u64,
    /// Connections accepted in the turn.
    pub accepts: u64,
    /// Whether an event led to a completed operation.
    pub is_useful: bool,
}

impl WorkerMetrics {
    /// Records a request that ended with this status; 0 if no response was sent.
    #[inline]
    pub fn record_response(&self, status: u16) {
        let class = usize::from(status / 100).min(CLASSES.len() - 1);
        if let Some(counter) = self.statuses.get(class) {
            counter.add(1);
        }
    }

    /// Records responses by status class, with a duration of zero.
    pub(crate) fn record_responses(&self, classes: &[u64; CLASSES.len()]) {
        for (counter, number) in self.statuses.iter().zip(classes) {
            counter.add(*number);
        }
        self.durations.record_shortest(classes.iter().sum());
    }

    /// Records an error.
    #[inline]
    pub fn record_error(&self, error: Error) {
        if let Some(counter) = self.errors.get(error as usize) {
            counter.add(1);
        }
    }

    /// Records the duration of a request, from its head to the end of its response.
    #[inline]
    pub fn record_duration(&self, nanoseconds: u64) {
        self.durations.record(nanoseconds);
    }

    /// Records the response time of an upstream server, from the sent request to the received head.
    #[inline]
    pub fn record_upstream_response(&self, nanoseconds: u64) {
        self.responses.record(nanoseconds);
    }

    /// Copies the library's counters of waits. Called once per tick, not per wait.
    pub fn set_wait_counters(&self, counters: &Counters) {
        let waits = &self.waits;
        waits.waits.set(counters.waits);
        waits.empty_waits.set(counters.empty_waits);
        waits.events.set(counters.events);
        waits.spurious.set(counters.spurious);
        waits.changes.set(counters.changes);
        waits.overflows.set(counters.overflows);
        waits.signals.set(counters.signals);
        waits.calls.set(counters.calls);
    }

    /// Records the processor time of a wait for events.
    #[inline]
    pub fn record_wait_cpu(&self, cpu: Duration) {
        let nanoseconds = u64::try_from(cpu.as_nanos()).unwrap_or(u64::MAX);
        self.waits.measured.cpu_nanoseconds.add(nanoseconds);
    }

    /// Records the consequences of a wait for events.
    pub fn record_wait(&self, outcome: &WaitOutcome) {
        let measured = &self.waits.measured;
        measured.useful_waits.add(u64::from(outcome.is_useful));
        measured.events.record(outcome.events);
        measured.accepts.record(outcome.accepts);
    }

    /// Marks the calling thread as one with its own descriptor table, so that its descriptors are
    /// counted.
    pub fn mark_own_table(&self) {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        self.own_table.store(u64::from(thread.unsigned_abs()), Ordering::Relaxed);
    }

    fn thread_of_table(&self) -> Option<u64> {
        Some(self.own_table.load(Ordering::Relaxed)).filter(|&thread| thread != 0)
    }
}

/// The counters of a server.
#[derive(Debug)]
pub struct Metrics {
    /// Counters by worker index.
    pub workers: Box<[Arc<WorkerMetrics>]>,
    /// Whether the page has sums over all workers.
    is_summed: bool,
    /// Queue of the access log, which counts dropped lines.
    access_log: OnceLock<LogSink>,
    /// TLS of the server, which counts handshakes.
    tls: OnceLock<ServerTls>,
    /// Start time, since 1970-01-01 00:00:00 UTC.
    started: Duration,
}

/// The state and counters of an upstream server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamStats {
    /// Name in the configuration.
    pub name: String,
    /// State: `up`, `starting`, `paused`, `down`, `draining` or `off`.
    pub state: &'static str,
    /// Configured weight.
    pub weight: u32,
    /// Requests sent to the server.
    pub requests: u64,
    /// Requests that failed.
    pub failures: u64,
    /// Requests in progress.
    pub in_flight: u64,
    /// Requests sent to this server after an attempt on another one failed.
    pub retries: u64,
    /// Health checks that failed.
    pub checks_failed: u64,
    /// Description of the last failure.
    pub last_failure: Option<String>,
}

/// Statistics of waits for events (calls of `next_events`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitStats {
    /// Number of waits.
    pub waits: u64,
    /// Waits that returned no event.
    pub empty_waits: u64,
    /// Events returned.
    pub events: u64,
    /// Registrations, changes of interest and revocations.
    pub changes: u64,
    /// Overflows of an event queue.
    pub overflows: u64,
    /// Signals taken from the kernel's queue.
    pub signals: u64,
    /// System calls for waits and changes.
    pub calls: u64,
    /// Further statistics, if waits were measured.
    pub measured: Option<MeasuredWaitStats>,
}

/// Statistics of measured waits for events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasuredWaitStats {
    /// Processor time of the waits, user and system.
    pub cpu: Duration,
    /// Waits with an event that led to a completed operation.
    pub useful_waits: u64,
    /// Connections accepted.
    pub accepts: u64,
    /// Waits after which a connection was accepted.
    pub accepting_waits: u64,
    /// Maximum numbers of events per wait, and the number of waits with at most as many and more
    /// than the previous maximum. The last maximum is infinite (`u64::MAX`).
    pub events_per_wait: Vec<(u64, u64)>,
}

impl fmt::Display for WaitStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WaitStats { waits, empty_waits, events, changes, overflows, signals, calls, measured } =
            self;
        let each = *events as f64 / (waits - empty_waits.min(waits)).max(1) as f64;
        write!(
            f,
            "{waits} waits ({empty_waits} without an event) returned {events} events, {each:.2} per \
             wait; {signals} signals, {overflows} overflows; {changes} changes of interest, {calls} \
             system calls"
        )?;
        let Some(measured) = measured else { return Ok(()) };
        let cpu = measured.cpu.as_secs_f64();
        let per_wait = cpu * 1e6 / (*waits).max(1) as f64;
        let per_event = cpu * 1e6 / (*events).max(1) as f64;
        write!(
            f,
            "; processor time of waits {cpu:.3} s, {per_wait:.2} us per wait, {per_event:.2} us per \
             event; {measured}"
        )
    }
}

impl fmt::Display for MeasuredWaitStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MeasuredWaitStats { useful_waits, accepts, accepting_waits, events_per_wait, .. } =
            self;
        let each = *accepts as f64 / (*accepting_waits).max(1) as f64;
        write!(
            f,
            "{useful_waits} useful waits; {accepts} accepts after {accepting_waits} waits, {each:.2} \
             per wait; waits by number of events:"
        )?;
        let mut least = 0;
        for &(most, waits) in events_per_wait {
            if waits > 0 {
                match most {
                    u64::MAX => write!(f, " {least}+: {waits}")?,
                    most if most == least => write!(f, " {most}: {waits}")?,
                    most => write!(f, " {least}-{most}: {waits}")?,
                }
            }
            least = most.saturating_add(1);
        }
        Ok(())
    }
}

impl Metrics {
    /// Creates the counters of `workers` workers.
    pub fn new(workers: usize) -> Metrics {
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let workers = (0..workers).map(|_| Arc::default()).collect();
        Metrics {
            workers,
            is_summed: false,
            access_log: OnceLock::new(),
            tls: OnceLock::new(),
            started,
        }
    }

    /// Makes the page show sums over all workers, because there are too many to show each.
    pub(crate) fn summed(self) -> Metrics {
        Metrics { is_summed: true, ..self }
    }

    /// Adds the counters of the access log. Call it once.
    pub(crate) fn set_access_log(&self, log: LogSink) {
        let _ = self.access_log.set(log);
    }

    /// Adds the counters of TLS. Call it once.
    pub(crate) fn set_tls(&self, tls: ServerTls) {
        let _ = self.tls.set(tls);
    }

    /// Returns the statistics of waits for events, over all workers.
    pub fn waits(&self) -> WaitStats {
        let sum = |counter: fn(&Waits) -> &Counter| {
            self.workers.iter().map(|worker| counter(&worker.waits).get()).sum::<u64>()
        };
        WaitStats {
            waits: sum(|waits| &waits.waits),
            empty_waits: sum(|waits| &waits.empty_waits),
            events: sum(|waits| &waits.events),
            changes: sum(|waits| &waits.changes),
            overflows: sum(|waits| &waits.overflows),
            signals: sum(|waits| &waits.signals),
            calls: sum(|waits| &waits.calls),
            measured: self.measured_waits(),
        }
    }

    /// Returns the statistics of measured waits, if there were any.
    fn measured_waits(&self) -> Option<MeasuredWaitStats> {
        let all = || self.workers.iter().map(|worker| &worker.waits.measured);
        let (events, _) = PerWait::cumulative(all().map(|waits| &waits.events));
        let (accepts, accepted) = PerWait::cumulative(all().map(|waits| &waits.accepts));
        let waits = events.last().copied().filter(|&waits| waits > 0)?;
        let mut before = 0;
        let each = events.into_iter().map(|upto| upto - std::mem::replace(&mut before, upto));
        Some(MeasuredWaitStats {
            cpu: Duration::from_nanos(all().map(|waits| waits.cpu_nanoseconds.get()).sum()),
            useful_waits: all().map(|waits| waits.useful_waits.get()).sum(),
            accepts: accepted,
            accepting_waits: waits - accepts.first().copied().unwrap_or(0),
            events_per_wait: PerWait::bounds().chain([u64::MAX]).zip(each).collect(),
        })
    }

    /// Appends the metrics page in the Prometheus text format.
    pub fn render(&self, upstreams: &[UpstreamStats], out: &mut String) {
        exposition::render(self, upstreams, out);
        process::render(self, out);
    }

    /// Appends the metrics page without the metrics of the process, which no simulation controls.
    #[cfg(feature = "simulation")]
    pub fn render_without_process(&self, upstreams: &[UpstreamStats], out: &mut String) {
        exposition::render(self, upstreams, out);
    }
}
