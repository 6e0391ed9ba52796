//! Resource usage of the watched processes since the start, including those that have exited.

use std::collections::HashMap;
use std::ops::Add;

use procfs::ProcError;

use crate::error::LabError;
use crate::meter::{Meter, Usage, Whole};

/// Maximum number of threads whose context switches are read. Each takes two files.
const MOST_THREADS: u64 = 512;

/// Usage of all watched processes.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    each: HashMap<i32, Account>,
    /// Usage of exited processes since the start.
    of_ended: Usage,
    /// Usage that exited processes inherited from their children since the start.
    from_children: Usage,
    /// Lifetime usage, including children, of exited processes whose parent is watched. The kernel
    /// adds the same usage to the parent.
    lives: Usage,
    /// Number of processes that have exited since the start.
    pub(crate) ended: u64,
    /// Start of the measurement, in ticks since boot; none before the start.
    started: Option<u64>,
    /// Maximum usage returned so far, so that the usage never decreases.
    told: Usage,
    /// Whether there are too many threads to read their context switches.
    pub(crate) many: bool,
}

/// Usage of one process.
#[derive(Debug)]
struct Account {
    born: u64,
    parent: i32,
    /// Own usage and usage of children at the start, or when first seen if the process is older.
    base: (Usage, Usage),
    whole: Usage,
    children: Usage,
    threads: HashMap<i32, Usage>,
    of_ended_threads: Usage,
}

/// Current state of all watched processes.
#[derive(Debug, Default)]
pub(crate) struct Levels {
    pub(crate) processes: u64,
    pub(crate) threads: u64,
    pub(crate) resident: u64,
    /// Error of a process that is not accessible.
    pub(crate) refused: Option<LabError>,
}

impl Account {
    fn used(&self) -> Usage {
        let threads = self.threads.values().copied().fold(self.of_ended_threads, Usage::add);
        self.whole + threads
    }

    fn update(&mut self, whole: &Whole, threads: Option<Vec<(i32, Usage)>>) {
        (self.whole, self.children) = (whole.used, whole.children);
        if let Some(threads) = threads {
            let mut earlier = std::mem::replace(&mut self.threads, threads.into_iter().collect());
            earlier.retain(|thread, _| !self.threads.contains_key(thread));
            let ended = earlier.into_values().fold(Usage::default(), Usage::add);
            self.of_ended_threads = self.of_ended_threads + ended;
        }
    }
}

impl Accounts {
    /// Returns whether `pid` is known and has not exited.
    pub(crate) fn has(&self, pid: i32) -> bool {
        self.each.contains_key(&pid)
    }

    /// Starts the measurement. `now` is the time since boot in ticks.
    pub(crate) fn start(&mut self, now: u64) {
        for account in self.each.values_mut() {
            account.base = (account.used(), account.children);
        }
        let each = std::mem::take(&mut self.each);
        *self = Accounts { each, started: Some(now), many: self.many, ..Accounts::default() };
    }

    /// Reads the usage of `members`. Known processes that are missing from `members` have exited.
    /// Members that do not exist are ignored.
    pub(crate) fn read(&mut self, members: &[i32]) -> Levels {
        let mut levels = Levels::default();
        let mut left = std::mem::take(&mut self.each);
        let mut ended = Vec::new();
        for &pid in members {
            let known = left.remove(&pid);
            match read_one(pid, levels.threads) {
                Ok((meter, whole, threads)) => {
                    self.many |= threads.is_none();
                    let mut account = match known {
                        Some(account) if account.born == whole.born => account,
                        // The pid was reused by another process.
                        other => {
                            ended.extend(other);
                            if whole.zombie {
                                continue;
                            }
                            self.open(&whole, threads.as_deref())
                        }
                    };
                    account.update(&whole, threads);
                    if whole.zombie {
                        ended.push(account);
                        continue;
                    }
                    levels.processes += 1;
                    levels.threads += whole.threads;
                    levels.resident += meter.resident().unwrap_or(0);
                    self.each.insert(pid, account);
                }
                Err(ProcError::NotFound(_)) => ended.extend(known),
                Err(error) if is_gone(&error) => ended.extend(known),
                Err(source) => {
                    self.each.extend(known.map(|account| (pid, account)));
                    levels.refused.get_or_insert(LabError::Accounting { pid, source });
                }
            }
        }
        for account in ended.into_iter().chain(left.into_values()) {
            self.end(&account);
        }
        levels
    }

    fn open(&self, whole: &Whole, threads: Option<&[(i32, Usage)]>) -> Account {
        let mut account = Account {
            born: whole.born,
            parent: whole.parent,
            base: Default::default(),
            whole: whole.used,
            children: whole.children,
            threads: threads.unwrap_or_default().iter().copied().collect(),
            of_ended_threads: Usage::default(),
        };
        if self.started.is_none_or(|started| whole.born < started) {
            account.base = (account.used(), account.children);
        }
        account
    }

    fn end(&mut self, account: &Account) {
        let used = account.used();
        self.ended += 1;
        self.of_ended = self.of_ended + used.since(&account.base.0);
        self.from_children = self.from_children + account.children.since(&account.base.1);
        if self.each.contains_key(&account.parent) {
            self.lives = self.lives + account.whole + account.children;
        }
    }

    /// Returns the usage since the start. It includes children that existed only between two samples,
    /// because the kernel adds their usage to their parents.
    pub(crate) fn used(&mut self) -> Usage {
        let (mut used, mut from_children) = (self.of_ended, self.from_children);
        for account in self.each.values() {
            used = used + account.used().since(&account.base.0);
            from_children = from_children + account.children.since(&account.base.1);
        }
        self.told = self.told.most(&(used + from_children.since(&self.lives)));
        self.told
    }
}

