//! A participating server: located, built, tested, and started for each session.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::kind::Kind;
use super::recipe::{Recipe, substitute};
use super::results;
use crate::error::LabError;
use crate::machine::cpu_set;
use crate::plan::RESERVED_DESCRIPTORS;
use crate::process::{ChildGuard, LaunchOptions};
use crate::process_tree::ProcessTree;
use crate::warning::Warning;

/// Time limit for a server to start listening.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval at which the server is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Resources common to all servers.
#[derive(Debug)]
pub(super) struct Environment {
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
    /// Maximum number of concurrent connections, including idle connections.
    pub(super) connections: u64,
    /// Maximum number of idle connections.
    pub(super) max_idle: u64,
    pub(super) descriptors: u64,
}

impl Environment {
    /// Starts a program on the shared processor in the scheduling class SCHED_BATCH, in which processes
    /// do not preempt each other on wake-up. It is killed with the lab.
    pub(super) fn launch(
        &self,
        program: &Path,
        arguments: &[String],
        log: &str,
        pipe_stdin: bool,
    ) -> Result<ChildGuard, LabError> {
        let mut words: Vec<String> = ["lab", "launch", "--"].map(String::from).to_vec();
        if let Some(chrt) = &self.chrt {
            words.extend([chrt.display().to_string(), "--batch".into(), "0".into()]);
        }
        words.push(program.display().to_string());
        words.extend_from_slice(arguments);
        let program_name = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy();
        ChildGuard::launch(LaunchOptions {
            executable: &self.hearken,
            arguments: &words,
            name: format!("`{program_name} {}`", arguments.join(" ")),
            cpus: &cpu_set(&self.cpus),
            stderr: self.scratch.join(format!("{log}.stderr")),
            pipe_stdin,
        })
    }
}

/// A server that is installed and built.
#[derive(Debug)]
pub(super) struct Participant {
    pub(super) recipe: Recipe,
    version: String,
    /// Name of its directory and its log.
    directory_name: String,
    dir: PathBuf,
}

/// A listening server.
#[derive(Debug)]
pub(super) struct RunningServer {
    pub(super) guard: ChildGuard,
    pub(super) tree: ProcessTree,
    pub(super) url: String,
}

impl Participant {
    /// Locates and builds a server. Returns a warning if it cannot participate.
    pub(super) fn prepare(
        recipe: &Recipe,
        environment: &Environment,
    ) -> Result<Participant, Warning> {
        Participant::prepare_as(&recipe.name, recipe, environment)
    }

    /// Locates and builds a server, with the given name for its directory and log.
    pub(super) fn prepare_as(
        name: &str,
        recipe: &Recipe,
        environment: &Environment,
    ) -> Result<Participant, Warning> {
        let excluded = |error: LabError| Warning::Excluded {
            server: recipe.name.clone(),
            reason: error.to_string(),
        };
        let (directory_name, dir) = (name.to_owned(), environment.scratch.join(name));
        let version = String::new();
        let mut participant = Participant { recipe: recipe.clone(), version, directory_name, dir };
        let program = participant.substitute(recipe.program(), 0, environment);
        if find_program(&program).is_none() {
            return Err(Warning::NotInstalled {
                server: recipe.name.clone(),
                program,
                package: recipe.package.clone(),
            });
        }
        participant.build(environment).map_err(excluded)?;
        participant.version = participant.query_version(environment);
        Ok(participant)
    }

    pub(super) fn describe(&self) -> results::Participant {
        results::Participant {
            name: self.recipe.name.clone(),
            description: self.recipe.description.clone(),
            version: self.version.clone(),
            recipe: self.recipe.text.clone(),
        }
    }

    /// Limits a number of idle connections to what the server supports.
    pub(super) fn max_idle(&self, idle: u64, environment: &Environment) -> u64 {
        let others = environment.connections.saturating_sub(environment.max_idle);
        let available = environment.descriptors.saturating_sub(RESERVED_DESCRIPTORS);
        idle.min((available / self.recipe.descriptors.max(1)).saturating_sub(others))
    }

