//! The queue of arrivals that wait for a connection.

use std::collections::VecDeque;
use std::time::Duration;

use hearken::timer::Time;

use crate::report::QueueOrder;
use crate::workload::SessionState;

/// Maximum number of waiting arrivals in all threads of a process, about 13 MB.
const MAX_WAITING: usize = 1 << 18;

/// An arrival that waits for a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) scheduled: Time,
    pub(crate) work: Work,
}

/// The requests of an arrival.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    /// One message.
    Message(u32),
    /// A session whose first burst has this number of requests.
    Session(SessionState, u32),
}

impl Work {
    /// Returns the number of requests that are counted as scheduled.
    pub(crate) fn requests(&self) -> u64 {
        match *self {
            Work::Message(_) => 1,
            Work::Session(_, messages) => messages.into(),
        }
    }
}

/// A bounded queue of arrivals, in the order of their scheduled times. An arrival expires when it has
/// waited for the timeout. All operations take O(1) per arrival.
#[derive(Debug)]
pub(crate) struct Queue {
    /// The arrivals, oldest first.
    waiting: VecDeque<Waiting>,
    order: QueueOrder,
    timeout: Duration,
    capacity: usize,
}

impl Queue {
    /// Creates the queue of one of `threads` threads.
    pub(crate) fn new(order: QueueOrder, timeout: Duration, threads: usize) -> Queue {
        let capacity = (MAX_WAITING / threads.max(1)).max(1);
        Queue { waiting: VecDeque::new(), order, timeout, capacity }
    }

    /// Adds an arrival. Returns the oldest one if the queue was full.
    pub(crate) fn push(&mut self, arrival: Waiting) -> Option<Waiting> {
        let dropped =
            if self.waiting.len() >= self.capacity { self.waiting.pop_front() } else { None };
        self.waiting.push_back(arrival);
        dropped
    }

    /// Removes and returns the next arrival. It may have expired: call [`pop_expired`] first.
    ///
    /// [`pop_expired`]: Queue::pop_expired
    pub(crate) fn pop(&mut self) -> Option<Waiting> {
        match self.order {
            QueueOrder::Lifo => self.waiting.pop_back(),
            QueueOrder::Fifo => self.waiting.pop_front(),
        }
    }

    /// Removes and returns the next arrival if it is a single request: its scheduled time and message.
    pub(crate) fn pop_message(&mut self) -> Option<(Time, u32)> {
        match self.pop()? {
            Waiting { scheduled, work: Work::Message(message) } => Some((scheduled, message)),
            // Sessions wait for a connection of their own, and never together with single requests.
            Waiting { work: Work::Session(..), .. } => None,
        }
    }

    /// Removes and returns an arrival that has expired at `now`.
    pub(crate) fn pop_expired(&mut self, now: Time) -> Option<Waiting> {
        self.next_expiry().filter(|&expiry| expiry <= now).and_then(|_| self.waiting.pop_front())
    }

    /// Returns the time at which the next arrival expires.
    pub(crate) fn next_expiry(&self) -> Option<Time> {
        self.waiting.front().map(|oldest| oldest.scheduled + self.timeout)
    }

    /// Returns whether no arrival waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns an iterator over the waiting arrivals, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Waiting> {
        self.waiting.iter()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hearken::timer::Time;

    use super::{MAX_WAITING, Queue, Waiting, Work};
    use crate::report::QueueOrder;

    fn arrival(scheduled: u64) -> Waiting {
        Waiting { scheduled: Time::from_nanos(scheduled), work: Work::Message(0) }
    }

    fn drain(order: QueueOrder) -> Vec<u64> {
        let mut queue = Queue::new(order, Duration::from_nanos(10), 1);
        for scheduled in [1, 2, 3, 4] {
            assert!(queue.push(arrival(scheduled)).is_none());
        }
        assert_eq!(queue.next_expiry(), Some(Time::from_nanos(11)));
        assert!(queue.pop_expired(Time::from_nanos(10)).is_none());
        assert!(queue.pop_expired(Time::from_nanos(11)).is_some());
        std::iter::from_fn(|| queue.pop()).map(|next| next.scheduled.as_nanos()).collect()
    }

    #[test]
    fn expired_arrivals_leave_first() {
        assert_eq!(drain(QueueOrder::Fifo), [2, 3, 4]);
        assert_eq!(drain(QueueOrder::Lifo), [4, 3, 2]);
    }

    #[test]
    fn a_full_queue_drops_the_oldest_arrival() {
        let threads = MAX_WAITING / 2;
        let mut queue = Queue::new(QueueOrder::Lifo, Duration::from_secs(1), threads);
        assert!(queue.push(arrival(1)).is_none() && queue.push(arrival(2)).is_none());
        assert_eq!(queue.push(arrival(3)).map(|dropped| dropped.scheduled.as_nanos()), Some(1));
    }
}
