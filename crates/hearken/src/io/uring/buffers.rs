//! Buffers that the kernel chooses from as it receives.
//!
//! They lie in one mapping, of which only what was ever used takes memory. A part of them is with the
//! kernel, which uses them in the order in which it got them; those that come back go to it again in
//! the next wait, the last first. So however many are received from at once, few of them are ever used,
//! and are warm in the cache.

use std::cell::RefCell;
use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::rc::Rc;
use std::sync::atomic::{AtomicU16, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::mechanism::Unavailable;
use crate::ring::Ring;

/// How many the kernel has at most. Of more connections that have something to be received at once the
/// others wait for the next turn, and are armed again, which costs them some.
const SHARE: u32 = 128;
/// The one group that there is.
pub(super) const GROUP: u16 = 0;

/// `struct io_uring_buf`. The tail of the ring is where the first one's `reserved` is.
#[repr(C)]
struct Entry {
    addr: u64,
    length: u32,
    number: u16,
    reserved: AtomicU16,
}

/// Pages of our own.
struct Pages {
    start: NonNull<u8>,
    length: usize,
}

impl Pages {
    fn new(length: usize) -> Result<Pages, Unavailable> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let refused = |errno: rustix::io::Errno| Unavailable {
            call: "mmap",
            error: errno.into(),
            remedy: "free memory, or ask for fewer or smaller buffers",
        };
        // SAFETY: a new mapping, where the kernel wants it.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), length, access, flags) };
        let start = NonNull::new(start.map_err(refused)?.cast());
        let start = start.ok_or(rustix::io::Errno::NOMEM).map_err(refused)?;
        Ok(Pages { start, length })
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and nobody else unmaps it. Refused, it stays.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// The memory of the buffers, which lives as long as one of them is lent.
struct Memory {
    pages: Pages,
    size: usize,
    /// Those that are here.
    free: RefCell<Vec<u16>>,
}

/// A buffer that the kernel has filled. It goes back when it is dropped.
pub(in crate::io) struct Provided {
    memory: Rc<Memory>,
    number: u16,
    length: u32,
}

impl Deref for Provided {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        let at = self.memory.size * usize::from(self.number);
        // SAFETY: the kernel has written that many bytes, fewer than the buffer has, and does not have
        // the buffer again before this is dropped.
        unsafe {
            std::slice::from_raw_parts(
                self.memory.pages.start.add(at).as_ptr(),
                self.length as usize,
            )
        }
    }
}

impl Drop for Provided {
    #[inline]
    fn drop(&mut self) {
        self.memory.free.borrow_mut().push(self.number);
    }
}

/// The buffers, and the ring by which the kernel has some of them.
pub(super) struct Buffers {
    entries: Pages,
    mask: u16,
    tail: u16,
    /// How many the kernel has, and is to have.
    provided: u32,
    share: u32,
    memory: Rc<Memory>,
}

impl Buffers {
    /// As many as `count` of `size` bytes.
    pub(super) fn new(ring: &Ring, count: u16, size: u32) -> Result<Buffers, Unavailable> {
        let slots = u32::from(count).next_power_of_two();
        let entries = Pages::new(slots as usize * size_of::<Entry>())?;
        let size = size as usize;
        let pages = Pages::new(size * usize::from(count))?;
        // In small pages, as most of what is received is small. Refused, it takes more memory, and a
        // child has what it does not use.
        for advice in [Advice::LinuxDontFork, Advice::LinuxNoHugepage] {
            // SAFETY: the mapping just made.
            let _ = unsafe { madvise(pages.start.as_ptr().cast(), pages.length, advice) };
        }
        // SAFETY: the entries are kept until the ring is closed, and the memory until no request can
        // be under way: see `UringIo`'s drop.
        unsafe { ring.provide(entries.start.as_ptr() as u64, slots, GROUP)? };
        let free = RefCell::new((0..count).rev().collect());
        Ok(Buffers {
            entries,
            mask: (slots - 1) as u16,
            tail: 0,
            provided: 0,
            share: SHARE.min(count.into()),
            memory: Rc::new(Memory { pages, size, free }),
        })
    }

    /// Gives the kernel what it is to have, as far as it is here.
    #[inline]
    pub(super) fn provide(&mut self) {
        if self.provided >= self.share {
            return;
        }
        let mut free = self.memory.free.borrow_mut();
        let start = self.entries.start.cast::<Entry>();
        while self.provided < self.share {
            let Some(number) = free.pop() else { break };
            let at = self.memory.size * usize::from(number);
            // SAFETY: masked, it is one of the entries, and the kernel does not look at it before it
            // is shown the tail; the tail's place in it is left alone.
            unsafe {
                let entry = start.add(usize::from(self.tail & self.mask)).as_ptr();
                (&raw mut (*entry).addr).write(self.memory.pages.start.add(at).as_ptr() as u64);
                (&raw mut (*entry).length).write(self.memory.size as u32);
                (&raw mut (*entry).number).write(number);
            }
            self.tail = self.tail.wrapping_add(1);
            self.provided += 1;
        }
        // SAFETY: the first entry's; the kernel treats it as atomic as well.
        unsafe { &(*start.as_ptr()).reserved }.store(self.tail, Ordering::Release);
    }

    /// True if the kernel has one, or can be given one.
    pub(super) fn has_some(&self) -> bool {
        self.provided > 0 || !self.memory.free.borrow().is_empty()
    }

    /// How many the kernel has.
    #[inline]
    pub(super) fn provided(&self) -> u32 {
        self.provided
    }

    /// Takes over what the kernel has filled with so many bytes.
    #[inline]
    pub(super) fn take(&mut self, number: u16, length: u32) -> Provided {
        self.provided = self.provided.saturating_sub(1);
        let length = length.min(self.memory.size as u32);
        Provided { memory: Rc::clone(&self.memory), number, length }
    }

    /// Leaves the memory to whoever may still write to it.
    pub(super) fn leak(&self) {
        std::mem::forget(Rc::clone(&self.memory));
    }
}
