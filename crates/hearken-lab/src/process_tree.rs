//! A process and its descendants.

use std::collections::HashSet;
use std::ops::Add;
use std::path::Path;

use procfs::ProcResult;
use procfs::process::Process;

use crate::accounting::{ProcessAccounting, Usage};
use crate::error::LabError;

/// A process and all its descendants.
#[derive(Debug)]
pub(crate) struct ProcessTree {
    root: i32,
}

impl ProcessTree {
    /// Creates a view of the process `root`. Every method determines the current descendants.
    pub(crate) fn new(root: i32) -> ProcessTree {
        ProcessTree { root }
    }

    /// Returns the usage of all threads.
    pub(crate) fn usage(&self) -> Result<Usage, LabError> {
        Ok(self
            .map_members(ProcessAccounting::usage)?
            .into_iter()
            .fold(Usage::default(), Usage::add))
    }

    /// Returns the total resident memory in bytes. Shared pages count for each process.
    pub(crate) fn rss_bytes(&self) -> Result<u64, LabError> {
        Ok(self.map_members(ProcessAccounting::exact_rss_bytes)?.into_iter().sum())
    }

    /// Returns the number of open descriptors.
    pub(crate) fn count_descriptors(&self) -> Result<u64, LabError> {
        Ok(self.map_members(ProcessAccounting::count_descriptors)?.into_iter().sum())
    }

    /// Returns the ids of all threads.
    pub(crate) fn threads(&self) -> Result<Vec<i32>, LabError> {
        Ok(self.map_members(ProcessAccounting::threads)?.concat())
    }

    /// Calls `query` for each member. Ignores descendants that have exited.
    fn map_members<T>(
        &self,
        query: fn(&ProcessAccounting) -> Result<T, LabError>,
    ) -> Result<Vec<T>, LabError> {
        let mut values = vec![query(&ProcessAccounting::open(self.root)?)?];
        let descendants = self.descendants()?;
        values.extend(
            descendants
                .into_iter()
                .filter_map(|pid| query(&ProcessAccounting::open(pid).ok()?).ok()),
        );
        Ok(values)
    }

    fn descendants(&self) -> Result<Vec<i32>, LabError> {
        let unknown = |source| LabError::Accounting { pid: self.root, source };
        let mut found = with_descendants(&[self.root]).map_err(unknown)?;
        found.retain(|&pid| pid != self.root);
        Ok(found)
    }
}

/// Returns `roots` and all their descendants.
pub(crate) fn with_descendants(roots: &[i32]) -> ProcResult<Vec<i32>> {
    // If the kernel lists the children of a thread, not all processes need to be scanned.
    let scanned = if lists_children() { None } else { Some(list_processes()?) };
    let mut found: Vec<i32> = roots.to_vec();
    let mut known: HashSet<i32> = found.iter().copied().collect();
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        next += 1;
        let children: Vec<i32> = match &scanned {
            Some(all) => all.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid).collect(),
            None => children(parent),
        };
        found.extend(children.into_iter().filter(|&child| known.insert(child)));
    }
    Ok(found)
}

/// Returns whether the kernel lists the children of a thread.
fn lists_children() -> bool {
    Path::new("/proc/thread-self/children").exists()
}

/// Returns the pid and parent pid of all processes.
fn list_processes() -> ProcResult<Vec<(i32, i32)>> {
    let all = procfs::process::all_processes()?;
    Ok(all.filter_map(|p| p.ok()?.stat().ok()).map(|stat| (stat.pid, stat.ppid)).collect())
}

/// Returns the children of all threads of a process; none if it has exited.
fn children(pid: i32) -> Vec<i32> {
    let tasks = Process::new(pid).and_then(|process| process.tasks());
    let of_each = tasks.into_iter().flatten().filter_map(|task| task.ok()?.children().ok());
    of_each.flatten().filter_map(|child| i32::try_from(child).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tree_includes_children() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let this = std::process::id().cast_signed();
        let tree = ProcessTree::new(this);
        let threads = tree.threads().unwrap();
        let alone = ProcessAccounting::open(this).unwrap().exact_rss_bytes().unwrap();
        let together = tree.rss_bytes().unwrap();
        let (used, open) = (tree.usage(), tree.count_descriptors());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(threads.contains(&this) && threads.contains(&child.id().cast_signed()));
        assert!(together > alone / 2 && used.is_ok(), "{together} {alone}");
        assert!(open.unwrap() >= 6);
    }
}
