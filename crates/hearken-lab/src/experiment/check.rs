//! Consistency of an experiment.

use std::collections::BTreeSet;

use super::position::suggestion;
use super::{Axis, Each, Experiment, Only, Template};
use crate::plan::parse_duration;

/// Figures that a pass yields. The lists of open loads and of lockstep overlap.
pub(crate) const PASS_FIGURES: &[&str] = &[
    "cpu_ns",
    "cpu_user_ns",
    "cpu_system_ns",
    "cpu_utilisation",
    "wait_ratio",
    "elapsed_ns",
    "context_switches",
    "quota_utilisation",
    "quota_periods",
    "throttled_periods",
    "throttled_ns",
    "instructions",
    "instructions_user",
    "instructions_kernel",
    "syscalls",
    "scheduled",
    "answerable",
    "replies",
    "failed",
    "missed",
    "reply_rate",
    "offered_rate",
    "connections_opened",
    "latency_mean_ns",
    "latency_p50_ns",
    "latency_p90_ns",
    "latency_p99_ns",
    "latency_p999_ns",
    "latency_max_ns",
    "lateness_p99_ns",
    "waits",
    "empty_waits",
    "useful_waits",
    "events",
    "spurious_events",
    "signals",
    "overflows",
    "interest_changes",
    "event_syscalls",
    "interest_syscalls",
    "wait_cpu_ns",
    "accepts",
    "dequeue_delay_p50_ns",
    "dequeue_delay_p90_ns",
    "dequeue_delay_p99_ns",
    "dequeue_delay_p999_ns",
    "handler_delay_p50_ns",
    "handler_delay_p90_ns",
    "handler_delay_p99_ns",
    "handler_delay_p999_ns",
];
/// Figures of a session: a server with its idle connections.
pub(crate) const SESSION_FIGURES: &[&str] = &[
    "rss_start_bytes",
    "rss_bytes",
    "rss_end_bytes",
    "rss_per_idle_bytes",
    "rss_per_unused_bytes",
    "idle_connections",
];

/// An inconsistency: a message, and the text in the file that it refers to.
pub(super) struct Problem {
    pub(super) needle: String,
    pub(super) message: String,
}

fn problem(needle: impl Into<String>, message: impl Into<String>) -> Problem {
    Problem { needle: needle.into(), message: message.into() }
}

fn unknown<'a>(what: &str, name: &str, known: impl Iterator<Item = &'a str> + Clone) -> Problem {
    let hint = suggestion(name, known.clone());
    let hint = match hint.is_empty() {
        true => format!(" (available: {})", known.collect::<Vec<_>>().join(", ")),
        false => hint,
    };
    problem(name, format!("unknown {what} '{name}'{hint}"))
}

impl Experiment {
    /// Checks names, references and numbers.
    pub(super) fn check(&self) -> Result<(), Problem> {
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if self.name.is_empty() || !self.name.chars().all(is_plain) {
            let message = "the name must consist of lower-case letters, digits and '-'";
            return Err(problem(&self.name, message));
        }
        let require = |present: bool, key: &str, what: &str| match present {
            true => Ok(()),
            false => Err(problem(key, format!("at least one {what} is required"))),
        };
        require(!self.servers.is_empty(), "servers", "server")?;
        require(!self.passes.is_empty(), "passes", "pass")?;
        require(!self.metrics.is_empty(), "metrics", "metric")?;
        require(self.repetitions > 0, "repetitions", "repetition")?;
        if let Some(precision) = self.precision
            && !(0.001..1.0).contains(&precision.target)
        {
            let message = format!("the target {} is not from 0.001 to 1", precision.target);
            return Err(problem("target", message));
        }
        for (names, what) in [
            (self.axes.iter().map(|axis| axis.name.as_str()).collect::<Vec<_>>(), "axis"),
            (self.passes.iter().map(|pass| pass.name.as_str()).collect(), "pass"),
            (self.metrics.iter().map(|metric| metric.name.as_str()).collect(), "metric"),
            (self.figures.iter().map(|figure| figure.name.as_str()).collect(), "figure"),
        ] {
            let mut seen = BTreeSet::new();
            if let Some(twice) = names.iter().find(|name| !seen.insert(**name)) {
                return Err(problem(*twice, format!("the {what} '{twice}' is defined twice")));
            }
        }
        self.axes.iter().try_for_each(check_axis)?;
        self.check_quota()?;
        self.check_servers()?;
        self.check_loads()?;
        self.check_metrics()?;
        self.check_figures()?;
        for variant in self.variants.values() {
            variant.axes.keys().try_for_each(|axis| self.check_axis_name(axis))?;
        }
        Ok(())
    }

