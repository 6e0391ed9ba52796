//! Receiving, its ends, and the pool.

use std::io::ErrorKind;
use std::time::Duration;

use bytes::Bytes;
use hearken::io::{Buffer, Io};

use crate::Case;
use crate::net::{Kind, LONG, Net, Random, file, part, pattern};

pub(crate) fn one_byte<I: Io>(case: &Case<'_, I>) {
    stream(case, 1, 1);
}

pub(crate) fn one_kibibyte<I: Io>(case: &Case<'_, I>) {
    stream(case, 1 << 10, 100);
}

pub(crate) fn one_mebibyte<I: Io>(case: &Case<'_, I>) {
    stream(case, 1 << 20, 100_000);
}

/// What is sent is received in its order, both ways at once, however it is cut.
fn stream<I: Io>(case: &Case<'_, I>, length: usize, piece: usize) {
    let mut net = Net::new(case);
    let (a, b) = net.started_pair();
    let ways = [(a, b, pattern(1, length)), (b, a, pattern(2, length))];
    for (seed, (from, _, bytes)) in ways.iter().enumerate() {
        let mut random = Random(seed as u64);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (now, later) = rest.split_at(random.up_to(piece).min(rest.len()));
            net.send(*from, now);
            rest = later;
            if random.up_to(3) == 1 {
                net.turn(Duration::ZERO);
            }
        }
    }
    for (_, to, bytes) in &ways {
        net.receives(*to, bytes);
    }
}

/// What an accepted connection is sent before it is started waits.
pub(crate) fn nothing_before_start<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (from, to) = net.pair();
    let bytes = pattern(3, 5000);
    net.send(from, &bytes);
    net.settle();
    assert_eq!(net.seen(to).received.len(), 0);
    net.io.start(to);
    net.receives(to, &bytes);
}

/// All the buffers there are.
fn exhaust<I: Io>(net: &Net<I>) -> Vec<Buffer> {
    std::iter::from_fn(|| net.io.pool().lend()).collect()
}

/// Where no buffer can be lent nothing is received; when one comes back receiving goes on, of all
/// connections that wait.
pub(crate) fn pool_exhausted<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let bytes = pattern(4, 2000);
    let pairs: Vec<_> = (0..5).map(|_| net.started_pair()).collect();
    let mut lent = exhaust(&net);
    net.send(pairs[4].0, &bytes);
    for round in 1..4 {
        for &(from, _) in &pairs[..4] {
            net.send(from, &bytes);
        }
        net.settle();
        for &(_, to) in &pairs[..4] {
            assert_eq!(net.seen(to).received.len(), (round - 1) * bytes.len());
        }
        net.sleeps(case);
        // While they wait, one stops and goes on, and one is closed.
        net.io.stop(pairs[1].1);
        net.turn(Duration::ZERO);
        net.io.start(pairs[1].1);
        net.io.close(pairs[4].1);

        lent.pop();
        for &(_, to) in &pairs[..4] {
            net.receives(to, &bytes.repeat(round));
        }
        lent.extend(exhaust(&net));
    }
    // Receivers that hold what they were given are the same to it.
    drop(lent);
    net.settle();
    net.hold = true;
    let rest = net.io.pool().lend(); // One fewer.
    let (from, to) = pairs[0];
    let more = pattern(5, net.io.pool().size() * 10);
    net.send(from, &more);
    let all = [bytes.repeat(3), more].concat();
    net.run("it goes on with each that comes back", |net| {
        net.held.pop();
        net.seen(to).received.len() == all.len()
    });
    net.held.clear();
    drop(rest);
    net.receives(to, &all);
    assert_eq!(net.io.pool().lent(), 0);
}

/// Those that wait for a buffer get one in turn.
pub(crate) fn buffers_go_round<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let pairs = [net.started_pair(), net.started_pair(), net.started_pair()];
    let mut lent = exhaust(&net);
    let bytes = pattern(9, 8 * net.io.pool().size());
    for (from, _) in pairs {
        net.send(from, &bytes);
        net.sends(from, 1);
    }
    net.settle();
    net.hold = true;
    lent.pop();
    for _ in 0..4 * pairs.len() {
        net.drive("a piece is received", |_, _, kind| matches!(kind, Kind::Received(_)));
        net.settle();
        net.held.clear();
    }
    for (_, to) in pairs {
        let pieces = net.seen(to).pieces;
        assert!(pieces >= 2, "{pieces} of {}", 4 * pairs.len());
    }
}

/// A connection that waits for a buffer goes on sending.
pub(crate) fn pool_exhausted_while_sending<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (from, to) = net.started_pair();
    let lent = exhaust(&net);
    net.send(from, b"request");
    net.settle();
    assert_eq!(net.seen(to).received.len(), 0);
    // More than a turn's share, of which the other side, having no buffer, takes nothing.
    let bytes = pattern(6, 3 << 20);
    let length = bytes.len() as u64;
    net.send_with(to, &[], part(&file(&bytes[..60_000]), 0, 60_000));
    net.sends(to, 1);
    net.send_with(to, &[], part(&file(&bytes), 60_000, length - 60_000));
    drop(lent);
    net.receives(from, &bytes);
    net.receives(to, b"request");
}

/// Nobody owns a buffer for whom there are no bytes.
pub(crate) fn idle_owns_nothing<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let pairs: Vec<_> = (0..10).map(|_| net.started_pair()).collect();
    for &(from, to) in &pairs {
        net.send(from, b"request");
        net.receives(to, b"request");
        net.send(to, b"response");
        net.receives(from, b"response");
    }
    net.settle();
    assert_eq!(net.io.pool().lent(), 0);
    net.sleeps(case);
}

