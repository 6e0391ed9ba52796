//! The scan of an improved select(2), which checks only descriptors that were ready and those hinted.
//!
//! The hints come from edge-triggered epoll(7), as for [`dev_poll`](super::super::dev_poll). A
//! change of interest is therefore a system call, which it was not in the original.

use std::os::fd::RawFd;
use std::time::Duration;
use std::{fmt, io};

use rustix::event::{FdSetElement, fd_set_insert};

use crate::event::{Event, Interest, Token};
use crate::mechanism::epoll::{Edge, Epoll};
use crate::mechanism::trigger::AsLevel;
use crate::mechanism::{Mechanism, Open, SignalMask, Unavailable};

/// The kernel's part of an improved select(2).
pub(super) struct HintedSelect {
    ready: AsLevel<Epoll<Edge>>,
    /// The descriptor and interest of each slot.
    watches: Vec<(RawFd, Interest)>,
}

impl fmt::Debug for HintedSelect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ready.fmt(f)
    }
}

impl HintedSelect {
    pub(super) fn open() -> Result<HintedSelect, Unavailable> {
        let ready = AsLevel::without_verification(Epoll::open()?);
        Ok(HintedSelect { ready, watches: Vec::new() })
    }

    /// Registers a descriptor for hints.
    ///
    /// # Safety
    /// The requirements of [`Mechanism::declare`].
    pub(super) unsafe fn declare(
        &mut self,
        fd: RawFd,
        token: Token,
        interest: Interest,
    ) -> io::Result<()> {
        // SAFETY: the caller fulfils the same requirements.
        unsafe { self.ready.declare(fd, token, interest)? };
        let slot = token.slot() as usize;
        if slot >= self.watches.len() {
            self.watches.resize(slot + 1, (-1, Interest::empty()));
        }
        self.watches[slot] = (fd, interest);
        Ok(())
    }

    /// Replaces the interest in a descriptor.
    ///
    /// # Safety
    /// The requirements of [`Mechanism::change`].
    pub(super) unsafe fn change(
        &mut self,
        fd: RawFd,
        token: Token,
        interest: Interest,
    ) -> io::Result<()> {
        // SAFETY: the caller fulfils the same requirements.
        unsafe { self.ready.change(fd, token, interest)? };
        self.watches[token.slot() as usize] = (fd, interest);
        Ok(())
    }

    /// Ends the registration of a descriptor.
    ///
    /// # Safety
    /// The requirements of [`Mechanism::revoke`].
    pub(super) unsafe fn revoke(&mut self, fd: RawFd, token: Token) -> io::Result<()> {
        // SAFETY: the caller fulfils the same requirements.
        unsafe { self.ready.revoke(fd, token) }
    }

    /// Replaces the bitmaps by those of the ready descriptors, as select(2) does. Waits if there are
    /// none. Returns the number of ready descriptors.
    pub(super) fn select(
        &mut self,
        [read, write, except]: [&mut Vec<FdSetElement>; 3],
        timeout: Option<Duration>,
        mask: Option<&SignalMask>,
    ) -> io::Result<usize> {
        let max = self.watches.len();
        let count = match mask {
            None => self.ready.wait(max, timeout)?,
            Some(mask) => self.ready.wait_with_mask(max, timeout, mask)?,
        };
        read.fill(FdSetElement::default());
        write.fill(FdSetElement::default());
        except.fill(FdSetElement::default());
        for index in 0..count {
            let Event { token, readiness } = self.ready.event(index);
            let Some(&(fd, interest)) = self.watches.get(token.slot() as usize) else { continue };
            let readiness = readiness.restrict_to(interest);
            if readiness.is_readable() {
                fd_set_insert(read, fd);
            }
            if readiness.is_writable() {
                fd_set_insert(write, fd);
            }
            if readiness.has_priority() {
                fd_set_insert(except, fd);
            }
        }
        Ok(count)
    }

    /// Returns the number of system calls.
    pub(super) fn calls(&self) -> u64 {
        self.ready.calls()
    }
}
