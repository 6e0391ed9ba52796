//! The HTML report of a sweep: complete, self-contained and escaped.

use hearken_lab::export;
use hearken_load::sweep::{Schedule, Step, Sweep, SweepOptions, Trial};

/// Creates the result of a server with a capacity of 1,000 replies per second.
fn sample_sweep() -> Sweep {
    let mut schedule = Schedule::new(&SweepOptions::default());
    let mut sweep = loop {
        match schedule.step() {
            Step::Done(sweep) => break *sweep,
            Step::Try { pause, rate, duration, .. } => {
                let reply_rate = rate.min(1_000.0);
                let trial = Trial {
                    request_rate: rate,
                    reply_rate,
                    scheduled: (rate * 3.0) as u64,
                    replies: (reply_rate * 3.0) as u64,
                    failed: ((rate - reply_rate) * 3.0) as u64,
                    p50_ns: 1_000_000,
                    p90_ns: 2_000_000,
                    p99_ns: 4_000_000,
                    ..Trial::default()
                };
                schedule.record(trial, pause + duration);
            }
        }
    };
    sweep.url = "http://127.0.0.1:8080/?a=1&b=<script>".to_owned();
    sweep
}

#[test]
fn page_is_complete_self_contained_and_escaped() {
    let page = export::html(&sample_sweep());
    for part in [
        "Reply rate by offered rate",
        "Latency by offered rate",
        "Errors by offered rate",
        "limited by the server",
        "?a=1&amp;b=&lt;script&gt;",
        "prefers-color-scheme:dark",
    ] {
        assert!(page.contains(part), "{part}");
    }
    for absent in ["<script", "src=", "@import", "url(", "<link", "NaN", ">inf"] {
        assert!(!page.contains(absent), "{absent}");
    }
}

#[test]
fn figures_contain_the_points_and_the_diagonal() {
    let figures = export::figures_svg(&sample_sweep());
    let names: Vec<_> = figures.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["replies", "latency", "errors"]);
    assert!(figures[0].1.contains("offered: replies 1,000"), "{}", figures[0].1);
    assert!(figures[2].1.contains("offered: errors 50.0"), "{}", figures[2].1);
    assert!(figures[1].1.contains("(logarithmic)"));
}

#[test]
fn empty_sweep_has_a_page() {
    let sweep = Schedule::new(&SweepOptions::default()).result();
    let page = export::html(&sweep);
    assert!(page.contains("ended before saturation was found") && !page.contains("NaN"), "{page}");
    assert_eq!(export::figures_svg(&sweep).len(), 0);
}
