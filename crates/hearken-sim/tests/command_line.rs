//! The command line: exit status and messages.

use std::process::{Command, Output};

fn sim(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hearken-sim")).args(arguments).output().unwrap()
}

#[test]
fn run_reports_rate_and_coverage() {
    let output = sim(&["run", "--what", "server", "--seeds", "0..20", "--jobs", "1", "--verify"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("server: 20 histories") && text.contains("states"), "{text}");
    assert!(text.contains("2 traces compared with another process, 0 are different"), "{text}");
}

#[test]
fn replay_prints_completions_in_virtual_time() {
    let output = sim(&["replay", "1", "--what", "server", "--level", "io"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{text}");
    for expected in ["worker 0", "clients", "Accepted", "connects", "no finding"] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[test]
fn invalid_arguments_exit_with_2_and_missing_files_with_1() {
    assert_eq!(sim(&["run", "--what", "none"]).status.code(), Some(2));
    assert_eq!(sim(&["run", "--what", "server", "--seeds", "5..5"]).status.code(), Some(2));
    let output = sim(&["replay", "/none/history.txt"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1));
    assert!(text.contains("cannot read history '/none/history.txt'"), "{text}");
}
