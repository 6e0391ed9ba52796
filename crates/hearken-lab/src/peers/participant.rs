//! A participating server: located, built, tested, and started for each session.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::kind::Kind;
use super::recipe::{Recipe, fill};
use super::results;
use crate::error::LabError;
use crate::machine::cpu_set;
use crate::plan::SPARE_DESCRIPTORS;
use crate::process::{Guard, Launch};
use crate::tree::Tree;
use crate::warning::Warning;

/// Time limit for a server to start listening.
const START: Duration = Duration::from_secs(10);
/// Interval at which the server is polled.
const LOOK: Duration = Duration::from_millis(5);

/// Resources common to all servers.
#[derive(Debug)]
pub(super) struct Ground {
    pub(super) kind: Kind,
    /// Address and port of the origin, for proxies.
    pub(super) origin: Option<String>,
    pub(super) hearken: PathBuf,
    /// Document root, and parent of the directories of the servers.
    pub(super) root: PathBuf,
    pub(super) scratch: PathBuf,
    /// Processors of server and driver.
    pub(super) cpus: Vec<usize>,
    /// Processors of all other processes.
    pub(super) others: Vec<usize>,
    /// Path of `chrt`, if it is installed.
    pub(super) chrt: Option<PathBuf>,
    /// Maximum number of concurrent connections, and how many of them are idle.
    pub(super) connections: u64,
    pub(super) most_idle: u64,
    pub(super) descriptors: u64,
}

impl Ground {
    /// Starts a program on the shared processor in the scheduling class SCHED_BATCH, in which processes
    /// do not preempt each other on wake-up. It is killed with the lab.
    pub(super) fn launch(
        &self,
        program: &Path,
        arguments: &[String],
        log: &str,
        listens: bool,
    ) -> Result<Guard, LabError> {
        let mut words: Vec<String> = ["lab", "launch", "--"].map(String::from).to_vec();
        if let Some(chrt) = &self.chrt {
            words.extend([chrt.display().to_string(), "--batch".into(), "0".into()]);
        }
        words.push(program.display().to_string());
        words.extend_from_slice(arguments);
        let shown = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy();
        Guard::launch(Launch {
            executable: &self.hearken,
            arguments: &words,
            name: format!("`{shown} {}`", arguments.join(" ")),
            cpus: &cpu_set(&self.cpus),
            stderr: self.scratch.join(format!("{log}.stderr")),
            listens,
        })
    }
}

/// A server that is installed and built.
#[derive(Debug)]
pub(super) struct Participant {
    pub(super) recipe: Recipe,
    version: String,
    /// Name of its directory and its log.
    place: String,
    dir: PathBuf,
}

/// A listening server.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) guard: Guard,
    pub(super) tree: Tree,
    pub(super) url: String,
}

impl Participant {
    /// Locates and builds a server. Returns a warning if it cannot participate.
    pub(super) fn prepare(recipe: &Recipe, ground: &Ground) -> Result<Participant, Warning> {
        Participant::prepare_at(&recipe.name, recipe, ground)
    }

    /// Locates and builds a server, with the given name for its directory and log.
    pub(super) fn prepare_at(
        place: &str,
        recipe: &Recipe,
        ground: &Ground,
    ) -> Result<Participant, Warning> {
        let left_out = |error: LabError| Warning::LeftOut {
            server: recipe.name.clone(),
            reason: error.to_string(),
        };
        let (place, dir) = (place.to_owned(), ground.scratch.join(place));
        let version = String::new();
        let mut participant = Participant { recipe: recipe.clone(), version, place, dir };
        let program = participant.fill(recipe.program(), 0, ground);
        if find(&program).is_none() {
            return Err(Warning::NotInstalled {
                server: recipe.name.clone(),
                program,
                package: recipe.package.clone(),
            });
        }
        participant.build(ground).map_err(left_out)?;
        participant.version = participant.ask_version(ground);
        Ok(participant)
    }

    pub(super) fn describe(&self) -> results::Participant {
        results::Participant {
            name: self.recipe.name.clone(),
            about: self.recipe.about.clone(),
            version: self.version.clone(),
            recipe: self.recipe.text.clone(),
        }
    }

    /// Limits a number of idle connections to what the server supports.
    pub(super) fn most_idle(&self, idle: u64, ground: &Ground) -> u64 {
        let others = ground.connections.saturating_sub(ground.most_idle);
        let room = ground.descriptors.saturating_sub(SPARE_DESCRIPTORS);
        idle.min((room / self.recipe.descriptors.max(1)).saturating_sub(others))
    }

