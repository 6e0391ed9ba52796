//! `hearken load` on several machines: selects whether this process makes a load alone, launches agents, or is an agent.

use std::io::{self, IsTerminal, Write};
use std::mem;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use clap::Args;
use hearken_load::Rank;
use serde::{Deserialize, Serialize};

use crate::args::load::LoadArgs;
use crate::load::output::{self, Outputs};
use crate::load::status::exit_status;
use crate::load::{self, labels, print};
use crate::time::{duration, timestamp};
use crate::{Failure, load_plan};

mod agent;
mod frames;
mod launch;
mod launcher;
mod processes;

pub(crate) use agent::Agent;
use agent::{ResultFormat, agent, check_shares};
pub(crate) use launcher::Launcher;

/// The arguments of a load on several machines or in several processes.
#[derive(Args, Clone)]
#[command(next_help_heading = "Several machines")]
pub(crate) struct ManyArgs {
    /// Read options from a TOML file
    ///
    /// Keys are the names of options. Options on the command line override the file. The process becomes an
    /// agent if its rank and the number of agents are known: from --rank and --size, Slurm, OpenMPI, Kubernetes
    /// or Nomad.
    #[arg(long, value_name = "FILE", hide_short_help = true, help_heading = "Several machines")]
    pub(crate) plan: Option<PathBuf>,
    /// Pieces of the text of the plan
    #[arg(
        long,
        value_name = "TOML",
        hide = true,
        conflicts_with = "plan",
        allow_hyphen_values = true,
        help_heading = "Several machines"
    )]
    pub(crate) plan_text: Vec<String>,
    /// Validate the options and the plan, and exit
    #[arg(long, hide_short_help = true, help_heading = "Several machines")]
    pub(crate) check: bool,
    /// Print the options as a plan, and exit
    #[arg(
        long,
        conflicts_with = "check",
        hide_short_help = true,
        help_heading = "Several machines"
    )]
    pub(crate) print_plan: bool,
    /// Run as one of several agents
    ///
    /// The agent makes its share of the load and prints the result as one line of JSON.
    #[arg(long, hide_short_help = true, help_heading = "Several machines")]
    pub(crate) agent: bool,
    /// Rank of this agent, from 0 [default: from the launcher]
    #[arg(long, value_name = "N", hide_short_help = true, help_heading = "Several machines")]
    pub(crate) rank: Option<u32>,
    /// Number of agents [default: from the launcher]
    #[arg(long, value_name = "N", hide_short_help = true, help_heading = "Several machines")]
    pub(crate) size: Option<u32>,
    /// Time of the first request: 2030-01-31T12:00:00Z, or seconds since 1970
    #[arg(long, value_name = "TIME", value_parser = timestamp, hide_short_help = true, help_heading = "Several machines")]
    pub(crate) start_at: Option<SystemTime>,
    /// Launch agents: slurm:N, mpi:N or local:N (processes on this machine)
    ///
    /// The results of all agents are merged.
    #[arg(long, value_name = "LAUNCHER", conflicts_with_all = ["agent", "rank", "framed", "lockstep",
        "watch", "progress", "find_knee", "sweep"], hide_short_help = true, help_heading = "Several machines")]
    pub(crate) on: Option<Launcher>,
    /// Time from the launch to the first request [default: 5s; 1s for local]
    #[arg(long, value_name = "DURATION", value_parser = duration, conflicts_with = "start_at",
        hide_short_help = true, help_heading = "Several machines")]
    pub(crate) start_in: Option<Duration>,
    /// Argument for srun or mpirun; repeatable
    #[arg(
        long,
        value_name = "ARG",
        requires = "on",
        allow_hyphen_values = true,
        hide_short_help = true,
        help_heading = "Several machines"
    )]
    pub(crate) on_arg: Vec<String>,
    /// Path of this program on the machines of the agents [default: as on this machine]
    #[arg(
        long,
        value_name = "FILE",
        requires = "on",
        hide_short_help = true,
        help_heading = "Several machines"
    )]
    pub(crate) agent_binary: Option<PathBuf>,
    /// Print the result in frames that can be separated from those of other agents
    #[arg(long, hide = true, help_heading = "Several machines")]
    pub(crate) framed: bool,
}

