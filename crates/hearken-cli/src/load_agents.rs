//! `hearken load` on many machines: what an agent does, what is asked of all of them, and which of
//! these a command is.

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
use crate::load::{self, print};
use crate::time::{duration, moment};
use crate::{Failure, load_plan};

mod agent;
mod frames;
mod launch;
mod place;
mod processes;

pub(crate) use agent::Agent;
use agent::{Told, agent, shared};
pub(crate) use place::Where;

/// A run on many machines, or in many processes.
#[derive(Args, Clone)]
#[command(next_help_heading = "Many machines")]
pub(crate) struct ManyArgs {
    /// Take options from a file in TOML, with their names for keys; those given here win. An agent, if
    /// a rank and a size are known: from --rank and --size, Slurm, OpenMPI, Kubernetes or Nomad
    #[arg(long, value_name = "FILE", help_heading = "Many machines")]
    pub(crate) plan: Option<PathBuf>,
    /// The plan itself, in pieces
    #[arg(
        long,
        value_name = "TOML",
        hide = true,
        conflicts_with = "plan",
        allow_hyphen_values = true,
        help_heading = "Many machines"
    )]
    pub(crate) plan_text: Vec<String>,
    /// Say whether the options and the plan are sound, and what they come to; do nothing
    #[arg(long, help_heading = "Many machines")]
    pub(crate) check: bool,
    /// Print the plan that has the options given; do nothing
    #[arg(long, conflicts_with = "check", help_heading = "Many machines")]
    pub(crate) print_plan: bool,
    /// Be one of several: take a share of the load, print the result as one line of JSON
    #[arg(long, help_heading = "Many machines")]
    pub(crate) agent: bool,
    /// Which of the agents this is, from 0 [default: what started it says]
    #[arg(long, value_name = "R", help_heading = "Many machines")]
    pub(crate) rank: Option<u32>,
    /// How many agents there are [default: what started them says]
    #[arg(long, value_name = "N", help_heading = "Many machines")]
    pub(crate) size: Option<u32>,
    /// When requests begin: 2030-01-31T12:00:00Z, or seconds since 1970. It is too late for an agent
    /// that is told so after it
    #[arg(long, value_name = "TIME", value_parser = moment, visible_alias = "start", help_heading = "Many machines")]
    pub(crate) start_at: Option<SystemTime>,
    /// Start agents and add up their results: on the nodes of slurm:N, by mpirun as mpi:N, or in
    /// processes on this machine as local:N
    #[arg(long, value_name = "WHERE", conflicts_with_all = ["agent", "rank", "framed", "lockstep",
        "watch", "progress", "find_knee"], help_heading = "Many machines")]
    pub(crate) on: Option<Where>,
    /// How long after they are started the agents begin [default: 5s; 1s for local]
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "start_at", help_heading = "Many machines")]
    pub(crate) start_in: Option<Duration>,
    /// An argument for srun or mpirun; may be given several times
    #[arg(
        long,
        value_name = "ARG",
        requires = "on",
        allow_hyphen_values = true,
        help_heading = "Many machines"
    )]
    pub(crate) on_arg: Vec<String>,
    /// This program, on the machines of the agents [default: where it is on this one]
    #[arg(long, value_name = "PATH", requires = "on", help_heading = "Many machines")]
    pub(crate) agent_binary: Option<PathBuf>,
    /// Print the result in short lines that can be told from those of other agents
    #[arg(long, hide = true, help_heading = "Many machines")]
    pub(crate) framed: bool,
}

/// `hearken load`, whatever of it is asked for.
pub(crate) fn run(mut args: LoadArgs) -> Result<ExitCode, Failure> {
    if args.many.print_plan {
        print(&load_plan::print(&args.given)?);
        return Ok(ExitCode::SUCCESS);
    }
    if args.many.check {
        return check(args);
    }
    if let Some(place) = args.many.on {
        return launch(args, place);
    }
    let Some(rank) = rank(&args.many)? else {
        if args.many.start_at.is_none() && args.many.start_in.is_none() {
            return load::load(args, None);
        }
        let agent = agent(&mut args, Rank::ALONE, Told::Summary)?;
        return load::load(args, Some(&agent));
    };
    let framed = args.many.framed;
    let told = if framed { Told::Frames } else { Told::Line };
    let done = agent(&mut args, rank, told).and_then(|agent| load::load(args, Some(&agent)));
    match done.map_err(|failure| failure.of(&format!("rank {} of {}", rank.rank(), rank.size()))) {
        Err(failure) if framed => {
            let json = serde_json::to_vec(&Failed::from(&failure)).map_err(Failure::runtime)?;
            hand_over(&frames(rank.rank(), &json)?)?;
            Ok(ExitCode::from(failure.status))
        }
        done => done,
    }
}

/// What an agent tells instead of a result.
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

/// Which of several this is; none if it is not.
fn rank(args: &ManyArgs) -> Result<Option<Rank>, Failure> {
    let may_be = args.agent
        || args.plan.is_some()
        || !args.plan_text.is_empty()
        || args.size.is_some()
        || args.rank.is_some();
    if !may_be {
        return Ok(None);
    }
    let rank = Rank::of_this_process(args.rank, args.size).map_err(Failure::usage)?;
    Ok((args.agent || rank != Rank::ALONE).then_some(rank))
}

/// Says what the options come to, for every agent.
fn check(args: LoadArgs) -> Result<ExitCode, Failure> {
    let command = load_plan::check(&args.given);
    let size = args.many.on.map(Where::size).or(args.many.size).unwrap_or(1);
    if args.lockstep.is_none() {
        shared(load::config(args)?, size)?;
    }
    print(&format!("sound: {command}\n"));
    Ok(ExitCode::SUCCESS)
}

/// Has others make the load, and tells what came of it.
fn launch(args: LoadArgs, place: Where) -> Result<ExitCode, Failure> {
    let outputs = Outputs::open(args.json.as_deref(), &args.outputs)?;
    let (many, given) = (args.many.clone(), args.given.clone());
    let objectives = args.knee.slo.clone().unwrap_or_default();
    let config = load::config(args)?;
    objectives.measurable(&config).map_err(Failure::usage)?;
    shared(config, place.size())?;
    let mut report = launch::launch(&many, &given, place)?;
    // The command is ours, the machines are theirs.
    let machine = mem::take(&mut report.machine);
    output::sign(&mut report);
    report.machine = machine;
    report.objectives = objectives.judge(&report);
    outputs.tell(&report)?;
    let met = report.objectives.iter().all(|judgement| judgement.met);
    Ok(if met { ExitCode::SUCCESS } else { ExitCode::from(load::NOT_MET) })
}

/// A result as an agent hands it over.
pub(crate) fn frames(rank: u32, json: &[u8]) -> Result<Vec<u8>, Failure> {
    frames::frames(rank, json).map_err(Failure::runtime)
}

/// Hands frames over, each in a call of its own, which is not divided.
pub(crate) fn hand_over(frames: &[u8]) -> Result<(), Failure> {
    // A terminal is what OpenMPI gives us for standard output, and does not keep calls apart.
    let mut out: Box<dyn Write> = match io::stdout().is_terminal() && !io::stderr().is_terminal() {
        true => Box::new(io::stderr().lock()),
        false => Box::new(io::stdout().lock()),
    };
    let written = frames.chunks(frames::LENGTH).try_for_each(|line| out.write_all(line));
    written
        .and_then(|()| out.flush())
        .map_err(|error| Failure::runtime(format!("handing over the result: {error}")))
}
