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

/// Splits a run into rows that fit into a time budget, by descending priority, and others.
///
/// Of claims, the one that costs least after those before it comes next, so that a budget settles as many as
/// possible. Otherwise the reference of each experiment comes first, and the other servers follow in their order.
pub(crate) fn fit(
    experiments: &[PlannedExperiment],
    claims: &[Claim],
    budget: Duration,
) -> (Vec<Row>, Vec<Row>) {
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
    let (mut kept, mut left, mut paid) = (Vec::new(), Vec::new(), Paid::default());
    let mut remaining = budget;
    while !wanted.is_empty() {
        let cost = |index: &usize| costs.marginal(&wanted[*index].1, &paid);
        let next = match claims.is_empty() {
            true => 0,
            false => (0..wanted.len()).min_by_key(cost).unwrap_or(0),
        };
        let cost = cost(&next);
        let (label, items) = wanted.remove(next);
        let cells = items.iter().map(|&index| costs.items[index].key.clone()).collect();
        let row = Row { label, cells, cost };
        match remaining.checked_sub(cost) {
            Some(rest) => {
                remaining = rest;
                costs.pay(&items, &mut paid);
                kept.push(row);
            }
            None => left.push(row),
        }
    }
    (kept, left)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment;
    use crate::plan::Available;

    fn planned() -> Vec<PlannedExperiment> {
        let mut all = all_planned();
        all.retain(|planned| ["quick", "overhead"].contains(&&*planned.experiment.name));
        all
    }

    fn all_planned() -> Vec<PlannedExperiment> {
        let mechanisms = ["select", "poll", "epoll-edge"].map(String::from).to_vec();
        let available = Available { recipes: crate::recipe::builtin().unwrap(), mechanisms };
        let builtin = experiment::builtin().unwrap().into_iter();
        builtin.map(|e| PlannedExperiment::new(e, &available).unwrap()).collect()
    }

    #[test]
    fn claims_fit_their_time_budgets() {
        for (paper, minutes, least) in [("", 120, 58), ("GB04", 15, 15)] {
            let mut claims: Vec<Claim> = crate::claims::all().unwrap();
            claims.retain(|claim| claim.id.starts_with(paper));
            let is_needed = |planned: &PlannedExperiment| {
                claims.iter().any(|c| c.experiment.as_ref() == Some(&planned.experiment.name))
            };
            let mut experiments = all_planned();
            experiments.retain(is_needed);
            experiments.iter_mut().for_each(PlannedExperiment::add_noise_floor);
            assert!(experiments.iter().all(|planned| planned.experiment.repetitions >= 5));
            let (kept, left) = fit(&experiments, &claims, Duration::from_secs(60 * minutes));
            assert!(kept.len() >= least, "{paper}: {} kept, {left:?} left out", kept.len());
        }
    }

    #[test]
    fn references_come_first_and_costs_add_up() {
        let (rows, _) = fit(&planned(), &[], Duration::MAX);
        assert_eq!(rows[0].label, "quick: epoll-edge");
        assert_eq!(rows[1].label, "overhead: epoll-edge");
        let sum = |rows: &[Row]| rows.iter().map(|row| row.cost).sum::<Duration>();
        let all = sum(&rows);
        let (kept, left) = fit(&planned(), &[], all);
        assert!(left.is_empty() && kept == rows);
        let (kept, left) = fit(&planned(), &[], all / 2);
        assert!(sum(&kept) <= all / 2);
        assert!(!kept.is_empty() && kept.len() + left.len() == rows.len());
        assert!(fit(&planned(), &[], Duration::ZERO).0.is_empty());
    }

    #[test]
    fn cheapest_claims_come_first() {
        let mut claims: Vec<Claim> = crate::claims::all().unwrap();
        claims.retain(|claim| claim.experiment.as_deref() == Some("overhead"));
        let (rows, _) = fit(&planned(), &claims, Duration::MAX);
        assert_eq!(rows.len(), claims.len());
        let single = |claim: &Claim| {
            let (rows, _) = fit(&planned(), std::slice::from_ref(claim), Duration::MAX);
            rows.first().map(|row| row.cost)
        };
        assert_eq!(claims.iter().filter_map(single).min().unwrap(), rows[0].cost);
    }

    #[test]
    fn claims_that_do_not_fit_pay_for_no_others() {
        let claims = crate::claims::all().unwrap();
        let (all, _) = fit(&planned(), &claims, Duration::MAX);
        let budget = all[0].cost + all[1].cost;
        let (kept, left) = fit(&planned(), &claims, budget);
        let cells: HashSet<&Key> = kept.iter().flat_map(|row| &row.cells).collect();
        for row in &left {
            assert!(row.cells.iter().any(|cell| !cells.contains(cell)), "{}", row.label);
            assert!(!row.cost.is_zero(), "{}", row.label);
        }
    }
}
