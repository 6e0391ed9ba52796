//! A relay between two connections: one instance has both ends, and another what is between.

use std::path::Path;
use std::time::{Duration, Instant};

use hearken::Token;
use hearken::io::{Io, ListenOptions, Relay};

use crate::Case;
use crate::net::{Net, Relayed, between};

/// Two connections, of which the one sends what the other is to receive.
pub(crate) struct Hop<I: Relay> {
    pub(crate) outer: Net<I>,
    pub(crate) net: Net<I>,
    /// Of the outer one.
    pub(crate) source: Token,
    pub(crate) sink: Token,
    /// Of that between.
    pub(crate) from: Token,
    pub(crate) to: Token,
    /// What is still to be relayed, if it is, and what was before it began.
    left: Option<u64>,
    pub(crate) before: u64,
}

impl<I: Relay> Hop<I> {
    pub(crate) fn new(case: &Case<'_, I>) -> Hop<I> {
        let (mut outer, mut net) = (Net::new(case), Net::new(case));
        let (source, from) = between(&mut outer, &mut net);
        let (to, sink) = between(&mut net, &mut outer);
        Hop { outer, net, source, sink, from, to, left: None, before: 0 }
    }

    /// Over Unix sockets, or into one.
    pub(crate) fn over_unix(case: &Case<'_, I>, both_are: bool) -> Hop<I> {
        let mut hop = Hop::new(case);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener =
            hop.outer.io.listen(&path.as_path().into(), &ListenOptions::default()).unwrap();
        hop.outer.io.start(listener);
        let pair = |hop: &mut Hop<I>, path: &Path| {
            let count = hop.outer.accepted.len();
            let on = hop.net.io.connect(&path.into(), None).unwrap();
            hop.run("it is made", |hop| hop.outer.accepted.len() > count);
            (on, hop.outer.accepted[count])
        };
        (hop.to, hop.sink) = pair(&mut hop, &path);
        if both_are {
            (hop.from, hop.source) = pair(&mut hop, &path);
        }
        hop
    }

    /// Asks for a relay.
    pub(crate) fn relay(&mut self, most: u64) {
        assert!(self.net.io.relay(self.from, self.to, most), "it is not done");
        self.left = Some(most);
        self.before = 0;
    }

    /// Of a relay that was given up.
    pub(crate) fn forget(&mut self) {
        self.left = None;
    }

    /// Turns of both, until `done`.
    pub(crate) fn run(&mut self, what: &str, mut done: impl FnMut(&mut Hop<I>) -> bool) {
        let began = Instant::now();
        while !done(self) {
            assert!(began.elapsed() < Duration::from_secs(15), "waited in vain: {what}");
            let outer = self.outer.turn(Duration::ZERO);
            if outer + self.turn(Duration::ZERO) == 0 {
                self.turn(Duration::from_millis(1));
            }
        }
    }

    /// A turn, after which what came before the relay is sent, and the relay asked for again.
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
                assert!(self.net.io.relay(self.from, self.to, left), "not again");
            }
        } else {
            self.net.seen(self.from).received = came;
        }
        completions
    }

    pub(crate) fn settle(&mut self) {
        for _ in 0..3 {
            self.outer.settle();
            self.net.settle();
        }
    }

    /// Until the relay has ended: how much it has moved, with what came before it, and how it ended.
    pub(crate) fn end(&mut self) -> (u64, Relayed) {
        self.run("the relay ends", |hop| {
            let seen = hop.net.seen(hop.from);
            !seen.relayed.is_empty() || seen.ended || seen.failed.is_some()
        });
        self.left = None;
        let seen = self.net.seen(self.from);
        match seen.relayed.pop() {
            Some((moved, how)) => (moved + self.before, how),
            None if seen.ended => (self.before, Relayed::End),
            None => (self.before, Relayed::ReceiveFailed(seen.failed.unwrap())),
        }
    }

    /// Until the sink has received just these.
    pub(crate) fn arrives(&mut self, bytes: &[u8]) {
        self.run("it arrives", |hop| hop.outer.seen(hop.sink).received.len() >= bytes.len());
        let received = &self.outer.seen(self.sink).received;
        assert!(received == bytes, "something else arrives: {} B", received.len());
    }
}

/// More than there is.
pub(crate) const ALL: u64 = u64::MAX;
