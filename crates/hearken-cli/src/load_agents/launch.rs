//! Launches agents and merges their results.
//!
//! No shared file system is needed. The plan is an argument that includes the referenced files, and the results return
//! on standard output.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use hearken_load::{Report, merge};

use super::agent::{check_start, format_time};
use super::launcher::{Launcher, commands};
use super::processes::Processes;
use super::{Failed, ManyArgs};
use crate::load_plan::{SetOptions, with_files};
use crate::{Failure, signals};

/// Starts agents, waits for them, and merges their results.
pub(super) fn launch(
    args: &ManyArgs,
    options: &SetOptions,
    launcher: Launcher,
    quiet: bool,
) -> Result<Report, Failure> {
    let size = launcher.size();
    if args.size.is_some_and(|other| other != size) {
        return Err(Failure::usage(format!("--size differs from the {size} agents of --on")));
    }
    let lead = Duration::from_secs(if matches!(launcher, Launcher::Local(_)) { 1 } else { 5 });
    let lead = args.start_in.unwrap_or(lead);
    let start = args.start_at.unwrap_or_else(|| SystemTime::now() + lead);
    check_start(start)?;
    let plan = plan(options, size, start)?;
    let mut agents = Processes::start(commands(args, launcher, &plan)?)?;
    if !quiet {
        eprintln!("{size} agents on {launcher}; the first request is at {}", format_time(start));
    }
    let results = agents.results(size);
    let (problem, interrupted) = agents.end();
    let (mut parts, mut failed) = (BTreeMap::new(), Vec::new());
    for (rank, text) in results?.complete() {
        if let Ok(failure) = serde_json::from_slice::<Failed>(&text) {
            failed.push(failure);
            continue;
        }
        let mut part = serde_json::from_slice::<Report>(&text)
            .map_err(|error| Failure::runtime(format!("invalid result of rank {rank}: {error}")))?;
        if let (Launcher::Local(_), Some(part)) = (launcher, &mut part.part) {
            // All processes of a machine have the same clock, so its error does not matter.
            (part.clock_synchronised, part.clock_max_error_us) = (None, None);
        }
        parts.insert(rank, part);
    }
    if let Some(Failed { failed, status }) = failed.into_iter().next() {
        return Err(Failure { error: failed.into(), status });
    }
    let missing: Vec<_> = (0..size).filter(|rank| !parts.contains_key(rank)).collect();
    match (problem, missing.is_empty()) {
        _ if interrupted && !parts.is_empty() => {}
        (None, true) => {}
        (Some(problem), _) => {
            let status = signals::exit_status().unwrap_or(1);
            return Err(Failure { error: problem.into(), status });
        }
        (None, false) => {
            return Err(Failure::runtime(format!("no result from {}", format_ranks(&missing))));
        }
    }
    merge(&parts.into_values().collect::<Vec<_>>()).map_err(Failure::runtime)
}

/// Returns the plan of the agents.
fn plan(options: &SetOptions, size: u32, start: SystemTime) -> Result<String, Failure> {
    let local = ["size", "start-at", "start-in", "slo"];
    let shared: SetOptions =
        options.iter().filter(|option| !local.contains(&option.name.as_str())).cloned().collect();
    let (plan, not_included) = with_files(&shared)?;
    for path in not_included {
        eprintln!("'{path}' is not sent to the agents; each reads its own copy");
    }
    Ok(format!("size = {size}\nstart-at = {}\n{plan}", format_time(start)))
}

/// Formats up to five ranks.
fn format_ranks(ranks: &[u32]) -> String {
    let shown: Vec<_> = ranks.iter().take(5).map(u32::to_string).collect();
    let more = if ranks.len() > shown.len() { " and others" } else { "" };
    format!("rank {}{more}", shown.join(", "))
}
