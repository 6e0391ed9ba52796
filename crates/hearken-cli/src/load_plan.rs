//! Plans: TOML files with options of `hearken load`. Keys are the names of the options.
//!
//! A plan is converted to arguments in front of those of the command line, and clap parses both by one definition. An
//! option on the command line overrides the same option of the plan, and those that conflict with it.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, CommandFactory, FromArgMatches};

use crate::Failure;
use crate::args::load::LoadArgs;
use crate::args::{self, Cli, error_message as one_line};
use crate::load::command::LoadCommand;

pub(crate) mod read;
mod write;

pub(crate) use write::{check, print, with_files};

/// Options that concern this process only. They are neither part of plans nor sent to agents.
pub(crate) const LOCAL: &[&str] = &[
    "plan",
    "plan-text",
    "check",
    "print-plan",
    "agent",
    "rank",
    "framed",
    "on",
    "on-arg",
    "agent-binary",
    "json",
    "html",
    "csv",
    "hlog",
    "junit",
    "github-summary",
    "announce",
    "watch",
    "watch-interval",
    "progress",
    "on-demand",
    "exit-with-parent",
    "help",
    "version",
];

/// Options with files that are not sent to agents, because all users of a machine can read arguments.
const SECRET: &[&str] = &["cert", "key"];

/// An option that the plan or the command line sets.
#[derive(Clone, Debug)]
pub(crate) struct SetOption {
    /// The long flag without dashes, as in a plan.
    pub(crate) name: String,
    /// The values; empty for a flag without value.
    pub(crate) values: Vec<OsString>,
    /// The number of commas before a file name in the values, if they contain one.
    pub(crate) path: Option<usize>,
    /// Whether the file must stay on its machine.
    secret: bool,
    /// Whether the option is repeatable.
    repeatable: bool,
    /// Whether the option has no flag.
    positional: bool,
}

/// The options that are set, in the order of their definition.
pub(crate) type SetOptions = Vec<SetOption>;

/// Parses the command line, with the options of the plan that it names.
///
/// Prints help and exits if the command line requests it.
pub(crate) fn command_line() -> Result<Cli, Failure> {
    let args: Vec<OsString> = env::args_os().collect();
    Ok(parse(&args)?.0)
}

/// Parses the arguments of a load, with the options of the plan that they name. Also returns the names of
/// all options that are set.
pub(crate) fn load_args(words: &[OsString]) -> Result<(LoadArgs, Vec<String>), Failure> {
    let command = ["hearken".into(), "load".into()];
    let (cli, matches) = parse(&[&command, words].concat())?;
    let (args::Command::Load(LoadCommand::Run(load)), Some(matches)) =
        (cli.command, matches.subcommand_matches("load"))
    else {
        return Err(Failure::usage("expected a URL or a plan, and options of hearken load"));
    };
    let command = load_command();
    let set = command.get_arguments().filter(|arg| is_set(matches, arg));
    Ok((*load, set.map(|arg| name(arg).to_owned()).collect()))
}

fn parse(args: &[OsString]) -> Result<(Cli, ArgMatches), Failure> {
    let (matches, plan) = match planned(args)? {
        Some((args, plan)) => (Cli::command().try_get_matches_from(args), Some(plan)),
        None => (Cli::command().try_get_matches_from(args), None),
    };
    let parsed = matches.and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, matches)));
    let (mut cli, matches) = match (parsed, plan) {
        (Ok(parsed), _) => parsed,
        (Err(error), Some(plan)) if error.use_stderr() => {
            return Err(Failure::usage(format!("{plan}: {}", one_line(&error))));
        }
        (Err(error), _) if is_invalid(&error) => {
            return Err(Failure::usage(args::command_line_error(&error, args)));
        }
        (Err(error), _) => error.exit(),
    };
    if let (args::Command::Load(LoadCommand::Run(load)), Some(matches)) =
        (&mut cli.command, matches.subcommand_matches("load"))
    {
        if let Some(mistyped) = args::mistyped_subcommand(args) {
            return Err(Failure::usage(mistyped));
        }
        load.options = set_options(matches);
    }
    Ok((cli, matches))
}

