//! The results as data: what results.json holds, and all that the table reads.

use std::fmt;

use hearken_lab::Machine;
use hearken_lab::stats::{Estimate, estimate};
use serde::{Deserialize, Serialize};

use crate::args::Run;
use crate::contender::{Absent, Contender, Door, FLOOR, FLOOR_C, Kind};
use crate::goals::Goal;
use crate::measure::{Pass, Raw};
use crate::trace::Traced;

/// Name and version of the format.
pub(crate) const SCHEMA: &str = "hearken-bench-dispatch/1";

/// Everything that a run found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report {
    /// [`SCHEMA`].
    pub(crate) schema: String,
    /// What was typed.
    pub(crate) command_line: Vec<String>,
    /// When the run began, RFC 3339.
    pub(crate) date: String,
    /// How long it took.
    pub(crate) elapsed_s: f64,
    /// What was asked for.
    pub(crate) settings: Run,
    /// Where it ran.
    pub(crate) machine: Machine,
    /// How instructions were counted.
    pub(crate) method: String,
    /// The versions of those that took part.
    pub(crate) versions: Vec<String>,
    /// Those that could not.
    pub(crate) absent: Vec<Absent>,
    /// Places to which a contender does not go by its own word.
    pub(crate) refusals: Vec<Failure>,
    /// Measurements that failed.
    pub(crate) failures: Vec<Failure>,
    /// The goals, and whether they are reached.
    pub(crate) goals: Vec<Goal>,
    /// One for each contender and number of descriptors, registered and active.
    pub(crate) cells: Vec<Cell>,
    /// Every measurement, in the order in which they were made.
    pub(crate) samples: Vec<Sample>,
}

/// A measurement that was not made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failure {
    /// Whose.
    pub(crate) contender: String,
    /// Descriptors registered.
    pub(crate) descriptors: usize,
    /// Descriptors active.
    pub(crate) active: usize,
    /// What it said, or did.
    pub(crate) reason: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { contender, descriptors, active, reason } = self;
        write!(f, "{contender}, N={descriptors} A={active}: {reason}")
    }
}

/// One measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// Whose.
    pub(crate) contender: String,
    /// Descriptors registered.
    pub(crate) descriptors: usize,
    /// Descriptors active.
    pub(crate) active: usize,
    /// The repetition, from 0.
    pub(crate) repetition: u32,
    /// What the contender said.
    #[serde(flatten)]
    pub(crate) raw: Raw,
    /// What was counted by tracing it, in the first repetition.
    pub(crate) traced: Option<Traced>,
}

impl Sample {
    /// The median over the passes of a quantity for each event.
    fn median(&self, quantity: impl Fn(&Pass) -> Option<u64>) -> Option<f64> {
        let passes: Option<Vec<f64>> = self
            .raw
            .passes
            .iter()
            .map(|pass| Some(quantity(pass)? as f64 / pass.events as f64))
            .collect();
        Some(estimate(passes?)?.median)
    }
}

/// What a contender costs for each event, over its repetitions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cell {
    /// Whose.
    pub(crate) contender: String,
    /// What it asks of the kernel; none for a floor.
    pub(crate) mechanism: Option<String>,
    /// How Hearken is used; none if it is not Hearken's.
    pub(crate) door: Option<Door>,
    /// True for a peer that is an event loop, with timers and callbacks.
    pub(crate) is_loop: bool,
    /// True if it says that a wait costs the same however many are registered.
    pub(crate) flat: bool,
    /// Descriptors registered.
    pub(crate) descriptors: usize,
    /// Descriptors active.
    pub(crate) active: usize,
    /// CPU time, nanoseconds.
    pub(crate) cpu_ns: Estimate,
    /// Instructions in user mode.
    pub(crate) user: Option<f64>,
    /// Instructions in the kernel.
    pub(crate) kernel: Option<f64>,
    /// Instructions in both.
    pub(crate) instructions: Option<Estimate>,
    /// Instructions beyond the floor of its language.
    pub(crate) over_floor: Option<f64>,
    /// System calls, the write and the read among them.
    pub(crate) calls: Option<f64>,
}

/// The cells of `samples`, in the order of `contenders`.
pub(crate) fn cells(contenders: &[Contender], samples: &[Sample], run: &Run) -> Vec<Cell> {
    let mut cells = Vec::new();
    for &descriptors in &run.descriptors {
        for &active in &run.active {
            let mut row: Vec<Cell> = contenders
                .iter()
                .filter_map(|contender| cell(contender, samples, (descriptors, active), run.icount))
                .collect();
            let floor = |name| {
                let floor = row.iter().find(|cell| cell.contender == name)?;
                Some(floor.instructions?.median)
            };
            let (floor_rust, floor_c) = (floor(FLOOR), floor(FLOOR_C));
            for cell in &mut row {
                let kind = contenders.iter().find(|c| c.name == cell.contender).map(|c| &c.kind);
                let floor = if matches!(kind, Some(Kind::C(_))) { floor_c } else { floor_rust };
                cell.over_floor =
                    cell.instructions.zip(floor).map(|(own, floor)| own.median - floor);
            }
            cells.extend(row);
        }
    }
    cells
}

fn cell(
    contender: &Contender,
    samples: &[Sample],
    (descriptors, active): (usize, usize),
    icount: bool,
) -> Option<Cell> {
    let own: Vec<&Sample> = samples
        .iter()
        .filter(|sample| sample.contender == contender.name)
        .filter(|sample| (sample.descriptors, sample.active) == (descriptors, active))
        .collect();
    let over = |quantity: fn(&Pass) -> Option<u64>| {
        estimate(own.iter().filter_map(|sample| sample.median(quantity)))
    };
    let cpu_ns = over(|pass| Some(pass.cpu_ns))?;
    let traced = own.iter().find_map(|sample| sample.traced);
    let user = over(|pass| pass.user).map(|user| user.median).or(traced.and_then(|t| t.user));
    let instructions =
        if icount { Some(cpu_ns) } else { over(|pass| Some(pass.user? + pass.kernel?)) };
    Some(Cell {
        contender: contender.name.clone(),
        mechanism: contender.mechanism.clone(),
        door: match contender.kind {
            Kind::Hearken(door) => Some(door),
            _ => None,
        },
        is_loop: matches!(contender.kind, Kind::C(_)),
        flat: contender.flat,
        descriptors,
        active,
        cpu_ns,
        user,
        kernel: instructions.zip(user).map(|(all, user)| all.median - user),
        instructions,
        over_floor: None,
        calls: traced.map(|traced| traced.calls),
    })
}
