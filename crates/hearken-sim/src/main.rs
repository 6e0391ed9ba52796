//! `hearken-sim`: runs Hearken's programs in a simulated network.

mod arguments;

use std::error::Error;
use std::fs;
use std::io::{IsTerminal, Write, stderr, stdout};
use std::ops::Range;
use std::path::Path;
use std::process::{self, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use hearken::timer::Time;
use hearken_sim::bugs::{self, Bug, Programs, Scratch, Table};
use hearken_sim::campaign::{self, Campaign, Found, Summary};
use hearken_sim::history::{self, Source, Tracer};
use hearken_sim::history_file::HistoryFile;
use hearken_sim::io_level::IoLevelName;
use hearken_sim::kinds::Kind;
use hearken_sim::selection::{Protocols, Selection};
use hearken_sim::shrink;

use arguments::{Arguments, Bugs, Command, History, Run};

/// Prints a line. A closed pipe is not an error.
macro_rules! print_line {
    ($($argument:tt)*) => {
        let _ = writeln!(stdout(), $($argument)*);
    };
}

/// Maximum number of findings of one kind that are written to files.
const MAX_FILES_PER_FINDING: usize = 3;

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Run(options) => run(&options),
        Command::Replay { history, quiet } => replay(&history, quiet),
        Command::Shrink { history, output, time } => shrink(&history, &output, time),
        Command::Bugs(options) => search_bugs(&options),
        Command::Hashes { what, seeds, selection } => print_hashes(what, seeds, selection.get()),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("hearken-sim: {error}");
            ExitCode::FAILURE
        }
    }
}

type Success = Result<bool, Box<dyn Error>>;

fn run(options: &Run) -> Success {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let jobs = options.jobs.unwrap_or(processors).max(1);
    let end = if options.time.is_some() { u64::MAX } else { 10_000 };
    let campaign = Campaign {
        kind: options.what,
        seeds: options.seeds.clone().unwrap_or(0..end),
        selection: options.selection.get(),
        jobs,
        time: options.time,
        keep_going: options.keep_going,
    };
    let started = Instant::now();
    let name = options.what.name();
    let line = |summary: &Summary| {
        let elapsed = started.elapsed().as_secs_f64().max(0.001);
        let rate = summary.histories as f64 / elapsed;
        let events = summary.events as f64 / summary.histories.max(1) as f64;
        let decided = summary.decided / summary.histories.max(1);
        format!(
            "{name}: {} histories, {rate:.0}/s ({:.0}/s per thread), {events:.0} events and \
             {decided} bytes of decisions per history, {} states, {} findings",
            summary.histories,
            rate / jobs as f64,
            summary.features.len(),
            summary.findings.len(),
        )
    };
    let is_terminal = stderr().is_terminal();
    let summary = campaign::run(&campaign, |summary| {
        if is_terminal {
            eprint!("\r\x1b[K{}", line(summary));
        }
    });
    if is_terminal {
        eprint!("\r\x1b[K");
    }
    print_line!("{}", line(&summary));
    let is_clean = report(options, &summary)?;
    let is_same = !options.verify || verify(&campaign, &summary)?;
    Ok(is_clean && is_same)
}

