//! Experiments: TOML files that describe servers, load, axes, metrics and figures.
//!
//! `docs/lab.md` documents the format.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;

use crate::error::LabError;
use crate::recipe::Kind;

mod builtin;
mod check;
pub(crate) mod position;
mod template;

pub use builtin::builtin;
pub(crate) use check::parse_share;
pub use template::{Template, Variables};

/// An experiment as its file describes it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Experiment {
    /// Name on command lines and in results.
    pub name: String,
    /// Title of its part of the report.
    pub title: String,
    /// Description in a few sentences.
    #[serde(default)]
    pub description: String,
    /// Sentences about the method, for the report.
    #[serde(default)]
    pub method: Vec<String>,
    /// Processors of server and load generator.
    #[serde(default)]
    pub placement: PlacementRule,
    /// Whether each measurement starts a new server.
    #[serde(default)]
    pub restart: bool,
    /// Share of one processor that a server may use, or `none` [default: no limit].
    #[serde(default)]
    pub quota: Option<Template>,
    /// Arguments of netem(8) for the network between servers and load, or `none` [default: no emulated network].
    #[serde(default)]
    pub network: Option<Template>,
    /// Name of the server that the others are compared with.
    pub reference: String,
    /// Number of repetitions.
    #[serde(default = "five")]
    pub repetitions: u32,
    /// Further repetitions until the metrics are precise.
    #[serde(default)]
    pub precision: Option<Precision>,
    /// Requirements of the machine.
    #[serde(default)]
    pub requires: Requirements,
    /// Documents that the servers serve: names and lengths in bytes.
    #[serde(default)]
    pub documents: BTreeMap<String, u64>,
    /// Number of directories of the SPECweb99-like mix that the servers serve.
    #[serde(default)]
    pub specweb: u32,
    /// Servers to measure.
    pub servers: Vec<ServerRule>,
    /// Recipe of the server behind the proxies. With it, the servers are proxies.
    #[serde(default)]
    pub origin: Option<String>,
    /// Factors that are varied.
    #[serde(default)]
    pub axes: Vec<Axis>,
    /// Load that determines the variable `saturation`.
    #[serde(default)]
    pub saturation: Option<Saturation>,
    /// Load before the idle connections, which fills caches and allocates buffers.
    #[serde(default)]
    pub warm_up: Option<Load>,
    /// Idle connections.
    #[serde(default)]
    pub idle: Option<Idle>,
    /// Loads of a measurement, in this order.
    pub passes: Vec<Pass>,
    /// Figures that are derived from the passes.
    pub metrics: Vec<Metric>,
    /// Charts of the report.
    #[serde(default)]
    pub figures: Vec<Chart>,
    /// Alternative values, selected by name.
    #[serde(default)]
    pub variants: BTreeMap<String, Variant>,
    /// Text of the file.
    #[serde(skip)]
    pub text: String,
}

fn five() -> u32 {
    5
}

/// A target for the confidence intervals of the metrics that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Precision {
    /// Half the 95 % confidence interval, as a fraction of the mean.
    pub target: f64,
    /// Maximum number of repetitions.
    #[serde(default = "twenty")]
    pub max_repetitions: u32,
}

fn twenty() -> u32 {
    20
}

/// Processors of server and load generator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlacementRule {
    /// The server has a processor of its own, if there are at least two.
    #[default]
    Apart,
    /// Server and load generator share a processor in the scheduling class SCHED_BATCH.
    Together,
    /// The server has half of the processors, the load generator the others.
    Halves,
}

/// Requirements of the machine. An experiment whose requirements are not met is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Requirements {
    /// Minimum number of processors.
    #[serde(default)]
    pub processors: usize,
    /// Minimum limit on descriptors per process.
    #[serde(default)]
    pub descriptors: u64,
    /// Whether instructions must be counted, in an emulated machine if this one does not count them.
    #[serde(default)]
    pub counts: bool,
    /// Whether eBPF programs must be permitted.
    #[serde(default)]
    pub ebpf: bool,
    /// Whether other load on the machine makes the results meaningless.
    #[serde(default)]
    pub quiet: bool,
}

/// A server, or several servers with a common rule.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ServerRule {
    /// Generates a server for each of these.
    #[serde(default)]
    pub each: Option<Each>,
    /// Name of the recipe.
    #[serde(default)]
    pub recipe: Option<String>,
    /// Name of the server [default: the name of the recipe].
    #[serde(default)]
    pub name: Option<String>,
    /// Arguments that are added to the command of the recipe.
    #[serde(default)]
    pub arguments: Vec<Template>,
    /// Values of the axes with which the server is measured [default: all].
    #[serde(default)]
    pub only: Only,
}

