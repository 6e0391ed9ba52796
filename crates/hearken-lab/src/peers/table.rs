//! The summary as a table: a row for each workload, number of idle connections and server.

use super::plan::Settings;
use super::results::Report;
use super::summary::Cell;
use crate::table::{Column, Table, build, column, format_mean, format_ratio, mean_with_margin};
use crate::units::{count, micros};

/// Returns the summary without empty columns.
pub(crate) fn table(report: &Report) -> Table {
    build(&report.summary, columns(&report.settings))
}

fn columns(settings: &Settings) -> Vec<Column<Cell>> {
    let reference = &settings.reference;
    let repetitions = settings.repetitions as usize;
    let several = settings.idle.len() > 1;
    let instructions = match settings.emulator {
        Some(_) => "instr/req (emulated)",
        None => "instr/req",
    };
    let workload = move |c: &Cell| match several {
        true => format!("{}, {} idle", c.workload, count(c.idle)),
        false => c.workload.clone(),
    };
    vec![
        ("workload".into(), Box::new(workload)),
        column(settings.kind.name(), |c: &Cell| c.server.clone()),
        column("CPU µs/req", |c: &Cell| mean_with_margin(c.cpu_ns, micros)),
        (
            format!("this ÷ {reference}"),
            Box::new(|c| format_ratio(c.cpu_vs_reference.this_to_reference)),
        ),
        (
            format!("{reference} ÷ this"),
            Box::new(|c| format_ratio(c.cpu_vs_reference.reference_to_this)),
        ),
        column("÷ 0 idle", |c: &Cell| format_ratio(c.cpu_vs_no_idle)),
        column(instructions, |c: &Cell| mean_with_margin(c.instructions, |v| v)),
        column("user", |c: &Cell| format_mean(c.instructions_user, |v| v)),
        column("kernel", |c: &Cell| format_mean(c.instructions_kernel, |v| v)),
        (
            format!("instr: this ÷ {reference}"),
            Box::new(|c| format_ratio(c.instructions_vs_reference.this_to_reference)),
        ),
        (
            format!("instr: {reference} ÷ this"),
            Box::new(|c| format_ratio(c.instructions_vs_reference.reference_to_this)),
        ),
        column("instr: ÷ 0 idle", |c: &Cell| format_ratio(c.instructions_vs_no_idle)),
        column("syscalls/req", |c: &Cell| format_mean(c.syscalls, |v| v)),
        column("switches/req", |c: &Cell| format_mean(c.context_switches, |v| v)),
        column("B/idle", |c: &Cell| format_mean(c.rss_per_idle_bytes, |v| v)),
        (
            format!("B/idle: {reference} ÷ this"),
            Box::new(|c| format_ratio(c.rss_per_idle_vs_reference.reference_to_this)),
        ),
        column("B/unused", |c: &Cell| format_mean(c.rss_per_unused_bytes, |v| v)),
        (
            format!("B/unused: {reference} ÷ this"),
            Box::new(|c| format_ratio(c.rss_per_unused_vs_reference.reference_to_this)),
        ),
        column("p50 µs", |c: &Cell| format_mean(c.latency_p50_ns, micros)),
        column("p99 µs", |c: &Cell| format_mean(c.latency_p99_ns, micros)),
        ("notes".into(), Box::new(move |c| notes(c, repetitions))),
    ]
}

fn notes(cell: &Cell, repetitions: usize) -> String {
    let mut notes = Vec::new();
    if cell.reconnects > 0 {
        notes.push(format!("closed {} connections", count(cell.reconnects)));
    }
    if cell.idle_connections < cell.idle {
        notes.push(format!("accepts {} idle", count(cell.idle_connections)));
    }
    if cell.errors > 0 {
        notes.push(format!("{} errors", count(cell.errors)));
    }
    if cell.samples < repetitions {
        notes.push(format!("{} of {repetitions} samples", cell.samples));
    }
    notes.join(", ")
}
