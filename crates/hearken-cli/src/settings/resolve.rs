//! Resolves the settings of a command: the command line overrides the config file, which overrides
//! the defaults.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::ArgMatches;

use super::file::{self, MAX_PROBLEMS};
use super::text::{Problem, Text, failures};
use super::{Setting, Table, arguments, quoted};
use crate::Failure;

/// A configuration, and the origin of its settings.
pub(crate) struct Resolved<C: 'static> {
    pub(crate) config: C,
    /// All assignments of the file and the command line, including overridden ones.
    assignments: Vec<Assignment<C>>,
    file: Option<Text>,
}

/// A value of a setting, in the config file or on the command line.
pub(crate) struct Assignment<C: 'static> {
    pub(crate) setting: &'static Setting<C>,
    pub(crate) value: OsString,
    pub(crate) origin: Origin,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    CommandLine,
    /// The config file, at this offset in bytes.
    File(usize),
}

impl Origin {
    fn is_file(self) -> bool {
        matches!(self, Origin::File(_))
    }
}

/// A check of a complete configuration.
pub(crate) type Validate<C> = fn(&Resolved<C>, &mut Invalid);

/// The errors of a complete configuration.
#[derive(Default)]
pub(crate) struct Invalid(Vec<(&'static str, usize, String)>);

impl Invalid {
    /// Adds an error of the configuration in general.
    pub(crate) fn general(&mut self, message: impl Into<String>) {
        self.0.push(("", 0, message.into()));
    }

    /// Adds an error of a setting, or of an element of its list.
    pub(crate) fn setting(&mut self, key: &'static str, index: usize, message: impl Into<String>) {
        self.0.push((key, index, message.into()));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Resolves the settings of a command line that has the arguments of [`arguments::add`].
pub(crate) fn resolve<C: Clone>(
    table: &Table<C>,
    matches: &ArgMatches,
    validate: Validate<C>,
) -> Result<Resolved<C>, Failure> {
    let mut config = (table.defaults)();
    let (mut assignments, mut text) = (Vec::new(), None);
    if let Some(path) = matches.get_one::<PathBuf>("config") {
        let file = Text::read(path)?;
        let dir = path.parent().unwrap_or(Path::new(""));
        assignments = file::read(&file.text, dir, table, &mut config)
            .map_err(|problems| file.failure(problems))?;
        text = Some(file);
    }
    let of_file = config.clone();
    let arguments = arguments::assignments(table, matches).map_err(Failure::usage)?;
    let mut problems = Vec::new();
    for (index, argument) in arguments.iter().enumerate() {
        let setting = argument.setting;
        if arguments[..index].iter().all(|earlier| earlier.setting.key != setting.key) {
            (setting.clear)(&mut config);
        }
        if let Err(reason) = (setting.set)(&mut config, &argument.value) {
            let value = quoted(&argument.value.to_string_lossy());
            problems.push(format!("invalid value {value} for '{}': {reason}", full(setting)));
        }
    }
    if !problems.is_empty() {
        return Err(failures(&problems));
    }
    assignments.extend(arguments);
    let resolved = Resolved { config, assignments, file: text };
    let mut invalid = Invalid::default();
    validate(&resolved, &mut invalid);
    if invalid.is_empty() {
        resolved.check_effects(table, &of_file, &mut invalid);
    }
    match invalid.is_empty() {
        true => Ok(resolved),
        false => Err(resolved.failure(invalid)),
    }
}

/// Returns an argument with its placeholder.
fn full<C>(setting: &Setting<C>) -> String {
    match setting.flag {
        Some(flag) => format!("--{flag} <{}>", setting.placeholder),
        None => setting.argument(),
    }
}

impl<C> Resolved<C> {
    /// Returns the name of the config file, if there is one.
    pub(crate) fn file_name(&self) -> Option<&str> {
        self.file.as_ref().map(|text| text.name.as_str())
    }

    /// Returns whether the file or the command line sets the setting.
    pub(crate) fn is_set(&self, key: &str) -> bool {
        self.find(key, 0).is_some()
    }

    /// Returns whether the command line sets both settings, or the file sets both and the command
    /// line neither.
    pub(crate) fn are_set_together(&self, one: &str, other: &str) -> bool {
        let is_set = |key: &str, in_file: bool| {
            let mut all = self.assignments.iter().filter(|it| it.setting.key == key);
            all.any(|it| it.origin.is_file() == in_file)
        };
        match (is_set(one, false), is_set(other, false)) {
            (true, true) => true,
            (false, false) => is_set(one, true) && is_set(other, true),
            _ => false,
        }
    }

    /// Returns the assignment of an element of a setting. The command line overrides the file.
    fn find(&self, key: &str, index: usize) -> Option<&Assignment<C>> {
        let all = || self.assignments.iter().filter(|it| it.setting.key == key);
        let on_command_line = all().any(|it| !it.origin.is_file());
        all().filter(|it| it.origin.is_file() != on_command_line).nth(index)
    }

    /// Reports settings that have no effect. The command line may remove or restore the effect of a
    /// setting of the file. Such a setting is reported only if the file alone gives it no effect.
    fn check_effects(&self, table: &Table<C>, of_file: &C, invalid: &mut Invalid) {
        for Assignment { setting, origin, .. } in &self.assignments {
            let in_file = origin.is_file();
            let mut same = self
                .assignments
                .iter()
                .filter(|it| it.setting.key == setting.key && it.origin.is_file() == in_file);
            let index = same.position(|it| it.origin == *origin).unwrap_or(0);
            let is_overridden = self.find(setting.key, index).is_none_or(|it| it.origin != *origin);
            if let Err(reason) = table.applies(setting, &self.config)
                && !is_overridden
                && (!in_file || table.applies(setting, of_file).is_err())
            {
                invalid.setting(setting.key, index, reason);
            }
        }
    }

    fn failure(&self, invalid: Invalid) -> Failure {
        let place = |key: &str, index| match self.find(key, index).map(|it| it.origin) {
            Some(Origin::File(at)) => at,
            _ => usize::MAX,
        };
        let mut all = invalid.0;
        all.sort_by_key(|(key, index, _)| place(key, *index));
        let line = |(key, index, message): &(&'static str, usize, String)| {
            let found = self.find(key, *index).map(|it| (it.setting, it.origin));
            match (found, &self.file) {
                (Some((setting, Origin::File(at))), Some(text)) => {
                    let message = format!("'{}': {message}", setting.key);
                    let place = text.locate(&Problem { at, message });
                    format!("invalid config file '{}': {place}", text.name)
                }
                (Some((setting, _)), _) => {
                    format!("invalid argument '{}': {message}", setting.argument())
                }
                (None, Some(text)) => format!("invalid config file '{}': {message}", text.name),
                (None, None) => message.clone(),
            }
        };
        failures(&all.iter().take(MAX_PROBLEMS).map(line).collect::<Vec<_>>())
    }
}
