//! Rules that no compiler checks.
//!
//! Covers dependencies between crates and modules, licences, the language of all texts, and help texts.
//! Run one: `cargo test -p hearken-cli --test tidy -- short_help_fits_one_screen`. The language rules also
//! list every violation with its file and line.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

mod help;
mod language;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON")
}

/// All crates, the lowest first, and those that each may depend on.
const CRATES: &[(&str, &[&str])] = &[
    ("hearken", &[]),
    ("hearken-capi", &["hearken"]),
    ("hearken-preload", &["hearken"]),
    ("hearken-http", &[]),
    ("hearken-tls", &["hearken"]),
    ("hearken-server", &["hearken", "hearken-http", "hearken-tls"]),
    ("hearken-load", &["hearken", "hearken-http", "hearken-tls"]),
    // For the descriptor limit and the format of load results. Servers are processes to the lab.
    ("hearken-lab", &["hearken", "hearken-load"]),
    // For the lab's statistics and its description of the machine.
    ("hearken-bench", &["hearken", "hearken-lab"]),
    ("hearken-sim", &["hearken", "hearken-http", "hearken-tls", "hearken-server", "hearken-load"]),
    (
        "hearken-cli",
        &[
            "hearken",
            "hearken-http",
            "hearken-tls",
            "hearken-server",
            "hearken-load",
            "hearken-lab",
        ],
    ),
    // All are dependencies of its tests only.
    ("hearken-fuzz", &[]),
];

#[test]
fn crates_depend_downwards() {
    let metadata = metadata();
    let allowed: BTreeMap<_, _> = CRATES.iter().copied().collect();
    let mut seen = 0;
    for package in metadata["packages"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap();
        if !package["source"].is_null() {
            continue;
        }
        seen += 1;
        let may = allowed.get(name).unwrap_or_else(|| panic!("{name} is missing from CRATES"));
        for dependency in package["dependencies"].as_array().unwrap() {
            let on = dependency["name"].as_str().unwrap();
            let normal = dependency["kind"].is_null();
            if normal && on.starts_with("hearken") {
                assert!(may.contains(&on), "{name} must not depend on {on}");
            }
        }
    }
    assert_eq!(seen, CRATES.len());
}

/// The modules of the library, the lowest first. Each may import those before it.
const LIBRARY: &[&str] = &[
    "sync",
    "limit",
    "event",
    "sys",
    "clock_sync",
    "timer",
    "unavailable",
    "ring",
    "mechanism",
    "waker",
    "descriptors",
    "queue",
    "io",
    "task",
];

#[test]
fn library_modules_import_downwards() {
    for (rank, module) in LIBRARY.iter().enumerate() {
        // The queue and the io layer do not depend on each other.
        let below = LIBRARY[..rank].iter().filter(|&&below| (*module, below) != ("io", "queue"));
        let allowed: Vec<&str> = below.copied().collect();
        check_imports("crates/hearken/src", module, &allowed);
    }
}

const HANDLERS: &[&str] = &["static_files", "proxy"];

/// The modules of the server, the lowest first, and those that each may import.
const SERVER: &[(&str, &[&[&str]])] = &[
    ("sync", &[]),
    ("runtime", &[&["sync"]]),
    ("front", &[&["runtime"]]),
    ("static_files", &[&["runtime", "front"]]),
    ("proxy", &[&["sync", "runtime", "front"]]),
    ("engine", &[&["sync", "runtime", "front"]]),
    ("event_loop", &[&["runtime", "front", "engine"]]),
    ("task_loop", &[&["runtime", "front", "engine"]]),
    ("side_server", &[&["runtime", "front", "event_loop"]]),
    ("admin", &[&["runtime", "front", "side_server"]]),
    ("redirect", &[&["runtime", "front", "side_server"]]),
    ("routes", &[&["runtime", "front"], HANDLERS]),
    ("config", &[&["runtime", "front"], HANDLERS]),
    (
        "start",
        &[
            &[
                "runtime",
                "front",
                "event_loop",
                "task_loop",
                "admin",
                "redirect",
                "routes",
                "config",
            ],
            HANDLERS,
        ],
    ),
    ("simulation", &[&["runtime", "side_server", "admin", "config", "start"], HANDLERS]),
];

#[test]
fn server_modules_import_downwards() {
    let source = "crates/hearken-server/src";
    for (module, allowed) in SERVER {
        check_imports(source, module, &allowed.concat());
    }
    for entry in fs::read_dir(root().join(source)).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let is_listed = name == "lib" || SERVER.iter().any(|(module, _)| *module == name);
        assert!(is_listed, "module {name} is missing from SERVER");
    }
}

