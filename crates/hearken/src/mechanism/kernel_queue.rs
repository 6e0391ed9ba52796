//! kernel-queue: programs of [`bpf`](super::bpf) queue events in memory that the process maps. It
//! implements the INTERESTED sets and the HINTS queue of Banga, Mogul and Druschel (USENIX 1999).
//!
//! Descriptors raise signals. The program at that point puts the descriptor on this instance's
//! queue and suppresses the signal. A descriptor is on the queue at most once, in order of arrival.
//! Taking it off is a memory access. System calls are made only to sleep while the queue is empty,
//! and to check descriptors whose arrival is not conclusive. One poll(2) checks many: see
//! `signal/table.rs`.
//!
//! Pitfalls, and how the code handles them:
//!
//! a) One signal that is let through wakes a sleeping consumer. The consumer announces that it
//!    sleeps, and then checks the queue once more. The program queues the descriptor, and then
//!    checks whether the consumer sleeps. At least one of them sees the other.
//! b) A wake-up may arrive when the consumer has just ended its wait. It ends the next sleep
//!    immediately, which then continues for the remaining time.
//! c) If the user's limit of queued signals is reached, the wake-up is SIGIO, which also ends the
//!    sleep.
//! d) On a kernel with PREEMPT_RT the program may not know the descriptor, and lets the signal
//!    through. After the first such signal, every wait also takes signals.
//! e) If a descriptor is closed while queued, its entry has no readiness when it is taken, or its
//!    number is not registered.
//! f) If a number was registered by another instance before, it is first removed from the queue of
//!    that instance: see `bpf/layout.rs`.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use std::{fmt, io};

use super::bpf::Programs;
use super::bpf::layout::{PENDING, Queue, signal_info};
use super::signal::table::{Fallback, Table};
use super::signal::{MAX_SIGNALS, Signals};
use super::{Mechanism, NO_EVENT, Open, Options, Semantics, Sharing, SignalMask, Trigger};
use super::{Unavailable, Watches};
use crate::event::{Event, Interest, Readiness, Token};

const BOTH: Readiness = Readiness::READABLE.union(Readiness::WRITABLE);

/// The maximum number of events in a batch.
const MAX_BATCH: usize = 1 << 16;

/// A queue that the kernel fills.
pub struct KernelQueue {
    signals: Signals,
    table: Table,
    programs: Programs,
    queue: u32,
    unattributed: u32,
    /// Whether signals may report events that the queue does not (d).
    check_signals: bool,
    /// Whether the last wait had no space for checks.
    check_first: bool,
}

impl fmt::Debug for KernelQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let registered = self.table.all().count();
        f.debug_struct("kernel-queue").field("registered", &registered).finish_non_exhaustive()
    }
}

impl Open for KernelQueue {
    const NAME: &'static str = "kernel-queue";
    const SUMMARY: &'static str = "events queued by an eBPF program in shared memory";
    const SOURCE: Option<&'static str> = Some("Banga, Mogul and Druschel 1999");
    const SEMANTICS: Semantics = Semantics {
        trigger: Trigger::Edge,
        reports: BOTH,
        close_revokes: true,
        watches: Watches::SignalDriven,
        sharing: Sharing::Owner,
        privileged: true,
        ..Semantics::COMMON
    };

    fn open_with(_: &Options) -> Result<KernelQueue, Unavailable> {
        let programs = Programs::load()?;
        let signals = Signals::open(false)?;
        let queue = programs.queue()?;
        let shared = programs.shared();
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        shared.queues[queue as usize].thread.store(thread as u32, Ordering::SeqCst);
        let unattributed = shared.unattributed();
        Ok(KernelQueue {
            signals,
            table: Table::new(BOTH, Fallback::Poll),
            programs,
            queue,
            unattributed,
            check_signals: unattributed > 0,
            check_first: false,
        })
    }
}

impl KernelQueue {
    #[inline]
    fn shared(&self) -> &Queue {
        &self.programs.shared().queues[self.queue as usize]
    }

    /// Processes all queued events and checks the scheduled descriptors.
    #[inline]
    fn take(&mut self, max: usize) -> io::Result<()> {
        let shared = self.programs.shared();
        let queue = &shared.queues[self.queue as usize];
        shared.take(queue, |fd, word| self.table.on_signal(signal_info(fd, word), max));
        if queue.sweep.load(Ordering::SeqCst) != 0 {
            self.sweep(max);
        }
        if self.check_signals || self.programs.shared().unattributed() != self.unattributed {
            self.collect_signals(); // (d)
        }
        // The queue is empty: later events are newer than the known state.
        self.table.on_queue_empty();
        self.table.check(max, true)
    }

