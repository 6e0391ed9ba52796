//! The set of watched processes.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::cgroup::Cgroup;
use super::descriptors;
use crate::accounting::ProcessAccounting;
use crate::process_tree::with_descendants;

/// Maximum number of watched processes.
pub(super) const MAX_PROCESSES: usize = 4_096;
/// Interval at which the set is refreshed.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// The members of a cgroup, or some processes and their descendants.
#[derive(Debug)]
pub(super) struct Members {
    pub(super) group: Option<Cgroup>,
    pub(super) pids: Vec<i32>,
    /// Paths of their descriptor tables.
    pub(super) tables: Vec<PathBuf>,
    /// Number of processes beyond the maximum.
    pub(super) excluded: usize,
    refreshed_at: Instant,
}

impl Members {
    /// Creates the set of the members of `group`, or of `roots` and their descendants.
    pub(super) fn new(group: Option<Cgroup>, roots: Vec<i32>) -> Members {
        Members {
            group,
            pids: roots,
            tables: Vec::new(),
            excluded: 0,
            refreshed_at: Instant::now(),
        }
    }

    /// Returns whether the set must be refreshed.
    pub(super) fn are_stale(&self) -> bool {
        self.refreshed_at.elapsed() >= REFRESH_INTERVAL
    }

    /// Refreshes the set.
    pub(super) fn refresh(&mut self) -> Result<(), String> {
        self.refreshed_at = Instant::now();
        self.pids = match &self.group {
            Some(group) => match group.members() {
                Ok(pids) => pids,
                // The unit has exited and may be restarted.
                Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
                Err(error) => return Err(format!("{}: {error}", group.path().display())),
            },
            None => with_descendants(&self.pids).map_err(|error| error.to_string())?,
        };
        self.excluded = self.pids.len().saturating_sub(MAX_PROCESSES);
        self.pids.truncate(MAX_PROCESSES);
        let threads = |pid| {
            ProcessAccounting::try_open(pid).ok().and_then(|accounting| accounting.threads().ok())
        };
        let tables = |&pid| descriptors::tables(pid, &threads(pid).unwrap_or_default());
        self.tables = self.pids.iter().flat_map(tables).collect();
        Ok(())
    }
}