/// Panics if a file of `module` imports from its crate anything but `allowed` and itself. Code under
/// `#[cfg(test)]` does not count.
fn check_imports(source: &str, module: &str, allowed: &[&str]) {
    let source = root().join(source);
    let mut violations = Vec::new();
    for file in rust_files(vec![source.join(module).with_extension("rs"), source.join(module)]) {
        if file.ends_with("tests.rs") {
            continue;
        }
        let path = file.strip_prefix(&source).unwrap().with_extension("");
        let names = path.iter().filter(|name| *name != "mod").count();
        for (line, import) in imports(&fs::read_to_string(&file).unwrap(), names) {
            if import != module && !allowed.contains(&&*import) {
                violations.push(format!("{}:{line}: {module} imports {import}", file.display()));
            }
        }
    }
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

/// Returns the names that follow `crate::` in the code of a module, or as many `super::` as lead from
/// the module to the crate, and their lines.
fn imports(text: &str, depth: usize) -> Vec<(usize, String)> {
    let code = without_tests_and_comments(text).replace(&"super::".repeat(depth), "crate::");
    let mut found = Vec::new();
    for (at, prefix) in code.match_indices("crate::") {
        let is_word = code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '$');
        if is_word {
            continue;
        }
        let line = code[..at].matches('\n').count() + 1;
        let rest = &code[at + prefix.len()..];
        let mut group = 0;
        let mut starts = true;
        for (offset, character) in rest.char_indices() {
            match character {
                '{' => group += 1,
                '}' => (group, starts) = (group - 1, false),
                ',' => starts = group == 1,
                _ if character.is_whitespace() => {}
                _ if starts && group <= 1 => {
                    let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == '*';
                    let name: String = rest[offset..].chars().take_while(|&c| is_name(c)).collect();
                    found.push((line, name));
                    starts = false;
                }
                _ => {}
            }
            if group == 0 && !starts {
                break;
            }
        }
    }
    found
}

/// Returns code with empty lines in place of comments and of items under `#[cfg(test)]`.
fn without_tests_and_comments(text: &str) -> String {
    let mut code = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let trimmed = line.trim_start();
        if trimmed == "#[cfg(test)]" {
            // rustfmt puts the end of an item at the indentation of its beginning.
            let indentation = line.len() - trimmed.len();
            code.push('\n');
            for skipped in lines.by_ref() {
                code.push('\n');
                let is_outermost = skipped.len() - skipped.trim_start().len() == indentation;
                if is_outermost && skipped.ends_with(['}', ';']) {
                    break;
                }
            }
            continue;
        }
        if !trimmed.starts_with("//") {
            code.push_str(line);
        }
        code.push('\n');
    }
    code
}

#[test]
fn imports_are_found_in_all_forms() {
    let text = "\
use crate::runtime::clock;
use crate::{
    front::{Front, self},
    proxy,
};
// crate::comment
fn f() -> super::config::Config { crate::start::start($crate::x, my_crate::y) }
#[cfg(test)]
mod tests {
    use crate::routes;
}
use crate::admin;
";
    let found: Vec<_> = imports(text, 1);
    let found: Vec<_> = found.iter().map(|(line, name)| (*line, &**name)).collect();
    let expected =
        [(1, "runtime"), (2, "front"), (2, "proxy"), (7, "config"), (7, "start"), (12, "admin")];
    assert_eq!(found, expected);
    assert_eq!(imports("use super::super::front;", 2), [(1, "front".to_owned())]);
    assert!(imports("use super::front;", 2).is_empty());
}

/// Returns the Rust files at and below those of `paths` that exist.
fn rust_files(paths: Vec<PathBuf>) -> Vec<PathBuf> {
    let (mut left, mut files) = (paths, Vec::new());
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.exists() && path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    assert!(!files.is_empty());
    files
}

#[test]
fn library_has_no_http_and_parsers_and_front_no_io() {
    let forbidden: &[(&str, &[&str])] = &[
        ("crates/hearken/src", &["HTTP/1.", "Content-Length"]),
        ("crates/hearken-http/src", &["TcpStream", "UdpSocket", "rustix", "std::fs", "OwnedFd"]),
        ("crates/hearken-server/src/front", &["TcpStream", "rustix", "std::fs", "std::os"]),
    ];
    for (dir, words) in forbidden {
        for path in rust_files(vec![root().join(dir)]) {
            let text = fs::read_to_string(&path).unwrap();
            for word in *words {
                assert!(!text.contains(word), "{} contains {word}", path.display());
            }
        }
    }
}

#[test]
fn licences_are_allowed() {
    let deny = fs::read_to_string(root().join("deny.toml")).unwrap();
    let list = deny.split("[licenses]").nth(1).unwrap().split(']').next().unwrap();
    let allowed: Vec<&str> = list.split('"').skip(1).step_by(2).collect();
    assert!(allowed.contains(&"MIT"));
    for package in metadata()["packages"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap();
        let licence = package["license"].as_str().unwrap_or_else(|| panic!("{name}: no licence"));
        // Every part of an AND has an alternative that is allowed.
        let fine = licence.split(" AND ").all(|part| {
            part.split(" OR ").flat_map(|alternative| alternative.split('/')).any(|alternative| {
                allowed.contains(&alternative.trim_matches(|c: char| "() ".contains(c)))
            })
        });
        assert!(fine, "{name}: licence {licence} is not on the list in deny.toml");
    }
}
