//! The invariants of a chain: what each part reports about the requests agrees with the others.

use std::rc::Rc;
use std::time::Duration;

use hearken::timer::Time;
use hearken_load::{Config, Report, SlowClients};

use super::settings::{Change, Drawn, PATH};
use crate::history::Simulation;
use crate::kinds::load::checks::{Checked, at_most, check_end, equal, slack};
use crate::kinds::load::observed::Observations;
use crate::kinds::service::Service;
use crate::log_line::LogLine;
use crate::report;
use crate::swarm::{FaultLevel, Swarm};

/// The facts about a history after its end.
pub(super) struct Facts<'f> {
    pub(super) report: Report,
    pub(super) drawn: &'f Drawn,
    /// Difference between the time of day and the clock in nanoseconds.
    pub(super) unix_offset: u64,
    pub(super) observations: &'f Observations,
    pub(super) proxies: &'f [Rc<Service>],
    pub(super) servers: &'f [Rc<Service>],
    pub(super) swarm: &'f Swarm,
    /// Maximum time by which a program continued after the end of its wait.
    pub(super) max_lateness: Duration,
}

/// The lines of an access log.
#[derive(Debug, Default)]
struct Log {
    /// Lines of requests of the load.
    requests: Vec<LogLine>,
    /// Number of lines by status class. The first class is that without a status.
    classes: [u64; 6],
    /// Number of lines that a full queue dropped.
    dropped: u64,
}

impl Log {
    fn add(&mut self, text: &str) {
        for text in text.lines() {
            let line = LogLine::parse(text);
            self.classes[usize::from(line.status / 100).min(5)] += 1;
            if text.contains(PATH) {
                self.requests.push(line);
            }
        }
    }

    fn count(&self, is_counted: impl Fn(&LogLine) -> bool) -> u64 {
        self.requests.iter().filter(|line| is_counted(line)).count() as u64
    }
}

