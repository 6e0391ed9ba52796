use std::time::Duration;

use fastrand::Rng;
use hearken_load::{
    Histogram, Interval, Report, SCHEMA as LOAD_SCHEMA, Server, ServerSample, ServerUsage,
};

use super::*;

/// Parameters of a simulated run: mean latency in nanoseconds and error ratio.
#[derive(Clone, Copy)]
struct Process {
    latency: f64,
    error_ratio: f64,
    /// CPU time per reply, in nanoseconds.
    cpu: f64,
    /// Standard deviation of the logarithm of latency between runs.
    runs: f64,
}

const BASELINE: Process = Process { latency: 2e6, error_ratio: 0.0, cpu: 30_000.0, runs: 0.0 };

fn normal(random: &mut Rng) -> f64 {
    (-2.0 * (1.0 - random.f64()).ln()).sqrt() * (std::f64::consts::TAU * random.f64()).cos()
}

/// Simulates a run with intervals of one second and autocorrelated latency.
fn run(process: Process, intervals: usize, requests: u64, seed: u64) -> Report {
    let mut random = Rng::with_seed(seed);
    let level = process.latency * (process.runs * normal(&mut random)).exp();
    let (mut drift, mut cpu_ns) = (0.0, 0.0);
    let mut report = Report {
        schema: LOAD_SCHEMA.to_owned(),
        complete: true,
        url: "http://a/".to_owned(),
        offered_rate: requests as f64,
        rate: requests.to_string(),
        duration_s: intervals as f64,
        ..Report::default()
    };
    let mut samples = vec![ServerSample { cpu_ns: Some(0), ..ServerSample::default() }];
    for at in 0..intervals {
        // An autoregressive process: neighbouring intervals are correlated.
        drift = 0.5 * drift + 0.03 * normal(&mut random);
        let mean = level * f64::exp(drift);
        let count = requests as f64 + (requests as f64).sqrt() * normal(&mut random);
        let (mut latency, mut failed) = (Histogram::new(), 0);
        for _ in 0..count as u64 {
            if random.f64() < process.error_ratio {
                failed += 1;
                continue;
            }
            let nanos = mean * (0.5 - (1.0 - random.f64()).ln());
            latency.record(Duration::from_nanos(nanos as u64));
        }
        let replies = latency.len();
        cpu_ns += replies as f64 * process.cpu * (1.0 + 0.02 * normal(&mut random));
        samples.push(ServerSample {
            offset_s: (at + 1) as f64,
            cpu_ns: Some(cpu_ns as u64),
            ..ServerSample::default()
        });
        report.requests.scheduled += replies + failed;
        report.requests.replies += replies;
        report.intervals.push(Interval {
            offset_s: at as f64,
            duration_s: 1.0,
            scheduled: replies + failed,
            sent: replies + failed,
            replies,
            failed,
            latency: latency.encode(),
            ..Interval::default()
        });
    }
    report.reply_rate = report.requests.replies as f64 / intervals as f64;
    let total = ServerUsage::from_samples(&samples);
    report.server = Some(Server { samples, total, ..Server::default() });
    report
}

fn options(threshold: f64) -> Options {
    Options { threshold, resamples: 200, ..Options::default() }
}

fn verdict(comparison: &Comparison, metric: Metric) -> Verdict {
    let figure = comparison.metrics.iter().find(|figure| figure.metric == metric);
    figure.unwrap_or_else(|| panic!("no {metric:?}: {comparison}")).verdict
}

/// Expects at most 7 false positives in 40: with a joint confidence level of 95 %, the mean is 2, and
/// more than 7 have a probability of 0.1 %.
#[test]
fn identical_processes_rarely_differ() {
    let different = (0..40).filter(|seed| {
        let [a, b] = [0, 1].map(|side| run(BASELINE, 24, 60, 1000 + seed * 2 + side));
        let comparison = compare(&[a], &[b], &options(0.0));
        comparison.metrics.iter().any(|f| matches!(f.verdict, Verdict::Better | Verdict::Worse))
    });
    let different = different.count();
    assert!(different <= 7, "{different} of 40");
}

#[test]
fn runs_with_variation_between_runs_rarely_differ() {
    let process = Process { runs: 0.1, ..BASELINE };
    let different = (0..30).filter(|seed| {
        let [a, b] = [0, 10].map(|side| {
            [0, 1, 2, 3].map(|repetition| run(process, 4, 60, 5000 + seed * 20 + side + repetition))
        });
        matches!(compare(&a, &b, &options(0.0)).verdict, Verdict::Better | Verdict::Worse)
    });
    let different = different.count();
    assert!(different <= 6, "{different} of 30");
}

#[test]
fn detects_a_shift_of_twenty_per_cent() {
    let slower = Process { latency: BASELINE.latency * 1.2, ..BASELINE };
    let found = (0..8).filter(|seed| {
        let (a, b) = (run(BASELINE, 40, 100, seed * 2), run(slower, 40, 100, seed * 2 + 1));
        let forward = compare(std::slice::from_ref(&a), std::slice::from_ref(&b), &options(0.02));
        let backward = compare(&[b], &[a], &options(0.02));
        assert!(!matches!(forward.verdict, Verdict::Better) && backward.verdict != Verdict::Worse);
        verdict(&forward, Metric::LatencyMean) == Verdict::Worse
            && verdict(&forward, Metric::LatencyP50) == Verdict::Worse
            && verdict(&backward, Metric::LatencyMean) == Verdict::Better
    });
    assert_eq!(found.count(), 8);
}

