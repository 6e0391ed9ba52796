//! Relaying: the moved bytes. `Checked` asserts that no relay exceeds its maximum, and that each
//! ends once.

use std::time::{Duration, Instant};

use bytes::Bytes;
use hearken::io::{Io, Relay};

use crate::Case;
use crate::hop::{ALL, Hop};
use crate::net::{LONG, PATIENCE, Random, Relayed, between, both, pattern};

/// Checks that exactly the requested number of bytes is relayed, and that receiving and sending
/// work afterwards.
pub(crate) fn relays_exactly_the_requested_bytes<I: Relay>(case: &Case<'_, I>) {
    let mut hop = Hop::new(case);
    hop.outer.io.start(hop.sink);
    let mut sent = Vec::new();
    let lengths = [0, 1, 500, 65_535, 65_536, 65_537, 140_000, 1_000_000];
    for (round, length) in lengths.into_iter().enumerate() {
        let bytes = pattern(round as u64, length + 1000);
        hop.outer.send(hop.source, &bytes);
        sent.extend_from_slice(&bytes[..length]);
        hop.relay(length as u64);
        assert_eq!(hop.wait_for_end(), (length as u64, Relayed::Complete));
        hop.expect_at_sink(&sent);
        hop.net.io.start(hop.from);
        hop.run("what follows is received", |hop| hop.net.seen(hop.from).received.len() >= 1000);
        let received = std::mem::take(&mut hop.net.seen(hop.from).received);
        assert!(received == bytes[length..]);
        hop.net.send(hop.to, b"between");
        sent.extend_from_slice(b"between");
        hop.expect_at_sink(&sent);
    }
    hop.run("all is acknowledged", |hop| hop.net.io.delivered(hop.to) == sent.len() as u64);
    assert_eq!(hop.net.io.pool().in_use(), 0);
    hop.net.assert_sleeps(case);
}

