//! The invariants of a server, checked when all programs have ended.

use std::collections::BTreeMap;
use std::time::Duration;

use hearken::timer::Time;
use hearken_server::HalfClose;
use hearken_server::runtime::access_log::LogFormat;
use hearken_server::runtime::metrics::Metrics;

use super::requests::Requested;
use super::timing::{StopTimes, TICK, Timing};
use crate::client::{ConnectionRecord, Ended, Exchange, RequestId};
use crate::handshakes;
use crate::http2::{self, Bounds};
use crate::log_line::LogLine;
use crate::report::Report;
use crate::swarm::{FaultLevel, Swarm};

/// Maximum size of a receive buffer of clients.
const MAX_BUFFER: u64 = 16 * 1024;

/// The observations that the checks compare.
pub(super) struct Facts<'f> {
    pub(super) swarm: &'f Swarm,
    pub(super) timing: Timing,
    pub(super) half_close: HalfClose,
    pub(super) stop: StopTimes,
    /// Whether the number of connections is limited.
    pub(super) is_limited: bool,
    /// Whether file reads may have failed or ended early.
    pub(super) had_file_faults: bool,
    /// Number of idle connections that the server closed at its connection limit.
    pub(super) evicted: u64,
    /// The access log.
    pub(super) log: &'f str,
    pub(super) log_format: LogFormat,
    /// Whether connections start with a PROXY protocol header, which names another client.
    pub(super) sends_proxy_header: bool,
    pub(super) metrics: &'f Metrics,
    pub(super) records: &'f [ConnectionRecord<Requested>],
}

/// The reason for which a connection ended before all requests were answered, or while idle.
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
    FileEnded,
    Evicted,
    /// The client never sent the rest of the request.
    Incomplete,
}

