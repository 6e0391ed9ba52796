//! Counters of a watched server, and messages about those that are not available.

use super::cgroup::Cgroup;
use crate::accounting::ProcessAccounting;
use crate::counters::{CounterScope, Counters, UnavailableCounter};

/// Maximum number of threads with counters. Each thread takes four descriptors.
const MAX_THREADS: usize = 256;

/// Attaches counters to the cgroup if permitted, otherwise to each thread of `members`.
pub(super) fn attach(group: Option<&Cgroup>, members: &[i32]) -> (Counters, Vec<String>) {
    let mut unavailable = Vec::new();
    let dir = group.and_then(|group| group.open_dir().ok());
    if let (Some(dir), Some(processors)) = (dir, online()) {
        let counters =
            Counters::attach_all(CounterScope::Cgroup(&dir, &processors), &mut unavailable);
        if counters.is_any_attached() {
            return (counters, sentences(&unavailable));
        }
        unavailable.clear();
    }
    let threads = |&pid: &i32| {
        ProcessAccounting::try_open(pid).ok().and_then(|accounting| accounting.threads().ok())
    };
    let threads = members.iter().filter_map(threads).flatten().collect::<Vec<_>>();
    if threads.len() > MAX_THREADS {
        let too_many = format!(
            "instructions, cycles and system calls: {} threads are too many (at most {MAX_THREADS} \
             are counted)",
            threads.len()
        );
        return (Counters::default(), vec![too_many]);
    }
    let counters =
        Counters::attach_all(CounterScope::ThreadsAndDescendants(&threads), &mut unavailable);
    (counters, sentences(&unavailable))
}

/// Formats one sentence for each distinct error.
fn sentences(unavailable: &[UnavailableCounter]) -> Vec<String> {
    let mut reasons: Vec<(&UnavailableCounter, Vec<&str>)> = Vec::new();
    for missing in unavailable {
        let same = |(known, _): &&mut (&UnavailableCounter, _)| {
            (&known.error, &known.hint) == (&missing.error, &missing.hint)
        };
        match reasons.iter_mut().find(same) {
            Some((_, names)) => names.push(&missing.counter),
            None => reasons.push((missing, vec![&missing.counter])),
        }
    }
    let sentence = |(reason, names): (&UnavailableCounter, Vec<&str>)| {
        let UnavailableCounter { call, error, hint, .. } = reason;
        // The arguments of the call are omitted if they differ.
        let call = if names.len() > 1 { call.split('(').next().unwrap_or(call) } else { call };
        format!("{}: {call}: {error}. {hint}", names.join(", "))
    };
    reasons.into_iter().map(sentence).collect()
}

/// Returns the online processors.
fn online() -> Option<Vec<usize>> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").ok()?;
    ranges(text.trim())
}

/// Parses a list of ranges such as `0-2,5`.
fn ranges(text: &str) -> Option<Vec<usize>> {
    const MOST: usize = 8_192;
    let mut all = Vec::new();
    for range in text.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last >= MOST || all.len() > MOST {
            return None;
        }
        all.extend(first..=last);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_ranges_of_processors() {
        assert_eq!(ranges("0"), Some(vec![0]));
        assert_eq!(ranges("0-2,5"), Some(vec![0, 1, 2, 5]));
        for odd in ["", "a", "3-1", "0-99999999", "1,"] {
            assert_eq!(ranges(odd), None, "{odd}");
        }
        assert!(online().is_none_or(|processors| !processors.is_empty()));
    }

    #[test]
    fn merges_counters_with_the_same_error() {
        let missing = |name: &str, call: &str, error: &str| UnavailableCounter {
            counter: name.into(),
            call: call.into(),
            error: error.into(),
            hint: "Do it.".into(),
        };
        let unavailable = [
            missing("cycles", "open(a)", "none"),
            missing("system calls", "open(b)", "denied"),
            missing("instructions", "open(c)", "none"),
        ];
        let expected =
            ["cycles, instructions: open: none. Do it.", "system calls: open(b): denied. Do it."];
        assert_eq!(sentences(&unavailable), expected);
    }
}
