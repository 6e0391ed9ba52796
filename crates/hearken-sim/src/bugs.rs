//! Planted bugs: patches that the simulation must find.
//!
//! A patch starts with two lines: what is wrong, and the consequence. Lines `class: CLASS` and
//! `kinds: KIND...` follow, and then the diff.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::kinds;

mod scratch;
mod table;

pub use scratch::Scratch;
pub use table::Table;

/// Ends of the ranges of seeds that run with one kind before those of the next kind.
const ROUNDS: [u64; 4] = [100, 1_000, 10_000, u64::MAX];
/// Maximum duration of a run. A history that takes longer does not end.
const MAX_DURATION: Duration = Duration::from_secs(600);
/// Maximum size of the address space of a run in KiB, because a bug may need unlimited memory.
const MAX_MEMORY_KIB: u32 = 8 << 20;

/// A planted bug.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bug {
    /// Name of the file without its extension.
    pub name: String,
    /// Description of the mistake.
    pub mistake: String,
    /// Description of the consequence.
    pub consequence: String,
    /// Class of the mistake, such as `off-by-one error`.
    pub class: String,
    /// Names of the kinds of histories that may find the bug.
    pub kinds: Vec<String>,
    /// The patch.
    pub patch: PathBuf,
}

impl Bug {
    /// Parses the lines before the diff.
    ///
    /// # Errors
    /// A line is missing, or a kind is unknown.
    pub fn parse(name: &str, patch: &Path, text: &str) -> Result<Bug, String> {
        let mut lines = text.lines();
        let mut sentence = |of: &str| {
            let line = lines.next().filter(|line| line.ends_with('.'));
            line.map(str::to_owned).ok_or_else(|| format!("there is no sentence with {of}"))
        };
        let (mistake, consequence) = (sentence("the mistake")?, sentence("the consequence")?);
        let mut value = |key: &str| {
            let line = lines.next().and_then(|line| line.strip_prefix(key)?.strip_prefix(": "));
            line.ok_or_else(|| format!("there is no line '{key}: ...'"))
        };
        let class = value("class")?.to_owned();
        let kinds: Vec<_> = value("kinds")?.split(' ').map(str::to_owned).collect();
        if let Some(unknown) = kinds.iter().find(|kind| kinds::find(kind).is_none()) {
            return Err(format!("unknown kind '{unknown}'"));
        }
        Ok(Bug {
            name: name.to_owned(),
            mistake,
            consequence,
            class,
            kinds,
            patch: patch.to_owned(),
        })
    }
}

/// Returns the names of the planted bugs in a directory, in order.
///
/// # Errors
/// The directory cannot be read.
pub fn names(directory: &Path) -> Result<Vec<String>, String> {
    let unreadable = |error| format!("cannot read planted bugs '{}': {error}", directory.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(unreadable)? {
        let name = entry.map_err(unreadable)?.file_name();
        names.extend(name.to_str().and_then(|name| name.strip_suffix(".patch")).map(str::to_owned));
    }
    names.sort_unstable();
    Ok(names)
}

/// Reads the planted bug with a name.
///
/// # Errors
/// The file cannot be read or is not valid.
pub fn read(directory: &Path, name: &str) -> Result<Bug, String> {
    let patch = directory.join(format!("{name}.patch"));
    let text = fs::read_to_string(&patch)
        .map_err(|error| format!("cannot read planted bug '{}': {error}", patch.display()))?;
    Bug::parse(name, &patch, &text)
        .map_err(|error| format!("invalid planted bug '{}': {error}", patch.display()))
}

/// The result of the search for a bug.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Search {
    /// Number of histories that were run.
    pub histories: u64,
    /// The detection, unless the bug was not found.
    pub detection: Option<Detection>,
}

/// The detection of a bug.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Detection {
    /// The kind of histories.
    pub kind: String,
    /// The seed, unless the run ended without reporting one.
    pub seed: Option<u64>,
    /// The violated invariant.
    pub finding: String,
}

/// The programs with and without a bug.
#[derive(Debug)]
pub struct Programs<'p> {
    /// The program with the bug.
    pub patched: &'p Path,
    /// The program without it.
    pub original: &'p Path,
    /// Directory for output.
    pub output: &'p Path,
}

/// The result of a run.
struct Run {
    histories: u64,
    detection: Option<Detection>,
}

