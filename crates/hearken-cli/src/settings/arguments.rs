//! Command-line arguments for settings.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::marker::PhantomData;
use std::path::PathBuf;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches, value_parser};

use super::resolve::{Assignment, Origin};
use super::{EXPERIMENTS, Kind, Setting, Table, quoted, suggestion};

/// Adds the arguments of all settings, `--config`, `--check`, `--print-config` and `--experiment`.
pub(crate) fn add<C>(table: &Table<C>, mut command: Command) -> Command {
    let defaults = (table.defaults)();
    for setting in table.settings() {
        let heading = heading(table, setting);
        if setting.positional || (setting.flag.is_some() && heading.is_none()) {
            command = command.arg(argument(setting, &defaults).help_heading(heading));
        }
    }
    command = command.args([
        Arg::new("config")
            .long("config")
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .help("Config file in TOML, or - for standard input")
            .long_help(
                "Config file in TOML, or - for standard input\n\nFlags override \
                 the settings of the file.",
            ),
        Arg::new("check")
            .long("check")
            .action(ArgAction::SetTrue)
            .help("Check the configuration and exit"),
        Arg::new("print-config")
            .long("print-config")
            .action(ArgAction::SetTrue)
            .conflicts_with("check")
            .help("Print the configuration as a file and exit"),
        Arg::new("exit-with-parent").long("exit-with-parent").action(ArgAction::SetTrue).hide(true),
    ]);
    for setting in table.settings().filter(|setting| setting.flag.is_some()) {
        let heading = heading(table, setting);
        if heading.is_some() {
            command = command.arg(argument(setting, &defaults).help_heading(heading));
        }
    }
    if table.section(EXPERIMENTS).next().is_some() {
        command = command.arg(experiment(table, &defaults));
    }
    command
}

/// Returns the heading of the setting's flag, which is the heading of its section.
fn heading<C>(table: &Table<C>, setting: &Setting<C>) -> Option<&'static str> {
    let section = table.sections.iter().find(|section| section.name == setting.section());
    let heading = section.map(|section| section.heading);
    heading.filter(|heading| !heading.is_empty() && !setting.first)
}

fn argument<C>(setting: &'static Setting<C>, defaults: &C) -> Arg {
    let summary = summary(setting, defaults);
    let mut long = summary.clone();
    if !setting.details.is_empty() {
        let _ = write!(long, "\n\n{}", setting.details);
    }
    if !setting.choices.is_empty() {
        let _ = write!(long, "\n\nValues: {}", setting.choices.join(", "));
    }
    let _ = match setting.kind {
        Kind::Section => write!(long, "\n\n[config file: [{}]]", setting.key),
        Kind::Tables(_) => write!(long, "\n\n[config file: [[{}]]]", setting.key),
        _ => write!(long, "\n\n[config file: {}]", setting.key),
    };
    let arg = Arg::new(setting.key)
        .value_name(setting.placeholder)
        .help(summary)
        .long_help(long)
        .hide_short_help(!setting.common && !setting.positional)
        .value_parser(Values(setting.choices));
    let arg = match setting.flag {
        Some(flag) => arg.long(flag),
        None => arg,
    };
    if matches!(setting.kind, Kind::Section) {
        return arg.action(ArgAction::SetTrue).value_parser(value_parser!(bool));
    }
    let arg = arg.hide_possible_values(true);
    match setting.kind {
        Kind::Value | Kind::Section => arg,
        Kind::Switch => arg.num_args(0..=1).require_equals(true).default_missing_value("yes"),
        Kind::Tables(_) | Kind::List(None) => arg.action(ArgAction::Append),
        Kind::List(Some(separator)) => arg.action(ArgAction::Append).value_delimiter(separator),
    }
}

