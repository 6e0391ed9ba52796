//! A participating server: located, built, tested, and started for each session.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::error::LabError;
use crate::experiment::{PlacementRule, Template, Variables};
use crate::machine::{Placement, cpu_set};
use crate::plan::{RESERVED_DESCRIPTORS, Server};
use crate::process::{ChildGuard, LaunchOptions};
use crate::process_tree::ProcessTree;
use crate::recipe::{Recipe, substitute};
use crate::results;
use crate::server_metrics::ServerMetrics;
use crate::throttle::{Throttle, Throttled};
use crate::warning::Warning;

/// Time limit for a server to start listening.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval at which the server is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Resources common to all servers.
#[derive(Debug)]
pub(crate) struct Environment {
    pub(crate) hearken: PathBuf,
    /// Document root.
    pub(crate) root: PathBuf,
    /// Parent of the directories of the servers.
    pub(crate) scratch: PathBuf,
    pub(crate) placement: Placement,
    /// Path of `chrt`, if it is installed.
    pub(crate) chrt: Option<PathBuf>,
    pub(crate) descriptors: u64,
}

/// Conditions under which a server starts.
#[derive(Clone, Debug, Default)]
pub(crate) struct StartContext {
    /// Variables of the measurement.
    pub(crate) variables: Variables,
    /// Maximum number of concurrent connections, including idle connections.
    pub(crate) connections: u64,
    /// Number of idle connections.
    pub(crate) idle: u64,
    /// Address and port of the origin, for proxies.
    pub(crate) origin: Option<String>,
    /// Processors of the server and of the load generator.
    pub(crate) placement: PlacementRule,
    /// Share of one processor that the server may use.
    pub(crate) quota: Option<f64>,
}

/// Processors and scheduling class of a process.
#[derive(Clone, Debug)]
pub(crate) struct Schedule<'a> {
    pub(crate) cpus: Vec<usize>,
    /// Whether the class is SCHED_BATCH, in which processes do not preempt each other on wake-up.
    pub(crate) batch: bool,
    /// CPU quota.
    pub(crate) throttle: Option<&'a Throttle>,
}

impl Environment {
    /// Starts a program that is killed with the lab.
    pub(crate) fn launch(
        &self,
        program: &Path,
        arguments: &[String],
        log: &str,
        schedule: &Schedule<'_>,
        pipe_stdin: bool,
    ) -> Result<ChildGuard, LabError> {
        let mut words: Vec<String> = ["lab", "launch"].map(String::from).to_vec();
        if let Some(throttle) = schedule.throttle {
            words.extend(["--join".to_owned(), throttle.members().display().to_string()]);
        }
        words.push("--".into());
        if let Some(chrt) = self.chrt.as_ref().filter(|_| schedule.batch) {
            words.extend([chrt.display().to_string(), "--batch".into(), "0".into()]);
        }
        words.push(program.display().to_string());
        words.extend_from_slice(arguments);
        let program_name = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy();
        ChildGuard::launch(LaunchOptions {
            executable: &self.hearken,
            arguments: &words,
            name: format!("`{program_name} {}`", arguments.join(" ")),
            cpus: &cpu_set(&schedule.cpus),
            stderr: self.scratch.join(format!("{log}.stderr")),
            pipe_stdin,
        })
    }

    /// Returns the schedule of a server.
    pub(crate) fn server_schedule(&self, rule: PlacementRule) -> Schedule<'_> {
        let [cpus, _] = self.placement.processors(rule);
        Schedule { cpus, batch: rule == PlacementRule::Together, throttle: None }
    }

    /// Returns the schedule of a load generator.
    pub(crate) fn load_schedule(&self, rule: PlacementRule) -> Schedule<'_> {
        let [_, cpus] = self.placement.processors(rule);
        Schedule { cpus, batch: rule == PlacementRule::Together, throttle: None }
    }
}

