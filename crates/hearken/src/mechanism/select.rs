//! select(2): the caller passes up to three bitmaps to the kernel in every wait, and the kernel
//! modifies them.
//!
//! `scan=hints` is the select of Banga and Mogul ("Scalable kernel performance for Internet servers
//! under realistic loads", USENIX 1998, Section 4). The bitmaps are still copied and searched, but
//! only descriptors that were ready and those hinted are checked: `select/hinted.rs`.
//!
//! Pitfalls, and how the code handles them:
//!
//! a) The limit FD_SETSIZE (1024) belongs to the C library. The kernel reads as many bits as it is
//!    asked to. The bitmaps here grow with the highest descriptor.
//! b) The kernel overwrites its arguments: each wait passes copies.
//! c) The cost depends on the highest descriptor number, not on the number of registrations. The
//!    bound is recomputed when the highest descriptor is removed.
//! d) Results are in the order of descriptor numbers. A wait that returns fewer than are ready
//!    continues from there in the next wait, or low numbers would starve high ones.
//! e) A single closed descriptor fails the whole call with EBADF. The contract of the trait
//!    prevents that.
//! f) It does not distinguish end of stream, hang-up and error from data or buffer space. They are
//!    READABLE and WRITABLE, and the next operation reports the condition. The absence of
//!    READ_CLOSED after a short read is therefore not significant. The mechanism is
//!    level-triggered, so the next wait reports the end.
//! g) The kernel reports a hang-up in the first bitmap only. With an interest in WRITE alone it is
//!    reported if there is buffer space or an error, as after a close by the peer. It is not
//!    reported if a Unix peer has shut down both directions and keeps unread data. With an interest
//!    in priority data alone, neither hang-ups nor errors are reported.

use std::os::fd::RawFd;
use std::time::Duration;
use std::{fmt, io};

use rustix::event::{FdSetElement, FdSetIter, fd_set_bound, fd_set_insert, fd_set_remove};
use rustix::io::Errno;

use super::{ChangeCost, Mechanism, Open, OptionSpec, Options, Semantics, SignalMask};
use super::{Unavailable, Values, WaitCost, timespec};
use crate::event::{Event, Interest, Readiness, Token};

mod hinted;

use hinted::HintedSelect;

/// select(2).
#[derive(Default)]
pub struct Select {
    /// The replacement of the kernel's scan.
    hinted: Option<Box<HintedSelect>>,
    read: Vec<FdSetElement>,
    write: Vec<FdSetElement>,
    /// Priority data. Empty, and not passed to the kernel, before the first such interest.
    except: Vec<FdSetElement>,
    /// The arguments of the last call, which contain its results.
    read_now: Vec<FdSetElement>,
    write_now: Vec<FdSetElement>,
    except_now: Vec<FdSetElement>,
    /// The tokens of registered descriptors, indexed by number.
    tokens: Vec<Option<Token>>,
    /// The highest number in either bitmap plus one. `None` if it must be recomputed.
    bound: Option<RawFd>,
    /// The descriptor number at which the next batch begins.
    next: RawFd,
    /// The events, each with its descriptor number.
    batch: Vec<(RawFd, Event)>,
    /// The signal mask of the current wait, if it has one.
    mask: Option<Box<SignalMask>>,
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
        for (set, contains) in [
            (&mut self.read, interest.contains(Interest::READ)),
            (&mut self.write, interest.contains(Interest::WRITE)),
        ] {
            if contains {
                fd_set_insert(set, fd);
            } else {
                fd_set_remove(set, fd);
            }
        }
        if !self.except.is_empty() || interest.contains(Interest::PRIORITY) {
            self.mark_priority(fd, interest);
        }
        if !interest.is_empty() {
            self.bound = self.bound.map(|bound| bound.max(fd + 1));
        } else if was_last {
            self.bound = None; // (c)
        }
    }

    #[cold]
    fn mark_priority(&mut self, fd: RawFd, interest: Interest) {
        self.except.resize(self.read.len(), FdSetElement::default());
        if interest.contains(Interest::PRIORITY) {
            fd_set_insert(&mut self.except, fd);
        } else {
            fd_set_remove(&mut self.except, fd);
        }
    }

    fn bound(&mut self) -> RawFd {
        let Select { read, write, except, .. } = self;
        let bound = || fd_set_bound(read).max(fd_set_bound(write)).max(fd_set_bound(except));
        *self.bound.get_or_insert_with(bound)
    }

    /// Adds the results of the third bitmap to the batch, which ascends.
    #[cold]
    fn add_priority(&mut self) {
        for fd in FdSetIter::new(&self.except_now) {
            let Some(token) = self.tokens[fd as usize] else { continue };
            let index = self.batch.partition_point(|&(other, _)| other < fd);
            match self.batch.get_mut(index).filter(|(other, _)| *other == fd) {
                Some((_, event)) => event.readiness |= Readiness::PRIORITY,
                None => {
                    let event = Event { token, readiness: Readiness::PRIORITY };
                    self.batch.insert(index, (fd, event));
                }
            }
        }
    }
}

