//! A relay between two connections: one instance has the outer ends, and another one relays.

use std::path::Path;
use std::time::{Duration, Instant};

use hearken::Token;
use hearken::io::{Io, ListenOptions, Relay};

use crate::Case;
use crate::net::{Net, PATIENCE, Relayed, between};

/// Two connections: the relay receives from the first and sends to the second.
pub(crate) struct Hop<I: Relay> {
    /// The instance with the outer ends.
    pub(crate) outer: Net<I>,
    /// The instance that relays.
    pub(crate) net: Net<I>,
    /// The outer end that sends.
    pub(crate) source: Token,
    /// The outer end that receives.
    pub(crate) sink: Token,
    /// The connection that the relay receives from.
    pub(crate) from: Token,
    /// The connection that the relay sends to.
    pub(crate) to: Token,
    /// Number of bytes that the relay still has to move; `None` without a relay.
    left: Option<u64>,
    /// Number of bytes that were received before the relay started, and sent without it.
    pub(crate) before: u64,
}

impl<I: Relay> Hop<I> {
    pub(crate) fn new(case: &Case<'_, I>) -> Hop<I> {
        let (mut outer, mut net) = (Net::new(case), Net::new(case));
        let (source, from) = between(&mut outer, &mut net);
        let (to, sink) = between(&mut net, &mut outer);
        Hop { outer, net, source, sink, from, to, left: None, before: 0 }
    }

    /// Creates a hop whose target, and optionally source, is a Unix socket.
    pub(crate) fn over_unix(case: &Case<'_, I>, both_are: bool) -> Hop<I> {
        let mut hop = Hop::new(case);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener =
            hop.outer.io.listen(&path.as_path().into(), &ListenOptions::default()).unwrap();
        hop.outer.io.start(listener);
        let pair = |hop: &mut Hop<I>, path: &Path| {
            let count = hop.outer.accepted.len();
            let token = hop.net.io.connect(&path.into(), None).unwrap();
            hop.run("it is made", |hop| hop.outer.accepted.len() > count);
            (token, hop.outer.accepted[count])
        };
        (hop.to, hop.sink) = pair(&mut hop, &path);
        if both_are {
            (hop.from, hop.source) = pair(&mut hop, &path);
        }
        hop
    }

    /// Starts a relay of `max` bytes.
    pub(crate) fn relay(&mut self, max: u64) {
        assert!(self.net.io.relay(self.from, self.to, max), "the relay is refused");
        self.left = Some(max);
        self.before = 0;
    }

    /// Records that the relay was cancelled.
    pub(crate) fn cancel(&mut self) {
        self.left = None;
    }

    /// Runs turns of both instances until `done` returns true.
    pub(crate) fn run(&mut self, what: &str, mut done: impl FnMut(&mut Hop<I>) -> bool) {
        let began = Instant::now();
        while !done(self) {
            assert!(began.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
            let outer = self.outer.turn(Duration::ZERO);
            if outer + self.turn(Duration::ZERO) == 0 {
                self.turn(Duration::from_millis(1));
            }
        }
    }

    /// Runs a turn. Sends bytes that were received before the relay, and restarts the relay.
    pub(crate) fn turn(&mut self, at_most: Duration) -> u64 {
        let completions = self.net.turn(at_most);
        let came = std::mem::take(&mut self.net.seen(self.from).received);
        if let Some(left) = self.left
            && !came.is_empty()
        {
            self.net.send_now(self.to, &came);
            self.before += came.len() as u64;
            let left = left - came.len() as u64;
            self.left = Some(left);
            let seen = self.net.seen(self.from);
            if !seen.ended && seen.failed.is_none() {
                assert!(self.net.io.relay(self.from, self.to, left), "the relay is refused");
            }
        } else {
            self.net.seen(self.from).received = came;
        }
        completions
    }

    pub(crate) fn run_until_idle(&mut self) {
        for _ in 0..3 {
            self.outer.run_until_idle();
            self.net.run_until_idle();
        }
    }

    /// Runs turns until the relay has ended. Returns the number of bytes that it moved, including
    /// those before it, and the reason for its end.
    pub(crate) fn wait_for_end(&mut self) -> (u64, Relayed) {
        self.run("the relay ends", |hop| {
            let seen = hop.net.seen(hop.from);
            !seen.relayed.is_empty() || seen.ended || seen.failed.is_some()
        });
        self.left = None;
        let seen = self.net.seen(self.from);
        match seen.relayed.pop() {
            Some((moved, reason)) => (moved + self.before, reason),
            None if seen.ended => (self.before, Relayed::End),
            None => (self.before, Relayed::ReceiveFailed(seen.failed.unwrap())),
        }
    }

    /// Runs turns until the sink has received as many bytes as `bytes`, and checks them.
    pub(crate) fn expect_at_sink(&mut self, bytes: &[u8]) {
        self.run("the sink receives all bytes", |hop| {
            hop.outer.seen(hop.sink).received.len() >= bytes.len()
        });
        let received = &self.outer.seen(self.sink).received;
        assert!(received == bytes, "{} different bytes arrive", received.len());
    }
}

/// Maximum number of bytes of a relay without a limit.
pub(crate) const ALL: u64 = u64::MAX;