/// Ports of a server on this machine.
#[derive(Clone, Copy, Debug)]
struct Ports {
    listen: u16,
    /// Port of the metrics page; 0 if there is none.
    admin: u16,
}

/// Ports in commands that start no server.
const NO_PORTS: Ports = Ports { listen: 0, admin: 0 };

/// A server that is installed and built.
#[derive(Debug)]
pub(crate) struct Participant {
    pub(crate) name: String,
    pub(crate) recipe: Recipe,
    arguments: Vec<Template>,
    /// Variables of its rule.
    variables: Variables,
    version: String,
    dir: PathBuf,
}

/// A listening server.
#[derive(Debug)]
pub(crate) struct RunningServer {
    pub(crate) guard: ChildGuard,
    pub(crate) tree: ProcessTree,
    pub(crate) url: String,
    /// Port and path of the metrics page.
    metrics: Option<(u16, String)>,
    /// CPU quota. Its cgroup is removed after the process.
    throttle: Option<Throttle>,
}

impl RunningServer {
    /// Returns the option of `hearken load` that the server requires, if any.
    pub(crate) fn load_option(&self) -> Option<String> {
        self.url.starts_with("https:").then(|| "--insecure".to_owned())
    }

    /// Returns how often the quota stopped the server; none without a quota.
    pub(crate) fn throttled(&self) -> Result<Option<Throttled>, LabError> {
        self.throttle.as_ref().map(Throttle::throttled).transpose()
    }

    /// Returns the counters that the server exposes; none if it exposes none.
    pub(crate) fn metrics(&self) -> Result<Option<ServerMetrics>, LabError> {
        let Some((port, path)) = &self.metrics else { return Ok(None) };
        let metrics = ServerMetrics::read(*port, path);
        metrics.map(Some).map_err(|error| {
            self.guard.error(&format!("did not return its metrics from {path} ({error})"))
        })
    }
}

impl Participant {
    /// Locates and builds a server in the given directory below the scratch directory. Returns a warning
    /// if it cannot participate.
    pub(crate) fn prepare(
        directory: &str,
        server: &Server,
        environment: &Environment,
    ) -> Result<Participant, Warning> {
        let excluded = |error: LabError| Warning::Excluded {
            server: server.name.clone(),
            reason: error.to_string(),
        };
        let mut participant = Participant {
            name: server.name.clone(),
            recipe: server.recipe.clone(),
            arguments: server.arguments.clone(),
            variables: server.variables.clone(),
            version: String::new(),
            dir: environment.scratch.join(directory),
        };
        let context = StartContext::default();
        let program =
            participant.substitute(participant.recipe.program(), NO_PORTS, environment, &context);
        if find_program(&program).is_none() {
            return Err(Warning::NotInstalled {
                server: server.name.clone(),
                program,
                package: server.recipe.package.clone(),
            });
        }
        participant.build(environment).map_err(excluded)?;
        participant.version = participant.query_version(environment);
        Ok(participant)
    }

    pub(crate) fn describe(&self) -> results::Participant {
        results::Participant {
            name: self.name.clone(),
            description: self.recipe.description.clone(),
            version: self.version.clone(),
            recipe: self.recipe.text.clone(),
            arguments: self.arguments.iter().map(|text| text.fill(&self.variables)).collect(),
        }
    }

    /// Limits a number of idle connections to what the server supports.
    pub(crate) fn max_idle(&self, context: &StartContext, environment: &Environment) -> u64 {
        let others = context.connections.saturating_sub(context.idle);
        let available = environment.descriptors.saturating_sub(RESERVED_DESCRIPTORS);
        context.idle.min((available / self.recipe.descriptors.max(1)).saturating_sub(others))
    }

    /// Starts the server on a free port and waits until it accepts connections.
    pub(crate) fn start(
        &self,
        environment: &Environment,
        context: &StartContext,
        stop: &AtomicBool,
    ) -> Result<RunningServer, LabError> {
        // Another process may have taken the port. Retry once with another port.
        let first = self.start_once(environment, context, stop);
        match first {
            Err(LabError::Process { .. }) => self.start_once(environment, context, stop),
            other => other,
        }
    }

