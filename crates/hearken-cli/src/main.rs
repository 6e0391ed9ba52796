//! `hearken serve | proxy | load | lab | mechanisms`.

use std::error::Error;
use std::process::ExitCode;

use clap::CommandFactory;

mod args;
mod lab;
mod live;
mod load;
mod load_agents;
mod load_knee;
mod load_plan;
mod lockstep;
mod manual;
mod mechanisms;
mod proxy;
mod serve;
mod signals;
mod size;
mod time;
mod watched;

use args::{Cli, Command};

/// What a command that failed says, and the status it exits with: 2 where what was asked for cannot
/// be, 1 where it went wrong on the way.
pub(crate) struct Failure {
    error: Box<dyn Error>,
    status: u8,
}

impl Failure {
    /// It cannot be done as asked.
    pub(crate) fn usage(error: impl Into<Box<dyn Error>>) -> Failure {
        Failure { error: error.into(), status: 2 }
    }

    /// It went wrong.
    pub(crate) fn runtime(error: impl Into<Box<dyn Error>>) -> Failure {
        Failure { error: error.into(), status: 1 }
    }

    /// The same, of one of several.
    pub(crate) fn of(self, whose: &str) -> Failure {
        Failure { error: format!("{whose}: {}", self.error).into(), status: self.status }
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
        Command::Serve(args) => serve::run(args),
        Command::Proxy(args) => proxy::run(&args),
        Command::Load(args) => load::run(args),
        Command::Lab(args) => lab::run(args),
        Command::Mechanisms(args) => mechanisms::run(&args),
        Command::Man(args) => manual::man(&args, Cli::command()),
        Command::Completions(args) => manual::completions(&args, Cli::command()),
    }
}
