//! The driver as a process, with few contenders and few events. The tests check no durations.

use std::process::{Command, Output};

use serde_json::Value;

fn dispatch(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dispatch"));
    command.args(arguments).output().expect("dispatch should start")
}

/// Arguments for the shortest possible run.
const SHORT_RUN: [&str; 8] =
    ["--repetitions=1", "--passes=1", "--pass-ms=1", "--max-steps=0", "-n", "8,16", "-a", "1,4"];

fn run(arguments: &[&str]) -> Value {
    let output = dispatch(&[&SHORT_RUN[..], &["--json"], arguments].concat());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} {stderr}", output.status);
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn every_selected_contender_has_a_result_in_every_cell() {
    let report = run(&["--only=poll/,epoll-edge/,mio,polling"]);
    assert_eq!(report["schema"], "hearken-bench-dispatch/2");
    assert_eq!(report["failures"], Value::Array(Vec::new()));
    let samples = report["samples"].as_array().unwrap();
    let expected = ["bare", "registry", "dyn", "queue", "poller"]
        .iter()
        .flat_map(|api| [format!("poll/{api}"), format!("epoll-edge/{api}")])
        .chain(["baseline", "mio", "polling-oneshot"].map(String::from));
    for name in expected {
        for (descriptors, active) in [(8, 1), (8, 4), (16, 1), (16, 4)] {
            let own = samples.iter().filter(|sample| {
                sample["contender"] == name.as_str()
                    && sample["descriptors"] == descriptors
                    && sample["active"] == active
            });
            let events: Vec<u64> =
                own.map(|sample| sample["passes"][0]["events"].as_u64().unwrap()).collect();
            assert_eq!(events.len(), 1, "{name} {descriptors} {active}");
            assert!(events[0] >= 2 * active, "{name}: {events:?}");
        }
    }
    let cells = report["cells"].as_array().unwrap();
    assert_eq!(cells.len(), samples.len(), "one cell per sample with one repetition");
}

#[test]
fn pipes_can_be_measured() {
    let report = run(&["--descriptor-type=pipes", "--only=poll/registry"]);
    let measured = report["cells"].as_array().unwrap().iter();
    assert!(measured.filter(|cell| cell["contender"] == "poll/registry").count() == 4);
}

#[test]
fn every_mechanism_is_available_or_has_a_reason() {
    let list = String::from_utf8(dispatch(&["list"]).stdout).unwrap();
    for entry in hearken::mechanism::TABLE {
        let available = list.lines().any(|line| line.starts_with(&format!("{}/bare", entry.name)));
        let unavailable = list.lines().any(|line| line.starts_with(&format!("({}", entry.name)));
        assert!(available || unavailable, "{} is not in:\n{list}", entry.name);
    }
}

#[test]
fn tracing_counts_system_calls() {
    let short = ["--repetitions=1", "--passes=1", "--pass-ms=1", "-n=8", "-a=1", "--json"];
    let traced = ["--max-steps=100000", "--only=epoll-edge/bare,sigio-handler"];
    let output = dispatch(&[&short[..], &traced].concat());
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    for cell in report["cells"].as_array().unwrap() {
        let name = cell["contender"].as_str().unwrap();
        // A machine that forbids tracing reports failures.
        let forbidden = report["failures"].to_string().contains(name);
        let expected = if name.starts_with("baseline") { 2.0 } else { 3.0 };
        assert!(forbidden || cell["system_calls"] == expected, "{cell}");
        assert!(forbidden || cell["user"].as_f64().unwrap() > 10.0, "{cell}");
    }
}

#[test]
fn rejects_invalid_arguments() {
    for arguments in [&["-n", "4", "-a", "5"][..], &["--passes", "0"], &["-n", "x"], &["--unknown"]]
    {
        let output = dispatch(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!output.stderr.is_empty());
    }
    assert_eq!(dispatch(&["measure", "unknown", "--descriptors=4"]).status.code(), Some(2));
    let unknown =
        ["measure", "unknown", "--descriptors=4", "--active=1", "--descriptor-type=pipes"];
    let unknown = [&unknown[..], &["--passes=1", "--pass-ns=1000"]].concat();
    let output = dispatch(&unknown);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("unknown"));
}

#[test]
fn show_prints_the_table_of_an_earlier_run() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().to_str().unwrap();
    let output = dispatch(&[&SHORT_RUN[..], &["--only=mio", "--out", out]].concat());
    let page = String::from_utf8(output.stdout).unwrap();
    assert!(page.contains("| mio |"), "{page}");
    let results = directory.path().join("results.json");
    let shown = dispatch(&["show", results.to_str().unwrap()]);
    assert_eq!(String::from_utf8(shown.stdout).unwrap(), page);
    assert_eq!(std::fs::read_to_string(directory.path().join("table.md")).unwrap(), page);
}
