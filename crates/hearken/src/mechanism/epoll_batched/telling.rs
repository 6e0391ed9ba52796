//! Telling the kernel of changes through a ring, and waiting through it. What the letters mean stands in
//! `epoll_batched.rs`.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use crate::mechanism::Unavailable;
use crate::ring::{Ring, Sqe, Work, op};

/// Room for submissions: more are handed over in several calls.
const SUBMISSIONS: u32 = 256;
/// Comes back with what nobody waits for; no descriptor has this number.
const NOBODY: u64 = u64::MAX;
/// Comes back with the wait in the ring.
const WAIT: u64 = u64::MAX - 1;

/// What the kernel is told of a descriptor.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Op {
    Add = libc::EPOLL_CTL_ADD as u32,
    Delete = libc::EPOLL_CTL_DEL as u32,
    Modify = libc::EPOLL_CTL_MOD as u32,
}

/// A ring, and what the kernel is to read of its submissions until they are handed over.
pub(super) struct Telling {
    ring: Ring,
    events: Box<[libc::epoll_event; SUBMISSIONS as usize]>,
    next: usize,
    /// How many have not been done, and whether one of them adds.
    pending: u32,
    adds: bool,
    /// What was refused: of which number, and why.
    pub(super) refused: Vec<(Op, u32, i32)>,
    /// What the wait in the ring has answered, and whether it was cancelled.
    waited: Option<i32>,
    cancelled: bool,
}

impl Telling {
    /// Asks the kernel for a ring that can change interest, and wait too where that `waits`.
    pub(super) fn open(waits: bool) -> Result<Telling, Unavailable> {
        let ring = Ring::open(Work::Deferred, (SUBMISSIONS, 2 * SUBMISSIONS))?;
        ring.require(op::EPOLL_CTL, "it needs Linux 5.6, or via=calls")?;
        if waits {
            ring.require(op::EPOLL_WAIT, "it needs Linux 6.15, or wait=epoll")?;
        }
        Ok(Telling {
            ring,
            events: Box::new([libc::epoll_event { events: 0, u64: 0 }; SUBMISSIONS as usize]),
            next: 0,
            pending: 0,
            adds: false,
            refused: Vec::new(),
            waited: None,
            cancelled: false,
        })
    }

    /// True if there may be no room for another change, a wait and its cancellation.
    pub(super) fn is_full(&mut self) -> bool {
        self.ring.is_short_of(3)
    }

    pub(super) fn calls(&self) -> u64 {
        self.ring.calls()
    }

    /// Queues a change.
    pub(super) fn push(
        &mut self,
        epoll: &OwnedFd,
        op: Op,
        (number, what): (u32, libc::epoll_event),
    ) {
        let event = &mut self.events[self.next % self.events.len()];
        self.next += 1;
        *event = what;
        let event: *const libc::epoll_event = event;
        let entry = Sqe::epoll_ctl(epoll.as_raw_fd(), op as u32, number as RawFd, event.cast());
        let entry = entry.user_data(data(number, op as u32));
        // SAFETY: the event stays as it is until it is handed over, which is when the kernel reads it:
        // there are as many as there are places in the queue, and they are used in turn.
        unsafe { self.ring.push(entry) };
        self.pending += 1;
        self.adds |= op == Op::Add;
    }

    /// Hands over what is queued, and takes what has been answered.
    fn enter(&mut self, least: u32, timeout: Option<Duration>) -> io::Result<()> {
        self.ring.enter(least, timeout)?;
        while let Some(completion) = self.ring.next() {
            let (who, result) = (completion.user_data(), completion.result());
            match who {
                // It had not come to where it could be cancelled, or has ended.
                NOBODY => self.cancelled = false,
                WAIT => self.waited = Some(result),
                _ => {
                    self.pending -= 1;
                    let op = match (who >> 32) as i32 {
                        libc::EPOLL_CTL_ADD => Op::Add,
                        libc::EPOLL_CTL_MOD => Op::Modify,
                        _ => Op::Delete,
                    };
                    if result < 0 && op != Op::Delete {
                        self.refused.push((op, who as u32, -result));
                    }
                }
            }
        }
        self.adds &= self.pending > 0;
        Ok(())
    }

    /// Has all that was told be done (e).
    pub(super) fn settle(&mut self) -> io::Result<()> {
        while self.pending > 0 {
            self.enter(self.pending, None)?;
        }
        Ok(())
    }

    /// epoll_wait in the ring, together with what is queued, into the spare room of `batch`.
    pub(super) fn wait(
        &mut self,
        epoll: &OwnedFd,
        batch: &mut Vec<libc::epoll_event>,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        let room = batch.capacity() as u32;
        let wait = Sqe::epoll_wait(epoll.as_raw_fd(), batch.as_mut_ptr().cast(), room);
        self.waited = None;
        // SAFETY: the kernel writes at most as many events as there is room for, in their layout,
        // until the wait has answered, which is awaited below.
        unsafe { self.ring.push(wait.user_data(WAIT)) };
        self.cancelled = false;
        if timeout == Some(Duration::ZERO) {
            self.cancel_wait();
        }
        while self.waited.is_none() {
            let before = self.pending;
            // What fails must not be slept over.
            let least = if self.adds { 1 } else { before + 1 };
            self.enter(least, timeout.filter(|_| !self.cancelled))?;
            let told = self.pending < before && self.refused.is_empty();
            if self.waited.is_none()
                && !self.cancelled
                && (!told || timeout == Some(Duration::ZERO))
            {
                self.cancel_wait(); // (f)
            }
        }
        self.settle()?;
        match self.waited.take().unwrap_or_default() {
            got if got >= 0 => {
                // SAFETY: the kernel has written that many.
                unsafe { batch.set_len(got as usize) };
                Ok(())
            }
            error if [libc::ECANCELED, libc::EINTR, libc::EAGAIN].contains(&-error) => Ok(()),
            error => Err(io::Error::from_raw_os_error(-error)),
        }
    }

    fn cancel_wait(&mut self) {
        self.cancelled = true;
        // SAFETY: a cancellation points to nothing.
        unsafe { self.ring.push(Sqe::cancel(WAIT).user_data(NOBODY).skip_success()) };
    }
}

pub(super) fn data(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}
