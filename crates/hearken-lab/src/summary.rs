//! Summary of the samples: statistics of each cell.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::experiment::Experiment;
use crate::results::Sample;
use crate::stats::{Estimate, Ratio, estimate, paired_ratio};

/// Statistics of a cell over all repetitions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CellSummary {
    /// Name of the server.
    pub server: String,
    /// Values by axis.
    pub values: BTreeMap<String, String>,
    /// Number of samples.
    pub samples: usize,
    /// Number of samples in which the server was saturated.
    pub saturated: usize,
    /// Failed requests in all samples.
    pub errors: u64,
    /// Connections that the server closed unexpectedly, in all samples.
    pub reconnects: u64,
    /// Statistics by metric.
    pub metrics: BTreeMap<String, MetricSummary>,
}

/// Statistics of a metric in a cell.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MetricSummary {
    /// Mean with its confidence interval.
    pub estimate: Estimate,
    /// Ratio to the reference server with the same values; none for itself.
    pub to_reference: Option<Ratio>,
    /// Ratio to the first value of the baseline axis; none for itself.
    pub to_baseline: Option<Ratio>,
}

/// The samples of a cell.
type Group<'a> = Vec<&'a Sample>;

/// Summarises the samples of an experiment by server, in the order of `servers`, and by values in the
/// order of the axes.
pub(crate) fn summarise(
    experiment: &Experiment,
    reference: &str,
    servers: &[String],
    samples: &[Sample],
) -> Vec<CellSummary> {
    let mut groups: BTreeMap<(&str, &BTreeMap<String, String>), Group<'_>> = BTreeMap::new();
    for sample in samples {
        groups.entry((&sample.server, &sample.values)).or_default().push(sample);
    }
    let mut cells: Vec<CellSummary> = groups
        .iter()
        .map(|(&(server, values), group)| {
            let is_reference = server == reference;
            let mut metrics = BTreeMap::new();
            for metric in &experiment.metrics {
                let value = |sample: &Sample| sample.metrics.get(&metric.name).copied();
                let Some(estimate) = estimate(group.iter().filter_map(|s| value(s))) else {
                    continue;
                };
                let first = metric.baseline.as_ref().and_then(|name| {
                    let first = &experiment.axis(name)?.values.first()?.name;
                    let mut at = values.clone();
                    at.insert(name.clone(), first.clone());
                    Some(at)
                });
                // No cell is compared with itself.
                let first = first.filter(|at| at != values);
                let to = |server: &str, values: &BTreeMap<String, String>| {
                    paired_ratio(&pairs(group, groups.get(&(server, values))?, &value))
                };
                let summary = MetricSummary {
                    estimate,
                    to_reference: (!is_reference).then(|| to(reference, values)).flatten(),
                    to_baseline: first.and_then(|at| to(server, &at)),
                };
                metrics.insert(metric.name.clone(), summary);
            }
            CellSummary {
                server: server.to_owned(),
                values: values.clone(),
                samples: group.len(),
                saturated: group.iter().filter(|sample| sample.checks.saturated).count(),
                errors: group.iter().map(|sample| sample.checks.errors).sum(),
                reconnects: group.iter().map(|sample| sample.checks.reconnects).sum(),
                metrics,
            }
        })
        .collect();
    let rank = |cell: &CellSummary| {
        let server = servers.iter().position(|name| *name == cell.server);
        let value = |axis: &crate::experiment::Axis| {
            let own = cell.values.get(&axis.name)?;
            axis.values.iter().position(|value| value.name == *own)
        };
        (server, experiment.axes.iter().map(value).collect::<Vec<_>>())
    };
    cells.sort_by_cached_key(rank);
    cells
}

/// Returns the values of both groups for the repetitions that have both.
pub(crate) fn pairs(
    group: &[&Sample],
    other: &[&Sample],
    value: &dyn Fn(&Sample) -> Option<f64>,
) -> Vec<(f64, f64)> {
    let partner = |sample: &Sample| {
        let same = other.iter().find(|other| other.repetition == sample.repetition)?;
        Some((value(sample)?, value(same)?))
    };
    group.iter().filter_map(|sample| partner(sample)).collect()
}
