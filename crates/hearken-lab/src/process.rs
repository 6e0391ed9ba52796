//! Processes that the lab starts: pinned to processors, watched, and never left behind.

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

/// How often a wait looks at the stop flag.
const LOOK: Duration = Duration::from_millis(50);
/// How long a process may take to obey SIGTERM.
const GRACE: Duration = Duration::from_secs(3);

/// A child process; dropping it kills it, and what it started in turn, and waits for its end.
#[derive(Debug)]
pub(crate) struct Guard {
    child: Child,
    name: String,
    stdout: Receiver<String>,
    stderr: PathBuf,
    reaped: bool,
}

/// What is started.
#[derive(Debug)]
pub(crate) struct Launch<'a> {
    pub(crate) executable: &'a Path,
    pub(crate) arguments: &'a [String],
    /// What it is called in messages.
    pub(crate) name: String,
    /// The processors that it may use.
    pub(crate) cpus: &'a CpuSet,
    /// Keeps what it writes to standard error.
    pub(crate) stderr: PathBuf,
    /// Whether [`Guard::say`] is to be used.
    pub(crate) listens: bool,
}

impl Guard {
    /// Starts `hearken` with `arguments` on the processors `cpus`, keeping its standard error in
    /// `stderr`.
    pub(crate) fn spawn(
        executable: &Path,
        arguments: &[String],
        cpus: &CpuSet,
        stderr: PathBuf,
    ) -> Result<Guard, LabError> {
        let name = format!("`hearken {}`", arguments.join(" "));
        Guard::launch(Launch { executable, arguments, name, cpus, stderr, listens: false })
    }

    /// Starts a process. It has its own process group, so that Ctrl-C reaches only the lab, and so
    /// that it ends together with what it started.
    pub(crate) fn launch(launch: Launch<'_>) -> Result<Guard, LabError> {
        let Launch { executable, arguments, name, cpus, stderr, listens } = launch;
        // A child inherits the affinity of the thread that starts it. It must be this thread:
        // the child asked to end with its parent, and to the kernel that is a thread.
        let _pinned = Pinned::to(cpus)?;
        let said = File::create(&stderr).map_err(LabError::file("create", &stderr))?;
        let mut child = Command::new(executable)
            .args(arguments)
            .stdin(if listens { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(said)
            .process_group(0)
            .spawn()
            .map_err(LabError::file("start", executable))?;
        let (lines, stdout) = channel();
        let pipe = child.stdout.take();
        let guard = Guard { child, name, stdout, stderr, reaped: false };
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

    /// Writes a line to its standard input.
    pub(crate) fn say(&mut self, line: &str) -> Result<(), LabError> {
        let written = match &mut self.child.stdin {
            Some(stdin) => writeln!(stdin, "{line}"),
            None => Err(std::io::ErrorKind::BrokenPipe.into()),
        };
        written.map_err(|error| self.failed(&format!("does not listen any more ({error})")))
    }

    /// Closes its standard input.
    pub(crate) fn say_no_more(&mut self) {
        self.child.stdin = None;
    }

    /// An error that quotes it, if it has ended.
    pub(crate) fn check(&self) -> Result<(), LabError> {
        if self.has_ended() { Err(self.failed("ended by itself")) } else { Ok(()) }
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
    pub(crate) fn terminate(self) {
        self.end(Signal::TERM);
    }

    /// Asks it to end, with a signal; what does not obey is killed.
    pub(crate) fn end(self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.pid()) {
            // Fails only if it has ended, which is what is wanted.
            let _ = kill_process(pid, signal);
        }
        let deadline = Instant::now() + GRACE;
        while !self.has_ended() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Whether it has ended by itself. It is not reaped: until it is, its number, and that of its
    /// process group, is nobody else's.
    fn has_ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        self.reaped
            || Pid::from_raw(self.pid())
                .is_none_or(|pid| !matches!(waitid(WaitId::Pid(pid), options), Ok(None)))
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

    /// An error that says what it did, and quotes what it wrote to standard error.
    pub(crate) fn failed(&self, problem: &str) -> LabError {
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
        if self.reaped {
            return;
        }
        // What it started is in its group, unless it left it.
        if let Some(group) = Pid::from_raw(self.pid()) {
            let _ = kill_process_group(group, Signal::KILL);
        }
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
    fn what_a_process_started_ends_with_it() {
        let (mut guard, _dir) = shell("sleep 1000 & echo started $!; wait");
        let stop = AtomicBool::new(false);
        let line = guard.wait_for_line("started", LONG, &stop).unwrap();
        let grandchild: i32 = line.split(' ').nth(1).unwrap().parse().unwrap();
        assert!(alive(grandchild));
        drop(guard);
        // It is no child of ours: whoever adopted it reaps it in its own time.
        let deadline = Instant::now() + LONG;
        let gone = || {
            std::fs::read_to_string(format!("/proc/{grandchild}/stat"))
                .map_or(true, |stat| stat.contains(") Z "))
        };
        while !gone() {
            assert!(Instant::now() < deadline, "it is still there");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn what_is_said_is_heard() {
        let dir = tempfile::tempdir().unwrap();
        let cpus = sched_getaffinity(None).unwrap();
        let launch = Launch {
            executable: Path::new("/bin/cat"),
            arguments: &[],
            name: "`cat`".into(),
            cpus: &cpus,
            stderr: dir.path().join("stderr"),
            listens: true,
        };
        let mut guard = Guard::launch(launch).unwrap();
        let stop = AtomicBool::new(false);
        guard.say("hark 5").unwrap();
        assert_eq!(guard.wait_for_line("hark", LONG, &stop).unwrap(), "hark 5");
        guard.check().unwrap();
        guard.say_no_more();
        assert_eq!(guard.wait_for_end(LONG, &stop).unwrap(), "");
        assert!(guard.check().unwrap_err().to_string().contains("`cat` ended"));
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
