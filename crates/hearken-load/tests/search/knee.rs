//! The search for the knee, with simulated servers.

use crate::fixtures;
use std::time::Duration;

use fastrand::Rng;
use hearken_load::knee::{
    Knee, KneeOptions, LimitedBy, Purpose, Search, Step, Trial, TrialRunner, find_knee,
};
use hearken_load::{Errors, LoadError, Report};
use proptest::prelude::*;

/// A simulated server with a fixed capacity.
#[derive(Clone, Debug)]
struct Simulated {
    capacity: f64,
    /// Standard deviation of the capacity in a trial, relative to the capacity.
    noise: f64,
    /// Probability that a trial has the opposite result at any rate.
    stray: f64,
    /// Number of initial trials with half the capacity.
    cold: u32,
    /// Time in seconds without overload until the server recovers. Until then it has half the
    /// capacity.
    heavy: f64,
    /// Capacity of the generator.
    generator: f64,
}

impl Default for Simulated {
    fn default() -> Simulated {
        Simulated {
            capacity: 10_000.0,
            noise: 0.0,
            stray: 0.0,
            cold: 0,
            heavy: 0.0,
            generator: f64::INFINITY,
        }
    }
}

/// The result of a search, with the number of recovery trials and the simulated time.
struct Found {
    knee: Knee,
    recoveries: usize,
    time: Duration,
}

fn normal(random: &mut Rng) -> f64 {
    // The sum of uniform samples is close enough to normal.
    (0..12).map(|_| random.f64()).sum::<f64>() - 6.0
}

fn search(server: &Simulated, options: &KneeOptions) -> Found {
    let mut random = Rng::with_seed(options.seed ^ 0x5eed);
    let mut search = Search::new(options);
    let mut server = server.clone();
    let (mut time, mut rest, mut recoveries) = (Duration::ZERO, f64::INFINITY, 0);
    for _ in 0..1_000 {
        let (pause, rate, duration, purpose) = match search.step() {
            Step::Done(knee) => return Found { knee: *knee, recoveries, time },
            Step::Try { pause, rate, duration, purpose } => (pause, rate, duration, purpose),
        };
        assert!(rate >= options.min_rate / 2.0 && rate <= options.max_rate * 1.000_001, "{rate}");
        let mut capacity = server.capacity * (server.noise * normal(&mut random)).exp();
        rest += pause.as_secs_f64();
        if server.cold > 0 || rest < server.heavy {
            capacity /= 2.0;
        }
        server.cold = server.cold.saturating_sub(1);
        if rate > server.capacity {
            rest = 0.0;
        } else {
            rest += duration.as_secs_f64();
        }
        recoveries += usize::from(purpose == Purpose::Recovery);
        time += pause + duration;
        let late = rate > server.generator;
        let passed = !late && (rate <= capacity) != (random.f64() < server.stray);
        let trial =
            Trial { passed, generator_limited: late, replies: rate as u64, ..Trial::default() };
        search.record(trial, pause + duration);
    }
    panic!("the search does not end");
}

fn options(seed: u64) -> KneeOptions {
    KneeOptions { seed, ..KneeOptions::default() }
}

/// Returns the percentage of seeds for which the interval contains the capacity. Checks the limits
/// of each search.
fn covered(server: &Simulated) -> u64 {
    // The full number takes about 30 s of CPU time without optimisation.
    let seeds = if std::env::var_os("HEARKEN_FULL_TESTS").is_some() { 60 } else { 12 };
    let mut capacities = Rng::with_seed(7);
    let mut searches = Vec::new();
    let covered = (0..seeds).filter(|&seed| {
        let capacity = 200.0 * (5.0 * capacities.f64()).exp();
        let Found { knee, recoveries, time } =
            search(&Simulated { capacity, ..server.clone() }, &options(seed));
        let tried = knee.trials.len() - recoveries;
        assert!(tried <= 60 && time <= options(seed).max_time, "{knee}");
        assert!(
            knee.rate_low <= knee.rate && knee.rate_high.is_none_or(|high| knee.rate <= high),
            "{knee}"
        );
        searches.push((
            tried,
            recoveries,
            time.as_secs(),
            knee.rate_high.unwrap_or(0.0) / knee.rate_low,
        ));
        knee.rate_low <= capacity && knee.rate_high.is_some_and(|high| capacity <= high)
    });
    let covered = covered.count() as u64 * 100 / seeds;
    searches.sort_by(|a, b| a.partial_cmp(b).unwrap());
    println!(
        "{covered} % of {server:?}: median {:?}, most {:?}",
        searches[searches.len() / 2],
        searches[searches.len() - 1]
    );
    covered
}

