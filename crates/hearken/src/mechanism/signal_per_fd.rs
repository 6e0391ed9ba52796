//! signal-per-fd: at most one event pending for a descriptor (Chandra and Mosberger's change to the
//! kernel's queue of real-time signals, USENIX 2001).
//!
//! Where the events of one descriptor are made one is the option `where`:
//!
//! a) `user`: a wait takes all that is queued, whatever the caller's `max`, so that however many one
//!    descriptor raised are one event; whom the batch has no room for is asked by a later wait. The
//!    kernel's queue holds as many as with rt-signal, and overflows as soon.
//! b) `kernel`: the kernel raises no signal for a descriptor that has one queued, so that the queue
//!    cannot overflow where it has room for every descriptor. This needs a program in the kernel.
//!
//! Its other traps are those of [`rt_signal`](super::rt_signal).

use std::os::fd::RawFd;
use std::time::Duration;
use std::{fmt, io};

use rustix::io::Errno;

use super::signal::dispatch::{DEQUEUE, Dispatch, Pending, RECOVER};
use super::{ChangeCost, Choice, Mechanism, Open, Options, Semantics, Sharing, Trigger};
use super::{Unavailable, Values, WaitCost, Watches};
use crate::event::{Event, Interest, Readiness, Token};

/// Real-time signals, of which a descriptor has at most one pending.
pub struct SignalPerFd {
    dispatch: Dispatch,
    place: Place,
}

/// Where the events of one descriptor are made one.
enum Place {
    User,
}

impl Pending for Place {}

const WHERE: Choice = Choice {
    name: "where",
    help: "where the signals of one descriptor are made one",
    values: Values::OneOf(&["user", "kernel"]),
};

impl Place {
    fn open(options: &Options) -> Result<Place, Unavailable> {
        match options.get(WHERE.name) {
            "kernel" => Err(Unavailable {
                call: "bpf",
                error: Errno::OPNOTSUPP.into(),
                remedy: "this build has no programs for the kernel",
            }),
            _ => Ok(Place::User),
        }
    }
}

impl fmt::Debug for SignalPerFd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let registered = self.dispatch.registered();
        f.debug_struct("signal-per-fd").field("registered", &registered).finish_non_exhaustive()
    }
}

impl Open for SignalPerFd {
    const NAME: &'static str = "signal-per-fd";
    const SUMMARY: &'static str = "real-time signals, at most one pending for a descriptor";
    const SEMANTICS: Semantics = Semantics {
        trigger: Trigger::Edge,
        change: ChangeCost::Memory,
        wait: WaitCost::Ready,
        reports: Readiness::READABLE
            .union(Readiness::WRITABLE)
            .union(Readiness::READ_CLOSED)
            .union(Readiness::HANGUP)
            .union(Readiness::ERROR),
        close_revokes: true,
        registers_both: false,
        overflows: true,
        watches: Watches::Signalling,
        sharing: Sharing::Owner,
        needs_told: false,
        privileged: false,
    };
    const OPTIONS: &'static [Choice] = &[WHERE, DEQUEUE, RECOVER];

    fn open_with(options: &Options) -> Result<SignalPerFd, Unavailable> {
        let place = Place::open(options)?;
        Ok(SignalPerFd { dispatch: Dispatch::open(options, true)?, place })
    }
}

impl Mechanism for SignalPerFd {
    fn semantics(&self) -> &'static Semantics {
        &Self::SEMANTICS
    }

    unsafe fn declare(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
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
        self.dispatch.wait(max, timeout, &mut self.place)
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
