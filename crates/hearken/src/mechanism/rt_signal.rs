//! rt-signal: each event is a queued real-time signal (Chandra and Mosberger, "Scalability of Linux
//! event-dispatch mechanisms", USENIX 2001; Liu and Chen's comparison).
//!
//! Its traps are those of the queue ([`signal`]) and of believing it
//! (`signal/table.rs`), and:
//!
//! a) A wait takes no more signals than the caller's `max`. Several that one descriptor raised are
//!    one event where one wait takes them, and as many events where several do: the queue can hold
//!    any number for one descriptor, and overflows by it.
//! b) An event tells what has arrived, as an edge does, and not all that a descriptor is ready for:
//!    data arrived on a socket that could be written all along is READABLE alone.
//! c) Dropped events are found by asking every descriptor, which tells again of those that were
//!    ready before.

use std::os::fd::RawFd;
use std::time::Duration;
use std::{fmt, io};

use super::signal::dispatch::{DEQUEUE, Dispatch, RECOVER};
use super::{Choice, Mechanism, Open, Options, Semantics, Unavailable, bpf, signal};
use crate::event::{Event, Interest, Token};

/// Real-time signals, as they are queued.
pub struct RtSignal {
    dispatch: Dispatch,
}

impl fmt::Debug for RtSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let registered = self.dispatch.registered();
        f.debug_struct("rt-signal").field("registered", &registered).finish_non_exhaustive()
    }
}

impl Open for RtSignal {
    const NAME: &'static str = "rt-signal";
    const SUMMARY: &'static str = "real-time signals, queued by the kernel";
    const SEMANTICS: Semantics = signal::dispatch::SEMANTICS;
    const OPTIONS: &'static [Choice] = &[DEQUEUE, RECOVER];

    fn open_with(options: &Options) -> Result<RtSignal, Unavailable> {
        Ok(RtSignal { dispatch: Dispatch::open(options, false)? })
    }
}

impl Mechanism for RtSignal {
    fn semantics(&self) -> &'static Semantics {
        &Self::SEMANTICS
    }

    unsafe fn declare(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        bpf::disown(fd);
        // SAFETY: the caller's promise is passed on.
        unsafe { self.dispatch.declare(fd, token, interest) }
    }

    unsafe fn change(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        self.dispatch.change(fd, token, interest)
    }

    unsafe fn revoke(&mut self, fd: RawFd, _token: Token) -> io::Result<()> {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.dispatch.revoke(fd) }
    }

    unsafe fn closing(&mut self, fd: RawFd, _token: Token) {
        self.dispatch.closing(fd);
    }

    fn wait(&mut self, max: usize, timeout: Option<Duration>) -> io::Result<usize> {
        self.dispatch.wait(max, timeout, &mut ())
    }

    #[inline]
    fn event(&self, index: usize) -> Event {
        self.dispatch.event(index)
    }

    fn overflows(&self) -> u64 {
        self.dispatch.overflows()
    }

    fn calls(&self) -> u64 {
        self.dispatch.calls()
    }
}
