//! Where agents run, and what starts them there.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::process::Command;
use std::str::FromStr;

use super::ManyArgs;
use crate::Failure;

/// Of the plan, that it passes as an argument: the kernel takes 128 KiB.
const PIECE: usize = 100_000;

/// Agents of a run.
const MOST: u32 = 65_536;

/// Where agents run, and how many.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Where {
    /// In processes on this machine.
    Local(u32),
    /// One on each of so many nodes, by srun.
    Slurm(u32),
    /// By mpirun.
    Mpi(u32),
}

impl Where {
    pub(crate) fn size(self) -> u32 {
        let (Where::Local(size) | Where::Slurm(size) | Where::Mpi(size)) = self;
        size
    }
}

impl fmt::Display for Where {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Where::Local(_) => "this machine",
            Where::Slurm(_) => "Slurm",
            Where::Mpi(_) => "MPI",
        })
    }
}

impl FromStr for Where {
    type Err = String;

    fn from_str(text: &str) -> Result<Where, String> {
        let (kind, size) = text.split_once(':').unwrap_or((text, ""));
        let make = match kind {
            "local" => Where::Local,
            "slurm" => Where::Slurm,
            "mpi" => Where::Mpi,
            _ => return Err("known are slurm:N, mpi:N and local:N".to_owned()),
        };
        match size.parse() {
            Ok(size @ 1..=MOST) => Ok(make(size)),
            _ => Err(format!("say how many agents: {kind}:N, N from 1 to {MOST}")),
        }
    }
}

/// What starts them.
pub(super) fn commands(args: &ManyArgs, place: Where, plan: &str) -> Result<Vec<Command>, Failure> {
    let ours = env::current_exe()
        .map_err(|error| Failure::runtime(format!("where this program is: {error}")))?;
    let binary = args.agent_binary.clone().unwrap_or(ours);
    let variable = |name: &str, program: &str| env::var_os(name).unwrap_or_else(|| program.into());
    let mut base: Vec<OsString> = Vec::new();
    match place {
        Where::Local(_) => {}
        Where::Slurm(size) => {
            base.push(variable("HEARKEN_SRUN", "srun"));
            base.extend(["-N", &size.to_string(), "-n", &size.to_string()].map(OsString::from));
            base.push("--kill-on-bad-exit=1".into());
        }
        Where::Mpi(size) => {
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
    Ok(match place {
        Where::Local(size) => (0..size)
            .map(|rank| command(&["--exit-with-parent", "--rank", &rank.to_string()]))
            .collect(),
        _ => vec![command(&[])],
    })
}

/// The text in pieces that each pass as an argument.
fn pieces(mut text: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let mut end = text.len().min(PIECE);
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
    use super::{PIECE, pieces};

    #[test]
    fn a_long_plan_passes_in_pieces() {
        for text in ["", "a", &"é".repeat(PIECE), &("x".to_owned() + &"é€".repeat(PIECE))] {
            assert_eq!(pieces(text).collect::<String>(), text);
            assert!(pieces(text).all(|piece| piece.len() <= PIECE));
        }
    }
}
