//! Command line.

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use hearken_sim::io_level::IoLevelName;
use hearken_sim::kinds::{self, Kind};
use hearken_sim::selection::{Protocols, Selection};

const EXIT_STATUS: &str =
    "Exit status:\n  0  no finding\n  1  a finding, or an error\n  2  invalid command line";

const RUN_EXAMPLES: &str = "Examples:
  Run 100,000 histories of the server:
    hearken-sim run --what server --seeds 0..100000
  Run for an hour on 8 threads and collect all findings:
    hearken-sim run --what server --time 1h --jobs 8 --keep-going
  Run the real io_uring code over a simulated ring:
    hearken-sim run --what server --level ring
  Run histories in which some clients use HTTP/2 over TLS:
    hearken-sim run --what proxy --protocols http2-tls
  Compare traces with those of another process:
    hearken-sim run --what server --seeds 0..1000 --verify";

const REPLAY_EXAMPLES: &str = "Examples:
  Print what happens with a seed:
    hearken-sim replay 4711 --what server
  Print what happens in a stored history:
    hearken-sim replay crates/hearken-sim/tests/histories/server-4711.txt";

const SHRINK_EXAMPLES: &str = "Examples:
  Shrink the history of a seed:
    hearken-sim shrink 4711 --what server -o short.txt
  Shrink a stored history for at most 5 minutes:
    hearken-sim shrink long.txt -o short.txt --time 5m";

const BUGS_EXAMPLES: &str = "Examples:
  Search for all planted bugs and store the table:
    hearken-sim bugs -o results/planted-bugs/table.txt
  Search for two of them:
    hearken-sim bugs static-stale proxy-repeats-unsafe";

/// Runs Hearken's programs in a simulated network.
///
/// A seed determines a history: the configuration, the behaviour of clients, the network, its faults,
/// and the order in which programs run. The same seed always gives the same history.
#[derive(Debug, Parser)]
#[command(name = "hearken-sim", version, after_help = EXIT_STATUS)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the histories of many seeds.
    ///
    /// Writes each history with a finding to a file. Runs every tenth history twice and compares the
    /// traces.
    #[command(after_long_help = RUN_EXAMPLES)]
    Run(Run),
    /// Print what happens in a history.
    ///
    /// Prints each completion with its virtual time, the host, and the values.
    #[command(after_long_help = REPLAY_EXAMPLES)]
    Replay {
        #[command(flatten)]
        history: History,
        /// Print only the result.
        #[arg(long)]
        quiet: bool,
    },
    /// Find a shorter history with the same finding.
    ///
    /// Removes decisions and reduces their values as long as the finding remains.
    #[command(after_long_help = SHRINK_EXAMPLES)]
    Shrink {
        #[command(flatten)]
        history: History,
        /// Output file.
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        /// Maximum duration.
        #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration)]
        time: Duration,
    },
    /// Count the histories that find planted bugs.
    ///
    /// Applies each patch of `crates/hearken-sim/bugs` to a copy of the repository, builds the copy, and
    /// runs histories until one has a finding that it does not have without the patch.
    #[command(after_long_help = BUGS_EXAMPLES)]
    Bugs(Bugs),
    /// Print the hashes of traces, to compare them with another process.
    #[command(hide = true)]
    Hashes {
        #[arg(long, value_parser = kind)]
        what: &'static dyn Kind,
        #[arg(long, value_parser = seeds)]
        seeds: Range<u64>,
        #[command(flatten)]
        selection: Selected,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// Kind of histories.
    #[arg(long, value_name = "KIND", value_parser = kind)]
    pub(crate) what: &'static dyn Kind,
    /// First seed and end of the seeds [default: 0..10000, or 0 and following with --time].
    #[arg(long, value_name = "A..B", value_parser = seeds)]
    pub(crate) seeds: Option<Range<u64>>,
    #[command(flatten)]
    pub(crate) selection: Selected,
    /// Number of threads [default: number of processors].
    #[arg(short, long, value_name = "N")]
    pub(crate) jobs: Option<usize>,
    /// Maximum duration.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) time: Option<Duration>,
    /// Continue after a finding.
    #[arg(long)]
    pub(crate) keep_going: bool,
    /// Also compare the traces of every tenth history with those of another process.
    #[arg(long)]
    pub(crate) verify: bool,
    /// Directory for histories with findings.
    #[arg(long, value_name = "DIR", default_value = "crates/hearken-sim/tests/histories")]
    pub(crate) findings: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Bugs {
    /// Names of the bugs [default: all].
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// Maximum number of histories per bug.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub(crate) histories: u64,
    /// Output file for the table, in addition to standard output.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct History {
    /// Seed, or file with a history.
    #[arg(value_name = "SEED|FILE")]
    pub(crate) source: String,
    /// Kind of histories, for a seed.
    #[arg(long, value_name = "KIND", value_parser = kind)]
    pub(crate) what: Option<&'static dyn Kind>,
    #[command(flatten)]
    pub(crate) selection: Selected,
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Selected {
    /// Implementation of Io under the programs: simulated by its contract, or real over a simulated
    /// kernel or ring. Each seed selects one with any.
    #[arg(long, value_name = "LEVEL", value_parser = level, default_value = "any")]
    pub(crate) level: Choice<IoLevelName>,
    /// Protocols of clients: http1, or some with http2; all over TLS with http1-tls or http2-tls. Each
    /// seed selects them with any.
    #[arg(long, value_name = "NAME", value_parser = protocols, default_value = "any")]
    pub(crate) protocols: Choice<Protocols>,
}

impl Selected {
    pub(crate) fn get(self) -> Selection {
        Selection { level: self.level.0, protocols: self.protocols.0 }
    }
}

/// A named value, or any.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice<T>(pub(crate) Option<T>);

fn choose<T: Copy>(text: &str, names: &[(&str, T)]) -> Option<Choice<T>> {
    let found = names.iter().find(|(name, _)| *name == text).map(|(_, value)| Choice(Some(*value)));
    found.or((text == "any").then_some(Choice(None)))
}

fn level(text: &str) -> Result<Choice<IoLevelName>, &'static str> {
    choose(text, &IoLevelName::ALL).ok_or("unknown level (use io, kernel, ring, any)")
}

fn protocols(text: &str) -> Result<Choice<Protocols>, &'static str> {
    choose(text, &Protocols::ALL)
        .ok_or("unknown protocols (use http1, http2, http1-tls, http2-tls, any)")
}

fn kind(text: &str) -> Result<&'static dyn Kind, String> {
    kinds::find(text).ok_or_else(|| {
        let names: Vec<_> = kinds::all().iter().map(|kind| kind.name()).collect();
        format!("unknown kind (use {})", names.join(", "))
    })
}

fn seeds(text: &str) -> Result<Range<u64>, String> {
    const EXPECTED: &str = "expected the first seed and the end, such as 0..1000";
    let (start, end) = text.split_once("..").ok_or(EXPECTED)?;
    let parse = |number: &str| number.parse().map_err(|_| EXPECTED.to_owned());
    let range = parse(start)?..parse(end)?;
    if range.is_empty() { Err("the range is empty".to_owned()) } else { Ok(range) }
}

fn duration(text: &str) -> Result<Duration, String> {
    const EXPECTED: &str = "expected a duration such as 30s, 5m or 1h";
    let at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let number: f64 = number.parse().map_err(|_| EXPECTED)?;
    let unit = match unit {
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("unknown unit '{unit}' (use s, m or h)")),
    };
    Duration::try_from_secs_f64(number * unit).map_err(|_| EXPECTED.to_owned())
}
