//! Computes the counts of a report from what the workers and the target observed.

use std::collections::VecDeque;
use std::time::Duration;

use hearken::timer::Time;
use hearken_load::Histogram;

use super::observed::{Event, Observed};
use super::target::{Item, ItemKind, TargetConnection};

/// The timeouts of a load that apply to requests in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) reply: Duration,
    pub(super) first_byte: Option<Duration>,
    /// Time from which requests may end before their timeout, because the load ends.
    pub(super) cut_from: Time,
    /// Time by which a timeout may be late.
    pub(super) slack: Duration,
    /// Time at which the load ended.
    pub(super) ended_at: Time,
    /// Whether connections are opened ahead of a request, or for the rest of a session. The timeout
    /// starts when the request is sent then.
    pub(super) opens_ahead: bool,
}

/// The counts.
#[derive(Debug)]
pub(super) struct Expected {
    pub(super) sent: u64,
    pub(super) replies: u64,
    /// Responses by status class, from 1xx to 5xx.
    pub(super) status: [u64; 5],
    pub(super) status_errors: u64,
    pub(super) surplus: u64,
    pub(super) malformed: u64,
    /// Requests on connections that the target ended, or that failed.
    pub(super) lost: u64,
    /// Requests in flight on connections that the worker closed at a deadline.
    pub(super) expired: u64,
    /// Requests in flight at the end.
    pub(super) unfinished: u64,
    pub(super) opened: u64,
    pub(super) bytes_sent: u64,
    pub(super) bytes_received: u64,
    pub(super) service: Histogram,
    /// Times at which requests were sent.
    pub(super) sent_at: Vec<Time>,
    /// Latest time at which a request was issued: sent, or a connection opened for it.
    pub(super) last_issued: Option<Time>,
    /// The replies: the position of the action that served their request, and their time.
    pub(super) replied: Vec<(u64, Time)>,
    /// The first contradiction within a connection.
    pub(super) contradiction: Option<String>,
}

/// A request in flight.
#[derive(Clone, Copy)]
struct InFlight {
    sent_at: Time,
    /// Start of its timeout: when it was sent, or when its connection was opened.
    issued_at: Time,
    /// Latest start of its timeout: its connection may have been opened ahead of it.
    issued_by: Time,
    /// Position of the action that served the arrival.
    order: u64,
}

/// A connection whose events are evaluated.
struct Evaluation<'a> {
    expected: &'a mut Expected,
    limits: &'a Limits,
    observed: &'a Observed,
    /// Numbers of sent requests and bytes.
    requests: u64,
    bytes: u64,
    items: &'a [Item],
    next_item: usize,
    in_flight: VecDeque<InFlight>,
    position: u64,
    /// Time of the last complete response.
    replied_at: Time,
    /// Whether a part of the next response has arrived.
    has_begun: bool,
    /// Whether the worker must close the connection next.
    must_close: bool,
    has_expired: bool,
}

impl Expected {
    pub(super) fn new() -> Expected {
        Expected {
            sent: 0,
            replies: 0,
            status: [0; 5],
            status_errors: 0,
            surplus: 0,
            malformed: 0,
            lost: 0,
            expired: 0,
            unfinished: 0,
            opened: 0,
            bytes_sent: 0,
            bytes_received: 0,
            service: Histogram::new(),
            sent_at: Vec::new(),
            last_issued: None,
            replied: Vec::new(),
            contradiction: None,
        }
    }

    /// Adds a connection.
    pub(super) fn add(
        &mut self,
        observed: &Observed,
        target: Option<&TargetConnection>,
        limits: &Limits,
    ) {
        let mut of = Evaluation {
            expected: self,
            limits,
            observed,
            requests: 0,
            bytes: 0,
            items: target.map_or(&[], |target| &target.items),
            next_item: 0,
            in_flight: VecDeque::new(),
            position: 0,
            replied_at: observed.opened_at,
            has_begun: false,
            must_close: false,
            has_expired: false,
        };
        let mut contradiction = None;
        for &(now, event) in &observed.events {
            if let Err(text) = of.on_event(now, event) {
                contradiction = contradiction.or(Some(text));
                break;
            }
        }
        if let Err(text) = of.check_late(observed.dropped_at.unwrap_or(limits.ended_at)) {
            contradiction = contradiction.or(Some(text));
        }
        if let Some(target) = target
            && (target.requests.len() as u64 > of.requests || target.received > of.bytes)
        {
            let text = "the target received more than was sent".to_owned();
            contradiction = contradiction.or(Some(text));
        }
        let left = of.in_flight.len() as u64;
        self.unfinished += left;
        if let Some(text) = contradiction {
            let items = target.map(|target| &target.items);
            self.contradiction.get_or_insert_with(|| format!("{text}: {observed:?} {items:?}"));
        }
    }

    fn record_status(&mut self, status: u16) {
        let class = match status / 100 {
            class @ 1..=4 => class - 1,
            _ => 4,
        };
        self.status[usize::from(class)] += 1;
    }
}

