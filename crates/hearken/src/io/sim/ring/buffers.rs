//! The ring of buffers that a program provides to the kernel.

use std::sync::atomic::{AtomicU16, Ordering};

/// `struct io_uring_buf`. The tail of the ring is the `reserved` field of the first entry.
#[repr(C)]
struct Entry {
    addr: u64,
    length: u32,
    number: u16,
    reserved: AtomicU16,
}

/// A buffer that the kernel may fill.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buffer {
    pub(super) number: u16,
    addr: u64,
    length: u32,
}

/// Number of bytes that are overwritten when the program provides a buffer, so that a program that
/// still reads it reads wrong bytes.
const POISONED: usize = 64;

/// The kernel's view of a ring of provided buffers.
#[derive(Debug)]
pub(super) struct BufferRing {
    entries: *const Entry,
    mask: u16,
    group: u16,
    /// Index of the next buffer to use, and of the first one that was not observed.
    head: u16,
    observed: u16,
    /// Whether the kernel has a buffer, by its number.
    is_provided: Vec<bool>,
}

impl BufferRing {
    /// Creates the view of a ring at an address.
    ///
    /// # Safety
    /// As [`register_buffers`](crate::ring::RingInterface::register_buffers).
    pub(super) unsafe fn new(addr: u64, entries: u32, group: u16) -> BufferRing {
        assert!(entries.is_power_of_two() && entries <= 1 << 15, "{entries} buffers");
        BufferRing {
            entries: addr as *const Entry,
            mask: (entries - 1) as u16,
            group,
            head: 0,
            observed: 0,
            is_provided: Vec::new(),
        }
    }

    /// Observes the buffers that the program has provided.
    ///
    /// # Panics
    /// If it provides a buffer that the kernel has already, or more than fit.
    pub(super) fn observe(&mut self) {
        // SAFETY: the ring is valid as long as this value. Both sides access the tail atomically.
        let tail = unsafe { &(*self.entries).reserved }.load(Ordering::Acquire);
        let count = tail.wrapping_sub(self.head);
        assert!(count <= self.mask + 1, "{count} provided buffers in a ring of {}", self.mask + 1);
        while self.observed != tail {
            let Buffer { number, addr, length } = self.at(self.observed);
            self.observed = self.observed.wrapping_add(1);
            if self.is_provided.len() <= usize::from(number) {
                self.is_provided.resize(usize::from(number) + 1, false);
            }
            let was_provided = std::mem::replace(&mut self.is_provided[usize::from(number)], true);
            assert!(!was_provided, "buffer {number} was provided twice");
            // SAFETY: the program gives the memory to the kernel.
            unsafe { (addr as *mut u8).write_bytes(0xdb, POISONED.min(length as usize)) };
        }
    }

    fn at(&self, index: u16) -> Buffer {
        // SAFETY: the masked index is within the ring. The program wrote the entry before the tail.
        // The tail in the first entry is not read.
        unsafe {
            let entry = self.entries.add(usize::from(index & self.mask));
            Buffer {
                number: (&raw const (*entry).number).read(),
                addr: (&raw const (*entry).addr).read(),
                length: (&raw const (*entry).length).read(),
            }
        }
    }

    /// Returns the next buffer of a group, without using it.
    pub(super) fn first(&self, group: u16) -> Option<Buffer> {
        (self.head != self.observed && group == self.group).then(|| self.at(self.head))
    }

    /// Uses the next buffer: it belongs to the program when the completion is posted.
    pub(super) fn take(&mut self, buffer: Buffer) {
        debug_assert_eq!(self.at(self.head).number, buffer.number);
        self.head = self.head.wrapping_add(1);
        self.is_provided[usize::from(buffer.number)] = false;
    }
}

impl Buffer {
    /// Returns up to `max` bytes of the memory.
    ///
    /// # Safety
    /// The kernel has the buffer, and no other reference to its memory exists.
    pub(super) unsafe fn memory<'a>(self, max: usize) -> &'a mut [u8] {
        let length = max.min(self.length as usize);
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.addr as *mut u8, length) }
    }
}