#[test]
fn intervals_cover_a_constant_capacity() {
    assert!(covered(&Simulated::default()) >= 95);
}

#[test]
fn intervals_cover_a_noisy_capacity() {
    for noise in [0.005, 0.03, 0.15] {
        assert!(covered(&Simulated { noise, ..Simulated::default() }) >= 90, "{noise}");
    }
}

#[test]
fn intervals_cover_the_capacity_despite_outliers() {
    for (stray, noise) in [(0.05, 0.02), (0.1, 0.0)] {
        assert!(covered(&Simulated { stray, noise, ..Simulated::default() }) >= 90, "{stray}");
    }
}

#[test]
fn intervals_cover_the_capacity_of_a_server_that_warms_up() {
    for cold in [2, 9] {
        assert!(covered(&Simulated { cold, noise: 0.01, ..Simulated::default() }) >= 90, "{cold}");
    }
}

#[test]
fn intervals_cover_the_capacity_of_a_server_that_recovers_slowly() {
    let heavy = 8.0;
    assert!(covered(&Simulated { heavy, noise: 0.01, ..Simulated::default() }) >= 90);
}

/// Checks that a search without noise reaches the precision in few trials.
#[test]
fn reaches_the_target_precision() {
    for (precision, most) in [(0.1, 28), (0.02, 40), (0.005, 60)] {
        let found = search(&Simulated::default(), &KneeOptions { precision, ..options(1) });
        let knee = &found.knee;
        assert_eq!((knee.limited_by, knee.complete), (LimitedBy::Server, true));
        assert!(knee.rate_high.unwrap() / knee.rate_low <= 1.0 + 2.0 * precision, "{knee}");
        assert!(knee.trials.len() - found.recoveries <= most, "{knee}");
    }
}

/// Checks that rates go up and down, so that changes over time are not attributed to the rate.
#[test]
fn rates_are_not_ordered_by_time() {
    let knee = search(&Simulated { noise: 0.03, ..Simulated::default() }, &options(3)).knee;
    let rates = knee.trials.iter().filter(|trial| trial.purpose == Purpose::Refine);
    let rates: Vec<_> = rates.map(|trial| trial.rate).collect();
    let up = rates.windows(2).filter(|pair| pair[0] < pair[1]).count();
    assert!(rates.len() >= 8 && up * 4 >= rates.len() && up * 4 <= rates.len() * 3, "{rates:?}");
}

#[test]
fn reports_objectives_that_are_never_met() {
    let found = search(&Simulated { capacity: 0.0, ..Simulated::default() }, &options(1));
    assert_eq!(found.knee.limited_by, LimitedBy::NeverMet);
    assert_eq!((found.knee.rate, found.knee.rate_low), (0.0, 0.0));
    assert!(found.knee.trials.len() < 12, "{}", found.knee);
    assert!(found.knee.to_string().contains("none: objectives not met at 1.0 requests/s"));
}

#[test]
fn finds_a_capacity_below_the_start_rate() {
    let found = search(&Simulated { capacity: 7.0, ..Simulated::default() }, &options(1));
    let knee = found.knee;
    assert_eq!(knee.limited_by, LimitedBy::Server);
    assert!(knee.rate_low <= 7.0 && knee.rate_high.unwrap() >= 7.0, "{knee}");
}

#[test]
fn reports_the_maximum_rate_as_the_limit() {
    let options = KneeOptions { max_rate: 9_000.0, ..options(1) };
    let knee = search(&Simulated::default(), &options).knee;
    assert_eq!((knee.limited_by, knee.rate, knee.rate_high), (LimitedBy::MaxRate, 9_000.0, None));
    assert!(knee.to_string().contains("above 9,000 requests/s, the maximum rate of the search"));
    let close = KneeOptions { max_rate: 10_050.0, ..options };
    let knee = search(&Simulated::default(), &close).knee;
    assert_eq!(knee.limited_by, LimitedBy::Server);
    assert!(knee.rate <= 10_050.0 && knee.rate_low <= 10_000.0, "{knee}");
}

