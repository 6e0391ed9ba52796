//! Counters on what is watched, and in sentences what cannot be counted.

use super::cgroup::Group;
use crate::counters::{Counters, Refusal, Whom};
use crate::meter::Meter;

/// Threads that get counters: each takes four descriptors.
const MOST_COUNTED: usize = 256;

/// Counters on the group where that is allowed, else on each thread of `members` and what it starts.
pub(super) fn attach(group: Option<&Group>, members: &[i32]) -> (Counters, Vec<String>) {
    let mut refusals = Vec::new();
    let dir = group.and_then(|group| group.open().ok());
    if let (Some(dir), Some(processors)) = (dir, online()) {
        let counters = Counters::attach_all(Whom::Group(&dir, &processors), &mut refusals);
        if counters.any() {
            return (counters, sentences(&refusals));
        }
        refusals.clear();
    }
    let threads = |&pid: &i32| Meter::look(pid).ok().and_then(|meter| meter.threads().ok());
    let threads = members.iter().filter_map(threads).flatten().collect::<Vec<_>>();
    if threads.len() > MOST_COUNTED {
        let too_many = format!(
            "instructions, cycles and system calls: {} threads are too many to count each (at most \
             {MOST_COUNTED})",
            threads.len()
        );
        return (Counters::default(), vec![too_many]);
    }
    let counters = Counters::attach_all(Whom::Families(&threads), &mut refusals);
    (counters, sentences(&refusals))
}

/// A sentence for each reason.
fn sentences(refusals: &[Refusal]) -> Vec<String> {
    let mut reasons: Vec<(&Refusal, Vec<&str>)> = Vec::new();
    for refusal in refusals {
        let same = |(known, _): &&mut (&Refusal, _)| {
            (&known.error, &known.advice) == (&refusal.error, &refusal.advice)
        };
        match reasons.iter_mut().find(same) {
            Some((_, what)) => what.push(&refusal.what),
            None => reasons.push((refusal, vec![&refusal.what])),
        }
    }
    let sentence = |(reason, what): (&Refusal, Vec<&str>)| {
        let Refusal { call, error, advice, .. } = reason;
        // The details of the call differ where there are several.
        let call = if what.len() > 1 { call.split('(').next().unwrap_or(call) } else { call };
        format!("{}: {call}: {error}. {advice}", what.join(", "))
    };
    reasons.into_iter().map(sentence).collect()
}

/// The processors that are there, for counters that are on each.
fn online() -> Option<Vec<usize>> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").ok()?;
    ranges(text.trim())
}

/// `0-2,5` as numbers.
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
    fn processors_are_listed_in_ranges() {
        assert_eq!(ranges("0"), Some(vec![0]));
        assert_eq!(ranges("0-2,5"), Some(vec![0, 1, 2, 5]));
        for odd in ["", "a", "3-1", "0-99999999", "1,"] {
            assert_eq!(ranges(odd), None, "{odd}");
        }
        assert!(online().is_none_or(|processors| !processors.is_empty()));
    }

    #[test]
    fn what_has_one_reason_is_one_sentence() {
        let refusal = |what: &str, call: &str, error: &str| Refusal {
            what: what.into(),
            call: call.into(),
            error: error.into(),
            advice: "Do it.".into(),
        };
        let refusals = [
            refusal("cycles", "open(a)", "none"),
            refusal("system calls", "open(b)", "denied"),
            refusal("instructions", "open(c)", "none"),
        ];
        let expected =
            ["cycles, instructions: open: none. Do it.", "system calls: open(b): denied. Do it."];
        assert_eq!(sentences(&refusals), expected);
    }
}
