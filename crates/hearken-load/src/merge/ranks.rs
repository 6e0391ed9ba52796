//! The ranks of the parts of a load.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::merge::MergeError;
use crate::report::{Part, Report};

/// Maximum number of rank ranges that a message lists.
const MAX_NAMED: usize = 10;

/// The parts by rank with their start times. Empty if the results have no ranks.
pub(super) struct Ranks(BTreeMap<u32, (Part, u64)>);

/// Returns the parts that a result consists of.
pub(super) fn parts_of(report: &Report) -> impl Iterator<Item = Part> {
    report.part.into_iter().chain(report.parts.iter().copied())
}

/// Returns the lowest rank in a result.
pub(super) fn lowest_rank(report: &Report) -> Option<u32> {
    parts_of(report).map(|part| part.rank).min()
}

impl Ranks {
    pub(super) fn from_reports(reports: &[Report]) -> Result<Ranks, MergeError> {
        let mut ranks = BTreeMap::new();
        let size = reports.iter().flat_map(parts_of).map(|part| part.size).next();
        for (index, report) in reports.iter().enumerate() {
            let (mut any, mut doubled) = (false, Vec::new());
            for part in parts_of(report) {
                any = true;
                let Part { rank, size: other, .. } = part;
                if rank >= other {
                    return Err(MergeError::RankOutOfRange { index, rank, size: other });
                }
                if let Some(expected) = size.filter(|&size| size != other) {
                    return Err(MergeError::SizeMismatch { index, expected, found: other });
                }
                // A merged result contains the start times of its parts only as their scheduled
                // start and delay.
                let started = part
                    .scheduled_start_unix_ns
                    .map(|start| start.saturating_add(part.start_delay_ns))
                    .unwrap_or(report.started_unix_ns);
                if ranks.insert(rank, (part, started)).is_some() {
                    doubled.push((rank, rank));
                }
            }
            if !any && size.is_some() {
                return Err(MergeError::MissingRank { index });
            }
            if !doubled.is_empty() {
                doubled.sort_unstable();
                return Err(MergeError::Duplicate { index, ranks: format_ranks(&doubled) });
            }
        }
        Ok(Ranks(ranks))
    }

    /// Returns the number of parts of the load.
    pub(super) fn size(&self) -> u32 {
        self.0.values().next().map_or(0, |(part, _)| part.size)
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns the parts by rank, with their start times.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Part, u64)> {
        self.0.values().copied()
    }

    /// Returns the ranges of missing ranks. Their number is at most the number of parts plus one,
    /// even for a huge size.
    pub(super) fn missing(&self) -> Vec<(u32, u32)> {
        let (mut gaps, mut next) = (Vec::new(), 0);
        for &rank in self.0.keys() {
            if rank > next {
                gaps.push((next, rank - 1));
            }
            next = rank + 1;
        }
        if next < self.size() {
            gaps.push((next, self.size() - 1));
        }
        gaps
    }

    pub(super) fn into_parts(self) -> Vec<Part> {
        self.0.into_values().map(|(part, _)| part).collect()
    }
}

/// Formats ranges of ranks: "rank 3", "ranks 2, 5-7".
pub(super) fn format_ranks(runs: &[(u32, u32)]) -> String {
    let mut joined: Vec<(u32, u32)> = Vec::new();
    for &(from, to) in runs {
        match joined.last_mut() {
            Some(last) if last.1.checked_add(1) == Some(from) => last.1 = to,
            _ => joined.push((from, to)),
        }
    }
    let one = matches!(&joined[..], &[(from, to)] if from == to);
    let mut text = if one { "rank" } else { "ranks" }.to_owned();
    for (index, (from, to)) in joined.iter().take(MAX_NAMED).enumerate() {
        text += if index > 0 { ", " } else { " " };
        // Writing to a String does not fail.
        let _ = if from == to { write!(text, "{from}") } else { write!(text, "{from}-{to}") };
    }
    if joined.len() > MAX_NAMED {
        text += " and others";
    }
    text
}
