//! Child processes: agents, or the launcher that starts them. Reads their output, forwards signals and waits for them.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use super::frames::Results;
use crate::{Failure, signals};

/// Maximum length of a line of output in bytes. The rest of a longer line becomes another line.
const MAX_LINE: u64 = 16 << 10;

/// The index of a child and a line of its output, or `None` at the end of a stream.
type Output = (usize, Option<Vec<u8>>);

/// The started processes.
pub(super) struct Processes {
    children: Vec<Child>,
    running: Arc<Mutex<Running>>,
    output: Receiver<Output>,
    signals: signals::Handle,
    /// The first failure of a child.
    problem: Option<String>,
}

/// The children that have not ended, and the number of interrupts.
#[derive(Default)]
struct Running {
    pids: Vec<Option<Pid>>,
    interrupted: u32,
}

impl Running {
    fn signal(&self, signal: Signal) {
        for &pid in self.pids.iter().flatten() {
            // The process may have ended.
            let _ = kill_process(pid, signal);
        }
    }
}

impl Processes {
    /// Starts the commands. SIGINT and SIGTERM are forwarded to them.
    pub(super) fn start(commands: Vec<Command>) -> Result<Processes, Failure> {
        let running = Arc::new(Mutex::new(Running::default()));
        let interrupted = running.clone();
        let signals = signals::each(move || {
            let mut running = interrupted.lock().unwrap_or_else(PoisonError::into_inner);
            running.interrupted += 1;
            // Every launcher forwards SIGUSR1, which ends an agent with its results. SIGINT has a different meaning
            // to each launcher.
            running.signal(match running.interrupted {
                1 => Signal::USR1,
                2 => Signal::TERM,
                _ => Signal::KILL,
            });
        });
        let (sender, output) = mpsc::channel();
        let signals = signals.map_err(Failure::runtime)?;
        let mut all = Processes { children: Vec::new(), running, output, signals, problem: None };
        for (index, command) in commands.into_iter().enumerate() {
            if let Err(failure) = all.spawn(command, index, &sender) {
                all.kill();
                all.end();
                return Err(failure);
            }
        }
        Ok(all)
    }

    fn spawn(
        &mut self,
        mut command: Command,
        index: usize,
        sender: &Sender<Output>,
    ) -> Result<(), Failure> {
        let program = PathBuf::from(command.get_program());
        // A group of its own, so that Ctrl-C interrupts this process only.
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0);
        let mut child = command.spawn().map_err(|error| {
            let hint = match error.kind() {
                io::ErrorKind::NotFound => "; is it installed?",
                io::ErrorKind::ArgumentListTooLong => "; the plan is too long for an argument",
                _ => "",
            };
            Failure::usage(format!("cannot run '{}': {error}{hint}", program.display()))
        })?;
        let out = child.stdout.take().map(|out| Box::new(out) as Box<dyn Read + Send>);
        let err = child.stderr.take().map(|err| Box::new(err) as Box<dyn Read + Send>);
        self.running().pids.push(Some(Pid::from_child(&child)));
        self.children.push(child);
        for stream in [out, err].into_iter().flatten() {
            let sender = sender.clone();
            let reader = move || {
                let mut stream = BufReader::new(stream);
                while let Some(line) = read_line(&mut stream) {
                    if sender.send((index, Some(line))).is_err() {
                        break;
                    }
                }
                let _ = sender.send((index, None));
            };
            let thread = thread::Builder::new().name("agent".to_owned());
            thread.spawn(reader).map_err(Failure::runtime)?;
        }
        Ok(())
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kill(&self) {
        // On SIGTERM, srun and mpirun end their tasks first.
        let local = self.children.len() > 1;
        self.running().signal(if local { Signal::KILL } else { Signal::TERM });
    }

    /// Reads results until all children have ended or one has failed. Other output goes to standard error.
    pub(super) fn results(&mut self, size: u32) -> Result<Results, Failure> {
        let mut results = Results::default();
        // Each has two streams.
        let mut open = vec![2_u8; self.children.len()];
        while open.iter().any(|streams| *streams > 0) {
            let Ok((index, line)) = self.output.recv() else { break };
            let Some(line) = line else {
                open[index] -= 1;
                if open[index] > 0 {
                    continue;
                }
                // One failure ends all, as with `srun --kill-on-bad-exit`.
                if !self.wait(index) {
                    self.kill();
                }
                continue;
            };
            match results.add_line(&line, size) {
                Ok(b"") if !line.is_empty() => {}
                Ok(other) => drop(io::stderr().write_all(&[other, b"\n"].concat())),
                Err(error) => {
                    self.kill();
                    return Err(Failure::runtime(error));
                }
            }
        }
        Ok(results)
    }

    /// Waits for a child to end, and stops sending signals to it. Returns whether it succeeded.
    fn wait(&mut self, index: usize) -> bool {
        // WNOWAIT keeps the process ID reserved until it is removed from the list, so no signal reaches another process.
        let pid = Pid::from_child(&self.children[index]);
        let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
        self.running().pids[index] = None;
        let local = self.children.len() > 1;
        let name = if local { format!("rank {index}") } else { "the launcher".into() };
        let problem = match self.children[index].wait() {
            Ok(status) if status.success() => return true,
            Ok(status) => format!("{name} failed: {status}"),
            Err(error) => format!("cannot wait for {name}: {error}"),
        };
        self.problem.get_or_insert(problem);
        false
    }

    /// Waits for all children. Returns the first failure, and whether the user interrupted the load.
    pub(super) fn end(mut self) -> (Option<String>, bool) {
        self.signals.close();
        for index in 0..self.children.len() {
            self.wait(index);
        }
        let interrupted = self.running().interrupted > 0;
        (self.problem, interrupted)
    }
}

/// Reads a line without its newline, or a part of a long line.
fn read_line(from: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut line = Vec::new();
    match from.take(MAX_LINE).read_until(b'\n', &mut line) {
        Ok(1..) => {
            line.pop_if(|byte| *byte == b'\n');
            Some(line)
        }
        _ => None,
    }
}
