//! Runs in an emulated machine whose clock counts instructions, for experiments that need exact counts.
//!
//! The scripts in `emulated/` boot an unmodified kernel under QEMU, in which `hearken lab run` measures.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tempfile::TempDir;

use crate::counters::{Counters, own_thread};
use crate::error::LabError;
use crate::machine::{Placement, cpu_set};
use crate::process::{ChildGuard, LaunchOptions};
use crate::recipe;
use crate::results::Report;

/// Scripts: names and texts.
const SCRIPTS: [(&str, &str); 2] = [
    ("run.sh", include_str!("../emulated/run.sh")),
    ("machine.sh", include_str!("../emulated/machine.sh")),
];
/// Time limit of a run.
const TIMEOUT: Duration = Duration::from_secs(2 * 3600);

/// Returns whether the kernel counts the instructions of this machine.
pub fn has_counters() -> bool {
    Counters::attach_instructions(&own_thread(), &mut Vec::new()).is_any_attached()
}

/// Runs `hearken lab run` with these arguments in an emulated machine, and returns its report. The output is
/// written to `out`.
///
/// # Errors
/// A program that is not installed, with its package, or a failure of the run.
pub fn run(
    executable: &Path,
    arguments: &[String],
    out: &Path,
    stop: &AtomicBool,
) -> Result<Report, LabError> {
    fs::create_dir_all(out).map_err(LabError::file("create", out))?;
    let scratch = TempDir::with_prefix("hearken-lab-")
        .map_err(LabError::file("create a directory in", &std::env::temp_dir()))?;
    let [scripts, recipes] = ["emulated", "recipes"].map(|name| scratch.path().join(name));
    for directory in [&scripts, &recipes] {
        fs::create_dir(directory).map_err(LabError::file("create", directory))?;
    }
    let files = SCRIPTS.iter().map(|(name, text)| (scripts.join(name), *text));
    let extra = recipe::EXTRA_FILES.iter().map(|(name, text)| (recipes.join(name), *text));
    for (path, text) in files.chain(extra) {
        fs::write(&path, text).map_err(LabError::file("write", &path))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
            .map_err(LabError::file("write", &path))?;
    }
    let path = |path: &Path| path.display().to_string();
    let mut words: Vec<String> = ["lab", "launch", "env"].map(String::from).to_vec();
    words.push(format!("HEARKEN={}", path(executable)));
    words.push(format!("TMPDIR={}", path(scratch.path())));
    words.extend([path(&scripts.join("run.sh")), path(out)]);
    words.extend_from_slice(arguments);
    let mut process = ChildGuard::launch(LaunchOptions {
        executable,
        arguments: &words,
        name: "the emulated machine".into(),
        cpus: &cpu_set(&Placement::choose()?.others),
        stderr: scratch.path().join("stderr"),
        pipe_stdin: false,
    })?;
    let (output, status) = process.wait_for_output(TIMEOUT, stop)?;
    let results = out.join("results.json");
    if !status.success() {
        // The scripts report what is not installed in their last line.
        let reason = output.lines().last().unwrap_or_default().trim().to_owned();
        return Err(process.error(&format!("failed ({status}): {reason}")));
    }
    let text = fs::read(&results).map_err(LabError::file("read", &results))?;
    serde_json::from_slice(&text).map_err(|error| LabError::LoadResult {
        process: process.name().to_owned(),
        problem: error.to_string(),
    })
}
