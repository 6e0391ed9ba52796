//! The invariants of a proxy, checked when all programs have ended.

use std::collections::BTreeMap;
use std::time::Duration;

use hearken::timer::Time;
use hearken_server::simulation::SimulatedServer;
use hearken_server::{HalfClose, Timeouts};

use super::form::Access;
use super::requests::Requested;
use super::{CLIENTS, Limits};
use crate::client::{ConnectionRecord, Ended, Exchange, RequestId};
use crate::history::Simulation;
use crate::http2::{self, Bounds};
use crate::log_line::LogLine;
use crate::origin::Arrival;
use crate::report::Report;
use crate::response::Head;
use crate::swarm::{FaultLevel, Swarm};

/// Time by which a deadline may seem late: a tick of the wheel, and the turn of the worker.
const TICK: Duration = Duration::from_millis(2);

/// The facts that the checks compare.
pub(super) struct Facts<'f> {
    pub(super) swarm: &'f Swarm,
    pub(super) limits: &'f Limits,
    /// Whether the proxy's sockets are limited.
    pub(super) has_few_sockets: bool,
    /// Time at which the stop of the proxy was requested.
    pub(super) requested: Option<Time>,
    /// Time at which the last worker ended.
    pub(super) ended: Option<Time>,
    pub(super) evicted: u64,
    /// Whether the proxy sends PROXY protocol headers.
    pub(super) sends_header: bool,
    /// The access log.
    pub(super) log: &'f str,
    pub(super) records: &'f [ConnectionRecord<Requested>],
    pub(super) arrivals: &'f [Arrival],
    pub(super) server: &'f SimulatedServer,
}

/// Returns whether the log states that the response ended early, for a reason other than the client.
fn is_stated(line: &LogLine) -> bool {
    matches!(
        &*line.outcome,
        "upstream-timeout" | "upstream-closed" | "bad-response" | "request-timeout"
    )
}

/// The reason for which a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reason {
    Client,
    NotConnected,
    ServerAnnounced,
    Fault,
    Stop,
    HalfClosed,
    IdleTimeout,
    HeaderTimeout,
    SlowClient,
    /// The log states why the response ended early.
    Logged,
    Evicted,
}

