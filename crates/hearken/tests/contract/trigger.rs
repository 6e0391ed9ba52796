//! "Level: in every batch for as long as it is so. Edge: once after each arrival, and after
//! declare and change if it is ready then; held back until it was said that it would block, where that
//! is needed. One-shot: as level, but once, until change."

use std::io;
use std::net::TcpStream;
use std::thread;

use hearken::Readiness;
use hearken::mechanism::Trigger;
use rustix::io::Errno;

use crate::support::*;

pub(crate) fn data_repeats_as_the_trigger_says(mut watch: Watch) {
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
                // More, though what was there has not been read.
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
        // And again from the start.
        watch.arm(token);
        write(&peer, b"z");
        assert_eq!(watch.next(token), Readiness::READABLE);
        watch.0.remove(token).unwrap();
    }
}

pub(crate) fn room_repeats_as_the_trigger_says(mut watch: Watch) {
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

pub(crate) fn the_end_of_the_stream_is_an_arrival(mut watch: Watch) {
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

pub(crate) fn room_made_again_is_reported(mut watch: Watch) {
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

/// On TCP room comes bit by bit: whoever writes until `EAGAIN` and waits, gets all across.
pub(crate) fn room_on_tcp_is_always_reported(mut watch: Watch) {
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

pub(crate) fn change_answers_for_what_is_ready(mut watch: Watch) {
    let (source, peer) = unix();
    let token = watch.add(source, READ);
    write(&peer, b"x");
    // Reported, and an edge has nothing more to say; a change has it say so again.
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

pub(crate) fn connections_waiting_to_be_accepted_arrive(mut watch: Watch) {
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
