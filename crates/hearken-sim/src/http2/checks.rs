//! Reasons for the ends of streams and connections.

use std::time::Duration;

use hearken::timer::Time;

use super::facts::{Http2Facts, StreamEnd, StreamFacts};
use crate::client::{ConnectionRecord, Ended, Exchange};
use crate::report::Report;
use crate::swarm::{FaultLevel, Swarm};

/// The reason for which a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reason {
    Client,
    NotConnected,
    Fault,
    Attack,
    HalfClosed,
    Stop,
    IdleTimeout,
    SlowClient,
    ShutdownTimeout,
    Evicted,
}

/// The limits that a server applies to connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds<'b> {
    pub(crate) swarm: &'b Swarm,
    /// Time of the request to stop.
    pub(crate) stop: Option<Time>,
    /// Time at which the last worker ended.
    pub(crate) ended: Option<Time>,
    /// Shutdown timeout.
    pub(crate) grace: Duration,
    /// Timeout of heads.
    pub(crate) header: Duration,
    /// Timeout of idle connections.
    pub(crate) keepalive: Duration,
    /// Minimum time after which the server ends a request that the client delays.
    pub(crate) min_timeout: Duration,
    /// Maximum time by which a silent connection is accepted late.
    pub(crate) defer: Duration,
    /// Whether the number of connections is limited.
    pub(crate) is_limited: bool,
    /// Whether nothing but the client makes requests fail.
    pub(crate) is_benign: bool,
}

