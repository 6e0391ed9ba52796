//! The event interface of Banga, Mogul and Druschel ("A scalable and explicit event delivery
//! mechanism for UNIX", USENIX 1999) for C: `include/hearken/papers/banga.h`.
//!
//! Each thread has a queue. Process-wide interest is in a list, and each queue declares the interests
//! that are new in the list before it waits. The wakers of all queues let waiting threads do so.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::c_int;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use hearken::mechanism::{Mechanism, SelectError, Trigger, find};
use hearken::queue::{Shared, Wake};
use hearken::{EventQueue, Interest, Readiness, Registration, Waker};

use crate::{errno, guard, object, spec};

/// `EVENT_READ`, `EVENT_WRITE` and `EVENT_EXCEPT`.
const EVENTS: [(c_int, Interest, Readiness); 3] = [
    (1, Interest::READ, Readiness::READABLE),
    (2, Interest::WRITE, Readiness::WRITABLE),
    (4, Interest::PRIORITY, Readiness::PRIORITY),
];

/// `event_descr_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct EventDescription {
    fd: c_int,
    mask: u32,
}

/// A descriptor of the caller, who keeps it open while interest in it is declared.
#[derive(Debug, Clone, Copy)]
struct Source(RawFd);

impl AsFd for Source {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: see above.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }
}

/// A registration, which revokes the interest when it is dropped.
enum Declared {
    Thread(Registration<Source>, Interest),
    /// Of this thread, after [`hearken_wakeup_one`].
    WakeOne(Registration<Shared<Source>>, Interest),
    Process(Registration<Shared<Source>>, Interest),
}

impl Declared {
    /// Arms a one-shot mechanism again.
    fn rearm(&self) -> io::Result<()> {
        match self {
            Declared::Thread(registration, interest) => registration.change_interest(*interest),
            Declared::WakeOne(registration, interest)
            | Declared::Process(registration, interest) => registration.change_interest(*interest),
        }
    }
}

/// The queue of a thread.
struct ThreadQueue {
    thread: ThreadId,
    queue: EventQueue<RawFd, Box<dyn Mechanism>>,
    declared: HashMap<RawFd, Declared>,
    /// The descriptors that a one-shot mechanism has reported.
    reported: Vec<RawFd>,
    /// The version of the process-wide interests that the queue has declared.
    version: u64,
}

/// The state that all threads share.
#[derive(Default)]
struct Process {
    /// The version of `interests`.
    version: u64,
    interests: HashMap<RawFd, ProcessInterest>,
    /// The descriptors for which [`hearken_wakeup_one`] was called.
    wake_one: HashMap<RawFd, Shared<Source>>,
    /// The wakers of the threads' queues.
    wakers: HashMap<ThreadId, Waker>,
}

/// A process-wide interest.
struct ProcessInterest {
    /// The version that added it.
    version: u64,
    source: Shared<Source>,
    interest: Interest,
}

static PROCESS: Mutex<Option<Process>> = Mutex::new(None);

thread_local! {
    static QUEUE: RefCell<Option<ThreadQueue>> = const { RefCell::new(None) };
}

fn process() -> MutexGuard<'static, Option<Process>> {
    PROCESS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn with_process<T>(run: impl FnOnce(&mut Process) -> T) -> T {
    run(process().get_or_insert_default())
}

impl ThreadQueue {
    fn open() -> Result<ThreadQueue, c_int> {
        // SAFETY: the pointer is null.
        let spec = unsafe { spec(std::ptr::null())? };
        let unavailable = |error| match error {
            SelectError::Unavailable { reason, .. } => errno(&reason.error),
            _ => libc::EINVAL,
        };
        let mechanism = find(&spec).map_err(unavailable)?.open();
        let mechanism = mechanism.map_err(|reason| errno(&reason.error))?;
        let queue = EventQueue::with_mechanism(mechanism).map_err(|error| errno(&error))?;
        let thread = thread::current().id();
        with_process(|process| process.wakers.insert(thread, queue.waker()));
        Ok(ThreadQueue {
            thread,
            queue,
            declared: HashMap::new(),
            reported: Vec::new(),
            version: 0,
        })
    }

