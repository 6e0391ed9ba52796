//! Sweeps of the offered rate, with simulated servers.

use crate::fixtures;
use std::time::Duration;

use fastrand::Rng;
use hearken_load::sweep::{
    LimitedBy, Point, Purpose, SCHEMA, Schedule, Step, Sweep, SweepOptions, Trial, TrialRunner,
    sweep,
};
use hearken_load::{Bottleneck, Interval, LoadError, Report};
use proptest::prelude::*;

const MS: u64 = 1_000_000;

/// A simulated server.
#[derive(Clone, Debug)]
struct Simulated {
    capacity: f64,
    /// Decrease of the reply rate past saturation, as a fraction of the excess.
    falling: f64,
    /// Standard deviation of the reply rate, relative to it.
    noise: f64,
    /// Share of requests that fail at any rate.
    errors: f64,
    /// Replies per arrival.
    each: f64,
    /// Time in seconds without overload until the server recovers. Until then it is slow, and it has
    /// half the capacity.
    recovery: f64,
    /// Latency in seconds without overload.
    latency: f64,
    /// Maximum rate of the generator.
    generator: f64,
    bottleneck: Bottleneck,
}

impl Default for Simulated {
    fn default() -> Simulated {
        Simulated {
            capacity: 10_000.0,
            falling: 0.0,
            noise: 0.01,
            errors: 0.0,
            each: 1.0,
            recovery: 0.0,
            latency: 0.002,
            generator: f64::INFINITY,
            bottleneck: Bottleneck::Server,
        }
    }
}

fn normal(random: &mut Rng) -> f64 {
    // The sum of uniform samples is close enough to normal.
    (0..12).map(|_| random.f64()).sum::<f64>() - 6.0
}

impl Simulated {
    /// Returns the result of a trial `rest` seconds after the last overload.
    fn trial(&self, rate: f64, duration: Duration, rest: f64, random: &mut Rng) -> Trial {
        let ill = rest < self.recovery;
        let capacity = if ill { self.capacity / 2.0 } else { self.capacity };
        let over = (rate - capacity).max(0.0);
        let served = (rate.min(capacity) - over * self.falling).max(capacity / 10.0).min(rate);
        let replies = served * (1.0 - self.errors);
        // Part of the second half of the trial that replies reach.
        let seconds = duration.as_secs_f64();
        let reached = ((seconds - self.latency) / (seconds / 2.0)).clamp(0.0, 1.0);
        let reply_rate = replies * reached * self.each * (self.noise * normal(random)).exp();
        let limited = rate > self.generator;
        let count = |rate: f64| (rate * duration.as_secs_f64() * self.each) as u64;
        let queueing = if ill || over > 0.0 { 0.2 } else { 0.0 };
        let latency = ((self.latency + queueing) * 1e9) as u64;
        Trial {
            request_rate: rate * self.each,
            reply_rate,
            p50_ns: latency / 2,
            p90_ns: latency,
            p99_ns: latency * 2,
            scheduled: count(rate),
            replies: count(replies),
            failed: count(rate).saturating_sub(count(replies)),
            bottleneck: if over > 0.0 { self.bottleneck } else { Bottleneck::None },
            generator_limited: limited,
            ..Trial::default()
        }
    }

    /// Runs a sweep of the server.
    fn sweep(&self, options: &SweepOptions) -> Sweep {
        let mut random = Rng::with_seed(options.seed ^ 0x5eed);
        let mut schedule = Schedule::new(options);
        let mut rest = f64::INFINITY;
        for _ in 0..2_000 {
            let (pause, rate, duration) = match schedule.step() {
                Step::Done(sweep) => return *sweep,
                Step::Try { pause, rate, duration, .. } => (pause, rate, duration),
            };
            rest += pause.as_secs_f64();
            let trial = self.trial(rate, duration, rest, &mut random);
            rest = if rate > self.capacity { 0.0 } else { rest + duration.as_secs_f64() };
            schedule.record(trial, pause + duration);
        }
        panic!("the sweep does not end");
    }
}

fn options(seed: u64) -> SweepOptions {
    SweepOptions { seed, ..SweepOptions::default() }
}

fn near(value: f64, expected: f64, tolerance: f64) -> bool {
    (value / expected - 1.0).abs() <= tolerance
}

fn searches(sweep: &Sweep) -> impl Iterator<Item = &Trial> {
    let is_search = |of: &&Trial| matches!(of.purpose, Purpose::Bracket | Purpose::Refine);
    sweep.trials.iter().filter(is_search)
}

