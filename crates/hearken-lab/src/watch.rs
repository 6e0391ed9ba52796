//! Resource usage of a server that was started by someone else, sampled during a load test from the
//! accounting of the kernel.
//!
//! ```
//! use std::time::Duration;
//! use hearken_lab::watch::Watch;
//!
//! let watch = Watch::new(&std::process::id().to_string())?;
//! let sampler = watch.start(Duration::from_millis(20))?;
//! // The load is offered here.
//! let server = sampler.stop();
//! assert!(server.samples.len() >= 2 && server.total.cpu_ns.is_some());
//! println!("{server}");
//! # Ok::<(), hearken_lab::LabError>(())
//! ```

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use hearken_load::{Server, ServerSample, ServerUse};
use rustix::time::{ClockId, clock_gettime};

mod accounts;
mod cgroup;
mod counting;
mod descriptors;
mod members;
mod port;
mod sampler;
mod target;

pub use sampler::{DEFAULT_INTERVAL, SHORTEST_INTERVAL, Sampler};
pub use target::Target;

use crate::counters::{Counters, Counts};
use crate::error::LabError;
use accounts::Accounts;
use cgroup::{CpuSince, Group};
use members::Members;
use target::not_watched;

/// A server whose resource usage is sampled.
///
/// A process is watched with its descendants, including those started later. The totals include
/// processes that have exited.
#[derive(Debug)]
pub struct Watch {
    what: String,
    members: Members,
    accounts: Accounts,
    counters: Counters,
    descriptors: descriptors::Counter,
    start: Start,
    most: u64,
    gone: Option<f64>,
    not_had: BTreeSet<String>,
    watching_ns: u64,
}

/// Values at the start of the measurement.
#[derive(Debug)]
struct Start {
    at: Instant,
    counts: Counts,
    cpu: Option<CpuSince>,
    memory_peak: Option<u64>,
}

impl Watch {
    /// Resolves `target`, as described at [`Target`], and attaches the counters.
    ///
    /// # Errors
    /// The process, unit, cgroup or listener does not exist or is not accessible.
    pub fn new(target: &str) -> Result<Watch, LabError> {
        let wrong = |problem: String| not_watched(target, &problem);
        let (group, roots) = match target.parse()? {
            Target::Process(pid) => (None, vec![pid]),
            Target::Port(port) => (None, port::listeners(port).map_err(wrong)?),
            Target::Group(path) => {
                let root = cgroup::mount().map_err(wrong)?;
                (Some(Group::at(&root, &path).map_err(wrong)?), Vec::new())
            }
            Target::Unit(unit) => {
                let root = cgroup::mount().map_err(wrong)?;
                let unit = Group::of_unit(&root, &unit);
                // A cgroup at the top level has a name without a slash.
                let found = unit.or_else(|problem| {
                    Group::at(&root, Path::new(target)).map_err(|_| wrong(problem))
                });
                (Some(found?), Vec::new())
            }
        };
        Watch::of(target, group, roots)
    }

    fn of(target: &str, group: Option<Group>, roots: Vec<i32>) -> Result<Watch, LabError> {
        let mut watch = Watch {
            what: target.to_owned(),
            members: Members::new(group, roots),
            accounts: Accounts::default(),
            counters: Counters::default(),
            descriptors: descriptors::Counter::default(),
            start: Start {
                at: Instant::now(),
                counts: Counts::default(),
                cpu: None,
                memory_peak: None,
            },
            most: 0,
            gone: None,
            not_had: BTreeSet::new(),
            watching_ns: 0,
        };
        watch.members.look().map_err(|problem| not_watched(target, &problem))?;
        let levels = watch.accounts.read(&watch.members.pids);
        if levels.processes == 0 {
            if let Some(error) = levels.refused {
                return Err(not_watched(target, &refused(&error)));
            }
            let problem = match &watch.members.group {
                Some(group) => format!("no process in {}", group.path().display()),
                None => "no such process".to_owned(),
            };
            return Err(not_watched(target, &problem));
        }
        let counting = counting::attach(watch.members.group.as_ref(), &watch.members.pids);
        watch.counters = counting.0;
        watch.not_had.extend(counting.1);
        // Identifies descriptors that are not sockets while there are few of them.
        watch.descriptors.count(&watch.members.tables);
        watch.begin();
        Ok(watch)
    }

