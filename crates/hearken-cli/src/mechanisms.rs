//! `hearken mechanisms`: the event mechanisms and their availability.

use std::io::{self, Write};
use std::process::ExitCode;

use hearken::io::{self as events, URING, URING_OPTIONS, URING_SUMMARY};
use hearken::mechanism::auto::{self, Ranking, Verdict};
use hearken::mechanism::{
    ChangeCost, Entry, OptionSpec, Sharing, TABLE, Trigger, WaitCost, Watches,
};
use serde_json::{Value, json};

use crate::Failure;
use crate::args::MechanismsArgs;

pub(crate) fn run(args: &MechanismsArgs) -> Result<ExitCode, Failure> {
    let text = match (args.json, args.explain) {
        (true, _) => as_json(),
        (_, true) => as_explanation(),
        _ => as_table(),
    };
    // The reader may close the pipe early.
    let _ = io::stdout().write_all(text.as_bytes());
    Ok(ExitCode::SUCCESS)
}

fn trigger(entry: &Entry) -> &'static str {
    match entry.semantics.trigger {
        Trigger::Level => "level",
        Trigger::Edge => "edge",
        Trigger::OneShot => "one-shot",
    }
}

fn wait_cost(entry: &Entry) -> &'static str {
    match entry.semantics.wait {
        WaitCost::HighestDescriptor => "highest descriptor",
        WaitCost::Registered => "registered",
        WaitCost::Active => "recently active",
        WaitCost::Ready => "ready",
    }
}

fn change_cost(entry: &Entry) -> &'static str {
    match entry.semantics.change {
        ChangeCost::Memory => "memory",
        ChangeCost::SystemCall => "system call",
        ChangeCost::Wait => "next wait",
    }
}

fn watches(entry: &Entry) -> &'static str {
    match entry.semantics.watches {
        Watches::Any => "any",
        Watches::SignalDriven => "signalling",
    }
}

fn sharing(entry: &Entry) -> &'static str {
    match entry.semantics.sharing {
        Sharing::Exclusive => "exclusive",
        Sharing::Each => "each",
        Sharing::Owner => "owner",
    }
}

fn as_json() -> String {
    let ranking = auto::ranking();
    let chosen = ranking.best().entry.name;
    let mut rows: Vec<Value> = TABLE
        .iter()
        .map(|entry| {
            let reason = entry.spec().probe().err();
            json!({
                "name": entry.name,
                "summary": entry.summary,
                "source": entry.source,
                "available": reason.is_none(),
                "reason": reason.map(|reason| reason.to_string()),
                "auto": entry.name == chosen,
                "measured_ns": measured(ranking, entry),
                "options": options(entry.options),
                "semantics": {
                    "trigger": trigger(entry),
                    "wait_cost_grows_with": wait_cost(entry),
                    "change_costs": change_cost(entry),
                    "reports": entry.semantics.reports.iter_names()
                        .map(|(name, _)| name.to_lowercase()).collect::<Vec<_>>(),
                    "close_revokes": entry.semantics.close_revokes,
                    "registers_both": entry.semantics.registers_both,
                    "overflows": entry.semantics.overflows,
                    "recovers": entry.semantics.recovers,
                    "watches": watches(entry),
                    "sharing": sharing(entry),
                    "privileged": entry.semantics.privileged,
                },
            })
        })
        .collect();
    let reason = uring_unavailable();
    rows.push(json!({
        "name": URING,
        "summary": URING_SUMMARY,
        "source": null,
        "available": reason.is_none(),
        "reason": reason,
        "auto": false,
        "measured_ns": null,
        "options": options(URING_OPTIONS),
        // Completions report finished operations, not readiness.
        "semantics": null,
    }));
    format!("{:#}\n", Value::Array(rows))
}

fn options(choices: &[OptionSpec]) -> Value {
    let option = |OptionSpec { name, help, values }: &OptionSpec| json!({ "name": name, "help": help, "values": values.to_string() });
    choices.iter().map(option).collect()
}

/// Returns the reason why io_uring completions are not available, if they are not.
fn uring_unavailable() -> Option<String> {
    events::find(URING).ok()?.probe().err().map(|reason| reason.to_string())
}

/// Returns the time of a round of the measurement for `auto`, if there was one.
fn measured(ranking: &Ranking, entry: &Entry) -> Option<u64> {
    ranking.rows.iter().find_map(|(spec, verdict)| match verdict {
        Verdict::Measured(took) if spec.entry.name == entry.name => {
            u64::try_from(took.as_nanos()).ok()
        }
        _ => None,
    })
}

fn as_table() -> String {
    let chosen = auto::ranking().best().entry.name;
    let mut text = format!(
        "{:<14} {:<9} {:<8} {:<19} {:<12} {}\n",
        "NAME", "AVAILABLE", "TRIGGER", "WAIT GROWS WITH", "CHANGE", "DESCRIPTION"
    );
    for entry in TABLE {
        let reason = entry.spec().probe().err();
        let available = if reason.is_none() { "yes" } else { "no" };
        let chosen = if entry.name == chosen { " (auto)" } else { "" };
        let source = entry.source.map_or(String::new(), |source| format!(" [{source}]"));
        text += &format!(
            "{:<14} {available:<9} {:<8} {:<19} {:<12} {}{source}{chosen}\n",
            entry.name,
            trigger(entry),
            wait_cost(entry),
            change_cost(entry),
            entry.summary
        );
        text += &details(entry.options, reason.map(|reason| reason.to_string()));
    }
    let reason = uring_unavailable();
    let available = if reason.is_none() { "yes" } else { "no" };
    text += &format!(
        "{URING:<14} {available:<9} {:<8} {:<19} {:<12} {URING_SUMMARY}\n",
        "-", "completed", "next wait"
    );
    text + &details(URING_OPTIONS, reason)
}

/// Returns lines for the options of a mechanism and the reason why it is not available.
fn details(choices: &[OptionSpec], reason: Option<String>) -> String {
    let mut text = String::new();
    for OptionSpec { name, help, values } in choices {
        text += &format!("{:<24} :{name}={values}  {help}\n", "");
    }
    if let Some(reason) = reason {
        text += &format!("{:<24} {reason}\n", "");
    }
    text
}

/// Returns the mechanism that `auto` selects, and its measurements.
fn as_explanation() -> String {
    let ranking = auto::ranking();
    let mut text = format!(
        "auto selects {}.\n\n\
         CPU time of the best of several rounds, measured now: connections are opened, have events\n\
         alone and with others, and are closed. Among mechanisms within 10 % of the best, auto\n\
         prefers edge-triggered to level-triggered to one-shot, then the oldest mechanism.\n\n",
        ranking.best()
    );
    for (spec, verdict) in &ranking.rows {
        text += &format!("{:<14} {verdict}\n", spec.to_string());
    }
    text
}

/// Prints the mechanisms that `auto` did not consider because they are not available.
pub(crate) fn report_unavailable(chosen: &str) {
    for (spec, reason) in auto::ranking().unavailable() {
        eprintln!("hearken: {spec} is not available ({reason}), using {chosen}");
    }
}