impl Open for Select {
    const NAME: &'static str = "select";
    const SUMMARY: &'static str = "select(2), with bitmaps that grow past 1024";
    const SEMANTICS: Semantics = Semantics {
        wait: WaitCost::HighestDescriptor,
        reports: Readiness::READABLE.union(Readiness::PRIORITY).union(Readiness::WRITABLE),
        ..Semantics::COMMON
    };

    const OPTIONS: &'static [OptionSpec] = &[OptionSpec {
        name: "scan",
        help: "check all descriptors, or those that were ready and those hinted (Banga and Mogul \
               1998, 4)",
        values: Values::OneOf(&["all", "hints"]),
    }];

    fn open_with(options: &Options) -> Result<Select, Unavailable> {
        let hinted = match options.get("scan") {
            "hints" => Some(Box::new(HintedSelect::open()?)),
            _ => None,
        };
        Ok(Select { hinted, bound: Some(0), ..Select::default() })
    }
}

impl Mechanism for Select {
    fn semantics(&self) -> &'static Semantics {
        match &self.hinted {
            None => &Self::SEMANTICS,
            Some(_) => const { &Semantics { change: ChangeCost::SystemCall, ..Self::SEMANTICS } },
        }
    }

    unsafe fn declare(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        if self.token(fd).is_some() {
            return Err(Errno::EXIST.into());
        }
        let number = usize::try_from(fd).map_err(|_| Errno::BADF)?;
        if let Some(hinted) = &mut self.hinted {
            // SAFETY: the caller fulfils the same requirements.
            unsafe { hinted.declare(fd, token, interest)? };
        }
        if number >= self.tokens.len() {
            // (a) Doubled, so that consecutive descriptors cost amortised O(1).
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

    unsafe fn change(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        if self.token(fd).is_none() {
            return Err(Errno::NOENT.into());
        }
        if let Some(hinted) = &mut self.hinted {
            // SAFETY: the caller fulfils the same requirements.
            unsafe { hinted.change(fd, token, interest)? };
        }
        self.mark(fd, interest);
        Ok(())
    }

    unsafe fn revoke(&mut self, fd: RawFd, token: Token) -> io::Result<()> {
        if self.token(fd).is_none() {
            return Err(Errno::NOENT.into());
        }
        if let Some(hinted) = &mut self.hinted {
            // SAFETY: the caller fulfils the same requirements.
            unsafe { hinted.revoke(fd, token)? };
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
        self.except_now.clear();
        if let Some(except) = self.except.get(..elements) {
            self.except_now.extend_from_slice(except);
        }
        let (read, write, except) = (&mut self.read_now, &mut self.write_now, &mut self.except_now);
        let found = match (&mut self.hinted, &self.mask) {
            (None, Some(mask)) => {
                // SAFETY: the bitmaps contain registered descriptors, which the caller keeps open.
                unsafe { mask.pselect(bound, [read, write, except], timeout)? }
            }
            (None, None) => {
                let timeout = timeout.map(timespec);
                let except = (!except.is_empty()).then_some(&mut except[..]);
                // SAFETY: the bitmaps contain registered descriptors, which the caller keeps open.
                let found = unsafe {
                    rustix::event::select(bound, Some(read), Some(write), except, timeout.as_ref())
                };
                found? as usize
            }
            (Some(hinted), mask) => {
                hinted.select([read, write, except], timeout, mask.as_deref())?
            }
        };
        if found == 0 {
            return Ok(0);
        }
        // Both iterators ascend. Merging them yields one event for each descriptor.
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
            if let Some(token) = self.tokens[fd as usize] {
                self.batch.push((fd, Event { token, readiness }));
            }
        }
        if !self.except_now.is_empty() {
            self.add_priority();
        }
        if self.batch.len() > max.max(1) {
            let first = self.batch.partition_point(|&(fd, _)| fd < self.next); // (d)
            self.batch.rotate_left(first);
            self.batch.truncate(max.max(1));
        }
        self.next = self.batch.last().map_or(0, |&(fd, _)| fd + 1);
        Ok(self.batch.len())
    }

    fn wait_with_mask(
        &mut self,
        max: usize,
        timeout: Option<Duration>,
        mask: &SignalMask,
    ) -> io::Result<usize> {
        self.mask = Some(Box::new(*mask));
        let waited = self.wait(max, timeout);
        self.mask = None;
        waited
    }

    #[inline]
    fn event(&self, index: usize) -> Event {
        self.batch.get(index).map_or(super::NO_EVENT, |&(_, event)| event)
    }

    fn calls(&self) -> u64 {
        self.hinted.as_ref().map_or(self.calls, |hinted| hinted.calls())
    }
}
