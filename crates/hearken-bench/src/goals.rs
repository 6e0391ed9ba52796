//! What the project holds itself to, and whether a run shows it.

use serde::{Deserialize, Serialize};

use crate::contender::Door;
use crate::results::Cell;

/// "At or below" allows for what two compilations of the same thing differ by.
const SAME: f64 = 1.002;
/// "Flat" is within this.
const FLAT: f64 = 1.03;

/// A goal at one place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Goal {
    /// What is to hold.
    pub(crate) what: What,
    /// Whose goal.
    pub(crate) contender: String,
    /// Descriptors registered.
    pub(crate) descriptors: usize,
    /// Descriptors active.
    pub(crate) active: usize,
    /// Its instructions for each event.
    pub(crate) ours: Option<f64>,
    /// What it is compared with: a peer, or itself with the fewest descriptors.
    pub(crate) against: String,
    /// The same of that.
    pub(crate) theirs: Option<f64>,
    /// The outcome; none where instructions could not be counted.
    pub(crate) reached: Option<bool>,
    /// False for doors that do more than those they are compared with: shown, not judged.
    pub(crate) binding: bool,
}

/// What is to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum What {
    /// At or below the cheapest peer that asks the same of the kernel.
    Cheapest,
    /// The same however many are registered.
    Flat,
}

/// The goals that `cells` tell of.
pub(crate) fn goals(cells: &[Cell]) -> Vec<Goal> {
    let mut goals = Vec::new();
    for cell in cells.iter().filter(|cell| cell.door.is_some()) {
        let peers = cells.iter().filter(|other| {
            let here = (other.descriptors, other.active) == (cell.descriptors, cell.active);
            let same = other.door.is_none() && other.mechanism == cell.mechanism;
            // A queue has timers and wake-ups: it is compared with those that have too.
            here && same && (cell.door != Some(Door::Queue) || other.is_loop)
        });
        if let Some(peer) = peers.min_by(|a, b| figure(a).total_cmp(&figure(b))) {
            goals.push(goal(What::Cheapest, cell, peer, SAME));
        }
        let fewest = cells
            .iter()
            .filter(|other| other.contender == cell.contender && other.active == cell.active)
            .min_by_key(|other| other.descriptors);
        if let Some(fewest) = fewest.filter(|fewest| fewest.descriptors < cell.descriptors)
            && cell.flat
        {
            goals.push(goal(What::Flat, cell, fewest, FLAT));
        }
    }
    goals
}

fn figure(cell: &Cell) -> f64 {
    cell.instructions.map_or(cell.cpu_ns.median, |instructions| instructions.median)
}

fn goal(what: What, cell: &Cell, other: &Cell, most: f64) -> Goal {
    let ours = cell.instructions.map(|i| i.median);
    let theirs = other.instructions.map(|i| i.median);
    Goal {
        what,
        contender: cell.contender.clone(),
        descriptors: cell.descriptors,
        active: cell.active,
        ours,
        against: match what {
            What::Cheapest => other.contender.clone(),
            What::Flat => format!("N={}", other.descriptors),
        },
        theirs,
        reached: ours.zip(theirs).map(|(ours, theirs)| ours <= theirs * most),
        // The registry also owns the sources and drops what is stale, which no peer does.
        binding: match cell.door {
            Some(Door::Bare) => true,
            Some(Door::Registry) => what == What::Flat,
            _ => false,
        },
    }
}
