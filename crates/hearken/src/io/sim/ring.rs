//! A simulated ring: it performs the submissions of [`UringIo`] on the sockets of a [`Host`].
//!
//! It completes requests in any order and manner that kernels have been seen to. Its rules follow
//! `io_uring/` in Linux 6.0 to 6.18:
//!
//! a) An entry is read, and its descriptor looked up, when it is submitted. From then on the
//!    request holds the open file. Linked entries are looked up when they start.
//! b) A request is attempted at once. If it would block, it waits for its socket, and is attempted
//!    again in a later enter. If the kernel has no memory to wait for the socket, a worker thread
//!    attempts it once, late, and it may fail with `EAGAIN`.
//! c) A completion that does not fit into the completion queue is kept and posted later. It ends a
//!    multishot request.
//! d) A cancellation takes effect after the completion of the cancelling request. A request that
//!    runs at that moment cannot be cancelled (`EALREADY`), or has ended already (`ENOENT`).
//! e) A failed entry cancels the entries linked to it. A short send with `MSG_WAITALL` has failed.

// The ring reads and writes the memory that submissions name, as the kernel does.
#![allow(unsafe_code)]

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use super::host::{Host, SocketId};
use super::kernel::{KernelFaults, SimKernel, SimSocket};
use crate::io::uring::{RingKernel, Settings, UringIo};
use crate::mechanism::Unavailable;
use crate::ring::{Cqe, RingInterface, Sqe};
use crate::timer::Time;

mod buffers;
mod requests;

use buffers::BufferRing;
use requests::{Link, Request};

/// The behaviour of a simulated ring: the faults of the kernel, and the freedoms that it has.
/// Probabilities are in thousandths. The default is that nothing of this happens.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct RingFaults {
    /// Faults of the system calls that are not made through the ring.
    pub kernel: KernelFaults,
    /// Size of the completion queue, which may be smaller than the kernel allows. Zero stands for
    /// the size in the settings.
    pub completions: u32,
    /// Whether completions appear at any time, and not only in an enter (without `DEFER_TASKRUN`).
    pub cooperative: bool,
    /// An enter fails with `EAGAIN` or `EBUSY`, and leaves all entries queued.
    pub failed_enters: u32,
    /// An enter submits only some entries, and does not wait.
    pub partial_submissions: u32,
    /// A wait is interrupted (`EINTR`).
    pub interrupted_waits: u32,
    /// The next of several ready requests is not the first.
    pub reordering: u32,
    /// A ready request completes in a later enter.
    pub delays: u32,
    /// A worker thread attempts a request (b).
    pub workers: u32,
    /// A request is interrupted (`EINTR`).
    pub interrupted_requests: u32,
    /// A cancellation comes too late (d).
    pub late_cancellations: u32,
    /// A multishot request ends with a success.
    pub ended_multishots: u32,
    /// A receive fails with `ENOBUFS` although there are buffers.
    pub missing_buffers: u32,
    /// A multishot receive takes all buffers that it can fill before others continue.
    pub greedy_receives: u32,
    /// A receive yields fewer bytes than are available.
    pub short_receives: u32,
    /// The end of a stream takes a buffer.
    pub buffers_at_end: u32,
    /// A receive or a send fails with `ENOMEM` or `EHOSTUNREACH`.
    pub transfer_failures: u32,
    /// Accepting fails with `ECONNABORTED`, `EMFILE`, `ENFILE`, `ENOBUFS` or `ENOMEM`.
    pub accept_failures: u32,
}

impl RingFaults {
    /// Returns faults that all have a probability of `per_mille` thousandths, except failures that
    /// end connections or stop listeners, and failures of calls.
    pub fn transparent(per_mille: u32) -> RingFaults {
        RingFaults {
            failed_enters: per_mille,
            partial_submissions: per_mille,
            interrupted_waits: per_mille,
            reordering: per_mille,
            delays: per_mille,
            workers: per_mille,
            interrupted_requests: per_mille,
            late_cancellations: per_mille,
            ended_multishots: per_mille,
            missing_buffers: per_mille,
            greedy_receives: per_mille,
            short_receives: per_mille,
            buffers_at_end: per_mille,
            ..RingFaults::default()
        }
    }
}

/// Creates an [`Io`](crate::io::Io) over a simulated ring of `host`, which nothing else uses.
///
/// # Errors
/// None at present.
pub fn uring(
    host: &Host,
    settings: Settings,
    faults: RingFaults,
) -> Result<UringIo<SimRing, SimKernel>, Unavailable> {
    let settings = settings.within_limits();
    let kernel = SimKernel::new(host, faults.kernel);
    let ring = SimRing::new(&kernel, &settings, faults);
    UringIo::over(kernel.clone(), ring, settings, || Ok((host.waker(), kernel.wakeups())))
}

