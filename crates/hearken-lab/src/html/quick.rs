//! The HTML report of the quick experiment.

use maud::{Markup, html};

use super::{
    cpus, environment, incomplete_note, page, render_table, reproduction, sections, warnings,
};
use crate::figures::figures;
use crate::results::Report;
use crate::table::table;
use crate::units::{count, number};

/// Renders the page.
pub(crate) fn quick(report: &Report) -> String {
    page("Hearken lab: event mechanisms compared", &body(report))
}

fn body(report: &Report) -> Markup {
    let settings = &report.settings;
    let placement = format!(
        "server on processor {}; load generator and lab on {}",
        cpus(&report.placement.server),
        cpus(&report.placement.others)
    );
    html! {
        h1 { "Event mechanisms under the same load" }
        p.soft {
            "Hearken " (report.version) ", " (report.date) ". " (number(settings.rate))
            " requests per second on " (count(settings.connections)) " connections, "
            (settings.repetitions) " repetitions in random order."
        }
        (incomplete_note(report, settings.count_trials()))
        (summary(report))
        (sections(&figures(report)))
        h2 { "Table" }
        (render_table(&table(report)))
        p.soft { "± is the 95 % confidence interval of the mean, × a ratio of CPU time; ~ marks a \
            ratio whose 95 % confidence interval includes 1." }
        (warnings(report))
        h2 { "Environment" }
        (environment(report, &placement, settings.seed, None))
        h2 { "Method" }
        (method(report))
        (reproduction(report))
    }
}

/// Renders the comparison at the highest number of idle connections.
fn summary(report: &Report) -> Markup {
    let max_idle = report.summary.iter().map(|c| c.idle).max().unwrap_or(0);
    let reference = &report.settings.reference;
    let lines = report.summary.iter().filter(|c| c.idle == max_idle && &c.mechanism != reference);
    let compared: Vec<_> = lines.filter_map(|c| c.cpu_vs_reference.map(|r| (c, r))).collect();
    html! {
        @if !compared.is_empty() {
            h2 { "Summary" }
            p { "CPU time of the server per request with " (count(max_idle)) " idle connections:" }
            ul {
                @for (cell, ratio) in compared {
                    li {
                        strong { (cell.mechanism) } ": " strong { (number(ratio.ratio)) " times" }
                        " the CPU time of " (reference)
                        @if let (Some(low), Some(high)) = (ratio.low, ratio.high) {
                            span.soft { " (95 % CI " (number(low)) " to " (number(high)) ")" }
                            @if !ratio.differs() { ", no difference detected" }
                        }
                        @if cell.saturated > 0 { ", saturated" }
                    }
                }
            }
        }
    }
}

/// Renders the description of the method.
fn method(report: &Report) -> Markup {
    let settings = &report.settings;
    html! {
        ul {
            li { "Each measurement starts a new server with one worker, on a processor of its own if \
                there are at least two, and then opens the idle connections." }
            li { "The load is an open loop: requests for /" (settings.document) " are sent at their \
                scheduled times, independently of the replies." }
            li { "The first pass of " (settings.counters_s) " s warms the server up and counts \
                instructions and system calls. The second pass, of the same length, opens a \
                connection for each request and yields the costs per connection. The third pass of "
                (settings.duration_s) " s runs without counters and yields CPU time per request and \
                latency." }
            li { "CPU time is the accounting of the scheduler for the threads of the server \
                (/proc/PID/task/*/schedstat). Values per request are per reply received." }
            li { "A server is considered saturated if it answered fewer than 95 % of the requests \
                or used more than 95 % of its processor." }
            li { (report.method) }
            li { "The measurements ran in random order, determined by the seed. Results of different \
                runs are not comparable." }
        }
    }
}
