//! Summary tables: rows for all exporters, and aligned text for a terminal.

use std::collections::BTreeSet;

use crate::experiment::{Experiment, Metric};
use crate::judge::{self, Judgement};
use crate::results::{ExperimentReport, Report};
use crate::stats::Ratio;
use crate::summary::{CellSummary, MetricSummary};
use crate::units::{count, number, with_margin};

/// A table of text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Column headings.
    pub head: Vec<String>,
    /// Rows, each with one cell per column.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Returns whether successive rows share their first column.
    pub(crate) fn is_grouped(&self) -> bool {
        self.rows.windows(2).any(|pair| pair[0].first() == pair[1].first())
    }

    /// Returns whether a column contains text instead of numbers.
    pub(crate) fn is_text(&self, column: usize) -> bool {
        let has_letter = |row: &Vec<String>| row[column].contains(char::is_alphabetic);
        self.rows.iter().any(has_letter) || self.head[column] == "notes"
    }
}

/// A column: its heading, and a function from a cell to text. Columns without text are omitted.
type Column<'a> = (String, Box<dyn Fn(&CellSummary) -> String + 'a>);

/// Builds a table from cells, without empty columns.
fn build(cells: &[&CellSummary], columns: Vec<Column<'_>>) -> Table {
    let has_text = |(_, text): &Column<'_>| cells.iter().any(|cell| !text(cell).is_empty());
    let columns: Vec<Column<'_>> = columns.into_iter().filter(has_text).collect();
    let row = |cell: &&CellSummary| columns.iter().map(|(_, text)| text(cell)).collect();
    Table {
        head: columns.iter().map(|(head, _)| head.clone()).collect(),
        rows: cells.iter().map(row).collect(),
    }
}

/// Returns the summary of an experiment. If a figure has lines, the rows are grouped by server,
/// otherwise by the values of the axes.
pub(crate) fn table(report: &ExperimentReport) -> Table {
    let Some(experiment) = report.experiment() else { return Table::default() };
    let by_server = experiment.figures.iter().any(|figure| figure.x.is_some());
    let mut cells: Vec<&CellSummary> = report.summary.iter().collect();
    if !by_server {
        let rank = |cell: &&CellSummary| {
            let value = |axis: &crate::results::AxisReport| {
                let own = cell.values.get(&axis.name)?;
                axis.values.iter().position(|value| value == own)
            };
            report.axes.iter().map(value).collect::<Vec<_>>()
        };
        cells.sort_by_cached_key(rank);
    }
    build(&cells, columns(report, &experiment, by_server))
}

fn columns<'a>(
    report: &'a ExperimentReport,
    experiment: &'a Experiment,
    by_server: bool,
) -> Vec<Column<'a>> {
    let server: Column<'a> =
        (experiment.kind().name().into(), Box::new(|cell| cell.server.clone()));
    let axes = report.varied_axes().map(|axis| -> Column<'a> {
        let value = |cell: &CellSummary| {
            let value = cell.values.get(&axis.name).cloned().unwrap_or_default();
            value.parse().map_or(value, count)
        };
        (axis.title.clone(), Box::new(value))
    });
    let mut columns: Vec<Column<'a>> = axes.collect();
    columns.insert(if by_server { 0 } else { columns.len() }, server);
    for metric in &experiment.metrics {
        columns.extend(metric_columns(report, metric));
    }
    let repetitions = report.repetitions as usize;
    columns.push(("notes".into(), Box::new(move |cell| notes(cell, repetitions))));
    columns
}

fn metric_columns<'a>(report: &'a ExperimentReport, metric: &'a Metric) -> Vec<Column<'a>> {
    let Some(heading) = &metric.heading else { return Vec::new() };
    let of = |cell: &CellSummary| cell.metrics.get(&metric.name).copied();
    let mean = move |cell: &CellSummary| {
        of(cell).map_or_else(String::new, |summary| {
            let margin = summary.estimate.margin.filter(|_| metric.compare);
            with_margin(summary.estimate.mean * metric.scale, margin.map(|m| m * metric.scale))
        })
    };
    let ratio = move |get: fn(&MetricSummary) -> Option<Ratio>| {
        Box::new(move |cell: &CellSummary| format_ratio(of(cell).and_then(|s| get(&s))))
    };
    let mut columns: Vec<Column<'a>> = vec![(heading.clone(), Box::new(mean))];
    if metric.compare {
        let head = format!("{heading} ÷ {}", report.reference);
        columns.push((head, ratio(|summary| summary.to_reference)));
    }
    let baseline = metric.baseline.as_ref().and_then(|name| report.axis(name));
    if let Some((axis, first)) = baseline.and_then(|axis| Some((axis, axis.values.first()?))) {
        let head = format!("{heading} ÷ {first} {}", axis.name);
        columns.push((head, ratio(|summary| summary.to_baseline)));
    }
    columns
}

