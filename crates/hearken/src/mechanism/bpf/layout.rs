//! The memory that the programs and user space share, and the arithmetic on it.
//!
//! The other half is `signal_queue.bpf.c`, which says what the fields mean.
//!
//! a) A slot outlives its descriptor: what was pending at the close is still on a queue, or its signal
//!    still in the kernel's, when the number returns. The mark therefore stays, and only what was
//!    said is taken off ([`Shared::claim`]): the descriptor then has its place already, each is on a
//!    queue at most once, and a mark without a word is nobody's event.
//! b) The number may return to another thread's instance, while it is still on the queue of the first.
//!    It is taken off there first ([`Shared::unlink`]).
//!    An instance that goes takes its name off its slots ([`Shared::disown_all`]), and one that wants
//!    its signals as they are does so before it arms ([`Shared::disown`]): the next to have the number
//!    may use the same signal.
//! c) Nothing in flight in the kernel can be met there: close(2), and the call that takes O_ASYNC off,
//!    wait for hooks that run for that open file.

use std::io;
use std::os::fd::{AsFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;

use crate::event::Readiness;
use crate::mechanism::signal::Raised;

/// The descriptor is on a queue, or its signal is in the kernel's.
pub(crate) const PENDING: u32 = 1 << 31;

/// Owners from here on are of the kind `signal-per-fd`; those below are numbers of queues.
pub(crate) const SIGNALS: u32 = 1 << 31;

const BOTH: Readiness = Readiness::READABLE.union(Readiness::WRITABLE);

/// What reasons mean, by the word that the programs make of them, a bit for each.
static MEANING: [Readiness; 128] = {
    let mut table = [Readiness::empty(); 128];
    let mut word = 0;
    while word < 128 {
        // POLL_IN and POLL_MSG; POLL_OUT; POLL_ERR and POLL_HUP, which are both.
        let readable = word & 0b0000_1010 != 0;
        let writable = word & 0b0000_0100 != 0;
        table[word] = match (readable, writable) {
            _ if word & 0b0101_0000 != 0 => BOTH,
            (true, true) => BOTH,
            (true, false) => Readiness::READABLE,
            (false, true) => Readiness::WRITABLE,
            (false, false) => Readiness::empty(),
        };
        word += 1;
    }
    table
};

/// What the word of a descriptor says, as its signals would have.
#[inline]
pub(crate) fn raised(fd: RawFd, word: u32) -> Raised {
    Raised { fd, readiness: MEANING[word as usize & 127], merged: false }
}

/// How many instances may have a queue at once; the first is not one.
pub(crate) const QUEUES: u32 = 256;

/// What is shared about one descriptor.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Slot {
    pub(crate) word: AtomicU32,
    pub(crate) next: AtomicU32,
    /// The number of the queue, or [`SIGNALS`] and the instance.
    pub(crate) owner: AtomicU32,
    pub(crate) signal: AtomicU32,
}

/// One instance's queue.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Queue {
    pub(crate) head: AtomicU32,
    pub(crate) sleeping: AtomicU32,
    pub(crate) sweep: AtomicU32,
    pub(crate) strays: AtomicU32,
    /// The thread that waits; for user space only.
    pub(crate) thread: AtomicU32,
    unused: [AtomicU32; 11],
}

/// An array that the kernel writes as well, made of atomics only.
#[derive(Debug)]
pub(crate) struct Mapping<T> {
    at: NonNull<T>,
    len: usize,
}

// SAFETY: it is memory that stays mapped until it is dropped, and its elements are atomics.
unsafe impl<T: Sync> Send for Mapping<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Mapping<T> {}

impl<T> Mapping<T> {
    #[cfg_attr(not(feature = "ebpf"), allow(dead_code, reason = "nothing is loaded"))]
    /// Maps the whole of an array of `len` elements.
    ///
    /// # Safety
    /// `map` is an array map of so many elements of `T`'s layout, all of them atomics, for which
    /// zeroes are valid.
    pub(crate) unsafe fn new(map: impl AsFd, len: usize) -> io::Result<Mapping<T>> {
        use rustix::mm::{MapFlags, ProtFlags, mmap};
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let at = unsafe {
            mmap(std::ptr::null_mut(), len * size_of::<T>(), access, MapFlags::SHARED, map, 0)?
        };
        let at = NonNull::new(at.cast()).ok_or(Errno::NOMEM)?;
        Ok(Mapping { at, len })
    }
}

impl<T> std::ops::Deref for Mapping<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: mapped with that length until it is dropped, aligned to a page.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.len) }
    }
}

impl<T> Drop for Mapping<T> {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and nothing borrows it any more. It cannot fail for these.
        let _ = unsafe { rustix::mm::munmap(self.at.as_ptr().cast(), self.len * size_of::<T>()) };
    }
}

/// Both arrays.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) slots: Mapping<Slot>,
    pub(crate) queues: Mapping<Queue>,
}

