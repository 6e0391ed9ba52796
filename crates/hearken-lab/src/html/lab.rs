//! The HTML report of a run.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use maud::{Markup, html};

use super::{environment, page, render_table, reproduction, warnings};
use crate::claims;
use crate::experiment::Experiment;
use crate::figures::{Figure, LabPanel, csv, figures};
use crate::judge::{self, Verdict};
use crate::results::{ExperimentReport, Report};
use crate::stats::Ratio;
use crate::svg::{self, LIGHT};
use crate::table::table;
use crate::units::number;

/// Renders the page.
pub(crate) fn lab(report: &Report) -> String {
    let title = match &*report.experiments {
        [one] => one.experiment().map_or_else(|| one.name.clone(), |experiment| experiment.title),
        _ => "Hearken lab".to_owned(),
    };
    page(&title, &body(report, &title))
}

fn body(report: &Report, title: &str) -> Markup {
    let planned: usize = report.experiments.iter().map(|experiment| experiment.planned).sum();
    let samples: usize = report.experiments.iter().map(|e| e.samples.len()).sum();
    html! {
        h1 { (title) }
        p.soft { "Hearken " (report.version) ", " (report.date) ". " (report.machine.to_string()) "." }
        @if !report.complete {
            div.note { strong { "Incomplete run. " }
                (samples) " of " (planned) " measurements were completed." }
        }
        (warnings(report))
        (verdicts(report))
        @for experiment in &report.experiments {
            @if let Some(definition) = experiment.experiment() {
                (section(report, experiment, &definition))
            }
        }
        h2 { "Environment" }
        (environment(report))
        h2 { "Statistics" }
        p { (report.method) }
        p { "The measurements of each repetition ran in random order, determined by the seed. Results of \
            different runs are not comparable." }
        (reproduction(report))
    }
}

/// Renders the verdicts on claims, with their quantities.
fn verdicts(report: &Report) -> Markup {
    let claims = claims::all().unwrap_or_default();
    let find = |id: &str| claims.iter().find(|claim| claim.id == id);
    let optional = |value: Option<f64>| value.map_or("–".to_owned(), number);
    html! {
        @if !report.judgements.is_empty() {
            h2 { "Verdicts" }
            p { (judge::METHOD) }
            p { strong { (judge::counts(&report.judgements)) } }
            @for judgement in &report.judgements {
                details {
                    summary {
                        strong class=(judgement.verdict.name().replace(' ', "-")) {
                            (judgement.claim) ": " (judgement.verdict.name())
                        }
                        @if let Some(claim) = find(&judgement.claim) {
                            " · " (claim.reference) ": " (claim.statement)
                        }
                    }
                    @if let Some(reason) = &judgement.reason { p { (reason) } }
                    @if let Some(claim) = find(&judgement.claim)
                        && judgement.verdict != Verdict::Confirmed
                        && !claim.reason.is_empty()
                    {
                        p { "Reasons for a difference: " (claim.reason) }
                    }
                    @if !judgement.components.is_empty() { div.wide { table {
                        thead { tr {
                            th.left scope="col" { "quantity" } th scope="col" { "value" }
                            th scope="col" { "95 % interval" } th scope="col" { "claim" }
                        } }
                        tbody { @for part in &judgement.components { tr {
                            td.left { (part.quantity) } td { (number(part.value)) }
                            td { (optional(part.low)) " to " (optional(part.high)) }
                            td { (optional(part.min)) " to " (optional(part.max)) }
                        } } }
                    } } }
                }
            }
        }
    }
}

/// Renders a note about instruction counts from an emulated machine.
fn emulated(emulator: &str) -> Markup {
    html! {
        div.note {
            strong { "Instructions, counted by emulation. " }
            "The experiment ran in a machine emulated by " (emulator) ". Its clock advances by one nanosecond \
            per instruction, so the CPU time of a process equals its instructions in user mode and in the kernel. \
            Times are therefore meaningless and not reported."
        }
    }
}

fn section(report: &Report, experiment: &ExperimentReport, definition: &Experiment) -> Markup {
    html! {
        section id=(experiment.name) {
            h2 { (definition.title) }
            @if !definition.description.is_empty() { p { (definition.description) } }
            @if let Some(emulator) = report.emulator_of(experiment) { (emulated(emulator)) }
            @if let Some(rate) = experiment.saturation {
                p { "The reference server saturates at " strong { (number(rate)) } " requests per second." }
            }
            (comparison(experiment, definition))
            (sections(&experiment.name, &figures(experiment, report.emulator_of(experiment).is_some())))
            h3 { "Table" }
            (render_table(&table(experiment)))
            p.soft { "± is the 95 % confidence interval of the mean, × a ratio; ~ marks a ratio whose \
                95 % confidence interval includes 1." }
            h3 { "Method" }
            ul {
                @for sentence in &definition.method { li { (sentence) } }
                @for axis in experiment.axes.iter().filter(|axis| !axis.values.is_empty()) {
                    li { (axis.title) ": " (axis.values.join(", ")) "." }
                }
                li { (experiment.repetitions) " repetitions." }
            }
            (servers(experiment))
            details {
                summary { "Experiment file" }
                pre { (experiment.definition) }
            }
        }
    }
}

