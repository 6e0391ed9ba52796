//! What is counted while the load runs.

use hearken::timer::Time;

use crate::failure::{Errors, Failure};
use crate::histogram::Histogram;
use crate::report::{Bytes, Status};

/// Counts and distributions of requests.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) intended: u64,
    pub(crate) sent: u64,
    pub(crate) replies: u64,
    /// Of these, those that came while requests were still being made.
    pub(crate) in_time: u64,
    /// When the last request is intended.
    pub(crate) end: Time,
    /// Requests for which there was no free connection at their time.
    pub(crate) waited: u64,
    pub(crate) status: Status,
    pub(crate) errors: Errors,
    /// The first thing that had no name of its own among the errors.
    pub(crate) other: Option<String>,
    pub(crate) opened: u64,
    pub(crate) bytes: Bytes,
    pub(crate) latency: Histogram,
    pub(crate) service: Histogram,
    pub(crate) lateness: Histogram,
}

impl Tally {
    pub(crate) fn new() -> Tally {
        Tally {
            intended: 0,
            sent: 0,
            replies: 0,
            in_time: 0,
            end: Time::from_nanos(u64::MAX),
            waited: 0,
            status: Status::default(),
            errors: Errors::default(),
            other: None,
            opened: 0,
            bytes: Bytes::default(),
            latency: Histogram::new(),
            service: Histogram::new(),
            lateness: Histogram::new(),
        }
    }

    /// A request has its reply.
    pub(crate) fn reply(&mut self, intended: Time, sent: Time, now: Time, status: u16) {
        self.replies += 1;
        self.in_time += u64::from(now <= self.end);
        self.status.count(status);
        self.latency.record(now.since(intended));
        self.service.record(now.since(sent));
    }

    /// A request has none and never will.
    pub(crate) fn fail(&mut self, failure: Failure) {
        self.errors.count(failure);
    }

    /// As [`fail`](Tally::fail), for a reason that may have no name.
    pub(crate) fn fail_by(&mut self, failure: Failure, why: &dyn ToString) {
        self.fail(failure);
        if failure == Failure::Other && self.other.is_none() {
            self.other = Some(why.to_string());
        }
    }

    /// Requests that have neither a reply nor failed yet.
    pub(crate) fn outstanding(&self) -> u64 {
        self.intended - self.replies - self.errors.total()
    }
}