    /// Checks the shares that the values of the axes yield.
    fn check_quota(&self) -> Result<(), Problem> {
        let Some(quota) = &self.quota else { return Ok(()) };
        let wrong = |text: &str| {
            let message = format!("'{text}' is not a share from 0.01 to 1, or 'none'");
            Err(problem(quota.as_str(), message))
        };
        let axes = self.axes.iter().filter(|axis| quota.names().any(|name| name == axis.name));
        let mut texts: Vec<String> =
            axes.flat_map(|axis| &axis.values).map(|value| value.name.clone()).collect();
        if quota.names().next().is_none() {
            texts.push(quota.to_string());
        }
        texts.iter().try_for_each(|text| match parse_share(text) {
            Some(_) => Ok(()),
            None => wrong(text),
        })
    }

    fn check_servers(&self) -> Result<(), Problem> {
        for rule in &self.servers {
            let mut known = self.variables();
            match rule.each {
                Some(Each::Mechanism) => known.push("mechanism".into()),
                Some(Each::Recipe) if rule.recipe.is_some() || rule.name.is_some() => {
                    let message = "'each = \"recipe\"' excludes 'recipe' and 'name'";
                    return Err(problem("each", message));
                }
                Some(Each::Recipe) => {}
                None if rule.recipe.is_none() => {
                    return Err(problem("servers", "a server needs 'recipe' or 'each'"));
                }
                None => {}
            }
            if rule.each == Some(Each::Mechanism) && rule.recipe.is_none() {
                return Err(problem("each", "'each = \"mechanism\"' needs a 'recipe'"));
            }
            known.extend(["dir", "port", "admin", "hearken", "origin"].map(String::from));
            rule.arguments.iter().try_for_each(|text| check_template(text, &known))?;
            self.check_only(&rule.only)?;
        }
        Ok(())
    }

    fn check_loads(&self) -> Result<(), Problem> {
        let known = self.variables();
        let mut texts = Vec::new();
        let mut loads: Vec<_> = self.passes.iter().map(|pass| &pass.load).collect();
        loads.extend(&self.warm_up);
        for load in loads {
            if load.is_lockstep() != load.requests.is_some() {
                let message = "a load needs 'requests' exactly if it has the option 'lockstep'";
                return Err(problem(load.path.as_str(), message));
            }
            texts.push(&load.path);
            texts.extend(&load.requests);
            texts.extend(load.options.values());
        }
        if self.warm_up.as_ref().is_some_and(|load| !load.is_lockstep()) {
            return Err(problem("warm-up", "the warm-up needs the option 'lockstep'"));
        }
        if let Some(idle) = &self.idle {
            texts.extend([&idle.connections, &idle.path]);
        }
        texts.extend(&self.quota);
        texts.extend(&self.network);
        texts.iter().try_for_each(|text| check_template(text, &known))?;
        if let Some(saturation) = &self.saturation {
            let known: Vec<String> =
                known.iter().filter(|name| *name != "saturation").cloned().collect();
            let load = &saturation.load;
            let mut texts = load.options.values().chain([&load.path]).chain(saturation.at.values());
            texts.try_for_each(|text| check_template(text, &known))?;
            saturation.at.keys().try_for_each(|axis| self.check_axis_name(axis))?;
            let given = ["rate", "duration", "interval"];
            if let Some(option) = given.iter().find(|name| load.options.contains_key(**name)) {
                let message =
                    format!("the search for saturation sets the option '{option}' itself");
                return Err(problem(*option, message));
            }
            if let Some(trial) = &saturation.trial
                && parse_duration(trial).is_none()
            {
                return Err(problem(trial, format!("'{trial}' is not a duration, such as 500ms")));
            }
        }
        self.passes.iter().try_for_each(|pass| self.check_only(&pass.only))
    }

