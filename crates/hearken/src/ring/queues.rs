//! The two queues that are shared with the kernel, and the numbers by which they are known.
//!
//! Each queue has one end here and one in the kernel. Ours is a number of our own, which the kernel is
//! shown when it is entered (or when what it covers is to be seen); the kernel's is read when we want to
//! know, and remembered.

use std::os::fd::{AsFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io;
use rustix::io_uring::{
    IORING_OFF_SQ_RING, IORING_OFF_SQES, IoringSetupFlags, IoringSqFlags, io_uring_params,
};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use super::entry::{Cqe, Sqe};

/// Memory that the kernel shares.
struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

impl Mapping {
    fn new(ring: &OwnedFd, length: usize, offset: u64) -> io::Result<Mapping> {
        let (access, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
        // SAFETY: a new mapping, where the kernel wants it.
        let start = unsafe { mmap(ptr::null_mut(), length, access, flags, ring.as_fd(), offset)? };
        let start = NonNull::new(start.cast()).ok_or(io::Errno::NOMEM)?;
        let mapping = Mapping { start, length };
        // SAFETY: the mapping just made; a child that has it as well would enter our ring.
        unsafe { madvise(start.as_ptr().cast(), length, Advice::LinuxDontFork)? };
        Ok(mapping)
    }

    /// What is at so many bytes from the start.
    fn at<T>(&self, offset: u32) -> NonNull<T> {
        debug_assert!(offset as usize + size_of::<T>() <= self.length);
        // SAFETY: the kernel's offsets lie within what it was asked to map.
        unsafe { self.start.add(offset as usize).cast() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and nobody else unmaps it. Refused, it stays.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// A number that the kernel shares.
#[derive(Clone, Copy)]
struct Shared(NonNull<AtomicU32>);

impl Shared {
    #[inline]
    fn get(&self) -> &AtomicU32 {
        // SAFETY: within a mapping that the queues keep; the kernel treats it as atomic as well.
        unsafe { self.0.as_ref() }
    }
}

/// Submissions and completions.
pub(super) struct Queues {
    /// Where the next submission goes, and how far the kernel had got when it was last looked at.
    tail: u32,
    consumed: u32,
    mask: u32,
    entries: NonNull<Sqe>,
    shared_tail: Shared,
    shared_consumed: Shared,
    flags: Shared,
    /// The next completion, and how far the kernel had got when it was last looked at.
    next: u32,
    produced: u32,
    completion_mask: u32,
    completions: NonNull<Cqe>,
    shared_next: Shared,
    shared_produced: Shared,
    _mappings: [Mapping; 2],
}

impl Queues {
    /// Those of a new ring.
    pub(super) fn map(ring: &OwnedFd, has: &io_uring_params) -> io::Result<Queues> {
        let (sq, cq) = (&has.sq_off, &has.cq_off);
        let indexed = !has.flags.contains(IoringSetupFlags::NO_SQARRAY);
        let indexes = if indexed { sq.array as usize + 4 * has.sq_entries as usize } else { 0 };
        let length = indexes.max(cq.cqes as usize + size_of::<Cqe>() * has.cq_entries as usize);
        let shared = Mapping::new(ring, length, IORING_OFF_SQ_RING)?;
        let length = size_of::<Sqe>() * has.sq_entries as usize;
        let entries = Mapping::new(ring, length, IORING_OFF_SQES)?;
        if indexed {
            // A place is always its own entry's.
            for at in 0..has.sq_entries {
                let index = Shared(shared.at(sq.array + 4 * at));
                index.get().store(at, Ordering::Relaxed);
            }
        }
        let number = |offset| Shared(shared.at(offset));
        Ok(Queues {
            tail: number(sq.tail).get().load(Ordering::Relaxed),
            consumed: number(sq.head).get().load(Ordering::Relaxed),
            mask: number(sq.ring_mask).get().load(Ordering::Relaxed),
            entries: entries.at(0),
            shared_tail: number(sq.tail),
            shared_consumed: number(sq.head),
            flags: number(sq.flags),
            next: number(cq.head).get().load(Ordering::Relaxed),
            produced: number(cq.head).get().load(Ordering::Relaxed),
            completion_mask: number(cq.ring_mask).get().load(Ordering::Relaxed),
            completions: shared.at(cq.cqes),
            shared_next: number(cq.head),
            shared_produced: number(cq.tail),
            _mappings: [shared, entries],
        })
    }

    /// How many submissions have not been taken by the kernel.
    #[inline]
    pub(super) fn queued(&self) -> u32 {
        self.tail.wrapping_sub(self.consumed)
    }

    /// How many more there is room for.
    #[inline]
    pub(super) fn room(&self) -> u32 {
        self.mask + 1 - self.queued()
    }

    /// Queues a submission; the caller has seen that there is room.
    #[inline(always)]
    #[allow(clippy::inline_always)]
    pub(super) fn push(&mut self, entry: Sqe) {
        debug_assert!(self.room() > 0);
        // SAFETY: masked, it is one of the entries, and the kernel does not look at it before it is
        // shown the tail.
        unsafe { self.entries.add((self.tail & self.mask) as usize).write(entry) };
        self.tail = self.tail.wrapping_add(1);
    }

    /// Shows the kernel what is queued, and what room there is for completions.
    #[inline]
    pub(super) fn show(&mut self) {
        self.shared_tail.get().store(self.tail, Ordering::Release);
        self.shared_next.get().store(self.next, Ordering::Release);
    }

    /// Looks how far the kernel has got.
    #[inline]
    pub(super) fn look(&mut self) {
        self.consumed = self.shared_consumed.get().load(Ordering::Acquire);
        self.produced = self.shared_produced.get().load(Ordering::Acquire);
    }

    /// True if there is a completion, as of now.
    #[inline]
    pub(super) fn has_completions(&mut self) -> bool {
        self.produced = self.shared_produced.get().load(Ordering::Acquire);
        self.next != self.produced
    }

    /// How many completions there were when it was last looked, and were not taken.
    #[inline]
    pub(super) fn available(&self) -> u32 {
        self.produced.wrapping_sub(self.next)
    }

    /// The next of the completions that were there when it was last looked.
    #[inline]
    pub(super) fn take(&mut self) -> Option<Cqe> {
        if self.next == self.produced {
            return None;
        }
        // SAFETY: masked, it is one of the completions, and the kernel, whose number was read with
        // acquire, has written it, and does not write it again before it is shown that it was taken.
        let completion =
            unsafe { self.completions.add((self.next & self.completion_mask) as usize).read() };
        self.next = self.next.wrapping_add(1);
        Some(completion)
    }

    /// What the kernel says of itself.
    #[inline]
    pub(super) fn flags(&self) -> IoringSqFlags {
        IoringSqFlags::from_bits_retain(self.flags.get().load(Ordering::Relaxed))
    }
}
