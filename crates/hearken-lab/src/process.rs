//! Processes that the lab starts: pinned to processors, watched, and never left behind.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::error::LabError;

/// How often a wait looks at the stop flag.
const LOOK: Duration = Duration::from_millis(50);
/// How long a process may take to obey SIGTERM.
const GRACE: Duration = Duration::from_secs(3);

/// A child process; dropping it kills it and waits for its end.
#[derive(Debug)]
pub(crate) struct Guard {
    child: Child,
    name: String,
    stdout: Receiver<String>,
    stderr: PathBuf,
}

impl Guard {
    /// Starts `executable` with `arguments` on the processors `cpus`, keeping its standard error
    /// in `stderr`. The child has its own process group, so that Ctrl-C reaches only the lab.
    pub(crate) fn spawn(
        executable: &Path,
        arguments: &[String],
        cpus: &CpuSet,
        stderr: PathBuf,
    ) -> Result<Guard, LabError> {
        // A child inherits the affinity of the thread that starts it. It must be this thread:
        // the child asked to end with its parent, and to the kernel that is a thread.
        let _pinned = Pinned::to(cpus)?;
        let said = File::create(&stderr).map_err(LabError::file("create", &stderr))?;
        let mut child = Command::new(executable)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(said)
            .process_group(0)
            .spawn()
            .map_err(LabError::file("start", executable))?;
        let (lines, stdout) = channel();
        let name = format!("`hearken {}`", arguments.join(" "));
        let pipe = child.stdout.take();
        let guard = Guard { child, name, stdout, stderr };
        // Ends by itself when the child closes its output.
        std::thread::spawn(move || {
            for line in pipe.into_iter().flat_map(|p| BufReader::new(p).lines()) {
                if line.is_err() || line.is_ok_and(|l| lines.send(l).is_err()) {
                    return;
                }
            }
        });
        Ok(guard)
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// The command line, for messages.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Waits for a line that begins with `start` and returns it.
    pub(crate) fn wait_for_line(
        &mut self,
        start: &str,
        timeout: Duration,
        stop: &AtomicBool,
    ) -> Result<String, LabError> {
        let deadline = Instant::now() + timeout;
        loop {
            match self.next_line(deadline, stop)? {
                Some(line) if line.starts_with(start) => return Ok(line),
                Some(_) => {}
                None => {
                    return Err(self.failed(&format!("ended before it said `{start}...`")));
                }
            }
        }
    }

    /// Waits for its end by itself and returns the rest of what it wrote to standard output.
    pub(crate) fn wait_for_end(
        &mut self,
        timeout: Duration,
        stop: &AtomicBool,
    ) -> Result<String, LabError> {
        let output = self.collect(Instant::now() + timeout, stop)?;
        match self.reap(Instant::now() + GRACE) {
            Some(status) if status.success() => Ok(output),
            Some(status) => Err(self.failed(&format!("failed ({status})"))),
            None => Err(self.failed("closed its output but did not end")),
        }
    }

    /// Asks it to end, with SIGTERM; if it does not obey it is killed.
    pub(crate) fn terminate(mut self) {
        if let Some(pid) = Pid::from_raw(self.pid()) {
            // Fails only if it has ended, which is what is wanted.
            let _ = kill_process(pid, Signal::TERM);
        }
        self.reap(Instant::now() + GRACE);
    }

    fn collect(&mut self, deadline: Instant, stop: &AtomicBool) -> Result<String, LabError> {
        let mut output = String::new();
        while let Some(line) = self.next_line(deadline, stop)? {
            output += &line;
            output.push('\n');
        }
        Ok(output)
    }

    /// The next line of its output, or none at its end.
    fn next_line(&self, deadline: Instant, stop: &AtomicBool) -> Result<Option<String>, LabError> {
        loop {
            if stop.load(Ordering::Relaxed) {
                return Err(LabError::Interrupted);
            }
            match self.stdout.recv_timeout(LOOK) {
                Ok(line) => return Ok(Some(line)),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) if Instant::now() >= deadline => {
                    return Err(self.failed("said nothing for too long"));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn reap(&mut self, deadline: Instant) -> Option<ExitStatus> {
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                _ => return None,
            }
        }
    }

    fn failed(&self, problem: &str) -> LabError {
        const MOST: u64 = 4096;
        let mut stderr = Vec::new();
        if let Ok(file) = File::open(&self.stderr) {
            // What cannot be read is missing from the message, no more.
            let _ = file.take(MOST).read_to_end(&mut stderr);
        }
        LabError::Process {
            process: self.name.clone(),
            problem: problem.into(),
            stderr: String::from_utf8_lossy(&stderr).into_owned(),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Both fail only if it has ended and was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// This thread runs on the given processors until the value is dropped.
#[derive(Debug)]
pub(crate) struct Pinned {
    before: CpuSet,
}

impl Pinned {
    /// Moves this thread.
    pub(crate) fn to(cpus: &CpuSet) -> Result<Pinned, LabError> {
        let failed = |e: rustix::io::Errno| LabError::System {
            action: "pin a process to its processors (sched_setaffinity)".into(),
            source: e.into(),
        };
        let before = sched_getaffinity(None).map_err(failed)?;
        sched_setaffinity(None, cpus).map_err(failed)?;
        Ok(Pinned { before })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // The set was this thread's own; only a cpuset changed meanwhile could refuse it.
        let _ = sched_setaffinity(None, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::test_kill_process;

    fn shell(script: &str) -> (Guard, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let cpus = sched_getaffinity(None).unwrap();
        let arguments = ["-c".to_string(), script.to_string()];
        let stderr = dir.path().join("stderr");
        (Guard::spawn(Path::new("/bin/sh"), &arguments, &cpus, stderr).unwrap(), dir)
    }

    fn alive(pid: i32) -> bool {
        test_kill_process(Pid::from_raw(pid).unwrap()).is_ok()
    }

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn dropping_a_guard_ends_the_process_even_in_a_panic() {
        let (guard, _dir) = shell("exec sleep 1000");
        let pid = guard.pid();
        assert!(alive(pid));
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            let _guard = guard;
            std::panic::resume_unwind(Box::new("a panic while a server runs"));
        }));
        assert!(panicked.is_err());
        assert!(!alive(pid));
    }

    #[test]
    fn a_process_that_ignores_sigterm_does_not_survive() {
        let (mut guard, _dir) = shell("trap '' TERM; echo ready; while :; do sleep 0.05; done");
        let stop = AtomicBool::new(false);
        guard.wait_for_line("ready", LONG, &stop).unwrap();
        let pid = guard.pid();
        guard.terminate();
        assert!(!alive(pid));
    }

    #[test]
    fn lines_and_output_come_through() {
        let (mut guard, _dir) = shell("echo talk; echo ready 7; echo a; echo b");
        let stop = AtomicBool::new(false);
        assert_eq!(guard.wait_for_line("ready", LONG, &stop).unwrap(), "ready 7");
        assert_eq!(guard.wait_for_end(LONG, &stop).unwrap(), "a\nb\n");
    }

    #[test]
    fn a_failure_quotes_standard_error() {
        let (mut guard, _dir) = shell("echo no such mechanism >&2; exit 3");
        let stop = AtomicBool::new(false);
        let error = guard.wait_for_line("ready", LONG, &stop).unwrap_err().to_string();
        assert!(error.contains("no such mechanism") && error.contains("ready"), "{error}");
    }

    #[test]
    fn a_raised_flag_ends_a_wait() {
        let (mut guard, _dir) = shell("exec sleep 1000");
        let stop = AtomicBool::new(true);
        assert!(matches!(guard.wait_for_end(LONG, &stop), Err(LabError::Interrupted)));
    }

    #[test]
    fn pinning_is_undone() {
        let before = sched_getaffinity(None).unwrap();
        let first = (0..CpuSet::MAX_CPU).find(|&cpu| before.is_set(cpu)).unwrap();
        let mut one = CpuSet::new();
        one.set(first);
        let pinned = Pinned::to(&one).unwrap();
        assert_eq!(sched_getaffinity(None).unwrap(), one);
        drop(pinned);
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }
}
