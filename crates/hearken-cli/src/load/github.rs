//! A result as a job summary in GitHub's Markdown.

use std::fmt::Write;

use hearken_load::{Bottleneck, Grouped, Model, Report};

use crate::live::numbers::time;

/// Returns the main figures, the objectives and the warnings.
pub(super) fn github_summary(report: &Report) -> String {
    let mut text =
        format!("### hearken load {}\n\n| figure | value |\n|---|---|\n", escape(&report.url));
    for (figure, value) in figures(report) {
        // Writing to a String does not fail.
        let _ = writeln!(text, "| {} | {} |", escape(&figure), escape(&value));
    }
    if !report.objectives.is_empty() {
        text += "\n| objective | result |\n|---|---|\n";
        for result in &report.objectives {
            let result = result.to_string();
            let (objective, result) = result.split_once(": ").unwrap_or((&result, ""));
            let _ = writeln!(text, "| {} | {} |", escape(objective), escape(result));
        }
    }
    let failure = report.total_failure();
    let warnings = report.warnings.iter().filter(|warning| Some(*warning) != failure.as_ref());
    let problems: Vec<&String> = failure.iter().chain(warnings).collect();
    if !problems.is_empty() {
        text += "\n";
        problems.iter().for_each(|problem| {
            let _ = writeln!(text, "- {}", escape(problem));
        });
    }
    text + "\n"
}

/// Returns the main figures by name.
fn figures(report: &Report) -> Vec<(String, String)> {
    let requests = &report.requests;
    let mut figures = Vec::new();
    let mut add = |name: &str, value: String| figures.push((name.to_owned(), value));
    let unit = match report.model {
        Model::Requests => "requests",
        Model::Connections => "connections",
        Model::Sessions => "sessions",
        Model::Closed => "",
    };
    let seconds = report.duration_s;
    match report.model {
        Model::Closed => add("load", format!("closed loop for {seconds:.1} s")),
        _ => add("load", format!("{:.1} {unit}/s for {seconds:.1} s", report.offered_rate)),
    }
    for (key, value) in &report.labels {
        add(key, value.clone());
    }
    if requests.scheduled > 0 {
        let [replies, scheduled] = [requests.replies, requests.scheduled].map(Grouped);
        add("replies", format!("{replies} of {scheduled}: {:.1} per second", report.reply_rate));
    }
    for (name, counts) in
        [("errors", &report.errors.by_name()[..]), ("missed", &report.missed.by_cause()[..])]
    {
        let counts = counts.iter().filter(|(_, count)| *count > 0);
        let counts: Vec<_> =
            counts.map(|(kind, count)| format!("{kind} {}", Grouped(*count))).collect();
        if !counts.is_empty() {
            add(name, counts.join(", "));
        }
    }
    if report.bottleneck != Bottleneck::None {
        add("bottleneck", report.bottleneck.to_string());
    }
    if report.latency_ns.count > 0 {
        let of = &report.latency_ns;
        for (quantile, ns) in
            [("p50", of.p50), ("p90", of.p90), ("p99", of.p99), ("p99.9", of.p999), ("max", of.max)]
        {
            add(&format!("latency {quantile}"), time(ns));
        }
    }
    if report.idle.requested > 0 {
        let [open, requested] = [report.idle.open, report.idle.requested].map(Grouped);
        add("idle connections", format!("{open} of {requested} open at the end"));
    }
    figures
}

/// Escapes a text for a cell of a table or an item of a list.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '\\' | '`' | '*' | '_' | '[' | ']' | '(' | ')' | '|' | '~' | '#' | '!' | '$' => {
                escaped.push('\\');
                escaped.push(character);
            }
            control if control.is_control() => escaped.push(' '),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use hearken_load::Objectives;

    use super::*;

    #[test]
    fn the_summary_has_tables_of_figures_and_objectives() {
        let mut report =
            Report { complete: true, url: "http://a/".to_owned(), ..Report::default() };
        (report.offered_rate, report.duration_s, report.reply_rate) = (100.0, 10.0, 95.0);
        (report.requests.scheduled, report.requests.replies) = (1000, 950);
        (report.requests.failed, report.errors.status) = (50, 50);
        report.missed.no_connection = 3;
        (report.latency_ns.count, report.latency_ns.p99) = (950, 12_300_000);
        report.labels.insert("branch".to_owned(), "a|b\n# <x>".to_owned());
        let objectives: Objectives = "errors<1%".parse().unwrap();
        report.objectives = objectives.evaluate(&report);
        report.warnings.push("*late*".to_owned());
        let text = github_summary(&report);
        for line in [
            "### hearken load http://a/",
            "| load | 100.0 requests/s for 10.0 s |",
            "| branch | a\\|b \\# &lt;x&gt; |",
            "| replies | 950 of 1,000: 95.0 per second |",
            "| errors | status 50 |",
            "| missed | no free connection 3 |",
            "| latency p99 | 12.3 ms |",
            "| errors &lt; 1 % | not met, 5 % |",
            "- \\*late\\*",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
    }
}
