//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Command as Definition, CommandFactory, Parser, Subcommand};

pub(crate) mod lab;
pub(crate) mod load;

use crate::load::command::LoadCommand;
use crate::proxy::Proxy;
use crate::serve::Serve;
use crate::settings::arguments::Matches;
use crate::settings::suggestion;
use lab::LabArgs;

/// HTTP server, proxy and load generator with selectable event mechanisms
#[derive(Parser)]
#[command(name = "hearken", version, propagate_version = true, max_term_width = 100)]
#[command(after_help = "\
Examples:
  hearken serve public
  hearken proxy --to http://127.0.0.1:9000
  hearken load http://127.0.0.1:8080/ --rate 2000 --idle 10000
  hearken lab run quick
  hearken mechanisms
  hearken run --events uring-poll -- redis-server

Exit status: 0 on success, 1 on a runtime error, 2 on an invalid argument or config file, 3 if an
objective is not met (load --slo, --find-knee).")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Serve the files of a directory over HTTP
    Serve(Matches<Serve>),
    /// Forward HTTP requests to upstream servers
    Proxy(Matches<Proxy>),
    /// Generate HTTP load at a fixed rate and measure latency
    Load(LoadCommand),
    /// Compare event mechanisms and servers by experiment
    Lab(LabArgs),
    /// List event mechanisms and their availability
    Mechanisms(MechanismsArgs),
    /// Run an unmodified program over an event mechanism
    Run(RunArgs),
    /// Write man pages
    Man(ManArgs),
    /// Print a shell completion script
    Completions(CompletionsArgs),
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  hearken mechanisms
      List the mechanisms, and the reasons why some are not available.
  hearken mechanisms --json | jq -r '.[] | select(.available) | .name'
      Print the names of the available mechanisms.
  hearken mechanisms --explain
      Explain which mechanism '--events auto' selects on this machine.")]
pub(crate) struct MechanismsArgs {
    /// Print a JSON array of objects
    #[arg(long)]
    pub(crate) json: bool,
    /// Explain the selection of `auto`, with its measurements
    #[arg(long, conflicts_with = "json")]
    pub(crate) explain: bool,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  hearken run --events uring-poll -- redis-server
      Run a server that uses epoll over io_uring.
  hearken run --provide devpoll -- program-for-solaris
      Provide /dev/poll only.
  hearken run --events rt-signal --provide poll -- program
      Run the calls of poll(2) and select(2) over real-time signals.")]
pub(crate) struct RunArgs {
    /// Event mechanism, with options [default: auto]
    #[arg(long, value_name = "MECHANISM", default_value = "auto", hide_default_value = true)]
    pub(crate) events: String,
    /// Interfaces to provide to the program
    #[arg(
        long,
        value_name = "INTERFACES",
        value_delimiter = ',',
        default_value = "devpoll,poll,epoll"
    )]
    pub(crate) provide: Vec<Interface>,
    /// Library to preload [default: libhearken-preload.so next to this program or in ../lib]
    #[arg(long, value_name = "FILE")]
    pub(crate) library: Option<PathBuf>,
    /// Program to run, and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}

/// An interface that `hearken run` provides.
#[derive(Clone, Copy, clap::ValueEnum)]
pub(crate) enum Interface {
    /// /dev/poll of Solaris
    #[value(name = "devpoll")]
    DevPoll,
    /// poll(2), ppoll(2), select(2) and pselect(2)
    Poll,
    /// epoll(7)
    Epoll,
}

impl Interface {
    /// Returns the name in `HEARKEN_PRELOAD`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Interface::DevPoll => "devpoll",
            Interface::Poll => "poll",
            Interface::Epoll => "epoll",
        }
    }
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  hearken man ~/.local/share/man/man1
  man hearken-serve")]
