//! The HTML report of a sweep.

use hearken_load::sweep::{LimitedBy, Point, Sweep};
use hearken_load::{Estimate, Model};
use maud::{Markup, html};

use super::{full_page, render_table, wide_sections};
use crate::sweep_figures::figures;
use crate::table::Table;
use crate::units::{number, with_margin};

/// Renders the page.
pub(crate) fn sweep(sweep: &Sweep) -> String {
    full_page(&format!("Hearken sweep: {}", sweep.url), &body(sweep))
}

fn body(sweep: &Sweep) -> Markup {
    html! {
        h1 { "Sweep of " (sweep.url) }
        p { strong { (saturation(sweep)) } }
        p.soft {
            (sweep.points.len()) " rates in random order, " (sweep.repetitions) " trials of "
            (number(sweep.trial_s)) " s each, in " (number(sweep.elapsed_s)) " s (seed " (sweep.seed) ")."
        }
        @if !sweep.complete {
            div.note { strong { "This sweep ended before all rates were measured." } }
        }
        @for note in &sweep.notes { div.note { (note) } }
        (wide_sections(&figures(sweep)))
        h2 { "Points" }
        p.soft { "± is the 95 % confidence interval of the mean over the trials of a rate." }
        (render_table(&points(&sweep.points)))
        details {
            summary { "Text report" }
            pre { (sweep.to_string()) }
        }
    }
}

fn saturation(sweep: &Sweep) -> String {
    let unit = match sweep.model {
        Model::Connections => "connections/s",
        Model::Sessions => "sessions/s",
        Model::Requests | Model::Closed => "requests/s",
    };
    let [rate, replies] = [sweep.saturation_rate, sweep.saturation_reply_rate].map(number);
    let reached =
        |by: &str| format!("Saturation at {rate} {unit}: {replies} replies/s, limited by {by}.");
    match sweep.limited_by {
        LimitedBy::Server => reached("the server"),
        LimitedBy::Connections => reached("the number of connections"),
        LimitedBy::Generator => {
            format!("Saturation above {rate} {unit}: the generator was the limit.")
        }
        LimitedBy::MaxRate => {
            format!("Saturation above {rate} {unit}, the maximum rate of the sweep.")
        }
        LimitedBy::NoReplies => "No replies were received.".to_owned(),
        _ => "The sweep ended before saturation was found.".to_owned(),
    }
}

fn points(points: &[Point]) -> Table {
    let head = [
        "load %",
        "offered/s",
        "replies/s",
        "errors %",
        "missed %",
        "p50 ms",
        "p99 ms",
        "recovery s",
        "trials",
        "notes",
    ];
    let row = |point: &Point| {
        let format = |of: Estimate, factor: f64| {
            with_margin(of.mean * factor, of.margin.map(|margin| margin * factor))
        };
        let optional =
            |of: Option<Estimate>, factor| of.map_or(String::new(), |of| format(of, factor));
        vec![
            number(point.load * 100.0),
            number(point.rate),
            format(point.reply_rate, 1.0),
            format(point.error_share, 100.0),
            format(point.missed_share, 100.0),
            optional(point.p50_ns, 1e-6),
            optional(point.p99_ns, 1e-6),
            optional(point.recovery_s, 1.0),
            point.trials.to_string(),
            remark(point),
        ]
    };
    Table { head: head.map(String::from).to_vec(), rows: points.iter().map(row).collect() }
}

fn remark(point: &Point) -> String {
    let mut remarks = Vec::new();
    if point.generator_limited {
        remarks.push("generator was the limit".to_owned());
    }
    if point.unrecovered > 0 {
        remarks.push(format!("not recovered from {} trials", point.unrecovered));
    }
    remarks.join(", ")
}
