//! Rules for help texts.

use std::process::Command;

use crate::language::BANNED;

/// Every command, by its words.
const COMMANDS: &[&str] = &[
    "",
    "serve",
    "proxy",
    "load",
    "load merge",
    "load compare",
    "load ab",
    "load show",
    "load specweb",
    "lab",
    "lab run",
    "lab list",
    "lab print",
    "lab report",
    "mechanisms",
    "run",
    "man",
    "completions",
];

/// Maximum lines and columns of `-h`: one screen.
const SCREEN: (usize, usize) = (40, 100);

fn help(command: &str, flag: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_hearken"))
        .args(command.split_whitespace())
        .arg(flag)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "hearken {command} {flag}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn short_help_fits_one_screen() {
    for command in COMMANDS {
        let text = help(command, "-h");
        let lines = text.lines().count();
        let columns = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
        assert!(lines <= SCREEN.0, "hearken {command} -h has {lines} lines");
        assert!(columns <= SCREEN.1, "hearken {command} -h has {columns} columns");
    }
}

#[test]
fn help_contains_no_banned_phrases() {
    for command in COMMANDS {
        let text = help(command, "--help").to_lowercase();
        let words: Vec<&str> = text.split_whitespace().collect();
        let text = format!(" {} ", words.join(" "));
        for phrase in BANNED {
            assert!(!text.contains(&format!(" {phrase} ")), "hearken {command} --help: {phrase:?}");
        }
    }
}

#[test]
fn options_have_named_values_and_a_summary() {
    for command in COMMANDS {
        for line in help(command, "--help").lines() {
            let option = line.trim_start();
            if !option.starts_with('-') || line.len() - option.len() > 6 {
                continue;
            }
            let Some((_, value)) = option.split_once('<') else { continue };
            let value = value.split('>').next().unwrap();
            let is_named =
                value.chars().all(|c| c.is_ascii_uppercase() || ",.:=_-|[]0123456789".contains(c));
            assert!(is_named, "hearken {command}: placeholder <{value}>");
        }
    }
}

#[test]
fn long_help_has_examples() {
    for command in COMMANDS {
        if !["man", "completions"].contains(command) {
            assert!(help(command, "--help").contains("Examples:"), "hearken {command} --help");
        }
    }
}
