//! Sending.

use std::fs::File;
use std::io::ErrorKind;
use std::time::Duration;

use bytes::Bytes;
use hearken::io::{Body, Io, SendOutcome, Then};

use crate::Case;
use crate::net::{LONG, Net, file, part, pattern};

/// Each send is completed, in the order of the sends, none before it was all given away.
pub(crate) fn in_order<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (from, to) = net.pair();
    let long = pattern(1, LONG);
    net.send(to, b"first");
    net.send_with(to, b"second", Body::Bytes(Bytes::from(long.clone())));
    net.send_body(to, Bytes::from_static(b"third"));
    net.send(to, b"");
    net.send_body(to, Bytes::from_static(b"fifth"));
    net.settle();
    assert_eq!(net.seen(to).sent, [Ok(())]);
    net.sleeps(case);
    net.io.start(from);
    net.receives(from, &[b"firstsecond", &long[..], b"thirdfifth"].concat());
    net.sends(to, 5);
}

/// What is said to be done at once is; what is not completes, and nothing overtakes it.
pub(crate) fn now_or_later<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    net.io.reserve(10);
    let (from, to) = net.pair();
    let long = pattern(9, LONG);
    let parts = [&b"first"[..], b"", &long, b"third", b""];
    let now = parts.map(|bytes| net.io.send_now(to, bytes));
    assert!(!now[2], "more than the sockets hold");
    assert!(!now[3], "it overtook");
    net.settle();
    net.sleeps(case);
    net.io.start(from);
    net.receives(from, &parts.concat());
    net.sends(to, now.iter().filter(|done| !**done).count());
    net.io.close(to);
    assert!(!net.io.send_now(to, b"never"));
}

/// What is sent last arrives whole, and the end behind it.
pub(crate) fn before_the_end<I: Io>(case: &Case<'_, I>) {
    for (length, closes) in [(5, true), (5, false), (LONG, false), (0, true)] {
        let mut net = Net::new(case);
        let (from, to) = net.started_pair();
        let bytes = pattern(12, length);
        if net.io.send_last(to, &bytes, Then::Shutdown) != SendOutcome::Complete {
            net.sends(to, 1);
        }
        if closes {
            net.io.close(to);
        } else {
            net.io.shutdown(to);
        }
        net.ends(from, &bytes);
    }
}

/// Heads and bodies of every kind and length.
pub(crate) fn bodies<I: Io>(case: &Case<'_, I>) {
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
    net.receives(from, &all);
    net.sends(to, count);
    net.settle();
    assert_eq!(net.seen(from).received.len(), all.len());
}

/// A file longer than the sockets hold, to a peer who begins to read late.
pub(crate) fn large_file<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (from, to) = net.pair();
    let content = pattern(5, LONG);
    let on_disk = file(&content);
    net.send_with(to, b"head", part(&on_disk, 1, LONG as u64 - 1));
    net.send_with(to, b"again", part(&on_disk, 2, 1000));
    net.settle();
    assert_eq!(net.seen(to).sent, []);
    net.sleeps(case);
    net.io.start(from);
    let all = [b"head", &content[1..], b"again", &content[2..1002]].concat();
    net.receives(from, &all);
    net.sends(to, 2);
}

/// A file that has fewer bytes than were promised fails its send, and with it all later ones.
pub(crate) fn truncated_file<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (from, to) = net.started_pair();
    let content = pattern(6, 5000);
    let on_disk = file(&content);
    net.send_with(to, b"head", part(&on_disk, 0, 5001));
    net.send(to, b"never");
    net.receives(from, &[b"head", &content[..]].concat());
    net.send(to, b"never");
    net.run("the send fails", |net| !net.seen(to).sent.is_empty());
    net.settle();
    assert_eq!(net.seen(to).sent, [Err(ErrorKind::UnexpectedEof)]);
    assert_eq!(net.seen(from).received.len(), 5004);

    // While it is sent.
    let (from, to) = net.pair();
    let on_disk = file(&pattern(7, LONG));
    net.send_with(to, b"head", part(&on_disk, 0, LONG as u64));
    net.send(to, b"never");
    net.settle();
    assert_eq!(net.seen(to).sent, []);
    File::from(on_disk.try_clone().unwrap()).set_len(1).unwrap();
    net.io.start(from);
    net.run("the send fails", |net| !net.seen(to).sent.is_empty());
    net.settle();
    assert_eq!(net.seen(to).sent, [Err(ErrorKind::UnexpectedEof)]);
    net.sleeps(case);
}

