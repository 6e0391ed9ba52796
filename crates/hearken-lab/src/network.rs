//! A network namespace with an emulated network: delay and loss by netem(8).
//!
//! The thread that starts servers and loads moves to a new namespace, and they inherit it. The kernel removes the
//! namespace after its last process.

use std::process::Command;

use nix::sched::{CloneFlags, unshare};

use crate::error::LabError;

/// Value of a network without delay and loss.
pub(crate) const NONE: &str = "none";

/// Moves the calling thread to a new network namespace with a loopback device.
///
/// # Errors
/// The thread has no permission (CAP_SYS_ADMIN), or `ip` is not installed.
pub(crate) fn enter() -> Result<(), LabError> {
    unshare(CloneFlags::CLONE_NEWNET).map_err(|error| LabError::System {
        action: "create a network namespace (unshare)".into(),
        source: error.into(),
    })?;
    command("ip", &["link", "set", "lo", "up"])
}

/// Sets the properties of the network, as arguments of `tc qdisc replace dev lo root netem`.
///
/// # Errors
/// `tc` is not installed, or the kernel has no netem.
pub(crate) fn set(properties: &str) -> Result<(), LabError> {
    // A device without a queueing discipline has nothing to delete.
    let _ = command("tc", &["qdisc", "del", "dev", "lo", "root"]);
    if properties == NONE {
        return Ok(());
    }
    let words: Vec<&str> = ["qdisc", "add", "dev", "lo", "root", "netem", "limit", "100000"]
        .into_iter()
        .chain(properties.split_whitespace())
        .collect();
    command("tc", &words)
}

/// Returns why this machine has no emulated network.
pub(crate) fn unavailable() -> Option<String> {
    // In a thread of its own, whose namespace ends with it.
    let tried = std::thread::spawn(|| enter().and_then(|()| set("delay 1ms"))).join();
    match tried {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(_) => Some("a thread ended unexpectedly".to_owned()),
    }
}

fn command(program: &str, arguments: &[&str]) -> Result<(), LabError> {
    let line = format!("{program} {}", arguments.join(" "));
    let output = Command::new(program).args(arguments).output().map_err(|source| {
        LabError::System { action: format!("start '{line}' (package: iproute2)"), source }
    })?;
    let error = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    match output.status.success() {
        true => Ok(()),
        false => Err(LabError::System {
            action: format!("run '{line}'"),
            source: std::io::Error::other(error),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_is_emulated_or_the_reason_is_known() {
        match unavailable() {
            None => {
                let enter_and_set = || {
                    enter()?;
                    set("delay 1ms loss 1%")?;
                    set(NONE)
                };
                std::thread::spawn(enter_and_set).join().unwrap().unwrap();
            }
            Some(reason) => assert!(reason.starts_with("cannot "), "{reason}"),
        }
    }
}