impl Programs<'_> {
    /// Runs up to `max` histories until one finds the bug. A history with a finding in the original
    /// program, too, does not count as a detection.
    ///
    /// # Errors
    /// A program cannot be run, or does not accept its arguments.
    pub fn search(&self, bug: &Bug, max: u64) -> Result<Search, String> {
        let share = max / bug.kinds.len().max(1) as u64;
        let (mut histories, mut start) = (0, 0);
        for end in ROUNDS.map(|end| end.min(share)) {
            for kind in &bug.kinds {
                let mut seeds = start..end;
                while !seeds.is_empty() {
                    let run = self.run(kind, seeds.clone())?;
                    histories += run.histories;
                    let Some(detection) = run.detection else { break };
                    let Some(seed) = detection.seed else {
                        return Ok(Search { histories, detection: Some(detection) });
                    };
                    if !self.fails_originally(kind, seed)? {
                        return Ok(Search { histories, detection: Some(detection) });
                    }
                    seeds.start = seed + 1;
                }
            }
            start = end;
        }
        Ok(Search { histories, detection: None })
    }

    /// Runs histories of one kind until the first finding.
    fn run(&self, kind: &str, seeds: Range<u64>) -> Result<Run, String> {
        let output = self.output.join("output.txt");
        let status = {
            // The shell limits the memory and then becomes the program.
            let mut command = Command::new("sh");
            command.arg("-c").arg(format!("ulimit -v {MAX_MEMORY_KIB}; exec \"$0\" \"$@\""));
            command.arg(self.patched).args(["run", "--jobs", "1", "--what", kind, "--seeds"]);
            command.arg(format!("{}..{}", seeds.start, seeds.end));
            command.arg("--findings").arg(self.output.join("histories"));
            File::create(&output)
                .and_then(|file| run_to_end(command.stdout(file).stderr(Stdio::null())))
                .map_err(|error| format!("cannot run '{}': {error}", self.patched.display()))?
        };
        let text = fs::read_to_string(&output)
            .map_err(|error| format!("cannot read '{}': {error}", output.display()))?;
        let without_seed = |finding: String| Run {
            histories: seeds.end - seeds.start,
            detection: Some(Detection { kind: kind.to_owned(), seed: None, finding }),
        };
        match status {
            None => Ok(without_seed("a history does not end".to_owned())),
            Some(status) => match status.code() {
                Some(0 | 1) => parse_run(kind, &text)
                    .ok_or_else(|| format!("cannot parse the output '{}'", output.display())),
                Some(2) => {
                    Err(format!("'{}' does not accept its arguments", self.patched.display()))
                }
                _ => Ok(without_seed(format!("the simulator failed: {status}"))),
            },
        }
    }

    /// Returns whether a history has a finding in the original program.
    fn fails_originally(&self, kind: &str, seed: u64) -> Result<bool, String> {
        let mut command = Command::new(self.original);
        command.args(["replay", &seed.to_string(), "--what", kind, "--quiet"]);
        let status = run_to_end(command.stdout(Stdio::null()).stderr(Stdio::null()))
            .map_err(|error| format!("cannot run '{}': {error}", self.original.display()))?;
        Ok(status.is_none_or(|status| !status.success()))
    }
}

/// Runs a command. Kills it and returns `None` if it takes too long.
fn run_to_end(command: &mut Command) -> io::Result<Option<ExitStatus>> {
    let mut child = command.spawn()?;
    let deadline = Instant::now() + MAX_DURATION;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Parses the output of a run: the number of histories, and the first finding.
fn parse_run(kind: &str, text: &str) -> Option<Run> {
    let mut lines = text.lines();
    let histories = lines.find_map(|line| {
        let rest = line.strip_prefix(kind)?.strip_prefix(": ")?;
        rest.split_once(" histories")?.0.parse().ok()
    })?;
    let finding = lines.find_map(|line| line.split_once(" x ")).map(|(_, finding)| finding);
    let seed = lines.find_map(|line| {
        line.strip_prefix("  seed ")?.split_once(',').and_then(|(seed, _)| seed.parse().ok())
    });
    let detection = finding.map(|finding| Detection {
        kind: kind.to_owned(),
        seed,
        finding: finding.to_owned(),
    });
    Some(Run { histories, detection })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Bug, parse_run};

    #[test]
    fn parses_the_lines_before_the_diff() {
        let path = Path::new("some.patch");
        let text =
            "A line is missing.\nNothing is sent.\nclass: dropped line\nkinds: server\n\n---";
        let bug = Bug::parse("some", path, text).unwrap();
        assert_eq!(bug.mistake, "A line is missing.");
        assert_eq!(bug.class, "dropped line");
        assert_eq!(bug.kinds, ["server"]);
        for (from, to, error) in [
            ("missing.", "missing", "there is no sentence with the mistake"),
            ("class:", "kind:", "there is no line 'class: ...'"),
            ("kinds: server", "kinds: other", "unknown kind 'other'"),
        ] {
            let invalid = text.replace(from, to);
            assert_eq!(Bug::parse("some", path, &invalid).unwrap_err(), error);
        }
    }

    #[test]
    fn parses_the_output_of_a_run() {
        let clean = parse_run("server", "server: 100 histories, 5/s, 0 findings\n").unwrap();
        assert_eq!(clean.histories, 100);
        assert!(clean.detection.is_none());
        let text = "server: 7 histories, 5/s, 1 findings\n\n1 x open sockets\n  seed 6, 'a.txt'\n";
        let detection = parse_run("server", text).unwrap().detection.unwrap();
        assert_eq!(detection.seed, Some(6));
        assert_eq!(detection.finding, "open sockets");
        assert!(parse_run("server", "").is_none());
    }
}
