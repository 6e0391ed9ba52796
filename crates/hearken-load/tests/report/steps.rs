//! The steps of a load, and their table in the text summary.

use hearken_load::{Arrivals, LoadStep, Report};

use crate::fixtures::{Piece, report};

fn piece(replies: usize, failed: u64) -> Piece {
    Piece { latencies: vec![5_000_000; replies], failed, draining: false }
}

fn with_profile(rate: &str, pieces: &[Piece]) -> Report {
    Report { rate: rate.to_owned(), ..report(pieces) }
}

/// Returns start, configured rate, offered rate, reply rate and failures of each step.
fn values(steps: &[LoadStep]) -> Vec<(f64, String, f64, f64, u64)> {
    let values = |step: &LoadStep| {
        (step.offset_s, step.rate(), step.offered_rate(), step.reply_rate(), step.failed)
    };
    steps.iter().map(values).collect()
}

#[test]
fn each_interval_belongs_to_the_step_that_contains_its_middle() {
    let mut report = with_profile(
        "100@2s,200@1s,2000@5s",
        &[piece(90, 0), piece(110, 0), piece(150, 50), piece(400, 1600)],
    );
    // The middle of the third interval is in the second step, although it ends in the third.
    report.intervals[2].duration_s = 1.6;
    report.intervals[3].offset_s = 3.6;
    let steps = report.steps();
    let expected = [
        (0.0, "100", 100.0, 100.0, 0),
        (2.0, "200", 125.0, 93.75, 50),
        (3.0, "2,000", 2000.0, 400.0, 1600),
    ];
    let expected = expected.map(|(at, rate, offered, replies, failed)| {
        (at, rate.to_owned(), offered, replies, failed)
    });
    assert_eq!(values(&steps), expected);
    assert_eq!((steps[0].duration_s, steps[0].latency_ns.count), (2.0, 200));
}

#[test]
fn ramps_are_divided_into_up_to_ten_parts() {
    let rates = |rate: &str, intervals: usize| {
        let steps = with_profile(rate, &vec![piece(1, 0); intervals]).steps();
        steps.iter().map(LoadStep::rate).collect::<Vec<_>>()
    };
    assert_eq!(rates("0..90@3s", 3), ["0..30", "30..60", "60..90"]);
    let parts = rates("0..1000@40s", 40);
    assert_eq!((parts.len(), &*parts[9]), (10, "900..1,000"));
    // The last rate of a ramp continues after it.
    assert_eq!(rates("0..90@3s,5@1s", 4), ["0..30", "30..60", "60..90", "5"]);
    assert_eq!(rates("0..90@3s", 5).last().unwrap(), "90");
}

#[test]
fn draining_intervals_form_a_step_of_their_own() {
    let draining = Piece { draining: true, ..piece(7, 3) };
    let mut report = with_profile("10@1s,20@1s", &[piece(10, 0), piece(20, 0), draining]);
    // In a merged result, the intervals of some generators follow the draining of others.
    report.intervals.swap(1, 2);
    let steps = report.steps();
    assert_eq!(steps.iter().map(|step| step.draining).collect::<Vec<_>>(), [false, false, true]);
    assert_eq!((steps[2].replies, steps[2].failed, steps[2].scheduled), (7, 3, 0));
}

#[test]
fn loads_at_one_rate_have_no_steps() {
    for rate in ["", "100", "100@5s,100", "2 x 1@1s,2@1s", "x"] {
        assert_eq!(with_profile(rate, &[piece(1, 0)]).steps(), [], "{rate}");
    }
    let mut replayed = with_profile("1@1s,2@1s", &[piece(1, 0)]);
    assert_eq!(replayed.steps().len(), 1);
    replayed.arrivals = Arrivals::Trace;
    assert_eq!(replayed.steps(), []);
}

#[test]
fn summary_shows_a_row_for_each_step() {
    let draining = Piece { draining: true, ..piece(0, 30) };
    let text =
        with_profile("100@1s,20000..40000@1s", &[piece(98, 2), piece(0, 3), draining]).to_string();
    let expected = "
  step at            rate  offered/s  replies/s     errors        p50        p99
  0 s                 100      100.0       98.0          2    5.00 ms    5.00 ms
  1 s      20,000..40,000        3.0        0.0          3          -          -
  2 s            draining                               30          -          -

";
    assert!(text.contains(expected), "{text}");
    assert!(expected.lines().all(|line| line.len() <= 80));
    let rates: Vec<_> = (1..=70).map(|rate| format!("{rate}@1s")).collect();
    let long = with_profile(&rates.join(","), &vec![piece(1, 0); 70]).to_string();
    assert!(long.contains("\n  10 more steps\n") && !long.contains("\n  60 s "), "{long}");
}
