//! Ends exchanges other than by a response: errors, aborts, cancellation.

use hearken::io::Relay;

use super::balance::RequestOutcome;
use super::exchange::State;
use super::handler::{Cx, Proxy};
use crate::front::UpstreamEntry;
use crate::runtime::access_log::Outcome;

impl Proxy {
    /// Answers with an error, or closes the connection if a response has begun.
    #[cold]
    pub(super) fn respond_error<I: Relay>(
        &mut self,
        cx: &mut Cx<'_, I>,
        key: u32,
        status: u16,
        reason: &'static str,
        outcome: Outcome,
    ) {
        let id = self.exchanges[key].id;
        self.exchanges[key].times.responded = Self::now(cx);
        self.cancel(cx, key);
        cx.front.respond_error(cx.io, id, status, reason, outcome);
    }

    /// Aborts an exchange whose response cannot be completed, so that the client detects it.
    pub(super) fn abort<I: Relay>(&mut self, cx: &mut Cx<'_, I>, key: u32, outcome: Outcome) {
        let id = self.exchanges[key].id;
        self.cancel(cx, key);
        cx.front.abort(cx.io, id, outcome);
    }

    /// Ends an exchange whose request the front has cancelled.
    pub(super) fn cancel<I: Relay>(&mut self, cx: &mut Cx<'_, I>, key: u32) {
        if matches!(self.exchanges[key].state, State::Free) {
            return;
        }
        if cx.front.is_logging() {
            self.set_log_entry(cx, key);
        }
        self.release_connection(cx, key, (false, State::Free), RequestOutcome::Cancelled);
        self.exchanges.end(key);
    }

    /// Passes the logged data about the server to the front.
    #[cold]
    pub(super) fn set_log_entry<I: Relay>(&mut self, cx: &mut Cx<'_, I>, key: u32) {
        let exchange = &self.exchanges[key];
        let times = exchange.times;
        let entry = UpstreamEntry {
            upstream: exchange.last_route.map(|route| self.destination.name(route).into_owned()),
            attempts: exchange.attempts.into(),
            queue_time: times.selected.duration_since(times.started),
            connect_time: times.sent.duration_since(times.selected),
            header_time: times.responded.duration_since(times.started),
        };
        cx.front.set_upstream_entry(exchange.id, entry);
    }
}
