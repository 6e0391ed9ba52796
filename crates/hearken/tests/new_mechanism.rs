//! The steps for adding a mechanism, as documented in `src/mechanism/skeleton.rs`.
//!
//! The test copies the crate, applies the documented edits, and builds the copy offline. It then
//! fills in a working body, which must pass the contract suite. Run it with
//! `cargo test -p hearken --test new_mechanism`; `--nocapture` shows the output of the builds.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A working body for the new mechanism.
const BODY: &str = include_str!("new_mechanism/my_mechanism.rs");

/// A test of the copy: the mechanism is in the table, and `auto` ignores it.
const TABLE_TEST: &str = r#"//! A test of the copy.
use hearken::mechanism::{TABLE, auto};

#[test]
fn auto_ignores_the_new_mechanism() {
    assert!(TABLE.iter().any(|entry| entry.name == "my-mechanism"));
    let mut rows = auto::ranking().rows.iter();
    let (_, verdict) = rows.find(|(spec, _)| spec.entry.name == "my-mechanism").unwrap();
    assert!(matches!(verdict, auto::Verdict::Excluded(_)), "{verdict}");
}
"#;

#[test]
fn documented_steps_add_a_mechanism_that_passes_the_contract_suite() {
    let copy = Copy::new();
    for edit in documented_edits() {
        copy.apply(&edit);
    }
    copy.cargo(&["build", "--lib"]);

    copy.write("src/mechanism/my_mechanism.rs", BODY);
    copy.write("tests/added_mechanism.rs", TABLE_TEST);
    copy.cargo(&["test", "--test", "added_mechanism"]);
    let output = copy.cargo(&["test", "--test", "mechanisms", "--", "my-mechanism"]);
    let passed = output.matches(" ... ok").count();
    assert!(passed > 30, "only {passed} tests of the contract suite ran:\n{output}");
}

/// Returns the edits listed in the documentation of the skeleton.
fn documented_edits() -> Vec<Vec<String>> {
    let skeleton = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/mechanism/skeleton.rs");
    let text = fs::read_to_string(skeleton).unwrap();
    let is_edit =
        |line: &&str| ["copy  ", "rename  ", "add  "].iter().any(|verb| line.starts_with(verb));
    let lines = text.lines().filter_map(|line| line.strip_prefix("//! ")).filter(is_edit);
    let edits: Vec<Vec<String>> =
        lines.map(|line| line.split("  ").map(str::to_owned).collect()).collect();
    assert_eq!(edits.len(), 5, "{edits:?}");
    edits
}

/// A workspace that contains only a copy of this crate.
struct Copy {
    workspace: PathBuf,
}

impl Copy {
    fn new() -> Copy {
        let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
        let workspace = Path::new(env!("CARGO_TARGET_TMPDIR")).join("new-mechanism");
        let original = crate_dir.join("../..");
        let copy = Copy { workspace };
        // Results of earlier builds stay, which makes the next one faster.
        let _ = fs::remove_dir_all(copy.crate_dir());
        for part in ["src", "tests", "examples"] {
            copy_tree(&crate_dir.join(part), &copy.crate_dir().join(part));
        }
        for file in ["Cargo.toml", "README.md"] {
            fs::copy(crate_dir.join(file), copy.crate_dir().join(file)).unwrap();
        }
        fs::copy(original.join("Cargo.lock"), copy.workspace.join("Cargo.lock")).unwrap();
        let manifest = fs::read_to_string(original.join("Cargo.toml")).unwrap();
        let kept = manifest.lines().filter(|line| !line.starts_with("default-members"));
        let manifest: String = kept.flat_map(|line| [line, "\n"]).collect();
        // Cargo takes packages with the same name, version and relative path for the same one, and
        // would use the library of the copy for later builds in the shared target directory.
        let version = concat!("version = \"", env!("CARGO_PKG_VERSION"), "\"\n");
        assert!(manifest.contains(version), "the workspace does not contain {version}");
        let manifest = manifest.replacen(version, "version = \"0.0.0-copy\"\n", 1);
        fs::write(copy.workspace.join("Cargo.toml"), manifest).unwrap();
        copy
    }

    fn crate_dir(&self) -> PathBuf {
        self.workspace.join("crates/hearken")
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.crate_dir().join(path)).unwrap()
    }

    fn write(&self, path: &str, text: &str) {
        fs::write(self.crate_dir().join(path), text).unwrap();
    }

    /// Applies one edit to the copy.
    fn apply(&self, edit: &[String]) {
        match edit.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["copy", from, "to", to] => self.write(to, &self.read(from)),
            ["rename", old, "to", new, "in", file] => {
                let text = self.read(file);
                assert!(text.contains(old), "{file} does not contain {old}");
                self.write(file, &text.replace(old, new));
            }
            ["add", new, "after", line, "in", file] => {
                let text = self.read(file);
                let line = format!("{line}\n");
                assert_eq!(text.matches(&line).count(), 1, "{file} does not have one {line}");
                self.write(file, &text.replace(&line, &format!("{line}{new}\n")));
            }
            ["add", new, "at the end of the table in", file] => {
                let text = self.read(file);
                let last = text.rfind("=> $crate::").expect("no table");
                let end = last + text[last..].find('\n').unwrap() + 1;
                self.write(file, &format!("{}            {new}\n{}", &text[..end], &text[end..]));
            }
            _ => panic!("unknown edit: {edit:?}"),
        }
    }

    /// Runs cargo in the copy and returns its output.
    fn cargo(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO"));
        command.args(&arguments[..1]).args(["--offline", "-p", "hearken", "--target-dir"]);
        // Settings of this run, such as coverage, do not apply to the copy. Without them, it uses the
        // dependencies that were built for this run.
        let inherited =
            ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "RUSTC_WRAPPER", "LLVM_PROFILE_FILE"];
        let own = inherited.iter().any(|name| std::env::var_os(name).is_some());
        let shared = Path::new(env!("CARGO_TARGET_TMPDIR")).join("..");
        command.arg(if own { self.workspace.join("target") } else { shared });
        command.args(&arguments[1..]).current_dir(&self.workspace);
        for name in inherited {
            command.env_remove(name);
        }
        let output = command.output().unwrap();
        let text = [output.stderr, output.stdout].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        println!("cargo {}:\n{text}", arguments.join(" "));
        assert!(output.status.success(), "cargo {} failed", arguments.join(" "));
        text
    }
}

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
