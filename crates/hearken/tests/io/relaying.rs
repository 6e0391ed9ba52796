//! Relaying. Of each hop, one instance has both ends, and another what is between: that it neither
//! receives more than it may, nor hears twice how it ended, `Checked` asserts.

use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hearken::Token;
use hearken::io::{Io, ListenOptions};
use rustix::net::{SendFlags, send};

use crate::Case;
use crate::net::{Kind, LONG, Net, Random, Relayed, between, both, loopback, pattern};

/// More than there is.
const ALL: u64 = u64::MAX;

/// Two connections, of which the one sends what the other is to receive.
pub(crate) struct Hop<I: Io> {
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
    before: u64,
}

impl<I: Io> Hop<I> {
    pub(crate) fn new(case: &Case<'_, I>) -> Hop<I> {
        let (mut outer, mut net) = (Net::new(case), Net::new(case));
        let (source, from) = between(&mut outer, &mut net);
        let (to, sink) = between(&mut net, &mut outer);
        Hop { outer, net, source, sink, from, to, left: None, before: 0 }
    }

    /// Over Unix sockets, or into one.
    fn over_unix(case: &Case<'_, I>, both_are: bool) -> Hop<I> {
        let mut hop = Hop::new(case);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = hop.outer.io.listen_unix(&path, 10).unwrap();
        hop.outer.io.start(listener);
        let pair = |hop: &mut Hop<I>, path: &Path| {
            let count = hop.outer.accepted.len();
            let on = hop.net.io.connect_unix(path).unwrap();
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
    fn turn(&mut self, at_most: Duration) -> u64 {
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

    fn settle(&mut self) {
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

/// As many as were asked for, of any number; what follows is received, and sent, as ever.
pub(crate) fn most<I: Io>(case: &Case<'_, I>) {
    let mut hop = Hop::new(case);
    hop.outer.io.start(hop.sink);
    let mut sent = Vec::new();
    let lengths = [0, 1, 500, 16_384, 16_385, 65_536, 100_000, 1_000_000];
    for (round, length) in lengths.into_iter().enumerate() {
        let bytes = pattern(round as u64, length + 1000);
        hop.outer.send(hop.source, &bytes);
        sent.extend_from_slice(&bytes[..length]);
        hop.relay(length as u64);
        assert_eq!(hop.end(), (length as u64, Relayed::Most));
        hop.arrives(&sent);
        hop.net.io.start(hop.from);
        hop.run("what follows is received", |hop| hop.net.seen(hop.from).received.len() >= 1000);
        let received = std::mem::take(&mut hop.net.seen(hop.from).received);
        assert!(received == bytes[length..]);
        hop.net.send(hop.to, b"between");
        sent.extend_from_slice(b"between");
        hop.arrives(&sent);
    }
    hop.run("all is acknowledged", |hop| hop.net.io.delivered(hop.to) == sent.len() as u64);
    assert_eq!(hop.net.io.pool().lent(), 0);
    hop.net.sleeps(case);
}

/// To a sink that does not read: it rests, and loses nothing.
pub(crate) fn slow_sink<I: Io>(case: &Case<'_, I>) {
    for mut hop in [Hop::new(case), Hop::over_unix(case, false), Hop::over_unix(case, true)] {
        let times = if case.share.is_some() { 1 } else { 3 };
        let bytes = (0..times).flat_map(|seed| pattern(seed, LONG)).collect::<Vec<_>>();
        hop.outer.send_body(hop.source, Bytes::from(bytes.clone()));
        hop.relay(bytes.len() as u64);
        let mut moved = 0;
        loop {
            hop.settle();
            let now = hop.net.io.relayed(hop.from);
            if std::mem::replace(&mut moved, now) == now {
                break;
            }
        }
        assert!(moved > 0 && moved < bytes.len() as u64, "{moved}");
        hop.net.sleeps(case);
        assert_eq!(hop.net.io.relayed(hop.from), moved);
        let mut pieces = Random(7);
        let began = Instant::now();
        while hop.outer.seen(hop.sink).received.len() < bytes.len() {
            assert!(began.elapsed() < Duration::from_secs(20), "waited in vain");
            hop.outer.io.start(hop.sink);
            for _ in 0..pieces.up_to(30) {
                hop.outer.turn(Duration::ZERO);
            }
            hop.outer.io.stop(hop.sink);
            hop.turn(Duration::ZERO);
        }
        assert_eq!(hop.end(), (bytes.len() as u64, Relayed::Most));
        assert!(hop.outer.seen(hop.sink).received == bytes);
        assert_eq!(hop.net.io.relayed(hop.from), 0);
    }
}

/// Small messages, each of which arrives though no other follows; it sleeps in between.
pub(crate) fn messages<I: Io>(case: &Case<'_, I>) {
    let mut hop = Hop::new(case);
    hop.outer.io.start(hop.sink);
    hop.relay(ALL);
    hop.settle();
    hop.net.sleeps(case);
    let (mut sent, mut random) = (Vec::new(), Random(1));
    for round in 0..1000 {
        let bytes = pattern(round, random.up_to(300));
        hop.outer.send_now(hop.source, &bytes);
        sent.extend_from_slice(&bytes);
        match random.up_to(5) {
            1 => hop.arrives(&sent),
            2 => drop(hop.turn(Duration::ZERO)),
            3 => drop(hop.outer.turn(Duration::ZERO)),
            _ => {}
        }
        if round % 300 == 0 {
            hop.arrives(&sent);
            hop.net.sleeps(case);
        }
    }
    hop.arrives(&sent);
    assert_eq!(hop.net.io.relayed(hop.from) + hop.before, sent.len() as u64);
    assert!(hop.net.seen(hop.from).relayed.is_empty());
}

/// An end, with the last bytes or later, is told when all before it is moved, and is the last.
pub(crate) fn end<I: Io>(case: &Case<'_, I>) {
    for length in [0, 1, 70_000, LONG] {
        for (later, begun) in [(true, true), (false, true), (false, false)] {
            let mut hop = Hop::new(case);
            hop.outer.io.start(hop.sink);
            let bytes = pattern(4, length);
            if begun {
                hop.relay(ALL);
                hop.settle();
            }
            hop.outer.send_body(hop.source, Bytes::from(bytes.clone()));
            if length < LONG || begun {
                hop.run("it is sent", |hop| !hop.outer.seen(hop.source).sent.is_empty());
                if later {
                    hop.arrives(&bytes);
                    hop.settle();
                    hop.net.sleeps(case);
                }
                hop.outer.io.shutdown(hop.source);
            }
            if !begun {
                hop.relay(if length < LONG { ALL } else { length as u64 });
                hop.run("it is sent", |hop| !hop.outer.seen(hop.source).sent.is_empty());
                let how = if length < LONG { Relayed::End } else { Relayed::Most };
                assert_eq!(hop.end(), (length as u64, how));
                continue;
            }
            assert_eq!(hop.end(), (length as u64, Relayed::End));
            assert!(!hop.net.io.relay(hop.from, hop.to, ALL), "nothing more is received");
            hop.net.io.start(hop.from);
            hop.settle();
            hop.net.sleeps(case);
            hop.net.send(hop.to, b"tail");
            hop.net.sends(hop.to, 1);
            hop.net.io.shutdown(hop.to);
            hop.run("the end is met", |hop| hop.outer.seen(hop.sink).ended);
            hop.arrives(&[&bytes[..], b"tail"].concat());
        }
    }
}

/// A reset of either side ends it, at any point.
pub(crate) fn reset<I: Io>(case: &Case<'_, I>) {
    for stage in 0..4 {
        for of_the_source in [true, false] {
            let mut hop = Hop::new(case);
            if stage < 3 {
                hop.outer.io.start(hop.sink);
            }
            hop.relay(ALL);
            match stage {
                0 => {}
                1 => hop.settle(),
                2 => {
                    hop.outer.send(hop.source, b"first");
                    hop.arrives(b"first");
                }
                _ => {
                    for seed in 0..2 {
                        hop.outer.send_body(hop.source, Bytes::from(pattern(seed, LONG)));
                    }
                    hop.settle();
                }
            }
            if of_the_source {
                hop.outer.io.abort(hop.source);
                if stage == 3 {
                    hop.outer.io.start(hop.sink);
                }
                let (_, how) = hop.end();
                assert_eq!(how, Relayed::ReceiveFailed(ErrorKind::ConnectionReset));
                assert!(!hop.net.io.relay(hop.from, hop.to, 1));
                let before = hop.outer.seen(hop.sink).received.len();
                hop.net.send(hop.to, b"still there");
                hop.run("it is", |hop| {
                    hop.outer.seen(hop.sink).received.len() >= before + b"still there".len()
                });
            } else {
                hop.outer.io.abort(hop.sink);
                hop.settle();
                if stage < 3 {
                    hop.outer.send(hop.source, b"to nobody");
                }
                let (_, how) = hop.end();
                let gone = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
                assert!(gone.map(Relayed::SendFailed).contains(&how), "{how:?} at stage {stage}");
            }
            hop.net.io.close(hop.from);
            hop.net.io.close(hop.to);
            hop.settle();
            hop.net.sleeps(case);
        }
    }
}

/// Closing either side ends it: without a word, or as a failed send; and the other one is as good as
/// before.
pub(crate) fn closed<I: Io>(case: &Case<'_, I>) {
    for stage in 0..4 {
        for (the_source, abort) in [(true, false), (true, true), (false, false), (false, true)] {
            let mut hop = Hop::new(case);
            if stage < 3 {
                hop.outer.io.start(hop.sink);
            }
            hop.relay(ALL);
            match stage {
                0 => {}
                1 => hop.settle(),
                2 => {
                    hop.outer.send(hop.source, b"first");
                    hop.arrives(b"first");
                    hop.settle();
                }
                _ => {
                    for seed in 0..3 {
                        hop.outer.send_body(hop.source, Bytes::from(pattern(seed, LONG)));
                    }
                    hop.settle();
                }
            }
            let on = if the_source { hop.from } else { hop.to };
            if abort {
                hop.net.io.abort(on);
            } else {
                hop.net.io.close(on);
            }
            assert_eq!(hop.net.io.relayed(hop.from), 0);
            // Its number may come back meanwhile.
            let (other, another) = between(&mut hop.outer, &mut hop.net);
            hop.net.io.start(another);
            hop.outer.send(other, b"other");
            both(&mut hop.outer, &mut hop.net, "the other is heard", |_, net| {
                net.seen(another).received == b"other"
            });
            if the_source {
                hop.outer.io.start(hop.sink);
                let told = hop.outer.seen(hop.sink).received.len();
                hop.net.send(hop.to, b"still there");
                hop.run("it is", |hop| {
                    let received = &hop.outer.seen(hop.sink).received;
                    received.len() > told && received.ends_with(b"still there")
                });
                assert!(hop.net.seen(hop.from).relayed.is_empty());
                // And can be relayed to.
                hop.source = other;
                hop.from = another;
                hop.net.seen(another).received.clear();
                hop.outer.seen(hop.sink).received.clear();
                hop.relay(5);
                hop.outer.send(other, b"again");
                assert_eq!(hop.end(), (5, Relayed::Most));
                hop.arrives(b"again");
            } else {
                let (_, how) = hop.end();
                assert_eq!(how, Relayed::SendFailed(ErrorKind::NotConnected));
                hop.net.seen(hop.from).received.clear();
                hop.net.io.start(hop.from);
                hop.outer.send(hop.source, b"the rest");
                hop.run("it is received from", |hop| {
                    hop.net.seen(hop.from).received.ends_with(b"the rest")
                });
                assert!(hop.net.seen(hop.from).relayed.is_empty());
                // And can be relayed from.
                hop.net.seen(hop.from).received.clear();
                (hop.to, hop.sink) = (another, other);
                hop.outer.io.start(other);
                hop.relay(5);
                hop.outer.send(hop.source, b"again");
                assert_eq!(hop.end(), (5, Relayed::Most));
                hop.arrives(b"again");
            }
        }
    }
}

/// A tunnel: both ways at once between two connections, each with its own pace, and ends.
pub(crate) fn tunnel<I: Io>(case: &Case<'_, I>) {
    let Hop { mut outer, mut net, source, from, sink, to, .. } = Hop::new(case);
    let (outer, net) = (&mut outer, &mut net);
    let ends = [(source, from), (sink, to)];
    for (way, (near, far)) in [(from, to), (to, from)].into_iter().enumerate() {
        assert!(net.io.relay(near, far, ALL), "{way}");
        assert!(!net.io.relay(near, far, ALL), "twice");
    }
    let mut sent = [Vec::new(), Vec::new()];
    let mut random = Random(5);
    let lengths = [1, 200, 20_000, 300_000];
    for round in 0..60 {
        let way = random.up_to(2) - 1;
        let longest = lengths[random.up_to(4) - 1];
        let bytes = pattern(round, random.up_to(longest));
        outer.send(ends[way].0, &bytes);
        sent[way].extend_from_slice(&bytes);
        match random.up_to(6) {
            1 => outer.io.start(ends[way].0),
            2 => outer.io.stop(ends[way].0),
            3 => drop(outer.turn(Duration::ZERO)),
            4 => drop(net.turn(Duration::ZERO)),
            5 => {
                net.wait(Duration::ZERO);
                net.next();
            }
            _ => {}
        }
    }
    for (end, _) in ends {
        outer.io.start(end);
    }
    both(outer, net, "all arrives", |outer, _| {
        outer.seen(ends[1].0).received.len() >= sent[0].len()
            && outer.seen(ends[0].0).received.len() >= sent[1].len()
    });
    assert!(outer.seen(ends[1].0).received == sent[0]);
    assert!(outer.seen(ends[0].0).received == sent[1]);
    net.sleeps(case);
    // One way ends, and the other goes on.
    outer.io.shutdown(ends[0].0);
    both(outer, net, "it ends", |_, net| !net.seen(ends[0].1).relayed.is_empty());
    assert_eq!(net.seen(ends[0].1).relayed, [(sent[0].len() as u64, Relayed::End)]);
    net.io.shutdown(ends[1].1);
    both(outer, net, "the end is met", |outer, _| outer.seen(ends[1].0).ended);
    outer.send(ends[1].0, b"last words");
    sent[1].extend_from_slice(b"last words");
    both(outer, net, "it goes on", |outer, _| {
        outer.seen(ends[0].0).received.len() == sent[1].len()
    });
    outer.io.shutdown(ends[1].0);
    both(outer, net, "it ends", |_, net| !net.seen(ends[1].1).relayed.is_empty());
    assert_eq!(net.seen(ends[1].1).relayed, [(sent[1].len() as u64, Relayed::End)]);
    net.sleeps(case);
}

/// Where there can be no relay it says so, and nothing has changed.
pub(crate) fn refused<I: Io>(case: &Case<'_, I>) {
    let mut hop = Hop::new(case);
    let (from, to) = (hop.from, hop.to);
    let connecting = hop.net.io.connect(hop.outer.addr, None).unwrap();
    let listener = hop.net.listener;
    let dead = hop.net.io.connect(hop.outer.addr, None).unwrap();
    hop.net.io.close(dead);
    hop.net.io.start(from);
    for other in [connecting, listener, dead] {
        assert!(!hop.net.io.relay(from, other, 10));
        assert!(!hop.net.io.relay(other, to, 10));
        assert_eq!(hop.net.io.relayed(other), 0);
    }
    assert!(!hop.net.io.relay(from, from, 10));
    hop.outer.send(hop.source, b"data");
    hop.run("it is received", |hop| hop.net.seen(hop.from).received == b"data");
    hop.net.seen(from).received.clear();
    hop.relay(ALL);
    hop.run("it is connected", |hop| hop.net.seen(connecting).connected.is_some());
    assert!(!hop.net.io.relay(connecting, to, 10), "two of them");
    assert!(!hop.net.io.relay(from, connecting, 10), "two of them");
    hop.outer.io.start(hop.sink);
    hop.outer.send(hop.source, b"data");
    hop.arrives(b"data");
}

/// Behind all that was sent before, of which some may wait.
pub(crate) fn behind_sends<I: Io>(case: &Case<'_, I>) {
    let mut hop = Hop::new(case);
    let (first, second) = (pattern(1, LONG), pattern(2, 200_000));
    hop.net.send_body(hop.to, Bytes::from(first.clone()));
    hop.net.send(hop.to, b"more");
    hop.outer.send(hop.source, &second);
    hop.relay(second.len() as u64);
    hop.settle();
    hop.net.sleeps(case);
    assert_eq!(hop.net.io.relayed(hop.from), 0);
    hop.outer.io.start(hop.sink);
    assert_eq!(hop.end(), (second.len() as u64, Relayed::Most));
    hop.arrives(&[&first[..], b"more", &second].concat());
    assert_eq!(hop.net.seen(hop.to).sent, [Ok(()), Ok(())]);

    // One that fails.
    let mut hop = Hop::new(case);
    hop.net.send_body(hop.to, Bytes::from(first));
    hop.relay(10);
    hop.settle();
    hop.outer.io.abort(hop.sink);
    let (moved, how) = hop.end();
    assert_eq!(moved, 0);
    assert!(matches!(how, Relayed::SendFailed(_)), "{how:?}");
}

/// Deadlines of both go on, and tell whether anything was moved meanwhile.
pub(crate) fn deadlines<I: Io>(case: &Case<'_, I>) {
    let mut hop = Hop::new(case);
    hop.outer.io.start(hop.sink);
    hop.relay(ALL);
    let (from, to) = (hop.from, hop.to);
    let mut sent = Vec::new();
    for round in 1..5 {
        let before = hop.net.io.relayed(from);
        let after = Duration::from_millis(2 + round);
        hop.net.io.set_deadline(from, Some(hop.net.io.now() + after));
        hop.net.io.set_deadline(to, Some(hop.net.io.now() + after));
        if round % 2 == 0 {
            hop.outer.send(hop.source, &pattern(round, 20_000));
            sent.extend_from_slice(&pattern(round, 20_000));
            hop.arrives(&sent);
        }
        hop.run("they come", |hop| {
            let come = |hop: &mut Hop<I>, on| hop.net.seen(on).deadlines as u64 == round;
            come(hop, from) && come(hop, to)
        });
        assert_eq!(hop.net.io.relayed(from) - before, 20_000 * u64::from(round % 2 == 0));
    }
    // In a flood.
    let bytes = pattern(6, LONG);
    hop.outer.send_body(hop.source, Bytes::from(bytes.clone()));
    hop.net.io.set_deadline(from, Some(hop.net.io.now()));
    sent.extend_from_slice(&bytes);
    hop.arrives(&sent);
    assert_eq!(hop.net.seen(from).deadlines, 5);
    // It ends a relay that rests.
    hop.net.io.set_deadline(from, Some(hop.net.io.now()));
    hop.net.drive("it comes", |net, on, kind| {
        if kind == Kind::Deadline {
            net.io.close(on);
        }
        kind == Kind::Deadline
    });
    hop.settle();
    hop.net.sleeps(case);
}

/// Who relays without end keeps nobody else from being served.
pub(crate) fn fair<I: Io>(case: &Case<'_, I>) {
    let mut hop = Hop::new(case);
    let (asker, other) = between(&mut hop.outer, &mut hop.net);
    hop.net.io.start(other);
    hop.outer.io.start(hop.sink);
    for seed in 0..4 {
        hop.outer.send_body(hop.source, Bytes::from(pattern(seed, LONG)));
    }
    hop.relay(ALL);
    for _ in 0..3 {
        hop.outer.turn(Duration::ZERO);
        hop.net.turn(Duration::ZERO);
    }
    hop.outer.send(asker, b"request");
    hop.run("it is heard", |hop| !hop.net.seen(other).received.is_empty());
    assert!(hop.net.io.relayed(hop.from) < 4 * LONG as u64, "the other was not served");
}

/// What was under way when it was asked for comes before it, and is none of it; whatever was received,
/// started and stopped before.
pub(crate) fn after_receiving<I: Io>(case: &Case<'_, I>) {
    let mut hop = Hop::new(case);
    hop.outer.io.start(hop.sink);
    let (mut sent, mut random) = (Vec::new(), Random(3));
    for round in 0..40 {
        let length = 200 + random.up_to(50_000);
        let bytes = pattern(round, length + 100);
        hop.outer.send(hop.source, &bytes[..100]);
        hop.net.io.start(hop.from);
        hop.run("a head is received", |hop| hop.net.seen(hop.from).received.len() >= 100);
        let head = std::mem::take(&mut hop.net.seen(hop.from).received);
        assert_eq!(head, bytes[..100]);
        hop.outer.send(hop.source, &bytes[100..]);
        for _ in 0..random.up_to(3) - 1 {
            hop.outer.turn(Duration::ZERO);
        }
        if round % 2 == 0 {
            hop.net.io.stop(hop.from);
        }
        hop.relay(length as u64);
        hop.net.io.start(hop.from);
        hop.net.io.stop(hop.from);
        assert_eq!(hop.end(), (length as u64, Relayed::Most), "in round {round}");
        sent.extend_from_slice(&bytes[100..]);
        hop.arrives(&sent);
        hop.net.seen(hop.from).received.clear();
    }
}

/// Nothing is lost where each turn is left after one completion, and others are there.
pub(crate) fn one_at_a_time<I: Io>(case: &Case<'_, I>) {
    let mut hops: Vec<_> = Vec::new();
    let mut hop = Hop::new(case);
    for seed in 0..5 {
        let (source, from) = between(&mut hop.outer, &mut hop.net);
        let (to, sink) = between(&mut hop.net, &mut hop.outer);
        hop.outer.io.start(sink);
        let bytes = pattern(seed, 200_000);
        hop.outer.send_body(source, Bytes::from(bytes.clone()));
        assert!(hop.net.io.relay(from, to, 150_000));
        hops.push((from, sink, bytes));
    }
    let began = Instant::now();
    while !hops.iter().all(|(_, sink, _)| hop.outer.seen(*sink).received.len() >= 150_000) {
        assert!(began.elapsed() < Duration::from_secs(20), "waited in vain");
        hop.outer.turn(Duration::ZERO);
        hop.net.wait(Duration::ZERO);
        hop.net.next();
    }
    for (from, sink, bytes) in &hops {
        assert!(hop.outer.seen(*sink).received == bytes[..150_000]);
        hop.run("it is told", |hop| !hop.net.seen(*from).relayed.is_empty());
        assert_eq!(hop.net.seen(*from).relayed, [(150_000, Relayed::Most)]);
        hop.net.io.start(*from);
        let rest = &bytes[150_000..];
        hop.run("the rest", |hop| hop.net.seen(*from).received.len() == rest.len());
        assert!(hop.net.seen(*from).received == rest);
    }
}

/// Urgent data, which splice(2) does not come past, is left out, as it is of what is received.
pub(crate) fn urgent<I: Io>(case: &Case<'_, I>) {
    let mut hop = Hop::new(case);
    hop.outer.io.start(hop.sink);
    let listener = hop.net.io.listen(loopback(), &ListenOptions::default()).unwrap();
    hop.net.io.start(listener);
    let mut client = TcpStream::connect(hop.net.io.local_addr(listener).unwrap()).unwrap();
    let count = hop.net.accepted.len();
    hop.run("it is accepted", |hop| hop.net.accepted.len() > count);
    hop.from = hop.net.accepted[count];
    let mut sent = Vec::new();
    hop.relay(ALL);
    for length in [10, 100_000] {
        for round in 0..3 {
            let bytes = pattern(round, length);
            client.write_all(&bytes).unwrap();
            send(&client, b"!", SendFlags::OOB).unwrap();
            sent.extend_from_slice(&bytes);
            hop.arrives(&sent);
            hop.net.sleeps(case);
        }
    }
    client.write_all(b"tail").unwrap();
    sent.extend_from_slice(b"tail");
    hop.arrives(&sent);
}
