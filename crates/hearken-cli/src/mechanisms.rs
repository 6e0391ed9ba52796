//! `hearken mechanisms`: what this kernel and this user can have.

use std::io::{self, Write};
use std::process::ExitCode;

use hearken::mechanism::{ChangeCost, DEFAULT, Entry, TABLE, Trigger, WaitCost};
use serde_json::{Value, json};

use crate::Failure;
use crate::args::MechanismsArgs;

pub(crate) fn run(args: &MechanismsArgs) -> Result<ExitCode, Failure> {
    let text = if args.json { as_json() } else { as_table() };
    // A reader that has seen enough is no failure.
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
        WaitCost::Ready => "ready",
    }
}

fn change_cost(entry: &Entry) -> &'static str {
    match entry.semantics.change {
        ChangeCost::Memory => "memory",
        ChangeCost::SystemCall => "system call",
    }
}

fn as_json() -> String {
    let rows: Vec<Value> = TABLE
        .iter()
        .map(|entry| {
            let refused = entry.probe().err();
            json!({
                "name": entry.name,
                "summary": entry.summary,
                "available": refused.is_none(),
                "reason": refused.map(|reason| reason.to_string()),
                "default": entry.name == DEFAULT,
                "semantics": {
                    "trigger": trigger(entry),
                    "wait_cost_grows_with": wait_cost(entry),
                    "change_costs": change_cost(entry),
                    "reports": entry.semantics.reports.iter_names()
                        .map(|(name, _)| name.to_lowercase()).collect::<Vec<_>>(),
                    "close_revokes": entry.semantics.close_revokes,
                    "registers_both": entry.semantics.registers_both,
                    "overflows": entry.semantics.overflows,
                },
            })
        })
        .collect();
    format!("{:#}\n", Value::Array(rows))
}

fn as_table() -> String {
    let mut text = format!(
        "{:<12} {:<4} {:<8} {:<19} {:<12} {}\n",
        "NAME", "HERE", "TRIGGER", "WAIT GROWS WITH", "CHANGE", "WHAT IT IS"
    );
    for entry in TABLE {
        let refused = entry.probe().err();
        let here = if refused.is_none() { "yes" } else { "no" };
        let default = if entry.name == DEFAULT { " (default)" } else { "" };
        text += &format!(
            "{:<12} {here:<4} {:<8} {:<19} {:<12} {}{default}\n",
            entry.name,
            trigger(entry),
            wait_cost(entry),
            change_cost(entry),
            entry.summary
        );
        if let Some(reason) = refused {
            text += &format!("{:<17} {reason}\n", "");
        }
    }
    text
}
