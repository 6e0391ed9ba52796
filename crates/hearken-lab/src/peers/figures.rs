//! Figures of the report: a row for each server, a panel for each workload.

use super::results::Report;
use super::summary::Cell;
use crate::figures::Figure;
use crate::stats::Estimate;
use crate::svg::dot_plot::{DotPlot, Mark, Row};
use crate::units::{count, micros};

/// Title, value and unit of a quantity.
type Quantity = (&'static str, fn(&Cell) -> Option<Estimate>, fn(f64) -> f64);

/// Returns the figures that have data.
pub(crate) fn figures(report: &Report) -> Vec<Figure<DotPlot>> {
    let counted = report.summary.iter().any(|cell| cell.instructions.is_some());
    let cost: Quantity = match (counted, &report.settings.emulator) {
        (true, Some(_)) => ("instructions per request, emulated", |c| c.instructions, |v| v),
        (true, None) => ("instructions per request", |c| c.instructions, |v| v),
        (false, _) => ("CPU time per request, µs", |c| c.cpu_ns, micros),
    };
    let all = [
        Figure {
            name: "cost",
            title: "Cost per request",
            caption: "Measured in lockstep rounds with the driver on the same processor. Error bars are \
                      95 % confidence intervals.",
            panels: by_workload(report, cost),
        },
        Figure {
            name: "syscalls",
            title: "System calls",
            caption: "Counted in a separate pass.",
            panels: by_workload(report, ("system calls per request", |c| c.syscalls, |v| v)),
        },
        Figure {
            name: "memory",
            title: "Memory per idle connection",
            caption: "Growth of resident memory per connection that has completed one request. \
                      Excludes sockets, which are kernel memory.",
            panels: memory(report),
        },
        Figure {
            name: "latency",
            title: "Latency at a low rate",
            caption: "Median of an open-loop pass, run from another processor if possible.",
            panels: by_workload(report, ("median latency, µs", |c| c.latency_p50_ns, micros)),
        },
    ];
    let shown = |figure: &Figure<DotPlot>| !figure.panels.is_empty();
    all.into_iter().filter(shown).collect()
}

fn by_workload(report: &Report, (title, quantity, unit): Quantity) -> Vec<DotPlot> {
    let panel = |name: &String| {
        let title = format!("{name}: {title}");
        rows(report, title, &report.settings.idle, |server, idle| {
            let matches = |c: &&Cell| (&c.workload, &c.server, c.idle) == (name, server, idle);
            mark(report.summary.iter().find(matches)?, quantity, unit)
        })
    };
    report.settings.workloads.iter().filter_map(panel).collect()
}

/// Returns the memory panel. The idle connections belong to the session, not to a workload.
fn memory(report: &Report) -> Vec<DotPlot> {
    let levels: Vec<u64> = report.settings.idle.iter().copied().filter(|&idle| idle > 0).collect();
    let panel = rows(report, "bytes per idle connection".into(), &levels, |server, idle| {
        let matches = |c: &&Cell| &c.server == server && c.idle == idle;
        mark(report.summary.iter().find(matches)?, |c| c.rss_per_idle_bytes, |v| v)
    });
    panel.into_iter().collect()
}

fn mark(
    cell: &Cell,
    quantity: fn(&Cell) -> Option<Estimate>,
    unit: fn(f64) -> f64,
) -> Option<Mark> {
    let estimate = quantity(cell)?;
    let margin = unit(estimate.margin.unwrap_or(0.0));
    Some(Mark { value: unit(estimate.mean), margin })
}

/// Builds a row for each server that has a mark, with a level for each number of idle connections.
fn rows(
    report: &Report,
    title: String,
    levels: &[u64],
    mark: impl Fn(&String, u64) -> Option<Mark>,
) -> Option<DotPlot> {
    let kinds = levels.iter().map(|&idle| format!("{} idle", count(idle))).collect();
    let row = |server: &String| Row {
        name: server.clone(),
        marks: levels.iter().map(|&idle| mark(server, idle)).collect(),
    };
    let rows: Vec<Row> = report.settings.servers.iter().map(row).collect();
    let rows: Vec<Row> =
        rows.into_iter().filter(|row| row.marks.iter().any(Option::is_some)).collect();
    (!rows.is_empty()).then_some(DotPlot { title, levels: kinds, rows })
}
