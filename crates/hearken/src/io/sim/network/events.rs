//! The events of the network, in the order of their times.

use std::collections::VecDeque;

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

/// An event and when it occurs.
#[derive(Debug)]
struct Scheduled {
    at: Time,
    event: Event,
}

/// The events that have not occurred, in the order of their times. Of several at the same time, the
/// first to be scheduled is first.
#[derive(Debug, Default)]
pub(super) struct Events {
    scheduled: VecDeque<Scheduled>,
}

impl Events {
    /// Adds an event. Most events follow all others, or nearly all.
    pub(super) fn schedule(&mut self, at: Time, event: Event) {
        let later = self.scheduled.iter().rev().take_while(|of| of.at > at).count();
        let scheduled = Scheduled { at, event };
        match later {
            0 => self.scheduled.push_back(scheduled),
            later => self.scheduled.insert(self.scheduled.len() - later, scheduled),
        }
    }

    /// Returns the time of the next event.
    #[inline]
    pub(super) fn next_time(&self) -> Option<Time> {
        self.scheduled.front().map(|next| next.at)
    }

    /// Removes the next event if it occurs until `time`.
    #[inline]
    pub(super) fn take_until(&mut self, time: Time) -> Option<(Time, Event)> {
        if self.next_time()? > time {
            return None;
        }
        self.scheduled.pop_front().map(|next| (next.at, next.event))
    }
}