/// Maximum number of successive enters that submit nothing, and of delays of one request.
const MAX_DELAYS: u8 = 3;

/// A simulated ring, which [`uring`] creates. It completes requests in any order and manner that
/// kernels have been seen to.
pub struct SimRing {
    kernel: SimKernel,
    faults: RingFaults,

    /// Entries that are not submitted.
    queued: VecDeque<Sqe>,
    max_queued: usize,
    /// Number of successive enters that submitted nothing.
    refusals: u8,

    /// Requests that have not ended, by the order of their submission.
    requests: BTreeMap<u64, Request>,
    next_request: u64,
    /// Requests by their sockets. `None` is the channel of wake-ups.
    by_socket: BTreeMap<Option<SocketId>, Vec<u64>>,
    /// Requests to attempt.
    runnable: VecDeque<u64>,
    changes: Vec<SocketId>,
    buffers: Option<BufferRing>,
    /// The user data of a wake-up that was reported and not yet taken.
    reported_wake_up: Option<u64>,

    /// Posted completions.
    posted: VecDeque<Cqe>,
    max_posted: usize,
    /// Number of posted completions that the program knows.
    visible: usize,
    /// Number of completions that were taken since the last enter, which tells the kernel.
    taken: usize,
    /// Completions that do not fit.
    overflowed: VecDeque<Cqe>,
    calls: u64,
    overflows: u64,
}

impl fmt::Debug for SimRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimRing")
            .field("queued", &self.queued.len())
            .field("requests", &self.requests)
            .field("posted", &self.posted)
            .field("overflowed", &self.overflowed)
            .finish_non_exhaustive()
    }
}

impl SimRing {
    fn new(kernel: &SimKernel, settings: &Settings, faults: RingFaults) -> SimRing {
        let completions = match faults.completions {
            0 => settings.completions.next_power_of_two(),
            completions => completions,
        };
        SimRing {
            kernel: kernel.clone(),
            faults,
            queued: VecDeque::new(),
            max_queued: settings.submissions.next_power_of_two() as usize,
            refusals: 0,
            requests: BTreeMap::new(),
            next_request: 0,
            by_socket: BTreeMap::new(),
            runnable: VecDeque::new(),
            changes: Vec::new(),
            buffers: None,
            reported_wake_up: None,
            posted: VecDeque::new(),
            max_posted: completions as usize,
            visible: 0,
            taken: 0,
            overflowed: VecDeque::new(),
            calls: 0,
            overflows: 0,
        }
    }

    fn host(&self) -> &Host {
        self.kernel.host()
    }

    fn now(&self) -> Time {
        self.host().world().now()
    }

    fn has_fault(&self, per_mille: u32) -> bool {
        per_mille > 0 && self.host().world().has_fault(per_mille)
    }

    fn decide(&self, limit: usize) -> usize {
        self.host().world().decide(u32::try_from(limit).unwrap_or(u32::MAX)) as usize
    }

    /// Submits the queued entries. Returns whether all were submitted.
    fn submit(&mut self) -> bool {
        let mut count = self.queued.len();
        if self.refusals < MAX_DELAYS {
            if self.has_fault(self.faults.failed_enters) {
                self.refusals += 1;
                return false;
            }
            if count > 0 && self.has_fault(self.faults.partial_submissions) {
                count = self.decide(count);
                self.refusals += 1;
            }
        }
        while count > 0
            && let Some(entry) = self.queued.pop_front()
        {
            count -= 1;
            // SAFETY: the caller of `push` keeps the memory valid until the request has ended.
            let mut head = unsafe { Request::new(&entry) };
            let mut link = head.link;
            while link != Link::None
                && let Some(entry) = self.queued.pop_front()
            {
                count = count.saturating_sub(1);
                // SAFETY: as above.
                let next = unsafe { Request::new(&entry) };
                link = next.link;
                head.chain.push_back(next);
            }
            self.start(head);
        }
        let is_complete = self.queued.is_empty();
        if is_complete {
            self.refusals = 0;
        }
        is_complete
    }

    /// Posts completions until there are `min`, or until `until`.
    fn complete(&mut self, min: usize, until: Option<Time>) {
        loop {
            self.post_overflowed();
            self.run_all();
            if self.posted.len() >= min
                || until.is_some_and(|until| self.now() >= until)
                || self.has_fault(self.faults.interrupted_waits)
            {
                return;
            }
            if self.runnable.is_empty() {
                if self.host().is_woken() {
                    return; // Nothing waits for the wake-up, which would end each wait.
                }
                self.host().block(until);
                if !self.host().is_ready() && until.is_none_or(|until| self.now() < until) {
                    return; // A scheduler ends the wait early.
                }
            }
        }
    }

