//! A run plan: a file that has options of `hearken load`, under their own names.
//!
//! There is no second list of them. What a plan says becomes arguments that stand before those of the
//! command line, and clap parses both by one definition. An option that is given on the command line
//! wins over the plan's, and over those of the plan that it cannot be used with.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, CommandFactory, FromArgMatches};

use crate::Failure;
use crate::args::{self, Cli};
use crate::load::command::LoadCommand;

mod read;
mod write;

pub(crate) use write::{check, print, with_files};

/// Options of this process and not of the run: no plan has them, and no agent is handed them.
const LOCAL: &[&str] = &[
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
    "announce",
    "watch",
    "watch-interval",
    "progress",
    "on-demand",
    "exit-with-parent",
    "help",
    "version",
];

/// Options whose files are not sent along: arguments can be seen by everyone on a machine.
const SECRET: &[&str] = &["cert", "key"];

/// An option that was given, by the plan or the command line.
#[derive(Clone, Debug)]
pub(crate) struct Given {
    /// As in a plan: the long flag without its dashes.
    pub(crate) name: String,
    /// None of an option that is on or off.
    pub(crate) values: Vec<OsString>,
    /// Where in its values the name of a file begins, if it does: after so many commas.
    pub(crate) path: Option<usize>,
    /// True if what the file has stays on the machine where it is.
    secret: bool,
    /// True if it may be given several times.
    several: bool,
    /// True of what has no name on the command line.
    positional: bool,
}

/// What `load` was given, in the order of its definition.
pub(crate) type AllGiven = Vec<Given>;

/// The command line, with the plan that it names, if it names one.
pub(crate) fn command_line() -> Result<Cli, Failure> {
    let args: Vec<OsString> = env::args_os().collect();
    let (matches, plan) = match planned(&args)? {
        Some((args, plan)) => (Cli::command().try_get_matches_from(args), Some(plan)),
        None => (Cli::command().try_get_matches_from(&args), None),
    };
    let parsed = matches.and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, matches)));
    let (mut cli, matches) = match (parsed, plan) {
        (Ok(parsed), _) => parsed,
        (Err(error), Some(plan)) if error.use_stderr() => {
            return Err(Failure::usage(format!("{plan}: {}", one_line(&error))));
        }
        (Err(error), _) if is_wrong(&error) => {
            return Err(Failure::usage(format!("{} (see --help)", one_line(&error))));
        }
        (Err(error), _) => error.exit(),
    };
    if let (args::Command::Load(LoadCommand::Run(load)), Some(matches)) =
        (&mut cli.command, matches.subcommand_matches("load"))
    {
        load.given = given(matches);
    }
    Ok(cli)
}

/// The arguments with those of the plan before them, and what the plan is called.
fn planned(args: &[OsString]) -> Result<Option<(Vec<OsString>, String)>, Failure> {
    // What is wrong with the command line is told when all of it is there.
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
        command.get_arguments().filter(|arg| is_given(matches, arg)).collect();
    let overridden = |arg: &Arg| on_command_line.iter().any(|over| excludes(&command, over, arg));
    let mut all = args.to_vec();
    let at = args.iter().position(|arg| arg == "load").map_or(args.len(), |at| at + 1);
    let plan = read::plan(&text, &name, &dir, &command)?;
    let plan = plan.into_iter().filter(|option| !overridden(option.arg));
    all.splice(at..at, plan.flat_map(|option| option.arguments));
    Ok(Some((all, name)))
}

/// `hearken load`, as clap has it.
fn load_command() -> Command {
    let mut cli = Cli::command();
    cli.build();
    cli.find_subcommand("load").cloned().unwrap_or(cli)
}

fn is_given(matches: &ArgMatches, arg: &Arg) -> bool {
    let source = matches
        .try_contains_id(arg.get_id().as_str())
        .is_ok()
        .then(|| matches.value_source(arg.get_id().as_str()));
    source.flatten() == Some(ValueSource::CommandLine)
}

/// True if `arg` has no place beside `over`.
fn excludes(command: &Command, over: &Arg, arg: &Arg) -> bool {
    let conflict = |a: &Arg, b: &Arg| {
        command.get_arg_conflicts_with(a).iter().any(|other| other.get_id() == b.get_id())
    };
    // One of several.
    let alternative = command.get_groups().any(|group| {
        let among = |arg: &Arg| group.get_args().any(|id| id == arg.get_id());
        !group.clone().is_multiple() && among(over) && among(arg)
    });
    over.get_id() == arg.get_id() || alternative || conflict(over, arg) || conflict(arg, over)
}

/// What a plan calls it.
fn name(arg: &Arg) -> &str {
    arg.get_long().unwrap_or(arg.get_id().as_str())
}

/// Where the name of a file begins in a value: after so many commas, as its placeholder says.
fn path(arg: &Arg) -> Option<usize> {
    if arg.get_value_parser().type_id() == std::any::TypeId::of::<PathBuf>() {
        return Some(0);
    }
    let form = arg.get_value_names().and_then(<[_]>::first)?;
    form.ends_with(",FILE").then(|| form.matches(',').count())
}

