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

use hearken_load::{Server, ServerSample, ServerUsage};
use rustix::time::{ClockId, clock_gettime};

mod cgroup;
mod counters;
mod descriptors;
mod members;
mod port;
mod sampler;
mod target;
mod usage;

pub use sampler::{DEFAULT_INTERVAL, MIN_INTERVAL, Sampler};
pub use target::Target;

use crate::counters::{Counters, Counts};
use crate::error::LabError;
use cgroup::{Cgroup, CpuMeter};
pub(crate) use descriptors::socket_inode;
use members::Members;
pub(crate) use target::watch_error;
use usage::UsageTracker;

/// A server whose resource usage is sampled.
///
/// A process is watched with its descendants, including those started later. The totals include
/// processes that have exited.
#[derive(Debug)]
pub struct Watch {
    target: String,
    members: Members,
    tracker: UsageTracker,
    counters: Counters,
    descriptors: descriptors::DescriptorCounter,
    baseline: Baseline,
    max_processes: u64,
    exited_at_s: Option<f64>,
    unavailable: BTreeSet<String>,
    overhead_ns: u64,
}

/// Values at the start of the measurement.
#[derive(Debug)]
struct Baseline {
    at: Instant,
    counts: Counts,
    cpu: Option<CpuMeter>,
    memory_peak: Option<u64>,
}

impl Watch {
    /// Resolves `target`, as described at [`Target`], and attaches the counters.
    ///
    /// # Errors
    /// The process, unit, cgroup or listener does not exist or is not accessible.
    pub fn new(target: &str) -> Result<Watch, LabError> {
        let error = |problem: String| watch_error(target, &problem);
        let (group, roots) = match target.parse()? {
            Target::Process(pid) => (None, vec![pid]),
            Target::Port(port) => (None, port::find_listeners(port).map_err(error)?),
            Target::Cgroup(path) => {
                let root = cgroup::find_mount().map_err(error)?;
                (Some(Cgroup::from_path(&root, &path).map_err(error)?), Vec::new())
            }
            Target::Unit(unit) => {
                let root = cgroup::find_mount().map_err(error)?;
                let unit = Cgroup::from_unit(&root, &unit);
                // A cgroup at the top level has a name without a slash.
                let found = unit.or_else(|problem| {
                    Cgroup::from_path(&root, Path::new(target)).map_err(|_| error(problem))
                });
                (Some(found?), Vec::new())
            }
        };
        Watch::with_members(target, group, roots)
    }

    fn with_members(
        target: &str,
        group: Option<Cgroup>,
        roots: Vec<i32>,
    ) -> Result<Watch, LabError> {
        let mut watch = Watch {
            target: target.to_owned(),
            members: Members::new(group, roots),
            tracker: UsageTracker::default(),
            counters: Counters::default(),
            descriptors: descriptors::DescriptorCounter::default(),
            baseline: Baseline {
                at: Instant::now(),
                counts: Counts::default(),
                cpu: None,
                memory_peak: None,
            },
            max_processes: 0,
            exited_at_s: None,
            unavailable: BTreeSet::new(),
            overhead_ns: 0,
        };
        watch.members.refresh().map_err(|problem| watch_error(target, &problem))?;
        let state = watch.tracker.read(&watch.members.pids);
        if state.processes == 0 {
            if let Some(error) = state.access_error {
                return Err(watch_error(target, &access_error(&error)));
            }
            let problem = match &watch.members.group {
                Some(group) => format!("no process in {}", group.path().display()),
                None => "no such process".to_owned(),
            };
            return Err(watch_error(target, &problem));
        }
        let attached = counters::attach(watch.members.group.as_ref(), &watch.members.pids);
        watch.counters = attached.0;
        watch.unavailable.extend(attached.1);
        // Counts the descriptors that are not sockets before there are too many to inspect.
        watch.descriptors.count(&watch.members.tables);
        watch.reset();
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
        let started = thread_cpu_ns();
        if self.members.are_stale() {
            self.refresh_members();
        }
        let offset_s = self.baseline.at.elapsed().as_secs_f64();
        let state = self.tracker.read(&self.members.pids);
        self.unavailable.extend(state.access_error.as_ref().map(access_error));
        // The pid of an exited process may be reused soon.
        self.members.pids.retain(|&pid| self.tracker.is_running(pid));
        self.max_processes = self.max_processes.max(state.processes);
        match state.processes {
            0 => self.exited_at_s = self.exited_at_s.or(Some(offset_s)),
            _ => self.exited_at_s = None,
        }
        let usage = self.tracker.usage();
        let has_switches = !self.tracker.too_many_threads;
        let counts = self.counters.read();
        let since = |now: Option<u64>, start: Option<u64>| Some(now?.saturating_sub(start?));
        let start = &self.baseline.counts;
        let mut sample = ServerSample {
            offset_s,
            processes: state.processes,
            threads: Some(state.threads),
            cpu_ns: Some(usage.cpu_ns),
            user_ns: Some(usage.user_ns),
            system_ns: Some(usage.system_ns),
            run_delay_ns: has_switches.then_some(usage.wait_ns),
            instructions: since(counts.instructions(), start.instructions()),
            user_instructions: since(counts.instructions_user, start.instructions_user),
            cycles: since(counts.cycles, start.cycles),
            resident_bytes: Some(state.resident),
            memory_bytes: None,
            voluntary_context_switches: has_switches.then_some(usage.voluntary),
            involuntary_context_switches: has_switches.then_some(usage.involuntary),
            sockets: None,
            descriptors: None,
            syscalls: since(counts.syscalls, start.syscalls),
        };
        let descriptors = self.descriptors.count(&self.members.tables);
        (sample.sockets, sample.descriptors) = (descriptors.sockets, descriptors.descriptors);
        self.unavailable.extend(descriptors.error);
        if !has_switches {
            let message =
                "context switches and waiting time: there are too many threads to read each";
            self.unavailable.insert(message.to_owned());
        }
        self.add_cgroup_usage(&mut sample);
        self.overhead_ns += thread_cpu_ns().saturating_sub(started);
        sample
    }

