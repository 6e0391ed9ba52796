//! Child processes: pinned to processors, monitored, and always terminated.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid,
};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::error::LabError;

/// Interval at which a wait checks the stop flag.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Time limit for a process to exit after a signal.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);

/// A child process. Dropping it kills and reaps the process and kills its process group.
#[derive(Debug)]
pub(crate) struct ChildGuard {
    child: Child,
    name: String,
    stdout: Receiver<String>,
    stderr: PathBuf,
    reaped: bool,
}

/// Parameters of a child process.
#[derive(Debug)]
pub(crate) struct LaunchOptions<'a> {
    pub(crate) executable: &'a Path,
    pub(crate) arguments: &'a [String],
    /// Name in messages.
    pub(crate) name: String,
    /// Allowed processors.
    pub(crate) cpus: &'a CpuSet,
    /// Path of the file for standard error.
    pub(crate) stderr: PathBuf,
    /// Whether standard input is a pipe for [`ChildGuard::write_line`].
    pub(crate) pipe_stdin: bool,
}

impl ChildGuard {
    /// Starts a process in a process group of its own, so that Ctrl-C reaches only the lab, and its
    /// descendants are terminated with it.
    pub(crate) fn launch(launch: LaunchOptions<'_>) -> Result<ChildGuard, LabError> {
        let LaunchOptions { executable, arguments, name, cpus, stderr, pipe_stdin: listens } =
            launch;
        // A child inherits the affinity of the thread that starts it. It must be this thread, because
        // the parent-death signal of the child refers to the thread that created it.
        let _pinned = AffinityGuard::pin(cpus)?;
        let stderr_file = File::create(&stderr).map_err(LabError::file("create", &stderr))?;
        let mut child = Command::new(executable)
            .args(arguments)
            .stdin(if listens { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(stderr_file)
            .process_group(0)
            .spawn()
            .map_err(LabError::file("start", executable))?;
        let (lines, stdout) = channel();
        let pipe = child.stdout.take();
        let guard = ChildGuard { child, name, stdout, stderr, reaped: false };
        // The thread ends when the child closes its output.
        std::thread::spawn(move || {
            for line in pipe.into_iter().flat_map(|p| BufReader::new(p).lines()) {
                if line.is_err() || line.is_ok_and(|l| lines.send(l).is_err()) {
                    return;
                }
            }
        });
        Ok(guard)
    }

    /// Returns the process id.
    pub(crate) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Returns the command line, for messages.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Writes a line to standard input.
    pub(crate) fn write_line(&mut self, line: &str) -> Result<(), LabError> {
        let written = match &mut self.child.stdin {
            Some(stdin) => writeln!(stdin, "{line}"),
            None => Err(std::io::ErrorKind::BrokenPipe.into()),
        };
        written.map_err(|error| self.error(&format!("does not read its input ({error})")))
    }

    /// Closes standard input.
    pub(crate) fn close_stdin(&mut self) {
        self.child.stdin = None;
    }

    /// Returns an error if the process has exited.
    pub(crate) fn check_running(&self) -> Result<(), LabError> {
        if self.has_exited() { Err(self.error("exited unexpectedly")) } else { Ok(()) }
    }

    /// Waits for a line that starts with `start` and returns it.
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
                    return Err(self.error(&format!("exited without printing '{start}...'")));
                }
            }
        }
    }

    /// Waits until the process exits by itself and returns the rest of its standard output.
    pub(crate) fn wait_for_end(
        &mut self,
        timeout: Duration,
        stop: &AtomicBool,
    ) -> Result<String, LabError> {
        let (output, status) = self.wait_for_output(timeout, stop)?;
        match status.success() {
            true => Ok(output),
            false => Err(self.error(&format!("failed ({status})"))),
        }
    }

    /// Waits until the process exits by itself and returns the rest of its standard output with its
    /// exit status.
    pub(crate) fn wait_for_output(
        &mut self,
        timeout: Duration,
        stop: &AtomicBool,
    ) -> Result<(String, ExitStatus), LabError> {
        let output = self.read_to_end(Instant::now() + timeout, stop)?;
        let status = self.reap(Instant::now() + STOP_TIMEOUT);
        let status = status.ok_or_else(|| self.error("closed its output but did not exit"))?;
        Ok((output, status))
    }

    /// Terminates the process with SIGTERM, or SIGKILL if it does not exit in time.
    pub(crate) fn terminate(self) {
        self.stop(Signal::TERM);
    }

    /// Stops the process with a signal, or SIGKILL if it does not exit in time.
    pub(crate) fn stop(self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.pid()) {
            // Fails only if the process has already exited.
            let _ = kill_process(pid, signal);
        }
        let deadline = Instant::now() + STOP_TIMEOUT;
        while !self.has_exited() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Returns whether the process has exited. Does not reap it, so that its process id and process
    /// group id are not reused.
    fn has_exited(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        self.reaped
            || Pid::from_raw(self.pid())
                .is_none_or(|pid| !matches!(waitid(WaitId::Pid(pid), options), Ok(None)))
    }

    fn read_to_end(&mut self, deadline: Instant, stop: &AtomicBool) -> Result<String, LabError> {
        let mut output = String::new();
        while let Some(line) = self.next_line(deadline, stop)? {
            output += &line;
            output.push('\n');
        }
        Ok(output)
    }

    /// Returns the next line of standard output; none at its end.
    fn next_line(&self, deadline: Instant, stop: &AtomicBool) -> Result<Option<String>, LabError> {
        loop {
            if stop.load(Ordering::Relaxed) {
                return Err(LabError::Interrupted);
            }
            match self.stdout.recv_timeout(POLL_INTERVAL) {
                Ok(line) => return Ok(Some(line)),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) if Instant::now() >= deadline => {
                    return Err(self.error("printed nothing before the time limit"));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn reap(&mut self, deadline: Instant) -> Option<ExitStatus> {
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => {
                    self.reaped = true;
                    return Some(status);
                }
                Ok(None) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                _ => return None,
            }
        }
    }

    /// Returns an error with the problem and the standard error of the process.
    pub(crate) fn error(&self, problem: &str) -> LabError {
        const MOST: u64 = 4096;
        let mut stderr = Vec::new();
        if let Ok(file) = File::open(&self.stderr) {
            // An unreadable file only leaves the message shorter.
            let _ = file.take(MOST).read_to_end(&mut stderr);
        }
        LabError::Process {
            process: self.name.clone(),
            problem: problem.into(),
            stderr: String::from_utf8_lossy(&stderr).into_owned(),
        }
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        if self.reaped {
            return;
        }
        // Descendants are in its process group, unless they left it.
        if let Some(group) = Pid::from_raw(self.pid()) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

/// Pins this thread to processors until it is dropped.
#[derive(Debug)]
pub(crate) struct AffinityGuard {
    before: CpuSet,
}

impl AffinityGuard {
    /// Moves this thread to the given processors.
    pub(crate) fn pin(cpus: &CpuSet) -> Result<AffinityGuard, LabError> {
        let failed = |e: rustix::io::Errno| LabError::System {
            action: "pin a process to its processors (sched_setaffinity)".into(),
            source: e.into(),
        };
        let before = sched_getaffinity(None).map_err(failed)?;
        sched_setaffinity(None, cpus).map_err(failed)?;
        Ok(AffinityGuard { before })
    }
}

impl Drop for AffinityGuard {
    fn drop(&mut self) {
        // The previous mask was valid. Restoring it fails only if a cpuset changed in the meantime.
        let _ = sched_setaffinity(None, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::test_kill_process;

    fn shell(script: &str) -> (ChildGuard, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let cpus = sched_getaffinity(None).unwrap();
        let arguments = ["-c".to_string(), script.to_string()];
        let stderr = dir.path().join("stderr");
        let launch = LaunchOptions {
            executable: Path::new("/bin/sh"),
            arguments: &arguments,
            name: format!("`sh -c {script}`"),
            cpus: &cpus,
            stderr,
            pipe_stdin: false,
        };
        (ChildGuard::launch(launch).unwrap(), dir)
    }

    fn alive(pid: i32) -> bool {
        test_kill_process(Pid::from_raw(pid).unwrap()).is_ok()
    }

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn drop_kills_the_process_during_a_panic() {
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
    fn process_that_ignores_sigterm_is_killed() {
        let (mut guard, _dir) = shell("trap '' TERM; echo ready; while :; do sleep 0.05; done");
        let stop = AtomicBool::new(false);
        guard.wait_for_line("ready", LONG, &stop).unwrap();
        let pid = guard.pid();
        guard.terminate();
        assert!(!alive(pid));
    }

    #[test]
    fn descendants_are_killed() {
        let (mut guard, _dir) = shell("sleep 1000 & echo started $!; wait");
        let stop = AtomicBool::new(false);
        let line = guard.wait_for_line("started", LONG, &stop).unwrap();
        let grandchild: i32 = line.split(' ').nth(1).unwrap().parse().unwrap();
        assert!(alive(grandchild));
        drop(guard);
        // The process that adopted the grandchild reaps it at its own pace.
        let deadline = Instant::now() + LONG;
        let exited = || {
            std::fs::read_to_string(format!("/proc/{grandchild}/stat"))
                .map_or(true, |stat| stat.contains(") Z "))
        };
        while !exited() {
            assert!(Instant::now() < deadline, "the grandchild is still running");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn writes_lines_to_standard_input() {
        let dir = tempfile::tempdir().unwrap();
        let cpus = sched_getaffinity(None).unwrap();
        let launch = LaunchOptions {
            executable: Path::new("/bin/cat"),
            arguments: &[],
            name: "`cat`".into(),
            cpus: &cpus,
            stderr: dir.path().join("stderr"),
            pipe_stdin: true,
        };
        let mut guard = ChildGuard::launch(launch).unwrap();
        let stop = AtomicBool::new(false);
        guard.write_line("echo 5").unwrap();
        assert_eq!(guard.wait_for_line("echo", LONG, &stop).unwrap(), "echo 5");
        guard.check_running().unwrap();
        guard.close_stdin();
        assert_eq!(guard.wait_for_end(LONG, &stop).unwrap(), "");
        assert!(guard.check_running().unwrap_err().to_string().contains("`cat` exited"));
    }

    #[test]
    fn skips_other_lines_and_returns_the_rest() {
        let (mut guard, _dir) = shell("echo other; echo ready 7; echo a; echo b");
        let stop = AtomicBool::new(false);
        assert_eq!(guard.wait_for_line("ready", LONG, &stop).unwrap(), "ready 7");
        assert_eq!(guard.wait_for_end(LONG, &stop).unwrap(), "a\nb\n");
    }

    #[test]
    fn failure_quotes_standard_error() {
        let (mut guard, _dir) = shell("echo no such mechanism >&2; exit 3");
        let stop = AtomicBool::new(false);
        let error = guard.wait_for_line("ready", LONG, &stop).unwrap_err().to_string();
        assert!(error.contains("no such mechanism") && error.contains("ready"), "{error}");
    }

    #[test]
    fn stop_flag_interrupts_a_wait() {
        let (mut guard, _dir) = shell("exec sleep 1000");
        let stop = AtomicBool::new(true);
        assert!(matches!(guard.wait_for_end(LONG, &stop), Err(LabError::Interrupted)));
    }

    #[test]
    fn unpins_on_drop() {
        let before = sched_getaffinity(None).unwrap();
        let first = (0..CpuSet::MAX_CPU).find(|&cpu| before.is_set(cpu)).unwrap();
        let mut one = CpuSet::new();
        one.set(first);
        let pinned = AffinityGuard::pin(&one).unwrap();
        assert_eq!(sched_getaffinity(None).unwrap(), one);
        drop(pinned);
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }
}
