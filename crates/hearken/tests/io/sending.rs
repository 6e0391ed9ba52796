//! Sending.

use std::fs::File;
use std::io::ErrorKind;
use std::time::Duration;

use bytes::Bytes;
use hearken::io::{Body, CloseMode, Io, SendOutcome};

use crate::Case;
use crate::net::{LONG, Net, file, part, pattern};

/// Checks that sends complete in order, each only after the transport took all its bytes.
pub(crate) fn sends_complete_in_order<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (from, to) = net.pair();
    let long = pattern(1, LONG);
    net.send(to, b"first");
    net.send_with(to, b"second", Body::Bytes(Bytes::from(long.clone())));
    net.send_body(to, Bytes::from_static(b"third"));
    net.send(to, b"");
    net.send_body(to, Bytes::from_static(b"fifth"));
    net.run_until_idle();
    assert_eq!(net.seen(to).sent, [Ok(())]);
    net.assert_sleeps(case);
    net.io.start(from);
    net.expect_received(from, &[b"firstsecond", &long[..], b"thirdfifth"].concat());
    net.expect_sent(to, 5);
}

/// Checks that immediate sends are delivered, that others complete later, and that nothing
/// overtakes them.
pub(crate) fn nothing_overtakes_a_pending_send<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    net.io.reserve(10);
    let (from, to) = net.pair();
    let long = pattern(9, LONG);
    let parts = [&b"first"[..], b"", &long, b"third", b""];
    let now = parts.map(|bytes| net.io.send_now(to, bytes));
    assert!(!now[2], "more than the sockets hold");
    assert!(!now[3], "it overtook the pending send");
    net.run_until_idle();
    net.assert_sleeps(case);
    net.io.start(from);
    net.expect_received(from, &parts.concat());
    net.expect_sent(to, now.iter().filter(|done| !**done).count());
    net.io.close(to);
    assert!(!net.io.send_now(to, b"never"));
}

/// Checks that a final send arrives completely, followed by the end.
pub(crate) fn final_send_arrives_before_the_end<I: Io>(case: &Case<'_, I>) {
    for (length, closes) in [(5, true), (5, false), (LONG, false), (0, true)] {
        let mut net = Net::new(case);
        let (from, to) = net.started_pair();
        let bytes = pattern(12, length);
        if net.io.send_last(to, &bytes, CloseMode::Shutdown) != SendOutcome::Complete {
            net.expect_sent(to, 1);
        }
        if closes {
            net.io.close(to);
        } else {
            net.io.shutdown(to);
        }
        net.expect_end(from, &bytes);
    }
}

/// Checks sends with heads and bodies of every kind and of several lengths.
pub(crate) fn sends_heads_and_bodies_of_every_kind<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (from, to) = net.started_pair();
    let content = pattern(2, 10_000);
    let on_disk = file(&content);
    let long = Bytes::from(pattern(3, 100_000));
    let mut all = Vec::new();
    let mut count = 0;
    for head in [&b""[..], b"head", &pattern(4, 70_000)] {
        for (body, bytes) in [
            (Body::None, &b""[..]),
            (Body::Bytes(Bytes::new()), b""),
            (Body::Bytes(Bytes::from_static(b"body")), b"body"),
            (Body::Bytes(long.clone()), &long),
            (part(&on_disk, 0, 0), b""),
            (part(&on_disk, 0, 10_000), &content),
            (part(&on_disk, 123, 4567), &content[123..][..4567]),
            (part(&on_disk, 9999, 1), &content[9999..]),
            (part(&on_disk, 10_000, 0), b""),
            (part(&on_disk, 20_000, 0), b""),
        ] {
            net.send_with(to, head, body);
            all.extend_from_slice(head);
            all.extend_from_slice(bytes);
            count += 1;
        }
    }
    net.expect_received(from, &all);
    net.expect_sent(to, count);
    net.run_until_idle();
    assert_eq!(net.seen(from).received.len(), all.len());
}

/// Checks that a file that exceeds the capacity of the sockets is sent to a peer that starts to
/// read late.
pub(crate) fn sends_a_file_larger_than_socket_buffers<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (from, to) = net.pair();
    let content = pattern(5, LONG);
    let on_disk = file(&content);
    net.send_with(to, b"head", part(&on_disk, 1, LONG as u64 - 1));
    net.send_with(to, b"again", part(&on_disk, 2, 1000));
    net.run_until_idle();
    assert_eq!(net.seen(to).sent, []);
    net.assert_sleeps(case);
    net.io.start(from);
    let all = [b"head", &content[1..], b"again", &content[2..1002]].concat();
    net.expect_received(from, &all);
    net.expect_sent(to, 2);
}

