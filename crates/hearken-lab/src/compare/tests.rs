use std::time::Duration;

use fastrand::Rng;
use hearken_load::{Histogram, Report, SCHEMA as LOAD_SCHEMA, Server, ServerUsage};

use super::*;

/// Values of a run in nanoseconds, and the number of failed requests.
#[derive(Clone, Copy)]
struct Values {
    latency: f64,
    cpu: f64,
    failed: u64,
}

const BASELINE: Values = Values { latency: 2e6, cpu: 30_000.0, failed: 0 };
const REPLIES: u64 = 600;

/// Creates the result of a run.
fn run(values: Values) -> Report {
    let mut latency = Histogram::new();
    for index in 0..REPLIES {
        let share = 0.5 + index as f64 / REPLIES as f64;
        latency.record(Duration::from_nanos((values.latency * share) as u64));
    }
    let mut report = Report {
        schema: LOAD_SCHEMA.to_owned(),
        complete: true,
        url: "http://a/".to_owned(),
        offered_rate: 100.0,
        rate: "100".to_owned(),
        duration_s: 6.0,
        reply_rate: 100.0,
        ..Report::default()
    };
    report.requests.scheduled = REPLIES + values.failed;
    report.requests.replies = REPLIES;
    report.requests.failed = values.failed;
    report.histograms.latency = latency;
    let cpu_ns = Some((values.cpu * REPLIES as f64) as u64);
    let total = ServerUsage { cpu_ns, ..ServerUsage::default() };
    report.server = Some(Server { total, ..Server::default() });
    report
}

/// Creates runs whose latency and CPU time vary by some per mille.
fn runs(values: Values, count: usize) -> Vec<Report> {
    let factor = |index: usize| [1.0, 1.004, 0.997][index % 3];
    let varied = |index| Values {
        latency: values.latency * factor(index),
        cpu: values.cpu * factor(index + 1),
        ..values
    };
    (0..count).map(|index| run(varied(index))).collect()
}

/// Sets start times so that the runs of both sides alternate: A B B A ...
fn alternate(a: &mut [Report], b: &mut [Report]) {
    for (index, (a, b)) in a.iter_mut().zip(b).enumerate() {
        let first = 2 * index as u64;
        let (second, swap) = (first + 1, index % 2 == 1);
        (a.started_unix_ns, b.started_unix_ns) =
            if swap { (second, first) } else { (first, second) };
    }
}

fn options(threshold: f64) -> Options {
    Options { threshold }
}

fn figure(comparison: &Comparison, metric: Metric) -> MetricComparison {
    let figure = comparison.metrics.iter().find(|figure| figure.metric == metric);
    *figure.unwrap_or_else(|| panic!("no {metric:?}: {comparison}"))
}

fn verdict(comparison: &Comparison, metric: Metric) -> Verdict {
    figure(comparison, metric).verdict
}

fn is_difference(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Better | Verdict::Worse)
}

/// The variation of a metric between runs, on the logarithm.
type Variation = fn(&mut Rng) -> f64;

fn normal(random: &mut Rng) -> f64 {
    (-2.0 * (1.0 - random.f64()).ln()).sqrt() * (std::f64::consts::TAU * random.f64()).cos()
}

/// Light and heavy tails, outliers on one side, and values in two groups.
const VARIATIONS: [(&str, Variation); 5] = [
    ("30 %", |random| 0.3 * normal(random)),
    ("Cauchy", |random| 0.1 * normal(random) / normal(random)),
    ("log-normal", |random| 0.2 * normal(random).exp()),
    ("outliers", |random| 0.05 * normal(random) + if random.f64() < 0.2 { 1.0 } else { 0.0 }),
    ("two groups", |random| 0.1 * normal(random) + if random.bool() { 0.4 } else { 0.0 }),
];

/// Returns the metrics of a run whose metrics are independent, which makes false positives most likely.
fn independent(random: &mut Rng, variation: Variation, factor: f64) -> Samples {
    Metric::ALL.map(|metric| {
        let value = factor.ln() + variation(random);
        (metric != Metric::ErrorRatio).then(|| Sample::new(value.exp()))
    })
}

/// Returns the metrics of a run whose metrics vary together.
fn dependent(random: &mut Rng, variation: Variation, factor: f64) -> Samples {
    let value = factor.ln() + variation(random);
    Metric::ALL.map(|metric| {
        let value = value + 0.001 * normal(random);
        (metric != Metric::ErrorRatio).then(|| Sample::new(value.exp()))
    })
}

