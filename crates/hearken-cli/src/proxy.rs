//! `hearken proxy`.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{ArgMatches, Args, Command, Error, FromArgMatches};

use crate::args::proxy::ProxyArgs;
use crate::{Failure, serve, signals};

mod config;
mod file;
mod keys;
mod option;
pub(crate) mod perhaps;
mod place;
mod print;
pub(crate) mod rule;
mod settings;
mod sound;
#[cfg(test)]
mod tests;
pub(crate) mod to;
pub(crate) mod values;

/// The command line, to which a file is added before it is turned into settings.
pub(crate) struct ProxyCommand(ArgMatches);

impl Args for ProxyCommand {
    fn augment_args(command: Command) -> Command {
        ProxyArgs::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        ProxyArgs::augment_args_for_update(command)
    }
}

impl FromArgMatches for ProxyCommand {
    fn from_arg_matches(matches: &ArgMatches) -> Result<ProxyCommand, Error> {
        Ok(ProxyCommand(matches.clone()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0 = matches.clone();
        Ok(())
    }
}

pub(crate) fn run(command: &ProxyCommand) -> Result<ExitCode, Failure> {
    let settings = settings::settle(&command.0)?;
    if settings.args.print_config {
        return say(&print::print(&settings)?);
    }
    let prefix = settings.prefix();
    let args = settings.args;
    if args.check {
        let summary = config::summary(&args);
        return say(&format!("{prefix}the configuration is right: {summary}\n"));
    }
    if args.exit_with_parent {
        signals::exit_with_parent().map_err(Failure::runtime)?;
    }
    signals::limit_queue(args.how.rt_queue)?;
    let destination = config::destination(&args);
    serve::serve(&config::config(args), |server| {
        format!("proxying on http://{} {destination} ({})\n", server.addr(), serve::means(server))
    })
}

fn say(text: &str) -> Result<ExitCode, Failure> {
    io::stdout().write_all(text.as_bytes()).map_err(Failure::runtime)?;
    Ok(ExitCode::SUCCESS)
}
