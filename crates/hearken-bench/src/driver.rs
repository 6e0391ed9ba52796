//! Runs every contender in a process of its own, in shuffled order, and gathers what they say.

use std::io::{self, BufRead, BufReader, IsTerminal, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use hearken_lab::{Machine, stats};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::args::Run;
use crate::contender::{Absent, Contender, FLOOR, FLOOR_C, Kind};
use crate::goals::goals;
use crate::measure::Raw;
use crate::peers::Peers;
use crate::results::{Failure, Report, SCHEMA, Sample, cells};
use crate::trace::{Plan, Traced, trace};

/// How long a measurement may take before it counts as hung: an event was lost.
const DEADLINE: Duration = Duration::from_secs(120);

/// What a peer exits with where its library does not go.
const REFUSED: i32 = 3;

/// One measurement to be made.
struct Case<'a> {
    contender: &'a Contender,
    descriptors: usize,
    active: usize,
    repetition: u32,
}

/// Measures all of `everyone` that the settings want.
pub(crate) fn drive(
    run: &Run,
    (everyone, absent): (Vec<Contender>, Vec<Absent>),
    peers: &Peers,
) -> io::Result<Report> {
    let (date, began) = (jiff::Timestamp::now(), Instant::now());
    share_one_processor();
    let wanted = |contender: &Contender| {
        let name = &contender.name;
        let floor = name == FLOOR || name == FLOOR_C;
        floor || run.only.is_empty() || run.only.iter().any(|part| name.contains(part.as_str()))
    };
    let contenders: Vec<Contender> = everyone.into_iter().filter(wanted).collect();
    let cases = plan(run, &contenders);
    let (mut samples, mut refusals, mut failures) = (Vec::new(), Vec::new(), Vec::new());
    for (number, case) in cases.iter().enumerate() {
        let Case { contender, descriptors, active, repetition } = *case;
        let name = &contender.name;
        if io::stderr().is_terminal() {
            eprint!("\r\x1b[K{number}/{}: {name} N={descriptors} A={active}", cases.len());
        }
        match measure(run, case, peers) {
            Ok((raw, traced)) => samples.push(Sample {
                contender: name.clone(),
                descriptors,
                active,
                repetition,
                raw,
                traced,
            }),
            Err(error) => {
                // Where a peer ends, it ends in every repetition.
                let refused = error.kind() == io::ErrorKind::Unsupported;
                let list = if refused { &mut refusals } else { &mut failures };
                let reason = error.to_string();
                let failure = Failure { contender: name.clone(), descriptors, active, reason };
                if !list.contains(&failure) {
                    list.push(failure);
                }
            }
        }
    }
    if io::stderr().is_terminal() {
        eprint!("\r\x1b[K");
    }
    let mut versions: Vec<String> = samples.iter().map(|s| s.raw.version.clone()).collect();
    versions.sort_unstable();
    versions.dedup();
    let cells = cells(&contenders, &samples, run);
    Ok(Report {
        schema: SCHEMA.into(),
        command_line: std::env::args().collect(),
        date: date.round(jiff::Unit::Second).unwrap_or(date).to_string(),
        elapsed_s: began.elapsed().as_secs_f64(),
        settings: run.clone(),
        machine: Machine::look(),
        method: method(run, &samples),
        versions,
        absent,
        refusals,
        failures,
        goals: goals(&cells),
        cells,
        samples,
    })
}

/// Has this process and all that it starts use one processor, so that nothing is moved.
fn share_one_processor() {
    let Ok(allowed) = sched_getaffinity(None) else { return };
    if let Some(last) = (0..CpuSet::MAX_CPU).rev().find(|&cpu| allowed.is_set(cpu)) {
        let mut one = CpuSet::new();
        one.set(last);
        // Refused, it costs precision only.
        let _ = sched_setaffinity(None, &one);
    }
}

/// Every case of every repetition; each repetition in an order of its own.
fn plan<'a>(run: &Run, contenders: &'a [Contender]) -> Vec<Case<'a>> {
    let mut random = fastrand::Rng::with_seed(run.seed);
    let mut cases = Vec::new();
    for repetition in 0..run.repetitions {
        let from = cases.len();
        for contender in contenders {
            for &descriptors in &run.descriptors {
                for &active in &run.active {
                    cases.push(Case { contender, descriptors, active, repetition });
                }
            }
        }
        random.shuffle(&mut cases[from..]);
    }
    cases
}

