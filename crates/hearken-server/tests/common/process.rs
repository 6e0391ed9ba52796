//! Servers and tests in a process of their own: this executable, started again.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use hearken_server::proxy::config::ProxyMode;
use hearken_server::{Config, Distribution, Model, start};
use rustix::process::{Pid, Resource, Rlimit, prlimit, setrlimit};

use super::connection::Connection;
use super::files::Site;
use super::ms;
use super::server::{Setup, upstreams_at};
use super::wire::Kind;

/// The variables that configure a child: `SERVE` is a directory, `PROXY` an address.
const SERVE: &str = "HEARKEN_TEST_SERVE";
const PROXY: &str = "HEARKEN_TEST_PROXY";
const EVENTS: &str = "HEARKEN_TEST_EVENTS";
const WORKERS: &str = "HEARKEN_TEST_WORKERS";
const COPY: &str = "HEARKEN_TEST_COPY";
/// The positions of the model and the distribution of connections in [`MODELS`] and [`DISTRIBUTIONS`].
const MODEL: &str = "HEARKEN_TEST_MODEL";
const DISTRIBUTION: &str = "HEARKEN_TEST_DISTRIBUTION";
/// Set in a process that runs a single test, by [`run_alone`].
const ALONE: &str = "HEARKEN_TEST_ALONE";

/// Descriptor limit of a static file server in a process of its own.
pub(crate) const DESCRIPTORS: u64 = 64;

/// Returns a command that runs a single test of this executable.
fn run_test(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]);
    command
}

/// Runs the test of this name again in a process of its own. Returns whether this is that process, in
/// which the test does its work. Panics if the test fails there.
pub(crate) fn run_alone(test: &str) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let status = run_test(test).env(ALONE, test).stdout(Stdio::null()).status().unwrap();
    assert!(status.success(), "the child failed: {status}");
    false
}

const MODELS: &[Model] = &[Model::Events, Model::Tasks, Model::Threads, Model::Pool, Model::Hybrid];
const DISTRIBUTIONS: &[Distribution] =
    &[Distribution::ReusePort, Distribution::HandOver, Distribution::Shared, Distribution::Migrate];

fn position_in<T: PartialEq>(all: &[T], value: &T) -> String {
    all.iter().position(|other| other == value).unwrap().to_string()
}

fn number_in<T: Copy>(all: &[T], position: &str) -> T {
    all[position.parse::<usize>().unwrap()]
}

/// Runs the server that the environment describes, until standard input ends. Returns whether the
/// environment describes one.
pub(crate) fn run_server() -> bool {
    let variable = |name| std::env::var(name).ok();
    let Some(events) = variable(EVENTS) else { return false };
    let setup = Setup {
        model: variable(MODEL).map_or(Model::Events, |text| number_in(MODELS, &text)),
        distribution: variable(DISTRIBUTION)
            .map_or(Distribution::default(), |text| number_in(DISTRIBUTIONS, &text)),
        splice: variable(COPY).is_none(),
        workers: variable(WORKERS).map_or(1, |text| text.parse().unwrap()),
        ..Setup::named(String::leak(events))
    };
    let config = if let Some(root) = variable(SERVE) {
        let limit = Rlimit { current: Some(DESCRIPTORS), maximum: Some(DESCRIPTORS) };
        setrlimit(Resource::Nofile, limit).unwrap();
        setup.files_config_at(root.into())
    } else {
        let upstream = variable(PROXY).unwrap().parse().unwrap();
        let mut config: Config = setup.proxy_config(ProxyMode::Reverse(upstreams_at(&[upstream])));
        // Open connections are not waited for.
        config.event_loops.shutdown_timeout = ms(200);
        config
    };
    let server = start(&config).unwrap();
    println!("listening on {}", server.addr());
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    server.handle().stop();
    server.wait().unwrap();
    true
}

/// A server in a process of its own. It is stopped when dropped, and must end without an error.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    addr: SocketAddr,
}

impl Process {
    /// Starts a server of `site` that may have [`DESCRIPTORS`] descriptors.
    pub(crate) fn serve(setup: &Setup, site: &Site) -> Process {
        Process::start(setup, SERVE, site.root().to_str().unwrap())
    }

    /// Starts a proxy with the default settings.
    pub(crate) fn proxy(setup: &Setup, upstream: SocketAddr) -> Process {
        Process::start(setup, PROXY, &upstream.to_string())
    }

    fn start(setup: &Setup, role: &str, target: &str) -> Process {
        // In an executable with a main function of its own, the arguments are ignored.
        let mut command = run_test("server_process");
        command.env(EVENTS, setup.events).env(WORKERS, setup.workers.to_string()).env(role, target);
        if !setup.splice {
            command.env(COPY, "1");
        }
        command.env(MODEL, position_in(MODELS, &setup.model));
        command.env(DISTRIBUTION, position_in(DISTRIBUTIONS, &setup.distribution));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let addr = loop {
            let line = lines.next().expect("the child ended").unwrap();
            if let Some(addr) = line.split("listening on ").nth(1) {
                break addr.parse().unwrap();
            }
        };
        // Keeps the pipe open.
        thread::spawn(move || lines.for_each(drop));
        Process { child, addr }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub(crate) fn connect(&self) -> Connection {
        Connection::connect(self.addr, Kind::Response)
    }

    /// Stops the server, without waiting for its end.
    pub(crate) fn stop(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Sets the number of descriptors that the process may open in each table.
    pub(crate) fn limit_descriptors(&self, current: u64) {
        let limit = Rlimit { current: Some(current), maximum: Some(DESCRIPTORS) };
        prlimit(Some(Pid::from_child(&self.child)), Resource::Nofile, limit).unwrap();
    }

    /// Returns the directory of the first worker's descriptors.
    pub(crate) fn worker_descriptors(&self) -> PathBuf {
        let mut threads = fs::read_dir(self.proc("task")).unwrap().map(|of| of.unwrap().path());
        let is_worker = |of: &PathBuf| fs::read_to_string(of.join("comm")).unwrap() == "worker-0\n";
        threads.find(is_worker).unwrap().join("fd")
    }

    /// Returns the size of the largest descriptor table.
    pub(crate) fn count_descriptors(&self) -> usize {
        let threads = fs::read_dir(self.proc("task")).unwrap();
        let tables = threads.filter_map(|thread| fs::read_dir(thread.ok()?.path().join("fd")).ok());
        tables.map(Iterator::count).max().unwrap_or(0)
    }

    /// Returns the CPU time of the process: `utime` and `stime` of proc(5), in ticks of 10 ms.
    pub(crate) fn cpu_time(&self) -> Duration {
        let stat = fs::read_to_string(self.proc("stat")).unwrap();
        let (_, fields) = stat.rsplit_once(')').unwrap();
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let ticks = |index: usize| fields[index].parse::<u64>().unwrap();
        ms(10 * (ticks(11) + ticks(12)))
    }

    /// Returns the resident memory of the process in KiB.
    pub(crate) fn resident(&self) -> u64 {
        let status = fs::read_to_string(self.proc("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    fn proc(&self, file: &str) -> String {
        format!("/proc/{}/{file}", self.child.id())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop();
        let status = self.child.wait().unwrap();
        if !thread::panicking() {
            assert!(status.success(), "the child failed: {status}");
        }
    }
}