    /// Starts the server on a free port and waits until it accepts connections.
    pub(super) fn start(&self, ground: &Ground, stop: &AtomicBool) -> Result<Running, LabError> {
        // Another process may have taken the port. Retry once with another port.
        let first = self.start_once(ground, stop);
        match first {
            Err(LabError::Process { .. }) => self.start_once(ground, stop),
            other => other,
        }
    }

    fn start_once(&self, ground: &Ground, stop: &AtomicBool) -> Result<Running, LabError> {
        let port = free_port()?;
        for (name, content) in &self.recipe.files {
            let path = self.dir.join(name);
            let content = self.fill(content, port, ground);
            std::fs::write(&path, content).map_err(LabError::file("write", &path))?;
        }
        let words = self.words(&self.recipe.command, port, ground);
        let program = find(&words[0]).unwrap_or_else(|| PathBuf::from(&words[0]));
        let guard = ground.launch(&program, &words[1..], &self.place, false)?;
        let deadline = Instant::now() + START;
        let addr = SocketAddr::from(([127, 0, 0, 1], port));
        while TcpStream::connect_timeout(&addr, START).is_err() {
            guard.check()?;
            if stop.load(Ordering::Relaxed) {
                return Err(LabError::Interrupted);
            }
            if Instant::now() > deadline {
                return Err(guard.failed("did not listen within the time limit"));
            }
            std::thread::sleep(LOOK);
        }
        // The connection may have been accepted by another process on this port.
        guard.check()?;
        let tree = Tree::of(guard.pid());
        Ok(Running { guard, tree, url: format!("http://{addr}") })
    }

    fn build(&self, ground: &Ground) -> Result<(), LabError> {
        std::fs::create_dir_all(&self.dir).map_err(LabError::file("create", &self.dir))?;
        // For servers that drop root privileges.
        open_to_all(&self.dir)?;
        for (name, content) in &self.recipe.copies {
            let path = self.dir.join(name);
            std::fs::write(&path, content).map_err(LabError::file("write", &path))?;
        }
        if self.recipe.build.is_empty() {
            return Ok(());
        }
        let words = self.words(&self.recipe.build, 0, ground);
        let program = Path::new(&words[0]);
        let output = Command::new(program).args(&words[1..]).output();
        let output = output.map_err(LabError::file("start", program))?;
        if output.status.success() {
            return Ok(());
        }
        Err(LabError::Process {
            process: format!("`{}`", words.join(" ")),
            problem: format!("failed ({})", output.status),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// Returns the first line that the server prints as its version, to either output.
    fn ask_version(&self, ground: &Ground) -> String {
        let words = self.words(&self.recipe.version, 0, ground);
        let Some(program) = words.first() else { return String::new() };
        let program = find(program).unwrap_or_else(|| program.into());
        let Ok(output) = Command::new(program).args(&words[1..]).output() else {
            return String::new();
        };
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        said.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default().to_owned()
    }

    fn words(&self, words: &[String], port: u16, ground: &Ground) -> Vec<String> {
        words.iter().map(|word| self.fill(word, port, ground)).collect()
    }

    fn fill(&self, text: &str, port: u16, ground: &Ground) -> String {
        let path = |path: &Path| path.display().to_string();
        let values = [
            ("port", port.to_string()),
            ("root", path(&ground.root)),
            ("dir", path(&self.dir)),
            ("hearken", path(&ground.hearken)),
            ("origin", ground.origin.clone().unwrap_or_default()),
            ("connections", ground.connections.to_string()),
            ("descriptors", ground.descriptors.to_string()),
        ];
        fill(text, &values)
    }
}

/// Finds a program in PATH and in the directories of system administration programs.
pub(super) fn find(program: &str) -> Option<PathBuf> {
    let runs = |path: &Path| {
        path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    };
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(|path| runs(path));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    places.extend(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from));
    places.into_iter().map(|place| place.join(program)).find(|path| runs(path))
}

/// Makes a directory readable for all users.
pub(super) fn open_to_all(dir: &Path) -> Result<(), LabError> {
    let all = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(dir, all).map_err(LabError::file("change the mode of", dir))
}

fn free_port() -> Result<u16, LabError> {
    let taken = |source| LabError::System { action: "find a free port (bind)".into(), source };
    let listener = TcpListener::bind("127.0.0.1:0").map_err(taken)?;
    Ok(listener.local_addr().map_err(taken)?.port())
}