fn of_points(sweep: &Sweep) -> Vec<&Trial> {
    sweep.trials.iter().filter(|trial| trial.purpose == Purpose::Point).collect()
}

#[test]
fn finds_saturation_of_any_capacity() {
    for (seed, capacity) in [3.0, 70.0, 130.0, 1_234.0, 99_000.0].into_iter().enumerate() {
        for falling in [0.0, 0.3, 1.0] {
            let server = Simulated { capacity, falling, ..Simulated::default() };
            let sweep = server.sweep(&options(seed as u64));
            assert_eq!((sweep.limited_by, sweep.complete), (LimitedBy::Server, true), "{sweep}");
            assert!(near(sweep.saturation_rate, capacity, 0.06), "{capacity} {falling} {sweep}");
            assert!(searches(&sweep).count() <= 28, "{sweep}");
        }
    }
}

#[test]
fn points_range_up_to_twice_saturation_with_intervals() {
    let sweep = Simulated::default().sweep(&options(1));
    assert_eq!(sweep.points.len(), 16);
    assert!(near(sweep.points[15].load, 2.0, 1e-9) && near(sweep.points[0].load, 0.1, 1e-9));
    for Point { rate, trials, reply_rate, p99_ns, recovery_s, .. } in &sweep.points {
        assert_eq!((*trials, reply_rate.n), (3, 3));
        let expected = rate.min(10_000.0);
        assert!(near(reply_rate.mean, expected, 0.05), "{sweep}");
        assert!(reply_rate.margin.is_some_and(|margin| margin > 0.0 && margin < expected * 0.2));
        assert!(p99_ns.is_some() && near(recovery_s.unwrap().mean, 1.0, 1e-9), "{sweep}");
    }
}

#[test]
fn reply_rate_falls_past_saturation() {
    let sweep = Simulated { falling: 0.5, noise: 0.0, ..Simulated::default() }.sweep(&options(1));
    let last = sweep.points.last().unwrap();
    assert!(near(last.reply_rate.mean, 5_000.0, 0.15), "{sweep}");
    let text = sweep.to_string();
    assert!(text.contains("% of the highest reply rate at"), "{text}");
}

/// Checks that changes over time are not attributed to the rate.
#[test]
fn order_of_trials_is_random_and_repeatable() {
    let rates = |seed| {
        let sweep = Simulated { noise: 0.0, ..Simulated::default() }.sweep(&options(seed));
        of_points(&sweep).iter().map(|trial| trial.rate).collect::<Vec<_>>()
    };
    let (first, second) = (rates(1), rates(2));
    assert_eq!(first, rates(1));
    assert_ne!(first, second);
    for repetition in first.chunks(16) {
        let mut sorted = repetition.to_vec();
        sorted.sort_by(f64::total_cmp);
        sorted.dedup();
        assert_eq!(sorted.len(), 16);
        assert_ne!(repetition, sorted);
    }
    assert_ne!(first[..16], first[16..32]);
}

#[test]
fn trials_are_long_enough_for_the_latency_of_the_server() {
    for (latency, trial_s) in [(0.1, 3.0), (0.4, 3.0), (2.0, 12.0)] {
        let server = Simulated { capacity: 1_000.0, latency, ..Simulated::default() };
        let sweep = server.sweep(&options(1));
        assert!(near(sweep.saturation_rate, 1_000.0, 0.06), "{latency} {sweep}");
        assert!(near(sweep.trial_s, trial_s, 0.01), "{latency} {sweep}");
        assert!(near(sweep.points[0].reply_rate.mean, sweep.points[0].rate, 0.05), "{sweep}");
        assert_eq!(sweep.notes.iter().any(|note| note.contains("extended")), trial_s > 3.0);
    }
}

#[test]
fn errors_at_any_rate_do_not_look_like_saturation() {
    for errors in [0.1, 0.4] {
        let server = Simulated { errors, ..Simulated::default() };
        let sweep = server.sweep(&options(1));
        assert_eq!(sweep.limited_by, LimitedBy::Server);
        assert!(near(sweep.saturation_reply_rate, 10_000.0 * (1.0 - errors), 0.06), "{sweep}");
        assert!(near(sweep.points[0].error_share.mean, errors, 0.1), "{sweep}");
    }
}

#[test]
fn rates_are_in_arrivals_if_arrivals_have_several_requests() {
    let sweep = Simulated { each: 5.0, ..Simulated::default() }.sweep(&options(1));
    assert!(near(sweep.saturation_rate, 10_000.0, 0.06), "{sweep}");
    assert!(near(sweep.saturation_reply_rate, 50_000.0, 0.06), "{sweep}");
}

