//! Performance criteria of the project, checked against the results of a run.

use serde::{Deserialize, Serialize};

use crate::contender::Api;
use crate::results::Cell;

/// Tolerance for "at or below": two compilations of the same code may differ by this factor.
const EQUAL_TOLERANCE: f64 = 1.002;
/// Tolerance for "constant".
const CONSTANT_TOLERANCE: f64 = 1.03;

/// A criterion checked for one contender and one number of descriptors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Check {
    /// Criterion.
    pub(crate) criterion: Criterion,
    /// Name of the contender.
    pub(crate) contender: String,
    /// Number of registered descriptors.
    pub(crate) descriptors: usize,
    /// Number of active descriptors.
    pub(crate) active: usize,
    /// Instructions per event of the contender.
    pub(crate) instructions: Option<f64>,
    /// Reference: a peer, or the same contender with the fewest descriptors.
    pub(crate) reference: String,
    /// Instructions per event of the reference.
    pub(crate) reference_instructions: Option<f64>,
    /// Whether the check passed; none if instructions could not be counted.
    pub(crate) passed: Option<bool>,
    /// Whether a failure counts. False for APIs that do more than the reference.
    pub(crate) required: bool,
}

/// A performance criterion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Criterion {
    /// At most as many instructions as the cheapest peer with the same kernel interface.
    Cheapest,
    /// Instructions independent of the number of registered descriptors.
    Constant,
}

/// Returns the checks that `cells` permit.
pub(crate) fn checks(cells: &[Cell]) -> Vec<Check> {
    let mut checks = Vec::new();
    for cell in cells.iter().filter(|cell| cell.api.is_some()) {
        let peers = cells.iter().filter(|other| {
            let same_case = (other.descriptors, other.active) == (cell.descriptors, cell.active);
            let same_interface = other.api.is_none() && other.mechanism == cell.mechanism;
            // A queue has timers and wake-ups, so it is compared with peers that have them too.
            same_case && same_interface && (cell.api != Some(Api::Queue) || other.is_loop)
        });
        if let Some(peer) = peers.min_by(|a, b| cost(a).total_cmp(&cost(b))) {
            checks.push(check(Criterion::Cheapest, cell, peer, EQUAL_TOLERANCE));
        }
        let fewest = cells
            .iter()
            .filter(|other| other.contender == cell.contender && other.active == cell.active)
            .min_by_key(|other| other.descriptors);
        if let Some(fewest) = fewest.filter(|fewest| fewest.descriptors < cell.descriptors)
            && cell.flat
        {
            checks.push(check(Criterion::Constant, cell, fewest, CONSTANT_TOLERANCE));
        }
    }
    checks
}

fn cost(cell: &Cell) -> f64 {
    cell.instructions.map_or(cell.cpu_ns.median, |instructions| instructions.median)
}

fn check(criterion: Criterion, cell: &Cell, other: &Cell, tolerance: f64) -> Check {
    let own = cell.instructions.map(|i| i.median);
    let reference = other.instructions.map(|i| i.median);
    Check {
        criterion,
        contender: cell.contender.clone(),
        descriptors: cell.descriptors,
        active: cell.active,
        instructions: own,
        reference: match criterion {
            Criterion::Cheapest => other.contender.clone(),
            Criterion::Constant => format!("N={}", other.descriptors),
        },
        reference_instructions: reference,
        passed: own.zip(reference).map(|(own, reference)| own <= reference * tolerance),
        // The registry also owns the sources and filters stale events, which no peer does.
        required: match cell.api {
            Some(Api::Bare) => true,
            Some(Api::Registry) => criterion == Criterion::Constant,
            _ => false,
        },
    }
}
