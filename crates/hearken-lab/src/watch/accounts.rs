//! What watched processes used since the start, those that ended meanwhile included.

use std::collections::HashMap;
use std::ops::Add;

use procfs::ProcError;

use crate::error::LabError;
use crate::meter::{Meter, Usage, Whole};

/// Threads whose context switches are read: one at a time, from two files each.
const MOST_THREADS: u64 = 512;

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    each: HashMap<i32, Account>,
    /// What those that ended used since the start.
    of_ended: Usage,
    /// What those that ended had from children of theirs since the start.
    from_children: Usage,
    /// What those that ended and have a parent here used in their lives, children included: their
    /// parents are charged for it, too.
    lives: Usage,
    /// How many ended since the start.
    pub(crate) ended: u64,
    /// When the start was, in ticks since that of the machine; none before it.
    started: Option<u64>,
    /// The most that was told, so that nothing is taken back.
    told: Usage,
    /// Too many threads for context switches.
    pub(crate) many: bool,
}

/// One process.
#[derive(Debug)]
struct Account {
    born: u64,
    parent: i32,
    /// At the start, or when it was first seen if it was older.
    base: (Usage, Usage),
    whole: Usage,
    children: Usage,
    threads: HashMap<i32, Usage>,
    of_ended_threads: Usage,
}

/// What is there at a moment.
#[derive(Debug, Default)]
pub(crate) struct Levels {
    pub(crate) processes: u64,
    pub(crate) threads: u64,
    pub(crate) resident: u64,
    /// One that may not be looked at.
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
    /// Whether `pid` is known and has not ended.
    pub(crate) fn has(&self, pid: i32) -> bool {
        self.each.contains_key(&pid)
    }

    /// From here on it counts; the machine has been up for `now` ticks.
    pub(crate) fn start(&mut self, now: u64) {
        for account in self.each.values_mut() {
            account.base = (account.used(), account.children);
        }
        let each = std::mem::take(&mut self.each);
        *self = Accounts { each, started: Some(now), many: self.many, ..Accounts::default() };
    }

    /// Reads the accounts of `members`; those that are not among them any more have ended. One that
    /// is not there is none.
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
                        // Another process has its number now.
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

    /// What was used since the start. Children that lived between two samples are in it by what
    /// their parents were charged for them.
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

/// A process, and its threads if there are not too many with the `others`.
fn read_one(pid: i32, others: u64) -> Result<Read, ProcError> {
    let meter = Meter::look(pid)?;
    let whole = meter.whole()?;
    let threads = if others + whole.threads > MOST_THREADS {
        None
    } else {
        Some(meter.each_thread().or_else(|error| match error {
            // A zombie has none.
            ProcError::NotFound(_) => Ok(Vec::new()),
            error if is_gone(&error) => Ok(Vec::new()),
            error => Err(error),
        })?)
    };
    Ok((meter, whole, threads))
}

/// `/proc` says so of one that ends while a file of it is read.
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
    fn it_counts_from_the_start_on() {
        let mut accounts = Accounts::default();
        join(&mut accounts, 1, &whole(10, 500, 70));
        accounts.start(100);
        assert_eq!(used_ms(&mut accounts), 0);
        grow(&mut accounts, 1, &whole(10, 530, 70));
        assert_eq!(used_ms(&mut accounts), 30);
        // One that is started counts whole, one that was older only from when it was seen.
        join(&mut accounts, 2, &whole(101, 5, 0));
        join(&mut accounts, 3, &whole(99, 1_000, 0));
        assert_eq!(used_ms(&mut accounts), 35);
    }

    #[test]
    fn a_child_that_ends_counts_once_and_with_what_was_not_seen() {
        let mut accounts = Accounts::default();
        join(&mut accounts, 1, &whole(10, 100, 0));
        join(&mut accounts, 2, &whole(20, 1_000, 0));
        accounts.start(100);
        grow(&mut accounts, 2, &whole(20, 1_040, 0));
        end(&mut accounts, 2);
        assert_eq!((used_ms(&mut accounts), accounts.ended), (40, 1));
        // Its parent is charged for its whole life, in which it used 10 ms more after it was seen.
        grow(&mut accounts, 1, &whole(10, 100, 1_050));
        assert_eq!(used_ms(&mut accounts), 50);
        // One that nobody saw.
        grow(&mut accounts, 1, &whole(10, 100, 1_070));
        assert_eq!(used_ms(&mut accounts), 70);
    }

    #[test]
    fn what_was_told_is_not_taken_back() {
        let mut accounts = Accounts::default();
        join(&mut accounts, 1, &whole(10, 0, 0));
        accounts.start(100);
        join(&mut accounts, 2, &whole(11, 0, 0));
        // Children that nobody saw, then the end of one that had some.
        grow(&mut accounts, 2, &whole(11, 0, 30));
        assert_eq!(used_ms(&mut accounts), 30);
        end(&mut accounts, 2);
        assert_eq!(used_ms(&mut accounts), 30);
        // Of one whose parent is not watched, nobody else is charged.
        grow(&mut accounts, 1, &whole(10, 0, 60));
        end(&mut accounts, 1);
        assert_eq!(used_ms(&mut accounts), 60);
    }

    #[test]
    fn threads_that_end_keep_what_they_did() {
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
    fn a_process_that_is_not_there_is_none() {
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