impl Facts<'_> {
    /// Reports violations to `report`, and the states that were reached.
    pub(super) fn check(&self, report: &Report) {
        let lines = self.check_log(report);
        self.check_usage(report);
        let mut evicted = Vec::new();
        for record in self.records {
            if record.http2.is_some() {
                self.check_http2(record, &lines, &mut evicted, report);
                continue;
            }
            let reason = self.reason(record, &lines);
            if reason == Some(Reason::Evicted) {
                evicted.push(record);
            }
            if reason.is_none() {
                let detail = format!("{record:?}");
                report.fail("unexplained end of a connection", detail);
            }
            self.check_late(record, report);
            self.check_pauses(record, report);
            if reason == Some(Reason::Stop) {
                self.check_graceful_stop(record, report);
            }
            self.cover(record, reason, &lines, report);
        }
        if evicted.len() as u64 > self.evicted {
            let detail = format!(
                "{} idle connections ended without a reason, {} were closed at the limit: {evicted:?}",
                evicted.len(),
                self.evicted
            );
            report.fail("unexplained end of an idle connection", detail);
        }
    }

    /// Checks a connection that used HTTP/2.
    fn check_http2<'r>(
        &self,
        record: &'r ConnectionRecord<Requested>,
        lines: &BTreeMap<RequestId, LogLine>,
        evicted: &mut Vec<&'r ConnectionRecord<Requested>>,
        report: &Report,
    ) {
        let bounds = Bounds {
            swarm: self.swarm,
            stop: self.stop.requested,
            ended: self.stop.ended,
            grace: self.timing.grace,
            header: self.timing.timeouts.header,
            keepalive: self.timing.timeouts.keepalive,
            min_timeout: self.timing.min_timeout(),
            defer: self.timing.defer,
            is_limited: self.is_limited,
            is_benign: self.swarm.level == FaultLevel::None && !self.had_file_faults,
        };
        let is_logged = |exchange: &Exchange<Requested>| lines.contains_key(&exchange.id);
        let ends_early = |exchange: &Exchange<Requested>| {
            let line = lines.get(&exchange.id);
            self.had_file_faults && line.is_none_or(|line| line.may_be("client-disconnected"))
        };
        match bounds.check(record, is_logged, ends_early) {
            Err((kind, detail)) => report.fail(kind, detail),
            Ok(reason) => {
                if reason == http2::Reason::Evicted {
                    evicted.push(record);
                }
                let describe = |exchange: &Exchange<Requested>| {
                    let outcome = lines.get(&exchange.id).map_or(254, LogLine::outcome_number);
                    (exchange.planned.request.form as u8, outcome)
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
        // Rejections of heads that were cut before the identity, or invalid before it.
        let mut anonymous = 0;
        for text in self.log.lines() {
            let line = match self.log_format {
                LogFormat::Combined => LogLine::parse_combined(text),
                _ => LogLine::parse(text),
            };
            let Some(id) = RequestId::find(text) else {
                anonymous += 1;
                if line.outcome == "complete" {
                    report.fail("log line without a request", text);
                }
                continue;
            };
            if exchanges.get(&id).is_none_or(|exchange| exchange.started_at.is_none()) {
                report.fail("log line without a request", text);
            }
            // The address of a connection that was reset before its accept may be unknown.
            let is_answered = exchanges.get(&id).is_some_and(|it| it.answered_at.is_some());
            let is_known = !matches!(&*line.client, "null" | "-");
            if line.client != self.client(id) && (is_known || is_answered) {
                report.fail("log line with another client", text);
            }
            if let Some(before) = lines.insert(id, line) {
                report.fail("two log lines for a request", format!("{before:?}, then {text}"));
            }
        }
        for (id, exchange) in exchanges {
            let Some(head) = exchange.head.as_ref().filter(|_| exchange.answered_at.is_some())
            else {
                continue;
            };
            let is_rejected = matches!(head.status, 400 | 408 | 431 | 501 | 505);
            match lines.get(&id) {
                None if is_rejected && anonymous > 0 => anonymous -= 1,
                // The shutdown timeout may end a worker before it handles the end of a send.
                None if !self.is_stopped_in_time() => {}
                None => report.fail("no log line for a response", format!("{exchange:?}")),
                Some(line) if line.status != head.status => {
                    let detail = format!("{line:?}, but the client has {exchange:?}");
                    report.fail("log line with another status", detail);
                }
                Some(line) if line.bytes_sent != exchange.received => {
                    let detail = format!("{line:?}, but the client has {exchange:?}");
                    report.fail("log line with another length", detail);
                }
                Some(line) => self.check_outcome(line, exchange, report),
            }
        }
        lines
    }

    /// Returns whether all workers ended before the shutdown timeout.
    fn is_stopped_in_time(&self) -> bool {
        let times = self.stop.requested.zip(self.stop.ended);
        times.is_some_and(|(stop, ended)| ended.duration_since(stop) < self.timing.grace)
    }

    /// Returns the address of the client in the log.
    fn client(&self, id: RequestId) -> String {
        if self.sends_proxy_header {
            format!("192.0.2.{}", id.client as u8)
        } else {
            super::CLIENTS.to_string()
        }
    }

    /// Checks the sizes of the tables and buffers of workers whose connections have ended.
    fn check_usage(&self, report: &Report) {
        let is_in_time = self
            .stop
            .requested
            .zip(self.stop.ended)
            .is_some_and(|(stop, ended)| ended.duration_since(stop) < self.timing.grace);
        for (index, worker) in self.metrics.workers.iter().enumerate() {
            let usage = &worker.usage;
            let is_empty = [&usage.connections, &usage.requests, &usage.buffered_bytes]
                .iter()
                .all(|gauge| gauge.get() == 0);
            // Besides connections, a listener and the source of wake-ups have slots.
            let slots = usage.connection_slots.get().saturating_sub(2);
            // A stream is a request, too.
            let streams = self.records.iter().filter(|record| record.http2.is_some());
            let streams: usize = streams.map(|record| record.exchanges.len()).sum();
            let max_requests = usage.connection_slots.get() + streams as u64;
            let handshakes = match self.swarm.protocols.tls {
                true => handshakes::MAX_CLIENTS as usize,
                false => 0,
            };
            let is_small = slots <= (self.records.len() + handshakes) as u64
                && usage.request_slots.get() <= max_requests;
            if !is_small || (is_in_time && !is_empty) {
                report.fail("tables of a worker", format!("worker {index}: {usage:?}"));
            }
        }
    }

    /// Checks the logged outcome of a request whose response the client has completely.
    fn check_outcome(&self, line: &LogLine, exchange: &Exchange<Requested>, report: &Report) {
        let is_possible = match &*line.outcome {
            "" => true,
            "complete" => !matches!(line.status, 408 | 413 | 431),
            "bad-request" => matches!(line.status, 400 | 408 | 413 | 417 | 431 | 501 | 505),
            "client-timeout" => line.request_time + TICK >= self.timing.min_timeout(),
            // The client may have left after the response, or the acknowledgement was late.
            "client-disconnected" | "shutdown-timeout" => true,
            _ => false,
        };
        if !is_possible {
            report.fail("log line with another outcome", format!("{line:?}, {exchange:?}"));
        }
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
        let is_stopped = self.stop.requested.is_some_and(|at| record.ended_at >= at);
        if record.ended == Ended::NotConnected {
            let may_fail = self.swarm.level > FaultLevel::None
                || self.swarm.network.max_backlog < 100
                || is_stopped
                || record.has_lost_handshake(
                    self.swarm,
                    self.timing.timeouts.header,
                    self.is_limited,
                );
            return may_fail.then_some(Reason::NotConnected);
        }
        if is_faulty && record.ended == Ended::Failed {
            return Some(Reason::Fault);
        }
        let answered = &record.exchanges[..record.answered];
        let last = answered.last();
        if let Some(last) = last
            && (!last.planned.keep_alive
                || last.head.as_ref().is_some_and(crate::response::Head::closes))
        {
            return Some(Reason::ServerAnnounced);
        }
        let open = record.exchanges.get(record.answered).filter(|it| it.started_at.is_some());
        let is_incomplete = open.is_none_or(|open| open.sent_at.is_none());
        if record.own.has_half_closed && (is_incomplete || self.half_close == HalfClose::Cancel) {
            return Some(Reason::HalfClosed);
        }
        let since = |time: Option<Time>| record.ended_at.duration_since(time.unwrap_or_default());
        if !record.is_cut {
            match last {
                Some(last) if since(last.sent_at) >= self.timing.timeouts.keepalive => {
                    return Some(Reason::IdleTimeout);
                }
                None if since(Some(record.opened_at)) >= self.timing.timeouts.header => {
                    return Some(Reason::HeaderTimeout);
                }
                _ => {}
            }
        }
        if is_stopped {
            return Some(Reason::Stop);
        }
        if let Some(open) = open {
            if since(open.started_at) >= self.timing.min_timeout() {
                return Some(Reason::SlowClient);
            }
            let ends_early = || {
                let line = lines.get(&open.id);
                line.is_none_or(|line| line.may_be("client-disconnected"))
            };
            if record.is_cut && self.had_file_faults && ends_early() {
                return Some(Reason::FileEnded);
            }
        }
        if is_faulty && record.ended == Ended::ByServer {
            // The server's side failed first.
            return Some(Reason::Fault);
        }
        if record.own.has_stalled && is_incomplete && is_faulty {
            return Some(Reason::Incomplete);
        }
        // Input that arrives after the close causes a reset, which discards the rest of a response.
        let was_sent = || {
            let line = open.and_then(|open| lines.get(&open.id));
            record.ended == Ended::Failed && line.is_some_and(|line| line.may_be("complete"))
        };
        (self.is_limited && (!record.is_cut || was_sent())).then_some(Reason::Evicted)
    }

    /// Returns a time that covers the delays of the network and of the worker's `Io`.
    fn delay(&self) -> Duration {
        let network = &self.swarm.network;
        network.max_delay + network.jitter + self.swarm.io.latency()
    }

    /// Checks that idle connections are closed in time.
    fn check_late(&self, record: &ConnectionRecord<Requested>, report: &Report) {
        let is_idle = record.answered == record.exchanges.len();
        // Records of TLS take several turns through small windows.
        let takes_turns = self.swarm.protocols.tls && !self.swarm.has_no_delays();
        if self.swarm.level > FaultLevel::None
            || takes_turns
            || self.is_limited
            || record.own != Default::default()
            || record.ended != Ended::ByServer
            || !is_idle
        {
            return;
        }
        let (from, timeout) = match (record.exchanges.last(), record.connected_at) {
            (Some(last), _) if !last.planned.keep_alive => return,
            (Some(last), _) => (last.answered_at, self.timing.timeouts.keepalive),
            (None, connected_at) => (connected_at, self.timing.timeouts.header + self.timing.defer),
        };
        let waited = record.ended_at.duration_since(from.unwrap_or(record.ended_at));
        if waited > timeout + self.delay() * 2 + TICK {
            let detail = format!("closed {waited:?} after its last use, timeout {timeout:?}");
            report.fail("late timeout", format!("{detail}: {record:?}"));
        }
    }

    /// Checks that the server did not wait for clients that took nothing for a long time.
    fn check_pauses(&self, record: &ConnectionRecord<Requested>, report: &Report) {
        // The rate is checked at the end of each period. Some bytes may be on their way.
        let longest = self.timing.timeouts.send * 2 + self.delay() * 4 + TICK;
        let in_flight = self.swarm.network.max_window as u64 + MAX_BUFFER;
        for exchange in &record.exchanges {
            let (pause, before) = exchange.pause;
            if self.swarm.level == FaultLevel::None
                && pause > longest
                && exchange.received - before > in_flight
            {
                report.fail("response to a client that took nothing", format!("{record:?}"));
            }
        }
    }

    /// Checks that requests that had arrived before a stop were answered.
    fn check_graceful_stop(&self, record: &ConnectionRecord<Requested>, report: &Report) {
        let Some(stop) = self.stop.requested else { return };
        if self.swarm.level > FaultLevel::None
            || self.is_limited
            || self.had_file_faults
            || !self.is_stopped_in_time()
            || record.own.has_quit
            || record.own.has_paused
            || record.own.has_half_closed
            || record.ended == Ended::ByClient
        {
            return;
        }
        let Some(open) = record.exchanges.get(record.answered) else { return };
        let arrived = open.taken_at.map(|at| at + self.delay());
        // Later requests of the connection follow a response that may have announced the end.
        let follows_close = record.exchanges[..record.answered].last().is_some_and(|last| {
            last.head.as_ref().is_some_and(|head| last.planned.request.closes(head))
        });
        if arrived.is_some_and(|at| at <= stop) && !follows_close {
            // The server may have ended it because the client was slow.
            let lasted = record.ended_at.duration_since(open.started_at.unwrap_or(stop));
            if lasted < self.timing.min_timeout() {
                report.fail("request lost by a graceful stop", format!("{record:?}"));
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
        let ended = record.ended as u8;
        report.cover([1, ended, reason.map_or(255, |reason| reason as u8), self.swarm.level as u8]);
        for exchange in &record.exchanges {
            let Requested { form, has_body, .. } = &exchange.planned.request;
            let status = exchange.head.as_ref().map_or(0, |head| head.status);
            let line = lines.get(&exchange.id);
            let outcome = line.map_or(254, LogLine::outcome_number);
            let is_complete = exchange.answered_at.is_some();
            let form = *form as u8 * 4 + u8::from(*has_body) * 2 + u8::from(is_complete);
            report.cover([2, form, (status % 251) as u8, outcome]);
            report.cover([3, form, reason.map_or(255, |reason| reason as u8), ended]);
        }
    }
}
