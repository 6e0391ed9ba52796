//! `hearken load merge | compare | show`, and the files that a load writes.

#[path = "../../../hearken-load/tests/report/fixtures.rs"]
mod fixtures;

use std::fs;
use std::path::Path;

use fixtures::{Piece, part, report};
use hearken_load::Report;
use serde_json::Value;
use tempfile::TempDir;

use crate::program::{refusing, run, text};

/// Asserts that a command fails with exit status 2 and one line of error that contains `names`.
fn assert_rejected(args: &[&str], names: &[&str]) {
    let output = run(args);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(names.iter().all(|name| message.contains(name)), "{names:?}: {message}");
    assert!(output.stdout.is_empty());
}

/// Returns a report with latencies around `millis` that vary between intervals.
fn sample(millis: u64, intervals: u64) -> Report {
    let latencies =
        |at: u64| (0..50).map(move |i| millis * (900_000 + (i * 37 + at * 11) % 200_000));
    let piece = |at| Piece { latencies: latencies(at).collect(), ..Piece::default() };
    report(&(0..intervals).map(piece).collect::<Vec<_>>())
}

/// A temporary directory.
struct Dir(TempDir);

impl Dir {
    fn new() -> Dir {
        Dir(TempDir::new().unwrap())
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    fn write(&self, name: &str, report: &Report) -> String {
        let path = self.path(name);
        fs::write(&path, serde_json::to_string(report).unwrap()).unwrap();
        path
    }
}

fn load(path: impl AsRef<Path>) -> Report {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn help_has_examples() {
    for command in ["merge", "compare", "ab", "show", "specweb"] {
        let output = run(&["load", command, "--help"]);
        assert!(output.status.success());
        assert!(text(&output.stdout).contains("Examples:\n  hearken load "), "{command}");
    }
    let help = run(&["load", "--help"]);
    assert!(text(&help.stdout).contains("Compare two loads statistically"));
    let output = run(&["load"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("<URL>"), "{}", text(&output.stderr));
}

#[test]
fn parts_are_merged() {
    let dir = Dir::new();
    let paths = [0, 1, 2].map(|rank| dir.write(&format!("{rank}"), &part(rank, 3, sample(2, 4))));
    let [a, b, c] = paths.each_ref().map(String::as_str);
    let (json, html) = (dir.path("total.json"), dir.path("total.html"));
    let output = run(&["load", "merge", a, b, c, "--json", &json, "--html", &html]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("merged     3 of 3 parts"), "{}", text(&output.stdout));
    let total = load(&json);
    assert_eq!((total.requests.replies, total.latency_ns.count), (600, 600));
    assert!(fs::read_to_string(&html).unwrap().starts_with("<!DOCTYPE html>"));
    let output = run(&["load", "merge", a, c]);
    assert!(text(&output.stdout).contains("of 3 parts, rank 1 are missing"), "{output:?}");
    assert_rejected(&["load", "merge", a, b, b], &[b, "rank 1 occurred before"]);
    let other = dir.write("other", &Report { url: "http://b/".into(), ..part(1, 3, sample(2, 4)) });
    assert_rejected(&["load", "merge", a, &other], &[&other, "url", "http://b/"]);
}

#[test]
fn loads_are_compared() {
    let dir = Dir::new();
    let (fast, slow) = (dir.write("fast", &sample(2, 30)), dir.write("slow", &sample(3, 30)));
    let [fast, slow] = [fast, slow].map(|file| format!("{file},{file},{file}"));
    let output = run(&["load", "compare", &fast, &slow]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    assert!(table.contains("latency p50") && table.contains("B is worse: "), "{table}");
    let fails = |args: &[&str]| {
        let all = [&["load", "compare", "--fail-if-worse"], args].concat();
        run(&all).status.code().unwrap()
    };
    assert_eq!(fails(&[&fast, &slow]), 3);
    assert_eq!(fails(&[&slow, &fast]), 0);
    assert_eq!(fails(&[&fast, &fast]), 0);
    assert_eq!(fails(&[&fast, &slow, "--threshold", "60"]), 0);
    let output = run(&["load", "compare", &fast, &slow, "--json", "-"]);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&json["a"]["runs"], &json["schema"]), (&3.into(), &"hearken-compare/3".into()));
    assert_rejected(&["load", "compare", &fast, &dir.path("none")], &["none", "No such file"]);
}

#[test]
fn a_single_run_has_no_verdict() {
    let dir = Dir::new();
    let (fast, slow) = (dir.write("fast", &sample(2, 30)), dir.write("slow", &sample(3, 30)));
    let two = format!("{fast},{fast}");
    for (a, b) in [(&fast, &slow), (&two, &slow), (&slow, &two)] {
        let output = run(&["load", "compare", a, b]);
        let table = text(&output.stdout);
        assert!(output.status.success() && table.contains("One run"), "{table}");
        assert!(table.contains("hearken load ab") && !table.contains("worse"), "{table}");
        let names = ["--fail-if-worse", "two results of each side", "hearken load ab"];
        assert_rejected(&["load", "compare", a, b, "--fail-if-worse"], &names);
    }
}

#[test]
fn results_are_shown_in_every_form() {
    let dir = Dir::new();
    let file = dir.write("result.json", &sample(2, 5));
    let shown = run(&["load", "show", &file]);
    assert_eq!(text(&shown.stdout), sample(2, 5).to_string());
    let [html, hlog, json] = ["a.html", "a.hlog", "a.json"].map(|name| dir.path(name));
    let args = ["load", "show", &file, "--html", &html, "--hlog", &hlog, "--json", &json];
    let output = run(&[&args[..], &["--csv", "-"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), hearken_load::export::csv(&sample(2, 5)));
    assert!(fs::read_to_string(hlog).unwrap().contains("1.3]"));
    assert_eq!(load(json), sample(2, 5));
    assert!(fs::metadata(html).unwrap().len() > 10_000);
    assert_rejected(
        &["load", "show", &file, "--csv", "-", "--html", "-"],
        &["--html and --csv", "-"],
    );
    assert_rejected(
        &["load", "show", &file, "--csv", &file, "--hlog", &file],
        &["--csv and --hlog"],
    );
    assert_rejected(&["load", "show", &file, "--csv", "/no/such/file"], &["/no/such/file"]);
}

#[test]
fn invalid_results_are_rejected_with_a_reason() {
    let dir = Dir::new();
    let good = serde_json::to_string_pretty(&sample(2, 3)).unwrap();
    let broken = |name: &str, content: &str| {
        let path = dir.path(name);
        fs::write(&path, content).unwrap();
        path
    };
    let files = [
        (broken("empty", ""), "line 1"),
        (broken("text", "hello\n"), "line 1"),
        (broken("array", "[1,2]"), "not a result of hearken load"),
        (broken("foreign", "{\"a\":1}"), "schema"),
        (broken("older", &good.replace("load/4", "load/1")), "hearken-load/1"),
        (broken("escape", &good.replace("load/4", "\\u001b[2J\\n")), "?[2J?"),
        (broken("cut", &good[..good.len() / 2]), "line "),
        (broken("type", &good.replace("\"seed\": 0", "\"seed\": \"x\"")), "line "),
        (
            broken("count", &good.replace("\"queued\": 0", "\"queued\": 18446744073709551615")),
            "requests",
        ),
        (broken("time", &good.replace("\"offset_s\": 1.0", "\"offset_s\": -1.0")), "offset_s"),
        (
            broken("histogram", &good.replace("\"latency\": \"HIST", "\"latency\": \"XXXX")),
            "histogram",
        ),
        (dir.path(""), "directory"),
    ];
    for (path, reason) in &files {
        for command in ["show", "merge"] {
            assert_rejected(&["load", command, path], &[path, reason]);
        }
        assert_rejected(&["load", "compare", path, path], &[path, reason]);
    }
    // Deep nesting does not overflow the stack.
    let deep = broken("deep", &"[".repeat(100_000));
    assert_rejected(&["load", "show", &deep], &["deep"]);
}

#[test]
fn results_contain_no_control_characters() {
    let dir = Dir::new();
    let mut evil = sample(2, 3);
    evil.url = "http://a/\u{1b}[2J".to_owned();
    evil.warnings = vec!["\u{1b}]0;x\u{7}".to_owned()];
    let output = run(&["load", "show", &dir.write("evil", &evil)]);
    assert!(!text(&output.stdout).contains(['\u{1b}', '\u{7}']), "{output:?}");
}

#[test]
fn load_writes_the_requested_formats() {
    let dir = Dir::new();
    let [html, csv, hlog, json] =
        ["a.html", "a.csv", "a.hlog", "a.json"].map(|name| dir.path(name));
    let (url, _held) = refusing();
    let args = ["load", &url, "--rate", "50", "--duration", "200ms", "-H", "Cookie: a=secret"];
    let forms = ["--html", &html, "--csv", &csv, "--hlog", &hlog, "--json", &json];
    let output = run(&[&args[..], &forms].concat());
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let report = load(&json);
    assert_eq!(report.command[1..4], ["load", &url, "--rate"]);
    assert!(!report.command.concat().contains("secret") && report.machine.contains("Linux"));
    assert!(fs::read_to_string(html).unwrap().contains(&url));
    assert!(fs::read_to_string(&csv).unwrap().starts_with("offset_s,"));
    assert!(fs::read_to_string(hlog).unwrap().starts_with("#[Histogram log format version 1.3]"));
    let earlier = fs::read(&json).unwrap();
    assert_rejected(&["load", &url, "--json", &json, "--html", &json], &["--json and --html"]);
    assert_rejected(&["load", &url, "--json", &json, "--csv", "/no/such/file"], &["/no/such/file"]);
    assert_eq!(fs::read(&json).unwrap(), earlier, "the earlier result was lost");
    let lockstep = run(&["load", &url, "--lockstep", "2", "--csv", &csv]);
    assert_eq!(lockstep.status.code(), Some(2));
}
