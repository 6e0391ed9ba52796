//! The page of metrics, in the text format of Prometheus.
//!
//! Figures have the worker as a label where one worker alone can be in trouble; the others are sums.

use std::collections::HashSet;
use std::fmt::{Display, Write};

use crate::runtime::access_log::{LogCounters, LogSink};

use super::{CLASSES, Error, Histogram, Metrics, UpstreamFigures, Worker};

/// A name, what it means, and where it is found.
type Family<T> = (&'static str, &'static str, fn(&T) -> u64);

const COUNTERS_BY_WORKER: &[Family<Worker>] = &[
    ("connections_accepted", "Connections that clients made.", |it| it.connections_accepted.get()),
    ("connections_evicted", "Idle connections closed to make room for new ones.", |it| {
        it.connections_evicted.get()
    }),
    ("event_waits", "Waits for events.", |it| it.waits.waits.get()),
    ("event_empty_waits", "Waits that brought no event.", |it| it.waits.empty_waits.get()),
    ("events", "Events that waits brought.", |it| it.waits.events.get()),
    ("event_spurious", "Events dropped as nobody waits for them.", |it| it.waits.spurious.get()),
    ("event_changes", "Registrations, changes of interest and revocations.", |it| {
        it.waits.changes.get()
    }),
    ("event_overflows", "Times a queue of events overflowed and was recovered.", |it| {
        it.waits.overflows.get()
    }),
    ("event_calls", "System calls made to wait for events and to register for them.", |it| {
        it.waits.calls.get()
    }),
];

const GAUGES_BY_WORKER: &[Family<Worker>] = &[
    ("connections_open", "Connections of clients that are open.", |it| it.connections_open.get()),
    ("requests_in_flight", "Requests not yet answered as a whole.", |it| {
        it.requests_in_flight.get()
    }),
    ("requests_queued", "Requests that wait for a server to have room.", |it| {
        it.requests_queued.get()
    }),
    ("upstream_connections_idle", "Connections to servers, kept with no request on them.", |it| {
        it.upstream_connections_idle.get()
    }),
    ("tunnels_open", "Tunnels and upgraded connections that are open.", |it| it.tunnels_open.get()),
];

const COUNTERS: &[Family<Worker>] = &[
    ("client_received_bytes", "Bytes from clients.", |it| it.bytes_received_client.get()),
    ("client_sent_bytes", "Bytes to clients.", |it| it.bytes_sent_client.get()),
    ("upstream_received_bytes", "Bytes from servers.", |it| it.bytes_received_upstream.get()),
    ("upstream_sent_bytes", "Bytes to servers.", |it| it.bytes_sent_upstream.get()),
    ("spliced_bytes", "Bytes that went from socket to socket within the kernel.", |it| {
        it.spliced_bytes.get()
    }),
    ("upstream_connections_opened", "Connections made to servers.", |it| {
        it.upstream_connections_opened.get()
    }),
    ("upstream_connections_reused", "Requests sent on a connection that had been kept.", |it| {
        it.upstream_connections_reused.get()
    }),
    ("retries", "Times a request was tried again.", |it| it.retries.get()),
];

const UPSTREAM_COUNTERS: &[Family<UpstreamFigures>] = &[
    ("upstream_requests", "Requests sent to the server.", |it| it.requests),
    ("upstream_failures", "Requests that the server failed.", |it| it.failures),
    ("upstream_retries", "Requests tried elsewhere after the server had failed them.", |it| {
        it.retries
    }),
    ("upstream_checks_failed", "Active checks that the server failed.", |it| it.checks_failed),
];

const UPSTREAM_GAUGES: &[Family<UpstreamFigures>] = &[
    ("upstream_requests_in_flight", "Requests that the server has not yet answered.", |it| {
        it.in_flight
    }),
    ("upstream_weight", "How many requests the server gets, against the others.", |it| {
        u64::from(it.weight)
    }),
];

/// Returns the counters of each worker.
fn workers_of(metrics: &Metrics) -> impl Iterator<Item = &Worker> + Clone {
    metrics.workers.iter().map(|worker| &**worker)
}

pub(super) fn render(metrics: &Metrics, upstreams: &[UpstreamFigures], out: &mut String) {
    let mut page = Page { out };
    page.family("hearken_build_info", "gauge", "What runs; always 1.");
    page.sample("hearken_build_info", &[("version", &env!("CARGO_PKG_VERSION"))], 1);
    render_workers(metrics, &mut page);

    let workers = || workers_of(metrics);
    render_access_log(metrics, &mut page);
    page.histogram(
        "hearken_request_duration_seconds",
        "From a request's head to the end of its response.",
        workers().map(|worker| &worker.durations),
    );
    page.histogram(
        "hearken_upstream_response_seconds",
        "From when a server had a request's head to when its response's had come.",
        workers().map(|worker| &worker.responses),
    );
    render_upstreams(upstreams, &mut page);
}

