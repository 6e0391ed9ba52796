//! Summary tables: rows for all exporters, and aligned text for a terminal.

use crate::export::Render;
use crate::plan::Settings;
use crate::results::Report;
use crate::stats::{Estimate, Ratio};
use crate::summary::Cell;
use crate::units::{count, mebibytes, micros, number, with_margin};

/// A table of text.
#[derive(Clone, Debug, PartialEq, Eq)]
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
}

/// A column: its heading, and a function from a cell to text. Columns without text are omitted.
pub(crate) type Column<C> = (String, Box<dyn Fn(&C) -> String>);

/// Creates a column whose text depends only on the cell.
pub(crate) fn column<C: 'static>(head: &str, text: fn(&C) -> String) -> Column<C> {
    (head.into(), Box::new(text))
}

/// Builds a table from cells, without empty columns.
pub(crate) fn build<C>(cells: &[C], columns: Vec<Column<C>>) -> Table {
    let has_text = |(_, text): &Column<C>| cells.iter().any(|cell| !text(cell).is_empty());
    let columns: Vec<Column<C>> = columns.into_iter().filter(has_text).collect();
    let row = |cell| columns.iter().map(|(_, text)| text(cell)).collect();
    Table {
        head: columns.iter().map(|(head, _)| head.clone()).collect(),
        rows: cells.iter().map(row).collect(),
    }
}

/// Returns the summary of the quick experiment.
pub fn table(report: &Report) -> Table {
    build(&report.summary, columns(&report.settings))
}

fn columns(settings: &Settings) -> Vec<Column<Cell>> {
    let repetitions = settings.repetitions as usize;
    vec![
        column("mechanism", |c| c.mechanism.clone()),
        column("idle", |c| count(c.idle)),
        column("CPU µs/req", |c| mean_with_margin(c.cpu_ns, micros)),
        (format!("vs {}", settings.reference), Box::new(|c| format_ratio(c.cpu_vs_reference))),
        column("vs 0 idle", |c| format_ratio(c.cpu_vs_no_idle)),
        column("instr/req", |c| mean_with_margin(c.instructions, |v| v)),
        column("syscalls/req", |c| format_mean(c.syscalls, |v| v)),
        column("CPU µs/conn", |c| mean_with_margin(c.cpu_per_connection_ns, micros)),
        column("instr/conn", |c| format_mean(c.instructions_per_connection, |v| v)),
        column("syscalls/conn", |c| format_mean(c.syscalls_per_connection, |v| v)),
        column("RSS MiB", |c| format_mean(c.rss_bytes, mebibytes)),
        column("B/idle", |c| format_mean(c.rss_per_idle_bytes, |v| v)),
        column("p50 µs", |c| format_mean(c.latency_p50_ns, micros)),
        column("p99 µs", |c| mean_with_margin(c.latency_p99_ns, micros)),
        ("notes".into(), Box::new(move |c| notes(c, repetitions))),
    ]
}

pub(crate) fn format_mean(estimate: Option<Estimate>, unit: fn(f64) -> f64) -> String {
    estimate.map_or_else(String::new, |e| number(unit(e.mean)))
}

pub(crate) fn mean_with_margin(estimate: Option<Estimate>, unit: fn(f64) -> f64) -> String {
    estimate.map_or_else(String::new, |e| with_margin(unit(e.mean), e.margin.map(unit)))
}

/// Formats a ratio. A tilde marks a ratio whose confidence interval includes 1.
pub(crate) fn format_ratio(ratio: Option<Ratio>) -> String {
    ratio.map_or_else(String::new, |r| {
        let sign = if r.differs() || r.low.is_none() { "" } else { "~" };
        format!("{sign}{}×", number(r.ratio))
    })
}

fn notes(cell: &Cell, repetitions: usize) -> String {
    let mut notes = Vec::new();
    if cell.saturated == cell.samples {
        notes.push("saturated".to_string());
    } else if cell.saturated > 0 {
        notes.push(format!("saturated {} of {}", cell.saturated, cell.samples));
    }
    if cell.errors > 0 {
        notes.push(format!("{} errors", count(cell.errors)));
    }
    if cell.samples < repetitions {
        notes.push(format!("{} of {repetitions} samples", cell.samples));
    }
    notes.join(", ")
}

/// Returns whether a column contains text instead of numbers.
pub(crate) fn is_text(head: &str) -> bool {
    matches!(head, "mechanism" | "workload" | "server" | "notes" | "metric" | "verdict")
}

/// Renders the report as text for a terminal: the table, notes and warnings.
pub fn text(report: &impl Render) -> String {
    report.render_text()
}

/// Renders the report of the quick experiment as text.
pub(crate) fn quick(report: &Report) -> String {
    with_notes(&table(report), report)
}

/// Renders a table as aligned text, followed by notes and warnings.
pub(crate) fn with_notes<S, C, P>(table: &Table, report: &Report<S, C, P>) -> String {
    let mut out = aligned(table);
    out += "\n± is the 95 % confidence interval of the mean; ~ marks a ratio whose 95 % confidence \
            interval includes 1.\n";
    for counter in &report.unavailable_counters {
        out += &format!("Not counted: {} ({}). {}\n", counter.counter, counter.error, counter.hint);
    }
    for warning in &report.warnings {
        out += &format!("Warning: {warning}\n");
    }
    out
}

/// Aligns a table: text left, numbers right, with a blank line between groups of rows.
pub(crate) fn aligned(table: &Table) -> String {
    let width = |column: usize| {
        let cells = table.rows.iter().chain([&table.head]).map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..table.head.len()).map(width).collect();
    let line = |row: &[String]| {
        let cells = row.iter().zip(&widths).zip(&table.head).map(|((cell, &width), head)| {
            if is_text(head) { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
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
