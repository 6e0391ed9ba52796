//! Bounds of the tables and buffers of workers, which hold after every turn.

use hearken_http::Limits as HeadLimits;
use hearken_server::simulation::ProxyUsage;

use super::{Form, Limits, Subject};
use crate::io_level::IoLevelName;
use crate::swarm::Swarm;

/// Number of bytes ahead of their use from which on workers stop to receive, for each message.
const READ_AHEAD: usize = 16 * 1024;
/// Maximum number of windows that a ring receives before the cancellation of a receive.
const RING_WINDOWS: usize = 4;

/// Maximum number of streams of a connection at a time.
const MAX_STREAMS: usize = 100;
/// Maximum number of bytes of an HTTP/2 connection that wait, in each direction and in incomplete frames.
const MAX_FRAME_BYTES: usize = 256 * 1024;

/// Returns the maximum number of bytes that are received ahead of their use, for each message.
pub(super) fn max_read_ahead(swarm: &Swarm) -> usize {
    READ_AHEAD
        + match swarm.io.name() {
            // One buffer before the stop, and one after it.
            IoLevelName::Io | IoLevelName::Kernel => swarm.sizes.buffer_size * 2,
            IoLevelName::Ring => swarm.network.max_window * RING_WINDOWS,
        }
}

impl Subject {
    /// Checks the usage of all workers after their last turns.
    ///
    /// # Errors
    /// A table or buffer is too large, or tables contradict each other.
    pub(super) fn check_usage(&self, limits: &Limits) -> Result<(), String> {
        let proxy = &self.server.proxies()[0];
        let metrics = self.server.metrics();
        for (index, worker) in metrics.workers.iter().enumerate() {
            let usage = proxy.usage(index);
            let front = &worker.usage;
            let max_head = HeadLimits::default().max_head_bytes + limits.max_read_ahead;
            let ProxyUsage { exchanges, connections, idle_connections, .. } = usage;
            // The configured limit of a server applies to each of the servers.
            let max_idle = limits.max_idle * self.servers.max(1);
            let is_reverse = limits.form != Form::Forward;
            let connections_with_streams =
                if self.has_http2 { front.connections.get() as usize } else { 0 };
            let max_requests =
                front.connections.get() as usize + connections_with_streams * MAX_STREAMS;
            let max_frames = connections_with_streams * MAX_FRAME_BYTES;
            let is_valid = usage.attempts + idle_connections == connections
                && (usage.in_flight == usage.attempts || !is_reverse)
                && exchanges <= usage.exchange_slots
                && exchanges <= front.requests.get() as usize
                && connections <= usage.connection_slots
                && idle_connections <= max_idle
                && usage.queued <= limits.max_queue
                && usage.buffered_bytes <= exchanges * max_head
                && usage.exchange_slots <= front.request_slots.get() as usize
                && front.requests.get() as usize <= max_requests
                && front.buffered_bytes.get() as usize
                    <= front.requests.get() as usize * max_head + max_frames;
            if !is_valid {
                let Limits { max_idle, max_queue, .. } = limits;
                return Err(format!(
                    "worker {index}: {usage:?}, {front:?}, limits {max_idle} and {max_queue}"
                ));
            }
        }
        Ok(())
    }
}
