//! `hearken load specweb`: creates the files of the SPECweb99-like mix.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use hearken_load::specweb::{create, directories_for};

use super::command::SpecwebArgs;
use super::print;
use crate::Failure;

/// Runs `hearken load specweb`.
pub(super) fn run(args: &SpecwebArgs) -> Result<ExitCode, Failure> {
    let by_connections = || args.connections.map(directories_for);
    let directories = args.directories.or_else(by_connections).unwrap_or_default();
    let is_terminal = io::stderr().is_terminal();
    let mut progress = |created: u32| {
        if is_terminal {
            let _ = write!(io::stderr(), "\r{created} of {directories} directories");
        }
    };
    let made = create(&args.make, directories, &mut progress);
    if is_terminal {
        let _ = writeln!(io::stderr());
    }
    let made = made.map_err(Failure::usage)?;
    print(&format!(
        "{directories} directories in {}: {} files written, {} kept, {:.1} MB in total\n",
        args.make.display(),
        made.written,
        made.existing,
        made.bytes as f64 / 1e6
    ));
    Ok(ExitCode::SUCCESS)
}
