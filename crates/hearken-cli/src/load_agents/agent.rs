//! An agent: its share of the load, its start time and the format of its result.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use hearken_load::{ClockState, Config, Part, Rank, Report};
use jiff::Timestamp;

use crate::Failure;
use crate::args::load::LoadArgs;
use crate::load::output::Format;

/// Maximum delay of an agent behind its start time.
const MAX_DELAY: Duration = Duration::from_millis(50);

/// Maximum time until the start. A longer time is probably a wrong clock or year.
const MAX_LEAD: Duration = Duration::from_secs(24 * 3600);

/// One of several agents, or a single process with a start time.
pub(crate) struct Agent {
    rank: Rank,
    start: Option<SystemTime>,
    format: ResultFormat,
}

/// The format of the result on standard output.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ResultFormat {
    /// Text for people.
    Summary,
    /// One line of JSON.
    Line,
    /// Frames for the launching process.
    Frames,
}

/// Creates the agent of a rank, and adapts the seed and the file names in `args` to it.
///
/// # Errors
/// An option that agents do not support, or a start time that has passed or is more than a day away.
pub(super) fn agent(
    args: &mut LoadArgs,
    rank: Rank,
    format: ResultFormat,
) -> Result<Agent, Failure> {
    if args.knee.find_knee {
        return Err(Failure::usage(
            "--find-knee supports a single process without start time only",
        ));
    }
    if args.knee.sweep {
        return Err(Failure::usage("--sweep supports a single process without start time only"));
    }
    if args.lockstep.is_some() {
        return Err(Failure::usage("--lockstep supports a single process without start time only"));
    }
    if args.many.start_in.is_some() && rank.size() > 1 {
        return Err(Failure::usage(
            "--start-in would start each agent at a different time; use --start-at",
        ));
    }
    let start = args.many.start_at.or(args.many.start_in.map(|time| SystemTime::now() + time));
    if let Some(start) = start {
        check_start(start)?;
    }
    if args.seed.is_none() {
        args.seed = Some(seed(args));
    }
    let insert_rank = |path: &mut PathBuf| {
        *path = path.to_string_lossy().replace("{rank}", &rank.rank().to_string()).into();
    };
    args.json.iter_mut().for_each(insert_rank);
    args.outputs.rename(insert_rank);
    Ok(Agent { rank, start, format })
}

/// Checks that a start time has not passed and is less than a day away.
pub(super) fn check_start(start: SystemTime) -> Result<(), Failure> {
    let now = SystemTime::now();
    if let Some(delay) = now.duration_since(start).ok().filter(|delay| *delay > MAX_DELAY) {
        return Err(Failure::usage(format!(
            "start time {} passed {:.1} s ago; choose a later one and synchronise the clocks",
            format_time(start),
            delay.as_secs_f64(),
        )));
    }
    match start.duration_since(now) {
        Ok(lead) if lead > MAX_LEAD => Err(Failure::usage(format!(
            "start time {} is more than a day away; check the date and the clock",
            format_time(start)
        ))),
        _ => Ok(()),
    }
}

/// Formats a time as in a plan.
pub(super) fn format_time(time: SystemTime) -> String {
    match Timestamp::try_from(time) {
        Ok(time) => time.to_string(),
        Err(_) => "(time out of range)".to_owned(),
    }
}

/// Returns a seed that is the same for all agents with the same options, wherever their files are (FNV-1a).
fn seed(args: &LoadArgs) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |bytes: &[u8]| {
        for &byte in bytes.iter().chain(&[0]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    };
    for option in args.options.iter().filter(|option| option.path.is_none()) {
        add(option.name.as_bytes());
        option.values.iter().for_each(|value| add(value.as_encoded_bytes()));
    }
    // 32 bits, so that the seed is easy to type and exact in every JSON reader.
    (hash >> 32) ^ (hash & u64::from(u32::MAX))
}

/// Checks that this number of agents can share a load.
pub(super) fn check_shares(mut config: Config, size: u32) -> Result<(), Failure> {
    // The last agent has the smallest share.
    config.rank = Rank::new(size.saturating_sub(1), size).map_err(Failure::usage)?;
    config.seed = config.seed.or(Some(0));
    hearken_load::check(&config).map_err(Failure::usage)
}

impl Agent {
    /// Returns whether this process makes the complete load.
    pub(crate) fn is_alone(&self) -> bool {
        self.format == ResultFormat::Summary
    }

    /// Sets the share and the start time of this agent.
    pub(crate) fn configure(&self, config: &mut Config) {
        config.rank = self.rank;
        config.start_at = self.start;
    }

    /// Adds to the report which part of the load it covers.
    pub(crate) fn add_part(&self, report: &mut Report) {
        if self.format == ResultFormat::Frames {
            // The command contains the complete plan. The launching process reports its own.
            report.command.clear();
        }
        report.part = (self.format != ResultFormat::Summary).then(|| self.part(report));
    }

    fn part(&self, report: &Report) -> Part {
        let clock = ClockState::read().ok();
        let asked = self.start.and_then(|start| start.duration_since(SystemTime::UNIX_EPOCH).ok());
        let asked = asked.and_then(|since| u64::try_from(since.as_nanos()).ok());
        Part {
            rank: self.rank.rank(),
            size: self.rank.size(),
            scheduled_start_unix_ns: asked,
            start_delay_ns: asked.map_or(0, |asked| report.started_unix_ns.saturating_sub(asked)),
            clock_synchronised: clock.map(|clock| clock.synchronised),
            clock_max_error_us: clock.map(|clock| clock.max_error_us),
        }
    }

    /// Returns the format of the result on standard output, or `None` for the summary.
    pub(crate) fn format(&self) -> Option<Format> {
        match self.format {
            ResultFormat::Summary => None,
            ResultFormat::Line => Some(Format::JsonLine),
            ResultFormat::Frames => Some(Format::Frames(self.rank.rank())),
        }
    }
}