    /// Adds the accounting of the cgroup, which includes processes that existed only between samples.
    fn add_cgroup_usage(&mut self, sample: &mut ServerSample) {
        let Some(group) = &self.members.group else { return };
        let describe = |file: &str, error: &io::Error| {
            format!("{file} of the cgroup: {}/{file}: {error}", group.path().display())
        };
        if let Some(cpu) = &mut self.baseline.cpu {
            // If the cgroup was removed with its unit, the last values remain valid.
            let usage = cpu.used(group.cpu_time().ok());
            sample.cpu_ns = Some(usage.cpu_ns);
            (sample.user_ns, sample.system_ns) = (Some(usage.user_ns), Some(usage.system_ns));
        }
        match group.read_memory("memory.current") {
            Ok(bytes) => sample.memory_bytes = Some(bytes),
            // The root has no such file, nor has a cgroup without the memory controller.
            Err(error) if sample.processes > 0 => {
                let advice = "enable the memory controller for the cgroup";
                self.unavailable
                    .insert(format!("{}; {advice}", describe("memory.current", &error)));
            }
            Err(_) => {}
        }
    }

    /// Resets the usage to zero.
    fn reset(&mut self) {
        // Includes processes that were started since the watch was created.
        self.refresh_members();
        self.tracker.read(&self.members.pids);
        let ticks = clock_gettime(ClockId::Boottime);
        let per_second = procfs::ticks_per_second();
        let now = ticks.tv_sec.cast_unsigned() * per_second
            + ticks.tv_nsec.cast_unsigned() * per_second / 1_000_000_000;
        self.tracker.start(now);
        let group = self.members.group.as_ref();
        self.baseline = Baseline {
            at: Instant::now(),
            counts: self.counters.read(),
            cpu: group.and_then(|group| group.cpu_time().ok()).map(CpuMeter::new),
            memory_peak: group.and_then(|group| group.read_memory("memory.peak").ok()),
        };
        (self.max_processes, self.exited_at_s) = (0, None);
    }

    /// Updates the members.
    fn refresh_members(&mut self) {
        if let Err(problem) = self.members.refresh() {
            self.unavailable.insert(format!("some processes: {problem}"));
        }
        if self.members.excluded > 0 {
            let max = members::MAX_PROCESSES;
            self.unavailable.insert(format!("processes beyond {max}: at most {max} are watched"));
        }
    }

    /// Summarises the samples.
    fn finish(mut self, samples: Vec<ServerSample>) -> Server {
        let mut total = ServerUsage::from_samples(&samples);
        let peak =
            self.members.group.as_ref().and_then(|group| group.read_memory("memory.peak").ok());
        // The peak is since the creation of the cgroup. If it has risen, it occurred during the run.
        if peak > self.baseline.memory_peak && self.baseline.memory_peak.is_some() {
            total.peak_memory_bytes = total.peak_memory_bytes.max(peak);
        }
        self.max_processes = self
            .max_processes
            .max(samples.iter().map(|sample| sample.processes).max().unwrap_or(0));
        Server {
            target: self.target,
            processes: self.max_processes,
            exited_processes: self.tracker.exited,
            exited_at_s: self.exited_at_s,
            samples,
            total,
            monitor_cpu_ns: self.overhead_ns,
            unavailable: self.unavailable.into_iter().collect(),
        }
    }
}

/// Formats an error that denies access to a process.
fn access_error(error: &LabError) -> String {
    match error {
        LabError::Accounting { pid, source: procfs::ProcError::PermissionDenied(_) } => format!(
            "/proc/{pid} is not readable (permission denied); run as the user of the server or as root, \
             or mount /proc without hidepid"
        ),
        other => other.to_string(),
    }
}

/// Returns the CPU time of this thread.
fn thread_cpu_ns() -> u64 {
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
        let group = || Cgroup::from_path(root.path(), Path::new("web")).unwrap();
        let error = Watch::with_members("web", Some(group()), Vec::new()).unwrap_err().to_string();
        assert!(error.contains("cannot watch 'web': no process in "), "{error}");

        write("cgroup.procs", &format!("{}\n", std::process::id()));
        write("memory.current", "4096");
        write("memory.peak", "5000");
        cpu(100);
        let mut watch = Watch::with_members("web", Some(group()), Vec::new()).unwrap();
        cpu(350);
        write("memory.peak", "9000");
        let sample = watch.sample();
        assert_eq!((sample.cpu_ns, sample.memory_bytes), (Some(250_000), Some(4096)));
        assert_eq!((sample.processes, sample.user_ns), (1, Some(0)));
        let server = watch.finish(vec![sample]);
        assert_eq!(server.total.peak_memory_bytes, Some(9000));

        // A removed cgroup counts as exited.
        let mut watch = Watch::with_members("web", Some(group()), Vec::new()).unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
        watch.refresh_members();
        let sample = watch.sample();
        assert_eq!((sample.processes, sample.cpu_ns), (0, Some(0)));
        let server = watch.finish(vec![sample]);
        assert_eq!((server.exited_processes, server.exited_at_s.is_some()), (1, true));
    }
}
