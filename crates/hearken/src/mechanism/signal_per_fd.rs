//! signal-per-fd: at most one pending event per descriptor (Chandra and Mosberger's change to the
//! kernel's queue of real-time signals, USENIX 2001).
//!
//! The option `where` selects where the events of a descriptor are merged:
//!
//! a) `user`: a wait takes all queued signals, even beyond the caller's `max`, and merges those of
//!    a descriptor into one event. A later wait checks the descriptors that do not fit into the
//!    batch. The kernel's queue holds as many signals as with rt-signal and overflows as early.
//! b) `kernel`: the kernel raises no signal for a descriptor that has one queued. The queue cannot
//!    overflow if it has space for every descriptor. This needs a program in the kernel ([`bpf`]),
//!    and privileges to load it.
//!
//! It shares the other pitfalls of [`rt_signal`](super::rt_signal).

use std::os::fd::RawFd;
use std::time::Duration;
use std::{fmt, io};

use super::bpf::{self, Suppressor};
use super::signal;
use super::signal::SignalInfo;
use super::signal::dispatcher::{DEQUEUE, FALLBACK, RECOVER, SignalDispatcher, SignalFilter};
use super::{Mechanism, Open, OptionSpec, Options, Semantics, SignalMask, Unavailable, Values};
use crate::event::{Event, Interest, Token};

/// Real-time signals, at most one pending per descriptor.
pub struct SignalPerFd {
    dispatcher: SignalDispatcher,
    merging: Merging,
}

/// The place where the signals of a descriptor are merged.
enum Merging {
    User,
    Kernel(Suppressor),
}

impl SignalFilter for Merging {
    #[inline]
    fn on_signal(&mut self, signal: SignalInfo) -> SignalInfo {
        match self {
            Merging::User => signal,
            Merging::Kernel(suppressor) => suppressor.on_signal(signal),
        }
    }

    fn on_overflow(&mut self) {
        if let Merging::Kernel(suppressor) = self {
            suppressor.on_overflow();
        }
    }
}

const WHERE: OptionSpec = OptionSpec {
    name: "where",
    help: "where the signals of a descriptor are merged; the kernel needs an eBPF program for it",
    values: Values::OneOf(&["user", "kernel"]),
};

impl fmt::Debug for SignalPerFd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let registered = self.dispatcher.registered();
        f.debug_struct("signal-per-fd").field("registered", &registered).finish_non_exhaustive()
    }
}

impl Open for SignalPerFd {
    const NAME: &'static str = "signal-per-fd";
    const SUMMARY: &'static str = "real-time signals, at most one pending per descriptor";
    const SOURCE: Option<&'static str> = Some("Chandra and Mosberger 2001");
    const SEMANTICS: Semantics = signal::dispatcher::SEMANTICS;
    const OPTIONS: &'static [OptionSpec] = &[WHERE, DEQUEUE, RECOVER, FALLBACK];

    fn needs_privileges(options: &Options) -> bool {
        options.get(WHERE.name) == "kernel"
    }

    fn open_with(options: &Options) -> Result<SignalPerFd, Unavailable> {
        let dispatcher = SignalDispatcher::open(options, options.get(WHERE.name) == "user")?;
        let merging = match options.get(WHERE.name) {
            "kernel" => Merging::Kernel(Suppressor::open(dispatcher.signals().signal())?),
            _ => Merging::User,
        };
        Ok(SignalPerFd { dispatcher, merging })
    }
}

impl Mechanism for SignalPerFd {
    fn semantics(&self) -> &'static Semantics {
        const KERNEL: Semantics = Semantics { privileged: true, ..SignalPerFd::SEMANTICS };
        match (&self.merging, self.dispatcher.recovers()) {
            (Merging::User, true) => &Self::SEMANTICS,
            (Merging::User, false) => const { &Semantics { recovers: false, ..Self::SEMANTICS } },
            (Merging::Kernel(_), true) => &KERNEL,
            (Merging::Kernel(_), false) => const { &Semantics { recovers: false, ..KERNEL } },
        }
    }

    unsafe fn declare(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        match &self.merging {
            Merging::User => bpf::disown(fd),
            Merging::Kernel(suppressor) => {
                self.dispatcher.reserve(fd)?;
                suppressor.watch(fd)?;
            }
        }
        // SAFETY: the caller fulfils the same requirements.
        unsafe { self.dispatcher.declare(fd, token, interest) }
    }

    unsafe fn change(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        self.dispatcher.change(fd, token, interest)
    }

    unsafe fn revoke(&mut self, fd: RawFd, _token: Token) -> io::Result<()> {
        // SAFETY: the caller fulfils the same requirements.
        unsafe { self.dispatcher.revoke(fd) }
    }

    unsafe fn closing(&mut self, fd: RawFd, _token: Token) {
        self.dispatcher.closing(fd);
    }

    fn wait(&mut self, max: usize, timeout: Option<Duration>) -> io::Result<usize> {
        self.dispatcher.wait(max, timeout, &mut self.merging)
    }

    fn wait_with_mask(
        &mut self,
        max: usize,
        timeout: Option<Duration>,
        mask: &SignalMask,
    ) -> io::Result<usize> {
        self.dispatcher.wait_with_mask(max, timeout, mask, &mut self.merging)
    }

    #[inline]
    fn event(&self, index: usize) -> Event {
        self.dispatcher.event(index)
    }

    fn overflows(&self) -> u64 {
        self.dispatcher.overflows()
    }

    fn signals(&self) -> u64 {
        self.dispatcher.signals().taken
    }

    fn calls(&self) -> u64 {
        self.dispatcher.calls()
    }
}
