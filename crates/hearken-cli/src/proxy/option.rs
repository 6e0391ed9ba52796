//! The options of `hearken proxy`, as clap has them.

use std::ffi::{OsStr, OsString};
use std::num::{IntErrorKind, ParseIntError};

use clap::error::{ContextKind, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command};

use crate::args::events::Switch;
use crate::args::proxy::ProxyArgs;

/// `hearken proxy` alone.
pub(crate) fn command() -> Command {
    ProxyArgs::augment_args(Command::new("hearken proxy")).no_binary_name(true)
}

/// The one with this long name.
pub(crate) fn find<'a>(command: &'a Command, flag: &str) -> Option<&'a Arg> {
    command.get_arguments().find(|arg| arg.get_long() == Some(flag))
}

/// True if it may be given several times.
pub(crate) fn is_several(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Append)
}

/// True if it is true or false in a file.
pub(crate) fn is_switch(arg: &Arg) -> bool {
    arg.get_value_parser().type_id() == std::any::TypeId::of::<Switch>()
}

/// What it has if it is not given.
pub(crate) fn default(arg: &Arg) -> Option<&str> {
    arg.get_default_values().first().and_then(|value| value.to_str())
}

/// Whether it would take this value, or what is wrong with that.
pub(crate) fn accepts(arg: &Arg, value: &OsStr) -> Result<(), String> {
    // Alone, as what it is combined with is looked at later.
    let alone = Arg::new("it")
        .long("it")
        .action(ArgAction::Set)
        .value_parser(arg.get_value_parser().clone());
    let command = Command::new("it").no_binary_name(true).disable_help_flag(true).arg(alone);
    let mut argument = OsString::from("--it=");
    argument.push(value);
    match command.try_get_matches_from([argument]) {
        Ok(_) => Ok(()),
        Err(error) => Err(value_error(&error)),
    }
}

/// What is wrong with a value.
fn value_error(error: &clap::Error) -> String {
    let known = error.get(ContextKind::ValidValue).map(ToString::to_string);
    match (error.kind(), std::error::Error::source(error), known) {
        (ErrorKind::ValueValidation, Some(source), _) => {
            let number = source.downcast_ref::<ParseIntError>().map(ParseIntError::kind);
            match number {
                Some(IntErrorKind::Zero) => "it is 1 at least".to_owned(),
                Some(IntErrorKind::PosOverflow) => "too large a number".to_owned(),
                Some(_) => "not a whole number that is not negative".to_owned(),
                None => source.to_string(),
            }
        }
        (ErrorKind::InvalidValue, _, Some(known)) if !known.is_empty() => {
            format!("unknown value; write one of {known}")
        }
        _ => "it needs a value".to_owned(),
    }
}

/// True if it was given, and has not only its default.
pub(crate) fn is_given(matches: &ArgMatches, flag: &str) -> bool {
    matches.value_source(&id(flag)) == Some(ValueSource::CommandLine)
}

/// The values it has, given or by default.
pub(crate) fn values(matches: &ArgMatches, flag: &str) -> Vec<OsString> {
    let raw = matches.get_raw(&id(flag));
    raw.into_iter().flatten().map(OsStr::to_owned).collect()
}

/// What clap's derivation calls it.
fn id(flag: &str) -> String {
    flag.replace('-', "_")
}

/// As TOML: a number if it is one as it would be written, else text.
pub(crate) fn typed(text: &str) -> toml::Value {
    match text.parse::<i64>() {
        Ok(number) if number.to_string() == text => number.into(),
        _ => text.into(),
    }
}
