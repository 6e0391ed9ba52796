//! Provided buffers over plain memory, with a model of the kernel: `scripts/miri` checks their memory accesses.

use std::alloc::{Layout, alloc_zeroed, dealloc};

use super::*;

const COUNT: u16 = 6;
const SIZE: u32 = 64;

/// Allocates pages that are not mapped.
fn pages(length: usize) -> Pages {
    let layout = Layout::from_size_align(length, 4096).unwrap();
    // SAFETY: the size is not 0.
    let start = unsafe { alloc_zeroed(layout) };
    Pages { start: NonNull::new(start).unwrap(), length }
}

/// Fills the buffer that the kernel uses next. Returns its number.
fn fill(entries: NonNull<Entry>, used: u16, bytes: &[u8]) -> u16 {
    // SAFETY: the entry was provided before the tail was stored.
    let (addr, number) = unsafe {
        let tail = (*entries.as_ptr()).reserved.load(Ordering::Acquire);
        assert_ne!(used, tail, "no buffer is provided");
        let entry = entries.add(usize::from(used % COUNT.next_power_of_two())).as_ptr();
        assert_eq!((*entry).length, SIZE);
        ((*entry).addr, (*entry).number)
    };
    // SAFETY: the kernel owns the buffer until it reports it.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), addr as *mut u8, bytes.len()) };
    number
}

#[test]
fn plain_memory_buffers_are_filled_released_and_provided_again() {
    let slots = usize::from(COUNT.next_power_of_two());
    let entries = pages(slots * size_of::<Entry>());
    let memory = pages(SIZE as usize * usize::from(COUNT));
    let (first, all) = ((entries.start, entries.length), (memory.start, memory.length));
    let mut buffers = Buffers::over(entries, memory, COUNT, SIZE);
    let mut in_use: Vec<(Provided, Vec<u8>)> = Vec::new();
    let mut used = 0_u16;
    for round in 0..40_u8 {
        buffers.provide();
        assert_eq!(buffers.provided() + in_use.len() as u32, u32::from(COUNT));
        for _ in 0..=round % 3 {
            if buffers.provided() == 0 {
                break;
            }
            let bytes = vec![round; 1 + usize::from(round)];
            let number = fill(first.0.cast(), used, &bytes);
            used = used.wrapping_add(1);
            in_use.push((buffers.take(number, bytes.len() as u32), bytes));
        }
        for (buffer, bytes) in &in_use {
            assert_eq!(**buffer, **bytes);
        }
        let keep = usize::from(round % 5);
        in_use.drain(..in_use.len().saturating_sub(keep));
        assert!(buffers.has_some());
    }
    // A length beyond the buffer is not trusted.
    let number = fill(first.0.cast(), used, b"x");
    assert_eq!(buffers.take(number, u32::MAX).len(), SIZE as usize);
    drop(in_use);
    // The memory was not mapped.
    let Buffers { entries, memory, .. } = buffers;
    std::mem::forget((entries, Rc::into_inner(memory).unwrap().pages));
    for (start, length) in [first, all] {
        // SAFETY: nothing uses the memory any more.
        unsafe { dealloc(start.as_ptr(), Layout::from_size_align(length, 4096).unwrap()) };
    }
}
