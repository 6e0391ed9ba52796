//! The handler that serves the files of a directory.

use std::time::Duration;

use hearken::timer::Time;
use hearken_http::{Body, Request};

use super::{Disk, Files, Site};
use crate::front::{Handled, Handler, Incoming, Transport};

/// Interval at which unused open files are closed.
const CLOSE_INTERVAL: Duration = Duration::from_secs(5);

/// The handler of static files.
#[derive(Debug)]
pub(crate) struct StaticFiles<F: Files = Disk> {
    site: Site<F>,
    /// Maximum size in bytes of a request body.
    body_limit: u64,
    close_unused_at: Option<Time>,
}

impl<F: Files> StaticFiles<F> {
    pub(crate) fn new(site: Site<F>, body_limit: u64) -> StaticFiles<F> {
        StaticFiles { site, body_limit, close_unused_at: None }
    }
}

impl<T: Transport, F: Files> Handler<T> for StaticFiles<F> {
    #[inline(always)]
    fn on_request(&mut self, mut incoming: Incoming<'_, T>, request: &Request<'_>) -> Handled {
        // Reads the body before it answers, because a malformed body makes the request invalid.
        if request.body != Body::None && !incoming.is_body_read() {
            return Handled::AfterBody(self.body_limit);
        }
        let (date, keep_alive, out) = incoming.parts();
        let answer = self.site.answer(request, date, keep_alive, out);
        incoming.respond(request, answer)
    }

    #[inline]
    fn begin_turn(&mut self, now: Time) {
        self.site.begin_turn();
        if self.close_unused_at.is_some_and(|at| now >= at) {
            self.close_unused_at = self.site.close_unused().then(|| now + CLOSE_INTERVAL);
        }
    }

    #[inline]
    fn end_turn(&mut self, now: Time) -> Option<Time> {
        if self.close_unused_at.is_none() && self.site.cache_usage().1 > 0 {
            self.close_unused_at = Some(now + CLOSE_INTERVAL);
        }
        self.close_unused_at
    }
}
