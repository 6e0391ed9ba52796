//! my-mechanism: poll(2) on a list that every wait builds, as a minimal mechanism that works.
//!
//! a) POLLERR and POLLHUP cannot be masked: descriptors with an empty interest are not polled.
//! b) A wait that returns fewer events than there are continues from there in the next wait.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::{
    Mechanism, Open, Options, Semantics, SignalMask, Unavailable, WaitCost, borrow, timespec,
};
use crate::event::{Event, Interest, Readiness, Token};

/// poll(2) with a map of registrations.
#[derive(Debug, Default)]
pub struct MyMechanism {
    registered: BTreeMap<RawFd, (Token, Interest)>,
    /// The descriptor number at which the next batch begins.
    next: RawFd,
    batch: Vec<Event>,
    calls: u64,
}

impl MyMechanism {
    fn fill_batch(
        &mut self,
        max: usize,
        poll: impl FnOnce(&mut [PollFd<'_>]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        self.batch.clear();
        self.calls += 1;
        let from_next = self.registered.range(self.next..);
        let in_turn = from_next.chain(self.registered.range(..self.next)); // (b)
        let polled: Vec<_> = in_turn.filter(|(_, (_, interest))| !interest.is_empty()).collect(); // (a)
        let poll_fd = |(fd, (_, interest)): &(&RawFd, &(Token, Interest))| {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN | PollFlags::RDHUP, interest.contains(Interest::READ));
            flags.set(PollFlags::PRI, interest.contains(Interest::PRIORITY));
            flags.set(PollFlags::OUT, interest.contains(Interest::WRITE));
            // SAFETY: registered descriptors are open.
            PollFd::from_borrowed_fd(unsafe { borrow(**fd) }, flags)
        };
        let mut list: Vec<_> = polled.iter().map(poll_fd).collect();
        poll(&mut list)?;
        let mut next = self.next;
        for (entry, (fd, (token, _))) in list.iter().zip(&polled) {
            let readiness = Readiness::from_poll(entry.revents().bits().into());
            if !readiness.is_empty() && self.batch.len() < max.max(1) {
                self.batch.push(Event { token: *token, readiness });
                next = **fd + 1;
            }
        }
        self.next = next;
        Ok(self.batch.len())
    }
}

impl Open for MyMechanism {
    const NAME: &'static str = "my-mechanism";
    const SUMMARY: &'static str = "poll(2) on a list that every wait builds";
    const SEMANTICS: Semantics = Semantics { wait: WaitCost::Registered, ..Semantics::COMMON };

    fn open_with(_: &Options) -> Result<MyMechanism, Unavailable> {
        Ok(MyMechanism::default())
    }
}

impl Mechanism for MyMechanism {
    fn semantics(&self) -> &'static Semantics {
        &Self::SEMANTICS
    }

    unsafe fn declare(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        if self.registered.contains_key(&fd) {
            return Err(Errno::EXIST.into());
        }
        self.registered.insert(fd, (token, interest));
        Ok(())
    }

    unsafe fn change(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        let entry = self.registered.get_mut(&fd).ok_or(Errno::NOENT)?;
        *entry = (token, interest);
        Ok(())
    }

    unsafe fn revoke(&mut self, fd: RawFd, _token: Token) -> io::Result<()> {
        self.registered.remove(&fd).map(drop).ok_or_else(|| Errno::NOENT.into())
    }

    fn wait(&mut self, max: usize, timeout: Option<Duration>) -> io::Result<usize> {
        self.fill_batch(max, |list| Ok(poll(list, timeout.map(timespec).as_ref())?))
    }

    fn wait_with_mask(
        &mut self,
        max: usize,
        timeout: Option<Duration>,
        mask: &SignalMask,
    ) -> io::Result<usize> {
        self.fill_batch(max, |list| mask.ppoll(list, timeout))
    }

    fn event(&self, index: usize) -> Event {
        self.batch.get(index).copied().unwrap_or(super::NO_EVENT)
    }

    fn calls(&self) -> u64 {
        self.calls
    }
}
