//! Advice for a workload: which mechanism and model serve it at the lowest cost on this machine.
//!
//! A first run screens all mechanisms and models with few repetitions. A second compares the best of them and
//! variants of the best with more repetitions, and decides.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::error::LabError;
use crate::experiment::{Experiment, ServerRule, Template, position};
use crate::plan::parse_duration;
use crate::results::{ExperimentReport, Report};
use crate::summary::{CellSummary, summarise};
use crate::units::{count, number, with_margin};

mod observe;

pub use observe::observe;

/// Name of the experiment.
const EXPERIMENT: &str = "advise";
/// Number of servers that the screening keeps.
const FINALISTS: usize = 3;
/// Share of requests that a server must answer.
const MIN_ANSWERED: f64 = 0.99;
/// Utilisation of a processor from which more workers are recommended.
const MAX_UTILISATION: f64 = 0.6;
/// Length of a burst and the pause after it, in milliseconds.
const CYCLE_MS: f64 = 100.0;
/// Maximum ratio of the rate in a burst to the mean.
const MAX_BURSTINESS: f64 = 50.0;

/// A workload, as its file describes it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Workload {
    /// Number of open connections.
    pub connections: u32,
    /// Share of the connections that send requests.
    #[serde(default = "one")]
    pub active_share: f64,
    /// Mean number of requests per second.
    pub rate: f64,
    /// Number of requests after which a client closes its connection [default: persistent].
    #[serde(default)]
    pub requests_per_connection: Option<u32>,
    /// Sizes of the responses.
    #[serde(default = "kibibyte")]
    pub sizes: Vec<Size>,
    /// Ratio of the rate in bursts to the mean rate.
    #[serde(default = "one")]
    pub burstiness: f64,
}

/// A size of responses.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Size {
    /// Length in bytes.
    pub bytes: u64,
    /// Share of the requests, relative to the sum of all shares.
    #[serde(default = "one")]
    pub share: f64,
}

fn one() -> f64 {
    1.0
}

fn kibibyte() -> Vec<Size> {
    vec![Size { bytes: 1024, share: 1.0 }]
}

impl Workload {
    /// Reads a workload.
    ///
    /// # Errors
    /// The file is not readable or not valid.
    pub fn read(path: &Path) -> Result<Workload, LabError> {
        let text = fs::read_to_string(path).map_err(LabError::file("read", path))?;
        Workload::parse(&text, &path.display().to_string())
    }

    /// Parses and checks a workload. `origin` names it in errors.
    ///
    /// # Errors
    /// The text is not valid.
    pub fn parse(text: &str, origin: &str) -> Result<Workload, LabError> {
        let workload: Workload = toml::from_str(text)
            .map_err(|error| LabError::Workload(position::describe(origin, text, &error)))?;
        let wrong = |key: &str, message: &str| {
            LabError::Workload(position::locate(origin, text, key, message))
        };
        let shares = || workload.sizes.iter().map(|size| size.share);
        if workload.connections == 0 {
            return Err(wrong("connections", "at least one connection is required"));
        }
        if !(workload.active_share > 0.0 && workload.active_share <= 1.0) {
            return Err(wrong("active-share", "the share must be above 0 and at most 1"));
        }
        if !(workload.rate > 0.0 && workload.rate <= 1e7) {
            return Err(wrong("rate", "the rate must be above 0 and at most 10,000,000"));
        }
        if workload.requests_per_connection == Some(0) {
            return Err(wrong("requests-per-connection", "at least one request is required"));
        }
        if !shares().all(|share| share > 0.0 && share.is_finite()) || shares().next().is_none() {
            return Err(wrong("sizes", "at least one size with a share above 0 is required"));
        }
        if !(1.0..=MAX_BURSTINESS).contains(&workload.burstiness) {
            return Err(wrong("burstiness", "the ratio must be from 1 to 50"));
        }
        Ok(workload)
    }