    /// Processes descriptors that have readiness but could not be queued.
    #[cold]
    fn sweep(&mut self, max: usize) {
        self.shared().sweep.store(0, Ordering::SeqCst);
        let watched: Vec<RawFd> = self.table.all().collect();
        for fd in watched {
            let Some(slot) = self.programs.shared().slot(fd) else { continue };
            let unmarked = |word| (word & PENDING == 0 && word != 0).then_some(0);
            let taken = slot.word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, unmarked);
            if let Ok(word) = taken {
                self.table.on_signal(signal_info(fd, word), max);
            }
        }
    }

    /// Schedules checks of the descriptors of unattributed signals (d).
    #[cold]
    fn collect_signals(&mut self) {
        self.check_signals = true;
        self.unattributed = self.programs.shared().unattributed();
        self.signals.discard(|signal_info| self.table.check_later(signal_info.fd));
        if self.signals.overflowed() {
            let _ = self.table.check_all();
        }
    }

    /// Sleeps until an event arrives. Returns false after `timeout`. Fails with `EINTR` after a
    /// signal handler.
    fn sleep(
        &mut self,
        timeout: Option<Duration>,
        max: usize,
        mask: Option<&SignalMask>,
    ) -> io::Result<bool> {
        self.shared().sleeping.swap(1, Ordering::SeqCst); // (a)
        let woken = if self.has_events() {
            Ok(true)
        } else if mask.is_some() || self.table.has_blocked_writers() {
            let queue = Some(self.signals.queue());
            let checked = self.table.check_writability(queue, timeout, max, mask);
            checked.and_then(|()| self.signals.take(MAX_SIGNALS)).map(|taken| {
                self.handle_signals(taken.count);
                taken.count > 0
            })
        } else {
            self.signals.wait(timeout).inspect(|woken| self.handle_signals(usize::from(*woken)))
        };
        self.shared().sleeping.store(0, Ordering::SeqCst);
        woken
    }

    fn has_events(&self) -> bool {
        let queue = self.shared();
        queue.head.load(Ordering::SeqCst) != 0
            || queue.sweep.load(Ordering::SeqCst) != 0
            || self.programs.shared().unattributed() != self.unattributed
    }

    /// Handles signals taken while asleep. Only unattributed ones identify a descriptor (d).
    fn handle_signals(&mut self, count: usize) {
        if self.check_signals || self.programs.shared().unattributed() != self.unattributed {
            for index in 0..count {
                self.table.check_later(self.signals.info(index).fd);
            }
        }
    }

    /// Waits, with `mask` as the signal mask if there is one.
    #[inline]
    fn fill_batch(
        &mut self,
        max: usize,
        timeout: Option<Duration>,
        mask: Option<&SignalMask>,
    ) -> io::Result<usize> {
        let max = max.clamp(1, MAX_BATCH);
        self.table.batch.clear();
        if std::mem::take(&mut self.check_first) {
            self.table.check(max, false)?;
        }
        if self.table.batch.is_empty() {
            self.take(max)?;
        }
        if self.table.batch.is_empty() && timeout != Some(Duration::ZERO) {
            let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
            let mut timeout = timeout;
            while self.sleep(timeout, max, mask)? && self.table.batch.is_empty() {
                self.take(max)?;
                if !self.table.batch.is_empty() {
                    break;
                }
                timeout = deadline.map(|at| at.saturating_duration_since(Instant::now())); // (b)
            }
        }
        self.check_first = self.table.batch.len() >= max && self.table.has_scheduled();
        Ok(self.table.batch.len())
    }
}

impl Mechanism for KernelQueue {
    fn semantics(&self) -> &'static Semantics {
        &Self::SEMANTICS
    }

    unsafe fn declare(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        self.table.reserve(fd)?;
        let signal = self.signals.signal() as u32;
        self.programs.shared().claim(fd, self.queue, signal)?;
        // SAFETY: the caller keeps `fd` open.
        unsafe { self.signals.arm(fd)? };
        self.table.register(fd, token, interest);
        Ok(())
    }

    unsafe fn change(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        self.table.change(fd, token, interest)
    }

    unsafe fn revoke(&mut self, fd: RawFd, _token: Token) -> io::Result<()> {
        self.table.unregister(fd)?;
        // SAFETY: the descriptor was registered, and the caller keeps it open.
        unsafe { self.signals.disarm(fd) }
    }

    unsafe fn closing(&mut self, fd: RawFd, _token: Token) {
        // An error means that it is not registered, which is the desired state.
        let _ = self.table.unregister(fd); // (e)
    }

    fn wait(&mut self, max: usize, timeout: Option<Duration>) -> io::Result<usize> {
        self.fill_batch(max, timeout, None)
    }

    fn wait_with_mask(
        &mut self,
        max: usize,
        timeout: Option<Duration>,
        mask: &SignalMask,
    ) -> io::Result<usize> {
        let mask = self.signals.extend_mask(mask)?;
        self.fill_batch(max, timeout, Some(&mask))
    }

    #[inline]
    fn event(&self, index: usize) -> Event {
        self.table.batch.get(index).copied().unwrap_or(NO_EVENT)
    }

    fn signals(&self) -> u64 {
        self.signals.taken
    }

    fn calls(&self) -> u64 {
        self.signals.calls + self.table.calls
    }
}

impl Drop for KernelQueue {
    /// Disarms the registered descriptors, which are still open and would continue to raise
    /// signals.
    fn drop(&mut self) {
        for fd in self.table.all() {
            // SAFETY: a registered descriptor is kept open. Errors need no handling.
            let _ = unsafe { self.signals.disarm(fd) };
        }
        self.programs.shared().disown_all(self.queue);
        // Events of closed descriptors belong to no registration.
        self.programs.shared().take(self.shared(), |_, _| {});
        self.programs.release_queue(self.queue);
    }
}
