//! An agent: its share of what all are to do, when it begins, and what it tells.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use hearken_load::{ClockState, Config, Part, Rank, Report};
use jiff::Timestamp;

use crate::Failure;
use crate::args::load::LoadArgs;
use crate::load::output::Form;

/// How long after its start an agent may still be told of it.
const LATE: Duration = Duration::from_millis(50);

/// How long before its start an agent is told of it, at most: a wrong clock or year is found here.
const EARLY: Duration = Duration::from_secs(24 * 3600);

/// One of several; or the only one, which has a time to start at.
pub(crate) struct Agent {
    rank: Rank,
    start: Option<SystemTime>,
    told: Told,
}

/// How its result is told, if not in a file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// To people.
    Summary,
    Line,
    Frames,
}

/// What an agent of this rank is, and for what of it `args` has no place; an error if it cannot be.
pub(super) fn agent(args: &mut LoadArgs, rank: Rank, told: Told) -> Result<Agent, Failure> {
    if args.knee.find_knee {
        return Err(Failure::usage("--find-knee is for one process, which begins at once"));
    }
    if args.lockstep.is_some() {
        return Err(Failure::usage(
            "--lockstep is for one process, which begins at once; agents cannot share its rounds",
        ));
    }
    if args.many.start_in.is_some() && rank.size() > 1 {
        return Err(Failure::usage(
            "--start-in is counted from another time by each agent; give all the same --start-at",
        ));
    }
    let start = args.many.start_at.or(args.many.start_in.map(|time| SystemTime::now() + time));
    if let Some(start) = start {
        in_time(start)?;
    }
    if args.seed.is_none() {
        args.seed = Some(seed(args));
    }
    let named = |path: &mut PathBuf| {
        *path = path.to_string_lossy().replace("{rank}", &rank.rank().to_string()).into();
    };
    args.json.iter_mut().for_each(named);
    args.outputs.renamed(named);
    Ok(Agent { rank, start, told })
}

/// An error if it is too late to start then, or if that is far away.
pub(super) fn in_time(start: SystemTime) -> Result<(), Failure> {
    let now = SystemTime::now();
    if let Some(late) = now.duration_since(start).ok().filter(|late| *late > LATE) {
        return Err(Failure::usage(format!(
            "the start was at {}, {:.1} s ago; a later one (and clocks that agree) would be met",
            shown(start),
            late.as_secs_f64(),
        )));
    }
    match start.duration_since(now) {
        Ok(early) if early > EARLY => Err(Failure::usage(format!(
            "the start is at {}, in more than a day; is that meant?",
            shown(start)
        ))),
        _ => Ok(()),
    }
}

/// A moment as a plan has it.
pub(super) fn shown(moment: SystemTime) -> String {
    match Timestamp::try_from(moment) {
        Ok(time) => time.to_string(),
        Err(_) => "a time that no calendar has".to_owned(),
    }
}

/// The same for all who were given the same, wherever their files are (FNV-1a).
fn seed(args: &LoadArgs) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |bytes: &[u8]| {
        for &byte in bytes.iter().chain(&[0]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    };
    for option in args.given.iter().filter(|option| option.path.is_none()) {
        add(option.name.as_bytes());
        option.values.iter().for_each(|value| add(value.as_encoded_bytes()));
    }
    // Of a size that can be typed, and that every reader of JSON keeps.
    (hash >> 32) ^ (hash & u64::from(u32::MAX))
}

/// An error if so many agents cannot make this load together.
pub(super) fn shared(mut config: Config, size: u32) -> Result<(), Failure> {
    // The last has the least.
    config.rank = Rank::new(size.saturating_sub(1), size).map_err(Failure::usage)?;
    config.seed = config.seed.or(Some(0));
    hearken_load::check(&config).map_err(Failure::usage)
}

impl Agent {
    /// True if it makes the whole load.
    pub(crate) fn is_alone(&self) -> bool {
        self.told == Told::Summary
    }

    /// Has its part of what all are to do for the load.
    pub(crate) fn part(&self, config: &mut Config) {
        config.rank = self.rank;
        config.start_at = self.start;
    }

    /// Says in the result which part it is.
    pub(crate) fn sign(&self, report: &mut Report) {
        if self.told == Told::Frames {
            // The whole plan; what started us has a command of its own to tell of.
            report.command.clear();
        }
        report.part = (self.told != Told::Summary).then(|| self.told_part(report));
    }

    fn told_part(&self, report: &Report) -> Part {
        // Where the kernel does not tell, it is not told.
        let clock = ClockState::read().ok();
        let asked = self.start.and_then(|start| start.duration_since(SystemTime::UNIX_EPOCH).ok());
        let asked = asked.and_then(|since| u64::try_from(since.as_nanos()).ok());
        Part {
            rank: self.rank.rank(),
            size: self.rank.size(),
            start_asked_unix_ns: asked,
            start_late_ns: asked.map_or(0, |asked| report.started_unix_ns.saturating_sub(asked)),
            clock_synchronised: clock.map(|clock| clock.synchronised),
            clock_max_error_us: clock.map(|clock| clock.max_error_us),
        }
    }

    /// How its result is told on standard output, if not to people.
    pub(crate) fn form(&self) -> Option<Form> {
        match self.told {
            Told::Summary => None,
            Told::Line => Some(Form::JsonLine),
            Told::Frames => Some(Form::Frames(self.rank.rank())),
        }
    }
}