/// Prints the findings, grouped by kind, and writes some of them to files.
fn report(options: &Run, summary: &Summary) -> Success {
    let mut kinds: Vec<&str> =
        summary.findings.values().map(|found| &*found.finding.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    for kind in kinds {
        let all: Vec<&Found> =
            summary.findings.values().filter(|found| found.finding.kind == kind).collect();
        print_line!("\n{} x {kind}", all.len());
        for found in all.iter().take(MAX_FILES_PER_FINDING) {
            let Found { seed, finding, decisions } = found;
            let file = HistoryFile { kind: options.what, decisions: decisions.clone() };
            let path = options.findings.join(format!("{}-{seed}.txt", options.what.name()));
            write_file(&path, &file.render(Some(finding)))?;
            print_line!("  seed {seed}, '{}'", path.display());
            print_line!("    {}", finding.detail.replace('\n', "\n    "));
        }
    }
    Ok(summary.findings.is_empty())
}

fn write_file(path: &Path, text: &str) -> Result<(), String> {
    let parent = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(parent)
        .and_then(|()| fs::write(path, text))
        .map_err(|error| format!("cannot write '{}': {error}", path.display()))
}

/// Compares the hashes of traces with those that another process computes.
fn verify(campaign: &Campaign, summary: &Summary) -> Success {
    let Campaign { kind, seeds, selection, .. } = campaign;
    let end = summary.hashes.last_key_value().map_or(seeds.start, |(seed, _)| seed + 1);
    let range = format!("{}..{}", seeds.start, end.max(seeds.start + 1));
    let mut child = process::Command::new(std::env::current_exe()?);
    child.args(["hashes", "--what", kind.name(), "--seeds", &range]).stderr(Stdio::inherit());
    if let Some((name, _)) = IoLevelName::ALL.iter().find(|(_, of)| Some(*of) == selection.level) {
        child.args(["--level", name]);
    }
    let mut protocols = Protocols::ALL.iter();
    if let Some((name, _)) = protocols.find(|(_, of)| Some(*of) == selection.protocols) {
        child.args(["--protocols", name]);
    }
    let output = child.output()?;
    if !output.status.success() {
        return Err(
            format!("the process that computes the hashes failed: {}", output.status).into()
        );
    }
    let (mut compared, mut different) = (0, 0);
    for line in String::from_utf8(output.stdout)?.lines() {
        let mut words = line.split(' ');
        let seed: u64 = words.next().unwrap_or_default().parse()?;
        let hash = u64::from_str_radix(words.next().unwrap_or_default(), 16)?;
        if let Some(here) = summary.hashes.get(&seed) {
            compared += 1;
            if *here != hash {
                different += 1;
                print_line!("seed {seed}: hash {here:016x} here, {hash:016x} in another process");
            }
        }
    }
    print_line!("{compared} traces compared with another process, {different} are different");
    Ok(different == 0)
}

fn print_hashes(kind: &dyn Kind, seeds: Range<u64>, selection: Selection) -> Success {
    let mut out = stdout().lock();
    for (seed, hash) in campaign::hashes(kind, seeds, selection) {
        writeln!(out, "{seed} {hash:016x}")?;
    }
    Ok(true)
}

/// Returns the kind and the decisions that the arguments name.
fn open(history: &History) -> Result<(&'static dyn Kind, Source), String> {
    if let Ok(seed) = history.source.parse() {
        let kind = history.what.ok_or("a seed requires --what; add the kind of histories")?;
        return Ok((kind, Source::Seed(seed, history.selection.get())));
    }
    let file = HistoryFile::read(Path::new(&history.source))
        .map_err(|error| format!("cannot read history '{}': {error}", history.source))?;
    Ok((file.kind, Source::Bytes(file.decisions)))
}

fn replay(history: &History, quiet: bool) -> Success {
    let (kind, source) = open(history)?;
    let mut first: Option<Time> = None;
    let tracer: Tracer = Box::new(move |host, entry| {
        let since = entry.time.duration_since(*first.get_or_insert(entry.time));
        // A closed pipe ends the output, not the history.
        let _ = writeln!(stdout(), "{:>14.6}s  {host:<10}  {}", since.as_secs_f64(), entry.text);
    });
    let outcome = history::run(kind, &source, (!quiet).then_some(tracer));
    print_line!(
        "{} of {}: {} events in {:.6}s, {} bytes of decisions, hash {:016x}",
        kind.name(),
        source,
        outcome.events,
        outcome.elapsed.as_secs_f64(),
        outcome.decisions.len(),
        outcome.hash
    );
    match &outcome.finding {
        Some(finding) => {
            print_line!("finding: {finding}");
        }
        None => {
            print_line!("no finding");
        }
    }
    Ok(outcome.finding.is_none())
}

fn shrink(history: &History, output: &Path, time: Duration) -> Success {
    let (kind, source) = open(history)?;
    let before = history::run(kind, &source, None).decisions.len();
    let Some(shrunk) = shrink::shrink(kind, &source, time) else {
        return Err(format!("the history of {source} has no finding").into());
    };
    let after = shrunk.decisions.len();
    let file = HistoryFile { kind, decisions: shrunk.decisions };
    write_file(output, &file.render(Some(&shrunk.finding)))?;
    print_line!("{} histories: from {before} to {after} bytes of decisions", shrunk.runs);
    print_line!("finding: {}", shrunk.finding);
    Ok(true)
}

/// Directory of the planted bugs, relative to the repository.
const BUGS: &str = "crates/hearken-sim/bugs";

fn search_bugs(options: &Bugs) -> Success {
    let current = std::env::current_dir()?;
    let repository =
        current.ancestors().find(|directory| directory.join(BUGS).is_dir()).ok_or_else(|| {
            format!("there is no directory '{BUGS}'; run the command in the repository")
        })?;
    let directory = repository.join(BUGS);
    let names =
        if options.names.is_empty() { bugs::names(&directory)? } else { options.names.clone() };
    let selected: Vec<Bug> =
        names.iter().map(|name| bugs::read(&directory, name)).collect::<Result<_, _>>()?;
    let scratch = Scratch::new(repository)?;
    let original = scratch.build_original()?;
    let mut table = Table::default();
    for bug in selected {
        scratch.restore()?;
        scratch.apply(&bug.patch)?;
        let patched = scratch.build()?;
        let programs =
            Programs { patched: &patched, original: &original, output: scratch.target() };
        let search = programs.search(&bug, options.histories)?;
        eprintln!("{}", table.add(bug, search));
    }
    scratch.restore()?;
    print!("{table}");
    if let Some(path) = &options.output {
        let command = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
        write_file(path, &format!("hearken-sim {command}\n\n{table}"))?;
    }
    Ok(table.is_complete())
}
