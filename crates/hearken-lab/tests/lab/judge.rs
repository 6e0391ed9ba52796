//! Verdicts on claims about simulated servers with known curves.

use std::collections::{BTreeMap, BTreeSet};

use hearken_lab::claims::{self, Claim, Selection, Test};
use hearken_lab::judge::{Judgement, Verdict, judge};
use hearken_lab::{AxisReport, Checks, ExperimentReport, Sample};

use crate::simulated::{config, experiment, planned_with};

const IDLE: [f64; 4] = [0.0, 1000.0, 3000.0, 6000.0];
const REPETITIONS: u32 = 5;

/// A simulated server: its cost is linear in the idle connections, except for a step.
#[derive(Clone, Copy, Debug)]
struct Curve {
    base: f64,
    /// Relative increase over the whole axis.
    slope: f64,
    /// Relative deviation at the second value.
    step: f64,
}

impl Curve {
    fn cost(self, idle: f64) -> f64 {
        let step = if idle == IDLE[1] { self.step } else { 0.0 };
        self.base * (1.0 + self.slope * idle / IDLE[3] + step)
    }
}

/// Simulates a lab. All servers share the drift of a repetition; each measurement has its own noise.
fn simulate(random: &mut fastrand::Rng, curves: &[(&str, Curve)], noise: f64) -> ExperimentReport {
    let mut normal = {
        let mut random = random.fork();
        move || (0..12).map(|_| random.f64()).sum::<f64>() - 6.0
    };
    let mut samples = Vec::new();
    for repetition in 0..REPETITIONS {
        let drift = (0.2 * normal()).exp();
        let twin = ("a-again", curves[0].1);
        for (server, curve) in curves.iter().copied().chain([twin]) {
            for idle in IDLE {
                let cost = curve.cost(idle) * drift * (noise * normal()).exp();
                samples.push(Sample {
                    experiment: "simulated".into(),
                    server: server.into(),
                    values: BTreeMap::from([("idle".to_owned(), idle.to_string())]),
                    repetition,
                    order: 0,
                    metrics: BTreeMap::from([("cost".to_owned(), cost)]),
                    checks: Checks::default(),
                });
            }
        }
    }
    ExperimentReport {
        name: "simulated".into(),
        definition: String::new(),
        reference: "a".into(),
        repetitions: REPETITIONS,
        axes: vec![AxisReport {
            name: "idle".into(),
            title: "idle".into(),
            values: IDLE.map(|idle| idle.to_string()).to_vec(),
        }],
        servers: Vec::new(),
        origin: None,
        saturation: None,
        emulator: None,
        planned: samples.len(),
        summary: Vec::new(),
        samples,
    }
}

fn claim(id: usize, test: Test) -> Claim {
    let empty = String::new;
    Claim {
        id: id.to_string(),
        reference: empty(),
        statement: empty(),
        workload: empty(),
        quantity: empty(),
        expected: empty(),
        tolerance: empty(),
        note: empty(),
        reason: empty(),
        not_run: None,
        experiment: Some("simulated".into()),
        tests: vec![test],
    }
}

fn at(server: &str, idle: f64) -> Selection {
    let at = toml::Value::String(idle.to_string()).try_into().unwrap();
    Selection {
        server: server.into(),
        at: BTreeMap::from([("idle".into(), at)]),
        max_over: None,
        along: Vec::new(),
    }
}

fn along(server: &str) -> Selection {
    Selection { server: server.into(), at: BTreeMap::new(), max_over: None, along: Vec::new() }
}