/// Returns the arguments with those of the plan inserted, and the name of the plan.
fn planned(args: &[OsString]) -> Result<Option<(Vec<OsString>, String)>, Failure> {
    // Errors are reported later, when the command line is complete.
    let Ok(matches) = Cli::command().ignore_errors(true).try_get_matches_from(args) else {
        return Ok(None);
    };
    let Some(matches) = matches.subcommand_matches("load") else { return Ok(None) };
    let path = matches.try_get_one::<PathBuf>("plan").ok().flatten();
    let pieces = matches.try_get_many::<String>("plan_text").ok().flatten();
    let (text, name, dir) = match (path, pieces) {
        (Some(path), _) => {
            let name =
                if path == Path::new("-") { "the plan".into() } else { path.display().to_string() };
            (read::text(path)?, name, path.parent().map(Path::to_owned).unwrap_or_default())
        }
        (None, Some(pieces)) => {
            (pieces.map(String::as_str).collect(), "the plan".to_owned(), PathBuf::new())
        }
        (None, None) => return Ok(None),
    };
    let command = load_command();
    let on_command_line: Vec<&Arg> =
        command.get_arguments().filter(|arg| is_set(matches, arg)).collect();
    let overridden = |arg: &Arg| on_command_line.iter().any(|over| excludes(&command, over, arg));
    let mut all = args.to_vec();
    let at = args.iter().position(|arg| arg == "load").map_or(args.len(), |at| at + 1);
    let plan = read::plan(&text, &name, &dir, &command)?;
    let plan = plan.into_iter().filter(|option| !overridden(option.arg));
    all.splice(at..at, plan.flat_map(|option| option.arguments));
    Ok(Some((all, name)))
}

/// Returns clap's definition of `hearken load`.
pub(crate) fn load_command() -> Command {
    let mut cli = Cli::command();
    cli.build();
    cli.find_subcommand("load").cloned().unwrap_or(cli)
}

fn is_set(matches: &ArgMatches, arg: &Arg) -> bool {
    let source = matches
        .try_contains_id(arg.get_id().as_str())
        .is_ok()
        .then(|| matches.value_source(arg.get_id().as_str()));
    source.flatten() == Some(ValueSource::CommandLine)
}

/// Returns whether `arg` conflicts with `over`.
fn excludes(command: &Command, over: &Arg, arg: &Arg) -> bool {
    let conflict = |a: &Arg, b: &Arg| {
        command.get_arg_conflicts_with(a).iter().any(|other| other.get_id() == b.get_id())
    };
    // Members of an exclusive group.
    let alternative = command.get_groups().any(|group| {
        let among = |arg: &Arg| group.get_args().any(|id| id == arg.get_id());
        !group.clone().is_multiple() && among(over) && among(arg)
    });
    over.get_id() == arg.get_id() || alternative || conflict(over, arg) || conflict(arg, over)
}

/// Returns the name of an option in a plan.
fn name(arg: &Arg) -> &str {
    arg.get_long().unwrap_or(arg.get_id().as_str())
}

/// Returns the number of commas before a file name in a value, according to the placeholder.
fn path(arg: &Arg) -> Option<usize> {
    if arg.get_value_parser().type_id() == std::any::TypeId::of::<PathBuf>() {
        return Some(0);
    }
    let form = arg.get_value_names().and_then(<[_]>::first)?;
    form.ends_with(",FILE").then(|| form.matches(',').count())
}

/// Replaces the file name in a value by the result of `name`, unless it is `-` (a stream).
fn with_path<E>(
    value: &str,
    commas: usize,
    name: impl FnOnce(&str) -> Result<String, E>,
) -> Result<String, E> {
    // A value with fewer commas is rejected later.
    let at = match commas {
        0 => Some(0),
        _ => value.match_indices(',').nth(commas - 1).map(|(at, _)| at + 1),
    };
    let Some((before, path)) = at.map(|at| value.split_at(at)) else { return Ok(value.to_owned()) };
    match path {
        "" | "-" => Ok(value.to_owned()),
        _ => Ok(format!("{before}{}", name(path)?)),
    }
}

fn is_flag(arg: &Arg) -> bool {
    !arg.get_action().takes_values()
}

/// Returns the options of the run that are set.
fn set_options(matches: &ArgMatches) -> SetOptions {
    let command = load_command();
    let of_run = command.get_arguments().filter(|arg| !LOCAL.contains(&name(arg)));
    of_run
        .filter(|arg| is_set(matches, arg))
        .map(|arg| {
            let raw = matches.get_raw(arg.get_id().as_str());
            SetOption {
                name: name(arg).to_owned(),
                values: match is_flag(arg) {
                    true => Vec::new(),
                    false => raw.into_iter().flatten().map(OsStr::to_owned).collect(),
                },
                path: path(arg),
                secret: SECRET.contains(&name(arg)),
                repeatable: matches!(arg.get_action(), ArgAction::Append),
                positional: arg.is_positional(),
            }
        })
        .collect()
}