    /// Returns the number of connections that send requests.
    fn active(&self) -> u32 {
        let active = (f64::from(self.connections) * self.active_share).round();
        (active as u32).clamp(1, self.connections)
    }

    /// Returns the steps of the rate for bursts, for as many cycles as fit into the duration.
    fn steps(&self, seconds: f64) -> Option<String> {
        let phases = self.burstiness.round() as usize;
        if phases < 2 {
            return None;
        }
        let cycles = (seconds * 1e3 / CYCLE_MS).ceil().max(1.0) as usize;
        let mut rates = vec!["0".to_owned(); phases];
        rates[0] = format!("{:.3}", self.rate * phases as f64);
        let rates = vec![rates.join(","); cycles].join(",");
        Some(format!("{rates}@{:.3}ms", CYCLE_MS / phases as f64))
    }

    /// Describes the workload in a line.
    fn describe(&self) -> String {
        let mut text = format!(
            "{} connections, {} of them active, {} requests per second",
            count(u64::from(self.connections)),
            count(u64::from(self.active())),
            number(self.rate)
        );
        if let Some(requests) = self.requests_per_connection {
            let _ = write!(text, ", {requests} per connection");
        }
        let sizes: Vec<String> = self.sizes.iter().map(|size| count(size.bytes)).collect();
        let _ = write!(text, ", responses of {} bytes", sizes.join(", "));
        if self.steps(1.0).is_some() {
            let _ = write!(text, ", in bursts of {} times the mean rate", number(self.burstiness));
        }
        text
    }

    /// Returns the experiment that screens all mechanisms and models. The list of documents is written to
    /// `directory`.
    ///
    /// # Errors
    /// The list of documents cannot be written, or the duration of a measurement is invalid.
    pub fn experiment(&self, trial: &str, directory: &Path) -> Result<Experiment, LabError> {
        let seconds = parse_duration(trial)
            .ok_or_else(|| LabError::Workload(format!("invalid duration '{trial}'")))?
            .as_secs_f64();
        let mut builtin = crate::experiment::builtin()?.into_iter();
        let mut experiment = builtin
            .find(|experiment| experiment.name == EXPERIMENT)
            .ok_or_else(|| LabError::Workload("the experiment is missing".into()))?;
        let documents = self.sizes.iter().enumerate();
        experiment.documents =
            documents.map(|(index, size)| (format!("d{index}"), size.bytes)).collect();
        let mut urls = "false".to_owned();
        if self.sizes.len() > 1 {
            let whole: f64 = self.sizes.iter().map(|size| size.share).sum();
            let line = |(index, size): (usize, &Size)| {
                let weight = (size.share / whole * 1e6).round().max(1.0);
                format!("{weight} /d{index}\n")
            };
            let lines: String = self.sizes.iter().enumerate().map(line).collect();
            let path = directory.join("urls.txt");
            fs::write(&path, lines).map_err(LabError::file("write", &path))?;
            let path = path.canonicalize().map_err(LabError::file("find", &path))?;
            urls = path.display().to_string();
        }
        let active = self.active();
        let steps = self.steps(seconds);
        let rate = if steps.is_some() { "false".to_owned() } else { self.rate.to_string() };
        let per_connection = self
            .requests_per_connection
            .map_or("false".to_owned(), |requests| requests.to_string());
        for (axis, value) in [
            ("idle", self.connections.saturating_sub(active).to_string()),
            ("active", active.to_string()),
            ("rate", rate),
            ("warm-up", self.rate.to_string()),
            ("steps", steps.unwrap_or("false".into())),
            ("per-connection", per_connection),
            ("urls", urls),
            ("duration", trial.to_owned()),
        ] {
            experiment.set(axis, &[value])?;
        }
        Ok(experiment)
    }
}

