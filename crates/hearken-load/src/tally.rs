//! What is counted while the load runs.

use hearken::timer::Time;

use crate::failure::{Errors, Failure, Limit};
use crate::histogram::Histogram;
use crate::report::{Bytes, Handshakes, Sessions, Status, Timeouts};

/// What is added up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) intended: u64,
    pub(crate) sent: u64,
    pub(crate) replies: u64,
    /// Of these, those that came while requests were still being made.
    pub(crate) in_time: u64,
    /// Requests for which there was no free connection at their time.
    pub(crate) waited: u64,
    pub(crate) sessions: Sessions,
    pub(crate) status: Status,
    pub(crate) errors: Errors,
    pub(crate) timeouts: Timeouts,
    pub(crate) opened: u64,
    pub(crate) handshakes: Handshakes,
    pub(crate) bytes: Bytes,
}

impl Counts {
    /// Adds those of another thread.
    pub(crate) fn add(&mut self, other: &Counts) {
        self.intended += other.intended;
        self.sent += other.sent;
        self.replies += other.replies;
        self.in_time += other.in_time;
        self.waited += other.waited;
        self.sessions.add(&other.sessions);
        self.status.add(&other.status);
        self.errors.add(&other.errors);
        self.timeouts.add(&other.timeouts);
        self.opened += other.opened;
        self.handshakes.add(&other.handshakes);
        self.bytes.add(&other.bytes);
    }
}

/// Counts and distributions of one thread's requests.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) counts: Counts,
    /// Of the replies since it was last taken.
    pub(crate) latency: Box<Histogram>,
    pub(crate) service: Histogram,
    pub(crate) connect: Histogram,
    pub(crate) lateness: Histogram,
    /// When the last request is intended.
    pub(crate) end: Time,
    /// The first thing that had no name of its own among the errors.
    pub(crate) other: Option<String>,
}

impl Tally {
    pub(crate) fn new() -> Tally {
        Tally {
            counts: Counts::default(),
            latency: Box::default(),
            service: Histogram::new(),
            connect: Histogram::new(),
            lateness: Histogram::new(),
            end: Time::from_nanos(u64::MAX),
            other: None,
        }
    }

    /// A request has its reply.
    #[inline]
    pub(crate) fn reply(&mut self, intended: Time, sent: Time, now: Time) {
        self.counts.replies += 1;
        self.counts.in_time += u64::from(now <= self.end);
        self.latency.record(now.since(intended));
        self.service.record(now.since(sent));
    }

    /// So many requests have none and never will.
    pub(crate) fn fail(&mut self, requests: u64, failure: Failure) {
        self.counts.errors.count(failure, requests);
    }

    /// As [`fail`](Tally::fail), for a reason that may have no name.
    pub(crate) fn fail_by(&mut self, requests: u64, failure: Failure, why: &dyn ToString) {
        self.fail(requests, failure);
        if failure.needs_words() && self.other.is_none() {
            self.other = Some(why.to_string());
        }
    }

    /// As [`fail`](Tally::fail), as this limit has run out.
    pub(crate) fn time_out(&mut self, requests: u64, limit: Limit) {
        self.fail(requests, Failure::ClientTimo);
        let timeouts = &mut self.counts.timeouts;
        *match limit {
            Limit::Connect => &mut timeouts.connect,
            Limit::FirstByte => &mut timeouts.first_byte,
            Limit::Reply => &mut timeouts.reply,
        } += requests;
    }

    /// Requests that have neither a reply nor failed yet.
    pub(crate) fn outstanding(&self) -> u64 {
        let Counts { intended, replies, errors, .. } = &self.counts;
        intended - replies - errors.total()
    }

    /// True once all that was begun is over.
    pub(crate) fn is_settled(&self) -> bool {
        let Sessions { begun, completed, failed } = self.counts.sessions;
        self.outstanding() == 0 && begun == completed + failed
    }
}
