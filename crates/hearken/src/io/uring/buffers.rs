//! Buffers that the kernel selects from as it receives.
//!
//! The buffers are in one mapping, in which unused pages take no memory. Some buffers are provided
//! to the kernel, which uses them in order. Released buffers are provided again in the next wait,
//! the last one first. So only a few buffers are ever used, and stay in the cache, even if many
//! connections receive.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::rc::Rc;
use std::sync::atomic::{AtomicU16, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::mechanism::Unavailable;
use crate::ring::RingInterface;

/// Maximum number of buffers that the kernel has. If more connections receive at the same time, the
/// others wait for the next turn and are armed again, which costs a submission each.
const SHARE: u32 = 128;
/// The only buffer group.
pub(super) const GROUP: u16 = 0;

/// `struct io_uring_buf`. The tail of the ring is the `reserved` field of the first entry.
#[repr(C)]
struct Entry {
    addr: u64,
    length: u32,
    number: u16,
    reserved: AtomicU16,
}

/// An anonymous mapping.
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
            remedy: "free memory, or configure fewer or smaller buffers",
        };
        // SAFETY: a new mapping, at an address that the kernel selects.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), length, access, flags) };
        let start = NonNull::new(start.map_err(refused)?.cast());
        let start = start.ok_or(rustix::io::Errno::NOMEM).map_err(refused)?;
        Ok(Pages { start, length })
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: `new` mapped it, and nothing else unmaps it. If this fails, the mapping stays.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// The memory of the buffers, which lives as long as a buffer is in use.
struct Memory {
    pages: Pages,
    size: usize,
    /// Numbers of the buffers that are neither in use nor provided to the kernel.
    free: RefCell<Vec<u16>>,
}

/// A buffer that the kernel filled. It is free again after drop.
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
        // SAFETY: the kernel wrote this number of bytes, which is at most the size of the buffer.
        // It does not receive the buffer again before this value is dropped.
        unsafe {
            std::slice::from_raw_parts(
                self.memory.pages.start.add(at).as_ptr(),
                self.length as usize,
            )
        }
    }
}

impl DerefMut for Provided {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        let at = self.memory.size * usize::from(self.number);
        // SAFETY: as in `deref`; no other value refers to the buffer of this number.
        unsafe {
            std::slice::from_raw_parts_mut(
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

/// The buffers, and the ring that provides some to the kernel.
pub(super) struct Buffers {
    entries: Pages,
    mask: u16,
    tail: u16,
    /// Number of buffers that the kernel has.
    provided: u32,
    /// Number of buffers that the kernel should have.
    share: u32,
    memory: Rc<Memory>,
}

impl Buffers {
    /// Creates `count` buffers of `size` bytes.
    pub(super) fn new(
        ring: &mut impl RingInterface,
        count: u16,
        size: u32,
    ) -> Result<Buffers, Unavailable> {
        let slots = u32::from(count).next_power_of_two();
        let entries = Pages::new(slots as usize * size_of::<Entry>())?;
        let pages = Pages::new(size as usize * usize::from(count))?;
        // Small pages, since most received data are short. If the kernel refuses the advice, the
        // buffers take more memory, and a child process inherits them.
        for advice in [Advice::LinuxDontFork, Advice::LinuxNoHugepage] {
            // SAFETY: the mapping just made.
            let _ = unsafe { madvise(pages.start.as_ptr().cast(), pages.length, advice) };
        }
        // SAFETY: the entries live until the ring is closed, and the memory until no request is in
        // flight: see the `Drop` implementation of `UringIo`.
        unsafe { ring.register_buffers(entries.start.as_ptr() as u64, slots, GROUP)? };
        Ok(Buffers::over(entries, pages, count, size))
    }

    /// Creates the buffers in `pages`, and the ring in `entries`.
    fn over(entries: Pages, pages: Pages, count: u16, size: u32) -> Buffers {
        let slots = u32::from(count).next_power_of_two();
        let free = RefCell::new((0..count).rev().collect());
        Buffers {
            entries,
            mask: (slots - 1) as u16,
            tail: 0,
            provided: 0,
            share: SHARE.min(count.into()),
            memory: Rc::new(Memory { pages, size: size as usize, free }),
        }
    }

    /// Provides free buffers to the kernel, up to its share.
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
            // SAFETY: the masked index is in range, and the kernel does not read the entry before
            // the tail is stored. The field that contains the tail is not written here.
            unsafe {
                let entry = start.add(usize::from(self.tail & self.mask)).as_ptr();
                (&raw mut (*entry).addr).write(self.memory.pages.start.add(at).as_ptr() as u64);
                (&raw mut (*entry).length).write(self.memory.size as u32);
                (&raw mut (*entry).number).write(number);
            }
            self.tail = self.tail.wrapping_add(1);
            self.provided += 1;
        }
        // SAFETY: the field of the first entry, which the kernel also accesses atomically.
        unsafe { &(*start.as_ptr()).reserved }.store(self.tail, Ordering::Release);
    }

    /// Returns whether the kernel has a buffer, or one is free.
    pub(super) fn has_some(&self) -> bool {
        self.provided > 0 || !self.memory.free.borrow().is_empty()
    }

    /// Returns the number of buffers that the kernel has.
    #[inline]
    pub(super) fn provided(&self) -> u32 {
        self.provided
    }

    /// Takes a buffer that the kernel filled with `length` bytes.
    #[inline]
    pub(super) fn take(&mut self, number: u16, length: u32) -> Provided {
        self.provided = self.provided.saturating_sub(1);
        let length = length.min(self.memory.size as u32);
        Provided { memory: Rc::clone(&self.memory), number, length }
    }

    /// Leaks the memory, since the kernel may still write to it.
    pub(super) fn leak(&self) {
        std::mem::forget(Rc::clone(&self.memory));
    }
}

#[cfg(test)]
mod memory_tests;