fn render_workers(metrics: &Metrics, page: &mut Page<'_>) {
    let workers = || workers_of(metrics).enumerate();
    for (name, help, get) in COUNTERS_BY_WORKER {
        let name = page.counter(name, help);
        for (number, worker) in workers() {
            page.sample(&name, &[("worker", &number)], get(worker));
        }
    }
    let name = page.counter("event_wait_cpu_seconds", "Processor time of waits, where metered.");
    for (number, worker) in workers() {
        page.sample(&name, &[("worker", &number)], Seconds(worker.waits.cpu_nanoseconds.get()));
    }
    let name = page.counter("requests", "Requests that ended, by the class of their status.");
    for (number, worker) in workers() {
        for (class, count) in CLASSES.iter().zip(&worker.statuses) {
            page.sample(&name, &[("worker", &number), ("status", class)], count.get());
        }
    }
    for (name, help, get) in GAUGES_BY_WORKER {
        let name = page.gauge(name, help);
        for (number, worker) in workers() {
            page.sample(&name, &[("worker", &number)], get(worker));
        }
    }
    for (name, help, get) in COUNTERS {
        let name = page.counter(name, help);
        page.sample(&name, &[], workers_of(metrics).map(get).sum::<u64>());
    }
    let name = page.counter("errors", "What went wrong, by what it was.");
    for (at, error) in Error::ALL.iter().enumerate() {
        let counts = workers_of(metrics).filter_map(|worker| worker.errors.get(at));
        let sum: u64 = counts.map(super::Counter::get).sum();
        page.sample(&name, &[("kind", &error.name())], sum);
    }
}

/// Zeros if there is no access log.
fn render_access_log(metrics: &Metrics, page: &mut Page<'_>) {
    let LogCounters { lines_dropped, write_errors } =
        metrics.access_log.get().map(LogSink::counters).unwrap_or_default();
    let name = page.counter("access_log_dropped_lines", "Access log lines that were not written.");
    page.sample(&name, &[], lines_dropped);
    let name = page.counter("access_log_write_errors", "Writes to the access log that failed.");
    page.sample(&name, &[], write_errors);
}

fn render_upstreams(upstreams: &[UpstreamFigures], page: &mut Page<'_>) {
    if upstreams.is_empty() {
        return;
    }
    // No two series may have the same labels.
    let mut taken = HashSet::new();
    let mut names = Vec::with_capacity(upstreams.len());
    for upstream in upstreams {
        let numbered = (2..).map(|number| format!("{} #{number}", upstream.name));
        let mut all = std::iter::once(upstream.name.clone()).chain(numbered);
        names.extend(all.find(|name| taken.insert(name.clone())));
    }
    let named = || names.iter().zip(upstreams);

    let state = page.gauge("upstream_state", "Whether the server gets requests: 1 for its state.");
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

/// A page that is being written. Writing to a string does not fail.
pub(super) struct Page<'a> {
    pub(super) out: &'a mut String,
}

impl Page<'_> {
    pub(super) fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(self.out, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    /// Begins a family of counters and returns its whole name.
    fn counter(&mut self, name: &str, help: &str) -> String {
        let name = format!("hearken_{name}_total");
        self.family(&name, "counter", help);
        name
    }

    fn gauge(&mut self, name: &str, help: &str) -> String {
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

    fn histogram<'a>(
        &mut self,
        name: &str,
        help: &str,
        all: impl Iterator<Item = &'a Histogram> + Clone,
    ) {
        self.family(name, "histogram", help);
        let (upto, sum) = Histogram::cumulative(all);
        let bucket = format!("{name}_bucket");
        for (bound, count) in Histogram::bounds().zip(&upto) {
            self.sample(&bucket, &[("le", &Seconds(bound * 1_000))], count);
        }
        let count = upto.last().copied().unwrap_or_default();
        self.sample(&bucket, &[("le", &"+Inf")], count);
        self.sample(&format!("{name}_sum"), &[], Seconds(sum));
        self.sample(&format!("{name}_count"), &[], count);
    }
}

/// Nanoseconds, written as seconds without loss.
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

/// Writes the value of a label.
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
