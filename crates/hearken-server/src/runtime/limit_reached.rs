//! Reports of limits that prevent a worker from accepting connections.

use std::io;
use std::time::Duration;
use std::{fmt, thread};

use hearken::timer::Time;

/// Minimum time between two reports of the same limit.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// A limit that prevents a worker from accepting connections.
///
/// The worker retries after a pause and whenever a connection closes.
#[derive(Debug)]
pub struct LimitReached<'a> {
    /// Number of open client connections of the worker.
    pub open: usize,
    /// Error of accept(2). `None` if the worker reached its connection limit.
    pub error: Option<&'a io::Error>,
}

impl fmt::Display for LimitReached<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let thread = thread::current();
        let worker = thread.name().unwrap_or("worker");
        let open = self.open;
        let Some(error) = self.error else {
            return write!(
                f,
                "{worker}: connection limit reached: {open} connections are open; raise \
                 --max-connections or the limit of open files (ulimit -n), or add --workers"
            );
        };
        write!(f, "{worker}: cannot accept connections, {open} connections are open: {error}")?;
        match hearken::limit::describe(error) {
            Some(limit) => write!(f, ": {limit}"),
            None => Ok(()),
        }
    }
}

/// Reports each limit immediately, and repeats the report at intervals.
#[derive(Debug)]
pub(crate) struct LimitReporter {
    report: fn(&LimitReached<'_>),
    /// Error number (0 for the connection limit) and time of the last report.
    last: Option<(i32, Time)>,
}

impl LimitReporter {
    /// Creates a reporter that calls `report`.
    pub(crate) fn new(report: fn(&LimitReached<'_>)) -> LimitReporter {
        LimitReporter { report, last: None }
    }

    /// Reports the connection limit, or `error` from accept(2), unless the last report is recent.
    #[cold]
    pub(crate) fn report(&mut self, now: Time, open: usize, error: Option<&io::Error>) {
        let kind = error.and_then(io::Error::raw_os_error).unwrap_or(0);
        let is_new =
            |(last, at): (i32, Time)| last != kind || now.duration_since(at) >= REPORT_INTERVAL;
        if self.last.is_none_or(is_new) {
            self.last = Some((kind, now));
            (self.report)(&LimitReached { open, error });
        }
    }
}
