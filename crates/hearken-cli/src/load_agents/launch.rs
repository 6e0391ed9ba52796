//! Starting agents, by srun, mpirun or ourselves, and adding up what they found.
//!
//! No file system is shared: the plan goes as an argument, with the files that it names, and the
//! results come back on standard output.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use hearken_load::{Report, merge};

use super::agent::{in_time, shown};
use super::place::{Where, commands};
use super::processes::Processes;
use super::{Failed, ManyArgs};
use crate::Failure;
use crate::load_plan::{AllGiven, with_files};

/// Starts agents, waits for them, and adds up their results.
pub(super) fn launch(args: &ManyArgs, given: &AllGiven, place: Where) -> Result<Report, Failure> {
    let size = place.size();
    if args.size.is_some_and(|other| other != size) {
        return Err(Failure::usage(format!(
            "--size is not the number of agents that --on gives, {size}"
        )));
    }
    let lead = Duration::from_secs(if matches!(place, Where::Local(_)) { 1 } else { 5 });
    let lead = args.start_in.unwrap_or(lead);
    let start = args.start_at.unwrap_or_else(|| SystemTime::now() + lead);
    in_time(start)?;
    let plan = plan(given, size, start)?;
    let mut agents = Processes::start(commands(args, place, &plan)?)?;
    eprintln!("{size} agents on {place}; the start is at {}", shown(start));
    let results = agents.results(size);
    let (problem, interrupted) = agents.end();
    let (mut parts, mut failed) = (BTreeMap::new(), Vec::new());
    for (rank, text) in results?.whole() {
        if let Ok(failure) = serde_json::from_slice::<Failed>(&text) {
            failed.push(failure);
            continue;
        }
        let part = serde_json::from_slice::<Report>(&text)
            .map_err(|error| Failure::runtime(format!("the result of rank {rank}: {error}")))?;
        parts.insert(rank, part);
    }
    if let Some(Failed { failed, status }) = failed.into_iter().next() {
        return Err(Failure { error: failed.into(), status });
    }
    let missing: Vec<_> = (0..size).filter(|rank| !parts.contains_key(rank)).collect();
    match (problem, missing.is_empty()) {
        _ if interrupted && !parts.is_empty() => {}
        (None, true) => {}
        (Some(problem), _) => return Err(Failure::runtime(problem)),
        (None, false) => {
            return Err(Failure::runtime(format!("there is no result of {}", ranks(&missing))));
        }
    }
    merge(&parts.into_values().collect::<Vec<_>>()).map_err(Failure::runtime)
}

/// The agents' plan.
fn plan(given: &AllGiven, size: u32, start: SystemTime) -> Result<String, Failure> {
    let ours = ["size", "start-at", "start-in", "slo"];
    let theirs: AllGiven =
        given.iter().filter(|option| !ours.contains(&option.name.as_str())).cloned().collect();
    let (plan, left) = with_files(&theirs)?;
    for path in left {
        eprintln!("{path} is not sent along: every agent reads its own");
    }
    Ok(format!("size = {size}\nstart-at = {}\n{plan}", shown(start)))
}

/// A few of them.
fn ranks(ranks: &[u32]) -> String {
    let shown: Vec<_> = ranks.iter().take(5).map(u32::to_string).collect();
    let more = if ranks.len() > shown.len() { " and others" } else { "" };
    format!("rank {}{more}", shown.join(", "))
}
