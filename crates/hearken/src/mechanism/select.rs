//! select(2): the caller hands the kernel two bitmaps at every wait, and gets them back changed.
//!
//! Its traps, and what is done about each:
//!
//! a) FD_SETSIZE is 1024 and belongs to the C library, not to the kernel, which reads as many bits as
//!    it is told of. The bitmaps here grow with the highest descriptor.
//! b) The kernel overwrites its arguments: each wait works on copies.
//! c) It costs by the highest descriptor's number, not by how many are registered. The bound is
//!    found anew when the highest leaves.
//! d) The answers come in the order of the numbers. A wait that returns fewer than are ready goes on
//!    from there next time, or low numbers would starve high ones.
//! e) A single closed descriptor fails the whole call with EBADF; the trait's caller promises that it
//!    does not happen.
//! f) It does not tell end of stream, hang-up and error from data or room: they are READABLE and
//!    WRITABLE, and the next operation says which. A caller must not stop at a short read because
//!    READ_CLOSED was absent, but level-triggered as it is, it reports the end in the next wait.
//! g) A hang-up is an answer to the first bitmap only. Who asks for WRITE alone hears of it where
//!    there is room or an error, as there is once a peer has closed; not where a Unix peer has shut
//!    both directions down and holds on to what it has not read.

use std::os::fd::RawFd;
use std::time::Duration;
use std::{fmt, io};

use rustix::event::{FdSetElement, FdSetIter, fd_set_bound, fd_set_insert, fd_set_remove};
use rustix::io::Errno;

use super::{Mechanism, Open, Options, Semantics, Unavailable};
use super::{WaitCost, timespec};
use crate::event::{Event, Interest, Readiness, Token};

/// select(2).
#[derive(Default)]
pub struct Select {
    read: Vec<FdSetElement>,
    write: Vec<FdSetElement>,
    /// What the kernel is given, and what it answered.
    read_now: Vec<FdSetElement>,
    write_now: Vec<FdSetElement>,
    /// For each descriptor's number, its token if it is registered.
    tokens: Vec<Option<Token>>,
    /// One more than the highest number in either bitmap; `None` where it must be found anew.
    bound: Option<RawFd>,
    /// The number with which the next batch begins.
    next: RawFd,
    /// Each with its descriptor's number.
    batch: Vec<(RawFd, Event)>,
    calls: u64,
}

impl fmt::Debug for Select {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("select").field("bound", &self.bound).finish_non_exhaustive()
    }
}

impl Select {
    fn token(&self, fd: RawFd) -> Option<Token> {
        usize::try_from(fd).ok().and_then(|fd| self.tokens.get(fd)).copied().flatten()
    }

    fn mark(&mut self, fd: RawFd, interest: Interest) {
        let was_last = self.bound.is_some_and(|bound| bound == fd + 1);
        for (set, asked) in [
            (&mut self.read, interest.contains(Interest::READ)),
            (&mut self.write, interest.contains(Interest::WRITE)),
        ] {
            if asked {
                fd_set_insert(set, fd);
            } else {
                fd_set_remove(set, fd);
            }
        }
        if !interest.is_empty() {
            self.bound = self.bound.map(|bound| bound.max(fd + 1));
        } else if was_last {
            self.bound = None; // (c)
        }
    }

    fn bound(&mut self) -> RawFd {
        let (read, write) = (&self.read, &self.write);
        *self.bound.get_or_insert_with(|| fd_set_bound(read).max(fd_set_bound(write)))
    }
}

impl Open for Select {
    const NAME: &'static str = "select";
    const SUMMARY: &'static str = "select(2), with bitmaps that grow past 1024";
    const SEMANTICS: Semantics = Semantics {
        wait: WaitCost::HighestDescriptor,
        reports: Readiness::READABLE.union(Readiness::WRITABLE),
        ..Semantics::COMMON
    };

    fn open_with(_: &Options) -> Result<Select, Unavailable> {
        Ok(Select { bound: Some(0), ..Select::default() })
    }
}

impl Mechanism for Select {
    fn semantics(&self) -> &'static Semantics {
        &Self::SEMANTICS
    }

    unsafe fn declare(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        if self.token(fd).is_some() {
            return Err(Errno::EXIST.into());
        }
        let number = usize::try_from(fd).map_err(|_| Errno::BADF)?;
        if number >= self.tokens.len() {
            // (a) Doubled, so that descriptors that come one by one cost amortised O(1).
            let numbers = (number + 1).next_power_of_two().max(1024);
            let elements = rustix::event::fd_set_num_elements(numbers, numbers as RawFd);
            self.tokens.resize(numbers, None);
            self.read.resize(elements, FdSetElement::default());
            self.write.resize(elements, FdSetElement::default());
        }
        self.tokens[number] = Some(token);
        self.mark(fd, interest);
        Ok(())
    }

    unsafe fn change(&mut self, fd: RawFd, _token: Token, interest: Interest) -> io::Result<()> {
        if self.token(fd).is_none() {
            return Err(Errno::NOENT.into());
        }
        self.mark(fd, interest);
        Ok(())
    }

    unsafe fn revoke(&mut self, fd: RawFd, _token: Token) -> io::Result<()> {
        if self.token(fd).is_none() {
            return Err(Errno::NOENT.into());
        }
        self.mark(fd, Interest::empty());
        self.tokens[fd as usize] = None;
        Ok(())
    }

    fn wait(&mut self, max: usize, timeout: Option<Duration>) -> io::Result<usize> {
        self.batch.clear();
        self.calls += 1;
        let bound = self.bound();
        let elements = rustix::event::fd_set_num_elements(bound as usize, bound);
        self.read_now.clear();
        self.read_now.extend_from_slice(&self.read[..elements]); // (b)
        self.write_now.clear();
        self.write_now.extend_from_slice(&self.write[..elements]);
        let timeout = timeout.map(timespec);
        let (read, write) = (&mut self.read_now, &mut self.write_now);
        // SAFETY: what is in the bitmaps is registered, and the trait's callers keep that open.
        let answered = unsafe {
            rustix::event::select(bound, Some(read), Some(write), None, timeout.as_ref())
        };
        match answered {
            Ok(0) | Err(Errno::INTR) => return Ok(0),
            Ok(_) => {}
            Err(errno) => return Err(errno.into()),
        }
        // Both sets ascend: merge them, so that each descriptor makes one event.
        let mut readable = FdSetIter::new(read).peekable();
        let mut writable = FdSetIter::new(write).peekable();
        loop {
            let (r, w) = (readable.peek().copied(), writable.peek().copied());
            let Some(fd) = r.into_iter().chain(w).min() else {
                break;
            };
            let mut readiness = Readiness::empty();
            if r == Some(fd) {
                readable.next();
                readiness |= Readiness::READABLE;
            }
            if w == Some(fd) {
                writable.next();
                readiness |= Readiness::WRITABLE;
            }
            if let Some(who) = self.tokens[fd as usize] {
                self.batch.push((fd, Event { who, readiness }));
            }
        }
        if self.batch.len() > max.max(1) {
            let first = self.batch.partition_point(|&(fd, _)| fd < self.next); // (d)
            self.batch.rotate_left(first);
            self.batch.truncate(max.max(1));
        }
        self.next = self.batch.last().map_or(0, |&(fd, _)| fd + 1);
        Ok(self.batch.len())
    }

    #[inline]
    fn event(&self, index: usize) -> Event {
        self.batch.get(index).map_or(super::NO_EVENT, |&(_, event)| event)
    }

    fn calls(&self) -> u64 {
        self.calls
    }
}
