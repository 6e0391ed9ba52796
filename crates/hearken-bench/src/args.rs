//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use serde::{Deserialize, Serialize};

use crate::measure::Task;
use crate::pairs::Over;

/// What one event costs: every mechanism of Hearken beside other event libraries, in one run.
///
/// Some of many descriptors are written to, a byte each, and the contender takes the events and
/// reads the bytes. Everyone runs in a process of their own, in shuffled order, several times.
#[derive(Debug, Parser)]
#[command(
    name = "dispatch",
    version,
    args_conflicts_with_subcommands = true,
    after_help = "Exit codes: 0 all was measured; 1 something was not (the results say what); \
                  2 the command line; 3 a goal was missed, with --strict."
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) run: Run,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Compile the peers in C into a directory, for `--peers`.
    Peers {
        /// Where to; it is made if it is not there.
        directory: PathBuf,
    },
    /// Show the table of an earlier run.
    Show {
        /// Its results.json.
        results: PathBuf,
    },
    /// List who takes part here, and who cannot.
    List,
    /// Measure one contender, in this process.
    #[command(hide = true)]
    Contend {
        /// Its name.
        name: String,
        #[command(flatten)]
        task: Task,
    },
}

/// What a run does.
#[derive(Clone, Debug, PartialEq, Args, Serialize, Deserialize)]
pub(crate) struct Run {
    /// Numbers of registered descriptors.
    #[arg(short = 'n', long, value_delimiter = ',', default_value = "100,1000,8000")]
    pub(crate) descriptors: Vec<usize>,
    /// Numbers of descriptors that are written to before events are taken.
    #[arg(short, long, value_delimiter = ',', default_value = "1,100")]
    pub(crate) active: Vec<usize>,
    /// What the descriptors are.
    #[arg(long, default_value = "sockets")]
    pub(crate) over: Over,
    /// How often everything is measured.
    #[arg(short, long, default_value_t = 3)]
    pub(crate) repetitions: u32,
    /// Passes of a measurement; its figure is their median.
    #[arg(long, default_value_t = 5)]
    pub(crate) passes: u32,
    /// CPU time of a pass, in milliseconds.
    #[arg(long, default_value_t = 10)]
    pub(crate) pass_ms: u64,
    /// Steps that may be made to count the instructions of one contender in user mode (0: do not
    /// count them, nor system calls).
    #[arg(long, default_value_t = 200_000)]
    pub(crate) steps: u64,
    /// Only contenders whose name contains one of these, besides the floors.
    #[arg(long, value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Seed of the order of measurements.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Fewer and shorter: a look, not a result.
    #[arg(long)]
    pub(crate) quick: bool,
    /// A nanosecond of CPU time is one instruction: QEMU -icount shift=0. See emulated.sh.
    #[arg(long)]
    pub(crate) icount: bool,
    /// Where `dispatch peers` has put the peers in C; without it they are compiled now.
    #[arg(long)]
    pub(crate) peers: Option<PathBuf>,
    /// Write results.json and table.md into this directory.
    #[arg(short, long)]
    pub(crate) out: Option<PathBuf>,
    /// Print the results as JSON in place of the table.
    #[arg(long)]
    pub(crate) json: bool,
    /// Exit with 3 if a goal is missed.
    #[arg(long)]
    pub(crate) strict: bool,
}

impl Run {
    /// The settings with what `--quick` makes of them, or what is wrong with them.
    pub(crate) fn settled(mut self) -> Result<Run, String> {
        if self.quick {
            self.repetitions = 1;
            self.passes = 3;
            self.pass_ms = self.pass_ms.min(2);
            self.steps = self.steps.min(40_000);
        }
        self.descriptors.sort_unstable();
        self.active.sort_unstable();
        let (Some(&fewest), Some(&most)) = (self.descriptors.first(), self.active.last()) else {
            return Err("say at least one number of descriptors, and of active ones".into());
        };
        let least = [self.active[0], self.repetitions as usize, self.passes as usize];
        if least.contains(&0) || self.pass_ms == 0 {
            return Err(
                "active descriptors, repetitions, passes and their length are at least 1".into()
            );
        }
        if most > fewest {
            return Err(format!("{most} of {fewest} descriptors cannot be active"));
        }
        Ok(self)
    }
}