#[test]
fn compares_errors_and_cpu_time() {
    let worse = Process { error_ratio: 0.05, cpu: 36_000.0, ..BASELINE };
    let comparison =
        compare(&[run(BASELINE, 30, 100, 1)], &[run(worse, 30, 100, 2)], &options(0.02));
    assert_eq!(verdict(&comparison, Metric::ErrorRatio), Verdict::Worse);
    assert_eq!(verdict(&comparison, Metric::CpuPerReply), Verdict::Worse);
    assert!(comparison.summary.starts_with("B is worse: "), "{}", comparison.summary);
    let cpu = comparison.metrics.iter().find(|f| f.metric == Metric::CpuPerReply).unwrap();
    assert!((1.18..1.22).contains(&cpu.ratio.unwrap()), "{cpu:?}");
    // No errors on either side mean no difference, not insufficient data.
    let same = compare(&[run(BASELINE, 30, 100, 1)], &[run(BASELINE, 30, 100, 3)], &options(0.02));
    assert_eq!(verdict(&same, Metric::ErrorRatio), Verdict::NoDifferenceDetected);
    assert_eq!(same.verdict, Verdict::NoDifferenceDetected, "{same}");
}

#[test]
fn reports_insufficient_data() {
    let short = compare(&[run(BASELINE, 3, 100, 1)], &[run(BASELINE, 3, 100, 2)], &options(0.02));
    assert_eq!(short.verdict, Verdict::InsufficientData);
    // Of 3000 replies, only three lie beyond the 99.9th percentile.
    let long = compare(&[run(BASELINE, 30, 100, 1)], &[run(BASELINE, 30, 100, 2)], &options(0.02));
    assert_eq!(verdict(&long, Metric::LatencyP999), Verdict::InsufficientData);
    assert!(long.summary.ends_with("Insufficient data for: latency p99.9."), "{}", long.summary);
    // A single stall over half of a run does not predict the next run.
    let mut stalled = run(Process { latency: 1e9, ..BASELINE }, 8, 100, 3);
    stalled.intervals[..4].clone_from_slice(&run(BASELINE, 4, 100, 4).intervals);
    let stalled_once = compare(&[run(BASELINE, 8, 100, 1)], &[stalled], &options(0.02));
    assert_eq!(
        verdict(&stalled_once, Metric::LatencyP90),
        Verdict::InsufficientData,
        "{stalled_once}"
    );
    for nothing in
        [compare(&[], &[], &options(0.02)), compare(&[Report::default()], &[], &options(0.02))]
    {
        assert_eq!(nothing.verdict, Verdict::InsufficientData);
        assert!(!nothing.to_string().contains("NaN"), "{nothing}");
    }
}

#[test]
fn ignores_differences_below_the_threshold() {
    let slower = Process { cpu: BASELINE.cpu * 1.04, ..BASELINE };
    let (a, b) = (run(BASELINE, 60, 40, 1), run(slower, 60, 40, 2));
    let cpu = |threshold| {
        let comparison =
            compare(std::slice::from_ref(&a), std::slice::from_ref(&b), &options(threshold));
        verdict(&comparison, Metric::CpuPerReply)
    };
    assert_eq!((cpu(0.01), cpu(0.1)), (Verdict::Worse, Verdict::BelowThreshold));
}

#[test]
fn is_deterministic_and_round_trips_through_json() {
    let sides = || ([run(BASELINE, 12, 50, 1)], [run(BASELINE, 12, 50, 2)]);
    let (a, b) = sides();
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
fn warns_about_incomparable_runs() {
    let (a, mut b) = (run(BASELINE, 12, 50, 1), run(BASELINE, 12, 50, 2));
    b.offered_rate = 100.0;
    b.machine = "another".to_owned();
    b.started_unix_ns = 2 * 3_600_000_000_000;
    b.lateness_ns.p99 = 5_000_000;
    b.requests.scheduled *= 2;
    b.url.push('x');
    let warnings = compare(std::slice::from_ref(&a), &[b], &options(0.02)).warnings.join("\n");
    for part in [
        "offered rates differ: 50.0 and 100 ",
        "different machines",
        "2.00 hours apart",
        "late in B: it sent 1 % of the requests 5.00 ms",
        "B was saturated",
        "http://a/x",
        "a single run",
    ] {
        assert!(warnings.contains(part), "{part}: {warnings}");
    }
    let two = [a.clone(), a];
    assert_eq!(compare(&two, &two, &options(0.02)).warnings, [] as [&str; 0]);
}

#[test]
fn short_and_draining_intervals_join_the_previous_segment() {
    let mut report = run(BASELINE, 10, 50, 1);
    let complete = Side::from_reports(std::slice::from_ref(&report)).runs[0].segments.len();
    let mut rest = report.intervals[9].clone();
    (rest.offset_s, rest.duration_s) = (10.0, 0.3);
    report.intervals.push(rest.clone());
    (rest.offset_s, rest.duration_s, rest.draining, rest.scheduled) = (10.3, 4.0, true, 0);
    report.intervals.push(rest);
    let side = Side::from_reports(&[report.clone()]);
    assert_eq!((complete, side.runs[0].segments.len()), (10, 10));
    let last = &side.runs[0].segments[9];
    assert!((last.seconds - 1.3).abs() < 1e-9);
    assert_eq!(last.replies, report.intervals[9].replies + report.intervals[10].replies);
    // Thousands of intervals are merged.
    let many: Vec<Interval> = (0..2000)
        .map(|at| Interval { offset_s: f64::from(at), ..report.intervals[0].clone() })
        .collect();
    report.intervals = many;
    let pieces = Side::from_reports(&[report]).runs.remove(0).segments;
    assert!(pieces.len() <= 240 && pieces.len() > 100, "{}", pieces.len());
    assert!((pieces.iter().map(|piece| piece.seconds).sum::<f64>() - 2000.0).abs() < 1e-6);
}