/// Counts the simulated comparisons in which a metric is judged better or worse.
fn count_differences(
    times: usize,
    runs: usize,
    paired: bool,
    mut side: impl FnMut(bool) -> Samples,
) -> usize {
    let pairs: Vec<(usize, usize)> = (0..runs).map(|index| (index, index)).collect();
    let pairs = paired.then_some(&pairs[..]);
    let differs = |_: &usize| {
        let a: Vec<Samples> = (0..runs).map(|_| side(false)).collect();
        let b: Vec<Samples> = (0..runs).map(|_| side(true)).collect();
        let figures = compare_samples(&a, &b, pairs, &options(0.0));
        figures.iter().any(|figure| is_difference(figure.verdict))
    };
    (0..times).filter(differs).count()
}

/// Allows 22 of 200: if the true rate is 5 %, more have a probability of 0.03 %.
#[test]
fn identical_sides_differ_in_at_most_five_per_cent_of_comparisons() {
    let mut random = Rng::with_seed(7);
    for (name, variation) in VARIATIONS {
        // Two runs of each may be in different groups by chance, which no method can recognise.
        let groups = ["two groups", "outliers"].contains(&name);
        for runs in [2, 3, 5, 10].into_iter().filter(|runs| *runs > 2 || !groups) {
            for paired in [false, true] {
                let found = count_differences(200, runs, paired, |_| {
                    independent(&mut random, variation, 1.0)
                });
                assert!(found <= 22, "{found} of 200: {name}, {runs} runs, paired {paired}");
            }
        }
    }
}

#[test]
fn small_differences_are_found_with_low_variation() {
    let mut random = Rng::with_seed(8);
    let low: Variation = |random| 0.01 * normal(random);
    for (runs, factor, paired) in
        [(5, 1.1, true), (6, 1.05, true), (10, 1.05, true), (5, 1.05, false)]
    {
        let found = count_differences(200, runs, paired, |second| {
            dependent(&mut random, low, if second { factor } else { 1.0 })
        });
        assert!(found >= 160, "{found} of 200: {runs} runs, factor {factor}, paired {paired}");
    }
}

/// Simulates a machine that drifts by much more than the difference between the sides.
#[test]
fn pairs_find_differences_despite_drift() {
    let count = |paired| {
        let mut random = Rng::with_seed(9);
        let (mut level, mut made) = (0.0, 0);
        // The runs of a pair share a level. `count_differences` makes all runs of A before those of B.
        let levels: Vec<f64> = (0..8).map(|_| level + 0.5 * normal(&mut random)).collect();
        count_differences(100, 8, paired, |second| {
            level = levels[made % 8];
            made += 1;
            let factor: f64 = if second { 1.05 } else { 1.0 };
            dependent(&mut random, |random| 0.01 * normal(random), factor * level.exp())
        })
    };
    assert!(count(true) >= 95 && count(false) == 0, "{} {}", count(true), count(false));
}

#[test]
fn the_sign_of_a_difference_decides_the_verdict() {
    let slower = Values { latency: BASELINE.latency * 1.2, ..BASELINE };
    let (a, b) = (runs(BASELINE, 5), runs(slower, 5));
    let (forward, backward) = (compare(&a, &b, &options(0.02)), compare(&b, &a, &options(0.02)));
    assert_eq!((forward.verdict, backward.verdict), (Verdict::Worse, Verdict::Better));
    let mean = figure(&forward, Metric::LatencyMean);
    assert!(mean.low < mean.ratio && mean.ratio < mean.high, "{mean:?}");
    assert!((1.19..1.21).contains(&mean.ratio.unwrap()), "{mean:?}");
    assert_eq!(verdict(&forward, Metric::CpuPerReply), Verdict::NoDifferenceDetected);
}

#[test]
fn compares_errors_and_cpu_time() {
    let worse = Values { failed: 30, cpu: 36_000.0, ..BASELINE };
    let comparison = compare(&runs(BASELINE, 5), &runs(worse, 5), &options(0.02));
    assert_eq!(verdict(&comparison, Metric::ErrorRatio), Verdict::Worse);
    assert_eq!(verdict(&comparison, Metric::CpuPerReply), Verdict::Worse);
    assert!(comparison.summary.starts_with("B is worse: "), "{}", comparison.summary);
    let cpu = figure(&comparison, Metric::CpuPerReply);
    assert!((1.18..1.22).contains(&cpu.ratio.unwrap()), "{cpu:?}");
}

