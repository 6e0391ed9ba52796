//! The descriptor numbers that the library knows.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::c_int;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::set::Set;

/// The numbers that can be watched. The kernel's default for the hard limit of a process is lower.
const LIMIT: usize = 1 << 20;

/// Whether a number is that of an emulated file.
static EMULATED: [AtomicBool; LIMIT] = [const { AtomicBool::new(false) }; LIMIT];
/// The number of sets that watch a number.
static WATCHED: [AtomicU8; LIMIT] = [const { AtomicU8::new(0) }; LIMIT];
/// The number of times that a watched number was closed.
static CLOSED: [AtomicU32; LIMIT] = [const { AtomicU32::new(0) }; LIMIT];
/// The number of forks between the first process and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);
static PROCESS: AtomicU32 = AtomicU32::new(0);

type Sets = Option<HashMap<RawFd, Arc<Set>>>;

/// The sets, by the numbers of the program.
static SETS: Mutex<Sets> = Mutex::new(None);

fn entry<T>(table: &'static [T], fd: RawFd) -> Option<&'static T> {
    usize::try_from(fd).ok().and_then(|fd| table.get(fd))
}

fn sets() -> MutexGuard<'static, Sets> {
    SETS.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    /// The lock of the sets during a fork.
    static HELD: RefCell<Option<MutexGuard<'static, Sets>>> = const { RefCell::new(None) };
}

extern "C" fn before_fork() {
    HELD.with(|held| *held.borrow_mut() = Some(sets()));
}

extern "C" fn after_fork_in_parent() {
    HELD.with(|held| drop(held.borrow_mut().take()));
}

extern "C" fn after_fork_in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    PROCESS.store(std::process::id(), Ordering::Relaxed);
    after_fork_in_parent();
}

/// Registers the handlers of forks.
pub(crate) fn watch_forks() {
    PROCESS.store(std::process::id(), Ordering::Relaxed);
    // SAFETY: the functions only use this library's data.
    unsafe {
        libc::pthread_atfork(
            Some(before_fork),
            Some(after_fork_in_parent),
            Some(after_fork_in_child),
        );
    }
}

/// Returns the number of forks before this process.
pub(crate) fn forks() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// Returns whether this is a child of vfork(2), whose memory is that of its parent.
fn shares_memory() -> bool {
    std::process::id() != PROCESS.load(Ordering::Relaxed)
}

/// Returns whether a number can be in the tables.
pub(crate) fn is_in_range(fd: RawFd) -> bool {
    usize::try_from(fd).is_ok_and(|fd| fd < LIMIT)
}

/// Returns whether a number is that of an emulated file.
pub(crate) fn is_emulated(fd: RawFd) -> bool {
    entry(&EMULATED, fd).is_some_and(|emulated| emulated.load(Ordering::Acquire))
}

/// Returns the set of a number.
pub(crate) fn set(fd: RawFd) -> Option<Arc<Set>> {
    if !is_emulated(fd) {
        return None;
    }
    sets().as_ref().and_then(|sets| sets.get(&fd)).cloned()
}

/// Makes a number that of a set.
pub(crate) fn insert(fd: RawFd, set: Arc<Set>) {
    if let Some(emulated) = entry(&EMULATED, fd) {
        sets().get_or_insert_default().insert(fd, set);
        emulated.store(true, Ordering::Release);
    }
}

/// Returns the number of times that a number was closed.
pub(crate) fn generation(fd: RawFd) -> u32 {
    entry(&CLOSED, fd).map_or(0, |closed| closed.load(Ordering::Acquire))
}

/// Returns whether a set watches a number.
pub(crate) fn is_watched(fd: RawFd) -> bool {
    entry(&WATCHED, fd).is_some_and(|watched| watched.load(Ordering::Acquire) > 0)
}

/// Records that one more set watches a number.
pub(crate) fn add_watch(fd: RawFd) {
    if let Some(watched) = entry(&WATCHED, fd) {
        watched.fetch_add(1, Ordering::AcqRel);
    }
}

/// Records that one set less watches a number.
pub(crate) fn remove_watch(fd: RawFd) {
    if let Some(watched) = entry(&WATCHED, fd) {
        watched.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Handles a number that is about to be closed, or to name another file.
pub(crate) fn on_close(fd: RawFd) {
    if !(is_watched(fd) || is_emulated(fd)) || shares_memory() {
        return;
    }
    if let Some(closed) = entry(&CLOSED, fd) {
        closed.fetch_add(1, Ordering::AcqRel);
    }
    // In a signal handler, the interrupted call may have the locks. The sets notice it later.
    if crate::Inside::is_current() {
        return;
    }
    let _inside = crate::Inside::enter();
    let (closed, remaining): (_, Vec<_>) = {
        let mut sets = sets();
        let Some(sets) = sets.as_mut() else { return };
        let closed = is_emulated(fd).then(|| sets.remove(&fd)).flatten();
        (closed, sets.values().cloned().collect())
    };
    if let (Some(_), Some(emulated)) = (&closed, entry(&EMULATED, fd)) {
        emulated.store(false, Ordering::Release);
    }
    if is_watched(fd) {
        remaining.iter().for_each(|set| set.forget(fd));
    }
}

/// Handles the closing of a range of numbers.
pub(crate) fn on_close_range(first: u32, last: u32) {
    let last = (last as usize).min(LIMIT - 1);
    for fd in first as usize..=last {
        let fd = fd as RawFd;
        if is_watched(fd) || is_emulated(fd) {
            on_close(fd);
        }
    }
}

/// Handles a new number of a file, as the result of duplicating `fd`.
pub(crate) fn on_duplicate(fd: RawFd, result: c_int) {
    if result >= 0 && is_emulated(fd) && !shares_memory() {
        let _inside = crate::Inside::enter();
        if let Some(set) = set(fd) {
            insert(result, set);
        }
    }
}
