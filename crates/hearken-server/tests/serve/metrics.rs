//! The metrics page, as Prometheus reads it.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use hearken_server::runtime::metrics::{Error, Metrics, UpstreamStats, WaitOutcome};
use proptest::prelude::*;

use crate::common::process::run_alone;

/// The name, labels and value of a sample.
type Sample = (String, BTreeMap<String, String>, f64);

/// Parses a page and checks its format. Types come before samples, families are contiguous, and no
/// series occurs twice. Names and labels are well-formed. Histograms are complete and cumulative.
fn check(page: &str) -> Vec<Sample> {
    assert!(page.ends_with('\n'));
    let mut types: BTreeMap<String, String> = BTreeMap::new();
    let mut with_help = HashSet::new();
    let (mut current, mut series, mut samples) = (String::new(), HashSet::new(), Vec::new());
    for line in page.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, text) = help.split_once(' ').expect(line);
            assert!(is_name(name) && !text.is_empty(), "{line}");
            assert!(with_help.insert(name.to_owned()), "two help lines: {name}");
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').expect(line);
            assert!(with_help.contains(name), "no help line: {name}");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            assert!(types.insert(name.to_owned(), kind.to_owned()).is_none(), "duplicate: {line}");
            name.clone_into(&mut current);
        } else {
            let sample = sample(line);
            let suffix = sample.0.strip_prefix(&current).unwrap_or_else(|| panic!("{line}"));
            let suffixes: &[&str] = match types[&current].as_str() {
                "histogram" => &["_bucket", "_sum", "_count"],
                _ => &[""],
            };
            assert!(suffixes.contains(&suffix), "{line} is not a sample of {current}");
            assert_eq!(suffix == "_bucket", sample.1.contains_key("le"), "{line}");
            assert!(sample.2 >= 0.0, "{line}");
            assert!(series.insert((sample.0.clone(), sample.1.clone())), "duplicate: {line}");
            samples.push(sample);
        }
    }
    for (name, _) in types.iter().filter(|(_, kind)| *kind == "histogram") {
        let with_suffix = |suffix: &str| -> Vec<&Sample> {
            samples.iter().filter(|it| it.0 == format!("{name}{suffix}")).collect()
        };
        let buckets = with_suffix("_bucket");
        let bounds: Vec<f64> = buckets.iter().map(|it| number(&it.1["le"])).collect();
        assert!(bounds.is_sorted_by(|one, next| one < next), "{bounds:?}");
        assert!(buckets.is_sorted_by(|one, next| one.2 <= next.2), "{name} is not cumulative");
        assert_eq!(bounds.last(), Some(&f64::INFINITY));
        assert_eq!(buckets.last().unwrap().2, with_suffix("_count")[0].2);
        assert_eq!(with_suffix("_sum").len(), 1);
    }
    samples
}

fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn number(text: &str) -> f64 {
    match text {
        "+Inf" => f64::INFINITY,
        text => text.parse().unwrap_or_else(|_| panic!("not a number: {text}")),
    }
}

fn sample(line: &str) -> Sample {
    let name_len = line.find(['{', ' ']).expect(line);
    let (name, mut rest) = line.split_at(name_len);
    assert!(is_name(name), "{line}");
    let mut labels = BTreeMap::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (label, after) = rest.split_once("=\"").expect(line);
            assert!(is_name(label), "{line}");
            let (value, after) = quoted(after);
            assert!(labels.insert(label.to_owned(), value).is_none(), "{line}");
            match after.split_at(1) {
                (",", after) => rest = after,
                ("}", after) => break rest = after,
                _ => panic!("{line}"),
            }
        }
    }
    (name.to_owned(), labels, number(rest.strip_prefix(' ').expect(line)))
}

/// Parses the value of a label up to the quotation mark. Returns the value and the text after it.
fn quoted(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return (value, &text[at + 1..]),
            '\\' => value.push(match characters.next().unwrap().1 {
                'n' => '\n',
                escaped @ ('"' | '\\') => escaped,
                other => panic!("\\{other}"),
            }),
            other => value.push(other),
        }
    }
    panic!("unterminated: {text}");
}

