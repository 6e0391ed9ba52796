//! What keeps a worker from accepting, told to whoever runs the server.

use std::io;
use std::time::Duration;
use std::{fmt, thread};

use hearken::timer::Time;

/// For how long it is not told again.
const QUIET: Duration = Duration::from_secs(60);

/// A worker cannot accept. It tries again when a connection ends, and after a while.
#[derive(Debug)]
pub struct LimitMet<'a> {
    /// How many connections it has.
    pub open: usize,
    /// What accept(2) said; nothing, if it has as many as it may.
    pub error: Option<&'a io::Error>,
}

impl fmt::Display for LimitMet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let thread = thread::current();
        let worker = thread.name().unwrap_or("a worker");
        write!(f, "{worker} has {} connections and accepts no more for now: ", self.open)?;
        match self.error {
            None => f.write_str("it may have no more (--max-connections, ulimit -n, --workers)"),
            Some(error) => match hearken::limit::met(error) {
                Some(limit) => write!(f, "{error}: {limit}"),
                None => write!(f, "{error}"),
            },
        }
    }
}

/// Tells of each kind of limit, at first and after a while again.
#[derive(Debug)]
pub(crate) struct Limits {
    tell: fn(&LimitMet<'_>),
    /// The last one's number, 0 if it has none, and when it was told.
    told: Option<(i32, Time)>,
}

impl Limits {
    pub(crate) fn new(tell: fn(&LimitMet<'_>)) -> Limits {
        Limits { tell, told: None }
    }

    #[cold]
    pub(crate) fn met(&mut self, now: Time, open: usize, error: Option<&io::Error>) {
        let kind = error.and_then(io::Error::raw_os_error).unwrap_or(0);
        if self.told.is_none_or(|(last, at)| last != kind || now.since(at) >= QUIET) {
            self.told = Some((kind, now));
            (self.tell)(&LimitMet { open, error });
        }
    }
}