/// Returns claims of all kinds about servers a and b, and whether they are true.
fn claims_about(a: Curve, b: Curve) -> Vec<(Test, bool)> {
    let metric = || "cost".to_owned();
    let over = || "idle".to_owned();
    let value = |idle: f64| toml::Value::String(idle.to_string()).try_into().unwrap();
    let ratio = |idle: f64| b.cost(idle) / a.cost(idle);
    let steps: Vec<f64> = IDLE.windows(2).map(|w| a.cost(w[1]) / a.cost(w[0])).collect();
    let from_first = IDLE.map(|idle| b.cost(idle) / b.cost(0.0));
    // Least squares over the axis, relative to the fitted start.
    let fitted = |curve: Curve| {
        let x = IDLE.iter().sum::<f64>() / 4.0;
        let y = IDLE.iter().map(|&idle| curve.cost(idle)).sum::<f64>() / 4.0;
        let above = IDLE.iter().map(|&idle| (idle - x) * (curve.cost(idle) - y)).sum::<f64>();
        let slope = above / IDLE.iter().map(|idle| (idle - x).powi(2)).sum::<f64>();
        slope * IDLE[3] / (y - slope * x)
    };
    let tolerance: f64 = 0.05;
    let within = |ratio: f64| ratio.ln().abs() <= (1.0 + tolerance).ln();
    vec![
        (
            Test::Ratio {
                metric: metric(),
                of: at("b", 6000.0),
                to: at("a", 6000.0),
                low: Some(1.2),
                high: None,
            },
            ratio(6000.0) >= 1.2,
        ),
        (
            Test::Ratio {
                metric: metric(),
                of: at("b", 0.0),
                to: at("a", 0.0),
                low: Some(0.9),
                high: Some(1.5),
            },
            (0.9..=1.5).contains(&ratio(0.0)),
        ),
        (
            Test::Equivalence { metric: metric(), of: at("b", 0.0), to: at("a", 0.0), tolerance },
            within(ratio(0.0)),
        ),
        (
            Test::Order { metric: metric(), ascending: vec![at("a", 3000.0), at("b", 3000.0)] },
            ratio(3000.0) >= 1.0,
        ),
        (
            Test::Slope {
                metric: metric(),
                of: along("a"),
                over: over(),
                low: Some(0.0),
                high: None,
            },
            fitted(a) >= 0.0,
        ),
        (
            Test::Flatness { metric: metric(), of: along("b"), over: over(), tolerance },
            from_first.iter().all(|&ratio| within(ratio)),
        ),
        (
            Test::Monotonicity {
                metric: metric(),
                of: along("a"),
                over: over(),
                falling: false,
                tolerance,
            },
            steps.iter().all(|&step| step >= 1.0 / (1.0 + tolerance))
                && a.cost(6000.0) >= a.cost(0.0),
        ),
        (
            Test::Crossover {
                metric: metric(),
                of: along("b"),
                to: along("a"),
                over: over(),
                below: value(0.0),
                above: value(6000.0),
            },
            ratio(0.0) <= 1.0 && ratio(6000.0) >= 1.0,
        ),
    ]
}

/// Checks that at most 5 % of 1,000 labs have a wrong verdict. Many of their random curves are near a bound.
#[test]
fn few_simulated_labs_have_a_wrong_verdict() {
    let mut random = fastrand::Rng::with_seed(1);
    let (mut wrong_labs, mut decided, mut all) = (0, 0, 0);
    for _ in 0..1000 {
        // Half of the values are exactly at a bound or at zero.
        let mut pick = |exact: &[f64], spread: f64| match random.bool() {
            true => exact[random.usize(..exact.len())],
            false => (random.f64() - 0.5) * spread,
        };
        let a = Curve { base: 100.0, slope: pick(&[0.0], 1.0), step: pick(&[0.0, -0.05], 0.2) };
        let base = 100.0 * (1.0 + pick(&[0.0, 0.05, -0.05, -0.1], 0.6));
        let b = Curve { base, slope: pick(&[0.0, 0.05], 1.0), step: pick(&[0.0], 0.2) };
        let noise = [0.003, 0.01, 0.03, 0.1][random.usize(..4)];
        let report = simulate(&mut random, &[("a", a), ("b", b)], noise);
        let tests = claims_about(a, b);
        let truths: Vec<bool> = tests.iter().map(|(_, truth)| *truth).collect();
        let claims: Vec<Claim> =
            tests.into_iter().enumerate().map(|(id, (test, _))| claim(id, test)).collect();
        let judgements = judge(&claims, &[report]);
        let is_wrong = |(judgement, truth): (&Judgement, &bool)| match judgement.verdict {
            Verdict::Confirmed => !truth,
            Verdict::Refuted => *truth,
            Verdict::Undecided | Verdict::NotRun => false,
        };
        wrong_labs += usize::from(judgements.iter().zip(&truths).any(is_wrong));
        decided += judgements.iter().filter(|j| j.verdict != Verdict::Undecided).count();
        all += judgements.len();
    }
    assert!(wrong_labs <= 50, "{wrong_labs} of 1,000 labs have a wrong verdict");
    assert!(decided * 2 > all, "only {decided} of {all} claims are decided");
}

