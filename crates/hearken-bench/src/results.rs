//! Results as data: the content of results.json and the input of the table.

use std::fmt;

use hearken_lab::Machine;
use hearken_lab::stats::{Estimate, estimate};
use serde::{Deserialize, Serialize};

use crate::args::Run;
use crate::checks::Check;
use crate::contender::{Api, BASELINE, BASELINE_C, Contender, Kind, Unavailable};
use crate::measure::{Measurement, Pass};
use crate::trace::TraceCounts;

/// Name and version of the format.
pub(crate) const SCHEMA: &str = "hearken-bench-dispatch/2";

/// The results of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report {
    /// Format name and version, [`SCHEMA`].
    pub(crate) schema: String,
    /// Command line of the run.
    pub(crate) command_line: Vec<String>,
    /// Start time of the run, RFC 3339.
    pub(crate) date: String,
    /// Duration of the run in seconds.
    pub(crate) elapsed_s: f64,
    /// Settings of the run.
    pub(crate) settings: Run,
    /// Machine on which the run took place.
    pub(crate) machine: Machine,
    /// Description of how instructions were counted.
    pub(crate) method: String,
    /// Versions of the contenders.
    pub(crate) versions: Vec<String>,
    /// Contenders that are not available.
    pub(crate) unavailable: Vec<Unavailable>,
    /// Cases that a contender does not support.
    pub(crate) unsupported: Vec<Failure>,
    /// Measurements that failed.
    pub(crate) failures: Vec<Failure>,
    /// Performance criteria and their results.
    pub(crate) checks: Vec<Check>,
    /// Results for each contender and number of registered and active descriptors.
    pub(crate) cells: Vec<Cell>,
    /// All measurements in the order in which they were made.
    pub(crate) samples: Vec<Sample>,
}

/// A measurement without a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failure {
    /// Name of the contender.
    pub(crate) contender: String,
    /// Number of registered descriptors.
    pub(crate) descriptors: usize,
    /// Number of active descriptors.
    pub(crate) active: usize,
    /// Error message.
    pub(crate) reason: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { contender, descriptors, active, reason } = self;
        write!(f, "{contender}, N={descriptors} A={active}: {reason}")
    }
}

/// The result of one measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// Name of the contender.
    pub(crate) contender: String,
    /// Number of registered descriptors.
    pub(crate) descriptors: usize,
    /// Number of active descriptors.
    pub(crate) active: usize,
    /// Repetition, from 0.
    pub(crate) repetition: u32,
    /// Result that the contender printed.
    #[serde(flatten)]
    pub(crate) measurement: Measurement,
    /// Counts obtained by tracing, in the first repetition.
    pub(crate) trace: Option<TraceCounts>,
}

impl Sample {
    /// Returns the median over the passes of a quantity per event.
    fn median(&self, quantity: impl Fn(&Pass) -> Option<u64>) -> Option<f64> {
        let passes: Option<Vec<f64>> = self
            .measurement
            .passes
            .iter()
            .map(|pass| Some(quantity(pass)? as f64 / pass.events as f64))
            .collect();
        Some(estimate(passes?)?.median)
    }
}

/// The cost per event of one contender over its repetitions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cell {
    /// Name of the contender.
    pub(crate) contender: String,
    /// Kernel interface; none for a baseline.
    pub(crate) mechanism: Option<String>,
    /// Hearken API; none for other libraries.
    pub(crate) api: Option<Api>,
    /// Whether the contender is an event loop with timers and callbacks.
    pub(crate) is_loop: bool,
    /// Whether the cost of a wait is documented to be independent of the number of registered descriptors.
    pub(crate) flat: bool,
    /// Number of registered descriptors.
    pub(crate) descriptors: usize,
    /// Number of active descriptors.
    pub(crate) active: usize,
    /// CPU time in nanoseconds.
    pub(crate) cpu_ns: Estimate,
    /// User-mode instructions.
    pub(crate) user: Option<f64>,
    /// Kernel instructions.
    pub(crate) kernel: Option<f64>,
    /// User-mode and kernel instructions.
    pub(crate) instructions: Option<Estimate>,
    /// Instructions above the baseline in the same language.
    pub(crate) above_baseline: Option<f64>,
    /// System calls, including the write and the read.
    pub(crate) system_calls: Option<f64>,
}

/// Returns the cells of `samples`, in the order of `contenders`.
pub(crate) fn cells(contenders: &[Contender], samples: &[Sample], run: &Run) -> Vec<Cell> {
    let mut cells = Vec::new();
    for &descriptors in &run.descriptors {
        for &active in &run.active {
            let mut row: Vec<Cell> = contenders
                .iter()
                .filter_map(|contender| cell(contender, samples, (descriptors, active), run.icount))
                .collect();
            let baseline = |name| {
                let baseline = row.iter().find(|cell| cell.contender == name)?;
                Some(baseline.instructions?.median)
            };
            let (baseline_rust, baseline_c) = (baseline(BASELINE), baseline(BASELINE_C));
            for cell in &mut row {
                let kind = contenders.iter().find(|c| c.name == cell.contender).map(|c| &c.kind);
                let baseline =
                    if matches!(kind, Some(Kind::C(_))) { baseline_c } else { baseline_rust };
                cell.above_baseline =
                    cell.instructions.zip(baseline).map(|(own, baseline)| own.median - baseline);
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
    let estimate_of = |quantity: fn(&Pass) -> Option<u64>| {
        estimate(own.iter().filter_map(|sample| sample.median(quantity)))
    };
    let cpu_ns = estimate_of(|pass| Some(pass.cpu_ns))?;
    let trace = own.iter().find_map(|sample| sample.trace);
    let user = estimate_of(|pass| pass.user).map(|user| user.median).or(trace.and_then(|t| t.user));
    let instructions =
        if icount { Some(cpu_ns) } else { estimate_of(|pass| Some(pass.user? + pass.kernel?)) };
    Some(Cell {
        contender: contender.name.clone(),
        mechanism: contender.mechanism.clone(),
        api: match contender.kind {
            Kind::Hearken(api) => Some(api),
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
        above_baseline: None,
        system_calls: trace.map(|trace| trace.system_calls),
    })
}