/// The value with the name of a file in it as `name` has it; `-` stands for a stream.
fn with_path<E>(
    value: &str,
    commas: usize,
    name: impl FnOnce(&str) -> Result<String, E>,
) -> Result<String, E> {
    // Where there are fewer, it is refused later.
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

fn given(matches: &ArgMatches) -> AllGiven {
    let command = load_command();
    let of_run = command.get_arguments().filter(|arg| !LOCAL.contains(&name(arg)));
    let given = of_run.filter(|arg| is_given(matches, arg));
    given
        .map(|arg| {
            let raw = matches.get_raw(arg.get_id().as_str());
            Given {
                name: name(arg).to_owned(),
                values: match is_flag(arg) {
                    true => Vec::new(),
                    false => raw.into_iter().flatten().map(OsStr::to_owned).collect(),
                },
                path: path(arg),
                secret: SECRET.contains(&name(arg)),
                several: matches!(arg.get_action(), ArgAction::Append),
                positional: arg.is_positional(),
            }
        })
        .collect()
}

/// Whether the command line is wrong; else the help was asked for, or is the answer.
fn is_wrong(error: &clap::Error) -> bool {
    let kind = error.kind();
    error.use_stderr() && kind != ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
}

/// What clap says, without its advice.
fn one_line(error: &clap::Error) -> String {
    if let (ErrorKind::ValueValidation, Some(source)) =
        (error.kind(), std::error::Error::source(error))
    {
        return format!("{}: {source}", invalid(error));
    }
    let text = error.to_string();
    let lines = text
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("tip:"));
    let lines: Vec<_> =
        lines.filter(|line| !line.is_empty() && !line.starts_with("For more")).collect();
    lines.join(" ").trim_start_matches("error: ").to_owned()
}

/// The option and its value.
fn invalid(error: &clap::Error) -> String {
    use clap::error::ContextKind::{InvalidArg, InvalidValue};
    let of = |kind| error.get(kind).map(ToString::to_string).unwrap_or_default();
    format!("\"{}\" for {}", of(InvalidValue), of(InvalidArg))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::fs;
    use std::path::{Path, PathBuf};

    use clap::{Arg, ArgAction, Command, CommandFactory, value_parser};
    use proptest::prelude::*;

    use super::{Given, LOCAL, SECRET, load_command, name, path, read, with_path, write};
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

    fn option(name: &str, values: &[&str], path: Option<usize>) -> Given {
        Given {
            name: name.to_owned(),
            values: values.iter().map(OsString::from).collect(),
            path,
            secret: false,
            several: name == "words",
            positional: false,
        }
    }

    proptest! {
        #[test]
        fn any_text_passes(word in ".*", words in prop::collection::vec("[0-9a-z.\\-\u{7f}\\n\"]*", 1..4)) {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let given = [option("word", &[&word], None), option("words", &words, None)];
            let plan = write::print(&given).map_err(|failure| failure.error.to_string()).unwrap();
            let mut expected = vec![OsString::from(format!("--word={word}"))];
            expected.extend(words.iter().map(|word| OsString::from(format!("--words={word}"))));
            prop_assert_eq!(arguments(&plan, ""), expected);
        }

        #[test]
        fn nothing_makes_it_panic(plan in ".*", key in "[a-z]{1,5}", value in ".{0,20}") {
            let command = command();
            let _ = read::plan(&plan, "plan", Path::new(""), &command);
            let _ = read::plan(&format!("{key} = {value}"), "plan", Path::new(""), &command);
        }
    }

    #[test]
    fn names_of_files_are_relative_to_the_plan() {
        assert_eq!(arguments("file = 'x'\n", "dir/below"), ["--file=dir/below/x"]);
        assert_eq!(arguments("file = '/x'\n", "dir"), ["--file=/x"]);
        assert_eq!(arguments("file = '-'\n", "dir"), ["--file=-"]);
    }

    #[test]
    fn names_of_files_may_follow_commas() {
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
    fn a_plan_for_agents_carries_its_files() {
        let dir = tempfile::TempDir::new().unwrap();
        let [small, large] = ["small", "large"].map(|name| dir.path().join(name));
        fs::write(&small, b"\0\xff here").unwrap();
        fs::write(&large, vec![b'x'; 1 << 20]).unwrap();
        let carry = |path: &Path| {
            let given =
                [option("flag", &[], None), option("file", &[path.to_str().unwrap()], Some(0))];
            write::with_files(&given).map_err(|failure| failure.error.to_string())
        };
        let (plan, left) = carry(&small).unwrap();
        let arguments_of = arguments(&plan, "elsewhere");
        let path = arguments_of[1].to_str().unwrap().strip_prefix("--file=").unwrap();
        assert!(left.is_empty() && !path.starts_with(dir.path().to_str().unwrap()), "{path}");
        // As often as it is opened.
        for _ in 0..2 {
            assert_eq!(fs::read(path).unwrap(), b"\0\xff here");
        }
        let (plan, left) = carry(&large).unwrap();
        assert_eq!(left, [large.to_str().unwrap()]);
        assert_eq!(arguments(&plan, "")[1], *format!("--file={}", large.display()));
        assert!(carry(&dir.path().join("none")).unwrap_err().contains("--file: cannot read"));
    }

    #[test]
    fn options_of_a_process_are_options() {
        let command = load_command();
        for local in LOCAL.iter().chain(SECRET) {
            assert!(command.get_arguments().any(|arg| name(arg) == *local), "--{local}");
        }
        assert!(Cli::command().find_subcommand("load").is_some());
    }
}
