//! signal-per-fd: at most one event pending for a descriptor (Chandra and Mosberger's change to the
//! kernel's queue of real-time signals, USENIX 2001).
//!
//! Where the events of one descriptor are made one is the option `where`:
//!
//! a) `user`: a wait takes all that is queued, whatever the caller's `max`, so that however many one
//!    descriptor raised are one event; whom the batch has no room for is asked by a later wait. The
//!    kernel's queue holds as many as with rt-signal, and overflows as soon.
//! b) `kernel`: the kernel raises no signal for a descriptor that has one queued, so that the queue
//!    cannot overflow where it has room for every descriptor. This needs a program in the kernel
//!    ([`bpf`]), and privileges to load it.
//!
//! Its other traps are those of [`rt_signal`](super::rt_signal).

use std::os::fd::RawFd;
use std::time::Duration;
use std::{fmt, io};

use super::bpf::{self, Suppressor};
use super::signal::Raised;
use super::signal::dispatch::{DEQUEUE, Dispatch, Pending, RECOVER};
use super::{Choice, Mechanism, Open, Options, Semantics, Unavailable, Values, signal};
use crate::event::{Event, Interest, Token};

/// Real-time signals, of which a descriptor has at most one pending.
pub struct SignalPerFd {
    dispatch: Dispatch,
    place: Place,
}

/// Where the events of one descriptor are made one.
enum Place {
    User,
    Kernel(Suppressor),
}

impl Pending for Place {
    #[inline]
    fn taken(&mut self, raised: Raised) -> Raised {
        match self {
            Place::User => raised,
            Place::Kernel(suppressor) => suppressor.taken(raised),
        }
    }

    fn overflowed(&mut self) {
        if let Place::Kernel(suppressor) = self {
            suppressor.overflowed();
        }
    }
}

const WHERE: Choice = Choice {
    name: "where",
    help: "where the signals of one descriptor are made one; the kernel needs an eBPF program for it",
    values: Values::OneOf(&["user", "kernel"]),
};

impl fmt::Debug for SignalPerFd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let registered = self.dispatch.registered();
        f.debug_struct("signal-per-fd").field("registered", &registered).finish_non_exhaustive()
    }
}

impl Open for SignalPerFd {
    const NAME: &'static str = "signal-per-fd";
    const SUMMARY: &'static str = "real-time signals, at most one pending for a descriptor";
    const SEMANTICS: Semantics = signal::dispatch::SEMANTICS;
    const OPTIONS: &'static [Choice] = &[WHERE, DEQUEUE, RECOVER];

    fn needs_privileges(options: &Options) -> bool {
        options.get(WHERE.name) == "kernel"
    }

    fn open_with(options: &Options) -> Result<SignalPerFd, Unavailable> {
        let dispatch = Dispatch::open(options, options.get(WHERE.name) == "user")?;
        let place = match options.get(WHERE.name) {
            "kernel" => Place::Kernel(Suppressor::open(dispatch.signals().signal())?),
            _ => Place::User,
        };
        Ok(SignalPerFd { dispatch, place })
    }
}

impl Mechanism for SignalPerFd {
    fn semantics(&self) -> &'static Semantics {
        match self.place {
            Place::User => &Self::SEMANTICS,
            Place::Kernel(_) => const { &Semantics { privileged: true, ..Self::SEMANTICS } },
        }
    }

    unsafe fn declare(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        match &self.place {
            Place::User => bpf::disown(fd),
            Place::Kernel(suppressor) => {
                self.dispatch.reserve(fd)?;
                suppressor.watch(fd)?;
            }
        }
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
