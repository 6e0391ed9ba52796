//! Launchers of agents: srun, mpirun, or this process.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::process::Command;
use std::str::FromStr;

use super::ManyArgs;
use crate::Failure;

/// Maximum size of a piece of the plan in bytes. The kernel limits an argument to 128 KiB.
const MAX_PIECE: usize = 100_000;

/// Maximum number of agents.
const MAX_AGENTS: u32 = 65_536;

/// A launcher and the number of agents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Launcher {
    /// Processes on this machine.
    Local(u32),
    /// srun, with one agent per node.
    Slurm(u32),
    /// mpirun.
    Mpi(u32),
}

impl Launcher {
    /// Returns the number of agents.
    pub(crate) fn size(self) -> u32 {
        let (Launcher::Local(size) | Launcher::Slurm(size) | Launcher::Mpi(size)) = self;
        size
    }
}

impl fmt::Display for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Launcher::Local(_) => "this machine",
            Launcher::Slurm(_) => "Slurm",
            Launcher::Mpi(_) => "MPI",
        })
    }
}

impl FromStr for Launcher {
    type Err = String;

    fn from_str(text: &str) -> Result<Launcher, String> {
        let (kind, size) = text.split_once(':').unwrap_or((text, ""));
        let make = match kind {
            "local" => Launcher::Local,
            "slurm" => Launcher::Slurm,
            "mpi" => Launcher::Mpi,
            _ => return Err("expected slurm:N, mpi:N or local:N".to_owned()),
        };
        match size.parse() {
            Ok(size @ 1..=MAX_AGENTS) => Ok(make(size)),
            _ => Err(format!("expected {kind}:N with N from 1 to {MAX_AGENTS}")),
        }
    }
}

/// Returns the commands that start the agents.
///
/// # Errors
/// The path of this program is unknown, and `--agent-binary` is not set.
pub(super) fn commands(
    args: &ManyArgs,
    launcher: Launcher,
    plan: &str,
) -> Result<Vec<Command>, Failure> {
    let this = env::current_exe()
        .map_err(|error| Failure::runtime(format!("cannot find the path of hearken: {error}")))?;
    let binary = args.agent_binary.clone().unwrap_or(this);
    let variable = |name: &str, program: &str| env::var_os(name).unwrap_or_else(|| program.into());
    let mut base: Vec<OsString> = Vec::new();
    match launcher {
        Launcher::Local(_) => {}
        Launcher::Slurm(size) => {
            base.push(variable("HEARKEN_SRUN", "srun"));
            base.extend(["-N", &size.to_string(), "-n", &size.to_string()].map(OsString::from));
            base.push("--kill-on-bad-exit=1".into());
        }
        Launcher::Mpi(size) => {
            base.push(variable("HEARKEN_MPIRUN", "mpirun"));
            base.extend(["-np", &size.to_string()].map(OsString::from));
        }
    }
    base.extend(args.on_arg.iter().map(OsString::from));
    base.push(binary.into());
    base.extend(["load", "--agent", "--framed"].map(OsString::from));
    base.extend(pieces(plan).map(|piece| format!("--plan-text={piece}").into()));
    let command = |more: &[&str]| {
        let mut command = Command::new(&base[0]);
        command.args(&base[1..]).args(more);
        command
    };
    Ok(match launcher {
        Launcher::Local(size) => (0..size)
            .map(|rank| command(&["--exit-with-parent", "--rank", &rank.to_string()]))
            .collect(),
        _ => vec![command(&[])],
    })
}

/// Splits text into pieces that fit an argument.
fn pieces(mut text: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let mut end = text.len().min(MAX_PIECE);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let (piece, rest) = text.split_at(end);
        text = rest;
        (!piece.is_empty()).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::{MAX_PIECE, pieces};

    #[test]
    fn long_plans_are_split_at_character_boundaries() {
        for text in ["", "a", &"é".repeat(MAX_PIECE), &("x".to_owned() + &"é€".repeat(MAX_PIECE))]
        {
            assert_eq!(pieces(text).collect::<String>(), text);
            assert!(pieces(text).all(|piece| piece.len() <= MAX_PIECE));
        }
    }
}