impl Facts<'_> {
    /// Reports the first contradiction, and the states that were reached.
    pub(super) fn check(&self, simulation: &Simulation) {
        let checked = self.check_all(simulation);
        if let Err((kind, detail)) = checked {
            simulation.report.fail(kind, detail);
        }
    }

    fn check_all(&self, simulation: &Simulation) -> Checked {
        let report = &simulation.report;
        self.check_report()?;
        let (mut proxies, mut servers) = (Log::default(), Log::default());
        for proxy in self.proxies {
            self.check_service(proxy, &mut proxies)?;
        }
        for server in self.servers {
            self.check_service(server, &mut servers)?;
        }
        self.cover(report, &proxies, &servers);
        self.check_client_side(&proxies)?;
        self.check_upstreams(simulation.world.now(), &proxies, &servers)?;
        if self.drawn.is_benign {
            self.check_benign(&proxies)?;
        }
        self.check_ends(report)
    }

    /// Returns the time by which deadlines may be late.
    fn slack(&self) -> Duration {
        slack(self.observations, self.max_lateness)
    }

    /// Checks the report of the load by itself.
    fn check_report(&self) -> Checked {
        self.report.check_accounts().map_err(|text| ("the accounts do not balance", text))?;
        if !self.report.complete && self.drawn.stop_after.is_none() {
            return Err(("incomplete", "nothing stopped the load".to_owned()));
        }
        let unix = self.report.started_unix_ns;
        let start = (unix > 0).then(|| Time::from_nanos(unix.saturating_sub(self.unix_offset)));
        let ended = self.observations.ended_at.unwrap_or_default();
        let config: &Config = &self.drawn.load.config;
        check_end(config, start, ended, self.slack())?;
        // A successful response contains the whole file even after faults.
        let Report { requests, errors, status, .. } = &self.report;
        if config.template.expect.is_some() {
            let successful = status.success + status.redirection;
            equal("successful replies", successful, requests.replies + errors.surplus)?;
        }
        Ok(())
    }

    /// Compares the metrics of a service with its access log, which it adds to `all`.
    fn check_service(&self, of: &Service, all: &mut Log) -> Checked {
        let text = String::from_utf8_lossy(&of.server.take_log_lines()).into_owned();
        let metrics = of.server.metrics();
        let mut page = String::new();
        metrics.render_without_process(&[], &mut page);
        let dropped = sum(&page, "hearken_access_log_dropped_lines_total", "");
        let mut log = Log::default();
        log.add(&text);
        all.add(&text);
        all.dropped += dropped;
        for (class, lines) in ["none", "1xx", "2xx", "3xx", "4xx", "5xx"].iter().zip(log.classes) {
            let label = format!("status=\"{class}\"");
            let counted = sum(&page, "hearken_requests_total{", &label);
            let name = format!("{class} in the log");
            at_most(&name, lines, "those in the metrics", counted)?;
            if !of.was_cut() && dropped == 0 {
                equal(&name, lines, counted)?;
            }
        }
        if !of.was_cut() {
            for gauge in
                ["connections_open", "requests_in_flight", "requests_queued", "tunnels_open"]
            {
                equal(gauge, sum(&page, &format!("hearken_{gauge}{{"), ""), 0)?;
            }
        }
        if let (Some(stopped), Some(ended)) = (of.stopped_at.get(), of.ended_at.get())
            && self.swarm.stalls.per_mille == 0
            && ended > stopped + of.grace + self.slack() * 8
        {
            let late = ended.duration_since(stopped + of.grace);
            return Err(("a server stopped late", format!("by {late:?}")));
        }
        Ok(())
    }

    /// Compares the report of the load with the logs of the proxies.
    fn check_client_side(&self, proxies: &Log) -> Checked {
        let Report { requests, status, idle, slow_clients, .. } = &self.report;
        let was_cut = self.proxies.iter().any(|proxy| proxy.was_cut()) || proxies.dropped > 0;
        for (name, count, class) in [
            ("2xx", status.success, 2),
            ("3xx", status.redirection, 3),
            ("4xx", status.client_error, 4),
            ("5xx", status.server_error, 5),
        ] {
            if !was_cut {
                at_most(name, count, "those in the log of the proxy", proxies.classes[class])?;
            }
        }
        let groups = slow_clients.iter().flat_map(SlowClients::groups);
        let slow: u64 = groups.map(|(_, group)| group.requests).sum();
        let sent = requests.sent + idle.requests + slow;
        at_most("requests of the proxy", proxies.requests.len() as u64, "sent requests", sent)?;
        let complete = proxies.count(|line| line.outcome == "complete");
        // With faults, a send may fail although the client receives its bytes.
        if !was_cut && !self.drawn.load.has_side && self.swarm.level < FaultLevel::Any {
            at_most("replies", requests.replies, "complete responses of the proxy", complete)?;
        }
        Ok(())
    }

    /// Compares the logs of the proxies with their own accounts of servers and with the servers' logs.
    fn check_upstreams(&self, now: Time, proxies: &Log, servers: &Log) -> Checked {
        let (mut sent, mut retries) = (0, 0);
        for proxy in self.proxies.iter().flat_map(|proxy| proxy.server.proxies()) {
            for stats in proxy.upstreams(now) {
                equal(&format!("requests in flight at {}", stats.name), stats.in_flight, 0)?;
                sent += stats.requests;
            }
        }
        for proxy in self.proxies {
            retries +=
                proxy.server.metrics().workers.iter().map(|of| of.retries.get()).sum::<u64>();
        }
        let attempts: u64 = proxies.requests.iter().map(|line| u64::from(line.attempts)).sum();
        let received = servers.requests.len() as u64;
        at_most("requests of the servers", received, "those that the proxy sent", sent + retries)?;
        if !self.proxies.iter().any(|proxy| proxy.was_cut()) && proxies.dropped == 0 {
            let allowed = attempts + retries;
            at_most("requests of the servers", received, "the attempts of the proxy", allowed)?;
            if self.drawn.origins.is_none()
                && servers.dropped == 0
                && !self.servers.iter().any(|server| server.was_cut())
            {
                let is_success = |line: &LogLine| line.status == 200 && line.outcome == "complete";
                let successful = servers.count(|line| line.status == 200);
                let name = "complete responses of the proxy";
                at_most(name, proxies.count(is_success), "those of the servers", successful)?;
            }
        }
        Ok(())
    }

    /// Checks a history in which only the load ends requests.
    fn check_benign(&self, proxies: &Log) -> Checked {
        let Report { errors, requests, .. } = &self.report;
        for (name, count) in [
            ("status errors", errors.status),
            ("failed checks", errors.check),
            ("surplus", errors.surplus),
            ("other errors", errors.other),
        ] {
            equal(name, count, 0)?;
        }
        for line in &proxies.requests {
            let is_expected = match &*line.outcome {
                "complete" => line.status == 200,
                "client-disconnected" => true,
                "client-timeout" | "bad-request" => self.drawn.load.has_side,
                _ => false,
            };
            let is_whole = line.outcome != "complete"
                || line.bytes_sent == self.drawn.length
                || self.drawn.load.config.template.method == "HEAD"
                || self.drawn.load.has_side;
            if !is_expected || !is_whole {
                return Err(("unexpected outcome without faults", format!("{line:?}")));
            }
        }
        let keeps = self.drawn.proxy.timeouts.keepalive.as_secs() > 10
            && self.drawn.proxy.timeouts.header.as_secs() > 1;
        if keeps && self.drawn.proxy_change == Change::None {
            equal("reset connections", errors.conn_reset + errors.conn_refused, 0)?;
            if requests.failed == 0
                && requests.missed + requests.unfinished == 0
                && !self.drawn.load.has_side
            {
                let lines = proxies.requests.len() as u64;
                equal("requests of the proxy", lines, requests.sent)?;
            }
        }
        Ok(())
    }

    /// Checks that programs released all buffers, unless a shutdown timeout ended one.
    fn check_ends(&self, report: &report::Report) -> Checked {
        let services = self.proxies.iter().chain(self.servers);
        if services.into_iter().any(|service| service.was_cut()) {
            return Ok(());
        }
        match report.ends().iter().find(|end| end.open == 0 && end.buffers > 0) {
            Some(end) => Err(("resources at the end of a program", format!("{end:?}"))),
            None => Ok(()),
        }
    }

    fn cover(&self, report: &report::Report, proxies: &Log, servers: &Log) {
        let changes = [self.drawn.proxy_change, self.drawn.servers[0].1].map(|change| change as u8);
        let benign = u8::from(self.drawn.is_benign);
        for (part, log) in [(1, proxies), (2, servers)] {
            for line in &log.requests {
                let outcome = line.outcome_number();
                report.cover([part, (line.status % 251) as u8, outcome, line.attempts as u8]);
                report.cover([part + 2, changes[0] * 4 + changes[1], outcome, benign]);
            }
        }
        for (index, (_, count)) in self.report.errors.by_name().into_iter().enumerate() {
            if count > 0 {
                report.cover([5, index as u8, changes[0], self.swarm.level as u8]);
            }
        }
        let has_replies = u8::from(self.report.requests.replies > 0);
        let is_faulty = u8::from(self.swarm.level == FaultLevel::Any);
        report.cover([6, has_replies, is_faulty, benign]);
    }
}

/// Returns the sum of the samples of a family whose line contains `label`.
fn sum(page: &str, family: &str, label: &str) -> u64 {
    let samples = page.lines().filter(|line| line.starts_with(family) && line.contains(label));
    samples.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum()
}