/// Returns whether the command line is invalid. Otherwise clap prints help.
fn is_invalid(error: &clap::Error) -> bool {
    let kind = error.kind();
    error.use_stderr() && kind != ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::fs;
    use std::path::{Path, PathBuf};

    use clap::{Arg, ArgAction, Command, CommandFactory, value_parser};
    use proptest::prelude::*;

    use super::{LOCAL, SECRET, SetOption, load_command, name, path, read, with_path, write};
    use crate::Failure;
    use crate::args::Cli;

    fn command() -> Command {
        let text = |name: &'static str| Arg::new(name).long(name);
        Command::new("load")
            .arg(text("word"))
            .arg(text("words").action(ArgAction::Append))
            .arg(text("flag").action(ArgAction::SetTrue))
            .arg(text("file").value_parser(value_parser!(PathBuf)))
    }

    fn arguments(plan: &str, dir: &str) -> Vec<OsString> {
        let command = command();
        let read = read::plan(plan, "plan", Path::new(dir), &command);
        let read = read.map_err(|failure: Failure| failure.error.to_string()).unwrap();
        read.into_iter().flat_map(|option| option.arguments).collect()
    }

    fn option(name: &str, values: &[&str], path: Option<usize>) -> SetOption {
        SetOption {
            name: name.to_owned(),
            values: values.iter().map(OsString::from).collect(),
            path,
            secret: false,
            repeatable: name == "words",
            positional: false,
        }
    }

    proptest! {
        #[test]
        fn any_text_survives_a_plan(word in ".*", words in prop::collection::vec("[0-9a-z.\\-\u{7f}\\n\"]*", 1..4)) {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let options = [option("word", &[&word], None), option("words", &words, None)];
            let plan = write::print(&options).map_err(|failure| failure.error.to_string()).unwrap();
            let mut expected = vec![OsString::from(format!("--word={word}"))];
            expected.extend(words.iter().map(|word| OsString::from(format!("--words={word}"))));
            prop_assert_eq!(arguments(&plan, ""), expected);
        }

        #[test]
        fn arbitrary_plans_do_not_panic(plan in ".*", key in "[a-z]{1,5}", value in ".{0,20}") {
            let command = command();
            let _ = read::plan(&plan, "plan", Path::new(""), &command);
            let _ = read::plan(&format!("{key} = {value}"), "plan", Path::new(""), &command);
        }
    }

    #[test]
    fn file_names_are_relative_to_the_plan() {
        assert_eq!(arguments("file = 'x'\n", "dir/below"), ["--file=dir/below/x"]);
        assert_eq!(arguments("file = '/x'\n", "dir"), ["--file=/x"]);
        assert_eq!(arguments("file = '-'\n", "dir"), ["--file=-"]);
    }

    #[test]
    fn file_names_may_follow_commas() {
        let named = |value: &str, commas| {
            with_path(value, commas, |name| Ok::<_, ()>(format!("<{name}>"))).unwrap()
        };
        assert_eq!(named("a,b", 0), "<a,b>");
        assert_eq!(named("y,a,b", 1), "y,<a,b>");
        assert_eq!(named("3,0.5,a", 2), "3,0.5,<a>");
        assert_eq!(named("3,a", 2), "3,a");
        assert_eq!(named("y,-", 1), "y,-");
        let command = load_command();
        let commas = |of: &str| path(command.get_arguments().find(|arg| name(arg) == of).unwrap());
        assert_eq!([commas("wlog"), commas("wsesslog")], [Some(1), Some(2)]);
        assert_eq!([commas("body-file"), commas("rate")], [Some(0), None]);
    }

    #[test]
    fn plans_for_agents_contain_files() {
        let dir = tempfile::TempDir::new().unwrap();
        let [small, large] = ["small", "large"].map(|name| dir.path().join(name));
        fs::write(&small, b"\0\xff here").unwrap();
        fs::write(&large, vec![b'x'; 1 << 20]).unwrap();
        let carry = |path: &Path| {
            let options =
                [option("flag", &[], None), option("file", &[path.to_str().unwrap()], Some(0))];
            write::with_files(&options).map_err(|failure| failure.error.to_string())
        };
        let (plan, left) = carry(&small).unwrap();
        let arguments_of = arguments(&plan, "elsewhere");
        let path = arguments_of[1].to_str().unwrap().strip_prefix("--file=").unwrap();
        assert!(left.is_empty() && !path.starts_with(dir.path().to_str().unwrap()), "{path}");
        // The file can be opened repeatedly.
        for _ in 0..2 {
            assert_eq!(fs::read(path).unwrap(), b"\0\xff here");
        }
        let (plan, left) = carry(&large).unwrap();
        assert_eq!(left, [large.to_str().unwrap()]);
        assert_eq!(arguments(&plan, "")[1], *format!("--file={}", large.display()));
        assert!(carry(&dir.path().join("none")).unwrap_err().contains("--file: cannot read"));
    }

    #[test]
    fn local_options_exist() {
        let command = load_command();
        for local in LOCAL.iter().chain(SECRET) {
            assert!(command.get_arguments().any(|arg| name(arg) == *local), "--{local}");
        }
        assert!(Cli::command().find_subcommand("load").is_some());
    }
}
