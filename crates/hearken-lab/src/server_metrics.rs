//! Counters that a server exposes at its metrics address, in the Prometheus text format.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use crate::delay_server;

/// Time limit of each system call.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Figures of a pass, the counters that they are, and factors to their units.
const COUNTERS: &[(&str, &str, f64)] = &[
    ("waits", "hearken_event_waits_total", 1.0),
    ("empty_waits", "hearken_event_empty_waits_total", 1.0),
    ("useful_waits", "hearken_event_useful_waits_total", 1.0),
    ("events", "hearken_events_total", 1.0),
    ("spurious_events", "hearken_spurious_events_total", 1.0),
    ("signals", "hearken_event_signals_total", 1.0),
    ("overflows", "hearken_event_overflows_total", 1.0),
    ("interest_changes", "hearken_interest_changes_total", 1.0),
    ("event_syscalls", "hearken_event_system_calls_total", 1.0),
    ("wait_cpu_ns", "hearken_event_wait_cpu_seconds_total", 1e9),
    ("accepts", "hearken_connections_accepted_total", 1.0),
];

/// Stages of the delay of notifications, and the figures of their percentiles.
const DELAYS: [(&str, [(&str, f64); 4]); 2] = [
    (
        "dequeue",
        [
            ("dequeue_delay_p50_ns", 0.5),
            ("dequeue_delay_p90_ns", 0.9),
            ("dequeue_delay_p99_ns", 0.99),
            ("dequeue_delay_p999_ns", 0.999),
        ],
    ),
    (
        "handler",
        [
            ("handler_delay_p50_ns", 0.5),
            ("handler_delay_p90_ns", 0.9),
            ("handler_delay_p99_ns", 0.99),
            ("handler_delay_p999_ns", 0.999),
        ],
    ),
];

/// Values of counters by figure, and histograms.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ServerMetrics {
    counters: BTreeMap<&'static str, f64>,
    /// Cumulative counts by upper bound in seconds, by stage.
    delays: BTreeMap<&'static str, Vec<(f64, f64)>>,
}

impl ServerMetrics {
    /// Requests the metrics page from a port on this machine.
    pub(crate) fn read(port: u16, path: &str) -> io::Result<ServerMetrics> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut page = String::new();
        stream.read_to_string(&mut page)?;
        match page.starts_with("HTTP/1.1 200 ") {
            true => Ok(ServerMetrics::parse(&page)),
            false => Err(io::Error::other(page.lines().next().unwrap_or_default().to_owned())),
        }
    }

    /// Adds up the values of each counter over its labels.
    fn parse(page: &str) -> ServerMetrics {
        let mut metrics = ServerMetrics::default();
        for line in page.lines() {
            let Some((series, value)) = line.rsplit_once(' ') else { continue };
            let name = series.split('{').next().unwrap_or(series);
            let known = COUNTERS.iter().find(|(_, counter, _)| *counter == name);
            if let (Some((figure, _, factor)), Ok(value)) = (known, value.parse::<f64>()) {
                *metrics.counters.entry(*figure).or_default() += value * factor;
            } else if name.strip_suffix("_bucket") == Some(delay_server::METRIC)
                && let (Some(stage), Some(bound)) = (label(series, "stage"), label(series, "le"))
                && let Some((stage, _)) = DELAYS.iter().find(|(name, _)| *name == stage)
                && let (Ok(bound), Ok(value)) = (bound.parse(), value.parse())
            {
                metrics.delays.entry(*stage).or_default().push((bound, value));
            }
        }
        metrics
    }

    /// Returns the increase of each counter since `earlier`.
    pub(crate) fn since(&self, earlier: &ServerMetrics) -> BTreeMap<&'static str, f64> {
        let increase = |(name, value): (&&'static str, &f64)| {
            let before = earlier.counters.get(name).copied().unwrap_or(0.0);
            (*name, (value - before).max(0.0))
        };
        let mut figures: BTreeMap<&'static str, f64> = self.counters.iter().map(increase).collect();
        for (stage, percentiles) in DELAYS {
            let (now, before) = (self.delays.get(stage), earlier.delays.get(stage));
            let Some((now, before)) = now.zip(before) else { continue };
            let buckets: Vec<(f64, f64)> = now
                .iter()
                .zip(before)
                .map(|((bound, now), (_, before))| (*bound, now - before))
                .collect();
            for (figure, share) in percentiles {
                figures.extend(percentile(&buckets, share).map(|seconds| (figure, seconds * 1e9)));
            }
        }
        if let (Some(all), Some(waits)) = (figures.get("event_syscalls"), figures.get("waits")) {
            figures.insert("interest_syscalls", (all - waits).max(0.0));
        }
        figures
    }
}

/// Returns the value of a label.
fn label<'a>(series: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = series.split_once(&format!("{name}=\""))?;
    rest.split('"').next()
}

/// Returns the upper bound below which a share of the values lies, from cumulative counts.
fn percentile(buckets: &[(f64, f64)], share: f64) -> Option<f64> {
    let all = buckets.last().map(|(_, count)| *count).filter(|&count| count > 0.0)?;
    let (bound, _) = buckets.iter().find(|(_, count)| *count >= all * share)?;
    bound.is_finite().then_some(*bound)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    const PAGE: &str = "# TYPE hearken_events_total counter\n\
                        hearken_events_total{worker=\"0\"} 5\nhearken_events_total{worker=\"1\"} 7\n\
                        hearken_event_wait_cpu_seconds_total 0.25\nother_total 9\n";

    #[test]
    fn counters_are_summed_over_workers() {
        let metrics = ServerMetrics::parse(PAGE);
        let since = metrics.since(&ServerMetrics::default());
        assert_eq!(since, BTreeMap::from([("events", 12.0), ("wait_cpu_ns", 2.5e8)]));
        assert_eq!(metrics.since(&metrics)["events"], 0.0);
    }

    #[test]
    fn percentiles_are_those_of_the_values_since() {
        let page = |counts: [u32; 3]| {
            let line = |(bound, count): (&str, u32)| {
                let metric = delay_server::METRIC;
                format!("{metric}_bucket{{stage=\"dequeue\",le=\"{bound}\"}} {count}\n")
            };
            let lines = ["0.000001", "0.000002", "+Inf"].into_iter().zip(counts).map(line);
            ServerMetrics::parse(&lines.collect::<String>())
        };
        let since = page([5, 109, 110]).since(&page([5, 10, 10]));
        assert_eq!(since["dequeue_delay_p50_ns"].round(), 2000.0);
        assert_eq!(since["dequeue_delay_p99_ns"].round(), 2000.0);
        // Beyond the last bound.
        assert!(!since.contains_key("dequeue_delay_p999_ns"));
        assert_eq!(page([1, 1, 1]).since(&page([1, 1, 1])), BTreeMap::new());
    }

    #[test]
    fn page_is_read_from_a_server() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            for status in ["200 OK", "404 Not Found"] {
                let (mut client, _) = listener.accept().unwrap();
                let mut head = [0; 1024];
                let _ = client.read(&mut head).unwrap();
                write!(client, "HTTP/1.1 {status}\r\n\r\n{PAGE}").unwrap();
            }
        });
        assert_eq!(ServerMetrics::read(port, "/metrics").unwrap(), ServerMetrics::parse(PAGE));
        let error = ServerMetrics::read(port, "/metrics").unwrap_err().to_string();
        assert!(error.contains("404"), "{error}");
        server.join().unwrap();
    }
}
