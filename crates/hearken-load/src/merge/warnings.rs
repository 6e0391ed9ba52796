//! Warnings of a merged result: warnings of its parts, and warnings about all parts.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::merge::ranks::{self, Ranks, format_ranks};
use crate::report::Report;
use crate::summary::HumanDuration;

/// Prefix of warnings about all parts. They are generated anew if further parts are merged.
const MERGE_PREFIX: &str = "merge: ";

/// Merges the warnings of the parts, and adds those about all parts. A warning of all parts is
/// listed once, others with the ranks of their parts.
pub(super) fn merge_warnings(parts: &[&Report], ranks: &Ranks, bound: Duration) -> Vec<String> {
    let mut order = Vec::new();
    let mut ranks_by_text = BTreeMap::<String, BTreeSet<Option<u32>>>::new();
    for (text, rank) in parts.iter().flat_map(|part| warnings_by_rank(part)) {
        let by = ranks_by_text.entry(text.clone()).or_insert_with(|| {
            order.push(text);
            BTreeSet::new()
        });
        by.insert(rank);
    }
    let mut warnings = warnings_of_all(parts, ranks, bound);
    for text in order {
        let by = &ranks_by_text[&text];
        if by.len() >= ranks.count().max(1) {
            warnings.push(text);
        } else {
            let ranks = by.iter().flatten();
            warnings.extend(ranks.map(|rank| format!("rank {rank}: {text}")));
        }
    }
    warnings
}

/// Returns the warnings of a result with their ranks. A warning of a merged result belongs to some
/// or all of its ranks.
fn warnings_by_rank(part: &Report) -> Vec<(String, Option<u32>)> {
    let all: Vec<u32> = ranks::parts_of(part).map(|part| part.rank).collect();
    let mut warnings = Vec::new();
    for warning in part.warnings.iter().filter(|warning| !warning.starts_with(MERGE_PREFIX)) {
        let one = warning.strip_prefix("rank ").and_then(|rest| rest.split_once(": "));
        let one = one.and_then(|(rank, text)| Some((rank.parse().ok()?, text)));
        match one.filter(|(rank, _)| all.contains(rank)) {
            Some((rank, text)) => warnings.push((text.to_owned(), Some(rank))),
            None if all.is_empty() => warnings.push((warning.clone(), None)),
            None => warnings.extend(all.iter().map(|&rank| (warning.clone(), Some(rank)))),
        }
    }
    warnings
}

fn warnings_of_all(parts: &[&Report], ranks: &Ranks, bound: Duration) -> Vec<String> {
    let mut warnings = Vec::new();
    let bound_ns = u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX);
    let missing = ranks.missing();
    if !missing.is_empty() {
        warnings.push(format!(
            "{MERGE_PREFIX}of {} parts, {} are missing: all values cover only the other {}",
            ranks.size(),
            format_ranks(&missing),
            ranks.count()
        ));
    }
    let mut starts: Vec<(u64, String)> =
        ranks.iter().map(|(part, at)| (at, format!("rank {}", part.rank))).collect();
    if starts.is_empty() {
        starts.extend(parts.iter().map(|part| (part.started_unix_ns, "a part".to_owned())));
    }
    if let (Some(first), Some(last)) = (starts.iter().min(), starts.iter().max())
        && last.0 - first.0 > bound_ns
    {
        warnings.push(format!(
            "{MERGE_PREFIX}the parts started {} apart, {} first and {} last; more than {} distorts the \
             intervals",
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
    let unsynchronised = of(|part, _| part.clock_synchronised == Some(false));
    if !unsynchronised.is_empty() {
        warnings.push(format!(
            "{MERGE_PREFIX}the clock of {} is not synchronised (adjtimex), so its start time may be wrong; \
             run chronyd or ntpd there",
            format_ranks(&unsynchronised)
        ));
    }
    let inaccurate = of(|part, bound| {
        let error = part.clock_max_error_us.unwrap_or(0).saturating_mul(1000);
        part.clock_synchronised != Some(false) && error > bound
    });
    if !inaccurate.is_empty() {
        let errors = ranks.iter().filter_map(|(part, _)| part.clock_max_error_us);
        warnings.push(format!(
            "{MERGE_PREFIX}the clock of {} may be wrong by more than {} (up to {})",
            format_ranks(&inaccurate),
            HumanDuration(bound_ns),
            HumanDuration(errors.max().unwrap_or(0).saturating_mul(1000))
        ));
    }
    let watching = parts.iter().filter(|part| part.server.is_some()).count();
    if watching > 1 {
        let text = "several parts monitored a server: only the record of the first part is kept";
        warnings.push(format!("{MERGE_PREFIX}{text}"));
    }
    warnings
}