/// Returns the experiment that decides between the best servers of a screening and variants of the best.
///
/// # Errors
/// No server answered a request.
pub fn finalists(screening: &Report, experiment: &Experiment) -> Result<Experiment, LabError> {
    let report = own(screening)?;
    let ranked = rank(&report.summary);
    let Some(best) = ranked.first() else {
        return Err(LabError::Workload("no server answered a request of this workload".into()));
    };
    let arguments = |name: &str| {
        let server = report.servers.iter().find(|server| server.name == name);
        server.map(|server| server.arguments.clone()).unwrap_or_default()
    };
    let mut servers: Vec<(String, Vec<String>)> = ranked
        .iter()
        .take(FINALISTS)
        .map(|cell| (cell.server.clone(), arguments(&cell.server)))
        .collect();
    let is_loop = |arguments: &[String]| arguments.first().is_some_and(|first| first == "--events");
    if is_loop(&servers[0].1) {
        for (suffix, more) in
            [("tasks", ["--model", "tasks"]), ("accept-all", ["--experiment", "accept-limit=all"])]
        {
            let arguments = [&servers[0].1[..], &more.map(String::from)].concat();
            servers.push((format!("{}-{suffix}", best.server), arguments));
        }
    }
    let rule = |(name, arguments): (String, Vec<String>)| ServerRule {
        each: None,
        recipe: Some("serve".into()),
        name: Some(name),
        arguments: arguments.into_iter().map(Template::from).collect(),
        only: Default::default(),
    };
    Ok(Experiment {
        reference: best.server.clone(),
        servers: servers.into_iter().map(rule).collect(),
        ..experiment.clone()
    })
}

/// Returns the report of the experiment.
fn own(report: &Report) -> Result<&ExperimentReport, LabError> {
    let missing = || LabError::Workload("the run has no result".into());
    report.experiments.iter().find(|experiment| experiment.name == EXPERIMENT).ok_or_else(missing)
}

/// Returns the mean of a metric.
fn mean(cell: &CellSummary, metric: &str) -> Option<f64> {
    cell.metrics.get(metric).map(|summary| summary.estimate.mean)
}

/// Orders the servers that answer the rate by cost, and then the others by their reply rate.
fn rank(summary: &[CellSummary]) -> Vec<&CellSummary> {
    let answers = |cell: &CellSummary| mean(cell, "answered").unwrap_or(0.0) >= MIN_ANSWERED;
    let mut cells: Vec<&CellSummary> =
        summary.iter().filter(|cell| mean(cell, "cpu_ns").is_some()).collect();
    cells.sort_by(|a, b| {
        let cost = |cell| match answers(cell) {
            true => mean(cell, "cpu_ns").unwrap_or(f64::INFINITY),
            false => -mean(cell, "reply_rate").unwrap_or(0.0),
        };
        answers(b).cmp(&answers(a)).then(cost(a).total_cmp(&cost(b)))
    });
    cells
}

