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
use crate::net::{LONG, Net, pattern};

fn unix(path: &Path) -> Address {
    path.into()
}

/// A directory with a started listener at a path in it.
fn listening<I: Io>(net: &mut Net<I>) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let listener = net.io.listen(&unix(&path), &ListenOptions::default()).unwrap();
    net.io.start(listener);
    (dir, path)
}

/// A connection: the side that connected, and the side that accepted, neither started.
fn pair<I: Io>(net: &mut Net<I>, path: &Path) -> (Token, Token) {
    let count = net.accepted.len();
    let from = net.io.connect(&unix(path), None).unwrap();
    net.run("a connection is made", |net| {
        net.seen(from).connected.is_some() && net.accepted.len() > count
    });
    assert_eq!(net.seen(from).connected, Some(Ok(())));
    (from, net.accepted[count])
}

/// Bytes of any number go both ways, and addresses of IP are none.
pub(crate) fn streams<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (_dir, path) = listening(&mut net);
    for round in 0..3 {
        let (from, to) = pair(&mut net, &path);
        assert_eq!(net.last_peer, None);
        for on in [from, to] {
            assert_eq!(net.io.local_addr(on).unwrap_err().kind(), ErrorKind::Unsupported);
            assert_eq!(net.io.peer_addr(on).unwrap_err().kind(), ErrorKind::Unsupported);
        }
        let (long, short) = (pattern(round, LONG), pattern(round + 10, 10_000));
        net.send_body(from, Bytes::from(long.clone()));
        net.send(to, &short);
        net.settle();
        assert_eq!(net.seen(from).sent, [], "more than the sockets hold");
        assert!(net.io.delivered(from) < LONG as u64);
        net.sleeps(case);
        net.io.start(to);
        net.io.start(from);
        net.receives(to, &long);
        net.receives(from, &short);
        net.sends(from, 1);
        assert_eq!(net.io.delivered(from), LONG as u64);
        net.io.close(from);
        net.ends(to, &long);
        net.io.close(to);
    }
    net.sleeps(case);
}

/// A client that is not our own.
pub(crate) fn streams_of_the_standard_library<I: Io>(case: &Case<'_, I>) {
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
    let on = net.accepted[0];
    net.io.start(on);
    net.receives(on, b"request");
    let answer = pattern(1, 1_000_000);
    net.send(on, &answer);
    net.sends(on, 1);
    net.io.close(on);
    net.turn(Duration::ZERO); // Some close in the next wait.
    assert!(client.join().unwrap() == answer);
}

/// An end of one side leaves the other.
pub(crate) fn half_closed<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (_dir, path) = listening(&mut net);
    let (from, to) = pair(&mut net, &path);
    net.io.start(from);
    net.io.start(to);
    net.send(from, b"last words");
    net.sends(from, 1);
    net.io.shutdown(from);
    net.ends(to, b"last words");
    net.sleeps(case);
    let bytes = pattern(2, 300_000);
    net.send(to, &bytes);
    net.receives(from, &bytes);
    net.io.close(to);
    net.ends(from, &bytes);
}

/// Where nobody listens, or nothing is, connecting fails at once.
pub(crate) fn nothing_there<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (dir, path) = listening(&mut net);
    let absent = net.io.connect(&unix(&dir.path().join("absent")), None);
    assert_eq!(absent.unwrap_err().kind(), ErrorKind::NotFound);
    let taken = net.io.listen(&unix(&path), &ListenOptions::default());
    assert_eq!(taken.unwrap_err().kind(), ErrorKind::AddrInUse);
    let left = dir.path().join("left");
    let listener = net.io.listen(&unix(&left), &ListenOptions::default()).unwrap();
    net.io.close(listener);
    assert!(left.exists());
    let refused = net.io.connect(&unix(&left), None);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    assert_eq!(net.io.open(), 2);
}

/// Paths that no Unix socket has.
pub(crate) fn bad_paths<I: Io>(case: &Case<'_, I>) {
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

/// When too many wait to be accepted the next is told so, and none of them is lost.
pub(crate) fn full_backlog<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let mut options = ListenOptions::default();
    options.backlog = 2;
    let listener = net.io.listen(&unix(&path), &options).unwrap();
    let mut made = Vec::new();
    let error = loop {
        match net.io.connect(&unix(&path), None) {
            Ok(on) => made.push(on),
            Err(error) => break error,
        }
        assert!(made.len() < 10, "no end of them");
    };
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    assert!(error.to_string().contains("backlog"), "{error}");
    net.io.start(listener);
    net.run("all are accepted", |net| net.accepted.len() == made.len());
    pair(&mut net, &path);
}

/// It can be used before [`What::Connected`](hearken::io::What::Connected) has been taken.
pub(crate) fn used_before_it_is_told<I: Io>(case: &Case<'_, I>) {
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
    net.receives(to, b"onetwothree");
    net.send(to, b"answer");
    net.receives(from, b"answer");
    net.sends(from, 3);
}

/// To abort is to close.
pub(crate) fn aborted<I: Io>(case: &Case<'_, I>) {
    let mut net = Net::new(case);
    let (_dir, path) = listening(&mut net);
    let (from, to) = pair(&mut net, &path);
    net.io.start(from);
    net.io.abort(to);
    net.ends(from, b"");
    net.run("a send fails", |net| {
        net.send(from, b"to nobody");
        net.turn(Duration::ZERO);
        net.seen(from).sent.contains(&Err(ErrorKind::BrokenPipe))
    });
    // One whose connection was not told yet.
    let from = net.io.connect(&unix(&path), None).unwrap();
    net.io.abort(from);
    net.settle();
    net.sleeps(case);
}
