//! The plan of a run: servers, and measurements in random order.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use crate::error::LabError;
use crate::experiment::{
    CounterGroup, Each, Experiment, Load, Only, Pass, PlacementRule, Template, Variables,
    parse_share, permits, position,
};
use crate::recipe::Recipe;

/// Descriptors reserved for standard streams, files and the event queue.
pub(crate) const RESERVED_DESCRIPTORS: u64 = 64;
/// Approximate time to start and stop a server.
const SESSION_TIME: Duration = Duration::from_millis(500);
/// Time after which a server has published the counters of its event loop.
pub(crate) const PUBLICATION_TIME: Duration = Duration::from_millis(400);
/// Approximate time to start and stop a load generator.
const PASS_TIME: Duration = Duration::from_millis(120);
/// Approximate time of a request in lockstep.
const LOCKSTEP_REQUEST_TIME: Duration = Duration::from_micros(25);
/// Approximate number of trials of a search for saturation, with their pauses.
const SATURATION_TRIALS: u32 = 20;
/// Approximate time to open and close an idle connection.
const IDLE_TIME: Duration = Duration::from_micros(60);
/// Suffix of the name of the second instance of the reference server.
pub(crate) const AGAIN: &str = "-again";

/// A server of an experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    /// Name in the experiment.
    pub name: String,
    /// Recipe.
    pub recipe: Recipe,
    /// Arguments that are added to the command of the recipe.
    pub arguments: Vec<Template>,
    /// Values of the axes with which it is measured.
    pub only: Vec<Only>,
    /// Variables of its rule.
    pub variables: Variables,
}

/// An experiment with its servers.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedExperiment {
    /// The experiment.
    pub experiment: Experiment,
    /// The servers.
    pub servers: Vec<Server>,
    /// Recipe of the server behind the proxies.
    pub origin: Option<Recipe>,
}

/// Names from which servers are generated.
#[derive(Clone, Debug, Default)]
pub struct Available {
    /// Recipes of servers and proxies. The first of a name counts.
    pub recipes: Vec<Recipe>,
    /// Event mechanisms that this kernel offers.
    pub mechanisms: Vec<String>,
}

impl PlannedExperiment {
    /// Generates the servers of an experiment.
    ///
    /// # Errors
    /// An unknown recipe.
    pub fn new(experiment: Experiment, available: &Available) -> Result<Self, LabError> {
        let kind = experiment.kind();
        let recipes = || available.recipes.iter().filter(move |recipe| recipe.kind == kind);
        let find = |name: &str, recipes: &mut dyn Iterator<Item = &Recipe>| {
            let recipes: Vec<&Recipe> = recipes.collect();
            let names: Vec<&str> = recipes.iter().map(|recipe| recipe.name.as_str()).collect();
            let hint = position::suggestion(name, names.iter().copied());
            recipes
                .iter()
                .find(|recipe| recipe.name == name)
                .map(|&recipe| recipe.clone())
                .ok_or_else(|| {
                    let known = names.join(", ");
                    LabError::Config(format!("unknown recipe '{name}'{hint} (available: {known})"))
                })
        };
        let mut servers: Vec<Server> = Vec::new();
        for rule in &experiment.servers {
            let server = |name: &str, recipe: Recipe, variables| Server {
                name: name.to_owned(),
                only: vec![rule.only.clone(), recipe.only.clone()],
                recipe,
                arguments: rule.arguments.clone(),
                variables,
            };
            match (rule.each, &rule.recipe) {
                (Some(Each::Recipe), _) => {
                    let all = recipes().filter(|recipe| !recipe.template);
                    servers.extend(all.map(|r| server(&r.name, r.clone(), Variables::new())));
                }
                (Some(Each::Mechanism), Some(recipe)) => {
                    let recipe = find(recipe, &mut recipes())?;
                    for mechanism in &available.mechanisms {
                        let variables =
                            Variables::from([("mechanism".to_owned(), mechanism.clone())]);
                        let name = match &rule.name {
                            Some(name) => format!("{name}-{mechanism}"),
                            None => mechanism.clone(),
                        };
                        servers.push(server(&name, recipe.clone(), variables));
                    }
                }
                (None, Some(recipe)) => {
                    let name = rule.name.as_ref().unwrap_or(recipe);
                    servers.push(server(name, find(recipe, &mut recipes())?, Variables::new()));
                }
                (_, None) => {}
            }
        }
        // A recipe of the user replaces a built-in one.
        let mut seen = BTreeSet::new();
        servers.retain(|server| seen.insert(server.name.clone()));
        let servers_behind =
            || available.recipes.iter().filter(|recipe| recipe.kind == crate::recipe::Kind::Server);
        let origin = match &experiment.origin {
            Some(name) => Some(find(name, &mut servers_behind())?),
            None => None,
        };
        Ok(PlannedExperiment { experiment, servers, origin })
    }