    /// Declares the interest of this thread, or revokes it if it is empty.
    fn declare(&mut self, fd: RawFd, interest: Interest) -> Result<Readiness, c_int> {
        // The number may name another file now, in which the queue has no interest yet.
        self.declared.remove(&fd);
        if interest.is_empty() {
            return Ok(Readiness::empty());
        }
        let shared = with_process(|process| process.wake_one.get(&fd).cloned());
        let (declared, readiness) = match shared {
            Some(shared) => {
                let (registration, readiness) = self.share(shared, interest)?;
                (Declared::WakeOne(registration, interest), readiness)
            }
            None => {
                let declared = self.queue.declare_interest(Source(fd), interest, fd);
                let (registration, readiness) = declared.map_err(|error| errno(&error.error))?;
                (Declared::Thread(registration, interest), readiness)
            }
        };
        self.declared.insert(fd, declared);
        Ok(readiness)
    }

    fn share(
        &self,
        source: Shared<Source>,
        interest: Interest,
    ) -> Result<(Registration<Shared<Source>>, Readiness), c_int> {
        let fd = source.0;
        let declared = self.queue.declare_processwide_interest(source, interest, fd);
        declared.map_err(|error| errno(&error.error))
    }

    /// Declares the process-wide interests that are new, and revokes those that have ended. Returns
    /// the state of the new ones.
    fn join(&mut self) -> Vec<(RawFd, Result<Readiness, c_int>)> {
        let added: Vec<_> = {
            let mut process = process();
            let process = process.get_or_insert_default();
            if process.version == self.version {
                return Vec::new();
            }
            let interests = &process.interests;
            self.declared.retain(|fd, declared| {
                !matches!(declared, Declared::Process(..)) || interests.contains_key(fd)
            });
            let joined = self.version;
            self.version = process.version;
            let new = interests.values().filter(|interest| interest.version > joined);
            new.map(|new| (new.source.clone(), new.interest)).collect()
        };
        let mut declare = |(source, interest): (Shared<Source>, Interest)| {
            let fd = source.0;
            self.declared.remove(&fd);
            let shared = self.share(source, interest);
            (
                fd,
                shared.map(|(registration, readiness)| {
                    self.declared.insert(fd, Declared::Process(registration, interest));
                    readiness
                }),
            )
        };
        added.into_iter().map(&mut declare).collect()
    }

    /// Waits for events. Returns 0 after the timeout.
    fn next(
        &mut self,
        out: &mut [MaybeUninit<EventDescription>],
        timeout: Option<Duration>,
    ) -> Result<usize, c_int> {
        for fd in std::mem::take(&mut self.reported) {
            // It fails if the descriptor was closed.
            let _ = self.declared.get(&fd).map(Declared::rearm);
        }
        let one_shot = self.queue.semantics().trigger == Trigger::OneShot;
        let end = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            // The thread that declared an interest has reported its error.
            self.join();
            let remaining = end.map(|end| end.saturating_duration_since(Instant::now()));
            let mut count = 0;
            let mut closed = Vec::new();
            {
                let batch = self.queue.next_events(out.len(), remaining);
                let mut batch = batch.map_err(|error| errno(&error))?;
                for event in batch.by_ref() {
                    let fd = event.token;
                    if event.readiness.contains(Readiness::ERROR) && is_closed(fd) {
                        closed.push(fd);
                        continue;
                    }
                    out[count].write(EventDescription { fd, mask: mask(event.readiness) as u32 });
                    count += 1;
                    if one_shot {
                        self.reported.push(fd);
                    }
                }
                if count == 0 && batch.interrupted() {
                    return Err(libc::EINTR);
                }
            }
            closed.iter().for_each(|fd| drop(self.declared.remove(fd)));
            let is_over = || end.is_some_and(|end| Instant::now() >= end);
            if count > 0 || is_over() {
                return Ok(count);
            }
        }
    }
}

impl Drop for ThreadQueue {
    fn drop(&mut self) {
        with_process(|process| process.wakers.remove(&self.thread));
    }
}

fn mask(readiness: Readiness) -> c_int {
    EVENTS
        .iter()
        .filter(|(_, _, flag)| readiness.contains(*flag))
        .fold(0, |mask, (bit, ..)| mask | bit)
}

fn interest(mask: c_int) -> Result<Interest, c_int> {
    let known = EVENTS.iter().fold(0, |known, (bit, ..)| known | bit);
    if mask & !known != 0 {
        return Err(libc::EINVAL);
    }
    let included = EVENTS.iter().filter(|(bit, ..)| mask & bit != 0);
    Ok(included.fold(Interest::empty(), |interest, (_, flag, _)| interest | *flag))
}