/// A set that generates servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Each {
    /// The event mechanisms that are available. The variable `mechanism` is the name.
    Mechanism,
    /// The recipes of the kind of the experiment.
    Recipe,
}

/// Permitted values by axis. Axes that are not listed permit all values.
pub type Only = BTreeMap<String, Vec<Template>>;

/// A factor that is varied. A single value is a constant that `--set` can change.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Axis {
    /// Name of the axis and of its variable.
    pub name: String,
    /// Title in tables and figures [default: the name].
    #[serde(default)]
    pub title: Option<String>,
    /// Values.
    pub values: Vec<AxisValue>,
}

/// A value of an axis: a number or word, or a name with variables.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "toml::Value")]
pub struct AxisValue {
    /// Name: the value itself, if there are no variables.
    pub name: String,
    /// Variables, used as `{axis.variable}`.
    pub variables: BTreeMap<String, String>,
}

/// Load of a pass.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Load {
    /// Path of the requests.
    pub path: Template,
    /// Number of requests, in lockstep.
    #[serde(default)]
    pub requests: Option<Template>,
    /// Options of `hearken load`. `true` is an option without value, `false` omits it.
    #[serde(default)]
    pub options: BTreeMap<String, Template>,
}

impl Pass {
    /// Returns whether counters are attached to the threads of the server.
    pub(crate) fn attaches(&self) -> bool {
        self.count.iter().any(|group| *group != CounterGroup::Events)
    }
}

impl Load {
    /// Returns the arguments of `hearken load` after its name.
    pub(crate) fn arguments(&self, server: &str, variables: &Variables) -> Vec<String> {
        let mut arguments = vec![format!("{server}{}", self.path.fill(variables))];
        for (name, value) in &self.options {
            match value.fill(variables).as_str() {
                "false" => {}
                "true" => arguments.push(format!("--{name}")),
                value => arguments.push(format!("--{name}={value}")),
            }
        }
        arguments
    }

    /// Returns whether the load is a fixed number of requests in rounds.
    pub(crate) fn is_lockstep(&self) -> bool {
        self.options.contains_key("lockstep")
    }
}

/// Load that determines the saturation of a server.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Saturation {
    /// Name of the server.
    pub server: String,
    /// Values of axes; others have their first value.
    #[serde(default)]
    pub at: BTreeMap<String, Template>,
    /// Duration of a trial [default: 1s].
    #[serde(default)]
    pub trial: Option<String>,
    /// Load without a rate and a duration.
    pub load: Load,
}

/// Connections that stay idle during the passes.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Idle {
    /// Number of connections.
    pub connections: Template,
    /// Path of their request.
    pub path: Template,
    /// Whether each connection completes one request before it is idle.
    #[serde(default)]
    pub request: bool,
    /// Whether the memory of connections without a request is measured too, with another start of the
    /// server.
    #[serde(default)]
    pub unused: bool,
}

/// A load, and what is counted during it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Pass {
    /// Name, used by metrics.
    pub name: String,
    /// Load.
    pub load: Load,
    /// Counters that are attached to the server.
    #[serde(default)]
    pub count: Vec<CounterGroup>,
    /// Whether the pass is useful on a machine whose clock counts instructions.
    #[serde(default = "yes")]
    pub emulated: bool,
    /// Values of the axes with which the pass takes place [default: all].
    #[serde(default)]
    pub only: Only,
}

fn yes() -> bool {
    true
}

/// Counters that are attached together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CounterGroup {
    /// Instructions in user mode and in the kernel.
    Instructions,
    /// System calls. Counting adds instructions to each of them.
    Syscalls,
    /// Counters that the server exposes: waits, events, changes of interest.
    Events,
}

/// A figure of each measurement: a figure of a pass, divided by another one of the same pass.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Metric {
    /// Name in results.
    pub name: String,
    /// Figures, as `PASS.FIGURE`. The first that is available counts.
    pub of: OneOrMore,
    /// Figure of the same pass that it is divided by.
    #[serde(default)]
    pub per: Option<String>,
    /// Title in figures, with the unit.
    pub title: String,
    /// Heading of the column in the table; none hides it.
    #[serde(default)]
    pub heading: Option<String>,
    /// Factor from the value to the unit of title and heading.
    #[serde(default = "one")]
    pub scale: f64,
    /// Whether the table contains the ratio to the reference.
    #[serde(default)]
    pub compare: bool,
    /// Axis; the table contains the ratio to its first value.
    #[serde(default)]
    pub baseline: Option<String>,
}