fn method(run: &Run, samples: &[Sample]) -> String {
    let counted = samples.iter().flat_map(|s| &s.raw.passes).any(|pass| pass.kernel.is_some());
    let how = if run.icount {
        "Instructions: CPU time under QEMU -icount shift=0, where one nanosecond is one \
         instruction; those in user mode by stepping."
    } else if counted {
        "Instructions: hardware counters (perf_event_open)."
    } else {
        "Instructions: in user mode by stepping; there is no hardware counter here for those in the \
         kernel."
    };
    format!("{how} System calls: by tracing. {}", stats::METHOD)
}

fn measure(run: &Run, case: &Case<'_>, peers: &Peers) -> io::Result<(Raw, Option<Traced>)> {
    // What tracing counts does not vary from one repetition to the next.
    let traced = case.repetition == 0 && run.steps > 0;
    let tracing = traced.then(|| Plan::new(case.active, run.steps));
    let mut child = command(run, case, peers, tracing)?
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let watchdog = Watchdog::over(&child)?;
    let answer = hear(&mut child, tracing);
    let hung = watchdog.dismiss();
    // It has said all that is wanted of it.
    let _ = child.kill();
    let status = child.wait()?;
    let mut said = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        stderr.read_to_string(&mut said)?;
    }
    answer.map_err(|error| match said.trim() {
        _ if hung => io::Error::other(format!(
            "no end after {} s: an event was lost, or it costs too much",
            DEADLINE.as_secs()
        )),
        said if status.code() == Some(REFUSED) => {
            io::Error::new(io::ErrorKind::Unsupported, said.to_owned())
        }
        "" => io::Error::other(format!("{error} ({status})")),
        said => io::Error::other(said.to_owned()),
    })
}

fn command(
    run: &Run,
    case: &Case<'_>,
    peers: &Peers,
    tracing: Option<Plan>,
) -> io::Result<Command> {
    let segments = tracing.map_or(Vec::new(), |plan| plan.segments().to_vec());
    let segments = segments.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
    let (descriptors, active) = (case.descriptors.to_string(), case.active.to_string());
    let (passes, pass_ns) = (run.passes.to_string(), (run.pass_ms * 1_000_000).to_string());
    let over = run.over.name();
    if let Kind::C(program) = &case.contender.kind {
        let variant = case.contender.mechanism.as_deref().unwrap_or("none");
        let mut command = Command::new(peers.directory.join(program));
        command.args([variant, &descriptors, &active, over, &passes, &pass_ns, &segments]);
        return Ok(command);
    }
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["contend", &case.contender.name, "--over", over]);
    command.args(["--descriptors", &descriptors, "--active", &active]);
    command.args(["--passes", &passes, "--pass-ns", &pass_ns]);
    if !segments.is_empty() {
        command.args(["--segments", &segments]);
    }
    Ok(command)
}

/// Reads the answer of `child`, and traces what it runs after that.
fn hear(child: &mut Child, tracing: Option<Plan>) -> io::Result<(Raw, Option<Traced>)> {
    let mut line = String::new();
    let stdout = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    BufReader::new(stdout).read_line(&mut line)?;
    let raw = serde_json::from_str(&line).map_err(|_| io::Error::other("no result"))?;
    let traced = tracing.map(|plan| trace(child.id(), plan)).transpose()?;
    Ok((raw, traced))
}

/// Kills a process that takes too long.
struct Watchdog {
    done: mpsc::Sender<()>,
    thread: thread::JoinHandle<bool>,
}

impl Watchdog {
    fn over(child: &Child) -> io::Result<Watchdog> {
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let process = pidfd_open(pid.ok_or(io::ErrorKind::NotFound)?, PidfdFlags::empty())?;
        let (done, wait) = mpsc::channel();
        let thread = thread::spawn(move || {
            let late = wait.recv_timeout(DEADLINE) == Err(mpsc::RecvTimeoutError::Timeout);
            if late {
                // It may have ended just now.
                let _ = pidfd_send_signal(&process, Signal::KILL);
            }
            late
        });
        Ok(Watchdog { done, thread })
    }

    /// Ends it, and tells whether it had to act.
    fn dismiss(self) -> bool {
        let Watchdog { done, thread } = self;
        drop(done);
        thread.join().unwrap_or(false)
    }
}