fn page(metrics: &Metrics, upstreams: &[UpstreamStats]) -> Vec<Sample> {
    let mut out = String::new();
    metrics.render(upstreams, &mut out);
    check(&out)
}

/// Returns the value of the only series with this name and these labels.
fn value(samples: &[Sample], name: &str, labels: &[(&str, &str)]) -> f64 {
    let mut all = samples.iter().filter(|(of, has, _)| {
        of == name
            && labels.iter().all(|(label, value)| has.get(*label).is_some_and(|is| is == value))
    });
    let found = all.next().unwrap_or_else(|| panic!("no {name} {labels:?}"));
    assert!(all.next().is_none(), "several {name} {labels:?}");
    found.2
}

#[test]
fn the_page_has_what_was_counted() {
    let metrics = Metrics::new(2);
    let [one, two] = &*metrics.workers else { panic!() };
    one.connections_accepted.add(3);
    one.connections_open.increment();
    one.connections_open.increment();
    one.connections_open.decrement();
    two.connections_open.set(7);
    for status in [200, 204, 304, 404, 503, 0, 999] {
        two.record_response(status);
    }
    one.record_error(Error::Truncated);
    two.record_error(Error::Truncated);
    one.bytes_sent_client.add(5);
    two.bytes_sent_client.add(6);
    one.record_duration(2_000_000);
    two.record_duration(100_000_000_000);
    one.record_upstream_response(128_000);
    let counters =
        hearken::mechanism::Counters { waits: 8, signals: 5, calls: 9, ..Default::default() };
    one.set_wait_counters(&counters);
    two.record_wait_cpu(Duration::from_nanos(1_500_000_001));
    for (events, accepts) in [(0, 0), (1, 1), (3, 2), (5000, 0)] {
        two.record_wait(&WaitOutcome { events, accepts, is_useful: accepts > 0 });
    }

    let samples = page(&metrics, &[]);
    let get = |name: &str, labels: &[(&str, &str)]| value(&samples, name, labels);
    assert_eq!(get("hearken_connections_accepted_total", &[("worker", "0")]), 3.0);
    assert_eq!(get("hearken_connections_open", &[("worker", "0")]), 1.0);
    assert_eq!(get("hearken_connections_open", &[("worker", "1")]), 7.0);
    for (status, count) in [("none", 1.0), ("2xx", 2.0), ("3xx", 1.0), ("4xx", 1.0), ("5xx", 2.0)] {
        let labels = [("worker", "1"), ("status", status)];
        assert_eq!(get("hearken_requests_total", &labels), count, "{status}");
    }
    assert_eq!(get("hearken_errors_total", &[("kind", "response_truncated")]), 2.0);
    assert_eq!(get("hearken_client_sent_bytes_total", &[]), 11.0);
    assert_eq!(get("hearken_event_waits_total", &[("worker", "0")]), 8.0);
    assert_eq!(get("hearken_event_system_calls_total", &[("worker", "0")]), 9.0);
    assert_eq!(get("hearken_event_wait_cpu_seconds_total", &[("worker", "1")]), 1.500_000_001);
    assert_eq!(get("hearken_event_signals_total", &[("worker", "0")]), 5.0);
    assert_eq!(get("hearken_event_useful_waits_total", &[("worker", "1")]), 2.0);
    for (bound, count) in [("0", 1.0), ("1", 2.0), ("2", 2.0), ("4", 3.0), ("4096", 3.0)] {
        assert_eq!(get("hearken_events_per_wait_bucket", &[("le", bound)]), count, "{bound}");
    }
    assert_eq!(get("hearken_events_per_wait_count", &[]), 4.0);
    assert_eq!(get("hearken_events_per_wait_sum", &[]), 5004.0);
    assert_eq!(get("hearken_accepts_per_wait_sum", &[]), 3.0);
    assert!(metrics.waits().to_string().ends_with(
        "; 2 useful waits; 3 accepts after 2 waits, 1.50 per wait; waits by number of events: 0: 1 \
         1: 1 3-4: 1 4097+: 1"
    ));
    assert_eq!(get("hearken_request_duration_seconds_count", &[]), 2.0);
    assert_eq!(get("hearken_request_duration_seconds_sum", &[]), 100.002);
    assert_eq!(get("hearken_request_duration_seconds_bucket", &[("le", "67.108864")]), 1.0);
    assert_eq!(
        get("hearken_upstream_response_duration_seconds_bucket", &[("le", "0.000096")]),
        0.0
    );
    assert_eq!(
        get("hearken_upstream_response_duration_seconds_bucket", &[("le", "0.000128")]),
        1.0
    );
    assert!(get("process_open_fds", &[]) >= 3.0);
    assert!(get("process_open_fds", &[]) < get("process_max_fds", &[]));
    assert!(get("process_resident_memory_bytes", &[]) > 100_000.0);
    assert!(get("process_start_time_seconds", &[]) > 1.7e9);
}

