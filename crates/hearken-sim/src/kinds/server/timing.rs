//! The timeouts of a simulated server, and the times that follow from them.

use std::time::Duration;

use hearken::timer::Time;
use hearken_server::Timeouts;

/// Time by which a deadline may seem late: a tick of the wheel, and the turn of the worker.
pub(super) const TICK: Duration = Duration::from_millis(2);

/// The timeouts and the end of a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    pub(super) timeouts: Timeouts,
    pub(super) grace: Duration,
    /// Maximum time before a silent connection is accepted.
    pub(super) defer: Duration,
}

impl Timing {
    /// Returns the minimum time after which a client is too slow.
    pub(super) fn min_client_timeout(&self) -> Duration {
        let Timeouts { header, body, upload, .. } = self.timeouts;
        header.min(body).min(upload)
    }

    /// Returns the minimum time after which the server ends a connection with a request.
    pub(super) fn min_timeout(&self) -> Duration {
        self.min_client_timeout().min(self.timeouts.send)
    }

    /// Returns a time within which something must happen on every connection.
    pub(super) fn patience(&self) -> Duration {
        let Timeouts { header, body, upload, keepalive, send } = self.timeouts;
        header
            + body
            + upload
            + keepalive
            + send * 2
            + Duration::from_secs(2)
            + self.grace
            + self.defer
    }
}

/// The times of a stop.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StopTimes {
    /// Time of the request to stop.
    pub(super) requested: Option<Time>,
    /// Time at which the last worker ended.
    pub(super) ended: Option<Time>,
}