#[test]
fn single_errors_are_no_difference() {
    let one = Values { failed: 1, ..BASELINE };
    let errors =
        |b| figure(&compare(&runs(BASELINE, 3), &runs(b, 3), &options(0.0)), Metric::ErrorRatio);
    assert!(errors(one).ratio > Some(1.0) && !is_difference(errors(one).verdict));
    // Two ratios of zero have no ratio.
    let none = errors(BASELINE);
    assert_eq!((none.ratio, none.low, none.verdict), (None, None, Verdict::NoDifferenceDetected));
}

#[test]
fn a_single_run_has_no_verdict() {
    let slower = Values { latency: BASELINE.latency * 2.0, failed: 100, ..BASELINE };
    for (a, b) in [(1, 1), (1, 5), (5, 1)] {
        let comparison = compare(&runs(BASELINE, a), &runs(slower, b), &options(0.02));
        assert_eq!(comparison.verdict, Verdict::InsufficientData);
        assert!(comparison.metrics.iter().all(|figure| figure.low.is_none()), "{comparison}");
        let mean = figure(&comparison, Metric::LatencyMean);
        assert!((1.95..2.05).contains(&mean.ratio.unwrap()), "{mean:?}");
        let text = comparison.to_string();
        assert!(text.contains("One run") && text.contains("hearken load ab A B"), "{text}");
    }
}

#[test]
fn reports_insufficient_data() {
    let comparison = compare(&runs(BASELINE, 3), &runs(BASELINE, 3), &options(0.02));
    // Of 600 replies, less than one lies beyond the 99.9th percentile.
    assert_eq!(verdict(&comparison, Metric::LatencyP999), Verdict::InsufficientData);
    assert_eq!(verdict(&comparison, Metric::LatencyP99), Verdict::NoDifferenceDetected);
    assert!(comparison.summary.ends_with("Insufficient data for: latency p99.9."), "{comparison}");
    let mut silent = runs(BASELINE, 3);
    silent[1].histograms.latency = Histogram::new();
    let comparison = compare(&runs(BASELINE, 3), &silent, &options(0.02));
    assert_eq!(verdict(&comparison, Metric::LatencyMean), Verdict::InsufficientData);
    for nothing in
        [compare(&[], &[], &options(0.02)), compare(&[Report::default()], &[], &options(0.02))]
    {
        assert_eq!(nothing.verdict, Verdict::InsufficientData);
        assert!(!nothing.to_string().contains("NaN"), "{nothing}");
    }
}

#[test]
fn ignores_differences_below_the_threshold() {
    let more = Values { cpu: BASELINE.cpu * 1.04, ..BASELINE };
    let (a, b) = (runs(BASELINE, 5), runs(more, 5));
    let cpu = |threshold| verdict(&compare(&a, &b, &options(threshold)), Metric::CpuPerReply);
    assert_eq!((cpu(0.01), cpu(0.1)), (Verdict::Worse, Verdict::BelowThreshold));
}

#[test]
fn alternating_runs_are_compared_as_pairs() {
    let (mut a, mut b) = (runs(BASELINE, 4), runs(BASELINE, 4));
    assert!(!compare(&a, &b, &options(0.02)).paired);
    alternate(&mut a, &mut b);
    let comparison = compare(&a, &b, &options(0.02));
    assert!(comparison.paired && comparison.to_string().contains("pairs"), "{comparison}");
}

#[test]
fn is_deterministic_and_round_trips_through_json() {
    let (a, b) = (runs(BASELINE, 2), runs(Values { failed: 2, ..BASELINE }, 3));
    let comparison = compare(&a, &b, &options(0.02));
    assert_eq!(compare(&a, &b, &options(0.02)), comparison);
    let text = serde_json::to_string(&comparison).unwrap();
    assert_eq!(serde_json::from_str::<Comparison>(&text).unwrap(), comparison);
    assert!(
        text.contains("\"no-difference-detected\"") && text.contains("\"latency-p99\""),
        "{text}"
    );
}

#[test]
fn tables_fit_80_columns() {
    let extreme = [
        Values { latency: 4e12, cpu: 1e12, failed: 100_000_000 },
        Values { latency: 1e3, cpu: 1.0, failed: 0 },
        BASELINE,
        Values { latency: 9.9951e5, cpu: 9.9996e8, failed: 3 },
    ];
    for a in extreme {
        for b in extreme {
            for count in [1, 2, 5] {
                let mut sides = [runs(a, count), runs(b, count)];
                for report in sides.iter_mut().flatten() {
                    report.reply_rate *= 12_345.6;
                }
                let comparison = compare(&sides[0], &sides[1], &options(0.02));
                let table = aligned(&comparison.table());
                for line in table.lines() {
                    assert!(line.chars().count() <= 80, "{} columns: {line}", line.chars().count());
                }
            }
        }
    }
}

