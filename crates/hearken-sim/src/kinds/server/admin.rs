//! Requests to the admin address, and the checks of their responses.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::Write;
use std::rc::Rc;
use std::time::Duration;

use hearken::io::sim::World;
use hearken::timer::Time;

use super::Subject;
use super::timing::TICK;
use crate::client::{ConnectionRecord, Ended, Exchange, HttpVersion, Planned, RequestId, Script};
use crate::report::Report;
use crate::swarm::{FaultLevel, Swarm};

/// The shortest timeout of the admin address.
const MIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Requests: method and path, a field, and the expected status. Those for `/healthz` with status 200
/// may have status 503 after a stop.
const REQUESTS: [(&str, &str, u16); 14] = [
    ("GET /healthz", "", 200),
    ("GET /metrics", "", 200),
    ("GET /metrics", "", 200),
    ("HEAD /metrics", "", 200),
    ("GET /upstreams", "", 200),
    ("GET /none", "", 404),
    ("POST /upstreams/a/drain", "Content-Length: 0\r\n", 404),
    ("POST /upstreams/%41/ready", "", 404),
    ("POST /upstreams/%zz/off", "", 400),
    ("GET /upstreams/a/off", "", 405),
    ("DELETE /healthz", "", 405),
    ("GET /healthz", "Origin: http://other\r\n", 403),
    ("GET /healthz", "Sec-Fetch-Site: cross-site\r\n", 403),
    ("GET /healthz", "Origin: http://sim\r\n", 200),
];

/// A request to the admin address.
#[derive(Debug)]
pub(super) struct AdminRequest {
    line: &'static str,
    status: u16,
    body: Vec<u8>,
}

/// The requests of one client.
pub(super) struct AdminRequests {
    pub(super) world: World,
    pub(super) subject: Rc<Subject>,
    /// The highest value of each counter so far.
    pub(super) counters: BTreeMap<String, u64>,
}

impl Script for AdminRequests {
    type Request = AdminRequest;

    fn preamble(&mut self, _: u16, _: &mut Vec<u8>) {}

    fn request(
        &mut self,
        _: RequestId,
        _: HttpVersion,
        is_last: bool,
        out: &mut Vec<u8>,
    ) -> Planned<AdminRequest> {
        let before = out.len();
        let (line, field, status) = REQUESTS[self.world.decide(REQUESTS.len() as u32) as usize];
        let keep_alive = !is_last || self.world.decide(2) == 0;
        let connection = if keep_alive { "" } else { "Connection: close\r\n" };
        let _ = write!(out, "{line} HTTP/1.1\r\nHost: sim\r\n{connection}{field}\r\n");
        Planned {
            request: AdminRequest { line, status, body: Vec::new() },
            head_length: out.len() - before,
            expects: false,
            has_body: !line.starts_with("HEAD"),
            keep_alive,
        }
    }

    fn on_head(&mut self, _: Time, exchange: &mut Exchange<AdminRequest>) -> Result<(), String> {
        let AdminRequest { line, status: expected, .. } = exchange.planned.request;
        let status = exchange.head.as_ref().map_or(0, |head| head.status);
        let is_stopping = self.subject.stop.get().requested.is_some();
        let is_draining = line == "GET /healthz" && expected == 200 && is_stopping;
        match status {
            408 => Ok(()), // The client was slow.
            503 if is_draining => Ok(()),
            status if status == expected => Ok(()),
            status => Err(format!("admin status {status} instead of {expected}")),
        }
    }

    fn on_body(
        &mut self,
        exchange: &mut Exchange<AdminRequest>,
        bytes: &[u8],
    ) -> Result<(), String> {
        exchange.planned.request.body.extend_from_slice(bytes);
        Ok(())
    }

    fn on_complete(&mut self, exchange: &mut Exchange<AdminRequest>) -> Result<(), String> {
        let AdminRequest { line, body, .. } = &exchange.planned.request;
        let text = std::str::from_utf8(body).map_err(|error| error.to_string())?;
        let is_right = match (*line, exchange.head.as_ref().map_or(0, |head| head.status)) {
            ("GET /metrics", 200) => return self.check_metrics(text),
            ("GET /upstreams", 200) => text == "{\"upstreams\":[\n]}\n",
            ("GET /healthz", 200) => text == "ok\n",
            ("GET /healthz", 503) => text == "draining\n",
            _ => true,
        };
        if is_right { Ok(()) } else { Err(format!("admin content '{text}'")) }
    }
}

impl AdminRequests {
    /// Checks the syntax of a metrics page, and that no counter decreases.
    fn check_metrics(&mut self, page: &str) -> Result<(), String> {
        for line in page.lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = line.rsplit_once(' ').unwrap_or((line, ""));
            let value: f64 =
                value.parse().map_err(|_| format!("metric without a value: {line}"))?;
            if name.split('{').next().is_some_and(|name| name.ends_with("_total")) {
                let before = self.counters.insert(name.to_owned(), value as u64);
                if before.is_some_and(|before| before > value as u64) {
                    return Err(format!("counter {name} decreases from {before:?} to {value}"));
                }
            }
        }
        let worker = format!("hearken_connections_open{{worker=\"{}\"}} ", self.subject.last());
        if page.contains(&worker) { Ok(()) } else { Err("no metrics of a worker".to_owned()) }
    }
}

/// The end of the event loop of the admin address, and the connections of its client.
#[derive(Debug, Default)]
pub(super) struct AdminFacts {
    /// Index of the host of the event loop.
    pub(super) host: Cell<Option<usize>>,
    pub(super) stopped_at: Cell<Option<Time>>,
    pub(super) records: Rc<RefCell<Vec<ConnectionRecord<AdminRequest>>>>,
}

impl AdminFacts {
    /// Checks that complete requests were answered.
    pub(super) fn check(&self, swarm: &Swarm, report: &Report) {
        for record in self.records.borrow().iter() {
            let lost = record.exchanges.get(record.answered).filter(|lost| {
                lost.taken_at.is_some()
                    && record.ended_at.duration_since(record.opened_at) + TICK < MIN_TIMEOUT
            });
            let is_stopped = self.stopped_at.get().is_some_and(|at| record.ended_at >= at);
            let may_end = swarm.level > FaultLevel::None
                || is_stopped
                || matches!(record.ended, Ended::ByClient | Ended::NotConnected)
                || record.own.has_half_closed;
            if lost.is_some() && !may_end {
                report.fail("unanswered request to the admin address", format!("{record:?}"));
            }
        }
    }
}
