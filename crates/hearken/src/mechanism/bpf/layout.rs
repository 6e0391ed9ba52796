//! The memory shared by the programs and user space, and the operations on it.
//!
//! The counterpart is `signal_queue.bpf.c`, which documents the fields.
//!
//! a) A slot outlives its descriptor. When the number is reused, an entry of the former descriptor
//!    may still be on a queue, or its signal in the kernel's queue. [`Shared::claim`] therefore
//!    keeps the mark and clears only the reasons. The new descriptor inherits the queue entry, each
//!    is on a queue at most once, and a mark without reasons is no event.
//! b) An instance of another thread may reuse the number while it is still on the queue of the
//!    first. It is then removed from that queue ([`Shared::unlink`]). An instance that is dropped
//!    clears its slots ([`Shared::disown_all`]). An instance that relies on signals clears a slot
//!    before it arms the descriptor ([`Shared::disown`]). The next owner of the number may use the
//!    same signal.
//! c) No operation is in progress in the kernel at that time. Both close(2) and the call that
//!    clears O_ASYNC wait for hooks that run for the open file.

use std::io;
use std::os::fd::{AsFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;

use crate::event::Readiness;
use crate::mechanism::signal::SignalInfo;

/// The descriptor is on a queue, or its signal is queued by the kernel.
pub(crate) const PENDING: u32 = 1 << 31;

/// Owners from this value on are instances of `signal-per-fd`. Smaller ones are queue numbers.
pub(crate) const SIGNALS: u32 = 1 << 31;

const BOTH: Readiness = Readiness::READABLE.union(Readiness::WRITABLE);

/// The readiness for each combination of reasons (one bit each) in the word of a descriptor.
static READINESS: [Readiness; 128] = {
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

/// Translates the word of a descriptor to the readiness that its signals would have reported.
#[inline]
pub(crate) fn signal_info(fd: RawFd, word: u32) -> SignalInfo {
    SignalInfo { fd, readiness: READINESS[word as usize & 127], merged: false }
}

/// The maximum number of instances with a queue plus one: queue 0 is not used by instances.
pub(crate) const QUEUES: u32 = 256;

/// The shared state of one descriptor.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Slot {
    pub(crate) word: AtomicU32,
    pub(crate) next: AtomicU32,
    /// The number of the queue, or [`SIGNALS`] and the instance.
    pub(crate) owner: AtomicU32,
    pub(crate) signal: AtomicU32,
}

/// The queue of one instance.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Queue {
    pub(crate) head: AtomicU32,
    pub(crate) sleeping: AtomicU32,
    pub(crate) sweep: AtomicU32,
    /// The number of signals let through because the descriptor was unknown, for the process in
    /// queue 0. The programs call it `strays`.
    pub(crate) unattributed: AtomicU32,
    /// The thread that waits, for user space only.
    pub(crate) thread: AtomicU32,
    unused: [AtomicU32; 11],
}

/// An array of atomics that the kernel writes too.
#[derive(Debug)]
pub(crate) struct Mapping<T> {
    at: NonNull<T>,
    len: usize,
}

// SAFETY: the memory stays mapped until the mapping is dropped, and its elements are atomics.
unsafe impl<T: Sync> Send for Mapping<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Mapping<T> {}

impl<T> Mapping<T> {
    #[cfg_attr(not(feature = "ebpf"), allow(dead_code, reason = "nothing is loaded"))]
    /// Maps an entire array of `len` elements.
    ///
    /// # Safety
    /// `map` is an array map of `len` elements with the layout of `T`. `T` consists of atomics, for
    /// which zeros are valid.
    pub(crate) unsafe fn new(map: impl AsFd, len: usize) -> io::Result<Mapping<T>> {
        use rustix::mm::{MapFlags, ProtFlags, mmap};
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: this creates a new mapping at an address that the kernel selects.
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
        // SAFETY: it is mapped with that length until it is dropped, and aligned to a page.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.len) }
    }
}

impl<T> Drop for Mapping<T> {
    fn drop(&mut self) {
        // SAFETY: `new` mapped it, and nothing borrows it any more. It cannot fail for this range.
        let _ = unsafe { rustix::mm::munmap(self.at.as_ptr().cast(), self.len * size_of::<T>()) };
    }
}

