//! The command line: help, man pages, completions, and the list of mechanisms.

use std::fs;

use serde_json::Value;
use tempfile::TempDir;

use crate::program::{fails_with, run, text};

fn help(command: &[&str], flag: &str) -> String {
    let output = run(&[command, &[flag]].concat());
    assert!(output.status.success(), "{command:?}");
    text(&output.stdout).to_owned()
}

#[test]
fn help_has_examples() {
    let commands = ["serve", "proxy", "load", "lab", "mechanisms", "run", "man", "completions"];
    let commands = commands.iter().map(std::slice::from_ref);
    for command in commands.chain([&[][..], &["lab", "run"], &["lab", "list"]]) {
        let help = help(command, "--help");
        assert!(help.contains("Examples:\n  hearken "), "{command:?}");
    }
}

#[test]
fn short_help_fits_one_screen() {
    for command in ["serve", "proxy", "mechanisms", "run", "man", "completions"] {
        let help = help(&[command], "-h");
        assert!(help.lines().count() <= 40, "{command}: {} lines", help.lines().count());
        let longest = help.lines().map(|line| line.chars().count()).max();
        assert!(longest <= Some(100), "{command}: {longest:?} columns");
    }
}

/// Returns the flags of a command, in the order of its help.
fn flags(command: &str) -> Vec<String> {
    let help = help(&[command], "--help");
    let lines = help.lines().map(str::trim_start).filter_map(|line| {
        line.strip_prefix("--").or_else(|| line.split_once(", --").map(|(_, flag)| flag))
    });
    lines.filter_map(|line| line.split([' ', '[']).next()).map(str::to_owned).collect()
}

#[test]
fn servers_have_these_flags() {
    let sorted = |command| {
        let mut flags = flags(command);
        flags.sort_unstable();
        flags.join(" ")
    };
    assert_eq!(
        sorted("serve"),
        "access-log admin as cache check config distribution dotfiles events experiment \
         header-timeout help hsts idle-timeout listen log-format max-connections model print-config \
         proxy-protocol redirect-to-https tls-cert tls-client-ca tls-key tls-min-version tls-ticket-keys version workers"
    );
    assert_eq!(
        sorted("proxy"),
        "access-log admin allow as balance check config connect-timeout deny events experiment forward \
         header-timeout health-interval health-path help hsts idle-timeout keepalive listen log-format \
         max-attempts max-body max-connections max-requests print-config proxy-protocol \
         redirect-to-https request-timeout response-timeout send-proxy-protocol tls-cert tls-client-ca tls-key \
         tls-min-version tls-ticket-keys to upstream-ca upstream-cert upstream-insecure upstream-key \
         upstream-name version via workers x-forwarded"
    );
}

#[test]
fn unknown_arguments_are_reported_with_a_suggestion() {
    fails_with(
        &["serve", ".", "--lisen", "x"],
        "unknown option '--lisen' (did you mean '--listen'?)",
    );
    fails_with(&["proxi"], "unknown command 'proxi' (did you mean 'proxy'?)");
    fails_with(&["laod"], "unknown command 'laod' (did you mean 'lab' or 'load'?)");
    fails_with(&["serve", "a", "b"], "unexpected argument 'b'");
    fails_with(&["serve", ".", "--workers"], "missing value for '--workers <N>'");
    let experiment = ["serve", ".", "--experiment", "acept-limit=1"];
    fails_with(
        &experiment,
        "unknown experiment 'acept-limit' in '--experiment' (did you mean 'accept-",
    );
    fails_with(&["serve", ".", "--experiment", "splice=no"], "unknown experiment 'splice'");
}

#[test]
fn mistyped_arguments_of_every_command_are_reported_with_a_suggestion() {
    const URL: &str = "http://127.0.0.1:1/";
    for (args, hint) in [
        (&["serve", ".", "--worker", "1"][..], "'--workers'"),
        (&["proxy", "--forwrd", "x"], "'--forward'"),
        (&["load", URL, "--duraton", "5s"], "'--duration'"),
        (&["load", "--duraton=5s", URL], "'--duration'"),
        (&["load", URL, "--arrivals", "poison"], "'poisson'"),
        (&["load", URL, "-rate", "5"], "'--rate'"),
        (&["load", URL, "-rate=5"], "'--rate'"),
        (&["load", URL, "rate", "5"], "'--rate'"),
        (&["load", "compre"], "'compare'"),
        (&["load", "compre", "a.json", "b.json"], "'compare'"),
        (&["load", "compare", "a.json", "b.json", "--treshold", "5"], "'--threshold'"),
        (&["load", "merge", "a.json", "--jsn", "b"], "'--json'"),
        (&["lab", "reprot"], "'report'"),
        (&["lab", "run", "quick", "--repetition", "5"], "'--repetitions'"),
        (&["mechanisms", "--explian"], "'--explain'"),
        (&["completions", "bsh"], "'bash'"),
    ] {
        fails_with(args, &format!("(did you mean {hint}?)"));
    }
}

#[test]
fn timeouts_of_zero_are_rejected() {
    for args in [
        &["serve", ".", "--header-timeout", "0"][..],
        &["serve", ".", "--idle-timeout", "0ms"],
        &["load", "http://127.0.0.1:1/", "--duration", "0"],
        &["load", "http://127.0.0.1:1/", "--timeout", "0s"],
    ] {
        fails_with(args, "must be greater than 0");
    }
}

#[test]
fn mechanisms_are_listed() {
    let output = run(&["mechanisms", "--json"]);
    assert!(output.status.success());
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<_> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, hearken::io::names().collect::<Vec<_>>());
    for row in &rows {
        assert_eq!(row["available"].as_bool().unwrap(), row["reason"].is_null(), "{row}");
    }
    // The papers of mechanisms are named.
    let source = |name: &str| rows.iter().find(|row| row["name"] == name).map(|row| &row["source"]);
    assert_eq!(source("epoll-level"), Some(&"Gammo et al. 2004".into()));
    assert_eq!(source("poll"), Some(&Value::Null));
    let table = run(&["mechanisms"]);
    assert!(text(&table.stdout).contains("queued by the kernel [Chandra and Mosberger 2001]\n"));
    for name in names {
        assert!(text(&table.stdout).lines().any(|line| line.starts_with(name)), "{name}");
    }
}

#[test]
fn man_pages_and_completions_have_the_flags() {
    let dir = TempDir::new().unwrap();
    let output = run(&["man", dir.path().to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let page = fs::read_to_string(dir.path().join("hearken-serve.1")).unwrap();
    assert!(page.contains("max\\-connections"));
    for shell in ["bash", "zsh", "fish"] {
        let output = run(&["completions", shell]);
        let script = text(&output.stdout);
        assert!(script.contains("max-connections"), "{shell}");
        assert!(script.contains("least-connections"), "{shell}");
    }
}

#[test]
fn run_refuses_unknown_mechanisms_and_missing_libraries() {
    let output = run(&["run", "--events", "kqueue", "--", "true"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("kqueue"));
    let output = run(&["run", "--events", "poll", "--library", "/nonexistent.so", "--", "true"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("'/nonexistent.so'"));
    let output = run(&["run", "--events", "poll", "--provide", "kqueue", "--", "true"]);
    assert_eq!(output.status.code(), Some(2));
}