/// Formats a ratio. A tilde marks a ratio whose confidence interval includes 1.
pub(crate) fn format_ratio(ratio: Option<Ratio>) -> String {
    ratio.map_or_else(String::new, |r| {
        let sign = if r.differs() || r.low.is_none() { "" } else { "~" };
        format!("{sign}{}×", number(r.ratio))
    })
}

fn notes(cell: &CellSummary, repetitions: usize) -> String {
    let mut notes = Vec::new();
    if cell.saturated == cell.samples {
        notes.push("saturated".to_string());
    } else if cell.saturated > 0 {
        notes.push(format!("saturated {} of {}", cell.saturated, cell.samples));
    }
    if cell.reconnects > 0 {
        notes.push(format!("closed {} connections", count(cell.reconnects)));
    }
    if cell.errors > 0 {
        notes.push(format!("{} errors", count(cell.errors)));
    }
    if cell.samples < repetitions {
        notes.push(format!("{} of {repetitions} samples", cell.samples));
    }
    notes.join(", ")
}

/// Returns the verdicts on the claims.
fn verdicts(report: &Report) -> Table {
    let head = ["claim", "verdict", "p", "notes"].map(String::from).to_vec();
    let row = |judgement: &Judgement| {
        vec![
            judgement.claim.clone(),
            judgement.verdict.name().to_owned(),
            judgement.p_value.map_or_else(String::new, |p| format!("{p:.3}")),
            judgement.reason.clone().unwrap_or_default(),
        ]
    };
    Table { head, rows: report.judgements.iter().map(row).collect() }
}

/// Renders a run as text: warnings, tables and notes.
pub(crate) fn text(report: &Report) -> String {
    let mut out = String::new();
    for warning in &report.warnings {
        out += &format!("Warning: {warning}\n");
    }
    if !report.judgements.is_empty() {
        out += &format!("\n{}\n", aligned(&verdicts(report)));
        out += &format!("{}\n", judge::counts(&report.judgements));
    }
    for experiment in &report.experiments {
        out += &format!("\n{}\n\n{}", experiment.name, aligned(&table(experiment)));
    }
    out += "\n± is the 95 % confidence interval of the mean; ~ marks a ratio whose 95 % confidence \
            interval includes 1.\n";
    let emulators: BTreeSet<&str> =
        report.experiments.iter().filter_map(|e| report.emulator_of(e)).collect();
    for emulator in emulators {
        out += &format!("Instructions were counted by emulation: {emulator}.\n");
    }
    for counter in &report.unavailable_counters {
        out += &format!("Not counted: {} ({}). {}\n", counter.counter, counter.error, counter.hint);
    }
    out.trim_start().to_owned()
}

/// Aligns a table: text left, numbers right, with a blank line between groups of rows.
pub(crate) fn aligned(table: &Table) -> String {
    let width = |column: usize| {
        let cells = table.rows.iter().chain([&table.head]).map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..table.head.len()).map(width).collect();
    let line = |row: &[String]| {
        let cells = row.iter().zip(&widths).enumerate().map(|(i, (cell, &width))| {
            if table.is_text(i) { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_string() + "\n"
    };
    let mut out = line(&table.head);
    let mut first = None;
    for row in &table.rows {
        if table.is_grouped() && first.is_some_and(|first| first != &row[0]) {
            out.push('\n');
        }
        first = row.first();
        out += &line(row);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligns_columns() {
        let row = |cells: [&str; 4]| cells.map(String::from).to_vec();
        let table = Table {
            head: row(["mechanism", "idle", "CPU µs/req", "notes"]),
            rows: vec![
                row(["poll", "0", "9 ± 1", ""]),
                row(["poll", "8,000", "1,234 ± 56", "saturated"]),
                row(["epoll-level", "0", "8", ""]),
            ],
        };
        let expected = "\
mechanism     idle  CPU µs/req  notes
poll             0       9 ± 1
poll         8,000  1,234 ± 56  saturated

epoll-level      0           8
";
        assert_eq!(aligned(&table), expected);
        let ungrouped = Table { rows: table.rows[1..].to_vec(), ..table };
        assert!(!aligned(&ungrouped).contains("\n\n"));
    }

    #[test]
    fn marks_ratios_whose_interval_includes_one() {
        let ratio = |ratio, low, high| format_ratio(Some(Ratio { ratio, low, high }));
        assert_eq!(ratio(2.0, Some(1.5), Some(2.5)), "2.00×");
        assert_eq!(ratio(1.1, Some(0.9), Some(1.3)), "~1.10×");
        assert_eq!(format_ratio(None), "");
    }
}
