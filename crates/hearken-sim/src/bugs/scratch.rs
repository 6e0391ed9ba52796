//! A copy of the repository in which patches are applied and built.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The profile with which programs are built: quickly, with checks, but optimised.
const PROFILE: &str = "sim";

/// A copy of the files of a repository, in the directory `target/bugs`. It remains for later runs,
/// which then compile only what a patch changes.
#[derive(Debug)]
pub struct Scratch {
    repository: PathBuf,
    copy: PathBuf,
    target: PathBuf,
}

impl Scratch {
    /// Creates or updates the copy of a repository.
    ///
    /// # Errors
    /// A file cannot be read or written, or git(1) cannot list the files.
    pub fn new(repository: &Path) -> Result<Scratch, String> {
        let target = repository.join("target");
        let scratch = Scratch {
            repository: repository.to_owned(),
            copy: target.join("bugs"),
            target: target.join("bugs-target"),
        };
        scratch.restore()?;
        Ok(scratch)
    }

    /// Returns the directory for programs and output.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Makes the copy equal to the repository. Does not touch files that are equal, so that they are
    /// not compiled again.
    pub fn restore(&self) -> Result<(), String> {
        let mut list = Command::new("git");
        list.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
        let listed = run(list.current_dir(&self.repository))?;
        for name in listed.stdout.split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
            let name = String::from_utf8_lossy(name);
            let (from, to) = (self.repository.join(&*name), self.copy.join(&*name));
            copy(&from, &to)
                .map_err(|error| format!("cannot copy '{}': {error}", from.display()))?;
        }
        Ok(())
    }

    /// Applies a patch to the copy.
    ///
    /// # Errors
    /// The patch does not apply.
    pub fn apply(&self, patch: &Path) -> Result<(), String> {
        // Outside a repository, git(1) applies patches to the current directory.
        let mut apply = Command::new("git");
        apply.env("GIT_CEILING_DIRECTORIES", self.repository.join("target"));
        apply.args(["apply", "--recount", "-C1"]).arg(patch);
        run(apply.current_dir(&self.copy)).map(drop)
    }

    /// Builds the simulator of the copy. Returns its path.
    ///
    /// # Errors
    /// The build fails.
    pub fn build(&self) -> Result<PathBuf, String> {
        let mut build = Command::new("cargo");
        build.args(["build", "--quiet", "--package", "hearken-sim", "--profile", PROFILE]);
        build.env("CARGO_TARGET_DIR", &self.target).env_remove("CARGO_INCREMENTAL");
        // Patches leave unused code behind.
        build.env("RUSTFLAGS", "--cap-lints=allow");
        run(build.current_dir(&self.copy))?;
        Ok(self.target.join(PROFILE).join("hearken-sim"))
    }

    /// Builds the simulator of the copy, and stores it where later builds do not replace it.
    ///
    /// # Errors
    /// The build fails, or the program cannot be stored.
    pub fn build_original(&self) -> Result<PathBuf, String> {
        let (program, original) = (self.build()?, self.target.join("hearken-sim-original"));
        // The previous program may still run.
        let _ = fs::remove_file(&original);
        fs::copy(&program, &original)
            .map_err(|error| format!("cannot write '{}': {error}", original.display()))?;
        Ok(original)
    }
}

/// Copies a file unless the copy is equal. Removes the copy of a file that does not exist.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    if !from.is_file() {
        return if to.is_file() { fs::remove_file(to) } else { Ok(()) };
    }
    let bytes = fs::read(from)?;
    if fs::read(to).is_ok_and(|copied| copied == bytes) {
        return Ok(());
    }
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(to, bytes)
}

/// Runs a command, which must succeed.
fn run(command: &mut Command) -> Result<Output, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("cannot run '{program}': {error}"))?;
    if output.status.success() {
        return Ok(output);
    }
    let arguments: Vec<_> = command.get_args().map(|it| it.to_string_lossy()).collect();
    let (arguments, errors) = (arguments.join(" "), String::from_utf8_lossy(&output.stderr));
    Err(format!("'{program} {arguments}' failed: {}\n{}", output.status, errors.trim_end()))
}