#[test]
fn waits_until_the_server_has_recovered() {
    let server = Simulated { recovery: 10.0, ..Simulated::default() };
    let sweep = server.sweep(&options(1));
    assert!(near(sweep.saturation_rate, 10_000.0, 0.06), "{sweep}");
    for point in &sweep.points {
        let recovery = point.recovery_s.unwrap();
        if point.load > 1.1 {
            assert!(recovery.min >= 10.0 && recovery.max <= 30.0, "{sweep}");
        } else if point.load < 0.9 {
            assert!(recovery.max <= 1.0, "{sweep}");
        }
        assert!(near(point.reply_rate.mean, point.rate.min(10_000.0), 0.05), "{sweep}");
    }
    assert!(sweep.trials.iter().any(|of| of.purpose == Purpose::Recovery && !of.recovered));
}

#[test]
fn ends_if_the_server_does_not_recover() {
    let server = Simulated { recovery: f64::INFINITY, ..Simulated::default() };
    let sweep = server.sweep(&options(1));
    assert!(!sweep.complete && sweep.notes[0].contains("did not recover within"), "{sweep}");
    assert!(sweep.trials.len() < 60, "{sweep}");
}

#[test]
fn points_exclude_trials_of_a_server_that_had_not_recovered() {
    let mut schedule = Schedule::new(&SweepOptions { repetitions: 1, ..options(1) });
    let (mut ill, mut spoiled) = (false, None);
    let sweep = loop {
        let (pause, rate, duration, purpose) = match schedule.step() {
            Step::Done(sweep) => break *sweep,
            Step::Try { pause, rate, duration, purpose } => (pause, rate, duration, purpose),
        };
        let server = Simulated { capacity: 1_000.0, ..Simulated::default() };
        let mut trial = server.trial(rate, duration, f64::INFINITY, &mut Rng::with_seed(0));
        if purpose == Purpose::Point && spoiled.is_none() {
            // The server is slow from the end of this trial until the end of the next one.
            (ill, spoiled) = (true, Some(rate));
        } else if purpose == Purpose::Point {
            ill = false;
        }
        if purpose == Purpose::Recovery && ill {
            trial.p50_ns = 900 * MS;
        }
        schedule.record(trial, pause + duration);
    };
    assert!(sweep.complete, "{sweep}");
    let trials = of_points(&sweep);
    assert_eq!((trials.len(), sweep.points.len()), (16, 15));
    assert_eq!((trials[0].recovery_s, trials[1].recovered), (None, false));
    assert!(sweep.points.iter().all(|point| point.rate != trials[1].rate), "{sweep}");
    let spoiled = sweep.points.iter().find(|point| Some(point.rate) == spoiled).unwrap();
    assert_eq!((spoiled.unrecovered, spoiled.recovery_s), (1, None));
    assert!(sweep.to_string().contains(" none\n"), "{sweep}");
}

#[test]
fn reports_the_generator_as_the_limit() {
    let server = Simulated { generator: 4_000.0, ..Simulated::default() };
    let sweep = server.sweep(&options(1));
    assert_eq!(sweep.limited_by, LimitedBy::Generator);
    assert!((3_600.0..=4_000.0).contains(&sweep.saturation_rate), "{sweep}");
    assert!(of_points(&sweep).iter().all(|trial| trial.rate <= 4_000.0), "{sweep}");
    assert_eq!((sweep.points.len(), sweep.points.last().map(|point| point.load)), (9, Some(1.0)));
    assert!(sweep.to_string().contains("the generator was the limit"), "{sweep}");
}

#[test]
fn ends_at_the_rate_that_the_generator_can_offer() {
    let server = Simulated { generator: 13_000.0, noise: 0.0, ..Simulated::default() };
    let sweep = server.sweep(&options(3));
    assert_eq!(sweep.limited_by, LimitedBy::Server, "{sweep}");
    assert!(near(sweep.saturation_rate, 10_000.0, 0.06), "{sweep}");
    assert!(sweep.points.iter().all(|point| point.rate < 13_800.0 || point.generator_limited));
    assert!(
        of_points(&sweep).iter().filter(|trial| trial.generator_limited).count() <= 8,
        "{sweep}"
    );
    assert!(sweep.notes.iter().any(|note| note.contains("generator cannot offer")), "{sweep}");
}

