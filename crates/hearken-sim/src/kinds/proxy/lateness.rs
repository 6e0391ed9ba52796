//! Deadlines that expire late, in histories in which nothing delays a program or a packet.

use std::time::Duration;

use super::checks::Facts;
use super::requests::Requested;
use crate::client::{ConnectionRecord, Ended};
use crate::report::Report;
use crate::response::Head;
use crate::swarm::FaultLevel;

/// Time by which the proxy may act late.
const TOLERANCE: Duration = Duration::from_millis(20);
/// Windows and numbers of buffers from which on they delay nothing.
const MIN_WINDOW: usize = 4096;
const MIN_BUFFERS: usize = 16;

impl Facts<'_> {
    /// Checks that the deadlines of a connection did not expire late.
    pub(super) fn check_lateness(&self, record: &ConnectionRecord<Requested>, report: &Report) {
        let (swarm, limits) = (self.swarm, self.limits);
        let own = record.own;
        let is_delayed = swarm.level > FaultLevel::None
            || swarm.is_slow()
            || swarm.network.min_window < MIN_WINDOW
            || swarm.sizes.buffers < MIN_BUFFERS
            || limits.is_limited
            || !limits.defer.is_zero()
            || own.has_paused
            || own.has_half_closed;
        if is_delayed {
            return;
        }
        let slack = (swarm.network.max_delay + swarm.network.jitter) * 4 + TOLERANCE;
        let mut answered_at = record.connected_at;
        for exchange in &record.exchanges[..record.answered] {
            // A request that another one precedes waits for its response.
            let started_at = exchange.sent_at.max(answered_at);
            let is_own = exchange.planned.request.identity.is_none();
            answered_at = exchange.answered_at;
            if let (Some(started_at), Some(answered_at)) = (started_at, answered_at)
                && is_own
                && exchange.sent_at.is_some()
                && !limits.server.request.is_zero()
                && answered_at > started_at + limits.server.request + slack
            {
                report.fail("late response", format!("{exchange:?}"));
            }
        }
        let last = record.exchanges.last();
        let is_idle = record.ended == Ended::ByServer
            && record.exchanges.len() == record.answered
            && !last.is_some_and(|it| it.head.as_ref().is_some_and(Head::closes))
            && last.is_none_or(|it| it.planned.keep_alive);
        let (timeout, since) = match last {
            Some(last) => (limits.client.keepalive, last.answered_at),
            None => (limits.client.header, record.connected_at),
        };
        let is_late = since.is_some_and(|since| record.ended_at > since + timeout + slack);
        if is_idle && is_late {
            report.fail("late end of an idle connection", format!("{record:?}"));
        }
    }
}
