//! rt-signal: each event is a queued real-time signal (Chandra and Mosberger, "Scalability of Linux
//! event-dispatch mechanisms", USENIX 2001; compared by Liu and Chen).
//!
//! It shares the pitfalls of the queue ([`signal`]) and of interpreting signals
//! (`signal/table.rs`). Others:
//!
//! a) A wait takes at most `max` signals. Those of the same descriptor are merged within a wait,
//!    but not across waits. The queue can contain any number of signals of one descriptor, and
//!    overflow with them.
//! b) An event reports an arrival, as an edge does, and not the complete readiness. Data that
//!    arrives on a writable socket is reported as READABLE alone.
//! c) After dropped events, all descriptors are checked, which reports again those that were ready
//!    before.

use std::os::fd::RawFd;
use std::time::Duration;
use std::{fmt, io};

use super::signal::dispatcher::{DEQUEUE, FALLBACK, RECOVER, SignalDispatcher};
use super::{Mechanism, Open, OptionSpec, Options, Semantics, SignalMask, Unavailable};
use super::{bpf, signal};
use crate::event::{Event, Interest, Token};

/// Real-time signals, as they are queued.
pub struct RtSignal {
    dispatcher: SignalDispatcher,
}

impl fmt::Debug for RtSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let registered = self.dispatcher.registered();
        f.debug_struct("rt-signal").field("registered", &registered).finish_non_exhaustive()
    }
}

impl Open for RtSignal {
    const NAME: &'static str = "rt-signal";
    const SUMMARY: &'static str = "real-time signals, queued by the kernel";
    const SOURCE: Option<&'static str> = Some("Chandra and Mosberger 2001");
    const SEMANTICS: Semantics = signal::dispatcher::SEMANTICS;
    const OPTIONS: &'static [OptionSpec] = &[DEQUEUE, RECOVER, FALLBACK];

    fn open_with(options: &Options) -> Result<RtSignal, Unavailable> {
        Ok(RtSignal { dispatcher: SignalDispatcher::open(options, false)? })
    }
}

impl Mechanism for RtSignal {
    fn semantics(&self) -> &'static Semantics {
        match self.dispatcher.recovers() {
            true => &Self::SEMANTICS,
            false => const { &Semantics { recovers: false, ..Self::SEMANTICS } },
        }
    }

    unsafe fn declare(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        bpf::disown(fd);
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
        self.dispatcher.wait(max, timeout, &mut ())
    }

    fn wait_with_mask(
        &mut self,
        max: usize,
        timeout: Option<Duration>,
        mask: &SignalMask,
    ) -> io::Result<usize> {
        self.dispatcher.wait_with_mask(max, timeout, mask, &mut ())
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