/// Checks that a file that is shorter than its range fails its send and all later ones.
pub(crate) fn truncated_file_fails_its_send<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (from, to) = net.started_pair();
    let content = pattern(6, 5000);
    let on_disk = file(&content);
    net.send_with(to, b"head", part(&on_disk, 0, 5001));
    net.send(to, b"never");
    net.expect_received(from, &[b"head", &content[..]].concat());
    net.send(to, b"never");
    net.run("the send fails", |net| !net.seen(to).sent.is_empty());
    net.run_until_idle();
    assert_eq!(net.seen(to).sent, [Err(ErrorKind::UnexpectedEof)]);
    assert_eq!(net.seen(from).received.len(), 5004);

    // Now the file is truncated during the send.
    let (from, to) = net.pair();
    let on_disk = file(&pattern(7, LONG));
    net.send_with(to, b"head", part(&on_disk, 0, LONG as u64));
    net.send(to, b"never");
    net.run_until_idle();
    assert_eq!(net.seen(to).sent, []);
    File::from(on_disk.try_clone().unwrap()).set_len(1).unwrap();
    net.io.start(from);
    net.run("the send fails", |net| !net.seen(to).sent.is_empty());
    net.run_until_idle();
    assert_eq!(net.seen(to).sent, [Err(ErrorKind::UnexpectedEof)]);
    net.assert_sleeps(case);
}

/// Returns whether a send failed because the peer has disconnected.
fn is_disconnected(result: Option<&Result<(), ErrorKind>>) -> bool {
    matches!(result, Some(Err(ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)))
}

/// Checks that a send to a peer that reset the connection fails, and that later sends have no
/// completions.
pub(crate) fn send_to_a_reset_peer_fails_once<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (from, to) = net.pair();
    net.io.abort(from);
    net.run_until_idle();
    net.run("a send fails", |net| {
        net.send(to, b"to nobody");
        is_disconnected(net.seen(to).sent.last())
    });
    net.run_until_idle();
    let sent = net.seen(to).sent.len();
    net.send(to, b"to nobody");
    net.send_body(to, Bytes::from_static(b"to nobody"));
    net.run_until_idle();
    assert_eq!(net.seen(to).sent.len(), sent);
    net.assert_sleeps(case);
}

/// Checks that a reset fails the first pending send, and that the others have no completions.
pub(crate) fn reset_fails_the_pending_send_only_once<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (from, to) = net.pair();
    let long = Bytes::from(pattern(8, LONG));
    for _ in 0..3 {
        net.send_body(to, long.clone());
    }
    net.run_until_idle();
    assert_eq!(net.seen(to).sent, []);
    net.io.abort(from);
    net.run("the send fails", |net| !net.seen(to).sent.is_empty());
    net.run_until_idle();
    assert_eq!(net.seen(to).sent.len(), 1);
    assert!(is_disconnected(net.seen(to).sent.last()));
    net.assert_sleeps(case);
}

/// Checks that bytes sent before the connection is established are delivered afterwards.
pub(crate) fn sends_before_the_connection_is_established<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let from = net.io.connect(&net.addr.into(), None).unwrap();
    net.send(from, b"one");
    net.send_with(from, b"two", Body::Bytes(Bytes::from_static(b"three")));
    net.run("it is accepted", |net| !net.accepted.is_empty());
    let to = net.accepted[0];
    net.io.start(to);
    net.expect_received(to, b"onetwothree");
    net.expect_sent(from, 2);
    assert_eq!(net.seen(from).connected, Some(Ok(())));
}

/// Checks that the number of delivered bytes grows until all bytes are delivered.
pub(crate) fn delivered_bytes_grow_to_all_bytes<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (from, to) = net.pair();
    assert_eq!(net.io.delivered(to), 0);
    let bytes = pattern(9, LONG);
    let on_disk = file(&bytes[1_000_000..]);
    net.send_with(to, &bytes[..1000], Body::Bytes(Bytes::copy_from_slice(&bytes[1000..1_000_000])));
    net.send_with(to, b"", part(&on_disk, 0, LONG as u64 - 1_000_000));
    net.run_until_idle();
    // The peer's host takes one window (`tcp_rmem` allows 128 KiB). The rest waits in the sending
    // host.
    assert!(net.io.delivered(to) < LONG as u64 / 4);
    assert!(net.io.undelivered(to) > 0);
    assert_eq!(net.io.undelivered(from), 0);
    net.io.start(from);
    let mut last = 0;
    while last < LONG as u64 {
        net.turn(Duration::from_millis(1)); // An acknowledgement is no completion.
        let now = net.io.delivered(to);
        assert!(now >= last && now <= LONG as u64);
        last = now;
    }
    net.expect_received(from, &bytes);
    assert_eq!(net.io.undelivered(to), 0);
    net.io.close(to);
    assert_eq!(net.io.delivered(to), 0);
    assert_eq!(net.io.undelivered(to), 0);
}

