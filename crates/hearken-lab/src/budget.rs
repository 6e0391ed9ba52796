//! Selection of the rows of a run that fit into a time budget.
//!
//! A row is the smallest part of a run that is useful by itself: a claim with all cells that it needs, or a
//! server with all values. Rows are left out as a whole.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use crate::claims::Claim;
use crate::plan::{Cell, PlannedExperiment};

/// A cell of an experiment.
pub(crate) type Key = (String, Cell);

/// A part of a run that is kept or left out as a whole.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    /// Name of a claim, or experiment and server.
    pub(crate) label: String,
    /// Cells that it needs.
    pub(crate) cells: Vec<Key>,
    /// Estimated additional time after the rows before it.
    pub(crate) cost: Duration,
}

/// A cell, its session and its costs in all repetitions.
struct Item {
    key: Key,
    experiment: usize,
    session: usize,
    cost: Duration,
}

/// Estimated costs of all cells.
struct Costs {
    items: Vec<Item>,
    /// Costs of sessions in all repetitions.
    sessions: Vec<Duration>,
    /// Costs of experiments before their first measurement.
    experiments: Vec<Duration>,
}

/// Cells, sessions and experiments that are paid for.
#[derive(Default)]
struct Paid {
    items: HashSet<usize>,
    sessions: HashSet<usize>,
    experiments: HashSet<usize>,
}

impl Costs {
    fn new(experiments: &[PlannedExperiment]) -> Costs {
        let mut costs = Costs { items: Vec::new(), sessions: Vec::new(), experiments: Vec::new() };
        for (experiment, planned) in experiments.iter().enumerate() {
            let repetitions = planned.experiment.repetitions;
            let mut sessions: HashMap<(String, Vec<String>), usize> = HashMap::new();
            for cell in planned.cells() {
                let Some(key) = planned.session_key(&cell) else { continue };
                let session = *sessions.entry((cell.server.clone(), key)).or_insert_with(|| {
                    costs.sessions.push(planned.session_duration(&cell) * repetitions);
                    costs.sessions.len() - 1
                });
                costs.items.push(Item {
                    experiment,
                    session,
                    cost: planned.expected_duration(&cell) * repetitions,
                    key: (planned.experiment.name.clone(), cell),
                });
            }
            costs.experiments.push(planned.preparation_duration());
        }
        costs
    }

    /// Returns the cost of items beyond what is paid.
    fn marginal(&self, wanted: &BTreeSet<usize>, paid: &Paid) -> Duration {
        let new =
            || wanted.iter().filter(|item| !paid.items.contains(item)).map(|&i| &self.items[i]);
        let sessions: HashSet<usize> = new().map(|item| item.session).collect();
        let experiments: HashSet<usize> = new().map(|item| item.experiment).collect();
        let sessions = sessions.difference(&paid.sessions).map(|&i| self.sessions[i]);
        let experiments = experiments.difference(&paid.experiments).map(|&i| self.experiments[i]);
        new().map(|item| item.cost).sum::<Duration>()
            + sessions.sum::<Duration>()
            + experiments.sum::<Duration>()
    }

    fn pay(&self, wanted: &BTreeSet<usize>, paid: &mut Paid) {
        for &index in wanted {
            paid.items.insert(index);
            paid.sessions.insert(self.items[index].session);
            paid.experiments.insert(self.items[index].experiment);
        }
    }
}