/// What is sent while the receiver is stopped comes when it is started, all of it.
pub(crate) fn stopped<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (from, to) = net.started_pair();
    let mut all = Vec::new();
    for round in 0..4 {
        let bytes = pattern(round, 1 << (4 * round));
        net.io.stop(to);
        net.settle(); // What was under way.
        net.send(from, &bytes);
        net.settle();
        assert!(net.seen(to).received == all, "received while stopped");
        net.sleeps(case);
        net.io.start(to);
        if round == 2 {
            // Changes of mind within a turn.
            net.io.stop(to);
            net.io.start(to);
            net.io.start(to);
        }
        all.extend_from_slice(&bytes);
        net.receives(to, &all);
    }
}

/// Stopped at each piece, by whom it was just given, a connection gives no more, and loses nothing.
pub(crate) fn stopped_at_each_piece<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (from, to) = net.started_pair();
    let bytes = pattern(7, net.io.pool().size() * 7 + 1);
    net.send(from, &bytes);
    net.sends(from, 1);
    net.io.shutdown(from);
    let mut pieces = 0;
    net.drive("the end is met", |net, on, kind| {
        if on == to && matches!(kind, Kind::Received(_)) {
            pieces += 1;
            net.io.stop(to);
            if pieces % 3 == 0 {
                net.settle();
                // What was under way is here.
                let before = net.seen(to).received.len();
                net.turn(Duration::ZERO);
                assert_eq!(net.seen(to).received.len(), before);
            }
            net.io.start(to);
        }
        net.seen(to).ended
    });
    assert!(net.seen(to).received == bytes);
}

/// An end that comes together with data comes after it, once.
pub(crate) fn end_with_the_data<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    for (seed, length) in [1, 63, 64, 65, 1000, 16_384, 70_000].into_iter().enumerate() {
        let (from, to) = net.pair();
        // Before the receiver is started, while it waits, or in the same turn.
        if seed % 3 == 1 {
            net.io.start(to);
            net.settle();
        }
        let bytes = pattern(seed as u64, length);
        net.send(from, &bytes);
        net.sends(from, 1);
        net.io.shutdown(from);
        if seed % 3 == 2 {
            net.settle();
        }
        net.io.start(to);
        net.ends(to, &bytes);
    }
}

/// An end that comes after the data was received.
pub(crate) fn end_later<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (from, to) = net.started_pair();
    net.send(from, b"data");
    net.receives(to, b"data");
    net.settle();
    net.io.shutdown(from);
    net.ends(to, b"data");
}

/// An end that comes while the receiver is stopped.
pub(crate) fn end_while_stopped<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (from, to) = net.started_pair();
    net.send(from, b"some");
    net.receives(to, b"some");
    net.io.stop(to);
    net.settle();
    net.send(from, b" more");
    net.settle();
    net.io.shutdown(from);
    net.settle();
    assert!(!net.seen(to).ended);
    net.sleeps(case);
    net.io.start(to);
    net.ends(to, b"some more");
}

/// An end without data, with the other side closed even.
pub(crate) fn end_only<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (from, to) = net.started_pair();
    net.io.shutdown(from);
    net.ends(to, b"");
    let (from, to) = net.pair();
    net.io.close(from);
    net.settle();
    net.io.start(to);
    net.ends(to, b"");
}

/// After the end there is no other, though it be started again.
pub(crate) fn end_is_final<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (from, to) = net.started_pair();
    net.io.shutdown(from);
    net.ends(to, b"");
    for _ in 0..3 {
        net.io.start(to);
        net.settle(); // A second end would be found by Checked.
        net.io.stop(to);
    }
    net.io.start(to);
    net.sleeps(case);
    // Nor after a failure.
    let (from, to) = net.started_pair();
    net.io.abort(from);
    net.run("it is reset", |net| net.seen(to).failed.is_some());
    net.io.start(to);
    net.settle();
    assert!(!net.seen(to).ended);
}

/// A peer that has ended its side is sent all of a long answer, though it reads slowly.
pub(crate) fn half_closed_is_served<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (from, to) = net.pair();
    net.io.start(to);
    net.send(from, b"request");
    net.sends(from, 1);
    net.io.shutdown(from);
    net.ends(to, b"request");
    let bytes = Bytes::from(pattern(8, LONG));
    net.send_body(to, bytes.clone());
    net.settle();
    net.sleeps(case);
    net.io.start(from);
    net.run("all is received, in portions", |net| {
        net.io.stop(from);
        net.turn(Duration::ZERO);
        net.io.start(from);
        net.seen(from).received.len() == bytes.len()
    });
    assert!(net.seen(from).received == bytes);
    net.sends(to, 1);
    net.io.shutdown(to);
    net.ends(from, &bytes);
}

/// A reset fails receiving, once.
pub(crate) fn reset<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (from, to) = net.started_pair();
    net.settle();
    net.io.abort(from);
    net.run("it is reset", |net| net.seen(to).failed.is_some());
    assert_eq!(net.seen(to).failed, Some(ErrorKind::ConnectionReset));
    net.settle();
    assert!(!net.seen(to).ended);
}

/// A reset that comes while the receiver is stopped.
pub(crate) fn reset_while_stopped<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (from, to) = net.started_pair();
    net.io.stop(to);
    net.settle();
    net.io.abort(from);
    net.settle();
    assert_eq!(net.seen(to).failed, None);
    net.sleeps(case);
    net.io.start(to);
    net.run("it is reset", |net| net.seen(to).failed.is_some());
    assert_eq!(net.seen(to).failed, Some(ErrorKind::ConnectionReset));
}