pub(crate) struct ManArgs {
    /// Output directory
    #[arg(default_value = "man")]
    pub(crate) dir: PathBuf,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  hearken completions bash > ~/.local/share/bash-completion/completions/hearken
  hearken completions fish > ~/.config/fish/completions/hearken.fish")]
pub(crate) struct CompletionsArgs {
    /// Shell to complete for
    pub(crate) shell: clap_complete::Shell,
}

/// Returns a usage error as one line.
pub(crate) fn error_message(error: &clap::Error) -> String {
    let context = |kind| error.get(kind).map(ToString::to_string).filter(|text| !text.is_empty());
    let argument = context(ContextKind::InvalidArg).unwrap_or_default();
    let value = context(ContextKind::InvalidValue);
    let hint = hint(error);
    match (error.kind(), value, std::error::Error::source(error)) {
        (ErrorKind::ValueValidation, Some(value), Some(reason)) => {
            format!("invalid value '{value}' for '{argument}': {reason}")
        }
        (ErrorKind::InvalidValue, None, _) => format!("missing value for '{argument}'"),
        (ErrorKind::InvalidValue, Some(value), _) => {
            let known = context(ContextKind::ValidValue).unwrap_or_default();
            format!("invalid value '{value}' for '{argument}': expected {known}{hint}")
        }
        (ErrorKind::UnknownArgument, ..) if argument.starts_with('-') => {
            format!("unknown option '{argument}'{hint}")
        }
        (ErrorKind::UnknownArgument, ..) => format!("unexpected argument '{argument}'{hint}"),
        (ErrorKind::InvalidSubcommand, ..) => {
            let command = context(ContextKind::InvalidSubcommand).unwrap_or_default();
            format!("unknown command '{command}'{hint}")
        }
        _ => {
            let text = error.to_string();
            let lines = text.lines().map(str::trim).take_while(|line| {
                !["Usage:", "tip:", "For more"].iter().any(|end| line.starts_with(end))
            });
            let lines: Vec<_> = lines.filter(|line| !line.is_empty()).collect();
            lines.join(" ").trim_start_matches("error: ").to_owned()
        }
    }
}

/// Returns ` (did you mean 'NAME'?)` with the names that clap suggests, or an empty string.
fn hint(error: &clap::Error) -> String {
    let kinds =
        [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand, ContextKind::SuggestedValue];
    let similar: Vec<_> = match kinds.into_iter().find_map(|kind| error.get(kind)) {
        Some(ContextValue::String(name)) => vec![name],
        Some(ContextValue::Strings(names)) => names.iter().collect(),
        _ => Vec::new(),
    };
    let similar: Vec<_> = similar.into_iter().map(|name| format!("'{name}'")).collect();
    match similar.is_empty() {
        true => String::new(),
        false => format!(" (did you mean {}?)", similar.join(" or ")),
    }
}

/// Returns the error of a command line as one line. Unlike [`error_message`], it recognises options that
/// lack their dashes, and mistyped subcommands of `hearken load`.
pub(crate) fn command_line_error(error: &clap::Error, args: &[OsString]) -> String {
    let message = error_message(error);
    if let Some(mistyped) = mistyped_subcommand(args) {
        return mistyped;
    }
    let argument = match error.kind() {
        ErrorKind::UnknownArgument => error.get(ContextKind::InvalidArg),
        // A word after the URL of `hearken load`, which clap takes for a subcommand.
        ErrorKind::ArgumentConflict => error.get(ContextKind::InvalidSubcommand),
        _ => None,
    };
    let Some(argument) = argument.map(ToString::to_string) else { return message };
    let is_cut_off = argument.starts_with('-') && argument.len() == 2;
    // clap reports only the first letter of `-rate`.
    let typed =
        args.iter().skip(1).filter_map(|word| word.to_str()).find(|word| match is_cut_off {
            true => word.starts_with(&argument) && word.len() > 2,
            false => *word == argument,
        });
    let name = typed.unwrap_or(&argument).trim_start_matches('-').split('=').next();
    let name = name.unwrap_or_default();
    let subcommand = args.iter().skip(1).find_map(|word| word.to_str());
    let cli = Cli::command();
    let command = subcommand.and_then(|name| cli.find_subcommand(name));
    let is_option = |command: &Definition| {
        command.get_arguments().any(|arg| arg.get_long() == Some(name) && !arg.is_hide_set())
    };
    match command.is_some_and(is_option) && hint(error).is_empty() {
        true if is_cut_off => format!("unknown option '-{name}' (did you mean '--{name}'?)"),
        true => format!("unexpected argument '{name}' (did you mean '--{name}'?)"),
        false => message,
    }
}

/// Returns the error for a mistyped subcommand of `hearken load`, which clap takes for a URL.
pub(crate) fn mistyped_subcommand(args: &[OsString]) -> Option<String> {
    let mut words = args.iter().skip(1).filter_map(|word| word.to_str());
    let (command, word) = (words.next()?, words.next()?);
    let cli = Cli::command();
    let subcommands = cli.find_subcommand(command).filter(|_| command == "load")?.get_subcommands();
    let hint = suggestion(word, subcommands.map(Definition::get_name));
    let is_url = word.contains(['/', ':', '.']) || word.starts_with('-') || hint.is_empty();
    (!is_url && !hint.ends_with(&format!("'{word}'?)")))
        .then(|| format!("unknown command '{word}'{hint}"))
}