    /// Starts the server on a free port and waits until it accepts connections.
    pub(super) fn start(
        &self,
        environment: &Environment,
        stop: &AtomicBool,
    ) -> Result<RunningServer, LabError> {
        // Another process may have taken the port. Retry once with another port.
        let first = self.start_once(environment, stop);
        match first {
            Err(LabError::Process { .. }) => self.start_once(environment, stop),
            other => other,
        }
    }

    fn start_once(
        &self,
        environment: &Environment,
        stop: &AtomicBool,
    ) -> Result<RunningServer, LabError> {
        let port = free_port()?;
        for (name, content) in &self.recipe.files {
            let path = self.dir.join(name);
            let content = self.substitute(content, port, environment);
            std::fs::write(&path, content).map_err(LabError::file("write", &path))?;
        }
        let words = self.substitute_all(&self.recipe.command, port, environment);
        let program = find_program(&words[0]).unwrap_or_else(|| PathBuf::from(&words[0]));
        let guard = environment.launch(&program, &words[1..], &self.directory_name, false)?;
        let deadline = Instant::now() + START_TIMEOUT;
        let addr = SocketAddr::from(([127, 0, 0, 1], port));
        while TcpStream::connect_timeout(&addr, START_TIMEOUT).is_err() {
            guard.check_running()?;
            if stop.load(Ordering::Relaxed) {
                return Err(LabError::Interrupted);
            }
            if Instant::now() > deadline {
                return Err(guard.error("did not listen within the time limit"));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        // The connection may have been accepted by another process on this port.
        guard.check_running()?;
        let tree = ProcessTree::new(guard.pid());
        Ok(RunningServer { guard, tree, url: format!("http://{addr}") })
    }

    fn build(&self, environment: &Environment) -> Result<(), LabError> {
        std::fs::create_dir_all(&self.dir).map_err(LabError::file("create", &self.dir))?;
        // For servers that drop root privileges.
        make_readable(&self.dir)?;
        for (name, content) in &self.recipe.copies {
            let path = self.dir.join(name);
            std::fs::write(&path, content).map_err(LabError::file("write", &path))?;
        }
        if self.recipe.build.is_empty() {
            return Ok(());
        }
        let words = self.substitute_all(&self.recipe.build, 0, environment);
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
    fn query_version(&self, environment: &Environment) -> String {
        let words = self.substitute_all(&self.recipe.version, 0, environment);
        let Some(program) = words.first() else { return String::new() };
        let program = find_program(program).unwrap_or_else(|| program.into());
        let Ok(output) = Command::new(program).args(&words[1..]).output() else {
            return String::new();
        };
        let output = [output.stdout, output.stderr].concat();
        let output = String::from_utf8_lossy(&output);
        output.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default().to_owned()
    }

    fn substitute_all(
        &self,
        words: &[String],
        port: u16,
        environment: &Environment,
    ) -> Vec<String> {
        words.iter().map(|word| self.substitute(word, port, environment)).collect()
    }

    fn substitute(&self, text: &str, port: u16, environment: &Environment) -> String {
        let path = |path: &Path| path.display().to_string();
        let values = [
            ("port", port.to_string()),
            ("root", path(&environment.root)),
            ("dir", path(&self.dir)),
            ("hearken", path(&environment.hearken)),
            ("origin", environment.origin.clone().unwrap_or_default()),
            ("connections", environment.connections.to_string()),
            ("descriptors", environment.descriptors.to_string()),
        ];
        substitute(text, &values)
    }
}

/// Finds a program in PATH and in the directories of system administration programs.
pub(super) fn find_program(program: &str) -> Option<PathBuf> {
    let is_executable = |path: &Path| {
        path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    };
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(|path| is_executable(path));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut directories: Vec<PathBuf> = std::env::split_paths(&path).collect();
    directories.extend(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from));
    directories
        .into_iter()
        .map(|directory| directory.join(program))
        .find(|path| is_executable(path))
}

/// Makes a directory readable for all users.
pub(super) fn make_readable(dir: &Path) -> Result<(), LabError> {
    let all = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(dir, all).map_err(LabError::file("change the mode of", dir))
}

fn free_port() -> Result<u16, LabError> {
    let error = |source| LabError::System { action: "find a free port (bind)".into(), source };
    let listener = TcpListener::bind("127.0.0.1:0").map_err(error)?;
    Ok(listener.local_addr().map_err(error)?.port())
}
