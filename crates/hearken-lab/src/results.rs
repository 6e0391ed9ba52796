//! Data model of a run: the content of `results.json`, which `docs/lab-result.md` documents.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::counters::UnavailableCounter;
use crate::experiment::Experiment;
use crate::judge::Judgement;
use crate::machine::{Machine, Placement};
use crate::plan::{AGAIN, Trial};
use crate::summary::CellSummary;
use crate::warning::Warning;

/// Format name and version of `results.json`.
pub const SCHEMA: &str = "hearken-lab/1";

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Format name and version: [`SCHEMA`].
    pub schema: String,
    /// Whether every planned measurement was completed.
    pub complete: bool,
    /// Version of Hearken.
    pub version: String,
    /// Command line.
    pub command_line: Vec<String>,
    /// Start of the run, RFC 3339.
    pub date: String,
    /// Duration of the run in seconds.
    pub elapsed_s: f64,
    /// Seed of the order of measurements and of the arrivals.
    pub seed: u64,
    /// Hardware and kernel.
    pub machine: Machine,
    /// Description of the emulator, if the clock of this machine counts instructions instead of time.
    pub emulator: Option<String>,
    /// Assignment of processors.
    pub placement: Placement,
    /// Counters that were not available.
    pub unavailable_counters: Vec<UnavailableCounter>,
    /// Problems that affect the results.
    pub warnings: Vec<Warning>,
    /// Description of the statistical method.
    pub method: String,
    /// Experiments in the order of the command line.
    pub experiments: Vec<ExperimentReport>,
    /// Judgements of the claims that the run was to settle.
    pub judgements: Vec<Judgement>,
}

/// The result of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExperimentReport {
    /// Name.
    pub name: String,
    /// Text of the experiment file.
    pub definition: String,
    /// Server that the others are compared with.
    pub reference: String,
    /// Number of repetitions.
    pub repetitions: u32,
    /// Axes with the values in effect, in the order of the file.
    pub axes: Vec<AxisReport>,
    /// Servers.
    pub servers: Vec<Participant>,
    /// Server behind the proxies.
    pub origin: Option<Participant>,
    /// Saturation of the reference server in arrivals per second, if loads are relative to it.
    pub saturation: Option<f64>,
    /// Description of the emulator, if this experiment was measured in an emulated machine and others were not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emulator: Option<String>,
    /// Number of planned measurements.
    pub planned: usize,
    /// Statistics of each cell that has a sample.
    pub summary: Vec<CellSummary>,
    /// Measurements in the order of execution.
    pub samples: Vec<Sample>,
}

impl Report {
    /// Returns the description of the emulator in which an experiment was measured.
    pub(crate) fn emulator_of<'a>(&'a self, experiment: &'a ExperimentReport) -> Option<&'a str> {
        experiment.emulator.as_deref().or(self.emulator.as_deref())
    }

    /// Adds the experiments of a run in an emulated machine.
    pub fn add_emulated(&mut self, emulated: Report) {
        let emulator = emulated.emulator;
        self.complete &= emulated.complete;
        self.elapsed_s += emulated.elapsed_s;
        self.warnings.extend(emulated.warnings);
        self.experiments.extend(
            emulated
                .experiments
                .into_iter()
                .map(|experiment| ExperimentReport { emulator: emulator.clone(), ..experiment }),
        );
    }
}

impl ExperimentReport {
    /// Returns the experiment; none if the definition is not valid in this version.
    pub fn experiment(&self) -> Option<Experiment> {
        Experiment::parse(&self.definition, &self.name).ok()
    }

    /// Returns the axis of the given name.
    pub(crate) fn axis(&self, name: &str) -> Option<&AxisReport> {
        self.axes.iter().find(|axis| axis.name == name)
    }

    /// Returns the difference of a metric between two instances of the reference, as a logarithm; 0 if there is only
    /// one.
    pub(crate) fn noise_floor(&self, metric: &str) -> f64 {
        let again = format!("{}{AGAIN}", self.reference);
        let mut logs = Vec::new();
        for sample in self.samples.iter().filter(|sample| sample.server == again) {
            let is_twin = |other: &&Sample| {
                other.server == self.reference
                    && other.repetition == sample.repetition
                    && other.values == sample.values
            };
            let twin = self.samples.iter().find(is_twin);
            let values = twin
                .and_then(|twin| Some((sample.metrics.get(metric)?, twin.metrics.get(metric)?)));
            logs.extend(values.map(|(a, b)| (a / b).ln()).filter(|log| log.is_finite()));
        }
        match logs.len() {
            0 => 0.0,
            n => (logs.iter().sum::<f64>() / n as f64).abs(),
        }
    }

    /// Returns the axes with more than one value.
    pub(crate) fn varied_axes(&self) -> impl Iterator<Item = &AxisReport> {
        self.axes.iter().filter(|axis| axis.values.len() > 1)
    }
}

/// An axis with the values in effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AxisReport {
    /// Name.
    pub name: String,
    /// Title in tables and figures.
    pub title: String,
    /// Values.
    pub values: Vec<String>,
}

/// A server that takes part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Participant {
    /// Name in the experiment.
    pub name: String,
    /// Description from the recipe.
    pub description: String,
    /// Version that the server prints.
    pub version: String,
    /// Text of the recipe.
    pub recipe: String,
    /// Arguments that are added to the command of the recipe.
    pub arguments: Vec<String>,
}

/// A measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Name of the experiment.
    pub experiment: String,
    /// Name of the server.
    pub server: String,
    /// Values by axis.
    pub values: BTreeMap<String, String>,
    /// Repetition, from 0.
    pub repetition: u32,
    /// Position in the random order, from 0.
    pub order: usize,
    /// Metrics by name. Those that are not available are missing.
    pub metrics: BTreeMap<String, f64>,
    /// Circumstances that affect the metrics.
    pub checks: Checks,
}

impl Sample {
    /// Combines a trial and its measurement.
    pub fn new(trial: &Trial, measured: crate::executor::Measured) -> Sample {
        Sample {
            experiment: trial.experiment.clone(),
            server: trial.cell.server.clone(),
            values: trial.cell.values.clone(),
            repetition: trial.repetition,
            order: trial.order,
            metrics: measured.metrics,
            checks: measured.checks,
        }
    }
}

/// Circumstances of a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Checks {
    /// Whether the server did not keep up or used more than 95 % of its processor.
    pub saturated: bool,
    /// Failed requests of all open loads.
    pub errors: u64,
    /// Persistent connections of drivers in lockstep that the server closed.
    pub reconnects: u64,
    /// Maximum share of time in which the server waited for its processor because of other processes.
    pub wait_ratio: f64,
    /// Maximum of the 99th percentile of the lateness of the generator, in nanoseconds.
    pub lateness_p99_ns: f64,
}
