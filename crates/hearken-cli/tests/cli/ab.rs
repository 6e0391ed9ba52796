//! `hearken load ab`.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::program::{Running, fails_with, hearken, refusing, run, serve, site, text};

/// Options of short runs.
const SHORT: [&str; 6] = ["--", "--rate", "200", "--duration", "100ms", "--connections=2"];

fn ab(a: &str, b: &str, more: &[&str]) -> Vec<String> {
    let words = [&["load", "ab", a, b, "--pause", "0"], more, &SHORT].concat();
    words.into_iter().map(str::to_owned).collect()
}

fn run_ab(a: &str, b: &str, more: &[&str]) -> std::process::Output {
    let words = ab(a, b, more);
    run(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn runs_alternate_and_are_compared_as_pairs() {
    let (site, dir) = (site(), TempDir::new().unwrap());
    let ((_server, url), saved) = (serve(site.path(), &[]), dir.path().join("runs"));
    let more = ["--runs", "3", "--json", "-", "--save", saved.to_str().unwrap()];
    let output = run_ab(&url, &url, &more);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&json["paired"], &json["schema"]), (&true.into(), &"hearken-compare/3".into()));
    assert_eq!((&json["a"]["runs"], &json["b"]["runs"]), (&3.into(), &3.into()));
    let progress = text(&output.stderr);
    assert!(progress.starts_with("3 pairs of runs, about 1s (seed "), "{progress}");
    for run in ["pair 1 of 3, A: ", "pair 1 of 3, B: ", "pair 3 of 3, B: "] {
        assert!(progress.contains(run), "{progress}");
    }
    let read = |side: &str, run: u32| -> Value {
        let path = saved.join(format!("{side}-{run}.json"));
        serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
    };
    for run in 1..=3 {
        // The runs of a pair have the same arrivals, those of other pairs have others.
        assert_eq!(read("a", run)["seed"], read("b", run)["seed"]);
        assert_ne!(read("a", run)["seed"], read("b", run % 3 + 1)["seed"]);
    }
    let list = |side: &str| {
        let file = |run| saved.join(format!("{side}-{run}.json")).to_str().unwrap().to_owned();
        [1, 2, 3].map(file).join(",")
    };
    let again = run(&["load", "compare", &list("a"), &list("b"), "--json", "-"]);
    assert_eq!(text(&again.stdout), text(&output.stdout));
    fails_with(&["load", "ab", &url, &url, "--save", saved.to_str().unwrap()], "it is not empty");
}

#[test]
fn plans_and_ports_are_compared() {
    let (site, dir) = (site(), TempDir::new().unwrap());
    let ((_first, a), (_second, b)) = (serve(site.path(), &[]), serve(site.path(), &[]));
    let plan = dir.path().join("b.toml");
    fs::write(&plan, format!("url = '{b}/1b'\nconnections = 1\n")).unwrap();
    let words = ["--runs", "2", "--watch", &format!("{},{}", port(&a), port(&b))];
    let output = run_ab(&format!("{a}/1b"), plan.to_str().unwrap(), &words);
    let table = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(table.contains(&format!("B: 2 runs of {b}/1b")), "{table}");
    // Options of the command line override the plan, and ports may differ.
    assert!(!table.contains("did not measure the same load"), "{table}");
    assert!(table.contains("server CPU/reply"), "{table}");
}

fn port(url: &str) -> String {
    format!(":{}", url.rsplit(':').next().unwrap())
}

#[test]
fn a_signal_ends_the_runs_and_prints_the_complete_pairs() {
    let site = site();
    let (_server, url) = serve(site.path(), &[]);
    let words = ab(&url, &url, &["--runs", "100"]);
    let mut child = hearken(&words.iter().map(String::as_str).collect::<Vec<_>>())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut progress = BufReader::new(child.stderr.take().unwrap()).lines();
    let out = BufReader::new(child.stdout.take().unwrap());
    let mut running = Running { child, out };
    assert!(progress.any(|line| line.unwrap().starts_with("pair 3 of 100")));
    running.signal(Signal::INT);
    assert_eq!(running.child.wait().unwrap().code(), Some(130));
    let mut text = String::new();
    running.out.read_to_string(&mut text).unwrap();
    assert!(text.contains("A: ") && text.contains("replies/s"), "{text}");
    let runs = text.lines().find_map(|line| line.strip_prefix("A: ")?.split(' ').next());
    let runs: u32 = runs.unwrap().parse().unwrap();
    assert!((2..100).contains(&runs), "{text}");
}

#[test]
fn invalid_comparisons_are_rejected() {
    let url = "http://127.0.0.1:9/";
    let rejected = |options: &[&str], message: &str| {
        fails_with(&[&["load", "ab", url, url, "--"], options].concat(), message);
    };
    for option in
        [&["--find-knee"][..], &["--lockstep", "2"], &["--on", "local:2"], &["--slo", "p99<1s"]]
    {
        rejected(option, &format!("A: option '{}'", option[0]));
    }
    rejected(&["--json", "x"], "write it before '--'");
    rejected(&["--rate", "0", "--idle", "5"], "sends no requests");
    rejected(&["--rat", "5"], "unknown option '--rat'");
    rejected(&["--specweb", "/no/such/dir"], "/no/such/dir");
    fails_with(
        &["load", "ab", url, "/no/such/plan.toml"],
        "B: cannot read plan '/no/such/plan.toml'",
    );
    fails_with(&["load", "ab", url, "ftp://a/"], "B: ");
    fails_with(&["load", "ab", url, url, "--watch", ":1,:2,:3"], "one target for both");
    for runs in ["1", "101", "x"] {
        fails_with(&["load", "ab", url, url, "--runs", runs], "from 2 to 100");
    }
}

#[test]
fn a_server_that_never_replies_is_an_error() {
    let (url, _held) = refusing();
    let output = run_ab(&url, &url, &[]);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains(&format!("no request to '{url}' succeeded: ")), "{errors}");
    assert!(errors.contains("failed with connrefused") && output.stdout.is_empty(), "{errors}");
}