impl Shared {
    /// The slot of a descriptor, if the array reaches so far.
    #[inline]
    pub(crate) fn slot(&self, fd: RawFd) -> Option<&Slot> {
        self.slots.get(usize::try_from(fd).ok()?)
    }

    /// How many signals have passed for want of the descriptor's number.
    #[inline]
    pub(crate) fn strays(&self) -> u32 {
        self.queues[0].strays.load(Ordering::SeqCst)
    }

    /// Makes a descriptor `owner`'s, before O_ASYNC is set on it.
    ///
    /// # Errors
    /// `ENOSPC` if the array does not reach so far.
    pub(crate) fn claim(&self, fd: RawFd, owner: u32, signal: u32) -> io::Result<()> {
        let slot = self.slot(fd).ok_or(Errno::NOSPC)?;
        let before = slot.owner.load(Ordering::Relaxed);
        if before == owner {
            slot.word.fetch_and(PENDING, Ordering::SeqCst); // (a)
        } else {
            if before < SIGNALS && slot.word.load(Ordering::Acquire) & PENDING != 0 {
                self.unlink(before, fd, slot); // (b)
            }
            slot.word.store(0, Ordering::SeqCst);
        }
        slot.owner.store(owner, Ordering::Relaxed);
        slot.signal.store(signal, Ordering::SeqCst);
        Ok(())
    }

    /// Has the signals of a descriptor pass.
    pub(crate) fn disown(&self, fd: RawFd) {
        if let Some(slot) = self.slot(fd) {
            slot.signal.store(0, Ordering::SeqCst);
        }
    }

    /// Has the signals of every descriptor pass that is still `owner`'s.
    pub(crate) fn disown_all(&self, owner: u32) {
        for slot in self.slots.iter() {
            if slot.owner.load(Ordering::Relaxed) == owner {
                slot.signal.store(0, Ordering::SeqCst);
            }
        }
    }

    /// Waits until a slot is on no queue, and takes it off if it is on queue `from`.
    #[cold]
    fn unlink(&self, from: u32, fd: RawFd, slot: &Slot) {
        let Some(queue) = self.queues.get(from as usize) else {
            return;
        };
        let this = fd as u32 + 1;
        loop {
            // The others are kept, in the order in which they are linked.
            let (mut first, mut last, mut found) = (0, 0, false);
            let mut at = queue.head.swap(0, Ordering::Acquire);
            while let Some(one) = self.linked(at) {
                let next = one.next.load(Ordering::Relaxed);
                if at == this {
                    found = true;
                } else {
                    match self.linked(last) {
                        Some(last) => last.next.store(at, Ordering::Relaxed),
                        None => first = at,
                    }
                    last = at;
                }
                at = next;
            }
            if let Some(last) = self.linked(last) {
                let put = |head| {
                    last.next.store(head, Ordering::Relaxed);
                    Some(first)
                };
                let _ = queue.head.fetch_update(Ordering::SeqCst, Ordering::Relaxed, put);
                if queue.sleeping.swap(0, Ordering::SeqCst) != 0 {
                    self.ring(queue, slot);
                }
            }
            // Else its consumer has it in hand just now, and clears it when it comes to it.
            if found || slot.word.load(Ordering::Acquire) & PENDING == 0 {
                return;
            }
            std::thread::yield_now();
        }
    }

    /// The slot that a link means; none at the end.
    #[inline]
    fn linked(&self, link: u32) -> Option<&Slot> {
        self.slots.get((link as usize).wrapping_sub(1))
    }

    /// Wakes the consumer of a queue as a descriptor's signal does.
    #[cold]
    fn ring(&self, queue: &Queue, slot: &Slot) {
        let thread = queue.thread.load(Ordering::Relaxed);
        let signal = slot.signal.load(Ordering::Relaxed);
        // SAFETY: a system call without pointers. A thread that is gone needs no waking.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, signal) };
    }

    /// Takes everything off a queue, and hands over each descriptor with its word, first come first.
    ///
    /// The word is exchanged before the descriptor is handed over: what arrives from then on puts it
    /// on the queue again.
    #[inline]
    pub(crate) fn take(&self, queue: &Queue, mut each: impl FnMut(RawFd, u32)) {
        if queue.head.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut at = queue.head.swap(0, Ordering::Acquire);
        let mut turned = 0;
        while let Some(slot) = self.linked(at) {
            let next = slot.next.load(Ordering::Relaxed);
            slot.next.store(turned, Ordering::Relaxed);
            turned = at;
            at = next;
        }
        let mut at = turned;
        while let Some(slot) = self.linked(at) {
            let fd = at as RawFd - 1;
            // Once its word is taken, the slot may be linked anew.
            at = slot.next.load(Ordering::Relaxed);
            each(fd, slot.word.swap(0, Ordering::AcqRel));
        }
    }
}