    /// Starts sampling at the given interval in a new thread.
    ///
    /// # Errors
    /// The thread cannot be created.
    pub fn start(self, interval: Duration) -> Result<Sampler, LabError> {
        Sampler::start(self, interval)
    }

    /// Returns the current state and the usage since the start.
    pub fn sample(&mut self) -> ServerSample {
        let began = own_cpu_ns();
        if self.members.are_stale() {
            self.look_again();
        }
        let at_s = self.start.at.elapsed().as_secs_f64();
        let levels = self.accounts.read(&self.members.pids);
        self.not_had.extend(levels.refused.as_ref().map(refused));
        // The pid of an exited process may be reused soon.
        self.members.pids.retain(|&pid| self.accounts.has(pid));
        self.most = self.most.max(levels.processes);
        match levels.processes {
            0 => self.gone = self.gone.or(Some(at_s)),
            _ => self.gone = None,
        }
        let used = self.accounts.used();
        let switches = !self.accounts.many;
        let counts = self.counters.read();
        let since = |now: Option<u64>, start: Option<u64>| Some(now?.saturating_sub(start?));
        let start = &self.start.counts;
        let mut sample = ServerSample {
            at_s,
            processes: levels.processes,
            threads: Some(levels.threads),
            cpu_ns: Some(used.cpu_ns),
            user_ns: Some(used.user_ns),
            system_ns: Some(used.system_ns),
            wait_ns: switches.then_some(used.wait_ns),
            instructions: since(counts.instructions(), start.instructions()),
            user_instructions: since(counts.instructions_user, start.instructions_user),
            cycles: since(counts.cycles, start.cycles),
            resident_bytes: Some(levels.resident),
            memory_bytes: None,
            voluntary_context_switches: switches.then_some(used.voluntary),
            involuntary_context_switches: switches.then_some(used.involuntary),
            sockets: None,
            descriptors: None,
            syscalls: since(counts.syscalls, start.syscalls),
        };
        let counted = self.descriptors.count(&self.members.tables);
        (sample.sockets, sample.descriptors) = (counted.sockets, counted.descriptors);
        self.not_had.extend(counted.refused);
        if !switches {
            let why = "context switches and waiting time: there are too many threads to read each";
            self.not_had.insert(why.to_owned());
        }
        self.ask_group(&mut sample);
        self.watching_ns += own_cpu_ns().saturating_sub(began);
        sample
    }

    /// Adds the accounting of the cgroup, which includes processes that existed only between samples.
    fn ask_group(&mut self, sample: &mut ServerSample) {
        let Some(group) = &self.members.group else { return };
        let lacking = |file: &str, error: &io::Error| {
            format!("{file} of the cgroup: {}/{file}: {error}", group.path().display())
        };
        if let Some(cpu) = &mut self.start.cpu {
            // If the cgroup was removed with its unit, the last values remain valid.
            let used = cpu.used(group.cpu().ok());
            sample.cpu_ns = Some(used.cpu_ns);
            (sample.user_ns, sample.system_ns) = (Some(used.user_ns), Some(used.system_ns));
        }
        match group.memory("memory.current") {
            Ok(bytes) => sample.memory_bytes = Some(bytes),
            // The root has no such file, nor has a cgroup without the memory controller.
            Err(error) if sample.processes > 0 => {
                let advice = "enable the memory controller for the cgroup";
                self.not_had.insert(format!("{}; {advice}", lacking("memory.current", &error)));
            }
            Err(_) => {}
        }
    }