#[test]
fn reports_the_connections_as_the_limit() {
    let server = Simulated { bottleneck: Bottleneck::Connections, ..Simulated::default() };
    let sweep = server.sweep(&options(1));
    assert_eq!(sweep.limited_by, LimitedBy::Connections);
    assert_eq!(sweep.points.len(), 16);
    assert!(sweep.notes.iter().any(|note| note.contains("use more connections")), "{sweep}");
}

#[test]
fn reports_the_maximum_rate_as_the_limit() {
    let options = SweepOptions { max_rate: 6_000.0, ..options(1) };
    let sweep = Simulated::default().sweep(&options);
    assert_eq!((sweep.limited_by, sweep.saturation_rate), (LimitedBy::MaxRate, 6_000.0));
    assert!(sweep.trials.iter().all(|trial| trial.rate <= 6_000.0));
    let options = SweepOptions { max_rate: 12_000.0, ..options };
    let sweep = Simulated::default().sweep(&options);
    assert_eq!(sweep.limited_by, LimitedBy::Server, "{sweep}");
    assert!(sweep.trials.iter().all(|trial| trial.rate <= 12_000.0));
    assert!(sweep.notes[0].contains("maximum rate"), "{sweep}");
}

#[test]
fn reports_a_server_that_sends_no_replies() {
    let sweep = Simulated { errors: 1.0, ..Simulated::default() }.sweep(&options(1));
    assert_eq!((sweep.limited_by, sweep.points.len()), (LimitedBy::NoReplies, 0));
    assert!(sweep.trials.len() < 6 && sweep.notes[0].contains("no replies"), "{sweep}");
}

#[test]
fn text_fits_80_columns() {
    for server in [
        Simulated { capacity: 777_777.0, ..Simulated::default() },
        Simulated { falling: 0.9, recovery: 12.0, errors: 0.02, ..Simulated::default() },
        Simulated { capacity: 30.0, bottleneck: Bottleneck::Connections, ..Simulated::default() },
    ] {
        let text = server.sweep(&options(1)).to_string();
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{}: {line}", line.chars().count());
        }
    }
}

#[test]
fn expected_duration_is_close_to_that_of_a_quick_server() {
    let sweep = Simulated::default().sweep(&options(1));
    let expected = options(1).estimated_duration().as_secs_f64();
    assert!(near(sweep.elapsed_s, expected, 0.25), "{expected} {sweep}");
}

proptest! {
    #![proptest_config(crate::cases(48))]

    /// Checks that a sweep ends for random results.
    #[test]
    fn ends_within_its_limits(
        seed: u64,
        max_rate in 1.0..1e6f64,
        start in 0.1..1e4f64,
        limited in 0.0..=1.0f64,
        slow in 0.0..=1.0f64,
        repetitions in 1..4u32,
    ) {
        let options = SweepOptions { seed, max_rate, start, repetitions, ..options(seed) };
        let mut schedule = Schedule::new(&options);
        let mut random = Rng::with_seed(seed);
        let mut count = 0;
        let sweep = loop {
            prop_assert_eq!(schedule.step(), schedule.step());
            match schedule.step() {
                Step::Done(sweep) => break sweep,
                Step::Try { pause, rate, duration, .. } => {
                    prop_assert!(rate > 0.0 && rate <= max_rate * 1.000_001, "{}", rate);
                    count += 1;
                    prop_assert!(count < 2_000);
                    let reply_rate = if random.f64() < 0.1 { 0.0 } else { random.f64() * rate };
                    let trial = Trial {
                        request_rate: rate,
                        reply_rate,
                        scheduled: rate as u64,
                        replies: reply_rate as u64,
                        p50_ns: if random.f64() < slow { 500 * MS } else { MS },
                        generator_limited: random.f64() < limited,
                        ..Trial::default()
                    };
                    schedule.record(trial, pause + duration);
                }
            }
        };
        let unrecovered = sweep.notes.iter().any(|note| note.contains("did not recover"));
        prop_assert!(sweep.complete != unrecovered);
        let json = serde_json::to_string(&sweep).unwrap();
        let back: Sweep = serde_json::from_str(&json).unwrap();
        prop_assert_eq!(back.trials.len(), sweep.trials.len());
        prop_assert_eq!(sweep.to_string().matches("saturation ").count(), 1);
    }
}

/// A server of which only the reports are simulated.
struct Fake {
    capacity: f64,
    paused: Duration,
    trials: Vec<Trial>,
    stop_after: usize,
}

