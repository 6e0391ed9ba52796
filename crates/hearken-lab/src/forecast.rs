//! Forecast of a run: what it measures, how long it takes, and what its time budget leaves out.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;

use crate::budget::Row;
use crate::plan::Trial;
use crate::run::RunConfig;
use crate::units::count;

/// Describes a run without any measurement: the estimated time of each experiment, what the run settles, and
/// what does not fit into its time budget.
pub fn forecast(config: &RunConfig) -> String {
    let budget = config.time_budget.unwrap_or(Duration::MAX);
    let (kept, left_out) = config.rows(budget);
    let trials = config.plan();
    let mut text = format!(
        "{:14} {:>7} {:>12} {:>11} {:>9}\n",
        "experiment", "servers", "measurements", "repetitions", "time"
    );
    let mut total = Duration::ZERO;
    for planned in &config.experiments {
        let name = &planned.experiment.name;
        let repetitions = planned.experiment.repetitions;
        let is_own = |trial: &&Trial| trial.experiment == *name && trial.repetition < repetitions;
        let own: Vec<&Trial> = trials.iter().filter(is_own).collect();
        if own.is_empty() {
            continue;
        }
        let servers: BTreeSet<&str> = own.iter().map(|trial| &*trial.cell.server).collect();
        let time = own.iter().map(|trial| trial.expected).sum::<Duration>()
            + planned.preparation_duration();
        total += time;
        let _ = writeln!(
            text,
            "{name:14} {:7} {:>12} {repetitions:11} {:>9}",
            servers.len(),
            count(own.len() as u64),
            minutes(time)
        );
    }
    let _ = writeln!(text, "{:14} {:>42}", "total", minutes(total));
    let kind = if config.claims.is_empty() { "servers" } else { "claims" };
    describe(&mut text, &format!("{kind} that fit, with their additional time"), &kept);
    describe(&mut text, &format!("{kind} left out, with their additional time"), &left_out);
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for claim in &config.claims {
        let is_planned = |row: &Row| row.label == claim.id;
        if !kept.iter().chain(&left_out).any(is_planned) {
            let reason =
                claim.not_run.as_deref().unwrap_or("The experiment is not part of the run.");
            reasons.entry(reason).or_default().push(&claim.id);
        }
    }
    for (reason, claims) in reasons {
        let _ = writeln!(text, "\nnot run: {}: {reason}", claims.join(", "));
    }
    text
}

fn describe(text: &mut String, title: &str, rows: &[Row]) {
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n{} {title}:", rows.len());
    for row in rows {
        let _ = writeln!(text, "  {:28} {:>8}", row.label, minutes(row.cost));
    }
}

/// Formats a duration as minutes and seconds.
fn minutes(time: Duration) -> String {
    let seconds = time.as_secs_f64().round() as u64;
    format!("{}:{:02} min", seconds / 60, seconds % 60)
}