/// Describes the decision: the best server with its cost, the others, and the command line.
///
/// # Errors
/// No server answered a request.
pub fn advice(
    workload: &Workload,
    decision: &Report,
    experiment: &Experiment,
) -> Result<String, LabError> {
    let report = own(decision)?;
    let names: Vec<String> = report.servers.iter().map(|server| server.name.clone()).collect();
    let ranked = rank(&report.summary);
    let Some(best) = ranked.first().map(|cell| cell.server.clone()) else {
        return Err(LabError::Workload("no server answered a request of this workload".into()));
    };
    // Ratios to the best server, which need not be the best of the screening.
    let summary = summarise(experiment, &best, &names, &report.samples);
    let ranked = rank(&summary);
    let mut text = format!("workload: {}\n\n", workload.describe());
    let _ = writeln!(
        text,
        "{:24} {:>16} {:>10} {:>9}  to the best (95 % interval)",
        "server", "CPU µs/request", "p99 ms", "answered"
    );
    for cell in &ranked {
        let cost = cell.metrics.get("cpu_ns").map(|summary| summary.estimate);
        let cost = cost.map_or(String::new(), |cost| {
            with_margin(cost.mean / 1e3, cost.margin.map(|margin| margin / 1e3))
        });
        let latency = mean(cell, "latency_p99_ns").map_or("–".into(), |ns| number(ns / 1e6));
        let answered = mean(cell, "answered").unwrap_or(0.0) * 100.0;
        let ratio = ratio(cell).unwrap_or_default();
        let _ = writeln!(
            text,
            "{:24} {cost:>16} {latency:>10} {answered:>7.1} %  {ratio}",
            cell.server
        );
    }
    let Some(cell) = ranked.first() else { return Ok(text) };
    let arguments = report.servers.iter().find(|server| server.name == best);
    let mut arguments = arguments.map(|server| server.arguments.clone()).unwrap_or_default();
    let utilisation = mean(cell, "cpu_utilisation").unwrap_or(0.0);
    if utilisation > MAX_UTILISATION && !arguments.iter().any(|argument| argument == "--workers") {
        let workers = (utilisation / MAX_UTILISATION).ceil();
        arguments.extend(["--workers".to_owned(), workers.to_string()]);
    }
    let _ = writeln!(text, "\nLowest cost: {best}, {} of a processor.", number(utilisation));
    if mean(cell, "answered").unwrap_or(0.0) < MIN_ANSWERED {
        text += "No server answers this rate with one worker. It answers the most.\n";
    }
    if let Some(next) = ranked.get(1) {
        let differs = next.metrics.get("cpu_ns").and_then(|m| m.to_reference);
        let remark = match differs.is_some_and(|ratio| ratio.differs()) {
            true => "costs",
            false => "does not differ significantly: it costs",
        };
        let _ = writeln!(
            text,
            "Next best: {} {remark} {}.",
            next.server,
            ratio(next).unwrap_or_default()
        );
    }
    let _ = writeln!(text, "\nhearken serve DIRECTORY --listen ADDR:PORT {}", arguments.join(" "));
    Ok(text)
}

/// Formats the ratio of the costs of a server and the best.
fn ratio(cell: &CellSummary) -> Option<String> {
    let ratio = cell.metrics.get("cpu_ns")?.to_reference?;
    let interval = ratio.low.zip(ratio.high);
    let interval = interval
        .map_or(String::new(), |(low, high)| format!(" ({} to {})", number(low), number(high)));
    Some(format!("{} times as much{interval}", number(ratio.ratio)))
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn workloads_are_checked() {
        let parse = |text: &str| Workload::parse(text, "mine.toml");
        let workload = parse("connections = 200\nrate = 50").unwrap();
        assert_eq!((workload.active(), workload.burstiness), (200, 1.0));
        for (text, part) in [
            ("connections = 0\nrate = 1", "at least one connection"),
            ("connections = 1\nrate = 0", "rate must be above 0"),
            ("connections = 1\nrate = 1\nactive-share = 2", "line 3"),
            ("connections = 1\nrate = 1\nsizes = []", "at least one size"),
            ("connections = 1\nrate = 1\nburstiness = 0.5", "from 1 to 50"),
            ("connections = 1\nrat = 1", "rat"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn experiment_has_the_values_of_the_workload() {
        let text = "connections = 1000\nactive-share = 0.02\nrate = 400\nburstiness = 4\n\
                    requests-per-connection = 3\nsizes = [{ bytes = 10 }, { bytes = 99, share = 3 }]";
        let directory = TempDir::new().unwrap();
        let workload = Workload::parse(text, "").unwrap();
        let experiment = workload.experiment("200ms", directory.path()).unwrap();
        let value = |axis: &str| experiment.axis(axis).unwrap().values[0].name.clone();
        assert_eq!((value("idle"), value("active")), ("980".into(), "20".into()));
        assert_eq!(value("steps"), "1600.000,0,0,0,1600.000,0,0,0@25.000ms");
        assert_eq!((value("rate"), value("per-connection")), ("false".into(), "3".into()));
        let urls = fs::read_to_string(value("urls")).unwrap();
        assert_eq!(urls, "250000 /d0\n750000 /d1\n");
        assert_eq!(experiment.documents["d1"], 99);
        assert!(workload.experiment("1x", directory.path()).is_err());
    }
}
