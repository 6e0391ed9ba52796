//! The HTML report of a comparison with other servers or proxies.

use maud::{Markup, html};

use super::{
    cpus, environment, incomplete_note, page, render_table, reproduction, sections, warnings,
};
use crate::peers::{Cell, Kind, Report, Workload, figures, table};
use crate::stats::Ratio;
use crate::units::{count, number};

/// Renders the page.
pub(crate) fn peers(report: &Report) -> String {
    let title = format!("Hearken lab: {} compared", report.settings.kind.plural());
    page(&title, &body(report))
}

fn body(report: &Report) -> Markup {
    let settings = &report.settings;
    let shared = match settings.kind {
        Kind::Server => "server and driver",
        Kind::Proxy => "proxy, driver and origin",
    };
    let placement = format!(
        "{shared} on processor {}; idle connections and lab on {}",
        cpus(&report.placement.server),
        cpus(&report.placement.others)
    );
    html! {
        h1 { "Cost per request by " (settings.kind.name()) }
        p.soft {
            "Hearken " (report.version) ", " (report.date) ". One worker each, rounds of "
            (count(settings.batch)) " connections in lockstep, " (settings.repetitions)
            " repetitions in random order."
        }
        @if let Some(emulator) = &settings.emulator { (emulated(report, emulator)) }
        (incomplete_note(report, settings.planned))
        (summary(report))
        (sections(&figures(report)))
        h2 { "Table" }
        (render_table(&table(report)))
        p.soft { "± is the 95 % confidence interval of the mean, × a ratio; ~ marks a ratio whose \
            95 % confidence interval includes 1. A ratio below 1 means a lower cost." }
        (warnings(report))
        h2 { "The " (settings.kind.plural()) }
        (servers(report))
        h2 { "Environment" }
        (environment(report, &placement, settings.seed, settings.emulator.as_deref()))
        h2 { "Method" }
        (method(report))
        (reproduction(report))
    }
}

/// Renders a note about instruction counts from an emulated machine.
fn emulated(report: &Report, emulator: &str) -> Markup {
    html! {
        div.note {
            strong { "Instructions, counted by emulation. " }
            "The experiment ran in a machine emulated by " (emulator) ", processor '" (report.machine.cpu)
            "', " (report.machine.kernel) ". Its clock advances by one nanosecond per instruction, \
            so the CPU time of a process equals its instructions in user mode and in the kernel. \
            Times are therefore meaningless and not reported."
        }
    }
}

/// Renders the ratio of the reference to every other server, for each workload.
fn summary(report: &Report) -> Markup {
    let settings = &report.settings;
    let counted = report.summary.iter().any(|c| c.instructions.is_some());
    let ratio = |c: &Cell| match counted {
        true => c.instructions_vs_reference.reference_to_this,
        false => c.cpu_vs_reference.reference_to_this,
    };
    let others: Vec<_> = settings.servers.iter().filter(|s| **s != settings.reference).collect();
    let lines = settings.workloads.iter().flat_map(|w| settings.idle.iter().map(move |&i| (w, i)));
    let lines: Vec<_> = lines.collect();
    let find = |server: &str, workload: &str, idle: u64| {
        let matches = |c: &&Cell| c.server == server && c.workload == workload && c.idle == idle;
        report.summary.iter().find(matches).and_then(ratio)
    };
    html! {
        @if report.summary.iter().any(|c| ratio(c).is_some()) {
            h2 { "Summary" }
            p {
                (if counted { "Instructions" } else { "CPU time" }) " per request of "
                strong { (settings.reference) } ", divided by the value of the other "
                (settings.kind.name()) ", with the 95 % confidence interval. Below 1, "
                (settings.reference) " costs less. Bold ratios differ significantly from 1."
            }
            div.wide { table {
                thead { tr {
                    th.left scope="col" { "workload" }
                    th scope="col" { "idle" }
                    @for server in &others { th scope="col" { (server) } }
                } }
                tbody { @for (i, (workload, idle)) in lines.iter().enumerate() {
                    tr class=[(i > 0 && lines[i - 1].0 != *workload).then_some("first")] {
                        td.left { (workload) }
                        td { (count(*idle)) }
                        @for server in &others {
                            td { @if let Some(ratio) = find(server, workload, *idle) { (render_ratio(ratio)) } }
                        }
                    }
                } }
            } }
        }
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

/// Renders the version and the recipe of every server.
fn servers(report: &Report) -> Markup {
    let participants = report.settings.participants.iter().map(|server| (server, false));
    let all = participants.chain(report.settings.origin.iter().map(|server| (server, true)));
    html! {
        @for (server, is_origin) in all {
            details {
                summary { strong { (server.name) } (if is_origin { " (the origin): " } else { ": " }) (server.description) span.soft { " · " (server.version) } }
                pre { (server.recipe) }
            }
        }
    }
}

/// Renders the description of the method.
fn method(report: &Report) -> Markup {
    let settings = &report.settings;
    let workloads = settings.workloads.iter().filter_map(|name| Workload::find(name));
    let kind = settings.kind.name();
    html! {
        ul {
            li { "A session starts a new " (kind) " with one worker, sends some requests to it, opens \
                the idle connections, each of which sends one request, and then runs the workloads." }
            li { "The driver and the " (kind) " share a processor in the scheduling class SCHED_BATCH. \
                The driver works in rounds: it sends a request on each connection and then reads the \
                replies, so the " (kind) " always finds the same number of connections ready. The \
                driver checks the status and the length of each reply." }
            @if let Some(origin) = &settings.origin {
                li { "All proxies use the same origin server, " (origin.name) " (" (origin.version)
                    "). It is started once and runs on the same processor and in the same scheduling \
                    class, so all replies of a round are available when the proxy polls for them. Only \
                    the processes of the proxy are measured, not the origin." }
            }
            @if settings.emulator.is_some() {
                li { "After the warm-up, a pass without counters measures instructions and context \
                    switches of all processes and threads by the accounting of the scheduler. Another \
                    pass counts system calls, if the kernel permits it." }
            } @else {
                li { "After the warm-up, a pass without counters measures CPU time and context \
                    switches of all processes and threads by the accounting of the scheduler. Two \
                    more passes count instructions and system calls, if the kernel permits it." }
            }
            li { "Workloads: "
                @for (i, workload) in workloads.enumerate() {
                    @if i > 0 { "; " } strong { (workload.name) } ", " (workload.description) }
                ". A pass has " (count(settings.requests)) " requests; longer workloads have \
                fewer." }
            @if settings.latency_s > 0.0 {
                li { "Latency is measured in a pass of " (settings.latency_s) " s with requests at \
                    random times, at a rate well below the capacity of every " (kind) "." }
            }
            li { "Memory per idle connection is the growth of resident memory (Rss) of all \
                processes of the " (kind) " while the idle connections are opened."
                @if settings.kind == Kind::Proxy {
                    " Memory per unused connection, which is accepted but has sent nothing, is \
                    measured in the same way in a separate session."
                } }
            li { (report.method) }
            li { "The sessions of each repetition ran in random order, determined by the seed. \
                Results of different runs are not comparable." }
        }
    }
}
