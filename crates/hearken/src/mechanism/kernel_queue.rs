//! kernel-queue: events that the kernel queues in memory that the process maps (the INTERESTED sets
//! and the HINTS queue of Banga, Mogul and Druschel, USENIX 1999), by programs of [`bpf`](super::bpf).
//!
//! Descriptors signal, and the program that stands there puts the descriptor on this instance's queue
//! and refuses the signal. A descriptor is on it at most once, first come first; taking it off is
//! access to memory. A system call is made to sleep while the queue is empty, and to ask (poll(2), many
//! at a time) those of whom the word of an arrival is not enough: see `signal/table.rs`.
//!
//! Its traps, and what is done about each:
//!
//! a) Who sleeps is woken by one signal that is let pass. The consumer says that it sleeps, and then
//!    looks at the queue once more; the program puts the descriptor there, and then looks whether
//!    the consumer sleeps. One of them sees the other.
//! b) A wake-up may come when the consumer has just given up waiting. It ends the next sleep at once,
//!    which then goes on for the rest of its time.
//! c) Where the user's limit of queued signals is reached, the wake-up is SIGIO, which wakes as well.
//! d) On a kernel with PREEMPT_RT the program may not know the descriptor, and lets the signal pass.
//!    From the first such on, every wait also looks for signals.
//! e) What is on the queue when its descriptor is closed has lost its word when it comes off, or is
//!    for a number that is not registered.
//! f) The signals of a number that was not registered here yet, but by another instance, are taken
//!    off the queue of that one first: see `bpf/layout.rs`.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use std::{fmt, io};

use super::bpf::Programs;
use super::bpf::layout::{PENDING, Queue, raised};
use super::signal::table::Table;
use super::signal::{MOST, Signals};
use super::{Mechanism, NO_EVENT, Open, Options, Semantics, Sharing, Trigger};
use super::{Unavailable, Watches};
use crate::event::{Event, Interest, Readiness, Token};

const BOTH: Readiness = Readiness::READABLE.union(Readiness::WRITABLE);

/// The most events that one wait gives, whatever is asked for.
const BOUND: usize = 1 << 16;

/// The queue that the kernel fills.
pub struct KernelQueue {
    signals: Signals,
    table: Table,
    programs: Programs,
    queue: u32,
    strays: u32,
    /// Signals may tell what the queue does not. (d)
    wary: bool,
    /// The last wait had no room to ask.
    ask_first: bool,
}

impl fmt::Debug for KernelQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let registered = self.table.all().count();
        f.debug_struct("kernel-queue").field("registered", &registered).finish_non_exhaustive()
    }
}

impl Open for KernelQueue {
    const NAME: &'static str = "kernel-queue";
    const SUMMARY: &'static str = "events queued by an eBPF program, in memory that both map";
    const SEMANTICS: Semantics = Semantics {
        trigger: Trigger::Edge,
        reports: BOTH,
        close_revokes: true,
        watches: Watches::Signalling,
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
        let strays = shared.strays();
        Ok(KernelQueue {
            signals,
            table: Table::new(BOTH),
            programs,
            queue,
            strays,
            wary: strays > 0,
            ask_first: false,
        })
    }
}

impl KernelQueue {
    #[inline]
    fn shared(&self) -> &Queue {
        &self.programs.shared().queues[self.queue as usize]
    }

    /// Takes all that is queued, and asks whom it must.
    #[inline]
    fn take(&mut self, max: usize) -> io::Result<()> {
        let shared = self.programs.shared();
        let queue = &shared.queues[self.queue as usize];
        shared.take(queue, |fd, word| self.table.hear(raised(fd, word), max));
        if queue.sweep.load(Ordering::SeqCst) != 0 {
            self.sweep(max);
        }
        if self.wary || self.programs.shared().strays() != self.strays {
            self.look_for_signals(); // (d)
        }
        // Nothing older than this is on the queue.
        self.table.emptied();
        self.table.ask(max, true)
    }