/// Returns the rows of a run by descending priority.
///
/// Of claims, the one that costs least after those before it comes next, so that a budget settles as many as
/// possible. Otherwise the reference of each experiment comes first, and the other servers follow in their order.
pub(crate) fn rows(experiments: &[PlannedExperiment], claims: &[Claim]) -> Vec<Row> {
    let costs = Costs::new(experiments);
    let mut wanted: Vec<(String, BTreeSet<usize>)> = match claims.is_empty() {
        false => {
            let needs = |claim: &Claim| {
                let needed = costs.items.iter().enumerate().filter(|(_, item)| {
                    claim.needs(&experiments[item.experiment].experiment, &item.key.1)
                });
                (claim.id.clone(), needed.map(|(index, _)| index).collect())
            };
            claims.iter().map(needs).collect()
        }
        true => by_server(experiments, &costs),
    };
    wanted.retain(|(_, items)| !items.is_empty());
    let (mut rows, mut paid) = (Vec::new(), Paid::default());
    while !wanted.is_empty() {
        let cost = |index: &usize| costs.marginal(&wanted[*index].1, &paid);
        let next = match claims.is_empty() {
            true => 0,
            false => (0..wanted.len()).min_by_key(cost).unwrap_or(0),
        };
        let cost = cost(&next);
        let (label, items) = wanted.remove(next);
        costs.pay(&items, &mut paid);
        let cells = items.iter().map(|&index| costs.items[index].key.clone()).collect();
        rows.push(Row { label, cells, cost });
    }
    rows
}

fn by_server(experiments: &[PlannedExperiment], costs: &Costs) -> Vec<(String, BTreeSet<usize>)> {
    let mut rows: Vec<(bool, String, BTreeSet<usize>)> = Vec::new();
    for (index, planned) in experiments.iter().enumerate() {
        for server in &planned.servers {
            let is_own = |item: &Item| item.experiment == index && item.key.1.server == server.name;
            let items = costs.items.iter().enumerate().filter(|(_, item)| is_own(item));
            let is_other = server.name != planned.experiment.reference;
            let label = format!("{}: {}", planned.experiment.name, server.name);
            rows.push((is_other, label, items.map(|(index, _)| index).collect()));
        }
    }
    rows.sort_by_key(|(is_other, ..)| *is_other);
    rows.into_iter().map(|(_, label, items)| (label, items)).collect()
}

/// Splits rows into those that fit into a budget and those that do not. A row that does not fit does not exclude
/// cheaper ones after it.
pub(crate) fn fit(rows: Vec<Row>, budget: Duration) -> (Vec<Row>, Vec<Row>) {
    let mut spent = Duration::ZERO;
    rows.into_iter().partition(|row| {
        let fits = spent + row.cost <= budget;
        spent += if fits { row.cost } else { Duration::ZERO };
        fits
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment;
    use crate::plan::Available;

    fn planned() -> Vec<PlannedExperiment> {
        let mechanisms = ["select", "poll", "epoll-edge"].map(String::from).to_vec();
        let available = Available { recipes: crate::recipe::builtin().unwrap(), mechanisms };
        let builtin = experiment::builtin().unwrap();
        let chosen = builtin.into_iter().filter(|e| ["quick", "overhead"].contains(&&*e.name));
        chosen.map(|e| PlannedExperiment::new(e, &available).unwrap()).collect()
    }

    #[test]
    fn references_come_first_and_costs_add_up() {
        let rows = rows(&planned(), &[]);
        assert_eq!(rows[0].label, "quick: epoll-edge");
        assert_eq!(rows[1].label, "overhead: epoll-edge");
        let all: Duration = rows.iter().map(|row| row.cost).sum();
        let (kept, left) = fit(rows.clone(), all);
        assert!(left.is_empty() && kept == rows);
        let (kept, left) = fit(rows.clone(), all / 2);
        assert!(kept.iter().map(|row| row.cost).sum::<Duration>() <= all / 2);
        assert!(!kept.is_empty() && kept.len() + left.len() == rows.len());
        assert!(fit(rows, Duration::ZERO).0.is_empty());
    }

    #[test]
    fn cheapest_claims_come_first() {
        let mut claims: Vec<Claim> = crate::claims::all().unwrap();
        claims.retain(|claim| claim.experiment.as_deref() == Some("overhead"));
        let rows = rows(&planned(), &claims);
        assert_eq!(rows.len(), claims.len());
        let cheapest = rows.iter().map(|row| row.cost).find(|cost| !cost.is_zero()).unwrap();
        let single = |claim: &Claim| super::rows(&planned(), std::slice::from_ref(claim));
        let costs = claims.iter().filter_map(|claim| Some(single(claim).first()?.cost));
        assert_eq!(costs.min().unwrap(), cheapest);
    }
}
