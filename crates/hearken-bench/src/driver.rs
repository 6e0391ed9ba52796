//! Runs every contender in its own process, in shuffled order, and collects the results.

use std::io::{self, BufRead, BufReader, IsTerminal, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use hearken_lab::{Machine, stats};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::args::Run;
use crate::checks::checks;
use crate::contender::{BASELINE, BASELINE_C, Contender, Kind, Unavailable};
use crate::measure::Measurement;
use crate::peers::Peers;
use crate::results::{Failure, Report, SCHEMA, Sample, cells};
use crate::trace::{TraceCounts, TracePlan, trace};

/// Timeout of a measurement. A measurement that exceeds it has lost an event.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Exit status of a peer whose library does not support the case.
const EXIT_UNSUPPORTED: i32 = 3;

/// A measurement to be run.
struct Case<'a> {
    contender: &'a Contender,
    descriptors: usize,
    active: usize,
    repetition: u32,
}

/// Runs the measurements that the settings select.
pub(crate) fn drive(
    run: &Run,
    (contenders, unavailable): (Vec<Contender>, Vec<Unavailable>),
    peers: &Peers,
) -> io::Result<Report> {
    let (date, start) = (jiff::Timestamp::now(), Instant::now());
    pin_to_one_processor();
    let is_selected = |contender: &Contender| {
        let name = &contender.name;
        let is_baseline = name == BASELINE || name == BASELINE_C;
        is_baseline
            || run.only.is_empty()
            || run.only.iter().any(|part| name.contains(part.as_str()))
    };
    let contenders: Vec<Contender> = contenders.into_iter().filter(is_selected).collect();
    let cases = plan(run, &contenders);
    let (mut samples, mut unsupported, mut failures) = (Vec::new(), Vec::new(), Vec::new());
    for (number, case) in cases.iter().enumerate() {
        let Case { contender, descriptors, active, repetition } = *case;
        let name = &contender.name;
        if io::stderr().is_terminal() {
            eprint!("\r\x1b[K{number}/{}: {name} N={descriptors} A={active}", cases.len());
        }
        match run_case(run, case, peers) {
            Ok((measurement, counts)) => samples.push(Sample {
                contender: name.clone(),
                descriptors,
                active,
                repetition,
                measurement,
                trace: counts,
            }),
            Err(error) => {
                // An unsupported case is unsupported in every repetition.
                let is_unsupported = error.kind() == io::ErrorKind::Unsupported;
                let list = if is_unsupported { &mut unsupported } else { &mut failures };
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
    let mut versions: Vec<String> = samples.iter().map(|s| s.measurement.version.clone()).collect();
    versions.sort_unstable();
    versions.dedup();
    let cells = cells(&contenders, &samples, run);
    Ok(Report {
        schema: SCHEMA.into(),
        command_line: std::env::args().collect(),
        date: date.round(jiff::Unit::Second).unwrap_or(date).to_string(),
        elapsed_s: start.elapsed().as_secs_f64(),
        settings: run.clone(),
        machine: Machine::detect(),
        method: method(run, &samples),
        versions,
        unavailable,
        unsupported,
        failures,
        checks: checks(&cells),
        cells,
        samples,
    })
}

/// Pins this process and its children to one processor, so that none migrates.
fn pin_to_one_processor() {
    let Ok(allowed) = sched_getaffinity(None) else { return };
    if let Some(last) = (0..CpuSet::MAX_CPU).rev().find(|&cpu| allowed.is_set(cpu)) {
        let mut one = CpuSet::new();
        one.set(last);
        // On failure, measurements are less precise.
        let _ = sched_setaffinity(None, &one);
    }
}

/// Returns all cases of all repetitions, each repetition in its own random order.
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
    let counted =
        samples.iter().flat_map(|s| &s.measurement.passes).any(|pass| pass.kernel.is_some());
    let instructions = if run.icount {
        "Instructions: CPU time under QEMU -icount shift=0, where one nanosecond is one \
         instruction. User-mode instructions: single-stepping."
    } else if counted {
        "Instructions: hardware counters (perf_event_open)."
    } else {
        "User-mode instructions: single-stepping. Kernel instructions: no hardware counter available."
    };
    format!("{instructions} System calls: tracing. {}", stats::METHOD)
}

fn run_case(
    run: &Run,
    case: &Case<'_>,
    peers: &Peers,
) -> io::Result<(Measurement, Option<TraceCounts>)> {
    // Traced counts are the same in every repetition.
    let is_traced = case.repetition == 0 && run.max_steps > 0;
    let tracing = is_traced.then(|| TracePlan::new(case.active, run.max_steps));
    let mut child = command(run, case, peers, tracing)?
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let watchdog = Watchdog::start(&child)?;
    let result = read_result(&mut child, tracing);
    let timed_out = watchdog.stop();
    // The result is complete.
    let _ = child.kill();
    let status = child.wait()?;
    let mut stderr_text = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        stderr.read_to_string(&mut stderr_text)?;
    }
    result.map_err(|error| match stderr_text.trim() {
        _ if timed_out => io::Error::other(format!(
            "timed out after {} s: an event was lost, or events are too expensive",
            TIMEOUT.as_secs()
        )),
        text if status.code() == Some(EXIT_UNSUPPORTED) => {
            io::Error::new(io::ErrorKind::Unsupported, text.to_owned())
        }
        "" => io::Error::other(format!("{error} ({status})")),
        text => io::Error::other(text.to_owned()),
    })
}

fn command(
    run: &Run,
    case: &Case<'_>,
    peers: &Peers,
    tracing: Option<TracePlan>,
) -> io::Result<Command> {
    let segments = tracing.map_or(Vec::new(), |plan| plan.segments().to_vec());
    let segments = segments.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
    let (descriptors, active) = (case.descriptors.to_string(), case.active.to_string());
    let (passes, pass_ns) = (run.passes.to_string(), (run.pass_ms * 1_000_000).to_string());
    let descriptor_type = run.descriptor_type.name();
    if let Kind::C(program) = &case.contender.kind {
        let variant = case.contender.mechanism.as_deref().unwrap_or("none");
        let mut command = Command::new(peers.directory.join(program));
        command.args([
            variant,
            &descriptors,
            &active,
            descriptor_type,
            &passes,
            &pass_ns,
            &segments,
        ]);
        return Ok(command);
    }
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["measure", &case.contender.name, "--descriptor-type", descriptor_type]);
    command.args(["--descriptors", &descriptors, "--active", &active]);
    command.args(["--passes", &passes, "--pass-ns", &pass_ns]);
    if !segments.is_empty() {
        command.args(["--segments", &segments]);
    }
    Ok(command)
}