    fn start_once(
        &self,
        environment: &Environment,
        context: &StartContext,
        stop: &AtomicBool,
    ) -> Result<RunningServer, LabError> {
        let port = free_port()?;
        let admin = match self.recipe.metrics {
            Some(_) => free_port()?,
            None => 0,
        };
        let ports = Ports { listen: port, admin };
        for (name, content) in &self.recipe.files {
            let path = self.dir.join(name);
            let content = self.substitute(content, ports, environment, context);
            std::fs::write(&path, content).map_err(LabError::file("write", &path))?;
        }
        let mut words = self.substitute_all(&self.recipe.command, ports, environment, context);
        let mut variables = context.variables.clone();
        variables.extend(self.variables.clone());
        let arguments = self.arguments.iter().map(|text| text.fill(&variables));
        words.extend(arguments.map(|text| self.substitute(&text, ports, environment, context)));
        let program = find_program(&words[0]).unwrap_or_else(|| PathBuf::from(&words[0]));
        let log = self.dir.file_name().unwrap_or_default().to_string_lossy();
        let throttle = context.quota.map(Throttle::new).transpose()?;
        let schedule = environment.server_schedule(context.placement);
        let schedule = Schedule { throttle: throttle.as_ref(), ..schedule };
        let guard = environment.launch(&program, &words[1..], &log, &schedule, false)?;
        let deadline = Instant::now() + START_TIMEOUT;
        let addr = SocketAddr::from(([127, 0, 0, 1], port));
        let admin = self.recipe.metrics.as_ref().map(|_| SocketAddr::from(([127, 0, 0, 1], admin)));
        for addr in [Some(addr), admin].into_iter().flatten() {
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
        }
        // The connection may have been accepted by another process on this port.
        guard.check_running()?;
        let tree = ProcessTree::new(guard.pid());
        let metrics = admin.map(|admin| admin.port()).zip(self.recipe.metrics.clone());
        let scheme = if self.recipe.tls { "https" } else { "http" };
        Ok(RunningServer { guard, tree, url: format!("{scheme}://{addr}"), metrics, throttle })
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
        let words = self.substitute_all(
            &self.recipe.build,
            NO_PORTS,
            environment,
            &StartContext::default(),
        );
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
        let words = self.substitute_all(
            &self.recipe.version,
            NO_PORTS,
            environment,
            &StartContext::default(),
        );
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
        ports: Ports,
        environment: &Environment,
        context: &StartContext,
    ) -> Vec<String> {
        words.iter().map(|word| self.substitute(word, ports, environment, context)).collect()
    }

    fn substitute(
        &self,
        text: &str,
        ports: Ports,
        environment: &Environment,
        context: &StartContext,
    ) -> String {
        let path = |path: &Path| path.display().to_string();
        let values = [
            ("port", ports.listen.to_string()),
            ("admin", ports.admin.to_string()),
            ("root", path(&environment.root)),
            ("dir", path(&self.dir)),
            ("hearken", path(&environment.hearken)),
            ("origin", context.origin.clone().unwrap_or_default()),
            ("connections", context.connections.to_string()),
            ("descriptors", environment.descriptors.to_string()),
        ];
        substitute(text, &values)
    }
}

/// Finds a program in PATH and in the directories of system administration programs.
pub(crate) fn find_program(program: &str) -> Option<PathBuf> {
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
pub(crate) fn make_readable(dir: &Path) -> Result<(), LabError> {
    let all = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(dir, all).map_err(LabError::file("change the mode of", dir))
}

fn free_port() -> Result<u16, LabError> {
    let error = |source| LabError::System { action: "find a free port (bind)".into(), source };
    let listener = TcpListener::bind("127.0.0.1:0").map_err(error)?;
    Ok(listener.local_addr().map_err(error)?.port())
}
