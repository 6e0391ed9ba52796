//! Submits changes through a ring, and waits through it. `epoll_batched.rs` explains the letters.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::io::Errno;

use crate::mechanism::Unavailable;
use crate::ring::{CompletionMode, Ring, RingInterface, Sqe, op};
use crate::timer::Time;

/// The size of the submission queue. More changes are submitted in several calls.
const SUBMISSIONS: u32 = 256;
/// The user data of requests whose completion is ignored. No descriptor has this number.
const IGNORED: u64 = u64::MAX;
/// The user data of the wait in the ring.
const WAIT: u64 = u64::MAX - 1;

/// A change of a watch in the kernel.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Op {
    Add = libc::EPOLL_CTL_ADD as u32,
    Delete = libc::EPOLL_CTL_DEL as u32,
    Modify = libc::EPOLL_CTL_MOD as u32,
}

/// A ring, and the arguments that the kernel reads when its entries are submitted.
pub(super) struct Submitter {
    ring: Ring,
    events: Box<[libc::epoll_event; SUBMISSIONS as usize]>,
    next: usize,
    /// The number of changes that have not completed.
    pending: u32,
    /// Whether a pending change is an addition.
    adds: bool,
    /// The operation, descriptor number and error of changes that failed.
    pub(super) errors: Vec<(Op, u32, i32)>,
    /// The result of the wait in the ring.
    wait_result: Option<i32>,
    /// Whether the wait in the ring was cancelled.
    cancelled: bool,
}

impl Submitter {
    /// Creates a ring for changes, and for waits if `waits` is set.
    pub(super) fn open(waits: bool) -> Result<Submitter, Unavailable> {
        let ring = Ring::open(CompletionMode::Deferred, (SUBMISSIONS, 2 * SUBMISSIONS))?;
        ring.require_operation(op::EPOLL_CTL, "it needs Linux 5.6, or via=calls")?;
        if waits {
            ring.require_operation(op::EPOLL_WAIT, "it needs Linux 6.15, or wait=epoll")?;
        }
        Ok(Submitter {
            ring,
            events: Box::new([libc::epoll_event { events: 0, u64: 0 }; SUBMISSIONS as usize]),
            next: 0,
            pending: 0,
            adds: false,
            errors: Vec::new(),
            wait_result: None,
            cancelled: false,
        })
    }

    /// Returns whether there may be no space for another change, a wait and its cancellation.
    pub(super) fn is_full(&mut self) -> bool {
        self.ring.lacks_space_for(3)
    }

    pub(super) fn calls(&self) -> u64 {
        self.ring.calls()
    }

    /// Queues a change of the watch of descriptor `number`.
    pub(super) fn push(
        &mut self,
        epoll: &OwnedFd,
        op: Op,
        (number, event): (u32, libc::epoll_event),
    ) {
        let slot = &mut self.events[self.next % self.events.len()];
        self.next += 1;
        *slot = event;
        let event: *const libc::epoll_event = slot;
        let entry = Sqe::epoll_ctl(epoll.as_raw_fd(), op as u32, number as RawFd, event.cast());
        let entry = entry.user_data(data(number, op as u32));
        // SAFETY: the kernel reads the event when the entry is submitted. It does not change
        // before: there are as many events as entries in the queue, and they are used in turn.
        unsafe { self.ring.push(entry) };
        self.pending += 1;
        self.adds |= op == Op::Add;
    }

    /// Submits the queued entries and handles completions.
    fn enter(&mut self, min: u32, timeout: Option<Duration>) -> io::Result<()> {
        self.ring.enter(min, timeout)?;
        while let Some(completion) = self.ring.next() {
            let (user_data, result) = (completion.user_data(), completion.result());
            match user_data {
                // The wait had not started, or has ended.
                IGNORED => self.cancelled = false,
                WAIT => self.wait_result = Some(result),
                _ => {
                    self.pending -= 1;
                    let op = match (user_data >> 32) as i32 {
                        libc::EPOLL_CTL_ADD => Op::Add,
                        libc::EPOLL_CTL_MOD => Op::Modify,
                        _ => Op::Delete,
                    };
                    if result < 0 && op != Op::Delete {
                        self.errors.push((op, user_data as u32, -result));
                    }
                }
            }
        }
        self.adds &= self.pending > 0;
        Ok(())
    }

    /// Waits until all changes have completed (e).
    pub(super) fn finish(&mut self) -> io::Result<()> {
        while self.pending > 0 {
            self.enter(self.pending, None)?;
        }
        Ok(())
    }

    /// Submits the queued entries with an epoll_wait(2) that fills the capacity of `batch`.
    pub(super) fn wait(
        &mut self,
        epoll: &OwnedFd,
        batch: &mut Vec<libc::epoll_event>,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        let capacity = batch.capacity() as u32;
        let wait = Sqe::epoll_wait(epoll.as_raw_fd(), batch.as_mut_ptr().cast(), capacity);
        self.wait_result = None;
        // SAFETY: the kernel writes at most `capacity` events, until the wait has completed. The
        // loop below ends only after that.
        unsafe { self.ring.push(wait.user_data(WAIT)) };
        self.cancelled = false;
        if timeout == Some(Duration::ZERO) {
            self.cancel_wait();
        }
        let end = timeout.map(|timeout| Time::now() + timeout);
        let mut interrupted = false;
        while self.wait_result.is_none() {
            let before = self.pending;
            // An addition may fail, which must not wait for the timeout.
            let min = if self.adds { 1 } else { before + 1 };
            self.enter(min, timeout.filter(|_| !self.cancelled))?;
            let progress = self.pending < before && self.errors.is_empty();
            if self.wait_result.is_none()
                && !self.cancelled
                && (!progress || timeout == Some(Duration::ZERO))
            {
                // The enter does not report it if it also submitted entries.
                let ended_early = self.pending == before && self.errors.is_empty();
                interrupted = ended_early && end.is_none_or(|end| Time::now() < end);
                self.cancel_wait(); // (f)
            }
        }
        self.finish()?;
        match self.wait_result.take().unwrap_or_default() {
            count if count >= 0 => {
                // SAFETY: the kernel has written that many events.
                unsafe { batch.set_len(count as usize) };
                Ok(())
            }
            error if [libc::ECANCELED, libc::EINTR, libc::EAGAIN].contains(&-error) => {
                if self.ring.take_interrupted() || interrupted {
                    Err(Errno::INTR.into())
                } else {
                    Ok(())
                }
            }
            error => Err(io::Error::from_raw_os_error(-error)),
        }
    }

    fn cancel_wait(&mut self) {
        self.cancelled = true;
        // SAFETY: a cancellation points to no memory.
        unsafe { self.ring.push(Sqe::cancel(WAIT).user_data(IGNORED).skip_success()) };
    }
}

pub(super) fn data(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}
