//! The HTML report of a load test: complete, self-contained and escaped.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hearken_lab::export;
use hearken_load::{
    Bottleneck, Histogram, Interval, Report, SCHEMA, Server, ServerSample, ServerUsage,
};

/// Creates a report with 29 intervals of one second and one interval of draining.
fn sample_report() -> Report {
    let mut report = Report {
        schema: SCHEMA.to_owned(),
        complete: true,
        started_unix_ns: 1_700_000_000_000_000_000,
        url: "http://127.0.0.1:8080/".to_owned(),
        rate: "100".to_owned(),
        offered_rate: 200.0,
        duration_s: 29.0,
        ..Report::default()
    };
    let mut all = Histogram::new();
    for at in 0..30u32 {
        let draining = at == 29;
        let mut latency = Histogram::new();
        for i in 1..200u64 {
            let nanos = 1_000_000 + i * i * 3_000 * u64::from(1 + at % 5);
            latency.record(Duration::from_nanos(nanos));
        }
        all.add(&latency);
        let (replies, failed) = (latency.len(), u64::from(at % 3));
        let scheduled = if draining { 0 } else { replies + failed };
        report.requests.replies += replies;
        report.requests.failed += failed;
        report.requests.scheduled += replies + failed;
        report.intervals.push(Interval {
            offset_s: f64::from(at),
            duration_s: 1.0,
            draining,
            scheduled,
            sent: scheduled,
            replies,
            failed,
            idle_open: 10,
            latency_ns: latency.quantiles(),
            latency: latency.encode(),
            ..Interval::default()
        });
    }
    report.errors.client_timo = report.requests.failed;
    report.idle.requested = 10;
    report.latency_ns = all.quantiles();
    report.histograms.latency = all;
    let sample = |at: u32| ServerSample {
        offset_s: f64::from(at),
        cpu_ns: Some(u64::from(at) * 400_000_000),
        ..ServerSample::default()
    };
    let samples: Vec<_> = (0..30).map(sample).collect();
    let total = ServerUsage::from_samples(&samples);
    report.server = Some(Server { target: "pid 1".into(), samples, total, ..Server::default() });
    report.command = ["hearken", "load", "http://a/?x=1&y=2"].map(String::from).to_vec();
    report.warnings = vec!["<script>alert(1)</script> & more".to_owned()];
    report
}

#[test]
fn page_is_complete_self_contained_and_escaped() {
    let page = export::html(&sample_report());
    for part in [
        "Offered load and replies",
        "Latency heat map",
        "Latency over time",
        "Latency by percentile",
        "Idle connections",
        "Server CPU",
        "Processors used",
        "client-timo",
        ">99 %<",
        "'http://a/?x=1&amp;y=2'",
        "2023-11-14 22:13:20 UTC",
        "prefers-color-scheme:dark",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("<script") && page.contains("&lt;script&gt;"));
    for external in ["src=", "@import", "url(", "<link"] {
        assert!(!page.contains(external), "{external}");
    }
    for invalid in ["NaN", ">inf"] {
        assert!(!page.contains(invalid), "{invalid}");
    }
}

#[test]
fn plots_use_the_full_width_and_show_values_without_scripts() {
    let page = export::html(&sample_report());
    assert!(page.contains(r#"<main class="full">"#));
    assert!(page.contains("svg.plot{display:block;overflow:visible;width:calc(100% - "));
    for text in [
        // A column of the rates, with the offered rate first.
        "<text>1.5 s: offered 200, errors 1.00, replies 199</text>",
        // A cell of the heat map.
        "<text>0.0 to 1.0 s, 1.00 to 1.26 ms: 9 replies</text>",
        // A column of the percentiles.
        "<text>0 %: latency 1.00</text>",
    ] {
        assert!(page.contains(text), "{text}");
    }
}

#[test]
fn offered_rate_is_drawn_above_the_replies() {
    let page = export::html(&sample_report());
    let plot = &page[page.find("Offered load and replies: Per second").unwrap()..];
    let plot = &plot[..plot.find("<text>").unwrap()];
    let [replies, errors, offered] = ["l r c3", "l r c0", "l r c6"]
        .map(|class| plot.rfind(&format!("<polyline class=\"{class}")).unwrap());
    assert!(replies < errors && errors < offered);
}

#[test]
fn latencies_are_in_milliseconds() {
    let page = export::html(&sample_report());
    let (figures, _) = page.split_once("Text report").unwrap();
    assert!(!figures.contains("µs"));
    for part in ["mean ms", "Latency, ms (logarithmic)", "Time, ms (logarithmic)", " ms</strong>"] {
        assert!(figures.contains(part), "{part}");
    }
}

#[test]
fn missed_requests_are_not_failures() {
    let mut report = sample_report();
    (report.requests.missed, report.missed.generator) = (12_345, 12_345);
    report.bottleneck = Bottleneck::Generator;
    let page = export::html(&report);
    for part in ["<strong>12,345 were not sent</strong>", "generator too slow 12,345"] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn warnings_stand_above_the_figures() {
    let page = export::html(&sample_report());
    assert!(page.find("&lt;script&gt;").unwrap() < page.find("<figure").unwrap());
}

#[test]
fn steps_have_a_table_and_plots_by_offered_rate() {
    let rate = "200@10s,100..400@10s,200";
    let page = export::html(&Report { rate: rate.to_owned(), ..sample_report() });
    for part in [
        "<h2>Steps</h2>",
        "<td>200</td>",
        "<td>100..130</td>",
        ">draining</td>",
        "Replies and latency by offered rate: Replies per second",
        "Replies and latency by offered rate: Latency, ms",
        "200 offered (from 0 s): replies 199",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!export::html(&sample_report()).contains("<h2>Steps</h2>"));
}

#[test]
fn page_embeds_the_result() {
    let report = sample_report();
    let page = export::html(&report);
    let (_, rest) = page.split_once("data:application/json;base64,").unwrap();
    let json = STANDARD.decode(rest.split_once('"').unwrap().0).unwrap();
    assert_eq!(serde_json::from_slice::<Report>(&json).unwrap(), report);
}

#[test]
fn empty_result_has_a_page() {
    let page = export::html(&Report::default());
    assert!(page.contains("Idle connections only") && !page.contains("NaN"), "{page}");
    let figures = export::figures_svg(&sample_report());
    let names: Vec<_> = figures.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["rate", "heat-map", "latency", "distribution", "idle", "server"]);
}
