//! Histories of every kind: no finding, and the same trace in every process.

use std::process::Command;

use hearken_sim::campaign::{self, Campaign};
use hearken_sim::history::{self, Source};
use hearken_sim::history_file::HistoryFile;
use hearken_sim::kinds;
use hearken_sim::selection::Selection;
use hearken_sim::shrink;
use std::time::Duration;

/// Number of histories per kind. They take a few seconds without optimisation.
const HISTORIES: u64 = 300;

#[test]
fn histories_of_all_kinds_have_no_finding() {
    for &kind in kinds::all() {
        let campaign = Campaign {
            kind,
            seeds: 0..HISTORIES,
            selection: Selection::default(),
            jobs: 2,
            time: None,
            keep_going: true,
        };
        let summary = campaign::run(&campaign, |_| ());
        assert_eq!(summary.histories, HISTORIES);
        let findings = summary.findings.values();
        let findings: Vec<_> = findings
            .map(|found| format!("{} seed {}: {}", kind.name(), found.seed, found.finding))
            .collect();
        assert!(findings.is_empty(), "{}", findings.join("\n"));
        assert!(summary.events > 10 * HISTORIES && summary.features.len() > 50);
    }
}

#[test]
fn other_processes_see_the_same_traces() {
    for kind in kinds::all() {
        let output = Command::new(env!("CARGO_BIN_EXE_hearken-sim"))
            .args(["hashes", "--what", kind.name(), "--seeds", "0..200"])
            .output()
            .unwrap();
        let theirs = String::from_utf8(output.stdout).unwrap();
        let ours: String = campaign::hashes(*kind, 0..200, Selection::default())
            .map(|(seed, hash)| format!("{seed} {hash:016x}\n"))
            .collect();
        assert_eq!(ours, theirs, "{}", kind.name());
    }
}

#[test]
fn decisions_repeat_the_history_of_a_seed() {
    for &kind in kinds::all() {
        for seed in 0..20 {
            let of_seed = history::run(kind, &Source::Seed(seed, Selection::default()), None);
            let file = HistoryFile { kind, decisions: of_seed.decisions.clone() };
            let stored = HistoryFile::parse(&file.render(of_seed.finding.as_ref())).unwrap();
            assert_eq!(stored.decisions, of_seed.decisions);
            let repeated = history::run(kind, &Source::Bytes(stored.decisions), None);
            assert_eq!(repeated.hash, of_seed.hash, "{} seed {seed}", kind.name());
        }
    }
}

#[test]
fn benign_decisions_have_no_finding_to_shrink() {
    for &kind in kinds::all() {
        let source = Source::Bytes(Vec::new());
        assert!(history::run(kind, &source, None).events > 0);
        assert!(shrink::shrink(kind, &source, Duration::from_secs(1)).is_none());
    }
}