impl Evaluation<'_> {
    fn on_event(&mut self, now: Time, event: Event) -> Result<(), String> {
        if self.must_close && event != Event::Closed {
            return Err(format!("an unusable connection stays open at {event:?}"));
        }
        if !matches!(event, Event::Sent { .. }) {
            self.check_late(now)?;
        }
        match event {
            Event::Connected => self.expected.opened += 1,
            Event::NotConnected => self.must_close = true,
            Event::Sent { requests, bytes, at_once, order } => {
                if !self.in_flight.is_empty() {
                    return Err("requests were sent before all replies".to_owned());
                }
                self.expected.sent += u64::from(requests);
                self.expected.bytes_sent += bytes;
                let (issued_at, order) = match at_once {
                    true => (self.observed.opened_at, self.observed.order),
                    false => (now, order),
                };
                let issued_by = if self.limits.opens_ahead { now } else { issued_at };
                self.requests += u64::from(requests);
                self.bytes += bytes;
                self.expected.last_issued = self.expected.last_issued.max(Some(issued_at));
                for _ in 0..requests {
                    self.expected.sent_at.push(now);
                    self.in_flight.push_back(InFlight {
                        sent_at: now,
                        issued_at,
                        issued_by,
                        order,
                    });
                }
            }
            Event::Received(bytes) => {
                self.expected.bytes_received += bytes;
                return self.on_received(now, bytes);
            }
            Event::End => {
                if let Some(&item) = self.items.get(self.next_item)
                    && item.kind == ItemKind::UntilClose
                    && self.position >= item.head_end
                    && !self.in_flight.is_empty()
                {
                    self.next_item += 1;
                    self.complete(now, item, 0);
                }
                self.lose();
            }
            Event::Failed => self.lose(),
            Event::Deadline => self.has_expired = true,
            Event::Closed => return self.on_closed(now),
        }
        if event != Event::Deadline {
            self.has_expired = false;
        }
        Ok(())
    }

    fn lose(&mut self) {
        self.expected.lost += self.in_flight.len() as u64;
        self.in_flight.clear();
        self.must_close = true;
    }

    fn on_received(&mut self, now: Time, bytes: u64) -> Result<(), String> {
        self.has_expired = false;
        let end = self.position + bytes;
        while self.position < end {
            if self.in_flight.is_empty() {
                self.must_close = true;
                return Ok(());
            }
            let Some(&item) = self.items.get(self.next_item) else {
                return Err("received bytes that the target did not plan".to_owned());
            };
            self.has_begun = true;
            let is_complete = item.end <= end;
            match item.kind {
                ItemKind::Interim if is_complete => {
                    self.expected.record_status(item.status);
                    (self.position, self.next_item) = (item.end, self.next_item + 1);
                }
                ItemKind::Response { .. } if is_complete => {
                    (self.position, self.next_item) = (item.end, self.next_item + 1);
                    self.complete(now, item, end - item.end);
                }
                ItemKind::Malformed if is_complete => {
                    self.expected.malformed += self.in_flight.len() as u64;
                    self.in_flight.clear();
                    (self.position, self.must_close) = (end, true);
                }
                _ => self.position = end,
            }
            if self.must_close {
                self.position = end;
            }
        }
        Ok(())
    }

    /// Handles a complete response, which a number of bytes follow in the same piece.
    fn complete(&mut self, now: Time, item: Item, following: u64) {
        let Some(request) = self.in_flight.pop_front() else { return };
        self.has_begun = false;
        self.replied_at = now;
        self.expected.record_status(item.status);
        if item.status >= 400 {
            self.expected.status_errors += 1;
        } else if following > 0 && self.in_flight.is_empty() {
            self.expected.surplus += 1;
        } else {
            self.expected.replies += 1;
            self.expected.replied.push((request.order, now));
            self.expected.service.record(now.duration_since(request.sent_at));
        }
        if item.kind != (ItemKind::Response { keep_alive: true }) {
            self.lose();
        } else if following > 0 && self.in_flight.is_empty() {
            self.must_close = true;
        }
    }

    fn on_closed(&mut self, now: Time) -> Result<(), String> {
        let Some(first) = self.in_flight.front().copied() else { return Ok(()) };
        let malformed =
            self.items.get(self.next_item).map(|item| item.kind) == Some(ItemKind::Malformed);
        let count = self.in_flight.len() as u64;
        self.in_flight.clear();
        if malformed && self.has_begun && !self.has_expired {
            self.expected.malformed += count;
            return Ok(());
        }
        if !self.has_expired {
            return Err("a connection with requests in flight was closed for no reason".to_owned());
        }
        self.expected.expired += count;
        let Limits { reply, first_byte, cut_from, .. } = *self.limits;
        let since = first.sent_at.max(self.replied_at);
        let is_due = now >= first.issued_at + reply
            || now >= cut_from
            || first_byte.is_some_and(|limit| !self.has_begun && now >= since + limit);
        match is_due {
            true => Ok(()),
            false => Err("a request timed out early".to_owned()),
        }
    }

    /// Checks that no request is in flight for longer than its timeout.
    fn check_late(&self, now: Time) -> Result<(), String> {
        let Some(first) = self.in_flight.front() else { return Ok(()) };
        let Limits { reply, first_byte, slack, .. } = *self.limits;
        let since = first.sent_at.max(self.replied_at);
        let limit = first_byte.filter(|_| !self.has_begun);
        let due = limit
            .map_or(first.issued_by + reply, |limit| (first.issued_by + reply).min(since + limit));
        match now > due + slack {
            true => Err(format!("a request is late by {:?}", now.duration_since(due))),
            false => Ok(()),
        }
    }
}
