//! The page of the comparison with other servers.

use maud::{Markup, html};

use super::{again, caveats, cpus, facts, incomplete, numbers, page, sections};
use crate::peers::{Cell, Kind, Report, Workload, figures, table};
use crate::stats::Ratio;
use crate::units::{count, number};

/// The whole page.
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
    let placed = format!(
        "{shared} on processor {}; idle connections and lab on {}",
        cpus(&report.placement.server),
        cpus(&report.placement.others)
    );
    html! {
        h1 { "What a request costs, " (settings.kind.name()) " by " (settings.kind.name()) }
        p.soft {
            "Hearken " (report.version) ", " (report.date) ". One worker each, rounds of "
            (count(settings.batch)) " connections in lockstep, " (settings.repetitions)
            " repetitions in shuffled order."
        }
        @if let Some(emulator) = &settings.emulator { (emulated(report, emulator)) }
        (incomplete(report, settings.planned))
        (in_short(report))
        (sections(&figures(report)))
        h2 { "Table" }
        (numbers(&table(report)))
        p.soft { "± is the 95 % confidence interval of the mean, × a ratio; ~ marks a ratio whose \
            interval holds 1. Below 1 is cheaper." }
        (caveats(report))
        h2 { "The " (settings.kind.plural()) }
        (servers(report))
        h2 { "Where and when" }
        (facts(report, &placed, settings.seed, settings.emulator.as_deref()))
        h2 { "How it was measured" }
        (method(report))
        (again(report))
    }
}

/// What the figures are where a machine was emulated to have them.
fn emulated(report: &Report, emulator: &str) -> Markup {
    html! {
        div.note {
            strong { "Instructions, counted by emulation. " }
            "All of this ran in a machine emulated by " (emulator) ", processor \"" (report.machine.cpu)
            "\", " (report.machine.kernel) ". Its clock advances by a nanosecond with each instruction, \
            so the CPU time that its kernel accounts to a process is the process' instructions, in user \
            mode and in the kernel together. Times of any kind would say nothing."
        }
    }
}

/// The reference against each other server, workload by workload.
fn in_short(report: &Report) -> Markup {
    let settings = &report.settings;
    let counted = report.summary.iter().any(|c| c.instructions.is_some());
    let ratio = |c: &Cell| match counted {
        true => c.instructions_against.of_reference,
        false => c.cpu_against.of_reference,
    };
    let others: Vec<_> = settings.servers.iter().filter(|s| **s != settings.reference).collect();
    let lines = settings.workloads.iter().flat_map(|w| settings.idle.iter().map(move |&i| (w, i)));
    let lines: Vec<_> = lines.collect();
    let find = |server: &str, workload: &str, idle: u64| {
        let ours = |c: &&Cell| c.server == server && c.workload == workload && c.idle == idle;
        report.summary.iter().find(ours).and_then(ratio)
    };
    html! {
        @if report.summary.iter().any(|c| ratio(c).is_some()) {
            h2 { "In short" }
            p {
                (if counted { "Instructions" } else { "CPU time" }) " of a request to "
                strong { (settings.reference) } ", divided by those to the other, with the \
                95 % interval. Below 1, " (settings.reference) " is cheaper."
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
                            td { @if let Some(ratio) = find(server, workload, *idle) { (told(ratio)) } }
                        }
                    }
                } }
            } }
        }
    }
}

fn told(ratio: Ratio) -> Markup {
    html! {
        @if ratio.differs() { strong { (number(ratio.ratio)) } } @else { (number(ratio.ratio)) }
        @if let (Some(low), Some(high)) = (ratio.low, ratio.high) {
            br; span.soft { (number(low)) "–" (number(high)) }
        }
    }
}

fn servers(report: &Report) -> Markup {
    let taking_part = report.settings.participants.iter().map(|server| (server, false));
    let all = taking_part.chain(report.settings.origin.iter().map(|server| (server, true)));
    html! {
        @for (server, is_origin) in all {
            details {
                summary { strong { (server.name) } (if is_origin { " (the origin): " } else { ": " }) (server.about) span.soft { " · " (server.version) } }
                pre { (server.recipe) }
            }
        }
    }
}

fn method(report: &Report) -> Markup {
    let settings = &report.settings;
    let workloads = settings.workloads.iter().filter_map(|name| Workload::find(name));
    let kind = settings.kind.name();
    html! {
        ul {
            li { "A session starts a " (kind) " of its own with one worker, has it answer some requests, \
                opens the idle connections, each of which makes one request, and then goes through \
                the workloads." }
            li { "Driver and " (kind) " share a processor, in the scheduling class SCHED_BATCH. The \
                driver works in rounds: it sends a request on each connection and then reads the \
                replies, so that the " (kind) " always finds as many connections ready. It checks \
                the status and the length of each reply." }
            @if let Some(origin) = &settings.origin {
                li { "Behind each proxy is the same origin, " (origin.name) " (" (origin.version)
                    "), started once, on the same processor and in the same scheduling class, so \
                    that the replies of a round are all there when the proxy looks for them. Counted \
                    is what the proxy's processes use, and not the origin's." }
            }
            @if settings.emulator.is_some() {
                li { "After a warm-up, one pass without any counter gives instructions and context \
                    switches, by the scheduler's own account of all of its processes and \
                    threads; one counts system calls where the kernel allows." }
            } @else {
                li { "After a warm-up, one pass without any counter gives CPU time and context \
                    switches, by the scheduler's own account of all of its processes and \
                    threads; one counts instructions, one system calls; each where the kernel \
                    allows." }
            }
            li { "The workloads: "
                @for (i, workload) in workloads.enumerate() {
                    @if i > 0 { "; " } strong { (workload.name) } ", " (workload.about) }
                ". A pass has " (count(settings.requests)) " requests of the shortest, and fewer of \
                those that take longer." }
            @if settings.latency_s > 0.0 {
                li { "Latency is from a pass of " (settings.latency_s) " s with requests that are \
                    due at random, at a rate that none has trouble with." }
            }
            li { "Memory for an idle connection is the growth of resident memory (Rss) from before \
                the idle connections to after, over all of the " (kind) "'s processes."
                @if settings.kind == Kind::Proxy {
                    " For one that is silent, which has connected and said nothing, it is the same \
                    in a start of its own."
                } }
            li { (report.method) }
            li { "The order of sessions was shuffled within each repetition, with the seed. Numbers \
                of different runs are not to be compared." }
        }
    }
}
