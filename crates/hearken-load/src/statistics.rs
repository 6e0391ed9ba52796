//! Counts and histograms of a thread.

use std::collections::BTreeMap;

use hearken::timer::Time;

use crate::failure::{Errors, Failure, TimeoutKind};
use crate::histogram::Histogram;
use crate::report::{Bytes, Handshakes, Missed, Sessions, Status, Timeouts};

/// Counts that are added over all threads.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) scheduled: u64,
    pub(crate) sent: u64,
    pub(crate) replies: u64,
    /// Number of replies received before the end of the arrivals.
    pub(crate) replies_in_time: u64,
    /// Number of requests that found no available connection at their scheduled time.
    pub(crate) queued: u64,
    pub(crate) sessions: Sessions,
    pub(crate) status: Status,
    pub(crate) errors: Errors,
    pub(crate) missed: Missed,
    pub(crate) timeouts: Timeouts,
    pub(crate) connections_opened: u64,
    /// Number of requests that were sent again because the server refused them.
    pub(crate) resent: u64,
    pub(crate) handshakes: Handshakes,
    pub(crate) bytes: Bytes,
}

impl Counts {
    /// Returns the number of requests without an outcome.
    pub(crate) fn outstanding(&self) -> u64 {
        self.scheduled - self.replies - self.errors.total() - self.missed.total()
    }

    /// Adds the counts of another thread.
    pub(crate) fn add(&mut self, other: &Counts) {
        self.scheduled += other.scheduled;
        self.sent += other.sent;
        self.replies += other.replies;
        self.replies_in_time += other.replies_in_time;
        self.queued += other.queued;
        self.sessions.add(&other.sessions);
        self.status.add(&other.status);
        self.errors.add(&other.errors);
        self.missed.add(&other.missed);
        self.timeouts.add(&other.timeouts);
        self.connections_opened += other.connections_opened;
        self.resent += other.resent;
        self.handshakes.add(&other.handshakes);
        self.bytes.add(&other.bytes);
    }
}

/// Counts and histograms of the requests of a thread.
#[derive(Debug)]
pub(crate) struct Statistics {
    pub(crate) counts: Counts,
    /// Latencies since the histogram was last taken.
    pub(crate) latency: Box<Histogram>,
    pub(crate) service: Histogram,
    pub(crate) connect: Histogram,
    pub(crate) lateness: Histogram,
    /// End of the arrivals.
    pub(crate) last_arrival: Time,
    /// Number of requests that the server had enough time to answer before the end of the arrivals.
    pub(crate) answerable: u64,
    /// Descriptions of the first error of each kind that its name does not describe.
    pub(crate) first_errors: BTreeMap<&'static str, String>,
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
            answerable: 0,
            first_errors: BTreeMap::new(),
        }
    }

    /// Records a reply.
    #[inline]
    pub(crate) fn record_reply(&mut self, scheduled: Time, sent: Time, now: Time) {
        self.counts.replies += 1;
        self.counts.replies_in_time += u64::from(now <= self.last_arrival);
        self.latency.record(now.duration_since(scheduled));
        self.service.record(now.duration_since(sent));
    }

    /// Records failed requests.
    pub(crate) fn record_failure(&mut self, requests: u64, failure: Failure) {
        self.counts.errors.record(failure, requests);
    }

    /// Records failed requests with a reason, for failures without a name.
    pub(crate) fn record_failure_with_reason(
        &mut self,
        requests: u64,
        failure: Failure,
        reason: &dyn ToString,
    ) {
        self.record_failure(requests, failure);
        if let Some(name) = failure.unspecific_name() {
            self.first_errors.entry(name).or_insert_with(|| reason.to_string());
        }
    }

    /// Records requests that timed out.
    pub(crate) fn record_timeout(&mut self, requests: u64, limit: TimeoutKind) {
        self.record_failure(requests, Failure::ClientTimo);
        let timeouts = &mut self.counts.timeouts;
        *match limit {
            TimeoutKind::Connect => &mut timeouts.connect,
            TimeoutKind::FirstByte => &mut timeouts.first_byte,
            TimeoutKind::Reply => &mut timeouts.reply,
        } += requests;
    }

    /// Returns the number of requests without an outcome.
    pub(crate) fn outstanding(&self) -> u64 {
        self.counts.outstanding()
    }

    /// Returns true if all requests and sessions have an outcome.
    pub(crate) fn is_complete(&self) -> bool {
        let Sessions { started, completed, failed } = self.counts.sessions;
        self.outstanding() == 0 && started == completed + failed
    }
}
