//! The processes that agents are, or that start them: what they say, how they end, and being
//! interrupted meanwhile.

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

/// Of a line that one of them prints; the rest of a longer one is a line of its own.
const LINE: u64 = 16 << 10;

/// What a child says, or that it says no more.
type Said = (usize, Option<Vec<u8>>);

/// The processes that were started: launchers, or agents.
pub(super) struct Processes {
    children: Vec<Child>,
    running: Arc<Mutex<Running>>,
    said: Receiver<Said>,
    signals: signals::Handle,
    /// What the first that failed came to.
    problem: Option<String>,
}

/// Those that a signal can still be sent to.
#[derive(Default)]
struct Running {
    pids: Vec<Option<Pid>>,
    interrupted: u32,
}

impl Running {
    fn signal(&self, signal: Signal) {
        for &pid in self.pids.iter().flatten() {
            // It may have ended.
            let _ = kill_process(pid, signal);
        }
    }
}

impl Processes {
    pub(super) fn start(commands: Vec<Command>) -> Result<Processes, Failure> {
        let running = Arc::new(Mutex::new(Running::default()));
        let interrupted = running.clone();
        let signals = signals::each(move || {
            let mut running = interrupted.lock().unwrap_or_else(PoisonError::into_inner);
            running.interrupted += 1;
            // Every launcher passes SIGUSR1 on, and it asks an agent to end; SIGINT has another
            // meaning to each of them.
            running.signal(match running.interrupted {
                1 => Signal::USR1,
                2 => Signal::TERM,
                _ => Signal::KILL,
            });
        });
        let (sender, said) = mpsc::channel();
        let signals = signals.map_err(Failure::runtime)?;
        let mut all = Processes { children: Vec::new(), running, said, signals, problem: None };
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
        sender: &Sender<Said>,
    ) -> Result<(), Failure> {
        let program = PathBuf::from(command.get_program());
        // In a group of its own: what a terminal's user interrupts is this process.
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0);
        let mut child = command.spawn().map_err(|error| {
            let hint = match error.kind() {
                io::ErrorKind::NotFound => "; is it installed?",
                io::ErrorKind::ArgumentListTooLong => "; the plan is too long to be passed on",
                _ => "",
            };
            Failure::usage(format!("cannot run {}: {error}{hint}", program.display()))
        })?;
        let out = child.stdout.take().map(|out| Box::new(out) as Box<dyn Read + Send>);
        let err = child.stderr.take().map(|err| Box::new(err) as Box<dyn Read + Send>);
        self.running().pids.push(Some(Pid::from_child(&child)));
        self.children.push(child);
        for stream in [out, err].into_iter().flatten() {
            let sender = sender.clone();
            let reader = move || {
                let mut stream = BufReader::new(stream);
                while let Some(line) = line(&mut stream) {
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
        // srun and mpirun end what they started before they end themselves.
        let local = self.children.len() > 1;
        self.running().signal(if local { Signal::KILL } else { Signal::TERM });
    }

    /// What they print until all have ended, or one failed.
    pub(super) fn results(&mut self, size: u32) -> Result<Results, Failure> {
        let mut results = Results::default();
        // Each has two streams.
        let mut open = vec![2_u8; self.children.len()];
        while open.iter().any(|streams| *streams > 0) {
            let Ok((index, said)) = self.said.recv() else { break };
            let Some(line) = said else {
                open[index] -= 1;
                if open[index] > 0 {
                    continue;
                }
                // As srun does when told to kill on a bad exit.
                if !self.wait(index) {
                    self.kill();
                }
                continue;
            };
            match results.line(&line, size) {
                Ok(b"") if !line.is_empty() => {}
                Ok(other) => drop(io::stderr().write_all(&[other, b"\n"].concat())),
                Err(wrong) => {
                    self.kill();
                    return Err(Failure::runtime(wrong));
                }
            }
        }
        Ok(results)
    }

    /// Waits for the end of a child, which gets no more signals; true if it went well.
    fn wait(&mut self, index: usize) -> bool {
        // Not before it has ended: its number may then be another's.
        let pid = Pid::from_child(&self.children[index]);
        let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
        self.running().pids[index] = None;
        let local = self.children.len() > 1;
        let whose = if local { format!("rank {index}") } else { "what started the agents".into() };
        let problem = match self.children[index].wait() {
            Ok(status) if status.success() => return true,
            Ok(status) => format!("{whose} failed: {status}"),
            Err(error) => format!("{whose} cannot be waited for: {error}"),
        };
        self.problem.get_or_insert(problem);
        false
    }

    /// Waits for all. What the first that failed came to, and whether we were interrupted.
    pub(super) fn end(mut self) -> (Option<String>, bool) {
        self.signals.close();
        for index in 0..self.children.len() {
            self.wait(index);
        }
        let interrupted = self.running().interrupted > 0;
        (self.problem, interrupted)
    }
}

/// The next line, without its end, or a part of a long one.
fn line(from: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut line = Vec::new();
    match from.take(LINE).read_until(b'\n', &mut line) {
        Ok(1..) => {
            line.pop_if(|byte| *byte == b'\n');
            Some(line)
        }
        _ => None,
    }
}
