//! poll(2): each thread has a set, which changes with the lists that it passes.
//!
//! poll(2) itself checks a list first. Only if it finds nothing does the mechanism wait, and poll(2)
//! then checks the list again. So results are those of the kernel.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::c_int;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use hearken::mechanism::{Sharing, SignalMask};
use hearken::queue::Poller;
use hearken::{Event, Interest};

use crate::epoll::milliseconds;
use crate::own_poller::OwnPoller;
use crate::{
    Inside, cannot_open, emulate, errno, files, last_errno, mechanism, provided, real, report,
};

/// The set of a thread.
struct PollSet {
    poller: OwnPoller,
    watched: HashMap<RawFd, Watched>,
    /// The number of calls.
    calls: u32,
    events: Vec<Event<u64>>,
}

struct Watched {
    requested: Interest,
    /// The interest of the mechanism.
    declared: Option<Interest>,
    generation: u32,
    /// The last call that contained it.
    call: u32,
}

thread_local! {
    static SET: RefCell<Option<PollSet>> = const { RefCell::new(None) };
}

/// The reason for which a call continues in libc.
enum Refused {
    /// The mechanism cannot watch a descriptor, or cannot be opened.
    Descriptor,
    Errno(c_int),
}

impl PollSet {
    /// Fails without free descriptors, which poll(2) does not need.
    fn open() -> Result<PollSet, Refused> {
        let poller = Poller::open_level(&mechanism().spec).map_err(|error| {
            cannot_open(&error);
            Refused::Descriptor
        })?;
        let (watched, events) = (HashMap::new(), Vec::new());
        let poller = OwnPoller::new(poller);
        Ok(PollSet { poller, watched, calls: 0, events })
    }

    /// Makes the list the content of the set. Removes descriptors before it adds others: they may
    /// name the same open file, which has one owner with some mechanisms.
    fn update(&mut self, list: &[libc::pollfd]) -> Result<(), Refused> {
        self.calls = self.calls.wrapping_add(1);
        let call = self.calls;
        let list = || list.iter().filter(|entry| entry.fd >= 0);
        for &libc::pollfd { fd, events, .. } in list() {
            let generation = files::generation(fd);
            if self.watched.get(&fd).is_none_or(|watched| watched.generation != generation) {
                self.remove(fd);
                if !files::is_in_range(fd) || is_owned(fd) {
                    return Err(Refused::Descriptor);
                }
                files::add_watch(fd);
            }
            let requested = Interest::empty();
            let new = Watched { requested, declared: None, generation, call };
            let watched = self.watched.entry(fd).or_insert(new);
            if watched.call != call {
                (watched.call, watched.requested) = (call, Interest::empty());
            }
            watched.requested |= interest(events);
        }
        let absent = |(fd, watched): (&RawFd, &Watched)| (watched.call != call).then_some(*fd);
        let absent: Vec<RawFd> = self.watched.iter().filter_map(absent).collect();
        absent.iter().for_each(|fd| self.remove(*fd));
        for &libc::pollfd { fd, .. } in list() {
            let Some(watched) = self.watched.get_mut(&fd) else { continue };
            if watched.declared == Some(watched.requested) {
                continue;
            }
            watched.declared = Some(watched.requested);
            // SAFETY: the program owns the descriptor. It is removed when its number is closed.
            if let Err(error) = unsafe { self.poller.set(fd, watched.requested, 0) } {
                self.remove(fd);
                let mechanism = &mechanism().spec;
                report(
                    5,
                    &format!("{mechanism} cannot watch descriptor {fd}: {error}; poll(2) does"),
                );
                return Err(Refused::Descriptor);
            }
        }
        Ok(())
    }

    fn remove(&mut self, fd: RawFd) {
        if self.watched.remove(&fd).is_some() {
            files::remove_watch(fd);
            let _ = self.poller.remove(fd);
        }
    }
}

impl Drop for PollSet {
    fn drop(&mut self) {
        self.watched.keys().for_each(|fd| files::remove_watch(*fd));
    }
}

/// Returns whether another set watches a descriptor that can have only one watcher.
fn is_owned(fd: RawFd) -> bool {
    mechanism().semantics.sharing == Sharing::Owner && files::is_watched(fd)
}

fn interest(events: i16) -> Interest {
    let mut interest = Interest::empty();
    let read = libc::POLLIN | libc::POLLRDNORM | libc::POLLRDBAND | libc::POLLRDHUP;
    // Errors and hang-ups of a descriptor without events end a wait for reading.
    interest.set(Interest::READ, events & read != 0 || events == 0);
    interest.set(Interest::PRIORITY, events & libc::POLLPRI != 0);
    interest.set(Interest::WRITE, events & (libc::POLLOUT | libc::POLLWRNORM) != 0);
    interest
}

/// Converts a timeout. A null one is infinite.
pub(crate) fn duration(time: Option<&libc::timespec>) -> Result<Option<Duration>, c_int> {
    let Some(time) = time else { return Ok(None) };
    let seconds = u64::try_from(time.tv_sec).map_err(|_| libc::EINVAL)?;
    let nanoseconds = u32::try_from(time.tv_nsec).map_err(|_| libc::EINVAL)?;
    if nanoseconds >= 1_000_000_000 {
        return Err(libc::EINVAL);
    }
    Ok(Some(Duration::new(seconds, nanoseconds)))
}