/// Returns whether a number names no open file.
fn is_closed(fd: RawFd) -> bool {
    // SAFETY: the call reads the flags of a number.
    unsafe { libc::fcntl(fd, libc::F_GETFD) == -1 }
}

/// Converts the interest in a descriptor, which must be open unless there is none.
fn interest_in(fd: RawFd, mask: c_int) -> Result<Interest, c_int> {
    let interest = interest(mask)?;
    if !interest.is_empty() {
        check_open(fd)?;
    }
    Ok(interest)
}

fn check_open(fd: RawFd) -> Result<(), c_int> {
    if fd < 0 || is_closed(fd) { Err(libc::EBADF) } else { Ok(()) }
}

/// Runs a function on the queue of this thread.
fn with_queue<T>(run: impl FnOnce(&mut ThreadQueue) -> Result<T, c_int>) -> Result<T, c_int> {
    QUEUE.with(|queue| {
        let mut queue = queue.borrow_mut();
        match &mut *queue {
            Some(queue) => run(queue),
            empty => run(empty.insert(ThreadQueue::open()?)),
        }
    })
}

/// Stores the mask of a readiness in `out`, unless it is null.
///
/// # Safety
/// `out` is null or may be written.
unsafe fn store(out: *mut c_int, readiness: Readiness) {
    if !out.is_null() {
        // SAFETY: the caller passes a pointer that may be written.
        unsafe { out.write(mask(readiness)) };
    }
}

/// See the header.
///
/// # Safety
/// The contract of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearken_declare_interest(
    fd: c_int,
    mask: c_int,
    out: *mut c_int,
) -> c_int {
    guard(|| {
        let interest = interest_in(fd, mask)?;
        let readiness = with_queue(|queue| queue.declare(fd, interest))?;
        // SAFETY: the caller passes null or a pointer that may be written.
        unsafe { store(out, readiness) };
        Ok(0)
    })
}

/// See the header.
///
/// # Safety
/// The contract of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearken_declare_processwide_interest(
    fd: c_int,
    mask: c_int,
    out: *mut c_int,
) -> c_int {
    guard(|| {
        let interest = interest_in(fd, mask)?;
        with_process(|process| {
            process.version += 1;
            process.interests.remove(&fd);
            if !interest.is_empty() {
                let source = Shared::new(Source(fd), Wake::One);
                let version = process.version;
                process.interests.insert(fd, ProcessInterest { version, source, interest });
            }
        });
        let joined = with_queue(|queue| Ok(queue.join()))?;
        let state = joined.into_iter().find(|(joined, _)| *joined == fd);
        let readiness = state.map_or(Ok(Readiness::empty()), |(_, readiness)| readiness);
        with_process(|process| match readiness {
            Ok(_) => process.wakers.values().for_each(Waker::wake),
            Err(_) => drop(process.interests.remove(&fd)),
        });
        // SAFETY: the caller passes null or a pointer that may be written.
        unsafe { store(out, readiness?) };
        Ok(0)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn hearken_wakeup_one(fd: c_int) -> c_int {
    guard(|| {
        check_open(fd)?;
        with_process(|process| {
            process.wake_one.insert(fd, Shared::new(Source(fd), Wake::One));
        });
        Ok(0)
    })
}

/// See the header.
///
/// # Safety
/// The contract of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hearken_get_next_event(
    max: c_int,
    out: *mut EventDescription,
    timeout: *const libc::timeval,
) -> c_int {
    guard(|| {
        let max = usize::try_from(max).ok().filter(|max| *max > 0 && !out.is_null());
        let max = max.ok_or(libc::EINVAL)?;
        // SAFETY: the caller passes space for `max` events.
        let out = unsafe { std::slice::from_raw_parts_mut(out.cast(), max) };
        let timeout = match timeout.is_null() {
            true => None,
            // SAFETY: the caller passes a timeout.
            false => Some(duration(unsafe { object(timeout)? })?),
        };
        with_queue(|queue| queue.next(out, timeout)).map(|count| count as c_int)
    })
}

/// Converts a timeout.
fn duration(time: &libc::timeval) -> Result<Duration, c_int> {
    let seconds = u64::try_from(time.tv_sec).map_err(|_| libc::EINVAL)?;
    let microseconds = u32::try_from(time.tv_usec).map_err(|_| libc::EINVAL)?;
    if microseconds >= 1_000_000 {
        return Err(libc::EINVAL);
    }
    Ok(Duration::new(seconds, microseconds * 1000))
}
