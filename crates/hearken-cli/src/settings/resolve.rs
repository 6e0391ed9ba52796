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
    /// All settings of the file and of the command line. Overridden settings are included.
    given: Vec<Given<C>>,
    file: Option<Text>,
}

/// A setting in the config file or on the command line.
pub(crate) struct Given<C: 'static> {
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
    let (mut given, mut text) = (Vec::new(), None);
    if let Some(path) = matches.get_one::<PathBuf>("config") {
        let file = Text::read(path)?;
        let dir = path.parent().unwrap_or(Path::new(""));
        given = file::read(&file.text, dir, table, &mut config)
            .map_err(|problems| file.failure(problems))?;
        text = Some(file);
    }
    let of_file = config.clone();
    let arguments = arguments::given(table, matches).map_err(Failure::usage)?;
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
    given.extend(arguments);
    let resolved = Resolved { config, given, file: text };
    let mut invalid = Invalid::default();
    validate(&resolved, &mut invalid);
    if invalid.is_empty() {
        resolved.check_effects(&of_file, &mut invalid);
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

    /// Returns whether the setting is given by the file or the command line.
    pub(crate) fn is_given(&self, key: &str) -> bool {
        self.find(key, 0).is_some()
    }

    /// Returns whether the command line gives both settings, or only the file gives both.
    pub(crate) fn are_given_together(&self, one: &str, other: &str) -> bool {
        [true, false].iter().any(|&in_file| {
            let given = |key: &str| {
                let mut all = self.given.iter().filter(|given| given.setting.key == key);
                all.any(|given| given.origin.is_file() == in_file)
            };
            let overridden = in_file
                && self.given.iter().any(|given| {
                    !given.origin.is_file() && [one, other].contains(&given.setting.key)
                });
            given(one) && given(other) && !overridden
        })
    }

    /// Returns where the element of a setting is given; the command line overrides the file.
    fn find(&self, key: &str, index: usize) -> Option<&Given<C>> {
        let all = || self.given.iter().filter(|given| given.setting.key == key);
        let on_command_line = all().any(|given| !given.origin.is_file());
        all().filter(|given| given.origin.is_file() != on_command_line).nth(index)
    }

    /// Reports settings that have no effect. A setting of the file may lose its effect by the
    /// command line, or get it.
    fn check_effects(&self, of_file: &C, invalid: &mut Invalid) {
        for given in &self.given {
            let (setting, in_file) = (given.setting, given.origin.is_file());
            let mut same = self.given.iter().filter(|other| {
                other.setting.key == setting.key && other.origin.is_file() == in_file
            });
            let index = same.position(|other| other.origin == given.origin).unwrap_or(0);
            let is_overridden =
                self.find(setting.key, index).is_none_or(|found| found.origin != given.origin);
            if let Err(reason) = (setting.applies)(&self.config)
                && !is_overridden
                && (!in_file || (setting.applies)(of_file).is_err())
            {
                invalid.setting(setting.key, index, reason);
            }
        }
    }

    fn failure(&self, invalid: Invalid) -> Failure {
        let place = |key: &str, index| match self.find(key, index).map(|given| given.origin) {
            Some(Origin::File(at)) => at,
            _ => usize::MAX,
        };
        let mut all = invalid.0;
        all.sort_by_key(|(key, index, _)| place(key, *index));
        let line = |(key, index, message): &(&'static str, usize, String)| {
            let given = self.find(key, *index);
            match (given.map(|given| (given.setting, given.origin)), &self.file) {
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