fn one() -> f64 {
    1.0
}

/// A string or a list of strings.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "expected a string or a list of strings")]
pub enum OneOrMore {
    /// A string.
    One(String),
    /// A list of strings.
    More(Vec<String>),
}

impl OneOrMore {
    /// Returns all strings.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let all = match self {
            OneOrMore::One(one) => std::slice::from_ref(one),
            OneOrMore::More(all) => all,
        };
        all.iter().map(String::as_str)
    }
}

/// A chart of the report. With `x` it has a line for each server, otherwise a row.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Chart {
    /// Name of the chart and of its file.
    pub name: String,
    /// Title.
    pub title: String,
    /// Explanation below the chart.
    #[serde(default)]
    pub caption: String,
    /// Metrics; each has a panel.
    pub metrics: Vec<String>,
    /// Whether only the first metric that has values is shown.
    #[serde(default)]
    pub first: bool,
    /// Numeric axis of a line chart.
    #[serde(default)]
    pub x: Option<String>,
    /// Title of the horizontal axis [default: the title of the axis `x`].
    #[serde(default)]
    pub x_title: Option<String>,
    /// Whether the values of `x` are multiples of the saturation, and are shown as rates.
    #[serde(default)]
    pub x_rate: bool,
    /// Servers with lines or rows [default: all].
    #[serde(default)]
    pub servers: Vec<String>,
    /// Values of axes that are shown [default: all].
    #[serde(default)]
    pub at: Only,
    /// Axis whose values are the marks of a row.
    #[serde(default)]
    pub levels: Option<String>,
    /// Axis whose values have separate panels.
    #[serde(default)]
    pub panels: Option<String>,
    /// Axes of which only the first value is shown. All other varied axes have separate panels.
    #[serde(default)]
    pub first_of: Vec<String>,
}

/// Alternative values of an experiment.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Variant {
    /// Number of repetitions.
    #[serde(default)]
    pub repetitions: Option<u32>,
    /// Values by axis.
    #[serde(default)]
    pub axes: BTreeMap<String, Vec<Template>>,
}

impl Experiment {
    /// Reads an experiment.
    pub fn read(path: &Path) -> Result<Experiment, LabError> {
        let text = std::fs::read_to_string(path).map_err(LabError::file("read", path))?;
        Experiment::parse(&text, &path.display().to_string())
    }

    /// Parses and checks an experiment. `origin` names it in errors.
    pub fn parse(text: &str, origin: &str) -> Result<Experiment, LabError> {
        let mut experiment: Experiment = toml::from_str(text)
            .map_err(|error| LabError::Config(position::describe(origin, text, &error)))?;
        experiment.text = text.to_owned();
        experiment.check().map_err(|problem| {
            LabError::Config(position::locate(origin, text, &problem.needle, &problem.message))
        })?;
        Ok(experiment)
    }

    /// Returns the kind of its servers.
    pub fn kind(&self) -> Kind {
        if self.origin.is_some() { Kind::Proxy } else { Kind::Server }
    }

    /// Returns the maximum number of repetitions.
    pub(crate) fn max_repetitions(&self) -> u32 {
        let most = self.precision.map_or(0, |precision| precision.max_repetitions);
        self.repetitions.max(most)
    }

    /// Returns the arguments of `hearken load` for each load, with every value of every axis at least once. Variables
    /// that are known only in a run have examples as values.
    pub fn example_loads(&self) -> BTreeSet<Vec<String>> {
        let mut examples = vec![self.example_variables(None)];
        for axis in &self.axes {
            let others = axis.values.iter().skip(1);
            examples.extend(others.map(|value| self.example_variables(Some((axis, value)))));
        }
        let mut all = BTreeSet::new();
        for variables in &examples {
            let passes = self.passes.iter().map(|pass| &pass.load);
            all.extend(
                passes.chain(&self.warm_up).map(|load| load.arguments("http://[::1]", variables)),
            );
            let search = self.saturation.as_ref().map(|saturation| &saturation.load);
            all.extend(search.map(|load| {
                let mut arguments = load.arguments("http://[::1]", variables);
                arguments
                    .extend(["--rate=1000", "--duration=1s", "--interval=100ms"].map(String::from));
                arguments
            }));
        }
        all
    }

