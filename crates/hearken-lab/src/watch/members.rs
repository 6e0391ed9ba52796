//! Which processes are watched at a moment.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::cgroup::Group;
use super::descriptors;
use crate::meter::Meter;
use crate::tree::with_descendants;

/// Processes that are watched at a time.
pub(super) const MOST: usize = 4_096;
/// How often it is looked who belongs to it.
const LOOK: Duration = Duration::from_secs(1);

/// Those of a control group, or some and their descendants.
#[derive(Debug)]
pub(super) struct Members {
    pub(super) group: Option<Group>,
    pub(super) pids: Vec<i32>,
    /// Their tables of descriptors.
    pub(super) tables: Vec<PathBuf>,
    /// How many more there are than are watched.
    pub(super) left_out: usize,
    looked: Instant,
}

impl Members {
    /// Those of `group`, or else `roots` and theirs.
    pub(super) fn new(group: Option<Group>, roots: Vec<i32>) -> Members {
        Members { group, pids: roots, tables: Vec::new(), left_out: 0, looked: Instant::now() }
    }

    /// Is it time to look again?
    pub(super) fn are_stale(&self) -> bool {
        self.looked.elapsed() >= LOOK
    }

    /// Looks who they are now.
    pub(super) fn look(&mut self) -> Result<(), String> {
        self.looked = Instant::now();
        self.pids = match &self.group {
            Some(group) => match group.processes() {
                Ok(pids) => pids,
                // The unit has ended, and is perhaps started again.
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