    fn check_metrics(&self) -> Result<(), Problem> {
        for metric in &self.metrics {
            for of in metric.of.iter() {
                let Some((pass, figure)) = of.split_once('.') else {
                    return Err(problem(of, format!("'{of}' is not of the form PASS.FIGURE")));
                };
                let passes = self.passes.iter().map(|pass| pass.name.as_str()).chain(["session"]);
                if !passes.clone().any(|known| known == pass) {
                    return Err(unknown("pass", pass, passes));
                }
                let figures =
                    if pass == "session" { SESSION_FIGURES } else { PASS_FIGURES }.iter().copied();
                for name in [Some(figure), metric.per.as_deref()].into_iter().flatten() {
                    if !figures.clone().any(|known| known == name) {
                        return Err(unknown("figure", name, figures));
                    }
                }
            }
            metric.baseline.iter().try_for_each(|axis| self.check_axis_name(axis))?;
        }
        Ok(())
    }

    fn check_figures(&self) -> Result<(), Problem> {
        for figure in &self.figures {
            let known = self.metrics.iter().map(|metric| metric.name.as_str());
            if let Some(name) = figure.metrics.iter().find(|name| self.metric(name).is_none()) {
                return Err(unknown("metric", name, known));
            }
            let axes =
                figure.x.iter().chain(&figure.levels).chain(&figure.panels).chain(&figure.first_of);
            axes.into_iter().try_for_each(|axis| self.check_axis_name(axis))?;
            self.check_only(&figure.at)?;
            if figure.x_rate && self.saturation.is_none() {
                let message = format!("figure '{}' needs a [saturation]", figure.name);
                return Err(problem("x-rate", message));
            }
        }
        Ok(())
    }

    fn check_only(&self, only: &Only) -> Result<(), Problem> {
        only.keys().try_for_each(|axis| self.check_axis_name(axis))
    }

    fn check_axis_name(&self, name: &str) -> Result<(), Problem> {
        match self.axis(name) {
            Some(_) => Ok(()),
            None => Err(unknown("axis", name, self.axes.iter().map(|axis| axis.name.as_str()))),
        }
    }

    /// Returns the names of all variables of loads.
    fn variables(&self) -> Vec<String> {
        let mut names = Vec::new();
        for axis in &self.axes {
            names.push(axis.name.clone());
            let variables = axis.values.first().into_iter().flat_map(|v| v.variables.keys());
            names.extend(variables.map(|variable| format!("{}.{variable}", axis.name)));
        }
        names.extend(self.saturation.is_some().then(|| "saturation".to_owned()));
        names.push("root".to_owned());
        names
    }
}

/// Parses a share of a processor; the inner value is none without a limit.
pub(crate) fn parse_share(text: &str) -> Option<Option<f64>> {
    match text {
        "none" => Some(None),
        text => text.parse().ok().filter(|share| (0.01..=1.0).contains(share)).map(Some),
    }
}

/// Checks that an axis has values, and that all define the same variables.
fn check_axis(axis: &Axis) -> Result<(), Problem> {
    let Some(first) = axis.values.first() else {
        return Err(problem(&axis.name, format!("axis '{}' needs at least one value", axis.name)));
    };
    for value in &axis.values {
        let missing = first.variables.keys().find(|key| !value.variables.contains_key(*key));
        let added = value.variables.keys().find(|key| !first.variables.contains_key(*key));
        if let Some(variable) = missing.or(added) {
            let (with, without) = match missing {
                Some(_) => (first, value),
                None => (value, first),
            };
            let message = format!(
                "axis '{}': value '{}' defines '{variable}', but '{}' does not",
                axis.name, with.name, without.name
            );
            return Err(problem(&without.name, message));
        }
    }
    Ok(())
}

fn check_template(text: &Template, known: &[String]) -> Result<(), Problem> {
    match text.names().find(|name| !known.iter().any(|known| known == name)) {
        Some(name) => Err(unknown("variable", name, known.iter().map(String::as_str))),
        None => Ok(()),
    }
}
