//! `hearken run`: an unmodified program over any mechanism.

use std::env;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use hearken::mechanism::{AUTO, auto, find};

use crate::Failure;
use crate::args::RunArgs;

/// The names of the library: installed, and as cargo builds it.
const LIBRARY: [&str; 2] = ["libhearken-preload.so", "libhearken_preload.so"];

pub(crate) fn run(args: &RunArgs) -> Result<ExitCode, Failure> {
    let spec = match args.events.as_str() {
        AUTO => auto::ranking().best().clone(),
        events => find(events).map_err(Failure::usage)?,
    };
    spec.probe().map_err(|reason| {
        Failure::runtime(format!("mechanism {spec} is not available: {reason}"))
    })?;
    let library = match &args.library {
        Some(library) if library.is_file() => library.clone(),
        Some(library) => {
            return Err(Failure::usage(format!("cannot find '{}'", library.display())));
        }
        None => library()?,
    };
    let mut preload = library.into_os_string();
    if let Some(others) = env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let interfaces: Vec<&str> = args.provide.iter().map(|interface| interface.name()).collect();
    let [program, arguments @ ..] = args.program.as_slice() else {
        return Err(Failure::usage("missing program"));
    };
    let mut command = Command::new(program);
    command.args(arguments);
    command.env("LD_PRELOAD", preload);
    command.env("HEARKEN_EVENTS", spec.to_string());
    command.env("HEARKEN_PRELOAD", interfaces.join(","));
    // It returns only if it fails.
    let error = command.exec();
    Err(Failure::runtime(format!("cannot run '{}': {error}", Path::new(program).display())))
}

/// Returns the library in the directory of this program, or in `../lib`.
fn library() -> Result<PathBuf, Failure> {
    let program = env::current_exe().map_err(Failure::runtime)?;
    let directory = program.parent().unwrap_or(Path::new("/"));
    let directories = [directory.to_path_buf(), directory.join("../lib")];
    let mut candidates =
        directories.iter().flat_map(|directory| LIBRARY.map(|name| directory.join(name)));
    candidates.find(|candidate| candidate.is_file()).ok_or_else(|| {
        Failure::runtime(format!(
            "cannot find '{}' next to '{}' or in '../lib': install it with scripts/install-c, or \
             name it with --library",
            LIBRARY[0],
            program.display()
        ))
    })
}
