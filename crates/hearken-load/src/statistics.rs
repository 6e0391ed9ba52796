//! What is counted while the load runs.

use hearken::timer::Time;

use crate::failure::{Errors, Failure, TimeoutKind};
use crate::histogram::Histogram;
use crate::report::{Bytes, Handshakes, Sessions, Status, Timeouts};

/// What is added up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) scheduled: u64,
    pub(crate) sent: u64,
    pub(crate) replies: u64,
    /// Of these, those that came while requests were still being made.
    pub(crate) replies_in_time: u64,
    /// Requests for which there was no free connection at their time.
    pub(crate) queued: u64,
    pub(crate) sessions: Sessions,
    pub(crate) status: Status,
    pub(crate) errors: Errors,
    pub(crate) timeouts: Timeouts,
    pub(crate) connections_opened: u64,
    pub(crate) handshakes: Handshakes,
    pub(crate) bytes: Bytes,
}

impl Counts {
    /// Adds those of another thread.
    pub(crate) fn add(&mut self, other: &Counts) {
        self.scheduled += other.scheduled;
        self.sent += other.sent;
        self.replies += other.replies;
        self.replies_in_time += other.replies_in_time;
        self.queued += other.queued;
        self.sessions.add(&other.sessions);
        self.status.add(&other.status);
        self.errors.add(&other.errors);
        self.timeouts.add(&other.timeouts);
        self.connections_opened += other.connections_opened;
        self.handshakes.add(&other.handshakes);
        self.bytes.add(&other.bytes);
    }
}

/// Counts and distributions of one thread's requests.
#[derive(Debug)]
pub(crate) struct Statistics {
    pub(crate) counts: Counts,
    /// Of the replies since it was last taken.
    pub(crate) latency: Box<Histogram>,
    pub(crate) service: Histogram,
    pub(crate) connect: Histogram,
    pub(crate) lateness: Histogram,
    /// When the last request is intended.
    pub(crate) last_arrival: Time,
    /// The first thing that had no name of its own among the errors.
    pub(crate) first_other_error: Option<String>,
}

impl Statistics {
    pub(crate) fn new() -> Statistics {
        Statistics {
            counts: Counts::default(),
            latency: Box::default(),
            service: Histogram::new(),
            connect: Histogram::new(),
            lateness: Histogram::new(),
            last_arrival: Time::from_nanos(u64::MAX),
            first_other_error: None,
        }
    }

    /// A request has its reply.
    #[inline]
    pub(crate) fn record_reply(&mut self, scheduled: Time, sent: Time, now: Time) {
        self.counts.replies += 1;
        self.counts.replies_in_time += u64::from(now <= self.last_arrival);
        self.latency.record(now.since(scheduled));
        self.service.record(now.since(sent));
    }

    /// So many requests have none and never will.
    pub(crate) fn record_failure(&mut self, requests: u64, failure: Failure) {
        self.counts.errors.record(failure, requests);
    }

    /// As [`fail`](Tally::fail), for a reason that may have no name.
    pub(crate) fn record_failure_with_reason(
        &mut self,
        requests: u64,
        failure: Failure,
        reason: &dyn ToString,
    ) {
        self.record_failure(requests, failure);
        if failure.needs_description() && self.first_other_error.is_none() {
            self.first_other_error = Some(reason.to_string());
        }
    }

    /// As [`fail`](Tally::fail), as this limit has run out.
    pub(crate) fn record_timeout(&mut self, requests: u64, limit: TimeoutKind) {
        self.record_failure(requests, Failure::ClientTimo);
        let timeouts = &mut self.counts.timeouts;
        *match limit {
            TimeoutKind::Connect => &mut timeouts.connect,
            TimeoutKind::FirstByte => &mut timeouts.first_byte,
            TimeoutKind::Reply => &mut timeouts.reply,
        } += requests;
    }

    /// Requests that have neither a reply nor failed yet.
    pub(crate) fn outstanding(&self) -> u64 {
        let Counts { scheduled, replies, errors, .. } = &self.counts;
        scheduled - replies - errors.total()
    }

    /// True once all that was begun is over.
    pub(crate) fn is_complete(&self) -> bool {
        let Sessions { begun, completed, failed } = self.counts.sessions;
        self.outstanding() == 0 && begun == completed + failed
    }
}