type Read = (Meter, Whole, Option<Vec<(i32, Usage)>>);

/// Reads a process, and its threads unless there are too many including `others`.
fn read_one(pid: i32, others: u64) -> Result<Read, ProcError> {
    let meter = Meter::look(pid)?;
    let whole = meter.whole()?;
    let threads = if others + whole.threads > MOST_THREADS {
        None
    } else {
        Some(meter.each_thread().or_else(|error| match error {
            // A zombie has no threads.
            ProcError::NotFound(_) => Ok(Vec::new()),
            error if is_gone(&error) => Ok(Vec::new()),
            error => Err(error),
        })?)
    };
    Ok((meter, whole, threads))
}

/// Returns whether the process exited while one of its files was read.
fn is_gone(error: &ProcError) -> bool {
    const NO_SUCH_PROCESS: i32 = rustix::io::Errno::SRCH.raw_os_error();
    matches!(error, ProcError::Io(error, _) if error.raw_os_error() == Some(NO_SUCH_PROCESS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(ms: u64, switches: u64) -> Usage {
        let cpu_ns = ms * 1_000_000;
        Usage { cpu_ns, user_ns: cpu_ns, voluntary: switches, ..Usage::default() }
    }

    fn whole(born: u64, own: u64, children: u64) -> Whole {
        let (used, children) = (usage(own, 0), usage(children, 0));
        Whole { born, parent: 1, threads: 1, zombie: false, used, children }
    }

    fn join(accounts: &mut Accounts, pid: i32, whole: &Whole) {
        let account = accounts.open(whole, Some(&[]));
        accounts.each.insert(pid, account);
    }

    fn end(accounts: &mut Accounts, pid: i32) {
        let account = accounts.each.remove(&pid).unwrap();
        accounts.end(&account);
    }

    fn grow(accounts: &mut Accounts, pid: i32, whole: &Whole) {
        accounts.each.get_mut(&pid).unwrap().update(whole, Some(Vec::new()));
    }

    fn used_ms(accounts: &mut Accounts) -> u64 {
        accounts.used().cpu_ns / 1_000_000
    }

    #[test]
    fn counts_from_the_start() {
        let mut accounts = Accounts::default();
        join(&mut accounts, 1, &whole(10, 500, 70));
        accounts.start(100);
        assert_eq!(used_ms(&mut accounts), 0);
        grow(&mut accounts, 1, &whole(10, 530, 70));
        assert_eq!(used_ms(&mut accounts), 30);
        // A process started later counts completely, an older one only since it was first seen.
        join(&mut accounts, 2, &whole(101, 5, 0));
        join(&mut accounts, 3, &whole(99, 1_000, 0));
        assert_eq!(used_ms(&mut accounts), 35);
    }

    #[test]
    fn exited_child_counts_once_with_its_unseen_usage() {
        let mut accounts = Accounts::default();
        join(&mut accounts, 1, &whole(10, 100, 0));
        join(&mut accounts, 2, &whole(20, 1_000, 0));
        accounts.start(100);
        grow(&mut accounts, 2, &whole(20, 1_040, 0));
        end(&mut accounts, 2);
        assert_eq!((used_ms(&mut accounts), accounts.ended), (40, 1));
        // The kernel adds its lifetime usage to its parent, with 10 ms after the last sample.
        grow(&mut accounts, 1, &whole(10, 100, 1_050));
        assert_eq!(used_ms(&mut accounts), 50);
        // A child that no sample has seen.
        grow(&mut accounts, 1, &whole(10, 100, 1_070));
        assert_eq!(used_ms(&mut accounts), 70);
    }

    #[test]
    fn usage_never_decreases() {
        let mut accounts = Accounts::default();
        join(&mut accounts, 1, &whole(10, 0, 0));
        accounts.start(100);
        join(&mut accounts, 2, &whole(11, 0, 0));
        // Unseen children, then the exit of a process with children.
        grow(&mut accounts, 2, &whole(11, 0, 30));
        assert_eq!(used_ms(&mut accounts), 30);
        end(&mut accounts, 2);
        assert_eq!(used_ms(&mut accounts), 30);
        // The parent of this process is not watched, so its usage is added nowhere else.
        grow(&mut accounts, 1, &whole(10, 0, 60));
        end(&mut accounts, 1);
        assert_eq!(used_ms(&mut accounts), 60);
    }

    #[test]
    fn exited_threads_remain_counted() {
        let mut accounts = Accounts::default();
        join(&mut accounts, 1, &whole(10, 0, 0));
        accounts.start(100);
        let account = accounts.each.get_mut(&1).unwrap();
        account.update(&whole(10, 0, 0), Some(vec![(1, usage(0, 3)), (7, usage(0, 4))]));
        account.update(&whole(10, 0, 0), Some(vec![(1, usage(0, 5))]));
        account.update(&whole(10, 0, 0), None);
        assert_eq!(accounts.used().voluntary, 9);
    }

    #[test]
    fn missing_process_is_ignored() {
        let mut accounts = Accounts::default();
        let this = std::process::id().cast_signed();
        let levels = accounts.read(&[this, i32::MAX]);
        assert_eq!(levels.processes, 1);
        assert!(levels.threads >= 1 && levels.resident > 0 && accounts.ended == 0);
        assert!(accounts.has(this) && !accounts.has(i32::MAX) && levels.refused.is_none());
        assert_eq!(accounts.read(&[]).processes, 0);
        assert_eq!(accounts.ended, 1);
    }
}