    /// Returns variables with the first value of each axis, except for one.
    fn example_variables(&self, other: Option<(&Axis, &AxisValue)>) -> Variables {
        let mut variables = Variables::from([
            ("saturation".to_owned(), "1000".to_owned()),
            ("root".to_owned(), "/".to_owned()),
        ]);
        for axis in &self.axes {
            let other = other.filter(|(other, _)| other.name == axis.name).map(|(_, value)| value);
            let Some(value) = other.or(axis.values.first()) else { continue };
            variables.insert(axis.name.clone(), value.name.clone());
            let own = value.variables.iter();
            variables
                .extend(own.map(|(name, text)| (format!("{}.{name}", axis.name), text.clone())));
        }
        variables
    }

    /// Returns the axis of the given name.
    pub fn axis(&self, name: &str) -> Option<&Axis> {
        self.axes.iter().find(|axis| axis.name == name)
    }

    /// Returns the metric of the given name.
    pub fn metric(&self, name: &str) -> Option<&Metric> {
        self.metrics.iter().find(|metric| metric.name == name)
    }

    /// Replaces the values of an axis.
    ///
    /// # Errors
    /// An unknown axis, no values, or a value whose variables are not known.
    pub fn set(&mut self, name: &str, values: &[String]) -> Result<(), LabError> {
        let known: Vec<&str> = self.axes.iter().map(|axis| axis.name.as_str()).collect();
        let unknown = || {
            let hint = position::suggestion(name, known.iter().copied());
            let known = known.join(", ");
            LabError::Config(format!(
                "experiment '{}' has no axis '{name}'{hint} (available: {known})",
                self.name
            ))
        };
        let at = known.iter().position(|known| *known == name).ok_or_else(unknown)?;
        let axis = &mut self.axes[at];
        if values.is_empty() {
            return Err(LabError::Config(format!("axis '{name}' needs at least one value")));
        }
        let has_variables = axis.values.iter().any(|value| !value.variables.is_empty());
        let mut selected = Vec::with_capacity(values.len());
        for value in values {
            let known = axis.values.iter().find(|known| known.name == *value);
            selected.push(match known {
                Some(known) => known.clone(),
                None if has_variables => {
                    let known: Vec<&str> = axis.values.iter().map(|v| v.name.as_str()).collect();
                    let hint = position::suggestion(value, known.iter().copied());
                    let known = known.join(", ");
                    return Err(LabError::Config(format!(
                        "unknown value '{value}' of axis '{name}'{hint} (available: {known})"
                    )));
                }
                None => AxisValue { name: value.clone(), variables: BTreeMap::new() },
            });
        }
        axis.values = selected;
        Ok(())
    }

    /// Applies a variant.
    ///
    /// # Errors
    /// An unknown variant.
    pub fn select_variant(&mut self, name: &str) -> Result<(), LabError> {
        let Some(variant) = self.variants.get(name).cloned() else {
            let known: Vec<&str> = self.variants.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(LabError::Config(format!(
                "experiment '{}' has no variant '{name}' (available: {known})",
                self.name
            )));
        };
        self.repetitions = variant.repetitions.unwrap_or(self.repetitions);
        for (axis, values) in &variant.axes {
            let values: Vec<String> = values.iter().map(ToString::to_string).collect();
            self.set(axis, &values)?;
        }
        Ok(())
    }
}

impl TryFrom<toml::Value> for AxisValue {
    type Error = String;

    fn try_from(value: toml::Value) -> Result<AxisValue, String> {
        let toml::Value::Table(mut table) = value else {
            let name = scalar(&value).ok_or("a value of an axis is a number, a word or a table")?;
            return Ok(AxisValue { name, variables: BTreeMap::new() });
        };
        let name = table.remove("name").as_ref().and_then(scalar);
        let name = name.ok_or("a value of an axis with variables needs a 'name'")?;
        let variable = |(key, value): (String, toml::Value)| match scalar(&value) {
            Some(value) => Ok((key, value)),
            None => {
                Err(format!("the variable '{key}' of value '{name}' must be a number or a word"))
            }
        };
        let variables = table.into_iter().map(variable).collect::<Result<_, String>>()?;
        Ok(AxisValue { name, variables })
    }
}

/// Converts a number, word or truth value to text.
fn scalar(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Float(number) => Some(number.to_string()),
        toml::Value::Boolean(truth) => Some(truth.to_string()),
        _ => None,
    }
}

/// Returns whether these values of the axes are permitted.
pub(crate) fn permits(only: &Only, values: &BTreeMap<String, String>) -> bool {
    only.iter().all(|(axis, permitted)| {
        values
            .get(axis)
            .is_none_or(|value| permitted.iter().any(|permitted| permitted.as_str() == value))
    })
}

#[cfg(test)]
mod tests;