/// A violated invariant, and the values.
pub(crate) type Violation = (&'static str, String);

/// Reports the states that a connection reached. `describe` returns a number of a request and that of the
/// outcome in the log.
pub(crate) fn cover<R>(
    record: &ConnectionRecord<R>,
    reason: Reason,
    report: &Report,
    describe: impl Fn(&Exchange<R>) -> (u8, u8),
) {
    let Some(facts) = &record.http2 else { return };
    let code = facts.goaway.map_or(255, |goaway| goaway.code as u8);
    report.cover([5, record.ended as u8, reason as u8, code]);
    for (exchange, stream) in record.exchanges.iter().zip(&facts.streams) {
        let status = exchange.head.as_ref().map_or(0, |head| head.status);
        let (number, outcome) = describe(exchange);
        report.cover([6, number, (status % 251) as u8, outcome]);
        let malformation = stream.malformation.map_or(0, |it| 1 + it as u8);
        report.cover([7, stream.end.number(), malformation, 0]);
    }
}

/// Time by which a deadline may seem late: a tick of the wheel, and the turn of the worker.
const TICK: Duration = Duration::from_millis(2);
const REFUSED_STREAM: u32 = 7;
const PROTOCOL_ERROR: u32 = 1;

impl Bounds<'_> {
    /// Checks a connection. Returns the reason for its end.
    ///
    /// `is_logged` is whether the log has a line for a request, and `is_explained` whether something
    /// besides the client explains that a request has no complete response.
    ///
    /// # Errors
    /// The first violated invariant.
    pub(crate) fn check<R: std::fmt::Debug>(
        &self,
        record: &ConnectionRecord<R>,
        is_logged: impl Fn(&Exchange<R>) -> bool,
        is_explained: impl Fn(&Exchange<R>) -> bool,
    ) -> Result<Reason, Violation> {
        let Some(facts) = &record.http2 else { return Ok(Reason::Client) };
        let detail = || format!("{record:?}");
        let reason = self.reason(record, facts);
        let Some(reason) = reason else {
            return Err(("unexplained end of a connection", detail()));
        };
        self.check_goaway(record, facts)?;
        for (index, exchange) in record.exchanges.iter().enumerate() {
            if exchange.started_at.is_none() {
                continue;
            }
            if let Some((before, attack)) = facts.attack
                && attack.is_fatal()
                && index >= before
                && exchange.answered_at.is_some()
            {
                return Err(("request after a violation", format!("{exchange:?}, {record:?}")));
            }
            let was_logged = is_logged(exchange);
            let is_unprocessed = facts.is_refused(index)
                || facts.streams[index].end == StreamEnd::Reset(REFUSED_STREAM);
            if is_unprocessed && was_logged {
                return Err((
                    "refused request that was processed",
                    format!("{exchange:?}, {record:?}"),
                ));
            }
            let may_lack = self.may_lack(record, facts, (index, was_logged), reason);
            if is_explained(exchange) {
                continue;
            }
            if !may_lack {
                return Err(("unexplained end of a stream", format!("{exchange:?}, {record:?}")));
            }
            self.check_graceful_stop(record, facts, index)?;
        }
        self.check_late(record, facts)?;
        Ok(reason)
    }

    /// Returns whether the request at `index` may have no complete response. `was_logged` is whether
    /// the server has processed it.
    fn may_lack<R>(
        &self,
        record: &ConnectionRecord<R>,
        facts: &Http2Facts,
        (index, was_logged): (usize, bool),
        reason: Reason,
    ) -> bool {
        let stream = &facts.streams[index];
        let is_provoked = facts.attack.is_some() || facts.is_flooding;
        let started_at = record.exchanges[index].started_at.unwrap_or_default();
        let lasted = stream.ended_at.unwrap_or(record.ended_at).duration_since(started_at);
        let is_slow = lasted >= self.min_timeout || self.is_past_grace(record.ended_at);
        match stream.end {
            StreamEnd::Complete | StreamEnd::Cancelled => true,
            StreamEnd::Reset(PROTOCOL_ERROR) if stream.malformation.is_some() => true,
            StreamEnd::Reset(REFUSED_STREAM) => facts.is_flooding,
            // Without an error, the response is complete.
            StreamEnd::Reset(0) => false,
            // After the end of the client's side, requests stay incomplete.
            StreamEnd::Reset(_) if record.own.has_half_closed => {
                is_provoked || is_slow || record.exchanges[index].sent_at.is_none()
            }
            StreamEnd::Reset(_) => is_provoked || is_slow,
            // The reason of GOAWAY was checked.
            StreamEnd::Open if facts.is_refused(index) => true,
            // A fault may end a connection at any time.
            StreamEnd::Open if self.swarm.level == FaultLevel::Any => true,
            StreamEnd::Open => match reason {
                Reason::Client | Reason::Fault | Reason::Attack | Reason::HalfClosed => true,
                Reason::SlowClient | Reason::ShutdownTimeout => true,
                _ => is_slow || !was_logged,
            },
        }
    }

    fn is_past_grace(&self, at: Time) -> bool {
        self.stop.is_some_and(|stop| at >= stop + self.grace)
    }

    /// Returns the reason for the end of a connection, if there is a valid one.
    fn reason<R>(&self, record: &ConnectionRecord<R>, facts: &Http2Facts) -> Option<Reason> {
        let is_faulty = self.swarm.level == FaultLevel::Any;
        let is_stopped = self.stop.is_some_and(|at| record.ended_at >= at);
        if record.ended == Ended::ByClient {
            return Some(Reason::Client);
        }
        if record.ended == Ended::NotConnected {
            let may_fail = self.swarm.level > FaultLevel::None
                || self.swarm.network.max_backlog < 100
                || is_stopped
                || record.has_lost_handshake(self.swarm, self.header, self.is_limited);
            return may_fail.then_some(Reason::NotConnected);
        }
        if is_faulty && record.ended == Ended::Failed {
            return Some(Reason::Fault);
        }
        if facts.attack.is_some() || facts.is_flooding {
            return Some(Reason::Attack);
        }
        if record.own.has_half_closed {
            return Some(Reason::HalfClosed);
        }
        let since = |time: Time| record.ended_at.duration_since(time);
        // The server resets connections whose clients receive too slowly.
        if record.ended == Ended::Failed && since(record.opened_at) >= self.min_timeout {
            return Some(Reason::SlowClient);
        }
        if !facts.has_settings {
            // The preface had not arrived.
            if since(record.opened_at) >= self.header {
                return Some(Reason::SlowClient);
            }
            if is_faulty {
                return Some(Reason::Fault);
            }
            if is_stopped {
                return Some(Reason::Stop);
            }
            if self.is_limited {
                return Some(Reason::Evicted);
            }
        }
        let started = record.exchanges.iter().enumerate().filter(|(index, exchange)| {
            facts.streams[*index].end == StreamEnd::Open
                && !facts.is_refused(*index)
                && exchange.started_at.is_some()
        });
        let earliest = started.filter_map(|(_, exchange)| exchange.started_at).min();
        if earliest.is_some_and(|at| since(at) >= self.min_timeout) {
            return Some(Reason::SlowClient);
        }
        // The connection was closed before the requests arrived. A close discards GOAWAY if the transport
        // is full.
        let has_head = |(index, exchange): (usize, &Exchange<R>)| {
            facts.streams[index].end == StreamEnd::Open && exchange.head.is_some()
        };
        let is_idle = earliest.is_none() || !record.exchanges.iter().enumerate().any(has_head);
        if is_idle {
            let sent = record.exchanges.iter().filter(|exchange| exchange.answered_at.is_some());
            // A response may be complete before its request.
            let sent = sent.filter_map(|exchange| exchange.started_at);
            let has_expired = match sent.max() {
                Some(sent_at) => since(sent_at) >= self.keepalive,
                None => since(record.opened_at) >= self.header,
            };
            // The server may have completed the response to a cancelled request.
            let is_cancelled = |stream: &StreamFacts| stream.end == StreamEnd::Cancelled;
            let started = record.exchanges.iter().filter_map(|exchange| exchange.started_at);
            let has_expired = has_expired
                || facts.streams.iter().any(is_cancelled)
                    && started.max().is_some_and(|at| since(at) >= self.keepalive);
            if has_expired {
                return Some(Reason::IdleTimeout);
            }
            if facts.has_said_goaway {
                return Some(Reason::Client);
            }
            if is_stopped && !is_faulty {
                return Some(Reason::Stop);
            }
        }
        if self.is_past_grace(record.ended_at) {
            return Some(Reason::ShutdownTimeout);
        }
        // An incomplete frame.
        let is_incomplete = facts.has_unsent || record.own.has_stalled;
        if is_incomplete && since(record.opened_at) >= self.header {
            return Some(Reason::SlowClient);
        }
        if is_faulty {
            return Some(Reason::Fault);
        }
        (self.is_limited && is_idle).then_some(Reason::Evicted)
    }

    /// Checks that the server had a reason for its last GOAWAY frame.
    fn check_goaway<R: std::fmt::Debug>(
        &self,
        record: &ConnectionRecord<R>,
        facts: &Http2Facts,
    ) -> Result<(), Violation> {
        let Some(goaway) = facts.goaway else { return Ok(()) };
        let is_stopped = self.stop.is_some_and(|at| goaway.at >= at);
        let since = goaway.at.duration_since(record.opened_at);
        let is_expected = match goaway.code {
            0 => {
                is_stopped
                    || facts.has_said_goaway
                    // The server accepts no requests after the end of the client's side.
                    || record.own.has_half_closed
                    || facts.attack.is_some()
                    || self.is_limited
                    // A failed accept may be for lack of descriptors.
                    || self.swarm.level == FaultLevel::Any
                    || since >= self.header.min(self.keepalive)
            }
            _ => facts.attack.is_some() || facts.is_flooding,
        };
        match is_expected {
            true => Ok(()),
            false => Err(("unexplained GOAWAY", format!("{record:?}"))),
        }
    }

    /// Returns a time that covers the delays of the network and of the worker's `Io`.
    fn delay(&self) -> Duration {
        let network = &self.swarm.network;
        network.max_delay + network.jitter + self.swarm.io.latency()
    }

    /// Returns whether the client did nothing that delays responses.
    fn is_well_behaved<R>(&self, record: &ConnectionRecord<R>, facts: &Http2Facts) -> bool {
        let own = record.own;
        let is_hostile = facts.attack.is_some() || facts.is_flooding || facts.has_closed_windows;
        !(own.has_quit || own.has_paused || own.has_half_closed || own.has_stalled || is_hostile)
    }

    /// Checks that a request that had arrived before a stop was answered.
    fn check_graceful_stop<R: std::fmt::Debug>(
        &self,
        record: &ConnectionRecord<R>,
        facts: &Http2Facts,
        index: usize,
    ) -> Result<(), Violation> {
        let (Some(stop), Some(ended)) = (self.stop, self.ended) else { return Ok(()) };
        let stream = &facts.streams[index];
        let exchange = &record.exchanges[index];
        if !self.is_benign
            || self.is_limited
            || ended.duration_since(stop) >= self.grace
            || !self.is_well_behaved(record, facts)
            || record.ended == Ended::ByClient
            // The end of the last connection leads to the stop.
            || record.ended_at <= stop
            || !matches!(stream.end, StreamEnd::Open | StreamEnd::Reset(_))
            || stream.malformation.is_some()
        {
            return Ok(());
        }
        let has_arrived = exchange.taken_at.is_some_and(|at| at + self.delay() * 2 + TICK <= stop);
        let started_at = exchange.started_at.unwrap_or_default();
        if has_arrived && record.ended_at.duration_since(started_at) < self.min_timeout {
            let detail = format!("{exchange:?}, {record:?}");
            return Err(("request lost by a graceful stop", detail));
        }
        Ok(())
    }

    /// Checks that an idle connection is closed in time.
    fn check_late<R: std::fmt::Debug>(
        &self,
        record: &ConnectionRecord<R>,
        facts: &Http2Facts,
    ) -> Result<(), Violation> {
        let is_idle = facts.streams.iter().all(|stream| stream.end == StreamEnd::Complete);
        if !self.swarm.has_no_delays()
            || self.is_limited
            || !self.is_well_behaved(record, facts)
            || record.ended != Ended::ByServer
            || !is_idle
        {
            return Ok(());
        }
        let answered = record.exchanges.iter().filter_map(|exchange| exchange.answered_at).max();
        let (from, timeout) = match (answered, record.connected_at) {
            (Some(answered), _) => (answered, self.keepalive),
            (None, connected) => (connected.unwrap_or(record.ended_at), self.header + self.defer),
        };
        // An incomplete frame is not idle.
        let waited = record.ended_at.duration_since(facts.sent_at.unwrap_or_default().max(from));
        // The end follows GOAWAY.
        if waited > timeout + self.delay() * 4 + TICK {
            let detail = format!("closed {waited:?} after its last use, timeout {timeout:?}");
            return Err(("late timeout", format!("{detail}: {record:?}")));
        }
        Ok(())
    }
}
