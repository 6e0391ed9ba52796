//! Figures of the report.

use crate::results::Report;
use crate::stats::Estimate;
use crate::summary::Cell;
use crate::svg::{Panel, Point, Series};
use crate::units::{mebibytes, micros};

/// A figure: one or more panels with a common title.
#[derive(Clone, Debug)]
pub(crate) struct Figure<P = Panel> {
    /// Name of the figure and of its file.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) caption: &'static str,
    pub(crate) panels: Vec<P>,
}

/// Returns the figures that have data.
pub(crate) fn figures(report: &Report) -> Vec<Figure> {
    let counted = report.summary.iter().any(|c| c.instructions.is_some());
    let cost = if counted {
        panel(report, "Instructions per request", |c| c.instructions, |v| v)
    } else {
        panel(report, "CPU time per request, µs", |c| c.cpu_ns, micros)
    };
    let all = [
        Figure {
            name: "cost",
            title: "Server cost per request",
            caption: "Cost to the server per reply. Error bars are 95 % confidence intervals; hollow \
                      markers are saturated servers.",
            panels: vec![cost],
        },
        Figure {
            name: "latency",
            title: "Client latency",
            caption: "From the scheduled time of a request, even if it was sent late, to the end of \
                      its reply.",
            panels: vec![
                panel(report, "Median latency, µs", |c| c.latency_p50_ns, micros),
                panel(report, "99th percentile of latency, µs", |c| c.latency_p99_ns, micros),
            ],
        },
        Figure {
            name: "memory",
            title: "Server memory",
            caption: "Resident memory of the process with the idle connections open. Excludes sockets, \
                      which are kernel memory.",
            panels: vec![panel(report, "Resident memory, MiB", |c| c.rss_bytes, mebibytes)],
        },
        Figure {
            name: "syscalls",
            title: "Server system calls",
            caption: "Counted in the short first pass.",
            panels: vec![panel(report, "System calls per request", |c| c.syscalls, |v| v)],
        },
    ];
    all.into_iter()
        .map(|f| Figure { panels: f.panels.into_iter().filter(has_points).collect(), ..f })
        .filter(|f| !f.panels.is_empty())
        .collect()
}

fn has_points(panel: &Panel) -> bool {
    !panel.series.is_empty()
}

fn panel(
    report: &Report,
    title: &str,
    quantity: fn(&Cell) -> Option<Estimate>,
    unit: fn(f64) -> f64,
) -> Panel {
    let series = report.settings.mechanisms.iter().enumerate().map(|(style, mechanism)| {
        let cells = report.summary.iter().filter(|c| &c.mechanism == mechanism);
        let points = cells.filter_map(|c| {
            quantity(c).map(|e| Point {
                x: c.idle as f64,
                y: unit(e.mean),
                margin: unit(e.margin.unwrap_or(0.0)),
                hollow: c.saturated > 0,
            })
        });
        Series { name: mechanism.clone(), style, points: points.collect() }
    });
    Panel {
        title: title.into(),
        x_title: "idle connections".into(),
        series: series.filter(|s| !s.points.is_empty()).collect(),
    }
}
