//! The HTML report of a load test.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hearken_load::{Bottleneck, LoadStep, Quantiles, Report};
use maud::{Markup, html};

use super::{full_page, property_table, render_table, shell_command, wide_sections};
use crate::load_figures::{figures, group_intervals};
use crate::table::Table;
use crate::units::{count, millis, milliseconds, number};

/// Maximum number of rows in the table of intervals. Successive intervals are merged.
const ROWS: usize = 120;

/// Renders the page.
pub(crate) fn load(report: &Report) -> String {
    full_page(&format!("Hearken load: {}", report.url), &body(report))
}

fn body(report: &Report) -> Markup {
    let steps = report.steps();
    html! {
        h1 { "Load test of " (report.url) }
        p.soft { (date(report.started_unix_ns)) ". " (load_description(report)) }
        @if !report.complete {
            div.note { strong { "This run was interrupted." } }
        }
        @for warning in &report.warnings { div.note { (warning) } }
        @if !report.objectives.is_empty() {
            ul { @for judgement in &report.objectives { li { (judgement.to_string()) } } }
        }
        (summary(report))
        @if !steps.is_empty() {
            h2 { "Steps" }
            (render_table(&step_table(&steps)))
        }
        (wide_sections(&figures(report)))
        h2 { "Distributions" }
        (render_table(&distributions(report)))
        h2 { "Request outcomes" }
        (outcomes(report))
        h2 { "Environment and settings" }
        (settings(report))
        details {
            summary { "Text report" }
            pre { (report.to_string()) }
        }
        details {
            summary { "Intervals" }
            (render_table(&intervals(report)))
        }
        h2 { "How to reproduce" }
        @if !report.command.is_empty() { pre { (shell_command(&report.command)) } }
        p { a href=(json_data_url(report)) download="result.json" { "Download the result as JSON" }
            span.soft { ", with all intervals and histograms. To compare several results: " }
            code { "hearken load compare a1.json,a2.json b1.json,b2.json" } }
    }
}

/// Formats a time in UTC.
fn date(unix_ns: u64) -> String {
    let moment = jiff::Timestamp::from_nanosecond(unix_ns.into());
    moment.map(|moment| moment.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()).unwrap_or_default()
}

fn load_description(report: &Report) -> String {
    let (seconds, connections) = (number(report.duration_s), count(report.connections));
    let model = format!("{:?}", report.model).to_lowercase();
    if report.offered_rate > 0.0 {
        let rate = number(report.offered_rate);
        format!("{rate} {model} per second offered for {seconds} s, {} arrivals.", report.arrivals)
    } else if report.requests.scheduled > 0 {
        format!("Closed loop of {connections} connections for {seconds} s.")
    } else {
        format!("Idle connections only, for {seconds} s.")
    }
}

fn summary(report: &Report) -> Markup {
    let requests = &report.requests;
    let latency = &report.latency_ns;
    html! {
        @if requests.scheduled > 0 {
            p {
                strong { (number(report.reply_rate)) " replies per second" } "; "
                (count(requests.replies)) " of " (count(requests.scheduled)) " requests received a reply"
                @if requests.failed > 0 {
                    ", " strong { (count(requests.failed)) " failed" }
                }
                @if requests.missed > 0 {
                    ", " strong { (count(requests.missed)) " were not sent" }
                }
                ". "
                @if latency.count > 0 {
                    "Latency: median " strong { (format_millis(latency.p50 as f64)) " ms" }
                    ", 99th percentile " strong { (format_millis(latency.p99 as f64)) " ms" }
                    ", maximum " (format_millis(latency.max as f64)) " ms."
                }
            }
        }
    }
}

/// Formats a time in nanoseconds as milliseconds, without the unit.
fn format_millis(nanos: f64) -> String {
    milliseconds(millis(nanos))
}

/// Formats a percentile in milliseconds, which is empty without replies.
fn format_quantile(of: &Quantiles, nanos: u64) -> String {
    if of.count > 0 { format_millis(nanos as f64) } else { String::new() }
}

fn step_table(steps: &[LoadStep]) -> Table {
    let head = ["start s", "rate", "offered/s", "replies/s", "errors", "p50 ms", "p99 ms", "notes"];
    let row = |step: &LoadStep| {
        let of = &step.latency_ns;
        let [rate, offered, replies, note] = match step.draining {
            true => ["", "", "", "draining"].map(String::from),
            false => {
                let [offered, replies] = [step.offered_rate(), step.reply_rate()].map(number);
                [step.rate(), offered, replies, String::new()]
            }
        };
        let start = format!("{:.1}", step.offset_s);
        let mut row = vec![start, rate, offered, replies, count(step.failed)];
        row.extend([of.p50, of.p99].map(|nanos| format_quantile(of, nanos)));
        row.push(note);
        row
    };
    Table { head: head.map(String::from).to_vec(), rows: steps.iter().map(row).collect() }
}

fn distributions(report: &Report) -> Table {
    let head =
        ["metric", "count", "mean ms", "stddev", "min", "p50", "p90", "p95", "p99", "p99.9", "max"];
    let row = |(name, of): (&str, &Quantiles)| {
        let mut row = vec![name.to_owned(), count(of.count)];
        row.extend([of.mean, of.stddev].map(format_millis));
        let times = [of.min, of.p50, of.p90, of.p95, of.p99, of.p999, of.max];
        row.extend(times.map(|nanos| format_millis(nanos as f64)));
        row
    };
    let all = [
        ("latency", &report.latency_ns),
        ("service", &report.service_ns),
        ("connect", &report.connect_ns),
        ("lateness", &report.lateness_ns),
    ];
    let rows = all.into_iter().filter(|(_, of)| of.count > 0).map(row).collect();
    Table { head: head.map(String::from).to_vec(), rows }
}

