//! The results as a page of markdown.

use std::fmt::{self, Write};

use crate::goals::{Goal, What};
use crate::results::{Cell, Report};

/// The whole page.
pub(crate) fn page(report: &Report) -> String {
    let mut page = String::new();
    // Writing to a string does not fail.
    let _ = write_page(&mut page, report);
    page
}

fn write_page(page: &mut String, report: &Report) -> fmt::Result {
    let run = &report.settings;
    writeln!(page, "# What one event costs\n")?;
    writeln!(page, "`{}`\n", report.command_line.join(" "))?;
    let machine = &report.machine;
    writeln!(page, "{}; {}; {}.", report.date, machine.cpu, machine.kernel)?;
    writeln!(page, "{}.\n", report.versions.join(", "))?;
    writeln!(page, "{}\n", report.method)?;
    writeln!(
        page,
        "N {} are registered; A of them are written to, a byte each, then the events are taken and \
         the bytes read. A cell: instructions in user mode + in the kernel for each event, write and \
         read included (those beyond the floor), CPU time, system calls. \"-\" was not counted.\n",
        run.over.name(),
    )?;
    rows(page, report)?;
    for goal in [What::Cheapest, What::Flat] {
        let own: Vec<&Goal> = report.goals.iter().filter(|g| g.what == goal).collect();
        goals(page, goal, &own)?;
    }
    list(page, "Absent", report.absent.iter().map(|a| format!("{}: {}", a.name, a.reason)))?;
    list(page, "Refused", report.refusals.iter().map(ToString::to_string))?;
    list(page, "Failed", report.failures.iter().map(ToString::to_string))
}

fn rows(page: &mut String, report: &Report) -> fmt::Result {
    let run = &report.settings;
    let places =
        || run.active.iter().flat_map(|&active| run.descriptors.iter().map(move |&n| (n, active)));
    write!(page, "| contender |")?;
    for (descriptors, active) in places() {
        write!(page, " N={descriptors} A={active} |")?;
    }
    writeln!(page, "\n|---|{}", "---|".repeat(places().count()))?;
    let mut names: Vec<&str> = Vec::new();
    for cell in &report.cells {
        if !names.contains(&cell.contender.as_str()) {
            names.push(&cell.contender);
        }
    }
    for name in names {
        write!(page, "| {name} |")?;
        for place in places() {
            let cell = report
                .cells
                .iter()
                .find(|c| c.contender == name && (c.descriptors, c.active) == place);
            match cell {
                Some(cell) => write!(page, " {} |", Figures(cell, run.icount))?,
                None => write!(page, " |")?,
            }
        }
        writeln!(page)?;
    }
    writeln!(page)
}

/// A cell of the table.
struct Figures<'a>(&'a Cell, bool);

impl fmt::Display for Figures<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Figures(cell, icount) = *self;
        write!(f, "{}+{}", Count(cell.user), Count(cell.kernel))?;
        if let (None, Some(both)) = (cell.user, cell.instructions) {
            write!(f, " = {:.0}", both.median)?;
        }
        if let Some(over) = cell.over_floor {
            write!(f, " ({over:+.0})")?;
        }
        if !icount {
            write!(f, ", {:.0} ns", cell.cpu_ns.median)?;
        }
        match cell.calls {
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

fn goals(page: &mut String, what: What, goals: &[&Goal]) -> fmt::Result {
    let title = match what {
        What::Cheapest => "Goal: at or below the cheapest peer that asks the same of the kernel",
        What::Flat => "Goal: flat, within 3 %, as more are registered",
    };
    writeln!(page, "## {title}\n")?;
    if goals.is_empty() {
        return writeln!(page, "Nothing in this run to compare.\n");
    }
    if goals.iter().all(|goal| goal.reached.is_none()) {
        return writeln!(
            page,
            "Not judged: instructions in the kernel could not be counted here. Run emulated.sh.\n"
        );
    }
    let binding = goals.iter().filter(|goal| goal.binding);
    let reached = binding.clone().filter(|goal| goal.reached == Some(true)).count();
    let said = match what {
        What::Cheapest => {
            "Judged is the mechanism alone (`bare`), which does what mio and polling do. In brackets: \
             `registry` and `dyn`, which also own the sources and drop stale events; `queue`, beside \
             the event loops."
        }
        What::Flat => "In brackets: other doors to the same.",
    };
    writeln!(page, "{reached} of {} reached. {said}\n", binding.count())?;
    writeln!(page, "| | N | A | instructions | against | | ratio | |")?;
    writeln!(page, "|---|---|---|---|---|---|---|---|")?;
    for goal in goals {
        let verdict = match goal.reached {
            Some(true) => "pass",
            Some(false) => "FAIL",
            None => "not judged",
        };
        let verdict =
            if goal.binding { verdict.to_owned() } else { format!("({})", verdict.to_lowercase()) };
        let ratio = goal.ours.zip(goal.theirs).map_or(f64::NAN, |(ours, theirs)| ours / theirs);
        writeln!(
            page,
            "| {} | {} | {} | {} | {} | {} | {ratio:.3} | {verdict} |",
            goal.contender,
            goal.descriptors,
            goal.active,
            Count(goal.ours),
            goal.against,
            Count(goal.theirs),
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
