//! Models of wake-ups by other threads, checked by loom: `scripts/loom`.

use std::sync::Arc;

use loom::sync::atomic::AtomicUsize;
use loom::thread;

use super::*;

/// The parts of an executor with one task that wake-ups concern.
struct Executor {
    queue: RemoteQueue<()>,
    pending: AtomicBool,
    /// The value whose changes the task waits for.
    value: AtomicUsize,
    /// Number of notifications, which end the executor's waits.
    notified: AtomicUsize,
}

impl Executor {
    fn new() -> Arc<Executor> {
        Arc::new(Executor {
            queue: RemoteQueue::new(),
            pending: AtomicBool::new(false),
            value: AtomicUsize::new(0),
            notified: AtomicUsize::new(0),
        })
    }

    /// Changes what the task waits for, and wakes it, as another thread does.
    fn change(&self) {
        self.value.fetch_add(1, Ordering::Relaxed);
        if self.queue.push(&self.pending, || ()) {
            self.notified.fetch_add(1, Ordering::Release);
        }
    }

    /// Runs a turn after a wait that was notified. Returns what the task saw, if it ran.
    fn turn(&self) -> Option<usize> {
        let woken = self.queue.take();
        woken.iter().for_each(|()| accept(&self.pending));
        (!woken.is_empty()).then(|| self.value.load(Ordering::Relaxed))
    }

    /// Waits for a notification after the first `known`. Returns their number.
    fn wait(&self, known: usize) -> usize {
        loop {
            let notified = self.notified.load(Ordering::Acquire);
            if notified > known {
                return notified;
            }
            thread::yield_now();
        }
    }
}

// A task that waits for the changes of two threads sees both: an executor that sleeps is notified
// after each change that the task has not seen.
#[test]
fn no_wake_up_is_lost() {
    loom::model(|| {
        let executor = Executor::new();
        let threads = [(); 2].map(|()| {
            let executor = Arc::clone(&executor);
            thread::spawn(move || executor.change())
        });
        let (mut seen, mut known) = (0, 0);
        while seen < 2 {
            known = executor.wait(known);
            seen = executor.turn().unwrap_or(seen);
        }
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

// A task is in the queue once, however often it is woken before the executor runs.
#[test]
fn wake_ups_before_a_turn_are_one() {
    loom::model(|| {
        let executor = Executor::new();
        let other = Arc::clone(&executor);
        let thread = thread::spawn(move || other.change());
        executor.change();
        thread.join().unwrap();
        assert_eq!(executor.queue.take().len(), 1);
        assert_eq!(executor.notified.load(Ordering::Relaxed), 1);
    });
}

// A wake-up that meets the end of the executor leaves nothing in the queue.
#[test]
fn a_closed_queue_stays_empty() {
    loom::model(|| {
        let executor = Executor::new();
        let other = Arc::clone(&executor);
        let thread = thread::spawn(move || other.change());
        let closed = executor.queue.close().len();
        thread.join().unwrap();
        assert!(executor.queue.take().is_empty());
        assert_eq!(executor.notified.load(Ordering::Relaxed), closed);
    });
}