fn outcomes(report: &Report) -> Markup {
    let list = |counts: &[(&str, u64)]| {
        let nonzero = counts.iter().filter(|(_, n)| *n > 0);
        nonzero.map(|(name, n)| format!("{name} {}", count(*n))).collect::<Vec<_>>().join(", ")
    };
    let (requests, sessions) = (&report.requests, &report.sessions);
    let (idle, tls, timeouts) = (&report.idle, &report.tls, &report.timeouts);
    let samples = &report.reply_rate_samples;
    let rate = match samples.count {
        0 | 1 => String::new(),
        n => format!(
            "min {}, mean {}, max {}, stddev {} ({} samples)",
            number(samples.min),
            number(samples.mean),
            number(samples.max),
            number(samples.stddev),
            count(n)
        ),
    };
    let requests = list(&[
        ("scheduled", requests.scheduled),
        ("sent", requests.sent),
        ("replies", requests.replies),
        ("failed", requests.failed),
        ("unfinished", requests.unfinished),
        ("waited for a connection", requests.queued),
    ]);
    let sessions = list(&[
        ("started", sessions.started),
        ("completed", sessions.completed),
        ("failed", sessions.failed),
    ]);
    let timeouts = list(&[
        ("connect", timeouts.connect),
        ("first byte", timeouts.first_byte),
        ("complete reply", timeouts.reply),
    ]);
    let idle = list(&[
        ("requested", idle.requested),
        ("open at the end", idle.open),
        ("lost", idle.lost),
        ("re-established", idle.reestablished),
        ("requests", idle.requests),
        ("replies", idle.replies),
    ]);
    let tls = list(&[("full", tls.full), ("resumed", tls.resumed), ("failed", tls.failed)]);
    let bottleneck = match report.bottleneck {
        Bottleneck::None => String::new(),
        bottleneck => bottleneck.to_string(),
    };
    let bytes = list(&[("received", report.bytes.received), ("sent", report.bytes.sent)]);
    let server =
        report.server.as_ref().map(|server| server.summary(report.requests.replies).to_string());
    html! {
        (property_table(&[
            ("Requests", &requests),
            ("Reply rate", &rate),
            ("Status", &list(&report.status.by_class())),
            ("Errors", &list(&report.errors.by_name())),
            ("Timeouts", &timeouts),
            ("Missed", &list(&report.missed.by_cause())),
            ("Bottleneck", &bottleneck),
            ("Sessions", &sessions),
            ("Connections opened", &count(report.connections_opened)),
            ("TLS handshakes", &tls),
            ("Idle connections", &idle),
            ("Bytes", &bytes),
        ]))
        @if let Some(server) = server { pre { (server) } }
    }
}

fn settings(report: &Report) -> Markup {
    let connections = match &report.requests_per_connection {
        Some(each) => format!("opened on demand, {each} request(s) each"),
        None => format!(
            "at most {} at once, of up to {}",
            count(report.peak_connections),
            count(report.connections)
        ),
    };
    let parts = match report.parts.len() {
        0 => String::new(),
        parts => format!("merged from {} of {}", count(parts as u64), report.parts[0].size),
    };
    let labels = report.labels.iter().map(|(key, value)| format!("{key}={value}"));
    property_table(&[
        ("Labels", &labels.collect::<Vec<_>>().join(", ")),
        ("Rate", &report.rate),
        ("Workload", &report.workload),
        ("Connections", &connections),
        ("Event loops", &count(report.threads)),
        ("Event mechanism", &report.mechanism),
        ("Seed", &report.seed.to_string()),
        ("Load generator", &report.machine),
        ("Agents", &parts),
    ])
}

fn intervals(report: &Report) -> Table {
    let head = [
        "start s",
        "length s",
        "scheduled",
        "sent",
        "replies",
        "failed",
        "opened",
        "idle",
        "p50 ms",
        "p99 ms",
        "max ms",
        "notes",
    ];
    let groups = group_intervals(report, ROWS);
    let row = |group: &crate::load_figures::IntervalGroup| {
        let i = &group.interval;
        let mut row = vec![format!("{:.1}", i.offset_s), format!("{:.1}", i.duration_s)];
        row.extend([i.scheduled, i.sent, i.replies, i.failed].map(count));
        row.extend([i.connections_opened, i.idle_open].map(count));
        let of = &i.latency_ns;
        row.extend([of.p50, of.p99, of.max].map(|nanos| format_quantile(of, nanos)));
        row.push(if i.draining { "draining".to_owned() } else { String::new() });
        row
    };
    Table { head: head.map(String::from).to_vec(), rows: groups.iter().map(row).collect() }
}

/// Returns the result as a data URL.
fn json_data_url(report: &Report) -> String {
    // Fails only for maps with non-string keys, and there are none.
    let text = serde_json::to_vec(report).unwrap_or_default();
    format!("data:application/json;base64,{}", STANDARD.encode(text))
}