impl Facts<'_> {
    /// Reports violations, and the states that were reached.
    pub(super) fn check(&self, simulation: &Simulation) {
        let report = &simulation.report;
        let lines = self.check_log(report);
        let mut evicted = Vec::new();
        for record in self.records {
            if record.http2.is_some() {
                self.check_http2(record, &lines, &mut evicted, report);
                continue;
            }
            let reason = self.reason(record, &lines);
            match reason {
                None => {
                    let open = record.exchanges.get(record.answered);
                    let line = open.and_then(|open| lines.get(&open.id));
                    let detail = format!("{record:?}, logged {line:?}");
                    report.fail("unexplained end of a connection", detail);
                }
                Some(Reason::Evicted) => evicted.push(record),
                Some(Reason::Stop) => self.check_graceful_stop(record, &lines, report),
                Some(_) => {}
            }
            self.check_lateness(record, report);
            self.cover(record, reason, &lines, report);
        }
        if evicted.len() as u64 > self.evicted && !self.has_few_sockets {
            let detail = format!(
                "{} idle connections ended without a reason, {} were closed at the limit: {evicted:?}",
                evicted.len(),
                self.evicted
            );
            report.fail("unexplained end of an idle connection", detail);
        }
        self.check_arrivals(report);
        self.check_upstreams(simulation);
        self.check_ends(report);
    }

    /// Checks a connection that used HTTP/2.
    fn check_http2<'r>(
        &self,
        record: &'r ConnectionRecord<Requested>,
        lines: &BTreeMap<RequestId, LogLine>,
        evicted: &mut Vec<&'r ConnectionRecord<Requested>>,
        report: &Report,
    ) {
        let Timeouts { header, body, upload, send, keepalive } = self.limits.client;
        let bounds = Bounds {
            swarm: self.swarm,
            stop: self.requested,
            ended: self.ended,
            grace: self.limits.grace,
            header,
            keepalive,
            min_timeout: header.min(body).min(upload).min(send),
            defer: self.limits.defer,
            is_limited: self.limits.is_limited || self.has_few_sockets,
            is_benign: self.is_benign(),
        };
        let is_logged = |exchange: &Exchange<Requested>| lines.contains_key(&exchange.id);
        let is_explained = |exchange: &Exchange<Requested>| {
            lines.get(&exchange.id).is_some_and(|line| {
                // A body that turns out to be too long ends a response that has begun.
                let is_too_long = line.outcome == "bad-request"
                    && exchange.planned.request.body.is_some_and(|it| it > self.limits.max_body);
                is_stated(line) || is_too_long
            })
        };
        match bounds.check(record, is_logged, is_explained) {
            Err((kind, detail)) => report.fail(kind, detail),
            Ok(reason) => {
                if reason == http2::Reason::Evicted {
                    evicted.push(record);
                }
                let describe = |exchange: &Exchange<Requested>| {
                    let line = lines.get(&exchange.id);
                    let attempts = line.map_or(0, |line| line.attempts as u8);
                    (attempts, line.map_or(254, LogLine::outcome_number))
                };
                http2::cover(record, reason, report, describe);
            }
        }
    }

    fn check_log(&self, report: &Report) -> BTreeMap<RequestId, LogLine> {
        let mut exchanges = BTreeMap::new();
        for record in self.records {
            exchanges.extend(record.exchanges.iter().map(|exchange| (exchange.id, exchange)));
        }
        let mut lines: BTreeMap<RequestId, LogLine> = BTreeMap::new();
        let mut anonymous = 0;
        for text in self.log.lines() {
            let line = LogLine::parse(text);
            let Some(id) = RequestId::find(text) else {
                anonymous += 1;
                continue;
            };
            if exchanges.get(&id).is_none_or(|exchange| exchange.started_at.is_none()) {
                report.fail("log line without a request", text);
            }
            if line.attempts > self.limits.max_attempts {
                report.fail("too many attempts", text);
            }
            if let Some(before) = lines.insert(id, line) {
                report.fail("two log lines for a request", format!("{before:?}, then {text}"));
            }
        }
        for (id, exchange) in exchanges {
            let Some(head) = &exchange.head else { continue };
            if exchange.answered_at.is_none() {
                // A response that was cut is logged, too.
                let is_logged = lines.contains_key(&id) || matches!(head.status, 400 | 408 | 431);
                if !is_logged {
                    report.fail("no log line for a cut response", format!("{exchange:?}"));
                }
                continue;
            }
            match lines.get(&id) {
                None if matches!(head.status, 400 | 408 | 431) && anonymous > 0 => anonymous -= 1,
                None => report.fail("no log line for a response", format!("{exchange:?}")),
                Some(line) if line.status != head.status => {
                    let detail = format!("{line:?}, but the client has {exchange:?}");
                    report.fail("log line with another status", detail);
                }
                Some(line) => self.check_outcome(line, exchange, report),
            }
        }
        lines
    }

    /// Checks the logged outcome of a request whose response the client has completely.
    fn check_outcome(&self, line: &LogLine, exchange: &Exchange<Requested>, report: &Report) {
        let requested = &exchange.planned.request;
        let is_own = requested.identity.is_none();
        let is_tunnel = requested.tunnel == Some(line.status) && !is_own;
        let is_rejected = requested.is_rejected_with(line.status);
        let is_possible = match &*line.outcome {
            "complete" => !is_own || (is_rejected && line.status == 200),
            "idle-timeout" | "upstream-closed" if is_tunnel => true,
            // The client may have the response before the proxy knows.
            "client-disconnected" | "client-timeout" | "shutdown-timeout" => true,
            "bad-request" => matches!(line.status, 408 | 413),
            "rejected" => matches!(line.status, 502..=504) || is_rejected,
            "request-timeout" => line.status == 504 || !is_own,
            "upstream-timeout" => line.status == 504,
            "bad-response" => line.status == 502,
            _ => false,
        };
        if !is_possible {
            report.fail("log line with another outcome", format!("{line:?}, {exchange:?}"));
        }
        let passed = requested.identity.map_or(0, |identity| identity.length);
        if is_tunnel
            && line.outcome == "complete"
            && self.swarm.level < FaultLevel::Any
            && exchange.sent_at.is_some()
            && exchange.received != passed.min(requested.tunnel_bytes)
        {
            report.fail("tunnel that lost bytes", format!("{line:?}, {exchange:?}"));
        }
        if line.outcome == "complete" && line.bytes_sent != exchange.received {
            report.fail("log line with another length", format!("{line:?}, {exchange:?}"));
        }
    }

    /// Returns whether nothing but the client can make a request fail.
    fn is_benign(&self) -> bool {
        self.swarm.level == FaultLevel::None && self.limits.has_good_origins
    }

    /// Returns the reason for the end of a connection, if there is a valid one.
    fn reason(
        &self,
        record: &ConnectionRecord<Requested>,
        lines: &BTreeMap<RequestId, LogLine>,
    ) -> Option<Reason> {
        let is_faulty = self.swarm.level == FaultLevel::Any;
        if record.ended == Ended::ByClient {
            return Some(Reason::Client);
        }
        let is_stopped = self.requested.is_some_and(|at| record.ended_at >= at);
        if record.ended == Ended::NotConnected {
            let may_fail = self.swarm.level > FaultLevel::None
                || self.swarm.network.max_backlog < 100
                || is_stopped
                || record.has_lost_handshake(
                    self.swarm,
                    self.limits.client.header,
                    self.limits.is_limited || self.has_few_sockets,
                );
            return may_fail.then_some(Reason::NotConnected);
        }
        if is_faulty && record.ended == Ended::Failed {
            return Some(Reason::Fault);
        }
        let answered = &record.exchanges[..record.answered];
        let last = answered.last();
        if let Some(last) = last
            && (!last.planned.keep_alive || last.head.as_ref().is_some_and(Head::closes))
        {
            return Some(Reason::ServerAnnounced);
        }
        let open = record.exchanges.get(record.answered).filter(|it| it.started_at.is_some());
        if let Some(line) = open.and_then(|open| lines.get(&open.id)) {
            // A body that turns out to be too long ends a response that has begun.
            let is_too_long = line.outcome == "bad-request"
                && open.is_some_and(|open| {
                    open.planned.request.body.is_some_and(|body| body > self.limits.max_body)
                });
            // A tunnel that is cut within its bytes is reset.
            let is_idle = line.outcome == "idle-timeout" && record.ended == Ended::Failed;
            if is_idle {
                return Some(Reason::Logged);
            }
            // A response that has begun may end before the client has received any of it.
            let has_begun = !matches!(line.status, 0 | 413 | 502 | 504);
            let is_cut = record.is_cut || record.ended == Ended::Failed || has_begun;
            if (is_stated(line) || is_too_long) && is_cut {
                return Some(Reason::Logged);
            }
        }
        // The reset that cuts a response until the end of the connection overtakes earlier responses.
        let mut pending = record.exchanges.iter().skip(record.answered + 1);
        let is_reset = |later: &Exchange<Requested>| lines.get(&later.id).is_some_and(is_stated);
        if record.ended == Ended::Failed && pending.any(is_reset) {
            return Some(Reason::Logged);
        }
        // The client may have the whole response before the proxy knows.
        let is_late =
            |line: &LogLine| matches!(&*line.outcome, "request-timeout" | "client-timeout");
        if !record.is_cut && last.and_then(|last| lines.get(&last.id)).is_some_and(is_late) {
            return Some(Reason::Logged);
        }
        let is_incomplete = open.is_none_or(|open| open.sent_at.is_none());
        let cancels = self.limits.half_close == HalfClose::Cancel;
        if record.own.has_half_closed && (is_incomplete || cancels) {
            return Some(Reason::HalfClosed);
        }
        let since = |time: Option<Time>| record.ended_at.duration_since(time.unwrap_or_default());
        let timeouts = &self.limits.client;
        if !record.is_cut {
            match last {
                Some(last) if since(last.sent_at) >= timeouts.keepalive => {
                    return Some(Reason::IdleTimeout);
                }
                None if since(Some(record.opened_at)) >= timeouts.header => {
                    return Some(Reason::HeaderTimeout);
                }
                _ => {}
            }
        }
        if is_stopped {
            return Some(Reason::Stop);
        }
        let minimum = timeouts.header.min(timeouts.body).min(timeouts.upload).min(timeouts.send);
        if open.is_some_and(|open| since(open.started_at) >= minimum) {
            return Some(Reason::SlowClient);
        }
        if is_faulty && record.ended == Ended::ByServer {
            // The proxy's side failed first.
            return Some(Reason::Fault);
        }
        let may_evict = self.limits.is_limited || self.has_few_sockets;
        // Input that arrives after the close causes a reset, which discards the rest of a response.
        let was_sent = || {
            let line = open.and_then(|open| lines.get(&open.id));
            record.ended == Ended::Failed && line.is_some_and(|line| line.outcome == "complete")
        };
        (may_evict && (!record.is_cut || was_sent())).then_some(Reason::Evicted)
    }

    /// Checks that requests that had arrived before a stop were answered.
    fn check_graceful_stop(
        &self,
        record: &ConnectionRecord<Requested>,
        lines: &BTreeMap<RequestId, LogLine>,
        report: &Report,
    ) {
        let (Some(stop), Some(ended)) = (self.requested, self.ended) else { return };
        let own = record.own;
        if !self.is_benign()
            || ended.duration_since(stop) >= self.limits.grace
            || self.limits.is_limited
            || own.has_quit
            || own.has_paused
            || own.has_half_closed
        {
            return;
        }
        let Some(open) = record.exchanges.get(record.answered) else { return };
        if lines.get(&open.id).is_some_and(|line| line.outcome == "client-timeout") {
            return; // The client was too slow after the stop.
        }
        let network = &self.swarm.network;
        let delay = (network.max_delay + network.jitter) * 2 + TICK;
        let has_arrived = open.taken_at.is_some_and(|at| at + delay < stop);
        let last = record.answered.checked_sub(1).and_then(|last| record.exchanges.get(last));
        let follows_close = last.is_some_and(|of| of.head.as_ref().is_some_and(Head::closes));
        let waited = stop.duration_since(open.started_at.unwrap_or(stop));
        if has_arrived && !follows_close && waited < self.limits.client.send {
            report.fail("request lost by a graceful stop", format!("{record:?}"));
        }
    }

    /// Checks how often requests reached origins.
    fn check_arrivals(&self, report: &Report) {
        let mut arrivals: BTreeMap<RequestId, Vec<&Arrival>> = BTreeMap::new();
        for arrival in self.arrivals {
            arrivals.entry(arrival.id).or_default().push(arrival);
        }
        let exchanges = self.records.iter().flat_map(|record| {
            let exchanges = record.exchanges.iter().enumerate();
            exchanges.map(move |(index, exchange)| (record, index, exchange))
        });
        for (record, index, exchange) in exchanges {
            let ended = record.ended;
            let Some(of) = arrivals.remove(&exchange.id) else { continue };
            let requested = &exchange.planned.request;
            if record.http2.as_ref().is_some_and(|facts| facts.must_not_arrive(index)) {
                report.fail("request that must not arrive", format!("{of:?}, {exchange:?}"));
            }
            let max = if requested.is_safe { 2 } else { 1 };
            if of.len() > max {
                report.fail("request repeated", format!("{of:?}, {exchange:?}"));
            }
            if let Access::Rejected(_) = requested.access {
                report.fail("request to a denied server", format!("{of:?}, {exchange:?}"));
            }
            let client = self
                .limits
                .client_header
                .map_or(CLIENTS, |_| super::requests::header_address(exchange.id.client));
            // The address of a client that has disconnected may be unknown.
            let may_lack = matches!(ended, Ended::ByClient | Ended::Failed);
            let is_other = |of: &&Arrival| of.client.map_or(!may_lack, |of| of != client);
            if self.sends_header && of.iter().any(is_other) {
                report.fail("wrong address of a client", format!("{of:?}, {exchange:?}"));
            }
            let length = requested.body.unwrap_or(0);
            let is_wrong =
                |of: &&Arrival| of.received > length || (of.is_complete && of.received != length);
            if of.iter().any(is_wrong) {
                report.fail("request body of another length", format!("{of:?}, {exchange:?}"));
            }
        }
        if let Some((id, of)) = arrivals.first_key_value() {
            report.fail("request that no client sent", format!("{id}: {of:?}"));
        }
    }

    /// Checks that servers and workers have nothing in progress.
    fn check_upstreams(&self, simulation: &Simulation) {
        let report = &simulation.report;
        for proxy in self.server.proxies() {
            for worker in 0..self.server.workers() {
                let usage = proxy.usage(worker);
                if usage.in_flight != 0 || usage.exchanges != 0 || usage.connections != 0 {
                    report.fail("requests in flight at the end", format!("{usage:?}"));
                }
            }
            for stats in proxy.upstreams(simulation.world.now()) {
                let state = stats.state.as_bytes();
                report.cover([4, state[0], state[1], u8::from(stats.retries > 0)]);
            }
        }
    }

    /// Checks that programs released everything, unless the shutdown timeout ended a worker.
    fn check_ends(&self, report: &Report) {
        // Connections that were closed remain until their transport has taken `close_notify`.
        if self.swarm.protocols.tls {
            return;
        }
        for end in report.ends() {
            let since = self.requested.map(|requested| end.at.duration_since(requested));
            if since.is_none_or(|since| since >= self.limits.grace) {
                continue;
            }
            if end.buffers > 0 {
                report.fail("resources at the end of a program", format!("{end:?}"));
            }
        }
    }

    fn cover(
        &self,
        record: &ConnectionRecord<Requested>,
        reason: Option<Reason>,
        lines: &BTreeMap<RequestId, LogLine>,
        report: &Report,
    ) {
        let reason = reason.map_or(255, |reason| reason as u8);
        report.cover([1, record.ended as u8, reason, self.swarm.level as u8]);
        for exchange in &record.exchanges {
            let requested = &exchange.planned.request;
            let status = exchange.head.as_ref().map_or(0, |head| head.status);
            let outcome = lines.get(&exchange.id).map_or(254, LogLine::outcome_number);
            let attempts = lines.get(&exchange.id).map_or(0, |line| line.attempts as u8);
            let form = u8::from(requested.is_safe) * 4
                + u8::from(requested.body.is_some()) * 2
                + u8::from(exchange.answered_at.is_some());
            report.cover([2, form, (status % 251) as u8, outcome]);
            report.cover([3, attempts * 16 + form, reason, record.ended as u8]);
        }
    }
}
