//! Triggers. Level: in every batch while the descriptor is ready. Edge: once after each arrival,
//! and after declare and change if it is ready then; some mechanisms withhold the next edge until
//! the caller reports that a call would block. One-shot: as level, but once, until the next change.

use std::io;
use std::net::TcpStream;
use std::thread;

use hearken::Readiness;
use hearken::mechanism::Trigger;
use rustix::io::Errno;

use super::support::*;

pub(crate) fn readable_events_repeat_according_to_the_trigger(mut watch: Watch) {
    for make in [unix, tcp, pipe] {
        let (source, peer) = make();
        let token = watch.add(source, READ);
        watch.quiet();
        write(&peer, b"x");
        assert_eq!(watch.next(token), Readiness::READABLE);
        match watch.trigger() {
            Trigger::Level => {
                for _ in 0..3 {
                    assert_eq!(watch.next(token), Readiness::READABLE);
                }
            }
            Trigger::Edge => {
                watch.quiet();
                // More data arrive, although the first were not read.
                write(&peer, b"y");
                assert_eq!(watch.next(token), Readiness::READABLE);
                watch.quiet();
            }
            Trigger::OneShot => {
                watch.quiet();
                write(&peer, b"y");
                watch.quiet();
                watch.arm(token);
                assert_eq!(watch.next(token), Readiness::READABLE);
                watch.arm(token);
            }
        }
        drain(watch.fd(token));
        watch.quiet();
        // The first arrival after all data were read.
        watch.arm(token);
        write(&peer, b"z");
        assert_eq!(watch.next(token), Readiness::READABLE);
        watch.0.remove(token).unwrap();
    }
}

pub(crate) fn writable_events_repeat_according_to_the_trigger(mut watch: Watch) {
    let (source, _peer) = unix();
    let token = watch.add(source, WRITE);
    assert_eq!(watch.next(token), Readiness::WRITABLE);
    match watch.trigger() {
        Trigger::Level => {
            for _ in 0..3 {
                assert_eq!(watch.next(token), Readiness::WRITABLE);
            }
        }
        Trigger::Edge => watch.quiet(),
        Trigger::OneShot => {
            watch.quiet();
            watch.arm(token);
            assert_eq!(watch.next(token), Readiness::WRITABLE);
        }
    }
}

pub(crate) fn the_end_of_the_stream_is_an_event(mut watch: Watch) {
    for make in [unix, tcp, pipe] {
        let (source, peer) = make();
        let token = watch.add(source, READ);
        write(&peer, b"x");
        assert_eq!(watch.next(token), Readiness::READABLE);
        assert_eq!(drain(watch.fd(token)), (1, false));
        watch.arm(token);
        drop(peer);
        assert!(watch.next(token).is_readable());
        assert_eq!(drain(watch.fd(token)), (0, true));
        watch.0.remove(token).unwrap();
    }
}

pub(crate) fn new_space_is_reported(mut watch: Watch) {
    let pipe_to_write = || {
        let (read, write) = pipe();
        (write, read)
    };
    for make in [unix, pipe_to_write] {
        let (source, peer) = make();
        let token = watch.add(source, WRITE);
        assert_eq!(watch.next(token), Readiness::WRITABLE);
        for _ in 0..3 {
            fill(watch.fd(token));
            watch.arm(token);
            watch.quiet();
            drain(&peer);
            assert_eq!(watch.next(token), Readiness::WRITABLE);
        }
        watch.0.remove(token).unwrap();
    }
}

/// Checks that a writer that waits after each `EAGAIN` sends all bytes over TCP, where space
/// appears gradually.
pub(crate) fn new_space_on_tcp_is_always_reported(mut watch: Watch) {
    const ALL: usize = 8 << 20;
    let (source, peer) = tcp();
    let token = watch.add(source, WRITE);
    let reader = thread::spawn(move || {
        let mut stream = TcpStream::from(peer);
        stream.set_nonblocking(false).unwrap();
        io::copy(&mut stream, &mut io::sink()).unwrap()
    });
    let mut written = 0;
    while written < ALL {
        match rustix::io::write(watch.fd(token), &[7; 65536]) {
            Ok(bytes) => written += bytes,
            Err(Errno::AGAIN) => {
                watch.arm(token);
                assert_eq!(watch.next(token), Readiness::WRITABLE);
            }
            Err(errno) => panic!("write: {errno}"),
        }
    }
    assert!(watch.0.close(token));
    assert_eq!(reader.join().unwrap(), written as u64);
}

pub(crate) fn a_change_reports_current_readiness(mut watch: Watch) {
    let (source, peer) = unix();
    let token = watch.add(source, READ);
    write(&peer, b"x");
    // An edge reports it once. A change makes it report again.
    assert_eq!(watch.next(token), Readiness::READABLE);
    watch.change(token, BOTH);
    let both = Readiness::READABLE | Readiness::WRITABLE;
    assert_eq!(watch.next(token), both);
    watch.change(token, WRITE);
    assert_eq!(watch.next(token), Readiness::WRITABLE);
    watch.change(token, READ);
    assert_eq!(watch.next(token), Readiness::READABLE);
    watch.change(token, NEITHER);
    watch.quiet();
    watch.change(token, READ);
    assert_eq!(watch.next(token), Readiness::READABLE);
}

pub(crate) fn pending_connections_are_events(mut watch: Watch) {
    let (listener, address) = listener();
    let token = watch.add(listener, READ);
    watch.quiet();
    let clients: Vec<_> = (0..3)
        .map(|_| {
            let client = TcpStream::connect(address).unwrap();
            assert_eq!(watch.next(token), Readiness::READABLE);
            watch.arm(token);
            client
        })
        .collect();
    for _ in &clients {
        rustix::net::accept(watch.fd(token)).unwrap();
    }
    assert_eq!(rustix::net::accept(watch.fd(token)).err(), Some(Errno::AGAIN));
    watch.quiet();
}