fn warnings(a: &[Report], b: &[Report]) -> String {
    compare(a, b, &options(0.02)).warnings.join("\n")
}

#[test]
fn warns_about_incomparable_runs() {
    let (a, mut b) = (run(BASELINE), run(BASELINE));
    b.offered_rate = 200.0;
    b.machine = "another".to_owned();
    b.started_unix_ns = 2 * 3_600_000_000_000;
    b.lateness_ns.p99 = 5_000_000;
    b.requests.scheduled *= 2;
    b.url.push('x');
    let warnings = warnings(std::slice::from_ref(&a), &[b]);
    for part in [
        "offered rates differ: 100 and 200 ",
        "different machines",
        "2.00 hours apart",
        "late in B: it sent 1 % of the requests 5.00 ms",
        "B was saturated",
        "/x'",
    ] {
        assert!(warnings.contains(part), "{part}: {warnings}");
    }
    let two = [a.clone(), a];
    assert_eq!(compare(&two, &two, &options(0.02)).warnings, [] as [&str; 0]);
}

#[test]
fn ports_of_one_host_are_comparable() {
    let with_url = |url: &str| vec![Report { url: url.to_owned(), ..run(BASELINE) }; 2];
    let warn = |a, b| warnings(&with_url(a), &with_url(b));
    assert_eq!(warn("http://a:80/x", "http://a:8080/x"), "");
    assert_eq!(warn("http://a/x", "http://a:8080/x"), "");
    assert_eq!(warn("http://[::1]/x", "http://[::1]:8080/x"), "");
    assert!(warn("http://a:80/x", "http://b:80/x").contains("different hosts ('a' and 'b')"));
    assert!(warn("http://a:80/x", "http://a:80/y").contains("the URLs differ"));
    assert!(warn("http://a:80/x", "https://a:80/x").contains("the URLs differ"));
}

#[test]
fn warns_about_different_mechanisms() {
    let with =
        |names: [&str; 2]| names.map(|name| Report { mechanism: name.into(), ..run(BASELINE) });
    let (edge, mixed) = (with(["epoll-edge"; 2]), with(["epoll-edge", "poll"]));
    assert_eq!(warnings(&edge, &edge), "");
    for (a, b, part) in [
        (&edge, &with(["poll"; 2]), "A: epoll-edge; B: poll"),
        (&edge, &mixed, "A: epoll-edge; B: epoll-edge, poll"),
        (&mixed, &edge, "A: epoll-edge, poll; B: epoll-edge"),
        // The agents of one run.
        (&with(["epoll-edge, poll"; 2]), &edge, "A: epoll-edge, poll; B: epoll-edge"),
    ] {
        let warnings = warnings(a, b);
        assert!(
            warnings.contains("different event mechanisms") && warnings.contains(part),
            "{warnings}"
        );
    }
}

#[test]
fn warns_about_sequential_runs() {
    let (mut a, mut b) = (runs(BASELINE, 2), runs(BASELINE, 2));
    for (start, report) in a.iter_mut().chain(&mut b).enumerate() {
        report.started_unix_ns = start as u64;
    }
    assert!(warnings(&a, &b).contains("hearken load ab alternates them"));
    alternate(&mut a, &mut b);
    assert_eq!(warnings(&a, &b), "");
}

#[test]
fn documentation_lists_all_fields_and_verdicts() {
    const DOCUMENT: &str = include_str!("../../../../docs/compare-result.md");
    let comparison =
        serde_json::to_value(compare(&runs(BASELINE, 2), &runs(BASELINE, 2), &options(0.0)));
    let comparison = comparison.unwrap();
    let fields =
        |of: &serde_json::Value| of.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let mut names: Vec<String> =
        [&comparison, &comparison["a"], &comparison["metrics"][0]].map(fields).concat();
    let verdicts = [
        Verdict::Better,
        Verdict::Worse,
        Verdict::Mixed,
        Verdict::BelowThreshold,
        Verdict::NoDifferenceDetected,
        Verdict::InsufficientData,
    ];
    let name = |value: serde_json::Value| value.as_str().unwrap().to_owned();
    names.extend(verdicts.map(|verdict| name(serde_json::to_value(verdict).unwrap())));
    names.extend(Metric::ALL.map(|metric| name(serde_json::to_value(metric).unwrap())));
    for name in names.iter().map(String::as_str).chain([SCHEMA]) {
        assert!(DOCUMENT.contains(&format!("`{name}`")), "{name}");
    }
}