    /// Keeps only the servers of these names.
    ///
    /// # Errors
    /// An unknown name.
    pub fn select_servers(&mut self, names: &[String]) -> Result<(), LabError> {
        let known: Vec<&str> = self.servers.iter().map(|server| server.name.as_str()).collect();
        if let Some(name) = names.iter().find(|name| !known.contains(&name.as_str())) {
            let hint = position::suggestion(name, known.iter().copied());
            let known = known.join(", ");
            return Err(LabError::Config(format!(
                "experiment '{}' has no server '{name}'{hint} (available: {known})",
                self.experiment.name
            )));
        }
        self.servers.retain(|server| names.contains(&server.name));
        Ok(())
    }

    /// Adds a second instance of the reference server. Its ratio to the first is the noise floor.
    pub fn add_noise_floor(&mut self) {
        let reference = self.servers.iter().find(|server| server.name == self.experiment.reference);
        if let Some(reference) = reference {
            let name = format!("{}{AGAIN}", reference.name);
            self.servers.push(Server { name, ..reference.clone() });
        }
    }

    /// Returns the server of the given name.
    pub(crate) fn server(&self, name: &str) -> Option<&Server> {
        self.servers.iter().find(|server| server.name == name)
    }

    /// Returns all combinations of server and values, without those that a server excludes.
    pub(crate) fn cells(&self) -> Vec<Cell> {
        let mut combinations = vec![BTreeMap::new()];
        for axis in &self.experiment.axes {
            let extend = |values: &BTreeMap<String, String>| {
                let values = values.clone();
                axis.values.iter().map(move |value| {
                    let mut values = values.clone();
                    values.insert(axis.name.clone(), value.name.clone());
                    values
                })
            };
            combinations = combinations.iter().flat_map(extend).collect();
        }
        let mut cells = Vec::new();
        for server in &self.servers {
            let supported = combinations
                .iter()
                .filter(|values| server.only.iter().all(|only| permits(only, values)));
            cells.extend(
                supported
                    .map(|values| Cell { server: server.name.clone(), values: values.clone() }),
            );
        }
        cells
    }

    /// Returns the variables of a measurement, without those of the server.
    pub(crate) fn variables(&self, values: &BTreeMap<String, String>) -> Variables {
        let mut variables = Variables::new();
        for axis in &self.experiment.axes {
            let Some(name) = values.get(&axis.name) else { continue };
            variables.insert(axis.name.clone(), name.clone());
            let value = axis.values.iter().find(|value| value.name == *name);
            for (variable, value) in value.into_iter().flat_map(|value| &value.variables) {
                variables.insert(format!("{}.{variable}", axis.name), value.clone());
            }
        }
        variables
    }

    /// Returns the share of one processor that the servers may use with these variables.
    pub(crate) fn quota(&self, variables: &Variables) -> Option<f64> {
        let quota = self.experiment.quota.as_ref()?;
        parse_share(&quota.fill(variables))?
    }

    /// Describes a cell by its server and the values of the varied axes.
    fn label(&self, cell: &Cell) -> String {
        let varied = self.experiment.axes.iter().filter(|axis| axis.values.len() > 1);
        let value = |axis: &crate::experiment::Axis| {
            Some(format!(", {} {}", axis.name, cell.values.get(&axis.name)?))
        };
        cell.server.clone() + &varied.filter_map(value).collect::<String>()
    }

    /// Returns the names of the axes that require another start of the server.
    fn session_axes(&self, server: &Server) -> Vec<&str> {
        let idle = self.experiment.idle.as_ref().map(|idle| &idle.connections);
        let texts: Vec<&Template> = server
            .arguments
            .iter()
            .chain(idle)
            .chain(&self.experiment.quota)
            .chain(&self.experiment.network)
            .collect();
        let names: BTreeSet<&str> = texts
            .iter()
            .flat_map(|text| text.names())
            .filter_map(|n| n.split('.').next())
            .collect();
        let axes = self.experiment.axes.iter().map(|axis| axis.name.as_str());
        axes.filter(|axis| self.experiment.restart || names.contains(axis)).collect()
    }

    /// Returns the values by which the sessions of a server differ.
    pub(crate) fn session_key(&self, cell: &Cell) -> Option<Vec<String>> {
        let axes = self.session_axes(self.server(&cell.server)?);
        Some(axes.into_iter().filter_map(|axis| cell.values.get(axis).cloned()).collect())
    }

    /// Estimates the time before the first measurement: tests of the servers, and the search for saturation.
    pub(crate) fn preparation_duration(&self) -> Duration {
        SESSION_TIME * self.servers.len() as u32 + self.search_duration()
    }

    /// Estimates the time of the search for saturation.
    pub(crate) fn search_duration(&self) -> Duration {
        let search = self.experiment.saturation.as_ref().map(|saturation| {
            let trial = saturation.trial.as_deref().and_then(parse_duration);
            trial.unwrap_or(Duration::from_secs(1)) * SATURATION_TRIALS
        });
        search.unwrap_or_default()
    }

    /// Estimates the duration of the loads of a cell.
    pub(crate) fn expected_duration(&self, cell: &Cell) -> Duration {
        let variables = self.variables(&cell.values);
        let passes = self.experiment.passes.iter().filter(|pass| permits(&pass.only, &cell.values));
        let time = |pass: &Pass| {
            let counts_events = pass.count.contains(&CounterGroup::Events);
            let publication = if counts_events { PUBLICATION_TIME } else { Duration::ZERO };
            PASS_TIME + publication + load_time(&pass.load, &variables)
        };
        passes.map(time).sum()
    }