    /// Resets the usage to zero.
    fn begin(&mut self) {
        // Includes processes that were started since the watch was created.
        self.look_again();
        self.accounts.read(&self.members.pids);
        let ticks = clock_gettime(ClockId::Boottime);
        let per_second = procfs::ticks_per_second();
        let now = ticks.tv_sec.cast_unsigned() * per_second
            + ticks.tv_nsec.cast_unsigned() * per_second / 1_000_000_000;
        self.accounts.start(now);
        let group = self.members.group.as_ref();
        self.start = Start {
            at: Instant::now(),
            counts: self.counters.read(),
            cpu: group.and_then(|group| group.cpu().ok()).map(CpuSince::new),
            memory_peak: group.and_then(|group| group.memory("memory.peak").ok()),
        };
        (self.most, self.gone) = (0, None);
    }

    /// Updates the members.
    fn look_again(&mut self) {
        if let Err(problem) = self.members.look() {
            self.not_had.insert(format!("some processes: {problem}"));
        }
        if self.members.left_out > 0 {
            let most = members::MOST;
            self.not_had.insert(format!("processes beyond {most}: at most {most} are watched"));
        }
    }

    /// Summarises the samples.
    fn conclude(mut self, samples: Vec<ServerSample>) -> Server {
        let mut total = ServerUse::of(&samples);
        let peak = self.members.group.as_ref().and_then(|group| group.memory("memory.peak").ok());
        // The peak is since the creation of the cgroup. If it has risen, it occurred during the run.
        if peak > self.start.memory_peak && self.start.memory_peak.is_some() {
            total.peak_memory_bytes = total.peak_memory_bytes.max(peak);
        }
        self.most = self.most.max(samples.iter().map(|sample| sample.processes).max().unwrap_or(0));
        Server {
            what: self.what,
            processes: self.most,
            ended: self.accounts.ended,
            gone_at_s: self.gone,
            samples,
            total,
            watching_ns: self.watching_ns,
            not_had: self.not_had.into_iter().collect(),
        }
    }
}

/// Formats an error that denies access to a process.
fn refused(error: &LabError) -> String {
    match error {
        LabError::Accounting { pid, source: procfs::ProcError::PermissionDenied(_) } => format!(
            "/proc/{pid} is not readable (permission denied); run as the user of the server or as root, \
             or mount /proc without hidepid"
        ),
        other => other.to_string(),
    }
}

/// Returns the CPU time of this thread.
fn own_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uses a simulated cgroup with values that no process has.
    #[test]
    fn cgroup_accounting_takes_precedence() {
        let root = tempfile::TempDir::new().unwrap();
        let dir = root.path().join("web");
        std::fs::create_dir(&dir).unwrap();
        let write = |name: &str, text: &str| std::fs::write(dir.join(name), text).unwrap();
        let cpu = |total: u64| {
            write("cpu.stat", &format!("usage_usec {total}\nuser_usec 3\nsystem_usec 4\n"));
        };
        write("cgroup.controllers", "");
        write("cgroup.procs", "");
        let group = || Group::at(root.path(), Path::new("web")).unwrap();
        let error = Watch::of("web", Some(group()), Vec::new()).unwrap_err().to_string();
        assert!(error.contains("cannot watch 'web': no process in "), "{error}");

        write("cgroup.procs", &format!("{}\n", std::process::id()));
        write("memory.current", "4096");
        write("memory.peak", "5000");
        cpu(100);
        let mut watch = Watch::of("web", Some(group()), Vec::new()).unwrap();
        cpu(350);
        write("memory.peak", "9000");
        let sample = watch.sample();
        assert_eq!((sample.cpu_ns, sample.memory_bytes), (Some(250_000), Some(4096)));
        assert_eq!((sample.processes, sample.user_ns), (1, Some(0)));
        let server = watch.conclude(vec![sample]);
        assert_eq!(server.total.peak_memory_bytes, Some(9000));

        // A removed cgroup counts as exited.
        let mut watch = Watch::of("web", Some(group()), Vec::new()).unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
        watch.look_again();
        let sample = watch.sample();
        assert_eq!((sample.processes, sample.cpu_ns), (0, Some(0)));
        let server = watch.conclude(vec![sample]);
        assert_eq!((server.ended, server.gone_at_s.is_some()), (1, true));
    }
}