#[test]
fn clear_differences_are_decided_and_absence_of_evidence_is_not() {
    let mut random = fastrand::Rng::with_seed(2);
    let a = Curve { base: 100.0, slope: 0.0, step: 0.0 };
    let b = Curve { base: 100.0, slope: 2.0, step: 0.0 };
    let decide = |noise: f64, random: &mut fastrand::Rng| {
        let report = simulate(random, &[("a", a), ("b", b)], noise);
        let tests = claims_about(a, b).into_iter().enumerate();
        let claims: Vec<Claim> = tests.map(|(id, (test, _))| claim(id, test)).collect();
        judge(&claims, &[report])
    };
    let clear = decide(0.003, &mut random);
    let verdicts: Vec<&str> = clear.iter().map(|judgement| judgement.verdict.name()).collect();
    // Equal costs confirm neither "at least" nor a rise.
    assert_eq!(&verdicts[..4], ["confirmed"; 4]);
    assert_eq!((verdicts[4], verdicts[5]), ("undecided", "refuted"));
    let noisy = decide(0.5, &mut random);
    assert_eq!(noisy[2].verdict, Verdict::Undecided, "no difference found is not equality");
    for judgement in clear.iter().filter(|judgement| judgement.verdict == Verdict::Undecided) {
        assert!(judgement.reason.is_some());
    }
}

#[test]
fn few_repetitions_and_missing_data_are_reasons() {
    let mut random = fastrand::Rng::with_seed(3);
    let a = Curve { base: 100.0, slope: 0.0, step: 0.0 };
    let mut report = simulate(&mut random, &[("a", a), ("b", a)], 0.01);
    report.samples.retain(|sample| sample.repetition < 4);
    let tests = claims_about(a, a);
    let mut claims: Vec<Claim> =
        tests.into_iter().enumerate().map(|(id, (test, _))| claim(id, test)).collect();
    claims[0].experiment = Some("absent".into());
    claims[1].experiment = None;
    let judgements = judge(&claims, &[report]);
    assert!(judgements[..2].iter().all(|judgement| judgement.verdict == Verdict::NotRun));
    assert!(judgements[2..].iter().all(|judgement| judgement.verdict == Verdict::Undecided));
    let reason = |index: usize| judgements[index].reason.clone().unwrap();
    assert!(reason(0).contains("was not run") && reason(1).contains("No experiment"));
    assert!(reason(2).contains("4 of at least 5 repetitions"), "{}", reason(2));
}

#[test]
fn tests_of_claims_refer_to_their_experiments() {
    for claim in claims::all().unwrap() {
        let Some(name) = &claim.experiment else {
            assert!(claim.not_run.is_some(), "{}: the reason is missing", claim.id);
            continue;
        };
        let sentences = claim.reason.matches(['.', '?']).count();
        assert!(sentences >= 2, "{}: two sentences of reason are missing", claim.id);
        let mechanisms =
            ["select", "poll", "epoll-level", "epoll-edge", "epoll-batched", "rt-signal"];
        let mut planned = planned_with(experiment(name), &mechanisms);
        planned.experiment.repetitions = 1;
        let servers: Vec<&str> = planned.servers.iter().map(|s| s.name.as_str()).collect();
        claim.check(&planned.experiment, &servers).unwrap();
        assert!(!claim.tests.is_empty(), "{}", claim.id);
        let mut config = config(vec![planned]);
        let all = config.plan().len();
        config.claims = vec![claim.clone()];
        let needed = config.plan().len();
        assert!(needed > 0 && needed < all, "{}: {needed} of {all} measurements", claim.id);
    }
}

#[test]
fn all_claims_of_the_papers_are_listed() {
    let claims = claims::all().unwrap();
    assert_eq!(claims.len(), 68);
    let ids: BTreeSet<&str> = claims.iter().map(|claim| claim.id.as_str()).collect();
    assert_eq!(ids.len(), 68);
    for (paper, count) in [("BMD99", 17), ("CM01", 19), ("GB04", 18), ("LC", 14)] {
        assert_eq!(claims.iter().filter(|claim| claim.paper() == paper).count(), count, "{paper}");
    }
}