/// Checks that a connection still receives after its own shutdown, and that the peer reads all
/// bytes and the end.
pub(crate) fn receives_after_its_own_shutdown<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (from, to) = net.started_pair();
    net.send(from, b"last words");
    net.expect_sent(from, 1);
    net.io.shutdown(from);
    net.expect_end(to, b"last words");
    let bytes = pattern(10, 100_000);
    net.send(to, &bytes);
    net.expect_received(from, &bytes);
    net.expect_sent(to, 1);
    net.io.shutdown(to);
    net.expect_end(from, &bytes);
    net.run_until_idle();
    net.io.close(from);
    net.io.close(to);
}

/// Checks that a send after shutdown fails.
pub(crate) fn send_after_shutdown_fails<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (from, to) = net.started_pair();
    net.io.shutdown(from);
    net.send(from, b"too late");
    net.send(from, b"too late");
    net.expect_end(to, b"");
    net.run("the send fails", |net| !net.seen(from).sent.is_empty());
    net.run_until_idle();
    assert_eq!(net.seen(from).sent, [Err(ErrorKind::BrokenPipe)]);
}

/// Checks that the buffer of a sent head returns to the pool while the body is pending.
pub(crate) fn head_buffer_returns_while_the_body_is_pending<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (from, to) = net.pair();
    let long = Bytes::from(pattern(11, LONG));
    net.send_with(to, b"head", Body::Bytes(long.clone()));
    net.send(to, b"second");
    net.run_until_idle();
    assert_eq!(net.io.pool().in_use(), 0, "a peer that does not read occupies buffers");
    net.io.start(from);
    net.expect_received(from, &[b"head", &long[..], b"second"].concat());
    net.expect_sent(to, 2);
    assert_eq!(net.io.pool().in_use(), 0);
}

/// Checks that the final send is delivered, followed by the end, whichever side closes the
/// connection. It also follows earlier sends, and the receiver may be started.
pub(crate) fn final_send_is_delivered_and_closes<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    for (round, length) in [1, 500, 8192, 9000, 100_000].into_iter().enumerate() {
        for (receives, behind) in [(false, false), (true, false), (true, true)] {
            let (from, to) = net.started_pair();
            let mut all = Vec::new();
            if receives {
                net.send(from, b"request");
                net.expect_received(to, b"request");
            } else {
                net.io.stop(to);
            }
            if behind {
                all.extend(pattern(20, if case.turn_bytes.is_some() { 20_000 } else { 300_000 }));
                net.send(to, &all.clone());
            }
            let deadline = net.io.now() + Duration::from_secs(3600);
            net.io.set_deadline(to, Some(deadline));
            let (bytes, open) = (pattern(round as u64, length), net.io.open_count());
            all.extend_from_slice(&bytes);
            let closes = net.send_last(to, &bytes);
            let count = 1 + usize::from(behind);
            net.run("it is sent", |net| net.seen(to).sent.len() == count);
            assert_eq!(net.seen(to).sent, vec![Ok(()); count]);
            if !closes {
                net.io.close(to);
            }
            assert_eq!(net.io.open_count(), open - 1);
            net.expect_end(from, &all);
            net.io.close(from);
        }
    }
    net.assert_sleeps(case);
}

/// Checks that a final send can be abandoned and can fail, and that the caller then closes the
/// connection.
pub(crate) fn final_send_can_be_abandoned_and_can_fail<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    for abort in [false, true] {
        for stage in 0..3 {
            let (from, to) = net.started_pair();
            net.run_until_idle();
            if stage == 2 {
                net.io.stop(from);
                net.send_body(to, Bytes::from(pattern(21, LONG)));
                net.run_until_idle();
            }
            net.send_last(to, b"last");
            if stage == 1 {
                net.turn(Duration::ZERO);
            }
            if abort {
                net.io.abort(to);
            } else {
                net.io.close(to);
            }
            // The next connection may reuse the descriptor number, which must not be closed.
            let (other, another) = net.started_pair();
            net.io.start(from);
            net.run("the other side is notified", |net| {
                net.seen(from).ended || net.seen(from).failed.is_some()
            });
            net.send(other, b"data");
            net.expect_received(another, b"data");
        }
    }
    let (from, to) = net.started_pair();
    net.io.abort(from);
    net.run_until_idle();
    let open = net.io.open_count();
    net.send_last(to, b"last");
    net.run("it fails", |net| !net.seen(to).sent.is_empty());
    assert!(is_disconnected(net.seen(to).sent.last()));
    assert_eq!(net.io.open_count(), open);
    net.io.close(to);
    net.assert_sleeps(case);
}
