//! The command line.

use std::path::PathBuf;

use clap::error::{ContextKind, ErrorKind};
use clap::{Args, Parser, Subcommand};

pub(crate) mod lab;
pub(crate) mod load;

use crate::load::command::LoadCommand;
use crate::proxy::Proxy;
use crate::serve::Serve;
use crate::settings::arguments::Matches;
use lab::LabArgs;

/// HTTP server, proxy and load generator with selectable event mechanisms
#[derive(Parser)]
#[command(name = "hearken", version, propagate_version = true, max_term_width = 100)]
#[command(after_help = "\
Examples:
  hearken serve public
  hearken proxy --to http://127.0.0.1:9000
  hearken load http://127.0.0.1:8080/ --rate 2000 --idle 10000
  hearken lab quick
  hearken mechanisms

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
    let similar = [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand];
    let similar = similar.into_iter().find_map(context);
    let hint = similar.map_or(String::new(), |similar| format!(" (did you mean '{similar}'?)"));
    match (error.kind(), value, std::error::Error::source(error)) {
        (ErrorKind::ValueValidation, Some(value), Some(reason)) => {
            format!("invalid value '{value}' for '{argument}': {reason}")
        }
        (ErrorKind::InvalidValue, None, _) => format!("missing value for '{argument}'"),
        (ErrorKind::InvalidValue, Some(value), _) => {
            let known = context(ContextKind::ValidValue).unwrap_or_default();
            format!("invalid value '{value}' for '{argument}': expected {known}")
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