/// Reads the result of `child` and traces the rounds that it runs afterwards.
fn read_result(
    child: &mut Child,
    tracing: Option<TracePlan>,
) -> io::Result<(Measurement, Option<TraceCounts>)> {
    let mut line = String::new();
    let stdout = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    BufReader::new(stdout).read_line(&mut line)?;
    let measurement = serde_json::from_str(&line)
        .map_err(|error| io::Error::other(format!("invalid result: {error}")))?;
    let counts = tracing.map(|plan| trace(child.id(), plan)).transpose()?;
    Ok((measurement, counts))
}

/// A thread that kills a process after a timeout.
struct Watchdog {
    done: mpsc::Sender<()>,
    thread: thread::JoinHandle<bool>,
}

impl Watchdog {
    fn start(child: &Child) -> io::Result<Watchdog> {
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let process = pidfd_open(pid.ok_or(io::ErrorKind::NotFound)?, PidfdFlags::empty())?;
        let (done, wait) = mpsc::channel();
        let thread = thread::spawn(move || {
            let timed_out = wait.recv_timeout(TIMEOUT) == Err(mpsc::RecvTimeoutError::Timeout);
            if timed_out {
                // The process may have ended just now.
                let _ = pidfd_send_signal(&process, Signal::KILL);
            }
            timed_out
        });
        Ok(Watchdog { done, thread })
    }

    /// Stops the watchdog. Returns whether the process timed out.
    fn stop(self) -> bool {
        let Watchdog { done, thread } = self;
        drop(done);
        thread.join().unwrap_or(false)
    }
}
