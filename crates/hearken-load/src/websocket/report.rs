//! The part of the report about WebSocket connections.

use serde::{Deserialize, Serialize};

use super::WebSocketMode;
use crate::histogram::Histogram;
use crate::reasons::Reasons;
use crate::report::Quantiles;

/// Results of the WebSocket connections.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct WebSockets {
    /// Use of the connections.
    pub mode: WebSocketMode,
    /// Number of connections to establish.
    pub requested: u64,
    /// Number of connections established at the end.
    pub open: u64,
    /// Number of established connections lost.
    pub lost: u64,
    /// Number of lost connections that were established again.
    pub reestablished: u64,
    /// Number of messages sent.
    pub messages_sent: u64,
    /// Number of messages received.
    pub messages_received: u64,
    /// Number of pings sent.
    pub pings_sent: u64,
    /// Number of pings received, each answered with a pong.
    pub pings_received: u64,
    /// Number of pongs received.
    pub pongs_received: u64,
    /// Connections that could not be established, by reason.
    pub handshake_failures: Reasons,
    /// Lost connections by reason.
    pub loss_reasons: Reasons,
    /// Time from sending a ping to its pong, or from sending a message to its echo or to its arrival
    /// at another connection.
    pub latency_ns: Quantiles,
    /// Full histogram of these times.
    pub latency: Histogram,
}

impl WebSockets {
    /// Adds the results of another thread or process.
    pub(crate) fn add(&mut self, other: &WebSockets) {
        self.mode = other.mode;
        for (sum, count) in self.counts_mut().into_iter().zip(other.counts()) {
            *sum = sum.saturating_add(count);
        }
        self.handshake_failures.add(&other.handshake_failures);
        self.loss_reasons.add(&other.loss_reasons);
        self.latency.add(&other.latency);
        self.latency_ns = self.latency.quantiles();
    }

    fn counts_mut(&mut self) -> [&mut u64; 9] {
        [
            &mut self.requested,
            &mut self.open,
            &mut self.lost,
            &mut self.reestablished,
            &mut self.messages_sent,
            &mut self.messages_received,
            &mut self.pings_sent,
            &mut self.pings_received,
            &mut self.pongs_received,
        ]
    }

    /// Returns all counts, in the order of [`counts_mut`](WebSockets::counts_mut).
    pub(crate) fn counts(&self) -> [u64; 9] {
        [
            self.requested,
            self.open,
            self.lost,
            self.reestablished,
            self.messages_sent,
            self.messages_received,
            self.pings_sent,
            self.pings_received,
            self.pongs_received,
        ]
    }

    /// Returns the name of the times in [`latency_ns`](WebSockets::latency_ns).
    pub(crate) fn latency_name(&self) -> &'static str {
        match self.mode {
            WebSocketMode::Idle => "ping",
            WebSocketMode::Echo => "echo",
            WebSocketMode::Broadcast => "broadcast",
        }
    }
}