/// Renders the figures with their captions, data and documents to download, and the command that measures them.
fn sections(experiment: &str, figures: &[Figure<LabPanel, String>]) -> Markup {
    let css = svg::stylesheet(&LIGHT);
    html! {
        div.figures { @for figure in figures {
            figure {
                h3 { (figure.title) }
                div.wide { (svg::figure(&figure.title, &figure.panels, None)) }
                figcaption {
                    (figure.caption) " "
                    (download(&figure.name, "csv", "text/csv", &csv(figure))) ", "
                    (download(&figure.name, "svg", "image/svg+xml",
                        &svg::figure(&figure.title, &figure.panels, Some(&css)).into_string()))
                    ". Measured by " code { "hearken lab run " (experiment) } "."
                }
            }
        } }
    }
}

/// Renders a link to a file that the page contains.
fn download(name: &str, extension: &str, kind: &str, content: &str) -> Markup {
    let url = format!("data:{kind};base64,{}", STANDARD.encode(content));
    html! { a download=(format!("{name}.{extension}")) href=(url) { (extension.to_uppercase()) } }
}

/// Renders the ratio of every server to the reference, for the first metric that is compared.
fn comparison(report: &ExperimentReport, definition: &Experiment) -> Markup {
    let has_ratios = |metric: &&crate::experiment::Metric| {
        let mut ratios = report.summary.iter().filter_map(|cell| cell.metrics.get(&metric.name));
        metric.compare && ratios.any(|summary| summary.to_reference.is_some())
    };
    let Some(metric) = definition.metrics.iter().filter(has_ratios).max_by_key(|m| {
        // Instructions repeat better than times.
        m.name.starts_with("instructions")
    }) else {
        return html! {};
    };
    let has_ratio = |name: &str| {
        let mut own = report.summary.iter().filter(|cell| cell.server == name);
        own.any(|cell| cell.metrics.get(&metric.name).is_some_and(|m| m.to_reference.is_some()))
    };
    let others: Vec<&str> = report
        .servers
        .iter()
        .map(|server| server.name.as_str())
        .filter(|name| *name != report.reference && has_ratio(name))
        .collect();
    let mut rows: Vec<&BTreeMap<String, String>> = Vec::new();
    for cell in &report.summary {
        if !rows.contains(&&cell.values) {
            rows.push(&cell.values);
        }
    }
    let axes: Vec<_> = report.varied_axes().collect();
    let ratio = |server: &str, values: &BTreeMap<String, String>| {
        let cell = report.summary.iter().find(|c| c.server == server && c.values == *values)?;
        cell.metrics.get(&metric.name)?.to_reference
    };
    html! {
        h3 { "Ratios" }
        p { (metric.title) ", divided by the value of " strong { (report.reference) } ", with the 95 % \
            confidence interval. Bold ratios differ significantly from 1." }
        div.wide { table {
            thead { tr {
                @for axis in &axes { th.left scope="col" { (axis.title) } }
                @for server in &others { th scope="col" { (server) } }
            } }
            tbody { @for values in rows { tr {
                @for axis in &axes { td.left { (values.get(&axis.name).map_or("", |value| value)) } }
                @for server in &others {
                    td { @if let Some(ratio) = ratio(server, values) { (render_ratio(ratio)) } }
                }
            } } }
        } }
    }
}

/// Renders a ratio and its confidence interval.
fn render_ratio(ratio: Ratio) -> Markup {
    html! {
        @if ratio.differs() { strong { (number(ratio.ratio)) } } @else { (number(ratio.ratio)) }
        @if let (Some(low), Some(high)) = (ratio.low, ratio.high) {
            br; span.soft { (number(low)) "–" (number(high)) }
        }
    }
}

/// Renders the version, the arguments and the recipe of every server.
fn servers(report: &ExperimentReport) -> Markup {
    let servers = report.servers.iter().map(|server| (server, false));
    let all = servers.chain(report.origin.iter().map(|server| (server, true)));
    html! {
        @for (server, is_origin) in all {
            details {
                summary {
                    strong { (server.name) } (if is_origin { " (the origin): " } else { ": " })
                    (server.description) span.soft { " · " (server.version) }
                }
                @if !server.arguments.is_empty() {
                    p { "Additional arguments: " code { (server.arguments.join(" ")) } }
                }
                pre { (server.recipe) }
            }
        }
    }
}
