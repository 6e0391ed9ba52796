//! Models of notifications, checked by loom: `scripts/loom`.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use loom::thread;

use super::*;
use crate::event::Token;
use crate::waker::Wakeups;

/// A queue that subscribes to a source.
struct Queue {
    token: Token,
    notifier: Arc<Notifier>,
    receiver: OwnedFd,
}

impl Queue {
    fn new(index: u32) -> Queue {
        let (waker, receiver) = Wakeups::new().unwrap().into_parts();
        Queue { token: Token::new(index, 0), notifier: Arc::new(Notifier::new(waker)), receiver }
    }

    /// Returns whether the queue would check the source: it wakes, and finds its registration.
    fn checks(&self) -> bool {
        Wakeups::drain(&self.receiver) && self.notifier.take_pending() == [self.token]
    }
}

/// Creates a source with the subscription of each queue.
fn source(wake: Wake, queues: &[Queue]) -> Arc<SharedSource> {
    let source: Arc<dyn AsFd + Send + Sync> = Arc::new(UnixStream::pair().unwrap().0);
    let source = SharedSource::new(source, wake);
    let list = queues.iter().map(|queue| (queue.token, Arc::clone(&queue.notifier)));
    lock(&source.subscribers).list.extend(list);
    Arc::new(source)
}

// A notification is not lost when the notified queue unsubscribes at the same time.
#[test]
fn another_queue_checks_the_source_of_a_queue_that_unsubscribes() {
    loom::model(|| {
        let queues = [Queue::new(0), Queue::new(1)];
        let source = source(Wake::One, &queues);
        let notifying = Arc::clone(&source);
        let notify = thread::spawn(move || notifying.notify());
        source.unsubscribe(queues[0].token, &queues[0].notifier);
        notify.join().unwrap();
        assert!(queues[1].checks());
        assert!(queues[0].notifier.take_pending().is_empty());
    });
}

// A queue that takes its notifications and then sleeps is woken by each later notification.
#[test]
fn a_queue_that_sleeps_is_woken() {
    loom::model(|| {
        let queue = Queue::new(0);
        let source = source(Wake::All, std::slice::from_ref(&queue));
        let notifying = Arc::clone(&source);
        let notify = thread::spawn(move || notifying.notify());
        let mut checked = queue.checks();
        queue.notifier.set_waiting(true);
        notify.join().unwrap();
        // A wake-up without the registration is allowed, but not the opposite.
        let woken = Wakeups::drain(&queue.receiver);
        let pending = !queue.notifier.take_pending().is_empty();
        assert!(woken || !pending);
        checked |= pending;
        assert!(checked || woken);
    });
}

// Concurrent notifications of one source notify each queue once or more, and none twice at a time.
#[test]
fn concurrent_notifications_reach_all_queues() {
    loom::model(|| {
        let queues = [Queue::new(0), Queue::new(1)];
        let source = source(Wake::All, &queues);
        let notifying = Arc::clone(&source);
        let notify = thread::spawn(move || notifying.notify());
        source.notify();
        notify.join().unwrap();
        assert!(queues.iter().all(Queue::checks));
    });
}