/// Calls the kernel's poll(2).
pub(crate) fn check(
    list: &mut [libc::pollfd],
    timeout: Option<Duration>,
    mask: Option<&libc::sigset_t>,
) -> Result<c_int, c_int> {
    let timeout = timeout.map(|timeout| libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let mask = mask.map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the list has this many entries.
    let found =
        unsafe { real::ppoll(list.as_mut_ptr(), list.len() as libc::nfds_t, timeout, mask) };
    if found < 0 { Err(last_errno()) } else { Ok(found) }
}

/// Waits until an entry of the list is ready. Returns the number of those that are.
pub(crate) fn wait(
    list: &mut [libc::pollfd],
    timeout: Option<Duration>,
    mask: Option<&libc::sigset_t>,
) -> Result<c_int, c_int> {
    if list.is_empty() {
        return check(list, timeout, mask);
    }
    for entry in list.iter() {
        if let Some(set) = files::set(entry.fd) {
            set.fill(entry.fd);
        }
    }
    let found = check(list, Some(Duration::ZERO), mask)?;
    if found > 0 || timeout == Some(Duration::ZERO) {
        return Ok(found);
    }
    let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let waited = SET.try_with(|set| match set.try_borrow_mut() {
        Ok(mut set) => {
            if set.as_ref().is_some_and(|set| set.poller.is_inherited()) {
                *set = None;
            }
            let set = match &mut *set {
                Some(set) => set,
                none => none.insert(PollSet::open()?),
            };
            wait_with(set, list, end, mask)
        }
        // A signal handler interrupted a call of this thread.
        Err(_) => Err(Refused::Descriptor),
    });
    match waited.unwrap_or(Err(Refused::Descriptor)) {
        Ok(found) => Ok(found),
        Err(Refused::Errno(errno)) => Err(errno),
        Err(Refused::Descriptor) => {
            let remaining = end.map(|end| end.saturating_duration_since(Instant::now()));
            check(list, remaining, mask)
        }
    }
}

fn wait_with(
    set: &mut PollSet,
    list: &mut [libc::pollfd],
    end: Option<Instant>,
    mask: Option<&libc::sigset_t>,
) -> Result<c_int, Refused> {
    set.update(list)?;
    let signals = mask.map(|mask| SignalMask::from(*mask));
    loop {
        let remaining = end.map(|end| end.saturating_duration_since(Instant::now()));
        let waited = set.poller.wait(&mut set.events, list.len(), remaining, signals.as_ref());
        waited.map_err(|error| Refused::Errno(errno(&error)))?;
        let found = check(list, Some(Duration::ZERO), None).map_err(Refused::Errno)?;
        if found > 0 || end.is_some_and(|end| Instant::now() >= end) {
            return Ok(found);
        }
    }
}

/// Returns whether a call is emulated.
pub(crate) fn is_provided() -> bool {
    !Inside::is_current() && provided().poll
}

/// Waits: see poll(2).
///
/// # Safety
/// The contract of poll(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poll(
    list: *mut libc::pollfd,
    count: libc::nfds_t,
    timeout: c_int,
) -> c_int {
    if Inside::is_current() || !(provided().poll || provided().epoll) || list.is_null() {
        // SAFETY: the caller's contract.
        return unsafe { real::poll(list, count, timeout) };
    }
    // SAFETY: the caller passes a list with `count` entries.
    let entries = unsafe { std::slice::from_raw_parts_mut(list, count as usize) };
    if provided().poll {
        return emulate(|| wait(entries, milliseconds(timeout), None));
    }
    fill(entries);
    // SAFETY: the caller's contract.
    unsafe { real::poll(list, count, timeout) }
}

/// Fills the real instances of emulated descriptors in a list.
fn fill(list: &[libc::pollfd]) {
    for entry in list {
        if files::is_emulated(entry.fd) {
            emulate(|| {
                files::set(entry.fd).inspect(|set| set.fill(entry.fd));
                Ok(0)
            });
        }
    }
}

/// Waits with a signal mask: see ppoll(2).
///
/// # Safety
/// The contract of ppoll(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ppoll(
    list: *mut libc::pollfd,
    count: libc::nfds_t,
    timeout: *const libc::timespec,
    mask: *const libc::sigset_t,
) -> c_int {
    if Inside::is_current() || !(provided().poll || provided().epoll) || list.is_null() {
        // SAFETY: the caller's contract.
        return unsafe { real::ppoll(list, count, timeout, mask) };
    }
    // SAFETY: the caller passes a list with `count` entries.
    let entries = unsafe { std::slice::from_raw_parts_mut(list, count as usize) };
    if provided().poll {
        // SAFETY: the caller passes null or a timeout, and null or a mask.
        return emulate(|| unsafe { wait(entries, duration(timeout.as_ref())?, mask.as_ref()) });
    }
    fill(entries);
    // SAFETY: the caller's contract.
    unsafe { real::ppoll(list, count, timeout, mask) }
}

/// Stops a program whose list is shorter than it says, as with fortification.
fn check_size(count: libc::nfds_t, size: usize) {
    if size / size_of::<libc::pollfd>() < count as usize {
        report(6, "poll: the list is longer than its buffer");
        std::process::abort();
    }
}

/// The fortified form of [`poll`].
///
/// # Safety
/// The contract of poll(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __poll_chk(
    list: *mut libc::pollfd,
    count: libc::nfds_t,
    timeout: c_int,
    size: usize,
) -> c_int {
    check_size(count, size);
    // SAFETY: the caller's contract.
    unsafe { poll(list, count, timeout) }
}

/// The fortified form of [`ppoll`].
///
/// # Safety
/// The contract of ppoll(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __ppoll_chk(
    list: *mut libc::pollfd,
    count: libc::nfds_t,
    timeout: *const libc::timespec,
    mask: *const libc::sigset_t,
    size: usize,
) -> c_int {
    check_size(count, size);
    // SAFETY: the caller's contract.
    unsafe { ppoll(list, count, timeout, mask) }
}