#[test]
fn reports_the_generator_as_the_limit() {
    let server = Simulated { capacity: 50_000.0, generator: 20_000.0, ..Simulated::default() };
    let knee = search(&server, &options(1)).knee;
    assert_eq!((knee.limited_by, knee.rate_high), (LimitedBy::Generator, None));
    assert!((18_000.0..=20_000.0).contains(&knee.rate), "{knee}");
    assert!(knee.trials.len() < 30, "{knee}");
    // A generator that is late only far above the server's capacity does not matter.
    let knee = search(&Simulated { generator: 11_000.0, ..Simulated::default() }, &options(1)).knee;
    assert_eq!(knee.limited_by, LimitedBy::Server);
    assert!(knee.rate_low <= 10_000.0 && knee.rate_high.unwrap() >= 10_000.0, "{knee}");
}

#[test]
fn stops_if_the_server_does_not_recover() {
    let server = Simulated { heavy: f64::INFINITY, ..Simulated::default() };
    let mut search = Search::new(&options(1));
    let mut broken = false;
    let knee = loop {
        match search.step() {
            Step::Done(knee) => break knee,
            Step::Try { rate, pause, duration, .. } => {
                broken |= rate > server.capacity;
                let trial = Trial { passed: !broken, replies: 1, ..Trial::default() };
                search.record(trial, pause + duration);
            }
        }
    };
    assert!(knee.notes[0].contains("did not recover"), "{knee}");
    assert_eq!(knee.limited_by, LimitedBy::Unfinished);
    assert_eq!((knee.rate, knee.rate_low), (6_400.0, 6_400.0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Checks that the search ends for random results.
    #[test]
    fn ends_within_its_limits(
        seed: u64,
        likely in 0.0..=1.0f64,
        late in 0.0..=1.0f64,
        max_rate in 1.0..1e6f64,
        start in 0.1..1e4f64,
        max_trials in 0..40u32,
        seconds in 0..300u64,
    ) {
        let options = KneeOptions {
            seed, max_rate, start, max_trials, max_time: Duration::from_secs(seconds),
            precision: 0.05, ..KneeOptions::default()
        };
        let mut search = Search::new(&options);
        let mut random = Rng::with_seed(seed);
        let (mut steps, mut time) = (0, Duration::ZERO);
        let knee = loop {
            prop_assert_eq!(search.step(), search.step());
            match search.step() {
                Step::Done(knee) => break knee,
                Step::Try { pause, rate, duration, purpose } => {
                    prop_assert!(rate > 0.0 && rate <= max_rate * 1.000_001);
                    steps += u32::from(purpose != Purpose::Recovery);
                    time += pause + duration;
                    let generator_limited = random.f64() < late;
                    let passed = random.f64() < likely;
                    let replies = random.u64(0..3);
                    let trial = Trial { passed, replies, generator_limited, ..Trial::default() };
                    search.record(trial, pause + duration);
                }
            }
        };
        prop_assert!(steps <= max_trials && time <= options.max_time);
        prop_assert!(knee.rate_low <= knee.rate && knee.rate_high.is_none_or(|high| knee.rate <= high));
        let json = serde_json::to_string(&knee).unwrap();
        let back: Knee = serde_json::from_str(&json).unwrap();
        prop_assert_eq!(back.trials.len(), knee.trials.len());
        prop_assert_eq!(back.limited_by, knee.limited_by);
        prop_assert_eq!(knee.to_string().lines().filter(|line| line.contains("knee  ")).count(), 1);
    }
}

/// A server of which only the reports are simulated.
struct Fake {
    capacity: f64,
    paused: Duration,
    trials: Vec<Trial>,
    stop_after: usize,
}

impl TrialRunner for Fake {
    fn run(&mut self, rate: f64, duration: Duration) -> Result<Report, LoadError> {
        let over = if rate > self.capacity { 100 } else { 1 };
        let mut report = fixtures::report(&vec![over; 50], 0);
        report.url = "http://fake/".to_owned();
        report.offered_rate = rate;
        report.duration_s = duration.as_secs_f64();
        report.reply_rate = 50.0 / report.duration_s;
        report.requests.queued = if over > 1 { 40 } else { 0 };
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
fn runs_trials_until_the_knee_is_found() {
    let mut fake =
        Fake { capacity: 1_000.0, paused: Duration::ZERO, trials: Vec::new(), stop_after: 999 };
    let knee = find_knee(&options(1), &mut fake).unwrap();
    assert_eq!((knee.url.as_str(), knee.limited_by), ("http://fake/", LimitedBy::Server));
    assert!(knee.rate_low <= 1_000.0 && knee.rate_high.unwrap() >= 1_000.0, "{knee}");
    assert_eq!(fake.trials, knee.trials);
    assert!(fake.paused >= knee.trials.len() as u32 * options(1).pause);
    let failed = knee.trials.iter().find(|trial| !trial.passed).unwrap();
    assert_eq!(failed.objective_results.len(), 3);
    assert!(failed.rate > 1_000.0 && failed.p99_ns >= 100_000_000);
    assert!(knee.notes[0].contains("use more connections"), "{knee}");
    assert!(knee.to_string().contains("not met: p99\n"), "{knee}");
    assert!(knee.to_string().lines().last().unwrap().contains("95 % interval"), "{knee}");
}

#[test]
fn trials_detect_a_saturated_generator() {
    const MS: u64 = 1_000_000;
    let is_limit = |lateness_ms: u64, latency_ms: u64, busy: f64, no_ports: u64| {
        let mut report = fixtures::report(&[latency_ms; 100], no_ports);
        report.lateness_ns.p99 = lateness_ms * MS;
        report.errors = Errors { addr_unavail: no_ports, ..Errors::default() };
        Trial::from_report(&report, &KneeOptions::default().objectives, busy).generator_limited
    };
    assert!(!is_limit(0, 100, 0.5, 0) && !is_limit(1, 2, 0.5, 0));
    // The generator was late, but the server caused a much longer delay.
    assert!(!is_limit(5, 100, 0.5, 0) && is_limit(6, 20, 0.5, 0) && is_limit(50, 60, 0.5, 0));
    assert!(is_limit(0, 100, 0.99, 0) && is_limit(0, 100, 0.5, 1));
}

#[test]
fn a_stopped_search_returns_a_partial_result() {
    let mut fake =
        Fake { capacity: 1_000.0, paused: Duration::ZERO, trials: Vec::new(), stop_after: 3 };
    let knee = find_knee(&options(1), &mut fake).unwrap();
    assert_eq!((knee.complete, knee.limited_by), (false, LimitedBy::Unfinished));
    assert_eq!((knee.trials.len(), knee.rate_low, knee.rate_high), (3, 400.0, None));
}

#[test]
fn rejects_invalid_options() {
    let base = KneeOptions::default;
    for options in [
        KneeOptions { precision: 0.0, ..base() },
        KneeOptions { precision: f64::NAN, ..base() },
        KneeOptions { max_rate: f64::INFINITY, ..base() },
        KneeOptions { max_rate: 0.0, ..base() },
        KneeOptions { min_rate: 0.0, ..base() },
        KneeOptions { start: -1.0, ..base() },
        KneeOptions { trial: Duration::ZERO, ..base() },
    ] {
        let mut fake =
            Fake { capacity: 1.0, paused: Duration::ZERO, trials: Vec::new(), stop_after: 0 };
        assert!(find_knee(&options, &mut fake).is_err(), "{options:?}");
        assert_eq!(fake.paused, Duration::ZERO);
    }
}

/// Checks that docs/knee-result.md lists all fields.
#[test]
fn documents_all_fields() {
    const DOCUMENT: &str = include_str!("../../../../docs/knee-result.md");
    let mut fake =
        Fake { capacity: 500.0, paused: Duration::ZERO, trials: Vec::new(), stop_after: 999 };
    let knee = serde_json::to_value(find_knee(&options(1), &mut fake).unwrap()).unwrap();
    let fields = |of: &serde_json::Value| of.as_object().unwrap().keys().cloned().collect();
    let all: Vec<Vec<String>> = vec![fields(&knee), fields(&knee["trials"][0])];
    for field in all.concat() {
        assert!(DOCUMENT.contains(&format!("`{field}`")), "{field}");
    }
    assert!(DOCUMENT.contains(hearken_load::knee::SCHEMA));
}
