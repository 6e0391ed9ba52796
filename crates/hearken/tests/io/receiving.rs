//! Receiving, the end of streams, and the pool.

use std::io::ErrorKind;
use std::time::Duration;

use bytes::Bytes;
use hearken::io::{Buffer, Io};

use crate::Case;
use crate::net::{Kind, LONG, Net, Random, file, part, pattern};

pub(crate) fn one_byte_both_ways<I: Io>(case: &Case<'_, I>) {
    stream(case, 1, 1);
}

pub(crate) fn one_kibibyte_both_ways<I: Io>(case: &Case<'_, I>) {
    stream(case, 1 << 10, 100);
}

pub(crate) fn one_mebibyte_both_ways<I: Io>(case: &Case<'_, I>) {
    stream(case, 1 << 20, 100_000);
}

/// Checks that all bytes are received in order, both ways at once, in pieces of random length.
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
        net.expect_received(*to, bytes);
    }
}

/// Checks that bytes for an accepted connection wait until it is started.
pub(crate) fn receives_nothing_before_start<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (from, to) = net.pair();
    let bytes = pattern(3, 5000);
    net.send(from, &bytes);
    net.run_until_idle();
    assert_eq!(net.seen(to).received.len(), 0);
    net.io.start(to);
    net.expect_received(to, &bytes);
}

/// Takes all buffers of the pool.
fn exhaust<I: Io>(net: &Net<I>) -> Vec<Buffer> {
    std::iter::from_fn(|| net.io.pool().acquire()).collect()
}

/// Checks that nothing is received while the pool is exhausted, and that all waiting connections
/// continue when a buffer is released.
pub(crate) fn resumes_when_a_buffer_returns_to_an_exhausted_pool<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let bytes = pattern(4, 2000);
    let pairs: Vec<_> = (0..5).map(|_| net.started_pair()).collect();
    let mut lent = exhaust(&net);
    net.send(pairs[4].0, &bytes);
    for round in 1..4 {
        for &(from, _) in &pairs[..4] {
            net.send(from, &bytes);
        }
        net.run_until_idle();
        for &(_, to) in &pairs[..4] {
            assert_eq!(net.seen(to).received.len(), (round - 1) * bytes.len());
        }
        net.assert_sleeps(case);
        // Meanwhile, one connection stops and restarts, and one is closed.
        net.io.stop(pairs[1].1);
        net.turn(Duration::ZERO);
        net.io.start(pairs[1].1);
        net.io.close(pairs[4].1);

        lent.pop();
        for &(_, to) in &pairs[..4] {
            net.expect_received(to, &bytes.repeat(round));
        }
        lent.extend(exhaust(&net));
    }
    // Received buffers that are held exhaust the pool as well.
    drop(lent);
    net.run_until_idle();
    net.holds_buffers = true;
    let rest = net.io.pool().acquire(); // One buffer fewer.
    let (from, to) = pairs[0];
    let more = pattern(5, net.io.pool().size() * 10);
    net.send(from, &more);
    let all = [bytes.repeat(3), more].concat();
    net.run("each released buffer is used", |net| {
        net.held_buffers.pop();
        net.seen(to).received.len() == all.len()
    });
    net.held_buffers.clear();
    drop(rest);
    net.expect_received(to, &all);
    assert_eq!(net.io.pool().in_use(), 0);
}

/// Checks that connections that wait for a buffer receive one in turn.
pub(crate) fn waiting_connections_receive_buffers_in_turn<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let pairs = [net.started_pair(), net.started_pair(), net.started_pair()];
    let mut lent = exhaust(&net);
    let bytes = pattern(9, 8 * net.io.pool().size());
    for (from, _) in pairs {
        net.send(from, &bytes);
        net.expect_sent(from, 1);
    }
    net.run_until_idle();
    net.holds_buffers = true;
    lent.pop();
    for _ in 0..4 * pairs.len() {
        net.drive("a piece is received", |_, _, kind| matches!(kind, Kind::Received(_)));
        net.run_until_idle();
        net.held_buffers.clear();
    }
    for (_, to) in pairs {
        let pieces = net.seen(to).pieces;
        assert!(pieces >= 2, "{pieces} of {}", 4 * pairs.len());
    }
}

/// Checks that a connection that waits for a buffer continues to send.
pub(crate) fn sends_while_the_pool_is_exhausted<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (from, to) = net.started_pair();
    let lent = exhaust(&net);
    net.send(from, b"request");
    net.run_until_idle();
    assert_eq!(net.seen(to).received.len(), 0);
    // More than the limit per turn. The other side has no buffer and receives nothing.
    let bytes = pattern(6, 3 << 20);
    let length = bytes.len() as u64;
    net.send_with(to, &[], part(&file(&bytes[..60_000]), 0, 60_000));
    net.expect_sent(to, 1);
    net.send_with(to, &[], part(&file(&bytes), 60_000, length - 60_000));
    drop(lent);
    net.expect_received(from, &bytes);
    net.expect_received(to, b"request");
}

/// Checks that connections without pending bytes hold no buffer.
pub(crate) fn idle_connections_hold_no_buffer<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let pairs: Vec<_> = (0..10).map(|_| net.started_pair()).collect();
    for &(from, to) in &pairs {
        net.send(from, b"request");
        net.expect_received(to, b"request");
        net.send(to, b"response");
        net.expect_received(from, b"response");
    }
    net.run_until_idle();
    assert_eq!(net.io.pool().in_use(), 0);
    net.assert_sleeps(case);
}

