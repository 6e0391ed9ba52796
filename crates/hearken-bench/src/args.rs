//! Command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use serde::{Deserialize, Serialize};

use crate::measure::Task;
use crate::pairs::DescriptorType;

/// Measures the cost of one event with Hearken's mechanisms and other event libraries.
///
/// Each measurement writes one byte to some of many descriptors. The contender receives the events and
/// reads the bytes. Measurements run in separate processes, in shuffled order, several times.
#[derive(Debug, Parser)]
#[command(
    name = "dispatch",
    version,
    args_conflicts_with_subcommands = true,
    after_help = "Exit status:\n  0  success\n  1  a measurement failed (see the results)\n  \
                  2  invalid command line\n  3  a check failed (with --strict)"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) run: Run,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Compile the peers written in C into a directory, for `--peers`.
    Peers {
        /// Output directory, created if it does not exist.
        directory: PathBuf,
    },
    /// Print the table of an earlier run.
    Show {
        /// The results.json of the run.
        results: PathBuf,
    },
    /// List the contenders, including unavailable ones.
    List,
    /// Measure one contender in this process.
    #[command(hide = true)]
    Measure {
        /// Name of the contender.
        name: String,
        #[command(flatten)]
        task: Task,
    },
}

/// Settings of a run.
#[derive(Clone, Debug, PartialEq, Args, Serialize, Deserialize)]
pub(crate) struct Run {
    /// Numbers of registered descriptors.
    #[arg(
        short = 'n',
        long,
        value_delimiter = ',',
        default_value = "100,1000,8000",
        value_name = "N"
    )]
    pub(crate) descriptors: Vec<usize>,
    /// Numbers of descriptors that are made ready in each round.
    #[arg(short, long, value_delimiter = ',', default_value = "1,100", value_name = "N")]
    pub(crate) active: Vec<usize>,
    /// Type of the descriptors.
    #[arg(long, default_value = "sockets", value_name = "TYPE")]
    pub(crate) descriptor_type: DescriptorType,
    /// Number of repetitions of each measurement.
    #[arg(short, long, default_value_t = 3, value_name = "N")]
    pub(crate) repetitions: u32,
    /// Number of passes per measurement. The result is their median.
    #[arg(long, default_value_t = 5, value_name = "N")]
    pub(crate) passes: u32,
    /// CPU time per pass in milliseconds.
    #[arg(long, default_value_t = 10, value_name = "MILLISECONDS")]
    pub(crate) pass_ms: u64,
    /// Maximum number of single steps to count the user-mode instructions of one contender. 0 disables
    /// counting of instructions and system calls.
    #[arg(long, default_value_t = 200_000, value_name = "N")]
    pub(crate) max_steps: u64,
    /// Measure only the baselines and contenders whose name contains one of these strings.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    pub(crate) only: Vec<String>,
    /// Seed for the order of the measurements.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) seed: u64,
    /// Use fewer and shorter measurements, for a quick look rather than a result.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Treat a nanosecond of CPU time as one instruction (QEMU -icount shift=0, see emulated.sh).
    #[arg(long)]
    pub(crate) icount: bool,
    /// Directory with the peers compiled by `dispatch peers` [default: compile them now].
    #[arg(long, value_name = "DIR")]
    pub(crate) peers: Option<PathBuf>,
    /// Directory for results.json and table.md.
    #[arg(short, long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Print the results as JSON instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
    /// Exit with status 3 if a check fails.
    #[arg(long)]
    pub(crate) strict: bool,
}

impl Run {
    /// Returns the effective settings, or an error message if they are invalid.
    pub(crate) fn validate(mut self) -> Result<Run, String> {
        if self.quick {
            self.repetitions = 1;
            self.passes = 3;
            self.pass_ms = self.pass_ms.min(2);
            self.max_steps = self.max_steps.min(40_000);
        }
        self.descriptors.sort_unstable();
        self.active.sort_unstable();
        let (Some(&min_descriptors), Some(&max_active)) =
            (self.descriptors.first(), self.active.last())
        else {
            return Err("--descriptors and --active require at least one number".into());
        };
        let counts = [self.active[0], self.repetitions as usize, self.passes as usize];
        if counts.contains(&0) || self.pass_ms == 0 {
            return Err("--active, --repetitions, --passes and --pass-ms must be at least 1".into());
        }
        if max_active > min_descriptors {
            return Err(format!(
                "--active {max_active} exceeds the smallest number of descriptors ({min_descriptors})"
            ));
        }
        Ok(self)
    }
}