#[test]
fn every_error_kind_has_its_own_counter() {
    let metrics = Metrics::new(1);
    for (times, &error) in Error::ALL.iter().enumerate() {
        (0..=times).for_each(|_| metrics.workers[0].record_error(error));
    }
    let samples = page(&metrics, &[]);
    for (times, error) in Error::ALL.iter().enumerate() {
        let counted = value(&samples, "hearken_errors_total", &[("kind", error.name())]);
        assert_eq!(counted, times as f64 + 1.0, "{error:?}");
    }
}

#[test]
fn descriptors_of_all_tables_are_counted() {
    use hearken::descriptors::Table;
    use std::sync::{Arc, mpsc};

    if Table::Own.probe().is_err() {
        return;
    }
    // The figure is of the process, in which other tests open and close descriptors.
    if !run_alone("metrics::descriptors_of_all_tables_are_counted") {
        return;
    }
    let metrics = Arc::new(Metrics::new(1));
    let open = |metrics: &Metrics| value(&page(metrics, &[]), "process_open_fds", &[]);
    let before = open(&metrics);
    let (ready, is_ready) = mpsc::channel();
    let (end, ends) = mpsc::channel::<()>();
    let start = (Arc::clone(&metrics), ready, ends);
    let (thread, _waker) = Table::Own
        .spawn(std::thread::Builder::new(), start, |(metrics, ready, ends), _wakeups| {
            let files: Vec<_> = (0..100).map(|_| std::fs::File::open("/dev/null")).collect();
            metrics.workers[0].mark_own_table();
            let _ = ready.send(());
            let _ = ends.recv();
            Ok(files.len())
        })
        .unwrap();
    is_ready.recv().unwrap();
    let during = open(&metrics);
    drop(end);
    assert_eq!(thread.join().unwrap().unwrap(), 100);
    assert!(during >= before + 100.0, "{before} {during}");
}

proptest! {
    #[test]
    fn the_page_is_well_formed_with_any_upstream_names(
        names in proptest::collection::vec("a( #[23])?|[a-c\"\\\\\n{}é ]{0,3}|\\PC{0,8}", 0..6),
    ) {
        let figures = |name: &String| UpstreamStats {
            name: name.clone(), state: "up", weight: 2, requests: 3, ..UpstreamStats::default()
        };
        let upstreams: Vec<_> = names.iter().map(figures).collect();
        let samples = page(&Metrics::new(1), &upstreams);
        let requests: Vec<_> = samples.iter().filter(|it| it.0 == "hearken_upstream_requests_total").collect();
        for name in &names {
            prop_assert!(requests.iter().any(|it| it.1["upstream"] == *name && it.2 == 3.0));
        }
        let states = samples.iter().filter(|it| it.0 == "hearken_upstream_state").count();
        prop_assert_eq!(states, names.len());
    }
}
