//! Results as a Markdown page.

use std::fmt::{self, Write};

use crate::checks::{Check, Criterion};
use crate::results::{Cell, Report};

/// Returns the page.
pub(crate) fn page(report: &Report) -> String {
    let mut page = String::new();
    // Writing to a string does not fail.
    let _ = write_page(&mut page, report);
    page
}

fn write_page(page: &mut String, report: &Report) -> fmt::Result {
    let run = &report.settings;
    writeln!(page, "# Cost of one event\n")?;
    writeln!(page, "`{}`\n", report.command_line.join(" "))?;
    let machine = &report.machine;
    writeln!(page, "{}; {}; {}.", report.date, machine.cpu, machine.kernel)?;
    writeln!(page, "{}.\n", report.versions.join(", "))?;
    writeln!(page, "{}\n", report.method)?;
    writeln!(
        page,
        "N {} are registered. Each round writes one byte to A of them, receives the events and reads \
         the bytes. Cells contain instructions per event in user mode + kernel, including write and \
         read (above the baseline), CPU time, and system calls. \"-\" means not counted.\n",
        run.descriptor_type.name(),
    )?;
    rows(page, report)?;
    for criterion in [Criterion::Cheapest, Criterion::Constant] {
        let own: Vec<&Check> =
            report.checks.iter().filter(|check| check.criterion == criterion).collect();
        checks(page, criterion, &own)?;
    }
    list(
        page,
        "Unavailable",
        report.unavailable.iter().map(|a| format!("{}: {}", a.name, a.reason)),
    )?;
    list(page, "Unsupported", report.unsupported.iter().map(ToString::to_string))?;
    list(page, "Failures", report.failures.iter().map(ToString::to_string))
}

fn rows(page: &mut String, report: &Report) -> fmt::Result {
    let run = &report.settings;
    let columns =
        || run.active.iter().flat_map(|&active| run.descriptors.iter().map(move |&n| (n, active)));
    write!(page, "| contender |")?;
    for (descriptors, active) in columns() {
        write!(page, " N={descriptors} A={active} |")?;
    }
    writeln!(page, "\n|---|{}", "---|".repeat(columns().count()))?;
    let mut names: Vec<&str> = Vec::new();
    for cell in &report.cells {
        if !names.contains(&cell.contender.as_str()) {
            names.push(&cell.contender);
        }
    }
    for name in names {
        write!(page, "| {name} |")?;
        for column in columns() {
            let cell = report
                .cells
                .iter()
                .find(|c| c.contender == name && (c.descriptors, c.active) == column);
            match cell {
                Some(cell) => write!(page, " {} |", CellText(cell, run.icount))?,
                None => write!(page, " |")?,
            }
        }
        writeln!(page)?;
    }
    writeln!(page)
}

/// The content of a table cell.
struct CellText<'a>(&'a Cell, bool);

impl fmt::Display for CellText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CellText(cell, icount) = *self;
        write!(f, "{}+{}", Count(cell.user), Count(cell.kernel))?;
        if let (None, Some(both)) = (cell.user, cell.instructions) {
            write!(f, " = {:.0}", both.median)?;
        }
        if let Some(above) = cell.above_baseline {
            write!(f, " ({above:+.0})")?;
        }
        if !icount {
            write!(f, ", {:.0} ns", cell.cpu_ns.median)?;
        }
        match cell.system_calls {
            Some(calls) => write!(f, ", {calls:.2}"),
            None => Ok(()),
        }
    }
}

struct Count(Option<f64>);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(count) => write!(f, "{count:.0}"),
            None => f.write_str("-"),
        }
    }
}

fn checks(page: &mut String, criterion: Criterion, checks: &[&Check]) -> fmt::Result {
    let title = match criterion {
        Criterion::Cheapest => {
            "Criterion: at or below the cheapest peer with the same kernel interface"
        }
        Criterion::Constant => {
            "Criterion: constant within 3 % for any number of registered descriptors"
        }
    };
    writeln!(page, "## {title}\n")?;
    if checks.is_empty() {
        return writeln!(page, "This run contains nothing to compare.\n");
    }
    if checks.iter().all(|check| check.passed.is_none()) {
        return writeln!(
            page,
            "Not checked: kernel instructions cannot be counted on this machine. Use emulated.sh.\n"
        );
    }
    let required = checks.iter().filter(|check| check.required);
    let passed = required.clone().filter(|check| check.passed == Some(true)).count();
    let note = match criterion {
        Criterion::Cheapest => {
            "Only the mechanism itself (`bare`) is required to pass, because it does what mio and \
                 polling do. Results in brackets are informative: `registry` and `dyn` also own the \
                 sources and filter stale events, and `queue` is compared with event loops."
        }
        Criterion::Constant => "Results in brackets are for other APIs of the same mechanism.",
    };
    writeln!(page, "{passed} of {} passed. {note}\n", required.count())?;
    writeln!(
        page,
        "| contender | N | A | instructions | reference | instructions | ratio | result |"
    )?;
    writeln!(page, "|---|---|---|---|---|---|---|---|")?;
    for check in checks {
        let result = match check.passed {
            Some(true) => "pass",
            Some(false) => "FAIL",
            None => "not checked",
        };
        let result =
            if check.required { result.to_owned() } else { format!("({})", result.to_lowercase()) };
        let ratio = check
            .instructions
            .zip(check.reference_instructions)
            .map_or(f64::NAN, |(own, reference)| own / reference);
        writeln!(
            page,
            "| {} | {} | {} | {} | {} | {} | {ratio:.3} | {result} |",
            check.contender,
            check.descriptors,
            check.active,
            Count(check.instructions),
            check.reference,
            Count(check.reference_instructions),
        )?;
    }
    writeln!(page)
}

fn list(page: &mut String, title: &str, lines: impl Iterator<Item = String>) -> fmt::Result {
    for (number, line) in lines.enumerate() {
        if number == 0 {
            writeln!(page, "## {title}\n")?;
        }
        writeln!(page, "- {line}")?;
    }
    writeln!(page)
}
