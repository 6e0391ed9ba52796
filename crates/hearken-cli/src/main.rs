//! The `hearken` command.

use std::error::Error;
use std::process::ExitCode;

use clap::CommandFactory;

mod args;
#[cfg(test)]
mod fuzz;
mod lab;
mod live;
mod load;
mod load_agents;
mod load_knee;
mod load_plan;
mod load_sweep;
mod load_trials;
mod lockstep;
mod manual;
mod mechanisms;
mod proxy;
mod run;
mod serve;
mod server_settings;
mod settings;
mod signals;
mod size;
mod time;
mod watched;

use args::{Cli, Command};

/// An error message and an exit status.
pub(crate) struct Failure {
    error: Box<dyn Error>,
    status: u8,
}

impl Failure {
    /// Creates a failure of an invalid argument or config file.
    pub(crate) fn usage(error: impl Into<Box<dyn Error>>) -> Failure {
        Failure { error: error.into(), status: 2 }
    }

    /// Creates a failure at run time.
    pub(crate) fn runtime(error: impl Into<Box<dyn Error>>) -> Failure {
        Failure { error: error.into(), status: 1 }
    }

    /// Prefixes the message with the name of the part that failed.
    pub(crate) fn of(self, part: &str) -> Failure {
        Failure { error: format!("{part}: {}", self.error).into(), status: self.status }
    }
}

fn main() -> ExitCode {
    match load_plan::command_line().and_then(run) {
        Ok(status) => status,
        Err(Failure { error, status }) => {
            eprintln!("hearken: {error}");
            ExitCode::from(status)
        }
    }
}

fn run(cli: Cli) -> Result<ExitCode, Failure> {
    match cli.command {
        Command::Serve(args) => serve::run(&args),
        Command::Proxy(args) => proxy::run(&args),
        Command::Load(args) => load::run(args),
        Command::Lab(args) => lab::run(args),
        Command::Mechanisms(args) => mechanisms::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Man(args) => manual::man(&args, Cli::command()),
        Command::Completions(args) => manual::completions(&args, Cli::command()),
    }
}