/// Checks that bytes sent to a stopped receiver arrive after it is restarted.
pub(crate) fn receives_nothing_while_stopped<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (from, to) = net.started_pair();
    let mut all = Vec::new();
    for round in 0..4 {
        let bytes = pattern(round, 1 << (4 * round));
        net.io.stop(to);
        net.run_until_idle(); // Completes the receive in progress.
        net.send(from, &bytes);
        net.run_until_idle();
        assert!(net.seen(to).received == all, "received while stopped");
        net.assert_sleeps(case);
        net.io.start(to);
        if round == 2 {
            // Stops and restarts within a turn.
            net.io.stop(to);
            net.io.start(to);
            net.io.start(to);
        }
        all.extend_from_slice(&bytes);
        net.expect_received(to, &all);
    }
}

/// Checks that a connection that is stopped after each piece receives no other, and loses nothing.
pub(crate) fn stopping_at_each_piece_loses_nothing<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (from, to) = net.started_pair();
    let bytes = pattern(7, net.io.pool().size() * 7 + 1);
    net.send(from, &bytes);
    net.expect_sent(from, 1);
    net.io.shutdown(from);
    let mut pieces = 0;
    net.drive("the end is reported", |net, token, kind| {
        if token == to && matches!(kind, Kind::Received(_)) {
            pieces += 1;
            net.io.stop(to);
            if pieces % 3 == 0 {
                net.run_until_idle();
                // The receive in progress has completed.
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

/// Checks that an end that arrives together with data is reported after them, once.
pub(crate) fn end_follows_the_data_it_arrived_with<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    for (seed, length) in [1, 63, 64, 65, 1000, 16_384, 70_000].into_iter().enumerate() {
        let (from, to) = net.pair();
        // They arrive before the receiver is started, while it waits, or in the same turn.
        if seed % 3 == 1 {
            net.io.start(to);
            net.run_until_idle();
        }
        let bytes = pattern(seed as u64, length);
        net.send(from, &bytes);
        net.expect_sent(from, 1);
        net.io.shutdown(from);
        if seed % 3 == 2 {
            net.run_until_idle();
        }
        net.io.start(to);
        net.expect_end(to, &bytes);
    }
}

/// Checks that an end is reported that arrives after the data were received.
pub(crate) fn end_arrives_after_the_data_was_received<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (from, to) = net.started_pair();
    net.send(from, b"data");
    net.expect_received(to, b"data");
    net.run_until_idle();
    net.io.shutdown(from);
    net.expect_end(to, b"data");
}

/// Checks that an end that arrives while the receiver is stopped is reported after a restart.
pub(crate) fn end_is_reported_after_restart<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (from, to) = net.started_pair();
    net.send(from, b"some");
    net.expect_received(to, b"some");
    net.io.stop(to);
    net.run_until_idle();
    net.send(from, b" more");
    net.run_until_idle();
    net.io.shutdown(from);
    net.run_until_idle();
    assert!(!net.seen(to).ended);
    net.assert_sleeps(case);
    net.io.start(to);
    net.expect_end(to, b"some more");
}

/// Checks that an end without data is reported, also if the other side is closed.
pub(crate) fn end_without_data_is_reported<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (from, to) = net.started_pair();
    net.io.shutdown(from);
    net.expect_end(to, b"");
    let (from, to) = net.pair();
    net.io.close(from);
    net.run_until_idle();
    net.io.start(to);
    net.expect_end(to, b"");
}

/// Checks that the end is reported once, even if the connection is started again.
pub(crate) fn end_is_reported_once<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (from, to) = net.started_pair();
    net.io.shutdown(from);
    net.expect_end(to, b"");
    for _ in 0..3 {
        net.io.start(to);
        net.run_until_idle(); // `Checked` detects a second end.
        net.io.stop(to);
    }
    net.io.start(to);
    net.assert_sleeps(case);
    // Nor is an end reported after a failure.
    let (from, to) = net.started_pair();
    net.io.abort(from);
    net.run("it is reset", |net| net.seen(to).failed.is_some());
    net.io.start(to);
    net.run_until_idle();
    assert!(!net.seen(to).ended);
}

/// Checks that a peer that ended its side and reads slowly receives a long response.
pub(crate) fn half_closed_peer_receives_a_long_response<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (from, to) = net.pair();
    net.io.start(to);
    net.send(from, b"request");
    net.expect_sent(from, 1);
    net.io.shutdown(from);
    net.expect_end(to, b"request");
    let bytes = Bytes::from(pattern(8, LONG));
    net.send_body(to, bytes.clone());
    net.run_until_idle();
    net.assert_sleeps(case);
    net.io.start(from);
    net.run("all is received, in portions", |net| {
        net.io.stop(from);
        net.turn(Duration::ZERO);
        net.io.start(from);
        net.seen(from).received.len() == bytes.len()
    });
    assert!(net.seen(from).received == bytes);
    net.expect_sent(to, 1);
    net.io.shutdown(to);
    net.expect_end(from, &bytes);
}

/// Checks that a reset is reported as one failed receive.
pub(crate) fn reset_is_reported_once<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (from, to) = net.started_pair();
    net.run_until_idle();
    net.io.abort(from);
    net.run("it is reset", |net| net.seen(to).failed.is_some());
    assert_eq!(net.seen(to).failed, Some(ErrorKind::ConnectionReset));
    net.run_until_idle();
    assert!(!net.seen(to).ended);
}

/// Checks that a reset that arrives while the receiver is stopped is reported after a restart.
pub(crate) fn reset_is_reported_after_restart<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (from, to) = net.started_pair();
    net.io.stop(to);
    net.run_until_idle();
    net.io.abort(from);
    net.run_until_idle();
    assert_eq!(net.seen(to).failed, None);
    net.assert_sleeps(case);
    net.io.start(to);
    net.run("it is reset", |net| net.seen(to).failed.is_some());
    assert_eq!(net.seen(to).failed, Some(ErrorKind::ConnectionReset));
}
