//! Man pages and shell completions, generated from the command line.

use std::fs;
use std::io;
use std::process::ExitCode;

use clap::Command;

use crate::Failure;
use crate::args::{CompletionsArgs, ManArgs};

pub(crate) fn man(args: &ManArgs, command: Command) -> Result<ExitCode, Failure> {
    fs::create_dir_all(&args.dir)
        .and_then(|()| clap_mangen::generate_to(command, &args.dir))
        .map_err(|error| {
            Failure::runtime(format!("cannot write man pages to '{}': {error}", args.dir.display()))
        })?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn completions(
    args: &CompletionsArgs,
    mut command: Command,
) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "hearken", &mut script);
    io::Write::write_all(&mut io::stdout(), &script).map_err(Failure::runtime)?;
    Ok(ExitCode::SUCCESS)
}
