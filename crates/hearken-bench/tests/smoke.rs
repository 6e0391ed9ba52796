//! The driver, with a few contenders and hardly any events: does it measure and say what it should?
//! Nothing here looks at how long anything took.

use std::process::{Command, Output};

use serde_json::Value;

fn dispatch(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dispatch"));
    command.args(arguments).output().expect("the program starts")
}

/// The least there is to do.
const TINY: [&str; 8] =
    ["--repetitions=1", "--passes=1", "--pass-ms=1", "--steps=0", "-n", "8,16", "-a", "1,4"];

fn run(arguments: &[&str]) -> Value {
    let output = dispatch(&[&TINY[..], &["--json"], arguments].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} {said}", output.status);
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn everyone_asked_for_is_in_every_cell() {
    let report = run(&["--only=poll/,epoll-edge/,mio,polling"]);
    assert_eq!(report["schema"], "hearken-bench-dispatch/1");
    assert_eq!(report["failures"], Value::Array(Vec::new()));
    let samples = report["samples"].as_array().unwrap();
    let expected = ["bare", "registry", "dyn", "queue"]
        .iter()
        .flat_map(|door| [format!("poll/{door}"), format!("epoll-edge/{door}")])
        .chain(["floor", "mio", "polling-oneshot"].map(String::from));
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
    assert_eq!(cells.len(), samples.len(), "one repetition makes a cell");
}

#[test]
fn pipes_too() {
    let report = run(&["--over=pipes", "--only=poll/registry"]);
    let measured = report["cells"].as_array().unwrap().iter();
    assert!(measured.filter(|cell| cell["contender"] == "poll/registry").count() == 4);
}

#[test]
fn every_mechanism_can_be_measured_or_says_why_not() {
    let list = String::from_utf8(dispatch(&["list"]).stdout).unwrap();
    for entry in hearken::mechanism::TABLE {
        let there = list.lines().any(|line| line.starts_with(&format!("{}/bare", entry.name)));
        let absent = list.lines().any(|line| line.starts_with(&format!("({}", entry.name)));
        assert!(there || absent, "{} is not in:\n{list}", entry.name);
    }
}

#[test]
fn tracing_counts_system_calls() {
    let tiny = ["--repetitions=1", "--passes=1", "--pass-ms=1", "-n=8", "-a=1", "--json"];
    let traced = ["--steps=100000", "--only=epoll-edge/bare"];
    let output = dispatch(&[&tiny[..], &traced].concat());
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    for cell in report["cells"].as_array().unwrap() {
        let name = cell["contender"].as_str().unwrap();
        // A machine that forbids tracing says so among the failures.
        let forbidden = report["failures"].to_string().contains(name);
        let expected = if name.starts_with("floor") { 2.0 } else { 3.0 };
        assert!(forbidden || cell["calls"] == expected, "{cell}");
        assert!(forbidden || cell["user"].as_f64().unwrap() > 10.0, "{cell}");
    }
}

#[test]
fn what_is_not_so_is_refused() {
    for wrong in [&["-n", "4", "-a", "5"][..], &["--passes", "0"], &["-n", "x"], &["--nothing"]] {
        let output = dispatch(wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        assert!(!output.stderr.is_empty());
    }
    assert_eq!(dispatch(&["contend", "nobody", "--descriptors=4"]).status.code(), Some(2));
    let nobody = ["contend", "nobody", "--descriptors=4", "--active=1", "--over=pipes"];
    let nobody = [&nobody[..], &["--passes=1", "--pass-ns=1000"]].concat();
    let output = dispatch(&nobody);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("nobody"));
}

#[test]
fn a_result_can_be_shown_again() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().to_str().unwrap();
    let output = dispatch(&[&TINY[..], &["--only=mio", "--out", out]].concat());
    let page = String::from_utf8(output.stdout).unwrap();
    assert!(page.contains("| mio |"), "{page}");
    let results = directory.path().join("results.json");
    let shown = dispatch(&["show", results.to_str().unwrap()]);
    assert_eq!(String::from_utf8(shown.stdout).unwrap(), page);
    assert_eq!(std::fs::read_to_string(directory.path().join("table.md")).unwrap(), page);
}
