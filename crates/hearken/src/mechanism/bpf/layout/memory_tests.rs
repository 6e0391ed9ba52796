//! The shared arrays over plain memory, with a model of the programs: `scripts/miri` checks their memory accesses.

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::Arc;
use std::thread;

use super::*;

const POLL_IN: u32 = 1 << 1;

/// Arrays in plain memory, which is released instead of unmapped.
struct Arrays(ManuallyDrop<Shared>);

impl Deref for Arrays {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl Drop for Arrays {
    fn drop(&mut self) {
        release(&self.0.slots);
        release(&self.0.queues);
    }
}

fn release<T>(array: &Mapping<T>) {
    let elements = std::ptr::slice_from_raw_parts_mut(array.at.as_ptr(), array.len);
    // SAFETY: `array` allocated it as a box, and it is not used any more.
    drop(unsafe { Box::from_raw(elements) });
}

fn array<T>(len: usize, new: impl Fn() -> T) -> Mapping<T> {
    let elements: Box<[T]> = (0..len).map(|_| new()).collect();
    Mapping { at: NonNull::from(Box::leak(elements)).cast(), len }
}

fn arrays() -> Arc<Arrays> {
    let number = || AtomicU32::new(0);
    let slot = || Slot { word: number(), next: number(), owner: number(), signal: number() };
    let queue = || Queue {
        head: number(),
        sleeping: number(),
        sweep: number(),
        unattributed: number(),
        thread: number(),
        unused: Default::default(),
    };
    let shared = Shared { slots: array(8, slot), queues: array(4, queue) };
    Arc::new(Arrays(ManuallyDrop::new(shared)))
}

/// Does what the program does for an event of a descriptor: marks it, and puts it on the queue of its owner.
fn arrive(shared: &Shared, fd: RawFd, reason: u32) {
    let slot = shared.slot(fd).unwrap();
    if slot.word.fetch_or(PENDING | reason, Ordering::SeqCst) & PENDING != 0 {
        return;
    }
    let queue = &shared.queues[slot.owner.load(Ordering::SeqCst) as usize];
    let link = |head| {
        slot.next.store(head, Ordering::Relaxed);
        Some(fd as u32 + 1)
    };
    queue.head.fetch_update(Ordering::SeqCst, Ordering::SeqCst, link).unwrap();
}

fn take(shared: &Shared, queue: usize) -> Vec<(RawFd, u32)> {
    let mut taken = Vec::new();
    shared.take(&shared.queues[queue], |fd, word| taken.push((fd, word & !PENDING)));
    taken
}

#[test]
fn plain_memory_descriptors_arrive_in_order_and_once() {
    let shared = arrays();
    for fd in 0..8 {
        shared.claim(fd, 1, 40).unwrap();
    }
    for fd in [3, 5, 3, 0] {
        arrive(&shared, fd, POLL_IN);
    }
    assert_eq!(take(&shared, 1), [(3, POLL_IN), (5, POLL_IN), (0, POLL_IN)]);
    assert_eq!(take(&shared, 1), []);
    // A number that another instance reuses leaves the queue of the first.
    arrive(&shared, 4, POLL_IN);
    arrive(&shared, 2, POLL_IN);
    shared.claim(4, 2, 41).unwrap();
    assert_eq!(take(&shared, 1), [(2, POLL_IN)]);
    arrive(&shared, 4, POLL_IN);
    assert_eq!(take(&shared, 2), [(4, POLL_IN)]);
    assert!(shared.claim(8, 1, 40).is_err() && shared.claim(-1, 1, 40).is_err());
}

#[test]
fn plain_memory_events_of_a_concurrent_program_are_not_lost() {
    const COUNT: u32 = if cfg!(miri) { 20 } else { 2000 };
    let shared = arrays();
    for fd in 0..3 {
        shared.claim(fd, 1, 40).unwrap();
    }
    let program = Arc::clone(&shared);
    let program = thread::spawn(move || {
        for round in 0..COUNT {
            arrive(&program, (round % 3) as RawFd, POLL_IN);
        }
    });
    let mut seen = 0;
    while !program.is_finished() {
        seen += take(&shared, 1).len();
        thread::yield_now();
    }
    program.join().unwrap();
    seen += take(&shared, 1).len();
    assert!(0 < seen && seen <= COUNT as usize);
    assert!(shared.slots.iter().all(|slot| slot.word.load(Ordering::Relaxed) == 0));
    assert_eq!(take(&shared, 1), []);
}