    /// Estimates the time to start a server with the idle connections of a cell.
    pub(crate) fn session_duration(&self, cell: &Cell) -> Duration {
        let variables = self.variables(&cell.values);
        let idle = self.experiment.idle.as_ref().map(|idle| idle.connections.fill(&variables));
        let idle: u32 = idle.and_then(|idle| idle.parse().ok()).unwrap_or(0);
        let warm_up = self.experiment.warm_up.as_ref();
        let warm_up = warm_up.map_or(Duration::ZERO, |load| load_time(load, &variables));
        SESSION_TIME + IDLE_TIME * idle + warm_up
    }

    /// Returns the highest number of idle connections.
    pub(crate) fn max_idle(&self) -> u64 {
        let Some(idle) = &self.experiment.idle else { return 0 };
        let number = |cell: &Cell| idle.connections.fill(&self.variables(&cell.values)).parse();
        self.cells().iter().filter_map(|cell| number(cell).ok()).max().unwrap_or(0)
    }

    /// Returns whether server and load generator share a processor.
    pub(crate) fn is_together(&self) -> bool {
        self.experiment.placement == PlacementRule::Together
    }
}

/// Estimates the duration of a load from its options.
fn load_time(load: &Load, variables: &Variables) -> Duration {
    if let Some(requests) = &load.requests {
        let requests: f64 = requests.fill(variables).parse().unwrap_or(0.0);
        return LOCKSTEP_REQUEST_TIME.mul_f64(requests.clamp(0.0, 1e9));
    }
    let duration = load.options.get("duration").map(|text| text.fill(variables));
    parse_duration(duration.as_deref().unwrap_or("10s")).unwrap_or(Duration::from_secs(10))
}

/// Parses a duration such as `250ms`, `5s`, `2m` or `1h`.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let seconds = match unit {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    let number: f64 = number.trim().parse().ok()?;
    Duration::try_from_secs_f64(number * seconds).ok()
}

/// A server with a value of each axis.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cell {
    /// Name of the server.
    pub server: String,
    /// Values by axis.
    pub values: BTreeMap<String, String>,
}

/// A planned measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trial {
    /// Name of the experiment.
    pub experiment: String,
    /// Server and values.
    pub cell: Cell,
    /// Repetition, from 0.
    pub repetition: u32,
    /// Number of the session: trials with the same number use the same start of the server.
    pub session: usize,
    /// Position in the random order, from 0.
    pub order: usize,
    /// Description with the values of the varied axes.
    pub label: String,
    /// Estimated duration, with the start of the server if it is the first of its session.
    pub expected: Duration,
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.experiment, self.label)
    }
}

/// Returns the trials of the cells that `is_wanted` accepts. Repetitions follow one another. In each,
/// the sessions of all experiments are shuffled, and in each session its trials, so a drift of the
/// machine affects all cells equally.
pub fn plan(
    experiments: &[PlannedExperiment],
    seed: u64,
    is_wanted: &dyn Fn(&Experiment, &Cell) -> bool,
) -> Vec<Trial> {
    let mut random = fastrand::Rng::with_seed(seed);
    let repetitions = experiments.iter().map(|e| e.experiment.max_repetitions()).max().unwrap_or(0);
    let mut trials = Vec::new();
    let mut session = 0;
    for repetition in 0..repetitions {
        let mut sessions: Vec<Vec<Trial>> = Vec::new();
        for planned in experiments.iter().filter(|e| e.experiment.max_repetitions() > repetition) {
            let mut groups: BTreeMap<(String, Vec<String>), Vec<Trial>> = BTreeMap::new();
            for cell in planned.cells() {
                let Some(key) = planned.session_key(&cell) else { continue };
                if !is_wanted(&planned.experiment, &cell) {
                    continue;
                }
                groups.entry((cell.server.clone(), key)).or_default().push(Trial {
                    experiment: planned.experiment.name.clone(),
                    expected: planned.expected_duration(&cell),
                    label: planned.label(&cell),
                    cell,
                    repetition,
                    session: 0,
                    order: 0,
                });
            }
            for mut trials in groups.into_values() {
                random.shuffle(&mut trials);
                if let Some(first) = trials.first_mut() {
                    first.expected += planned.session_duration(&first.cell);
                }
                sessions.push(trials);
            }
        }
        random.shuffle(&mut sessions);
        for mut group in sessions {
            group.iter_mut().for_each(|trial| trial.session = session);
            session += 1;
            trials.extend(group);
        }
    }
    for (order, trial) in trials.iter_mut().enumerate() {
        trial.order = order;
    }
    trials
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_durations() {
        for (text, millis) in [("250ms", 250), ("5s", 5000), ("2m", 120_000), ("0.5", 500)] {
            assert_eq!(parse_duration(text), Some(Duration::from_millis(millis)), "{text}");
        }
        assert_eq!(
            (parse_duration("5x"), parse_duration("-1s"), parse_duration("")),
            (None, None, None)
        );
    }
}
