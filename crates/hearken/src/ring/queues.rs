//! The submission and completion queue in the memory shared with the kernel.
//!
//! Each queue has one index owned by this process and one owned by the kernel. This process
//! publishes its indexes before it enters the kernel. It reads the kernel's indexes on demand and
//! caches them.

use std::os::fd::{AsFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io;
use rustix::io_uring::{
    IORING_OFF_SQ_RING, IORING_OFF_SQES, IoringSetupFlags, IoringSqFlags, io_uring_params,
};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use super::entry::{Cqe, Sqe};

/// A mapping of memory shared with the kernel.
struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

impl Mapping {
    fn new(ring: &OwnedFd, length: usize, offset: u64) -> io::Result<Mapping> {
        let (access, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
        // SAFETY: this creates a new mapping at an address that the kernel selects.
        let start = unsafe { mmap(ptr::null_mut(), length, access, flags, ring.as_fd(), offset)? };
        let start = NonNull::new(start.cast()).ok_or(io::Errno::NOMEM)?;
        let mapping = Mapping { start, length };
        // SAFETY: the range was just mapped. A child process that inherited it could use this ring.
        unsafe { madvise(start.as_ptr().cast(), length, Advice::LinuxDontFork)? };
        Ok(mapping)
    }

    /// Returns the address at `offset` bytes from the start.
    fn at<T>(&self, offset: u32) -> NonNull<T> {
        debug_assert!(offset as usize + size_of::<T>() <= self.length);
        // SAFETY: the kernel's offsets lie within the length that it was asked to map.
        unsafe { self.start.add(offset as usize).cast() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `new` mapped it, and nothing else unmaps it. If the call fails, it stays mapped.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// A number in memory shared with the kernel.
#[derive(Clone, Copy)]
struct Shared(NonNull<AtomicU32>);

impl Shared {
    #[inline]
    fn get(&self) -> &AtomicU32 {
        // SAFETY: it is within a mapping that the queues own. The kernel accesses it atomically
        // too.
        unsafe { self.0.as_ref() }
    }
}

/// The submission and the completion queue.
pub(super) struct Queues {
    /// The index of the next submission, and the cached index of the kernel.
    tail: u32,
    consumed: u32,
    mask: u32,
    entries: NonNull<Sqe>,
    shared_tail: Shared,
    shared_consumed: Shared,
    flags: Shared,
    /// The index of the next completion, and the cached index of the kernel.
    next: u32,
    produced: u32,
    completion_mask: u32,
    completions: NonNull<Cqe>,
    shared_next: Shared,
    shared_produced: Shared,
    _mappings: [Mapping; 2],
}

impl Queues {
    /// Maps the queues of a new ring.
    pub(super) fn map(ring: &OwnedFd, params: &io_uring_params) -> io::Result<Queues> {
        let (sq, cq) = (&params.sq_off, &params.cq_off);
        let indexed = !params.flags.contains(IoringSetupFlags::NO_SQARRAY);
        let indexes = if indexed { sq.array as usize + 4 * params.sq_entries as usize } else { 0 };
        let length = indexes.max(cq.cqes as usize + size_of::<Cqe>() * params.cq_entries as usize);
        let shared = Mapping::new(ring, length, IORING_OFF_SQ_RING)?;
        let length = size_of::<Sqe>() * params.sq_entries as usize;
        let entries = Mapping::new(ring, length, IORING_OFF_SQES)?;
        Ok(Queues::over(shared, entries, params))
    }

    /// Creates the queues in memory that the kernel has initialised.
    fn over(shared: Mapping, entries: Mapping, params: &io_uring_params) -> Queues {
        let (sq, cq) = (&params.sq_off, &params.cq_off);
        if !params.flags.contains(IoringSetupFlags::NO_SQARRAY) {
            // Slot i always contains entry i.
            for entry in 0..params.sq_entries {
                let index = Shared(shared.at(sq.array + 4 * entry));
                index.get().store(entry, Ordering::Relaxed);
            }
        }
        let shared_at = |offset| Shared(shared.at(offset));
        Queues {
            tail: shared_at(sq.tail).get().load(Ordering::Relaxed),
            consumed: shared_at(sq.head).get().load(Ordering::Relaxed),
            mask: shared_at(sq.ring_mask).get().load(Ordering::Relaxed),
            entries: entries.at(0),
            shared_tail: shared_at(sq.tail),
            shared_consumed: shared_at(sq.head),
            flags: shared_at(sq.flags),
            next: shared_at(cq.head).get().load(Ordering::Relaxed),
            produced: shared_at(cq.head).get().load(Ordering::Relaxed),
            completion_mask: shared_at(cq.ring_mask).get().load(Ordering::Relaxed),
            completions: shared.at(cq.cqes),
            shared_next: shared_at(cq.head),
            shared_produced: shared_at(cq.tail),
            _mappings: [shared, entries],
        }
    }

    /// Returns the number of submissions that the kernel has not consumed.
    #[inline]
    pub(super) fn queued(&self) -> u32 {
        self.tail.wrapping_sub(self.consumed)
    }

    /// Returns the number of free submission entries.
    #[inline]
    pub(super) fn space(&self) -> u32 {
        self.mask + 1 - self.queued()
    }

    /// Queues a submission. The caller has checked that there is space.
    #[inline(always)]
    #[allow(clippy::inline_always)]
    pub(super) fn push(&mut self, entry: Sqe) {
        debug_assert!(self.space() > 0);
        // SAFETY: the masked index is within the entries. The kernel does not read an entry before
        // `publish` releases the tail.
        unsafe { self.entries.add((self.tail & self.mask) as usize).write(entry) };
        self.tail = self.tail.wrapping_add(1);
    }

    /// Publishes the queued submissions and the consumed completions to the kernel.
    #[inline]
    pub(super) fn publish(&mut self) {
        self.shared_tail.get().store(self.tail, Ordering::Release);
        self.shared_next.get().store(self.next, Ordering::Release);
    }

    /// Reads the kernel's indexes.
    #[inline]
    pub(super) fn refresh(&mut self) {
        self.consumed = self.shared_consumed.get().load(Ordering::Acquire);
        self.produced = self.shared_produced.get().load(Ordering::Acquire);
    }

    /// Reads the kernel's completion index and returns whether there is a completion.
    #[inline]
    pub(super) fn has_completions(&mut self) -> bool {
        self.produced = self.shared_produced.get().load(Ordering::Acquire);
        self.next != self.produced
    }

    /// Returns the number of completions taken, which wraps.
    pub(super) fn taken(&self) -> u32 {
        self.next
    }

    /// Returns the number of completions as of the last read of the kernel's index.
    #[inline]
    pub(super) fn available(&self) -> u32 {
        self.produced.wrapping_sub(self.next)
    }

    /// Returns the next completion as of the last read of the kernel's index.
    #[inline]
    pub(super) fn take(&mut self) -> Option<Cqe> {
        if self.next == self.produced {
            return None;
        }
        // SAFETY: the masked index is within the completions. The kernel wrote the entry before it
        // released its index, and does not overwrite it before `publish` releases ours.
        let completion =
            unsafe { self.completions.add((self.next & self.completion_mask) as usize).read() };
        self.next = self.next.wrapping_add(1);
        Some(completion)
    }

    /// Returns the kernel's status flags.
    #[inline]
    pub(super) fn flags(&self) -> IoringSqFlags {
        IoringSqFlags::from_bits_retain(self.flags.get().load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod memory_tests;
