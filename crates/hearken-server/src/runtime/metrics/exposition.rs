//! The metrics page in the Prometheus text format.
//!
//! Metrics that can reveal a problem of a single worker have a `worker` label. The others are sums. If
//! each worker serves one connection, the label has the value `all`.

use std::collections::HashSet;
use std::fmt::{Display, Write};
use std::sync::Arc;

use crate::runtime::access_log::{LogCounters, LogSink};

use super::{CLASSES, Error, Histogram, Metrics, PerWait, UpstreamStats, WorkerMetrics};

/// The name of a metric without prefix and suffix, its help text, and its getter.
type Family<T> = (&'static str, &'static str, fn(&T) -> u64);

const COUNTERS_BY_WORKER: &[Family<WorkerMetrics>] = &[
    ("connections_accepted", "Client connections accepted.", |it| it.connections_accepted.get()),
    ("connections_evicted", "Idle client connections closed to accept new ones.", |it| {
        it.connections_evicted.get()
    }),
    ("event_waits", "Waits for events.", |it| it.waits.waits.get()),
    ("event_empty_waits", "Waits that returned no event.", |it| it.waits.empty_waits.get()),
    ("events", "Events returned by waits.", |it| it.waits.events.get()),
    ("spurious_events", "Events discarded because no connection waits for them.", |it| {
        it.waits.spurious.get()
    }),
    ("interest_changes", "Registrations, changes of interest and revocations.", |it| {
        it.waits.changes.get()
    }),
    ("event_overflows", "Overflows of an event queue, with recovery.", |it| {
        it.waits.overflows.get()
    }),
    ("event_signals", "Signals taken from the kernel's queue.", |it| it.waits.signals.get()),
    ("event_useful_waits", "Waits with an event that led to an operation, if measured.", |it| {
        it.waits.measured.useful_waits.get()
    }),
    ("event_system_calls", "System calls for waits and changes of interest.", |it| {
        it.waits.calls.get()
    }),
];

const GAUGES_BY_WORKER: &[Family<WorkerMetrics>] = &[
    ("connections_open", "Open client connections.", |it| it.connections_open.get()),
    ("requests_in_flight", "Requests in progress.", |it| it.requests_in_flight.get()),
    ("requests_queued", "Requests in the queue for an upstream server.", |it| {
        it.requests_queued.get()
    }),
    ("upstream_connections_idle", "Idle connections to upstream servers.", |it| {
        it.upstream_connections_idle.get()
    }),
    ("tunnels_open", "Open tunnels, including upgraded connections.", |it| it.tunnels_open.get()),
];

const COUNTERS: &[Family<WorkerMetrics>] = &[
    ("client_received_bytes", "Bytes received from clients.", |it| it.bytes_received_client.get()),
    ("client_sent_bytes", "Bytes sent to clients.", |it| it.bytes_sent_client.get()),
    ("upstream_received_bytes", "Bytes received from upstream servers.", |it| {
        it.bytes_received_upstream.get()
    }),
    ("upstream_sent_bytes", "Bytes sent to upstream servers.", |it| it.bytes_sent_upstream.get()),
    ("spliced_bytes", "Bytes moved between sockets within the kernel.", |it| {
        it.spliced_bytes.get()
    }),
    ("upstream_connections_opened", "Connections opened to upstream servers.", |it| {
        it.upstream_connections_opened.get()
    }),
    (
        "upstream_http2_connections_opened",
        "Connections opened to upstream servers that use HTTP/2.",
        |it| it.upstream_http2_connections_opened.get(),
    ),
    ("http2_requests", "Requests of clients in HTTP/2.", |it| it.http2_requests.get()),
    ("upstream_connections_reused", "Requests sent on a reused upstream connection.", |it| {
        it.upstream_connections_reused.get()
    }),
    ("retries", "Retries of requests.", |it| it.retries.get()),
];

const UPSTREAM_COUNTERS: &[Family<UpstreamStats>] = &[
    ("upstream_requests", "Requests sent to the upstream server.", |it| it.requests),
    ("upstream_failures", "Failed requests to the upstream server.", |it| it.failures),
    (
        "upstream_retries",
        "Requests sent to the upstream server after another server failed.",
        |it| it.retries,
    ),
    ("upstream_health_check_failures", "Failed health checks of the upstream server.", |it| {
        it.checks_failed
    }),
];

const UPSTREAM_GAUGES: &[Family<UpstreamStats>] = &[
    ("upstream_requests_in_flight", "Requests in progress at the upstream server.", |it| {
        it.in_flight
    }),
    ("upstream_weight", "Configured weight of the upstream server.", |it| u64::from(it.weight)),
];