/// The arrays of slots and queues.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) slots: Mapping<Slot>,
    pub(crate) queues: Mapping<Queue>,
}

impl Shared {
    /// Returns the slot of a descriptor, or `None` if it is beyond the array.
    #[inline]
    pub(crate) fn slot(&self, fd: RawFd) -> Option<&Slot> {
        self.slots.get(usize::try_from(fd).ok()?)
    }

    /// Returns the number of signals let through because the descriptor was unknown.
    #[inline]
    pub(crate) fn unattributed(&self) -> u32 {
        self.queues[0].unattributed.load(Ordering::SeqCst)
    }

    /// Assigns a descriptor to `owner`, before O_ASYNC is set on it.
    ///
    /// # Errors
    /// `ENOSPC` if the descriptor is beyond the array.
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

    /// Lets the signals of a descriptor through.
    pub(crate) fn disown(&self, fd: RawFd) {
        if let Some(slot) = self.slot(fd) {
            slot.signal.store(0, Ordering::SeqCst);
        }
    }

    /// Lets the signals of all descriptors of `owner` through.
    pub(crate) fn disown_all(&self, owner: u32) {
        for slot in self.slots.iter() {
            if slot.owner.load(Ordering::Relaxed) == owner {
                slot.signal.store(0, Ordering::SeqCst);
            }
        }
    }

    /// Waits until a slot is on no queue. Removes it if it is on queue `from`.
    #[cold]
    fn unlink(&self, from: u32, fd: RawFd, slot: &Slot) {
        let Some(queue) = self.queues.get(from as usize) else {
            return;
        };
        let link = fd as u32 + 1;
        loop {
            // The other entries are kept in their order.
            let (mut first, mut last, mut found) = (0, 0, false);
            let mut at = queue.head.swap(0, Ordering::Acquire);
            while let Some(one) = self.linked(at) {
                let next = one.next.load(Ordering::Relaxed);
                if at == link {
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
                let link_all = |head| {
                    last.next.store(head, Ordering::Relaxed);
                    Some(first)
                };
                let _ = queue.head.fetch_update(Ordering::SeqCst, Ordering::Relaxed, link_all);
                if queue.sleeping.swap(0, Ordering::SeqCst) != 0 {
                    self.wake_consumer(queue, slot);
                }
            }
            // Otherwise its consumer is processing it now, and will clear it.
            if found || slot.word.load(Ordering::Acquire) & PENDING == 0 {
                return;
            }
            std::thread::yield_now();
        }
    }

    /// Returns the slot of a link, or `None` at the end.
    #[inline]
    fn linked(&self, link: u32) -> Option<&Slot> {
        self.slots.get((link as usize).wrapping_sub(1))
    }

    /// Wakes the consumer of a queue with the signal of a descriptor.
    #[cold]
    fn wake_consumer(&self, queue: &Queue, slot: &Slot) {
        let thread = queue.thread.load(Ordering::Relaxed);
        let signal = slot.signal.load(Ordering::Relaxed);
        // SAFETY: the call takes no pointers. It fails if the thread has ended.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, signal) };
    }

    /// Removes all entries of a queue and passes each descriptor with its word to `each`, in order
    /// of arrival.
    ///
    /// The word is exchanged before that: later arrivals put the descriptor on the queue again.
    #[inline]
    pub(crate) fn take(&self, queue: &Queue, mut each: impl FnMut(RawFd, u32)) {
        if queue.head.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut at = queue.head.swap(0, Ordering::Acquire);
        let mut reversed = 0;
        while let Some(slot) = self.linked(at) {
            let next = slot.next.load(Ordering::Relaxed);
            slot.next.store(reversed, Ordering::Relaxed);
            reversed = at;
            at = next;
        }
        let mut at = reversed;
        while let Some(slot) = self.linked(at) {
            let fd = at as RawFd - 1;
            // The slot may be linked again as soon as its word is exchanged.
            at = slot.next.load(Ordering::Relaxed);
            each(fd, slot.word.swap(0, Ordering::AcqRel));
        }
    }
}

#[cfg(test)]
mod memory_tests;
