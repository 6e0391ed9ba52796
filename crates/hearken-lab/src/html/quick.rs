//! The page of the quick experiment.

use maud::{Markup, html};

use super::{again, caveats, cpus, facts, incomplete, numbers, page, sections};
use crate::figures::figures;
use crate::results::Report;
use crate::table::table;
use crate::units::{count, number};

/// The whole page.
pub(crate) fn quick(report: &Report) -> String {
    page("Hearken lab: event mechanisms compared", &body(report))
}

fn body(report: &Report) -> Markup {
    let settings = &report.settings;
    let placed = format!(
        "server on processor {}; load and lab on {}",
        cpus(&report.placement.server),
        cpus(&report.placement.others)
    );
    html! {
        h1 { "Event mechanisms under the same load" }
        p.soft {
            "Hearken " (report.version) ", " (report.date) ". " (number(settings.rate))
            " requests a second on " (count(settings.connections)) " connections, "
            (settings.repetitions) " repetitions in shuffled order."
        }
        (incomplete(report, settings.planned()))
        (in_short(report))
        (sections(&figures(report)))
        h2 { "Table" }
        (numbers(&table(report)))
        p.soft { "± is the 95 % confidence interval of the mean, × a ratio of CPU time; ~ marks a \
            ratio whose interval holds 1." }
        (caveats(report))
        h2 { "Where and when" }
        (facts(report, &placed, settings.seed, None))
        h2 { "How it was measured" }
        (method(report))
        (again(report))
    }
}

/// The comparison with most idle connections, in sentences.
fn in_short(report: &Report) -> Markup {
    let most = report.summary.iter().map(|c| c.idle).max().unwrap_or(0);
    let reference = &report.settings.reference;
    let lines = report.summary.iter().filter(|c| c.idle == most && &c.mechanism != reference);
    let compared: Vec<_> = lines.filter_map(|c| c.cpu_to_reference.map(|r| (c, r))).collect();
    html! {
        @if !compared.is_empty() {
            h2 { "In short" }
            p { "With " (count(most)) " idle connections, a request cost the server" }
            ul {
                @for (cell, ratio) in compared {
                    li {
                        "with " strong { (cell.mechanism) } " "
                        strong { (number(ratio.ratio)) " times" } " the CPU time of " (reference)
                        @if let (Some(low), Some(high)) = (ratio.low, ratio.high) {
                            span.soft { " (" (number(low)) " to " (number(high)) " times)" }
                            @if !ratio.differs() { "; this run cannot tell them apart" }
                        }
                        @if cell.saturated > 0 { "; it was saturated" }
                    }
                }
            }
        }
    }
}

fn method(report: &Report) -> Markup {
    let settings = &report.settings;
    html! {
        ul {
            li { "Each measurement starts a server of its own with one worker, alone on its \
                processor where there is another for the rest, and then opens the idle \
                connections." }
            li { "The load is open: requests for /" (settings.document) " leave when they are due, \
                however slow the replies are." }
            li { "A first pass of " (settings.counters_s) " s warms the server up and counts \
                instructions and system calls. A second, as long, makes a connection for each \
                request: what is per connection is from it. A third of " (settings.duration_s) " s \
                has no counter attached; CPU time per request and latency are from it." }
            li { "CPU time is the scheduler's own account of the server's threads \
                (/proc/PID/task/*/schedstat). Per request means per reply received." }
            li { "A server is called saturated if fewer than 95 % of the requests were answered, or \
                it used more than 95 % of its processor." }
            li { (report.method) }
            li { "The order of all measurements was shuffled with the seed. Numbers of different \
                runs are not to be compared." }
        }
    }
}
