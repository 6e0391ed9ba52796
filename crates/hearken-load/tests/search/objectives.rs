//! Parsing and evaluation of objectives.

use crate::fixtures;
use hearken_load::{
    Config, Measured, Model, NoValue, Objective, ObjectiveResult, Objectives, Profile, Report,
};
use proptest::prelude::*;

fn judge(objective: &str, report: &Report) -> ObjectiveResult {
    objective.parse::<Objective>().unwrap().evaluate(report)
}

#[test]
fn display_matches_the_parsed_text() {
    for text in [
        "p99<5ms",
        "p99<5ms,errors<0.1%,rate>=0.99",
        "p50<=1.5us,p99.9<1s,p99.99>100ns",
        "service.mean<3ms,connect.max<=20ms,connect.p95<1ms",
        "rate>990.5/s,rate>=99%,idle>=1,errors<=0%",
        "p0.0000001<1s,p99.9999999<1s",
    ] {
        let read: Objectives = text.parse().unwrap();
        assert_eq!(read.to_string(), text);
    }
    let read: Objectives = " p99.90 < 5.0 ms , latency.max >= 0s".parse().unwrap();
    assert_eq!(read.to_string(), "p99.9<5ms,max>=0s");
}

#[test]
fn rejects_invalid_objectives_with_a_reason() {
    for (text, reason) in [
        ("", "empty text"),
        ("p99<5ms,", "between two commas"),
        ("p99", "missing comparison"),
        ("p99=5ms", "missing comparison"),
        ("p99<", "missing limit after"),
        ("p99<ms", "expected a number first"),
        ("p99<-5ms", "expected a number first"),
        ("p99<5", "expected a time with a unit: ns, us, ms or s"),
        ("p99<5%", "expected a time with a unit"),
        ("p99<5min", "unknown unit 'min'"),
        ("p99<5..1ms", "invalid number"),
        ("p99<2000000s", "below one hour"),
        ("p100<5ms", "use max"),
        ("p999<5ms", "use max"),
        ("p0<5ms", "percentile 0"),
        ("p99.<5ms", "invalid percentile"),
        ("p9999<5ms", "invalid percentile"),
        ("p99.00000001<5ms", "7 decimals"),
        ("q99<5ms", "unknown metric 'q99'"),
        ("service<5ms", "unknown metric"),
        ("service.errors<5%", "unknown metric"),
        ("errors<5", "more than 100 %"),
        ("errors<5ms", "0.1% or 0.001"),
        ("errors<0%", "use <=0"),
        ("rate>=990", "990/s"),
        ("rate>=990ms", "990/s"),
        ("idle>=101%", "more than 100 %"),
    ] {
        let error = text.parse::<Objectives>().unwrap_err().to_string();
        assert!(error.contains(reason), "{text}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
    let many = vec!["p99<5ms"; 65].join(",");
    assert!(many.parse::<Objectives>().unwrap_err().to_string().contains("more than 64"));
}

/// Checks that a server cannot improve its percentiles by dropping requests.
#[test]
fn failed_requests_exceed_every_limit() {
    let fast = vec![1; 980];
    assert!(judge("p99<5ms", &fixtures::report(&fast, 0)).passed);
    let dropping = fixtures::report(&fast, 20);
    let judged = judge("p99<5ms", &dropping);
    assert_eq!((judged.measured, judged.passed), (Measured::Missing(NoValue::Failed), false));
    assert!(judged.to_string().contains("a failed request"), "{judged}");
    assert!(judge("p98<5ms", &dropping).passed);
    assert!(!judge("p98.1<5ms", &dropping).passed);
    assert!(!judge("mean<5ms", &dropping).passed && !judge("max<5ms", &dropping).passed);
    assert!(judge("errors<=2%", &dropping).passed && !judge("errors<0.02", &dropping).passed);
    assert!(judge("rate>=0.98", &dropping).passed && !judge("rate>98%", &dropping).passed);
    assert!(judge("rate>=980/s", &dropping).passed && !judge("rate>=981/s", &dropping).passed);
}

#[test]
fn missed_requests_exceed_every_limit_but_are_no_errors() {
    let mut report = fixtures::report(&[1; 980], 0);
    (report.requests.scheduled, report.requests.missed) = (1000, 20);
    report.requests.answerable = 1000;
    assert!(!judge("p99<5ms", &report).passed && judge("p98<5ms", &report).passed);
    assert!(judge("errors<=0%", &report).passed && judge("missed<=2%", &report).passed);
    assert!(!judge("missed<2%", &report).passed && !judge("rate>=99%", &report).passed);
}

#[test]
fn an_objective_without_data_is_not_met() {
    for objective in [
        "p99<1s",
        "p99>0ns",
        "mean<1s",
        "connect.p99<1s",
        "errors<1%",
        "missed<1%",
        "rate>=0%",
        "rate>=0/s",
        "idle>=0",
    ] {
        let judged = judge(objective, &fixtures::report(&[], 0));
        assert_eq!((judged.measured, judged.passed), (Measured::Missing(NoValue::NoData), false));
    }
}

#[test]
fn rejects_objectives_that_the_load_cannot_measure() {
    let measurable = |text: &str, rate, idle_connections, model| {
        let read: Objectives = text.parse().unwrap();
        let config =
            Config { rate: Profile::constant(rate), idle_connections, model, ..Config::default() };
        read.check_measurable(&config).map_err(|error| error.to_string())
    };
    assert_eq!(measurable("p99<1s,errors<1%,idle>=99%", 5.0, 1, None), Ok(()));
    assert!(measurable("p99<1s,idle>=99%", 5.0, 0, None).unwrap_err().contains("no idle"));
    assert!(measurable("idle>=1,rate>=1", 0.0, 1, None).unwrap_err().contains("'rate>=1'"));
    assert_eq!(measurable("rate>=1", 0.0, 0, Some(Model::Closed)), Ok(()));
}

#[test]
fn results_are_displayed_and_serialised() {
    let mut report = fixtures::report(&[2, 3, 4], 0);
    let objectives: Objectives = "p50<5ms,max<=5ms,errors<0.1%,rate>=0.99".parse().unwrap();
    report.objectives = objectives.evaluate(&report);
    let text = report.to_string();
    assert!(text.contains("\n  objective  p50 < 5 ms: met, 3.00 ms\n"), "{text}");
    assert!(text.contains("\n  objective  max <= 5 ms: met, 4.00 ms\n"), "{text}");
    assert!(text.contains("\n  objective  errors < 0.1 %: met, 0 %\n"), "{text}");
    assert!(text.contains("\n  objective  rate >= 0.99: met, 1\n"), "{text}");
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["objectives"][0]["objective"], "p50<5ms");
    assert_eq!(json["objectives"][0]["limit"], 5e6);
    assert_eq!(serde_json::from_value::<Report>(json).unwrap(), report);
}

fn objective() -> impl Strategy<Value = String> {
    let time = "(service\\.|connect\\.|)(p(0|[1-9][0-9]?)\\.[0-9]{0,6}[1-9]|mean|max)";
    let comparison = "(<|<=|>|>=)";
    let number = "[1-9][0-9]{0,5}(\\.[0-9]{0,3}[1-9])?";
    prop_oneof![
        (time, comparison, number, "(ns|us|ms)"),
        ("(errors|idle|rate)", comparison, "0\\.[0-9]{0,9}[1-9]", "(|%)"),
        ("rate", comparison, number, "/s"),
    ]
    .prop_map(|(figure, comparison, number, unit)| figure + &comparison + &number + &unit)
}

proptest! {
    #![proptest_config(crate::cases(64))]

    #[test]
    fn parse_and_display_round_trip(parts in prop::collection::vec(objective(), 1..9)) {
        let text = parts.join(",");
        let read: Objectives = text.parse().unwrap();
        prop_assert_eq!(read.to_string(), text);
        let json = serde_json::to_string(&read).unwrap();
        prop_assert_eq!(serde_json::from_str::<Objectives>(&json).unwrap(), read);
    }

    #[test]
    fn parsing_never_panics(text in ".*", near in "[p0-9.<>=,a-z%/ ]{0,40}") {
        for text in [text, near] {
            if let Ok(read) = text.parse::<Objectives>() {
                let again: Objectives = read.to_string().parse().unwrap();
                prop_assert_eq!(again, read);
            }
        }
    }

    /// Checks that a result that meets a limit meets all looser limits.
    #[test]
    fn evaluation_is_monotonic_in_the_limit(
        latencies in prop::collection::vec(1..200u64, 0..200),
        failed in 0..20u64,
        figure in "(p[1-9][0-9]?|p99\\.9|mean|max)",
        limits in (1..200u64, 1..200u64),
    ) {
        let report = fixtures::report(&latencies, failed);
        let (strict, loose) = (limits.0.min(limits.1), limits.0.max(limits.1));
        for (comparison, first, second) in
            [("<", strict, loose), ("<=", strict, loose), (">", loose, strict), (">=", loose, strict)]
        {
            let met = |limit| judge(&format!("{figure}{comparison}{limit}ms"), &report).passed;
            prop_assert!(!met(first) || met(second));
        }
    }

    /// Compares with a sorted list, to three digits.
    #[test]
    fn percentiles_include_failed_requests(
        mut latencies in prop::collection::vec(1..200u64, 1..200),
        failed in 0..20usize,
        percent in 1..100usize,
    ) {
        let judged = judge(&format!("p{percent}<1s"), &fixtures::report(&latencies, failed as u64));
        latencies.sort_unstable();
        let rank = (percent * (latencies.len() + failed)).div_ceil(100);
        match (latencies.get(rank - 1), judged.measured) {
            (Some(&ms), Measured::Value(value)) => {
                prop_assert!((value / (ms as f64 * 1e6) - 1.0).abs() < 1e-3);
            }
            (None, measured) => prop_assert_eq!(measured, Measured::Missing(NoValue::Failed)),
            (some, measured) => prop_assert!(false, "{some:?} {measured:?}"),
        }
    }
}
