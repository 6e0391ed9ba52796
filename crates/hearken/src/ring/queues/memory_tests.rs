//! The queues over plain memory, with a model of the kernel: `scripts/miri` checks their memory accesses.

use std::mem::MaybeUninit;
use std::thread;

use super::*;
use crate::ring::Sqe;

/// The memory that the kernel maps: indexes, the array of submission indexes, and completions.
#[repr(C, align(64))]
struct Shared {
    sq: [AtomicU32; 4],
    cq: [AtomicU32; 3],
    array: [AtomicU32; SPACE],
    completions: [MaybeUninit<[u64; 2]>; COMPLETIONS],
}

const SPACE: usize = 4;
const COMPLETIONS: usize = 8;

/// The kernel's side of the queues.
#[derive(Clone, Copy)]
struct Kernel {
    shared: NonNull<Shared>,
    entries: NonNull<[u64; 8]>,
    consumed: u32,
    produced: u32,
}

// SAFETY: the test keeps the memory until the thread has ended, and accesses it as the kernel does.
unsafe impl Send for Kernel {}

impl Kernel {
    /// Completes the next submission with its own user data. Returns false if there is none, or no space.
    fn complete(&mut self) -> bool {
        // SAFETY: the atomics are shared, and references to them last only for a statement.
        let (tail, next) = unsafe {
            let shared = self.shared.as_ptr();
            ((*shared).sq[1].load(Ordering::Acquire), (*shared).cq[0].load(Ordering::Acquire))
        };
        if self.consumed == tail || self.produced.wrapping_sub(next) == COMPLETIONS as u32 {
            return false;
        }
        // SAFETY: the entry was published with the tail, and the completion was consumed with the index.
        unsafe {
            let shared = self.shared.as_ptr();
            let slot = self.consumed as usize % SPACE;
            let index = (*shared).array[slot].load(Ordering::Relaxed) as usize;
            let entry = self.entries.add(index).read();
            let at = &raw mut (*shared).completions[self.produced as usize % COMPLETIONS];
            at.write(MaybeUninit::new([entry[4], 0]));
            self.consumed = self.consumed.wrapping_add(1);
            self.produced = self.produced.wrapping_add(1);
            (*shared).sq[0].store(self.consumed, Ordering::Release);
            (*shared).cq[1].store(self.produced, Ordering::Release);
        }
        true
    }

    /// Completes `count` submissions.
    fn run(mut self, count: u64) {
        for _ in 0..count {
            while !self.complete() {
                thread::yield_now();
            }
        }
    }
}

/// Passes the queues over plain memory, whose indexes begin at `first`, and the kernel's side to `test`.
fn with_queues(first: u32, test: impl FnOnce(&mut Queues, Kernel)) {
    let number = |value| AtomicU32::new(value);
    let shared = Box::into_raw(Box::new(Shared {
        sq: [number(first), number(first), number(SPACE as u32 - 1), number(0)],
        cq: [number(first), number(first), number(COMPLETIONS as u32 - 1)],
        array: Default::default(),
        completions: [MaybeUninit::uninit(); COMPLETIONS],
    }));
    let entries = Box::into_raw(Box::new([[0_u64; 8]; SPACE]));
    let mapping = |start: *mut u8, length| Mapping { start: NonNull::new(start).unwrap(), length };
    let mut params = io_uring_params::default();
    params.sq_entries = SPACE as u32;
    params.cq_entries = COMPLETIONS as u32;
    (params.sq_off.head, params.sq_off.tail) = (0, 4);
    (params.sq_off.ring_mask, params.sq_off.flags) = (8, 12);
    (params.cq_off.head, params.cq_off.tail) = (16, 20);
    params.cq_off.ring_mask = 24;
    params.sq_off.array = 28;
    params.cq_off.cqes = std::mem::offset_of!(Shared, completions) as u32;
    let shared_memory = mapping(shared.cast(), size_of::<Shared>());
    let mut queues = Queues::over(shared_memory, mapping(entries.cast(), 64 * SPACE), &params);
    let kernel = Kernel {
        shared: NonNull::new(shared).unwrap(),
        entries: NonNull::new(entries.cast()).unwrap(),
        consumed: first,
        produced: first,
    };
    test(&mut queues, kernel);
    // The memory was not mapped.
    std::mem::forget(queues);
    // SAFETY: nothing uses the memory any more.
    unsafe {
        drop(Box::from_raw(shared));
        drop(Box::from_raw(entries));
    }
}

#[test]
fn plain_memory_submissions_complete_in_order_across_the_wrap_around() {
    with_queues(u32::MAX - 5, |queues, mut kernel| {
        let mut submitted = 0;
        let mut completed = 0;
        for round in 0..12 {
            for _ in 0..=round % 4 {
                if queues.space() == 0 {
                    break;
                }
                queues.push(Sqe::close(0).user_data(submitted));
                submitted += 1;
            }
            assert_eq!(queues.take().map(|completion| completion.user_data()), None);
            queues.publish();
            while kernel.complete() {}
            queues.refresh();
            assert_eq!(u64::from(queues.available()), submitted - completed);
            while let Some(completion) = queues.take() {
                assert_eq!(completion.user_data(), completed);
                completed += 1;
            }
            assert_eq!((queues.queued(), completed), (0, submitted));
        }
    });
}

#[test]
fn plain_memory_is_shared_with_a_kernel_thread() {
    const COUNT: u64 = if cfg!(miri) { 30 } else { 3000 };
    with_queues(u32::MAX - 2, |queues, kernel| {
        thread::scope(|scope| {
            scope.spawn(move || kernel.run(COUNT));
            let (mut submitted, mut completed) = (0, 0);
            while completed < COUNT {
                while submitted < COUNT && queues.space() > 0 {
                    queues.push(Sqe::close(0).user_data(submitted));
                    submitted += 1;
                }
                queues.publish();
                queues.refresh();
                if !queues.has_completions() {
                    thread::yield_now();
                }
                while let Some(completion) = queues.take() {
                    assert_eq!(completion.user_data(), completed);
                    completed += 1;
                }
            }
        });
    });
}