    /// Attempts the requests whose sockets have changed.
    fn run_all(&mut self) {
        let mut changes = std::mem::take(&mut self.changes);
        self.host().take_changes(&mut changes);
        for socket in changes.drain(..) {
            self.run_later(Some(socket));
        }
        self.changes = changes;
        if self.reported_wake_up.is_none() && self.host().is_woken() {
            self.run_later(None);
        }
        for _ in 0..self.runnable.len() {
            let is_reordered = self.runnable.len() > 1 && self.has_fault(self.faults.reordering);
            let index = if is_reordered { self.decide(self.runnable.len()) } else { 0 };
            let Some(number) = self.runnable.remove(index) else { return };
            let is_delayed = self.has_fault(self.faults.delays);
            let Some(request) = self.requests.get_mut(&number) else { continue };
            if is_delayed && request.delays < MAX_DELAYS {
                request.delays += 1;
                self.runnable.push_back(number);
            } else {
                request.is_runnable = false;
                self.run(number);
            }
        }
    }

    /// Marks the requests for a socket as runnable.
    fn run_later(&mut self, socket: Option<SocketId>) {
        for &number in self.by_socket.get(&socket).into_iter().flatten() {
            if let Some(request) = self.requests.get_mut(&number)
                && !std::mem::replace(&mut request.is_runnable, true)
            {
                self.runnable.push_back(number);
            }
        }
    }

    /// Returns whether the completion queue has space.
    fn has_space(&self) -> bool {
        self.overflowed.is_empty() && self.posted.len() + self.taken < self.max_posted
    }

    /// Posts a completion, or keeps it (c).
    fn post(&mut self, completion: Cqe) {
        let result = i64::from(completion.result()) as u64;
        let numbers = [completion.user_data(), result, u64::from(completion.has_more())];
        self.host().world().record(self.host().index(), numbers, || format!("{completion:?}"));
        if self.has_space() {
            self.posted.push_back(completion);
        } else {
            self.overflowed.push_back(completion);
        }
    }

    fn post_overflowed(&mut self) {
        while self.posted.len() + self.taken < self.max_posted
            && let Some(completion) = self.overflowed.pop_front()
        {
            self.posted.push_back(completion);
        }
    }
}

impl RingKernel for SimKernel {
    unsafe fn adopt(&self, number: RawFd) -> SimSocket {
        self.adopt(number)
    }

    fn release(&self, socket: SimSocket) -> RawFd {
        socket.release()
    }
}

impl RingInterface for SimRing {
    fn is_deferred(&self) -> bool {
        !self.faults.cooperative
    }

    unsafe fn register_buffers(
        &mut self,
        addr: u64,
        entries: u32,
        group: u16,
    ) -> Result<(), Unavailable> {
        // SAFETY: the caller's promise.
        self.buffers = Some(unsafe { BufferRing::new(addr, entries, group) });
        Ok(())
    }

    fn calls(&self) -> u64 {
        self.calls
    }

    fn overflows(&self) -> u64 {
        self.overflows
    }

    fn lacks_space_for(&self, more: u32) -> bool {
        self.max_queued - self.queued.len() < more as usize
    }

    unsafe fn push(&mut self, entry: Sqe) {
        assert!(self.queued.len() < self.max_queued, "the submission queue is full");
        self.queued.push_back(entry);
    }

    fn needs_enter(&self) -> bool {
        !self.queued.is_empty()
            || !self.runnable.is_empty()
            || !self.overflowed.is_empty()
            || self.host().is_ready()
    }

    fn has_completions(&mut self) -> bool {
        if self.faults.cooperative {
            // A program that enters rarely must not stop the clock.
            self.host().begin_wait();
            self.run_all();
        }
        self.visible = self.posted.len();
        self.visible > 0
    }

    fn available(&self) -> u32 {
        self.visible as u32
    }

    fn next(&mut self) -> Option<Cqe> {
        self.visible = self.visible.checked_sub(1)?;
        self.taken += 1;
        let completion = self.posted.pop_front()?;
        if self.reported_wake_up == Some(completion.user_data()) {
            self.reported_wake_up = None;
        }
        Some(completion)
    }

    fn enter(&mut self, min: u32, timeout: Option<Duration>) -> io::Result<bool> {
        self.calls += 1;
        self.overflows += u64::from(!self.overflowed.is_empty());
        self.taken = 0;
        self.host().begin_wait();
        if let Some(buffers) = &mut self.buffers {
            buffers.observe();
        }
        let until = timeout.filter(|_| min > 0).map(|timeout| self.now() + timeout);
        if self.submit() {
            self.complete(min as usize, until);
        }
        self.visible = self.posted.len();
        Ok(true)
    }
}