/// What the kernel says of a peer that is gone.
fn is_gone(result: Option<&Result<(), ErrorKind>>) -> bool {
    matches!(result, Some(Err(ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)))
}

/// To a peer that has reset, a send fails, and later ones complete no more.
pub(crate) fn to_a_reset_peer<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (from, to) = net.pair();
    net.io.abort(from);
    net.settle();
    net.run("a send fails", |net| {
        net.send(to, b"to nobody");
        is_gone(net.seen(to).sent.last())
    });
    net.settle();
    let sent = net.seen(to).sent.len();
    net.send(to, b"to nobody");
    net.send_body(to, Bytes::from_static(b"to nobody"));
    net.settle();
    assert_eq!(net.seen(to).sent.len(), sent);
    net.sleeps(case);
}

/// A reset fails the send that is under way, and those behind it complete no more.
pub(crate) fn queued_to_a_reset_peer<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (from, to) = net.pair();
    let long = Bytes::from(pattern(8, LONG));
    for _ in 0..3 {
        net.send_body(to, long.clone());
    }
    net.settle();
    assert_eq!(net.seen(to).sent, []);
    net.io.abort(from);
    net.run("the send fails", |net| !net.seen(to).sent.is_empty());
    net.settle();
    assert_eq!(net.seen(to).sent.len(), 1);
    assert!(is_gone(net.seen(to).sent.last()));
    net.sleeps(case);
}

/// What is sent before the connection is made is sent when it is.
pub(crate) fn before_connected<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let from = net.io.connect(&net.addr.into(), None).unwrap();
    net.send(from, b"one");
    net.send_with(from, b"two", Body::Bytes(Bytes::from_static(b"three")));
    net.run("it is accepted", |net| !net.accepted.is_empty());
    let to = net.accepted[0];
    net.io.start(to);
    net.receives(to, b"onetwothree");
    net.sends(from, 2);
    assert_eq!(net.seen(from).connected, Some(Ok(())));
}

/// What the peer's host has acknowledged grows to all that was sent.
pub(crate) fn delivered<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (from, to) = net.pair();
    assert_eq!(net.io.delivered(to), 0);
    let bytes = pattern(9, LONG);
    let on_disk = file(&bytes[1_000_000..]);
    net.send_with(to, &bytes[..1000], Body::Bytes(Bytes::copy_from_slice(&bytes[1000..1_000_000])));
    net.send_with(to, b"", part(&on_disk, 0, LONG as u64 - 1_000_000));
    net.settle();
    // Its host takes a window full (`tcp_rmem` has 128 KiB); the rest waits in ours.
    assert!(net.io.delivered(to) < LONG as u64 / 4);
    assert!(net.io.undelivered(to) > 0);
    assert_eq!(net.io.undelivered(from), 0);
    net.io.start(from);
    let mut last = 0;
    while last < LONG as u64 {
        net.turn(Duration::from_millis(1)); // An acknowledgement completes nothing.
        let now = net.io.delivered(to);
        assert!(now >= last && now <= LONG as u64);
        last = now;
    }
    net.receives(from, &bytes);
    assert_eq!(net.io.undelivered(to), 0);
    net.io.close(to);
    assert_eq!(net.io.delivered(to), 0);
    assert_eq!(net.io.undelivered(to), 0);
}

