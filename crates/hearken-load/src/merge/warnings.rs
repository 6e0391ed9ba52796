//! What casts doubt on a merged result: what the parts say, and what only all of them can tell.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::merge::ranks::{self, Ranks, format_ranks};
use crate::report::Report;
use crate::summary::HumanDuration;

/// In front of what is said of all parts together. It is said anew when more are merged.
const MERGE_PREFIX: &str = "merge: ";

/// The warnings of the parts, each once if all have it and otherwise with the ranks in front; and
/// those of the whole.
pub(super) fn merge_warnings(parts: &[&Report], ranks: &Ranks, bound: Duration) -> Vec<String> {
    let mut order = Vec::new();
    let mut told = BTreeMap::<String, BTreeSet<Option<u32>>>::new();
    for (text, rank) in parts.iter().flat_map(|part| warnings_by_rank(part)) {
        let by = told.entry(text.clone()).or_insert_with(|| {
            order.push(text);
            BTreeSet::new()
        });
        by.insert(rank);
    }
    let mut warnings = warnings_of_all(parts, ranks, bound);
    for text in order {
        let by = &told[&text];
        if by.len() >= ranks.count().max(1) {
            warnings.push(text);
        } else {
            let ranks = by.iter().flatten();
            warnings.extend(ranks.map(|rank| format!("rank {rank}: {text}")));
        }
    }
    warnings
}

/// What a part says, with the ranks that say it. One that was merged says it of some or all.
fn warnings_by_rank(part: &Report) -> Vec<(String, Option<u32>)> {
    let all: Vec<u32> = ranks::parts_of(part).map(|part| part.rank).collect();
    let mut said = Vec::new();
    for warning in part.warnings.iter().filter(|warning| !warning.starts_with(MERGE_PREFIX)) {
        let one = warning.strip_prefix("rank ").and_then(|rest| rest.split_once(": "));
        let one = one.and_then(|(rank, text)| Some((rank.parse().ok()?, text)));
        match one.filter(|(rank, _)| all.contains(rank)) {
            Some((rank, text)) => said.push((text.to_owned(), Some(rank))),
            None if all.is_empty() => said.push((warning.clone(), None)),
            None => said.extend(all.iter().map(|&rank| (warning.clone(), Some(rank)))),
        }
    }
    said
}

fn warnings_of_all(parts: &[&Report], ranks: &Ranks, bound: Duration) -> Vec<String> {
    let mut warnings = Vec::new();
    let bound_ns = u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX);
    let missing = ranks.missing();
    if !missing.is_empty() {
        warnings.push(format!(
            "{MERGE_PREFIX}of {} parts, {} are missing: all numbers are of the other {}",
            ranks.size(),
            format_ranks(&missing),
            ranks.count()
        ));
    }
    let mut starts: Vec<(u64, String)> =
        ranks.iter().map(|(part, at)| (at, format!("rank {}", part.rank))).collect();
    if starts.is_empty() {
        starts.extend(parts.iter().map(|part| (part.started_unix_ns, "one".to_owned())));
    }
    if let (Some(first), Some(last)) = (starts.iter().min(), starts.iter().max())
        && last.0 - first.0 > bound_ns
    {
        warnings.push(format!(
            "{MERGE_PREFIX}the parts started {} apart, {} first and {} last; more than {} shifts what is \
             told of the intervals",
            HumanDuration(last.0 - first.0),
            first.1,
            last.1,
            HumanDuration(bound_ns)
        ));
    }
    let of = |wanted: fn(&crate::report::Part, u64) -> bool| {
        let those = ranks.iter().filter(|(part, _)| wanted(part, bound_ns));
        those.map(|(part, _)| (part.rank, part.rank)).collect::<Vec<_>>()
    };
    let adrift = of(|part, _| part.clock_synchronised == Some(false));
    if !adrift.is_empty() {
        warnings.push(format!(
            "{MERGE_PREFIX}the clock of {} is not synchronised (adjtimex): when it started is not known \
             by the others' clocks; run chronyd or ntpd there",
            format_ranks(&adrift)
        ));
    }
    let wrong = of(|part, bound| {
        let error = part.clock_max_error_us.unwrap_or(0).saturating_mul(1000);
        part.clock_synchronised != Some(false) && error > bound
    });
    if !wrong.is_empty() {
        let errors = ranks.iter().filter_map(|(part, _)| part.clock_max_error_us);
        warnings.push(format!(
            "{MERGE_PREFIX}the clock of {} may be wrong by more than {} (up to {})",
            format_ranks(&wrong),
            HumanDuration(bound_ns),
            HumanDuration(errors.max().unwrap_or(0).saturating_mul(1000))
        ));
    }
    let watching = parts.iter().filter(|part| part.server.is_some()).count();
    if watching > 1 {
        let text = "several parts watched a server: what the first of them saw is kept";
        warnings.push(format!("{MERGE_PREFIX}{text}"));
    }
    warnings
}