/// Runs `hearken load` without a subcommand.
pub(crate) fn run(mut args: LoadArgs) -> Result<ExitCode, Failure> {
    if args.many.print_plan {
        print(&load_plan::print(&args.options)?);
        return Ok(ExitCode::SUCCESS);
    }
    if args.many.check {
        return check(args);
    }
    if let Some(launcher) = args.many.on {
        return launch(args, launcher);
    }
    let Some(rank) = rank(&args.many)? else {
        if args.many.start_at.is_none() && args.many.start_in.is_none() {
            return load::load(args, None);
        }
        let agent = agent(&mut args, Rank::SINGLE, ResultFormat::Summary)?;
        return load::load(args, Some(&agent));
    };
    let framed = args.many.framed;
    let format = if framed { ResultFormat::Frames } else { ResultFormat::Line };
    let result = agent(&mut args, rank, format).and_then(|agent| load::load(args, Some(&agent)));
    match result.map_err(|failure| failure.of(&format!("rank {} of {}", rank.rank(), rank.size())))
    {
        Err(failure) if framed => {
            let json = serde_json::to_vec(&Failed::from(&failure)).map_err(Failure::runtime)?;
            write_frames(&frames(rank.rank(), &json)?)?;
            Ok(ExitCode::from(failure.status))
        }
        result => result,
    }
}

/// The failure of an agent, sent instead of a result.
#[derive(Serialize, Deserialize)]
struct Failed {
    failed: String,
    status: u8,
}

impl From<&Failure> for Failed {
    fn from(failure: &Failure) -> Failed {
        Failed { failed: failure.error.to_string(), status: failure.status }
    }
}

/// Returns the rank of this process, or `None` if it is not an agent.
fn rank(args: &ManyArgs) -> Result<Option<Rank>, Failure> {
    let may_be_agent = args.agent
        || args.plan.is_some()
        || !args.plan_text.is_empty()
        || args.size.is_some()
        || args.rank.is_some();
    if !may_be_agent {
        return Ok(None);
    }
    let rank = Rank::from_environment(args.rank, args.size).map_err(Failure::usage)?;
    Ok((args.agent || rank != Rank::SINGLE).then_some(rank))
}

/// Validates the options for every agent and prints the equivalent command.
fn check(args: LoadArgs) -> Result<ExitCode, Failure> {
    let command = load_plan::check(&args.options);
    let size = args.many.on.map(Launcher::size).or(args.many.size).unwrap_or(1);
    if args.lockstep.is_none() {
        check_shares(load::config(args)?, size)?;
    }
    print(&format!("valid: {command}\n"));
    Ok(ExitCode::SUCCESS)
}

/// Launches agents, and writes their merged result.
fn launch(args: LoadArgs, launcher: Launcher) -> Result<ExitCode, Failure> {
    let outputs = Outputs::open(args.json.as_deref(), &args.outputs)?.quiet(args.quiet);
    let (labels, quiet) = (labels(&args.label)?, args.quiet);
    let (many, options) = (args.many.clone(), args.options.clone());
    let objectives = args.knee.slo.clone().unwrap_or_default();
    let config = load::config(args)?;
    objectives.check_measurable(&config).map_err(Failure::usage)?;
    check_shares(config, launcher.size())?;
    let mut report = launch::launch(&many, &options, launcher, quiet)?;
    // The result names this command, but the machines of the agents.
    let machine = mem::take(&mut report.machine);
    output::add_origin(&mut report);
    report.machine = machine;
    report.labels = labels;
    report.objectives = objectives.evaluate(&report);
    outputs.write(&report)?;
    Ok(exit_status(&report))
}

/// Returns the frames of a result.
pub(crate) fn frames(rank: u32, json: &[u8]) -> Result<Vec<u8>, Failure> {
    frames::frames(rank, json).map_err(Failure::runtime)
}

/// Writes frames to standard output, each in a call of its own, which the kernel does not divide.
pub(crate) fn write_frames(frames: &[u8]) -> Result<(), Failure> {
    // OpenMPI makes standard output a terminal, which does not keep calls apart.
    let mut out: Box<dyn Write> = match io::stdout().is_terminal() && !io::stderr().is_terminal() {
        true => Box::new(io::stderr().lock()),
        false => Box::new(io::stdout().lock()),
    };
    let written = frames.chunks(frames::LENGTH).try_for_each(|line| out.write_all(line));
    written
        .and_then(|()| out.flush())
        .map_err(|error| Failure::runtime(format!("cannot write the result: {error}")))
}
