//! How exchanges end other than by a response: refused, cut off, cancelled.

use hearken::io::Relay;

use super::balance::Ended;
use super::exchange::State;
use super::handler::{Cx, Proxy};
use crate::front::UpstreamEntry;
use crate::runtime::access_log::Outcome;

impl Proxy {
    /// Answers in the server's place, or ends the connection if a response has begun.
    #[cold]
    pub(super) fn respond_error<I: Relay>(
        &mut self,
        cx: &mut Cx<'_, I>,
        key: u32,
        status: u16,
        why: &'static str,
        outcome: Outcome,
    ) {
        let id = self.exchanges[key].id;
        self.exchanges[key].times.responded = Self::now(cx);
        self.cancel(cx, key);
        cx.front.respond_error(cx.io, id, status, why, outcome);
    }

    /// Ends an exchange whose response cannot be completed, so that the client can tell.
    pub(super) fn abort<I: Relay>(&mut self, cx: &mut Cx<'_, I>, key: u32, outcome: Outcome) {
        let id = self.exchanges[key].id;
        self.cancel(cx, key);
        cx.front.abort(cx.io, id, outcome);
    }

    /// Ends an exchange whose request the front has given up.
    pub(super) fn cancel<I: Relay>(&mut self, cx: &mut Cx<'_, I>, key: u32) {
        if matches!(self.exchanges[key].state, State::Free) {
            return;
        }
        if cx.front.is_logging() {
            self.set_log_entry(cx, key);
        }
        self.release_connection(cx, key, (false, State::Free), Ended::Cancelled);
        self.exchanges.end(key);
    }

    /// Tells the front what is logged of the server.
    #[cold]
    pub(super) fn set_log_entry<I: Relay>(&mut self, cx: &mut Cx<'_, I>, key: u32) {
        let exchange = &self.exchanges[key];
        let times = exchange.times;
        let entry = UpstreamEntry {
            upstream: exchange.last_route.map(|route| self.destination.name(route).into_owned()),
            attempts: exchange.attempts.into(),
            queue_time: times.selected.since(times.started),
            connect_time: times.sent.since(times.selected),
            header_time: times.responded.since(times.started),
        };
        cx.front.set_upstream_entry(exchange.id, entry);
    }
}
