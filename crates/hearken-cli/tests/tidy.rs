//! What no compiler checks: that imports point down the house only, and that every dependency may be
//! used.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

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

/// From the ground up: a crate may use those before it, with the exceptions below.
const CRATES: &[(&str, &[&str])] = &[
    ("hearken", &[]),
    ("hearken-http", &[]),
    ("hearken-server", &["hearken", "hearken-http"]),
    ("hearken-load", &["hearken", "hearken-http"]),
    // For the limit of descriptors and the form of the generator's result; servers it knows as
    // processes.
    ("hearken-lab", &["hearken", "hearken-load"]),
    // For the lab's statistics and what it says of a machine.
    ("hearken-bench", &["hearken", "hearken-lab"]),
    ("hearken-cli", &["hearken", "hearken-http", "hearken-server", "hearken-load", "hearken-lab"]),
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
        let may = allowed.get(name).unwrap_or_else(|| panic!("{name} has no place in the house"));
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

/// Inside the library, from the ground up: a module's code may name those before it.
const MODULES: &[&str] = &[
    "limit",
    "event",
    "sys",
    "clock",
    "timer",
    "unavailable",
    "ring",
    "mechanism",
    "waker",
    "descriptors",
    "queue",
    "io",
];

#[test]
fn modules_import_downwards() {
    let source = root().join("crates/hearken/src");
    for (rank, module) in MODULES.iter().enumerate() {
        let module_file = source.join(module).with_extension("rs");
        for file in rust_files(vec![module_file, source.join(module)]) {
            let text = fs::read_to_string(&file).unwrap();
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            for (number, line) in code.enumerate() {
                for above in &MODULES[rank + 1..] {
                    // The queue and the io layer stand side by side, on the same ground.
                    let named = line.contains(&format!("crate::{above}"));
                    assert!(!named, "{}: line {number} of code uses {above}", file.display());
                }
                if *module == "io" {
                    assert!(!line.contains("crate::queue"), "{} uses queue", file.display());
                }
            }
        }
    }
}

/// The files at and below each of `paths` that there are.
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
fn the_library_knows_no_http_and_http_no_socket() {
    let forbidden: &[(&str, &[&str])] = &[
        ("crates/hearken/src", &["HTTP/1.", "Content-Length"]),
        ("crates/hearken-http/src", &["TcpStream", "UdpSocket", "rustix", "std::fs", "OwnedFd"]),
    ];
    for (dir, words) in forbidden {
        for path in rust_files(vec![root().join(dir)]) {
            let text = fs::read_to_string(&path).unwrap();
            for word in *words {
                assert!(!text.contains(word), "{} speaks of {word}", path.display());
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
