//! Unix sockets.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use hearken::Token;
use hearken::io::{Address, Io, ListenOptions};
use tempfile::TempDir;

use crate::Case;
use crate::net::{Net, pattern};

fn unix(path: &Path) -> Address {
    path.into()
}

/// Starts a listener at a path in a new directory.
fn listening<I: Io>(net: &mut Net<I>) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let listener = net.io.listen(&unix(&path), &ListenOptions::default()).unwrap();
    net.io.start(listener);
    (dir, path)
}

/// Connects to `path`. Returns the connecting and the accepting side, both not
/// started.
fn pair<I: Io>(net: &mut Net<I>, path: &Path) -> (Token, Token) {
    let count = net.accepted.len();
    let from = net.io.connect(&unix(path), None).unwrap();
    net.run("a connection is made", |net| {
        net.seen(from).connected.is_some() && net.accepted.len() > count
    });
    assert_eq!(net.seen(from).connected, Some(Ok(())));
    (from, net.accepted[count])
}

/// Checks transfers of any length both ways, and that there are no IP addresses.
pub(crate) fn transfers_both_ways<I: Io>(case: &Case<'_, I>) {
    // More than the sockets hold.
    const LENGTH: usize = 1 << 20;
    let mut net = Net::new(case);
    let (_dir, path) = listening(&mut net);
    for round in 0..3 {
        let (from, to) = pair(&mut net, &path);
        assert_eq!(net.last_peer, None);
        for token in [from, to] {
            assert_eq!(net.io.local_addr(token).unwrap_err().kind(), ErrorKind::Unsupported);
            assert_eq!(net.io.peer_addr(token).unwrap_err().kind(), ErrorKind::Unsupported);
        }
        let (long, short) = (pattern(round, LENGTH), pattern(round + 10, 10_000));
        net.send_body(from, Bytes::from(long.clone()));
        net.send(to, &short);
        net.run_until_idle();
        assert_eq!(net.seen(from).sent, [], "more than the sockets hold");
        assert!(net.io.delivered(from) < LENGTH as u64);
        net.assert_sleeps(case);
        net.io.start(to);
        net.io.start(from);
        net.expect_received(to, &long);
        net.expect_received(from, &short);
        net.expect_sent(from, 1);
        assert_eq!(net.io.delivered(from), LENGTH as u64);
        net.io.close(from);
        net.expect_end(to, &long);
        net.io.close(to);
    }
    net.assert_sleeps(case);
}

/// Checks a client of the standard library.
pub(crate) fn accepts_clients_of_the_standard_library<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (_dir, path) = listening(&mut net);
    let client = thread::spawn(move || {
        let mut stream = UnixStream::connect(path).unwrap();
        stream.write_all(b"request").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        answer
    });
    net.run("it is accepted", |net| !net.accepted.is_empty());
    let token = net.accepted[0];
    net.io.start(token);
    net.expect_received(token, b"request");
    let answer = pattern(1, 1_000_000);
    net.send(token, &answer);
    net.expect_sent(token, 1);
    net.io.close(token);
    net.turn(Duration::ZERO); // Some implementations close in the next wait.
    assert!(client.join().unwrap() == answer);
}

/// Checks that the end of one direction does not affect the other.
pub(crate) fn half_close_keeps_the_other_direction<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (_dir, path) = listening(&mut net);
    let (from, to) = pair(&mut net, &path);
    net.io.start(from);
    net.io.start(to);
    net.send(from, b"last words");
    net.expect_sent(from, 1);
    net.io.shutdown(from);
    net.expect_end(to, b"last words");
    net.assert_sleeps(case);
    let bytes = pattern(2, 300_000);
    net.send(to, &bytes);
    net.expect_received(from, &bytes);
    net.io.close(to);
    net.expect_end(from, &bytes);
}

/// Checks that a connect fails immediately if there is no listener or no such path.
pub(crate) fn connect_fails_immediately_without_a_listener<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (dir, path) = listening(&mut net);
    let absent = net.io.connect(&unix(&dir.path().join("absent")), None);
    assert_eq!(absent.unwrap_err().kind(), ErrorKind::NotFound);
    let taken = net.io.listen(&unix(&path), &ListenOptions::default());
    assert_eq!(taken.unwrap_err().kind(), ErrorKind::AddrInUse);
    let left = dir.path().join("left");
    let listener = net.io.listen(&unix(&left), &ListenOptions::default()).unwrap();
    let is_real = net.io.socket(listener).is_some();
    net.io.close(listener);
    assert!(left.exists() || !is_real);
    let refused = net.io.connect(&unix(&left), None);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    assert_eq!(net.io.open_count(), 2);
}

/// Checks that paths that are invalid for Unix sockets are refused.
pub(crate) fn refuses_invalid_paths<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let long = "x".repeat(109);
    for path in ["", "a\0b", &long] {
        let address = unix(Path::new(path));
        let listened = net.io.listen(&address, &ListenOptions::default());
        for made in [net.io.connect(&address, None), listened] {
            assert_eq!(made.unwrap_err().kind(), ErrorKind::InvalidInput, "{path}");
        }
    }
    let (_dir, path) = listening(&mut net);
    let from_ip = net.io.connect(&unix(&path), Some(net.addr));
    assert_eq!(from_ip.unwrap_err().kind(), ErrorKind::InvalidInput);
}

/// Checks that a full backlog is reported, and that no waiting connection is lost.
pub(crate) fn full_backlog_is_reported<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let mut options = ListenOptions::default();
    options.backlog = 2;
    let listener = net.io.listen(&unix(&path), &options).unwrap();
    let mut made = Vec::new();
    let error = loop {
        match net.io.connect(&unix(&path), None) {
            Ok(token) => made.push(token),
            Err(error) => break error,
        }
        assert!(made.len() < 10, "the backlog is not limited");
    };
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    assert!(error.to_string().contains("backlog"), "{error}");
    net.io.start(listener);
    net.run("all are accepted", |net| net.accepted.len() == made.len());
    pair(&mut net, &path);
}

/// Checks that a connection is usable before `CompletionKind::Connected` is reported.
pub(crate) fn is_usable_before_connected_is_reported<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (_dir, path) = listening(&mut net);
    let from = net.io.connect(&unix(&path), None).unwrap();
    net.io.start(from);
    net.send_now(from, b"one");
    net.send(from, b"two");
    net.send_body(from, Bytes::from_static(b"three"));
    net.run("it is accepted", |net| !net.accepted.is_empty());
    let to = net.accepted[0];
    net.io.start(to);
    net.expect_received(to, b"onetwothree");
    net.send(to, b"answer");
    net.expect_received(from, b"answer");
    net.expect_sent(from, 3);
}

/// Checks that abort closes the connection.
pub(crate) fn abort_closes_the_connection<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (_dir, path) = listening(&mut net);
    let (from, to) = pair(&mut net, &path);
    net.io.start(from);
    net.io.abort(to);
    net.expect_end(from, b"");
    net.run("a send fails", |net| {
        net.send(from, b"to nobody");
        net.turn(Duration::ZERO);
        net.seen(from).sent.contains(&Err(ErrorKind::BrokenPipe))
    });
    // A connection that was not reported yet.
    let from = net.io.connect(&unix(&path), None).unwrap();
    net.io.abort(from);
    net.run_until_idle();
    net.assert_sleeps(case);
}
