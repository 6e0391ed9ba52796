//! The state of simulated sockets.

use std::collections::VecDeque;
use std::net::SocketAddr;

use rustix::io::Errno;

use super::host::SocketId;
use crate::io::Address;
use crate::timer::Time;

/// A simulated socket.
#[derive(Debug)]
pub(super) struct Socket {
    /// Index of the host that owns it.
    pub(super) host: usize,
    pub(super) kind: Kind,
    /// Numbers of changes since the creation that an edge-triggered mechanism reports: for reading
    /// and for writing.
    pub(super) edges: [u64; 2],
    /// Whether the socket is in the host's list of changes.
    pub(super) is_changed: bool,
}

#[derive(Debug)]
pub(super) enum Kind {
    Listener(Listener),
    Stream(Box<Stream>),
}

/// A listening socket.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) address: Address,
    pub(super) backlog: usize,
    pub(super) reuse_port: bool,
    /// Whether connections are withheld until their first bytes arrive.
    pub(super) defers: bool,
    /// Established connections that wait to be accepted, in order.
    pub(super) queue: VecDeque<SocketId>,
    /// Number of withheld connections.
    pub(super) withheld: usize,
}

/// The phase of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Connecting,
    Established,
    /// The connection failed or was reset.
    Dead,
}

/// The socket of a connection.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) phase: Phase,
    pub(super) is_unix: bool,
    pub(super) local: Option<SocketAddr>,
    pub(super) remote: Option<SocketAddr>,
    pub(super) peer: Option<SocketId>,
    /// The listener in whose queue the connection waits, or that withholds it.
    pub(super) listener: Option<SocketId>,
    /// The error that the next operation reports.
    pub(super) error: Option<Errno>,
    /// Delay of a packet in nanoseconds.
    pub(super) delay: u64,

    /// Bytes from the peer: first the readable ones, then those on their way.
    pub(super) incoming: VecDeque<u8>,
    /// Number of readable bytes.
    pub(super) readable: usize,
    /// Maximum number of readable bytes. Further ones wait in the sender's host.
    pub(super) receive_limit: usize,
    /// Number of bytes that wait in the sender's host.
    pub(super) held_back: usize,
    /// Whether the end of the stream follows the bytes that are held back.
    pub(super) end_follows: bool,
    /// Whether the end of the stream has arrived.
    pub(super) has_ended: bool,

    /// Maximum number of bytes that were sent and not yet read by the peer.
    pub(super) window: usize,
    /// Number of bytes that were sent and not yet read by the peer, as far as this side knows.
    pub(super) outstanding: usize,
    /// Number of bytes that were sent and have not arrived at the peer's host.
    pub(super) in_flight: usize,
    /// Time at which the last packet arrives. Packets arrive in order.
    pub(super) last_arrival: Time,
    /// Time at which the last packet from the peer arrives.
    pub(super) last_incoming: Time,
    pub(super) is_shut_down: bool,
    /// Whether a send failed for lack of space, or does so until the network reports space.
    pub(super) is_stalled: bool,
}

impl Stream {
    pub(super) fn new(phase: Phase, window: usize, delay: u64) -> Stream {
        Stream {
            phase,
            is_unix: false,
            local: None,
            remote: None,
            peer: None,
            listener: None,
            error: None,
            delay,
            incoming: VecDeque::new(),
            readable: 0,
            receive_limit: usize::MAX,
            held_back: 0,
            end_follows: false,
            has_ended: false,
            window,
            outstanding: 0,
            in_flight: 0,
            last_arrival: Time::default(),
            last_incoming: Time::default(),
            is_shut_down: false,
            is_stalled: false,
        }
    }

    /// Returns the number of bytes that the window allows.
    pub(super) fn space(&self) -> usize {
        if self.is_stalled { 0 } else { self.window.saturating_sub(self.outstanding) }
    }

    /// Returns whether a read returns at once.
    pub(super) fn is_readable(&self) -> bool {
        self.phase != Phase::Connecting
            && (self.readable > 0 || self.has_ended || self.phase == Phase::Dead)
    }

    /// Returns whether a write returns at once.
    pub(super) fn is_writable(&self) -> bool {
        self.phase == Phase::Dead
            || (self.phase == Phase::Established && (self.space() > 0 || self.is_shut_down))
    }
}
