//! Stored histories, each of which had a finding once, have none.

use std::fs;
use std::path::Path;

use hearken_sim::history::{self, Source};
use hearken_sim::history_file::HistoryFile;

#[test]
fn stored_histories_have_no_finding() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/histories");
    let mut paths: Vec<_> =
        fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    paths.sort();
    let mut findings = Vec::new();
    for path in paths {
        let name = path.display();
        let HistoryFile { kind, decisions } = HistoryFile::read(&path)
            .unwrap_or_else(|error| panic!("cannot read history '{name}': {error}"));
        let outcome = history::run(kind, &Source::Bytes(decisions), None);
        findings.extend(outcome.finding.map(|finding| format!("{name}: {finding}")));
    }
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}