fn experiment<C>(table: &Table<C>, defaults: &C) -> Arg {
    let summary = "Setting for experiments (repeatable)";
    let mut long = format!("{summary}\n");
    for setting in table.section(EXPERIMENTS) {
        let _ = write!(long, "\n{}={}", setting.name(), setting.placeholder);
        let _ = write!(long, ": {}", self::summary(setting, defaults));
    }
    let _ = write!(long, "\n\n[config file: [{EXPERIMENTS}]]");
    Arg::new(EXPERIMENTS)
        .long("experiment")
        .value_name("KEY=VALUE")
        .action(ArgAction::Append)
        .value_parser(Values(&[]))
        .hide_short_help(true)
        .help(summary)
        .long_help(long)
}

/// Returns the summary of a setting with its default.
pub(super) fn summary<C>(setting: &Setting<C>, defaults: &C) -> String {
    match default(setting, defaults) {
        Some(default) => format!("{} [default: {default}]", setting.summary),
        None => setting.summary.to_owned(),
    }
}

/// Returns the default of a setting in words, if there is one to mention.
pub(super) fn default<C>(setting: &Setting<C>, defaults: &C) -> Option<String> {
    let values = (setting.get)(defaults);
    match (setting.kind, values.first()) {
        (Kind::Switch | Kind::Section, _) => None,
        (_, Some(value)) => Some(value.to_string_lossy().into_owned()),
        (_, None) if setting.default_text.is_empty() => None,
        (_, None) => Some(setting.default_text.to_owned()),
    }
}

/// Accepts every value, because [`Setting::set`] parses it, and lists the known values for shell
/// completions.
#[derive(Clone)]
struct Values(&'static [&'static str]);

impl TypedValueParser for Values {
    type Value = OsString;

    fn parse_ref(&self, _: &Command, _: Option<&Arg>, value: &OsStr) -> Result<Self::Value, Error> {
        Ok(value.to_owned())
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let values = self.0.iter().copied().map(PossibleValue::new);
        (!self.0.is_empty()).then(|| Box::new(values) as _)
    }
}

/// Returns the assignments of the command line, in the order of the table. Fails on an unknown
/// experiment.
pub(super) fn assignments<C>(
    table: &Table<C>,
    matches: &ArgMatches,
) -> Result<Vec<Assignment<C>>, String> {
    let is_set = |id: &str| {
        matches!(matches.try_contains_id(id), Ok(true))
            && matches.value_source(id) == Some(ValueSource::CommandLine)
    };
    let mut all = Vec::new();
    for setting in table.settings().filter(|setting| is_set(setting.key)) {
        let values = matches.get_raw(setting.key).into_iter().flatten();
        let assignment = |value: &OsStr| Assignment {
            setting,
            value: if matches!(setting.kind, Kind::Section) { "yes".into() } else { value.into() },
            origin: Origin::CommandLine,
        };
        all.extend(values.map(assignment));
    }
    if !is_set(EXPERIMENTS) {
        return Ok(all);
    }
    for argument in matches.get_raw(EXPERIMENTS).into_iter().flatten() {
        let argument = argument.to_string_lossy();
        let (name, value) = argument.split_once('=').unwrap_or((&argument, ""));
        let Some(setting) = table.find(EXPERIMENTS, name) else {
            let known: Vec<_> = table.section(EXPERIMENTS).map(Setting::name).collect();
            let similar = suggestion(name, known.iter().copied());
            let hint = match similar.is_empty() {
                true => format!(" (known experiments: {})", known.join(", ")),
                false => similar,
            };
            return Err(format!("unknown experiment {} in '--experiment'{hint}", quoted(name)));
        };
        all.push(Assignment { setting, value: value.into(), origin: Origin::CommandLine });
    }
    Ok(all)
}

/// The command line of a command that has settings.
pub(crate) struct Matches<T> {
    pub(crate) matches: ArgMatches,
    command: PhantomData<T>,
}

/// A command that has settings.
pub(crate) trait Configured {
    /// Adds the arguments and help texts of the command.
    fn add(command: Command) -> Command;
}

impl<T: Configured> Args for Matches<T> {
    fn augment_args(command: Command) -> Command {
        T::add(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        T::add(command)
    }
}

impl<T> FromArgMatches for Matches<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Matches<T>, Error> {
        Ok(Matches { matches: matches.clone(), command: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.matches = matches.clone();
        Ok(())
    }
}