/// Returns the counters of each worker.
fn workers_of(metrics: &Metrics) -> impl Iterator<Item = &WorkerMetrics> + Clone {
    metrics.workers.iter().map(|worker| &**worker)
}

pub(super) fn render(metrics: &Metrics, upstreams: &[UpstreamStats], out: &mut String) {
    let mut page = Page { out };
    page.family("hearken_build_info", "gauge", "Version of the server; always 1.");
    page.sample("hearken_build_info", &[("version", &env!("CARGO_PKG_VERSION"))], 1);
    render_workers(metrics, &mut page);

    let workers = || workers_of(metrics);
    render_access_log(metrics, &mut page);
    if let Some(tls) = metrics.tls.get() {
        super::tls::render(tls, &mut page);
    }
    page.durations(
        "hearken_request_duration_seconds",
        "Duration of requests, from the request head to the end of the response.",
        workers().map(|worker| &worker.durations),
    );
    page.durations(
        "hearken_upstream_response_duration_seconds",
        "Response time of upstream servers, from the sent request to the response head.",
        workers().map(|worker| &worker.responses),
    );
    page.per_wait(
        "hearken_events_per_wait",
        "Events returned by each wait, if measured.",
        workers().map(|worker| &worker.waits.measured.events),
    );
    page.per_wait(
        "hearken_accepts_per_wait",
        "Connections accepted after each wait, if measured.",
        workers().map(|worker| &worker.waits.measured.accepts),
    );
    render_upstreams(upstreams, &mut page);
}

/// Returns the values of the `worker` label, each with its workers.
fn labelled(metrics: &Metrics) -> Vec<(String, &[Arc<WorkerMetrics>])> {
    if metrics.is_summed {
        return vec![("all".to_owned(), &metrics.workers)];
    }
    let each = metrics.workers.chunks(1).enumerate();
    each.map(|(number, worker)| (number.to_string(), worker)).collect()
}

fn sum_of(workers: &[Arc<WorkerMetrics>], get: impl Fn(&WorkerMetrics) -> u64) -> u64 {
    workers.iter().map(|worker| get(worker)).sum()
}

fn render_workers(metrics: &Metrics, page: &mut Page<'_>) {
    let labelled = labelled(metrics);
    for (name, help, get) in COUNTERS_BY_WORKER {
        let name = page.counter(name, help);
        for (label, workers) in &labelled {
            page.sample(&name, &[("worker", label)], sum_of(workers, get));
        }
    }
    let name = page.counter("event_wait_cpu_seconds", "Processor time of waits, if measured.");
    for (label, workers) in &labelled {
        let nanoseconds = sum_of(workers, |it| it.waits.measured.cpu_nanoseconds.get());
        page.sample(&name, &[("worker", label)], Seconds(nanoseconds));
    }
    let name = page.counter("requests", "Completed requests by status class.");
    for (label, workers) in &labelled {
        for (at, class) in CLASSES.iter().enumerate() {
            let count = sum_of(workers, |it| it.statuses.get(at).map_or(0, super::Counter::get));
            page.sample(&name, &[("worker", label), ("status", class)], count);
        }
    }
    for (name, help, get) in GAUGES_BY_WORKER {
        let name = page.gauge(name, help);
        for (label, workers) in &labelled {
            page.sample(&name, &[("worker", label)], sum_of(workers, get));
        }
    }
    for (name, help, get) in COUNTERS {
        let name = page.counter(name, help);
        page.sample(&name, &[], sum_of(&metrics.workers, get));
    }
    let name = page.counter("errors", "Errors by kind.");
    for (at, error) in Error::ALL.iter().enumerate() {
        let count = |worker: &WorkerMetrics| worker.errors.get(at).map_or(0, super::Counter::get);
        page.sample(&name, &[("kind", &error.name())], sum_of(&metrics.workers, count));
    }
}

/// Renders the counters of the access log; zeros if there is none.
fn render_access_log(metrics: &Metrics, page: &mut Page<'_>) {
    let LogCounters { lines_dropped, write_errors } =
        metrics.access_log.get().map(LogSink::counters).unwrap_or_default();
    let name =
        page.counter("access_log_dropped_lines", "Lines of the access log that were not written.");
    page.sample(&name, &[], lines_dropped);
    let name = page.counter("access_log_write_errors", "Failed writes to the access log.");
    page.sample(&name, &[], write_errors);
}

