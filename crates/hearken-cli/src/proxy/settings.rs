//! The settings of a proxy, put together of its file and of the command line, which wins.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{ArgMatches, FromArgMatches};

use super::file::{self, Entry};
use super::keys::{KEYS, Kind};
use super::place::{Text, Wrong, told};
use super::{option, sound};
use crate::Failure;
use crate::args::proxy::ProxyArgs;

/// A proxy's settings.
pub(crate) struct Settings {
    pub(crate) args: ProxyArgs,
    pub(crate) matches: ArgMatches,
    /// What was given, and not left to its default, in the order of the file; the command line last.
    pub(crate) given: Vec<Given>,
    /// The file, if there is one.
    pub(crate) text: Option<Text>,
}

/// An option that was given.
#[derive(Debug)]
pub(crate) struct Given {
    pub(crate) flag: String,
    pub(crate) of: Kind,
    /// Where in the file; none on the command line.
    pub(crate) at: Option<usize>,
}

/// The settings that `matches` of the command line stand for, checked as far as they can be.
pub(crate) fn settle(matches: &ArgMatches) -> Result<Settings, Failure> {
    let command = option::command();
    let path = matches.get_one::<PathBuf>("config");
    let (text, entries) = match path {
        None => (None, Vec::new()),
        Some(path) => {
            let text = Text::read(path)?;
            let dir = path.parent().unwrap_or(Path::new(""));
            let entries =
                file::read(&text.text, dir, &command).map_err(|wrong| text.wrong(wrong))?;
            (Some(text), entries)
        }
    };
    let mut arguments = Vec::new();
    let mut given = Vec::new();
    for entry in entries.into_iter().filter(|entry| !is_overridden(matches, entry)) {
        arguments.push(argument(entry.flag, entry.value));
        given.push(Given { flag: entry.flag.to_owned(), of: entry.of, at: Some(entry.at) });
    }
    let named = command.get_arguments().filter_map(|arg| Some((arg, arg.get_long()?)));
    for (arg, flag) in named.filter(|(_, flag)| option::is_given(matches, flag)) {
        let takes = arg.get_action().takes_values();
        for value in option::values(matches, flag) {
            arguments.push(argument(flag, takes.then_some(value)));
            given.push(Given { flag: flag.to_owned(), of: kind(flag), at: None });
        }
    }
    // Each was looked at alone.
    let failed = |error: clap::Error| Failure::usage(error.to_string().replace('\n', " "));
    let matches = command.try_get_matches_from(arguments).map_err(failed)?;
    let args = ProxyArgs::from_arg_matches(&matches).map_err(failed)?;
    let settings = Settings { args, matches, given, text };
    let wrong = sound::check(&settings);
    match wrong.is_empty() {
        true => Ok(settings),
        false => Err(settings.wrong(wrong)),
    }
}

impl Settings {
    /// What the file is called, with what follows a name.
    pub(crate) fn prefix(&self) -> String {
        self.text.as_ref().map_or(String::new(), |text| format!("{}: ", text.name))
    }

    /// The `nth` time that it was given.
    pub(crate) fn given(&self, flag: &str, nth: usize) -> Option<&Given> {
        self.given.iter().filter(|given| given.flag == flag).nth(nth)
    }

    fn wrong(&self, mut all: Vec<(Option<&Given>, String)>) -> Failure {
        // Those of the file first, in its order.
        all.sort_by_key(|(given, _)| given.map(|given| given.at.unwrap_or(usize::MAX)));
        let line = |(given, what): (Option<&Given>, String)| match (given, &self.text) {
            (Some(Given { at: Some(at), .. }), Some(text)) => text.at(&Wrong { at: *at, what }),
            (Some(given), _) => format!("--{}: {what}", given.flag),
            (None, _) => format!("{}{what}", self.prefix()),
        };
        told(&all.into_iter().take(sound::MOST).map(line).collect::<Vec<_>>())
    }
}

fn argument(flag: &str, value: Option<OsString>) -> OsString {
    let mut argument = OsString::from(format!("--{flag}"));
    if let Some(value) = value {
        argument.push("=");
        argument.push(value);
    }
    argument
}

/// Which kind of proxy an option of the command line is for.
fn kind(flag: &str) -> Kind {
    let mut kinds = KEYS.iter().filter(|key| key.flag == flag).map(|key| key.of);
    match (kinds.next(), kinds.next()) {
        (Some(kind), None) => kind,
        _ => Kind::Both,
    }
}

/// True if the command line has it, or something that has no place beside it.
fn is_overridden(matches: &ArgMatches, entry: &Entry) -> bool {
    let given = |flag| option::is_given(matches, flag);
    let unchecked = || option::values(matches, "check-path").iter().all(|path| path == "none");
    given(entry.flag)
        || match entry.of {
            Kind::Both => false,
            Kind::Forward => given("to"),
            Kind::Reverse => given("forward"),
            Kind::Checked => given("forward") || (given("check-path") && unchecked()),
        }
}

#[cfg(test)]
mod tests {
    use crate::proxy::keys::KEYS;
    use crate::proxy::option;

    /// Options that a file has no key for, besides `forward`.
    const LOCAL: &[&str] = &["config", "check", "print-config", "exit-with-parent", "forward"];

    #[test]
    fn every_option_has_a_key() {
        let command = option::command();
        for arg in command.get_arguments() {
            let flag = arg.get_long().unwrap();
            let has_key = KEYS.iter().any(|key| key.flag == flag);
            assert_ne!(has_key, LOCAL.contains(&flag), "--{flag}");
            assert_eq!(arg.get_id().as_str(), flag.replace('-', "_"));
        }
        for key in KEYS {
            let arg = option::find(&command, key.flag).unwrap_or_else(|| panic!("{key:?}"));
            let has_default = !arg.get_default_values().is_empty();
            assert!(has_default || !key.example.is_empty() || key.flag == "to", "{key:?}");
        }
    }
}
