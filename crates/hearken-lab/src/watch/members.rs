//! The set of watched processes.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::cgroup::Group;
use super::descriptors;
use crate::meter::Meter;
use crate::tree::with_descendants;

/// Maximum number of watched processes.
pub(super) const MOST: usize = 4_096;
/// Interval at which the set is refreshed.
const LOOK: Duration = Duration::from_secs(1);

/// The members of a cgroup, or some processes and their descendants.
#[derive(Debug)]
pub(super) struct Members {
    pub(super) group: Option<Group>,
    pub(super) pids: Vec<i32>,
    /// Paths of their descriptor tables.
    pub(super) tables: Vec<PathBuf>,
    /// Number of processes beyond the maximum.
    pub(super) left_out: usize,
    looked: Instant,
}

impl Members {
    /// Creates the set of the members of `group`, or of `roots` and their descendants.
    pub(super) fn new(group: Option<Group>, roots: Vec<i32>) -> Members {
        Members { group, pids: roots, tables: Vec::new(), left_out: 0, looked: Instant::now() }
    }

    /// Returns whether the set must be refreshed.
    pub(super) fn are_stale(&self) -> bool {
        self.looked.elapsed() >= LOOK
    }

    /// Refreshes the set.
    pub(super) fn look(&mut self) -> Result<(), String> {
        self.looked = Instant::now();
        self.pids = match &self.group {
            Some(group) => match group.processes() {
                Ok(pids) => pids,
                // The unit has exited and may be restarted.
                Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
                Err(error) => return Err(format!("{}: {error}", group.path().display())),
            },
            None => with_descendants(&self.pids).map_err(|error| error.to_string())?,
        };
        self.left_out = self.pids.len().saturating_sub(MOST);
        self.pids.truncate(MOST);
        let threads = |pid| Meter::look(pid).ok().and_then(|meter| meter.threads().ok());
        let tables = |&pid| descriptors::tables(pid, &threads(pid).unwrap_or_default());
        self.tables = self.pids.iter().flat_map(tables).collect();
        Ok(())
    }
}