/// Having ended our side we still receive, and the peer has read all and met the end.
pub(crate) fn shutdown_is_heard<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (from, to) = net.started_pair();
    net.send(from, b"last words");
    net.sends(from, 1);
    net.io.shutdown(from);
    net.ends(to, b"last words");
    let bytes = pattern(10, 100_000);
    net.send(to, &bytes);
    net.receives(from, &bytes);
    net.sends(to, 1);
    net.io.shutdown(to);
    net.ends(from, &bytes);
    net.settle();
    net.io.close(from);
    net.io.close(to);
}

/// Who has ended its side sends no more.
pub(crate) fn after_shutdown<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (from, to) = net.started_pair();
    net.io.shutdown(from);
    net.send(from, b"too late");
    net.send(from, b"too late");
    net.ends(to, b"");
    net.run("the send fails", |net| !net.seen(from).sent.is_empty());
    net.settle();
    assert_eq!(net.seen(from).sent, [Err(ErrorKind::BrokenPipe)]);
}

/// A head goes back to the pool when it is sent, though the body takes long.
pub(crate) fn lends_back<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (from, to) = net.pair();
    let long = Bytes::from(pattern(11, LONG));
    net.send_with(to, b"head", Body::Bytes(long.clone()));
    net.send(to, b"second");
    net.settle();
    assert_eq!(net.io.pool().lent(), 0, "a peer that does not read keeps buffers from others");
    net.io.start(from);
    net.receives(from, &[b"head", &long[..], b"second"].concat());
    net.sends(to, 2);
    assert_eq!(net.io.pool().lent(), 0);
}

/// The last send is delivered whole, and then the end, whether it closes or its caller does; also
/// where the receiver waits for more, and behind others.
pub(crate) fn last<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    for (round, length) in [1, 500, 8192, 9000, 100_000].into_iter().enumerate() {
        for (receives, behind) in [(false, false), (true, false), (true, true)] {
            let (from, to) = net.started_pair();
            let mut all = Vec::new();
            if receives {
                net.send(from, b"request");
                net.receives(to, b"request");
            } else {
                net.io.stop(to);
            }
            if behind {
                all.extend(pattern(20, if case.share.is_some() { 20_000 } else { 300_000 }));
                net.send(to, &all.clone());
            }
            let deadline = net.io.now() + Duration::from_secs(3600);
            net.io.set_deadline(to, Some(deadline));
            let (bytes, open) = (pattern(round as u64, length), net.io.open());
            all.extend_from_slice(&bytes);
            let closes = net.send_last(to, &bytes);
            let count = 1 + usize::from(behind);
            net.run("it is sent", |net| net.seen(to).sent.len() == count);
            assert_eq!(net.seen(to).sent, vec![Ok(()); count]);
            if !closes {
                net.io.close(to);
            }
            assert_eq!(net.io.open(), open - 1);
            net.ends(from, &all);
            net.io.close(from);
        }
    }
    net.sleeps(case);
}

/// The last send can be given up, and it can fail; the connection is then its caller's to close.
pub(crate) fn last_given_up<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    for abort in [false, true] {
        for stage in 0..3 {
            let (from, to) = net.started_pair();
            net.settle();
            if stage == 2 {
                net.io.stop(from);
                net.send_body(to, Bytes::from(pattern(21, LONG)));
                net.settle();
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
            // The next may have its descriptor's number, which nobody is to close.
            let (other, another) = net.started_pair();
            net.io.start(from);
            net.run("the other side is told", |net| {
                net.seen(from).ended || net.seen(from).failed.is_some()
            });
            net.send(other, b"data");
            net.receives(another, b"data");
        }
    }
    let (from, to) = net.started_pair();
    net.io.abort(from);
    net.settle();
    let open = net.io.open();
    net.send_last(to, b"last");
    net.run("it fails", |net| !net.seen(to).sent.is_empty());
    assert!(is_gone(net.seen(to).sent.last()));
    assert_eq!(net.io.open(), open);
    net.io.close(to);
    net.sleeps(case);
}
