//! A process and its descendants, seen from outside.

use std::collections::HashSet;
use std::ops::Add;
use std::path::Path;

use procfs::ProcResult;
use procfs::process::Process;

use crate::error::LabError;
use crate::meter::{Meter, Usage};

/// A process and all that descend from it.
#[derive(Debug)]
pub(crate) struct Tree {
    root: i32,
}

impl Tree {
    /// Looks at the process `root` and its descendants, who they are at the time of each question.
    pub(crate) fn of(root: i32) -> Tree {
        Tree { root }
    }

    /// The sum over all of their threads.
    pub(crate) fn usage(&self) -> Result<Usage, LabError> {
        Ok(self.each(Meter::usage)?.into_iter().fold(Usage::default(), Usage::add))
    }

    /// The sum of their resident memory in bytes; what they share counts for each.
    pub(crate) fn resident(&self) -> Result<u64, LabError> {
        Ok(self.each(Meter::resident_exactly)?.into_iter().sum())
    }

    /// How many descriptors are open in them.
    pub(crate) fn descriptors(&self) -> Result<u64, LabError> {
        Ok(self.each(Meter::descriptors)?.into_iter().sum())
    }

    /// The ids of all of their threads.
    pub(crate) fn threads(&self) -> Result<Vec<i32>, LabError> {
        Ok(self.each(Meter::threads)?.concat())
    }

    /// What each member says; a descendant that ends meanwhile says nothing.
    fn each<T>(&self, asked: fn(&Meter) -> Result<T, LabError>) -> Result<Vec<T>, LabError> {
        let mut answers = vec![asked(&Meter::open(self.root)?)?];
        let descendants = self.descendants()?;
        answers
            .extend(descendants.into_iter().filter_map(|pid| asked(&Meter::open(pid).ok()?).ok()));
        Ok(answers)
    }

    fn descendants(&self) -> Result<Vec<i32>, LabError> {
        let unknown = |source| LabError::Accounting { pid: self.root, source };
        let mut found = with_descendants(&[self.root]).map_err(unknown)?;
        found.retain(|&pid| pid != self.root);
        Ok(found)
    }
}

/// `roots` and all that descend from them.
pub(crate) fn with_descendants(roots: &[i32]) -> ProcResult<Vec<i32>> {
    // Where the kernel tells a thread's children, not all processes need be looked at.
    let scanned = if tells_children() { None } else { Some(scan()?) };
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

fn tells_children() -> bool {
    Path::new("/proc/thread-self/children").exists()
}

fn scan() -> ProcResult<Vec<(i32, i32)>> {
    let all = procfs::process::all_processes()?;
    Ok(all.filter_map(|p| p.ok()?.stat().ok()).map(|stat| (stat.pid, stat.ppid)).collect())
}

/// Those of each thread; of a process that has ended, none.
fn children(pid: i32) -> Vec<i32> {
    let tasks = Process::new(pid).and_then(|process| process.tasks());
    let of_each = tasks.into_iter().flatten().filter_map(|task| task.ok()?.children().ok());
    of_each.flatten().filter_map(|child| i32::try_from(child).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_its_children() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let this = std::process::id().cast_signed();
        let tree = Tree::of(this);
        let threads = tree.threads().unwrap();
        let alone = Meter::open(this).unwrap().resident_exactly().unwrap();
        let together = tree.resident().unwrap();
        let (used, open) = (tree.usage(), tree.descriptors());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(threads.contains(&this) && threads.contains(&child.id().cast_signed()));
        assert!(together > alone / 2 && used.is_ok(), "{together} {alone}");
        assert!(open.unwrap() >= 6);
    }
}