    /// Looks for descriptors that have a word, and could not be put on the queue.
    #[cold]
    fn sweep(&mut self, max: usize) {
        self.shared().sweep.store(0, Ordering::SeqCst);
        let watched: Vec<RawFd> = self.table.all().collect();
        for fd in watched {
            let Some(slot) = self.programs.shared().slot(fd) else { continue };
            let unmarked = |word| (word & PENDING == 0 && word != 0).then_some(0);
            let taken = slot.word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, unmarked);
            if let Ok(word) = taken {
                self.table.hear(raised(fd, word), max);
            }
        }
    }

    /// Has the descriptors of such signals asked as there are. (d)
    #[cold]
    fn look_for_signals(&mut self) {
        self.wary = true;
        self.strays = self.programs.shared().strays();
        self.signals.discard(|raised| self.table.doubt(raised.fd));
        if self.signals.overflowed() {
            let _ = self.table.ask_all(false);
        }
    }

    /// Sleeps until something has come, or for `left`; false if that, or a signal handler, ended it.
    fn sleep(&mut self, left: Option<Duration>, max: usize) -> io::Result<bool> {
        self.shared().sleeping.swap(1, Ordering::SeqCst); // (a)
        let woken = if self.has_come() {
            Ok(true)
        } else if self.table.awaits_room() {
            let asked = self.table.ask_rooms(Some(self.signals.queue()), left, max);
            asked.and_then(|()| self.signals.take(MOST)).map(|took| {
                self.hear_signals(took.count);
                took.count > 0
            })
        } else {
            self.signals.wait(left).inspect(|woken| self.hear_signals(usize::from(*woken)))
        };
        self.shared().sleeping.store(0, Ordering::SeqCst);
        woken
    }

    fn has_come(&self) -> bool {
        let queue = self.shared();
        queue.head.load(Ordering::SeqCst) != 0
            || queue.sweep.load(Ordering::SeqCst) != 0
            || self.programs.shared().strays() != self.strays
    }

    /// A wake-up says no more than that; a stray tells of its descriptor. (d)
    fn hear_signals(&mut self, count: usize) {
        if self.wary || self.programs.shared().strays() != self.strays {
            for index in 0..count {
                self.table.doubt(self.signals.raised(index).fd);
            }
        }
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
        // SAFETY: the caller keeps fd open.
        unsafe { self.signals.arm(fd)? };
        self.table.register(fd, token, interest);
        Ok(())
    }

    unsafe fn change(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        self.table.change(fd, token, interest)
    }

    unsafe fn revoke(&mut self, fd: RawFd, _token: Token) -> io::Result<()> {
        self.table.forget(fd)?;
        // SAFETY: it was registered, and the caller keeps it open.
        unsafe { self.signals.disarm(fd) }
    }

    unsafe fn closing(&mut self, fd: RawFd, _token: Token) {
        // Refused, it is not registered, which is what was asked for.
        let _ = self.table.forget(fd); // (e)
    }

    fn wait(&mut self, max: usize, timeout: Option<Duration>) -> io::Result<usize> {
        let max = max.clamp(1, BOUND);
        self.table.batch.clear();
        if std::mem::take(&mut self.ask_first) {
            self.table.ask(max, false)?;
        }
        if self.table.batch.is_empty() {
            self.take(max)?;
        }
        if self.table.batch.is_empty() && timeout != Some(Duration::ZERO) {
            let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
            let mut left = timeout;
            while self.sleep(left, max)? && self.table.batch.is_empty() {
                self.take(max)?;
                if !self.table.batch.is_empty() {
                    break;
                }
                left = deadline.map(|at| at.saturating_duration_since(Instant::now())); // (b)
            }
        }
        self.ask_first = self.table.batch.len() >= max && self.table.has_listed();
        Ok(self.table.batch.len())
    }

    #[inline]
    fn event(&self, index: usize) -> Event {
        self.table.batch.get(index).copied().unwrap_or(NO_EVENT)
    }

    fn calls(&self) -> u64 {
        self.signals.calls + self.table.calls
    }
}

impl Drop for KernelQueue {
    /// What is registered is open still, and would go on signalling.
    fn drop(&mut self) {
        for fd in self.table.all() {
            // SAFETY: it is registered, so its owner keeps it open. Refused, there is nothing to do.
            let _ = unsafe { self.signals.disarm(fd) };
        }
        self.programs.shared().disown_all(self.queue);
        // What came for those that were closed is no one's.
        self.programs.shared().take(self.shared(), |_, _| {});
        self.programs.give_back(self.queue);
    }
}