/// Checks that a relay to a sink that does not read pauses, and loses nothing.
pub(crate) fn slow_sink_pauses_the_relay<I: Relay>(case: &Case<'_, I>) {
    type Make<I> = fn(&Case<'_, I>) -> Hop<I>;
    // With the number of patterns that exceed the capacity of the sockets of both hops.
    let kinds: [(Make<I>, u64); 3] = [
        (Hop::new, 2),
        (|case| Hop::over_unix(case, false), 1),
        (|case| Hop::over_unix(case, true), 1),
    ];
    // A small limit per turn makes relays slow.
    let kinds = if case.turn_bytes.is_some() { &kinds[2..] } else { &kinds };
    for (make, count) in kinds {
        let mut hop = make(case);
        let bytes = (0..*count).flat_map(|seed| pattern(seed, LONG)).collect::<Vec<_>>();
        hop.outer.send_body(hop.source, Bytes::from(bytes.clone()));
        hop.relay(bytes.len() as u64);
        let mut moved = 0;
        loop {
            hop.run_until_idle();
            let now = hop.net.io.relayed(hop.from);
            if std::mem::replace(&mut moved, now) == now {
                break;
            }
        }
        assert!(moved > 0 && moved < bytes.len() as u64, "{moved}");
        hop.net.assert_sleeps(case);
        assert_eq!(hop.net.io.relayed(hop.from), moved);
        assert!(hop.net.io.undelivered(hop.to) > 0, "no bytes wait in the socket");
        assert!(hop.net.io.relay_is_blocked(hop.to) && !hop.net.io.relay_is_blocked(hop.from));
        let mut pieces = Random(7);
        let began = Instant::now();
        while hop.outer.seen(hop.sink).received.len() < bytes.len() {
            assert!(began.elapsed() < PATIENCE, "the sink does not receive all bytes");
            hop.outer.io.start(hop.sink);
            for _ in 0..pieces.up_to(30) {
                hop.outer.turn(Duration::ZERO);
            }
            hop.outer.io.stop(hop.sink);
            hop.turn(Duration::ZERO);
        }
        assert_eq!(hop.wait_for_end(), (bytes.len() as u64, Relayed::Complete));
        assert!(hop.outer.seen(hop.sink).received == bytes);
        assert_eq!(hop.net.io.relayed(hop.from), 0);
        hop.run("all is acknowledged", |hop| hop.net.io.undelivered(hop.to) == 0);
        assert!(!hop.net.io.relay_is_blocked(hop.to));
    }
}

/// Checks that each of many small messages arrives although none follows, and that the relay sleeps
/// in between.
pub(crate) fn each_small_message_arrives<I: Relay>(case: &Case<'_, I>) {
    let mut hop = Hop::new(case);
    hop.outer.io.start(hop.sink);
    hop.relay(ALL);
    hop.run_until_idle();
    hop.net.assert_sleeps(case);
    let (mut sent, mut random) = (Vec::new(), Random(1));
    for round in 0..1000 {
        let bytes = pattern(round, random.up_to(300));
        hop.outer.send_now(hop.source, &bytes);
        sent.extend_from_slice(&bytes);
        match random.up_to(5) {
            1 => hop.expect_at_sink(&sent),
            2 => drop(hop.turn(Duration::ZERO)),
            3 => drop(hop.outer.turn(Duration::ZERO)),
            _ => {}
        }
        if round % 300 == 0 {
            hop.expect_at_sink(&sent);
            hop.net.assert_sleeps(case);
        }
    }
    hop.expect_at_sink(&sent);
    assert_eq!(hop.net.io.relayed(hop.from) + hop.before, sent.len() as u64);
    assert!(hop.net.seen(hop.from).relayed.is_empty());
}

/// Checks relays both ways at once between two connections, and the end of each direction.
pub(crate) fn relays_both_ways_at_once<I: Relay>(case: &Case<'_, I>) {
    let Hop { mut outer, mut net, source, from, sink, to, .. } = Hop::new(case);
    let (outer, net) = (&mut outer, &mut net);
    let ends = [(source, from), (sink, to)];
    for (way, (near, far)) in [(from, to), (to, from)].into_iter().enumerate() {
        assert!(net.io.relay(near, far, ALL), "{way}");
        assert!(!net.io.relay(near, far, ALL), "the second relay is not refused");
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
    net.assert_sleeps(case);
    // One direction ends, and the other continues.
    outer.io.shutdown(ends[0].0);
    both(outer, net, "the relay ends", |_, net| !net.seen(ends[0].1).relayed.is_empty());
    assert_eq!(net.seen(ends[0].1).relayed, [(sent[0].len() as u64, Relayed::End)]);
    net.io.shutdown(ends[1].1);
    both(outer, net, "the end is reported", |outer, _| outer.seen(ends[1].0).ended);
    outer.send(ends[1].0, b"last words");
    sent[1].extend_from_slice(b"last words");
    both(outer, net, "the other direction continues", |outer, _| {
        outer.seen(ends[0].0).received.len() == sent[1].len()
    });
    outer.io.shutdown(ends[1].0);
    both(outer, net, "the relay ends", |_, net| !net.seen(ends[1].1).relayed.is_empty());
    assert_eq!(net.seen(ends[1].1).relayed, [(sent[1].len() as u64, Relayed::End)]);
    net.assert_sleeps(case);
}

/// Checks that a relay follows all previous sends, of which some are pending.
pub(crate) fn relays_behind_pending_sends<I: Relay>(case: &Case<'_, I>) {
    let mut hop = Hop::new(case);
    let (first, second) = (pattern(1, LONG), pattern(2, 200_000));
    hop.net.send_body(hop.to, Bytes::from(first.clone()));
    hop.net.send(hop.to, b"more");
    hop.outer.send(hop.source, &second);
    hop.relay(second.len() as u64);
    hop.run_until_idle();
    hop.net.assert_sleeps(case);
    assert_eq!(hop.net.io.relayed(hop.from), 0);
    hop.outer.io.start(hop.sink);
    assert_eq!(hop.wait_for_end(), (second.len() as u64, Relayed::Complete));
    hop.expect_at_sink(&[&first[..], b"more", &second].concat());
    assert_eq!(hop.net.seen(hop.to).sent, [Ok(()), Ok(())]);

    // Now the send fails.
    let mut hop = Hop::new(case);
    hop.net.send_body(hop.to, Bytes::from(first));
    hop.relay(10);
    hop.run_until_idle();
    hop.outer.io.abort(hop.sink);
    let (moved, reason) = hop.wait_for_end();
    assert_eq!(moved, 0);
    assert!(matches!(reason, Relayed::SendFailed(_)), "{reason:?}");
}

/// Checks that an endless relay does not starve other connections.
pub(crate) fn relay_does_not_starve_other_connections<I: Relay>(case: &Case<'_, I>) {
    let mut hop = Hop::new(case);
    let (requester, other) = between(&mut hop.outer, &mut hop.net);
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
    hop.outer.send(requester, b"request");
    hop.run("the request is received", |hop| !hop.net.seen(other).received.is_empty());
    assert!(hop.net.io.relayed(hop.from) < 4 * LONG as u64, "the other was not served");
}

/// Checks that bytes of the receive in progress precede the relay and do not count, whether the
/// connection was started or stopped before.
pub(crate) fn relays_after_received_bytes<I: Relay>(case: &Case<'_, I>) {
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
        assert_eq!(hop.wait_for_end(), (length as u64, Relayed::Complete), "in round {round}");
        sent.extend_from_slice(&bytes[100..]);
        hop.expect_at_sink(&sent);
        hop.net.seen(hop.from).received.clear();
    }
}

/// Checks that several relays lose nothing if each turn is abandoned after one completion.
pub(crate) fn loses_nothing_with_one_completion_per_turn<I: Relay>(case: &Case<'_, I>) {
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
        assert!(began.elapsed() < PATIENCE, "the sink does not receive all bytes");
        hop.outer.turn(Duration::ZERO);
        hop.net.wait(Duration::ZERO);
        hop.net.next();
    }
    for (from, sink, bytes) in &hops {
        assert!(hop.outer.seen(*sink).received == bytes[..150_000]);
        hop.run("the end of the relay is reported", |hop| !hop.net.seen(*from).relayed.is_empty());
        assert_eq!(hop.net.seen(*from).relayed, [(150_000, Relayed::Complete)]);
        hop.net.io.start(*from);
        let rest = &bytes[150_000..];
        hop.run("the rest is received", |hop| hop.net.seen(*from).received.len() == rest.len());
        assert!(hop.net.seen(*from).received == rest);
    }
}
