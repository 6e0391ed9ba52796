//! What `hearken load` writes besides JSON: labels, colours, test cases and job summaries.

use std::fs;

use serde_json::Value;

use crate::program::{fails_with, hearken, run, serve, site, text};

#[test]
fn labels_are_stored_in_the_result() {
    let dir = site();
    let (_server, url) = serve(dir.path(), &[]);
    let load = ["load", &url, "--rate", "100", "--duration", "100ms"];
    let labels = ["--label", "commit=1a2b", "--label", "note=a = b"];
    for more in [&[][..], &["--on", "local:2"]] {
        let output = run(&[&load[..], &labels, more, &["--json", "-"]].concat());
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let expected = serde_json::json!({ "commit": "1a2b", "note": "a = b" });
        assert_eq!(report["labels"], expected, "{}", text(&output.stderr));
    }
    let output = run(&[&load[..], &labels].concat());
    let summary = text(&output.stdout);
    assert!(summary.contains("  labels     commit=1a2b, note=a = b\n"), "{summary}");
    for (label, message) in [("x", "expected KEY=VALUE"), ("=x", "expected KEY=VALUE")] {
        fails_with(&[&load[..], &["--label", label]].concat(), message);
    }
    fails_with(&[&load[..], &["--label", "a=1", "--label", "a=2"]].concat(), "'a' is set twice");
}

#[test]
fn only_terminals_get_colours() {
    let dir = site();
    let (_server, url) = serve(dir.path(), &[]);
    let args = ["load", &url, "--rate", "100", "--duration", "100ms", "--slo", "p50<1ns"];
    let coloured = |variable: &str| {
        let output = hearken(&args).env_remove("NO_COLOR").env(variable, "1").output().unwrap();
        let summary = text(&output.stdout).to_owned();
        assert!(summary.contains("  objective  p50 < 1 ns: not met, "), "{summary}");
        summary.contains('\x1b')
    };
    assert!(!coloured("NO_COLOR") && !coloured("HEARKEN_OTHER"));
    assert!(coloured("CLICOLOR_FORCE"));
}

#[test]
fn objectives_are_written_as_junit_test_cases() {
    let dir = site();
    let (_server, url) = serve(dir.path(), &[]);
    let junit = dir.path().join("junit.xml");
    let path = junit.to_str().unwrap();
    let load = ["load", &url, "--rate", "100", "--duration", "200ms"];
    let output = run(&[&load[..], &["--junit", path, "--slo", "p50<1ns,errors<1%"]].concat());
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    let xml = fs::read_to_string(&junit).unwrap();
    for expected in [
        "<testsuites tests=\"3\" failures=\"1\" errors=\"0\"",
        "name=\"requests succeeded\"/>",
        "name=\"p50&lt;1ns\">\n      <failure message=\"p50 &lt; 1 ns: not met, ",
        "name=\"errors&lt;1%\"/>",
    ] {
        assert!(xml.contains(expected), "{expected}: {xml}");
    }
    let json = dir.path().join("result.json");
    let json = json.to_str().unwrap();
    assert!(run(&[&load[..], &["--json", json]].concat()).status.success());
    let shown = run(&["load", "show", json, "--junit", "-"]);
    assert!(text(&shown.stdout).starts_with("<?xml version=\"1.0\""), "{shown:?}");
    fails_with(&[&load[..], &["--json", path, "--junit", path]].concat(), "--json and --junit");
}

#[test]
fn job_summaries_are_appended() {
    let dir = site();
    let (_server, url) = serve(dir.path(), &[]);
    let summary = dir.path().join("summary.md");
    fs::write(&summary, "before\n\n").unwrap();
    let load = ["load", &url, "--rate", "100", "--duration", "100ms", "--github-summary"];
    for _ in 0..2 {
        let output = hearken(&load).env("GITHUB_STEP_SUMMARY", &summary).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    let text_of = fs::read_to_string(&summary).unwrap();
    assert!(text_of.starts_with("before\n\n### hearken load http://127.0.0.1:"), "{text_of}");
    assert_eq!(text_of.matches("| load | 100.0 requests/s for 0.1 s |").count(), 2, "{text_of}");
    let mut without = hearken(&load);
    let output = without.env_remove("GITHUB_STEP_SUMMARY").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("$GITHUB_STEP_SUMMARY is not set"), "{output:?}");
}