fn render_upstreams(upstreams: &[UpstreamStats], page: &mut Page<'_>) {
    if upstreams.is_empty() {
        return;
    }
    // Two series must not have the same labels.
    let mut taken = HashSet::new();
    let mut names = Vec::with_capacity(upstreams.len());
    for upstream in upstreams {
        let numbered = (2..).map(|number| format!("{} #{number}", upstream.name));
        let mut all = std::iter::once(upstream.name.clone()).chain(numbered);
        names.extend(all.find(|name| taken.insert(name.clone())));
    }
    let named = || names.iter().zip(upstreams);

    let state =
        page.gauge("upstream_state", "State of the upstream server; 1 for the current state.");
    for (name, upstream) in named() {
        page.sample(&state, &[("upstream", name), ("state", &upstream.state)], 1);
    }
    for (family, help, get) in UPSTREAM_COUNTERS {
        let family = page.counter(family, help);
        for (name, upstream) in named() {
            page.sample(&family, &[("upstream", name)], get(upstream));
        }
    }
    for (family, help, get) in UPSTREAM_GAUGES {
        let family = page.gauge(family, help);
        for (name, upstream) in named() {
            page.sample(&family, &[("upstream", name)], get(upstream));
        }
    }
}

/// A metrics page under construction. Writing to a string does not fail.
pub(super) struct Page<'a> {
    pub(super) out: &'a mut String,
}

impl Page<'_> {
    pub(super) fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(self.out, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    /// Starts a family of counters and returns its full name.
    pub(super) fn counter(&mut self, name: &str, help: &str) -> String {
        let name = format!("hearken_{name}_total");
        self.family(&name, "counter", help);
        name
    }

    pub(super) fn gauge(&mut self, name: &str, help: &str) -> String {
        let name = format!("hearken_{name}");
        self.family(&name, "gauge", help);
        name
    }

    pub(super) fn sample(
        &mut self,
        name: &str,
        labels: &[(&str, &dyn Display)],
        value: impl Display,
    ) {
        self.out.push_str(name);
        for (at, (label, value)) in labels.iter().enumerate() {
            let _ = write!(self.out, "{}{label}=\"", if at == 0 { '{' } else { ',' });
            let _ = write!(Escaped(self.out), "{value}");
            self.out.push('"');
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.out, "{end} {value}");
    }

    fn durations<'a>(
        &mut self,
        name: &str,
        help: &str,
        all: impl Iterator<Item = &'a Histogram> + Clone,
    ) {
        let (upto, sum) = Histogram::cumulative(all);
        let bounds = Histogram::bounds().map(|bound| Seconds(bound * 1_000));
        self.histogram(name, help, bounds, &upto, Seconds(sum));
    }

    fn per_wait<'a>(
        &mut self,
        name: &str,
        help: &str,
        all: impl Iterator<Item = &'a PerWait> + Clone,
    ) {
        let (upto, sum) = PerWait::cumulative(all);
        self.histogram(name, help, PerWait::bounds(), &upto, sum);
    }

    /// Appends a histogram. `upto` has the cumulative counts for each bound and for infinity.
    fn histogram(
        &mut self,
        name: &str,
        help: &str,
        bounds: impl Iterator<Item = impl Display>,
        upto: &[u64],
        sum: impl Display,
    ) {
        self.family(name, "histogram", help);
        let bucket = format!("{name}_bucket");
        for (bound, count) in bounds.zip(upto) {
            self.sample(&bucket, &[("le", &bound)], count);
        }
        let count = upto.last().copied().unwrap_or_default();
        self.sample(&bucket, &[("le", &"+Inf")], count);
        self.sample(&format!("{name}_sum"), &[], sum);
        self.sample(&format!("{name}_count"), &[], count);
    }
}

/// A duration in nanoseconds, formatted exactly in seconds.
pub(super) struct Seconds(pub(super) u64);

impl Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (whole, rest) = (self.0 / 1_000_000_000, self.0 % 1_000_000_000);
        if rest == 0 {
            return write!(f, "{whole}");
        }
        let fraction = format!("{rest:09}");
        write!(f, "{whole}.{}", fraction.trim_end_matches('0'))
    }
}

/// A writer that escapes label values.
struct Escaped<'a>(&'a mut String);

impl Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        for character in text.chars() {
            match character {
                '\\' => self.0.push_str("\\\\"),
                '"' => self.0.push_str("\\\""),
                '\n' => self.0.push_str("\\n"),
                other => self.0.push(other),
            }
        }
        Ok(())
    }
}