impl Fake {
    fn new(stop_after: usize) -> Fake {
        Fake { capacity: 1_000.0, paused: Duration::ZERO, trials: Vec::new(), stop_after }
    }
}

impl TrialRunner<Trial> for Fake {
    fn run(&mut self, rate: f64, duration: Duration) -> Result<Report, LoadError> {
        let latency = if rate > self.capacity { 100 } else { 1 };
        let mut report = fixtures::report(&[latency; 50], 0);
        report.url = "http://fake/".to_owned();
        report.offered_rate = rate;
        report.connections = 7;
        report.requests.scheduled = (rate * duration.as_secs_f64()) as u64;
        report.requests.replies = (rate.min(self.capacity) * duration.as_secs_f64()) as u64;
        report.duration_s = duration.as_secs_f64();
        let length = report.duration_s / 10.0;
        let interval = |index: u32| Interval {
            offset_s: f64::from(index) * length,
            duration_s: length,
            // All outstanding replies arrive at the end.
            draining: index == 10,
            scheduled: if index < 10 { (rate * length) as u64 } else { 0 },
            // The latency delays the first replies.
            replies: match index {
                0..5 => 0,
                5..10 => (rate.min(self.capacity) * length) as u64,
                _ => 100_000,
            },
            ..Interval::default()
        };
        report.intervals = (0..11).map(interval).collect();
        report.reply_rate = 1.0;
        Ok(report)
    }

    fn pause(&mut self, time: Duration) -> bool {
        self.paused += time;
        self.trials.len() < self.stop_after
    }

    fn on_trial(&mut self, trial: &Trial) {
        self.trials.push(trial.clone());
    }
}

#[test]
fn rates_are_those_of_the_second_half_of_a_trial() {
    let mut fake = Fake::new(999);
    let sweep = sweep(&options(1), &mut fake).unwrap();
    assert_eq!((sweep.url.as_str(), sweep.connections), ("http://fake/", 7));
    assert_eq!((sweep.limited_by, sweep.complete), (LimitedBy::Server, true));
    assert!(near(sweep.saturation_rate, 1_000.0, 0.02), "{sweep}");
    assert_eq!(fake.trials.len(), sweep.trials.len());
    assert!(near(sweep.points[15].reply_rate.mean, 1_000.0, 0.01), "{sweep}");
    assert!(fake.paused >= Duration::from_secs(48));
}

#[test]
fn a_stopped_sweep_returns_a_partial_result() {
    let sweep = sweep(&options(1), &mut Fake::new(3)).unwrap();
    assert_eq!((sweep.complete, sweep.limited_by), (false, LimitedBy::Unfinished));
    assert_eq!((sweep.trials.len(), sweep.points.len()), (3, 0));
    assert!(sweep.to_string().contains("  incomplete "), "{sweep}");
}

#[test]
fn rejects_invalid_options() {
    let base = SweepOptions::default;
    for options in [
        SweepOptions { max_rate: f64::INFINITY, ..base() },
        SweepOptions { max_rate: f64::NAN, ..base() },
        SweepOptions { min_rate: 0.0, ..base() },
        SweepOptions { start: -1.0, ..base() },
        SweepOptions { trial: Duration::ZERO, ..base() },
        SweepOptions { repetitions: 0, ..base() },
        SweepOptions { repetitions: u32::MAX, ..base() },
        SweepOptions { loads: Vec::new(), ..base() },
        SweepOptions { loads: vec![0.0], ..base() },
        SweepOptions { loads: vec![f64::NAN], ..base() },
    ] {
        let mut fake = Fake::new(0);
        assert!(sweep(&options, &mut fake).is_err(), "{options:?}");
        assert_eq!(fake.paused, Duration::ZERO);
    }
}

/// Checks that docs/sweep-result.md lists all fields.
#[test]
fn documents_all_fields() {
    const DOCUMENT: &str = include_str!("../../../../docs/sweep-result.md");
    let sweep = serde_json::to_value(sweep(&options(1), &mut Fake::new(999)).unwrap()).unwrap();
    let fields = |of: &serde_json::Value| of.as_object().unwrap().keys().cloned().collect();
    let point = &sweep["points"][0];
    let all: Vec<Vec<String>> = vec![
        fields(&sweep),
        fields(point),
        fields(&point["reply_rate"]),
        fields(&sweep["trials"][0]),
    ];
    for field in all.concat() {
        assert!(DOCUMENT.contains(&format!("`{field}`")), "{field}");
    }
    assert!(DOCUMENT.contains(SCHEMA));
}
