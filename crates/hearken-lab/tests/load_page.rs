//! The page of a load needs nothing else, says what there was, and lets no text of a result out of its
//! place.

#[path = "../../hearken-load/tests/made/mod.rs"]
mod made;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hearken_lab::export;
use hearken_load::{Report, Server, ServerSample, ServerUse};
use made::{Piece, report};

fn some() -> Report {
    let piece = |at: u64| Piece {
        latencies: (1..200).map(|i| 1_000_000 + i * i * 3_000 * (1 + at % 5)).collect(),
        failed: at % 3,
        draining: at == 29,
    };
    let mut report = report(&(0..30).map(piece).collect::<Vec<_>>());
    let sample = |at: u32| ServerSample {
        at_s: f64::from(at),
        cpu_ns: Some(u64::from(at) * 400_000_000),
        ..ServerSample::default()
    };
    let samples: Vec<_> = (0..30).map(sample).collect();
    let total = ServerUse::of(&samples);
    report.server = Some(Server { what: "pid 1".into(), samples, total, ..Server::default() });
    report.command = ["hearken", "load", "http://a/?x=1&y=2"].map(String::from).to_vec();
    report.warnings = vec!["<script>alert(1)</script> & more".to_owned()];
    report
}

#[test]
fn it_says_what_there_was() {
    let page = export::html(&some());
    for part in [
        "Offered and replied",
        "Latency over time",
        "Latency by percentile",
        "Idle connections",
        "The server",
        "Processors busy",
        "client-timo",
        ">99 %<",
        "'http://a/?x=1&amp;y=2'",
        "2023-11-14 22:13:20 UTC",
        "prefers-color-scheme:dark",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("<script") && page.contains("&lt;script&gt;"));
    for outside in ["src=", "@import", "url(", "<link"] {
        assert!(!page.contains(outside), "{outside}");
    }
    for broken in ["NaN", ">inf"] {
        assert!(!page.contains(broken), "{broken}");
    }
}

#[test]
fn the_result_is_in_it() {
    let report = some();
    let page = export::html(&report);
    let (_, rest) = page.split_once("data:application/json;base64,").unwrap();
    let json = STANDARD.decode(rest.split_once('"').unwrap().0).unwrap();
    assert_eq!(serde_json::from_slice::<Report>(&json).unwrap(), report);
}

#[test]
fn a_result_of_nothing_has_a_page() {
    let page = export::html(&Report::default());
    assert!(page.contains("Idle connections only") && !page.contains("NaN"), "{page}");
    assert_eq!(export::figures_svg(&some()).len(), 5);
}
