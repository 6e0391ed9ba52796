//! The events of the network, in the order of their times.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use rustix::io::Errno;

use crate::io::sim::host::SocketId;
use crate::timer::Time;

/// An event of the network.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// The connection request of a client arrives, the `attempt`th.
    Request { client: SocketId, attempt: u32 },
    /// The connection of a client is established.
    Established { client: SocketId, server: SocketId },
    /// The connection request of a client fails.
    Failed { client: SocketId, errno: Errno },
    /// Bytes arrive.
    Bytes { from: SocketId, to: SocketId, count: usize },
    /// The end of the stream arrives.
    End { to: SocketId },
    /// A reset arrives.
    Reset { to: SocketId, errno: Errno },
    /// The peer has read bytes.
    Window { to: SocketId, count: usize },
    /// A stalled sender has space again.
    Space { to: SocketId },
    /// A withheld connection is accepted without bytes.
    DeferExpired { listener: SocketId, server: SocketId },
}

/// An event and when it occurs. Of several at the same time, the first to be scheduled is first.
#[derive(Debug)]
struct Scheduled {
    at: Time,
    sequence: u64,
    event: Event,
}

impl Scheduled {
    /// Returns a number by which events are ordered.
    #[inline]
    fn key(&self) -> u128 {
        u128::from(self.at.as_nanos()) << 64 | u128::from(self.sequence)
    }
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Scheduled) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Scheduled) -> Option<Ordering> {
        Some(self.cmp(other))
    }

    #[inline]
    fn le(&self, other: &Scheduled) -> bool {
        self.key() >= other.key()
    }
}

impl Ord for Scheduled {
    /// Compares in reverse, so that the next event is the greatest.
    fn cmp(&self, other: &Scheduled) -> Ordering {
        other.key().cmp(&self.key())
    }
}

/// The events that have not occurred.
#[derive(Debug, Default)]
pub(super) struct Events {
    heap: BinaryHeap<Scheduled>,
    sequence: u64,
}

impl Events {
    /// Adds an event.
    pub(super) fn schedule(&mut self, at: Time, event: Event) {
        self.sequence += 1;
        self.heap.push(Scheduled { at, sequence: self.sequence, event });
    }

    /// Returns the time of the next event.
    #[inline]
    pub(super) fn next_time(&self) -> Option<Time> {
        self.heap.peek().map(|next| next.at)
    }

    /// Removes the next event if it occurs until `time`.
    #[inline]
    pub(super) fn take_until(&mut self, time: Time) -> Option<(Time, Event)> {
        if self.next_time()? > time {
            return None;
        }
        self.heap.pop().map(|next| (next.at, next.event))
    }
}
