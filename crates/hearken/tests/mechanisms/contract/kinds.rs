//! Kinds and numbers of descriptors.

use std::collections::HashSet;
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;

use hearken::Readiness;
use hearken::mechanism::Trigger;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use super::support::*;

/// Sends twice, and checks that there are no events in between.
fn send_twice(mut watch: Watch, (source, peer): (OwnedFd, OwnedFd)) {
    let token = watch.add(source, READ);
    for _ in 0..2 {
        watch.quiet();
        write(&peer, b"data");
        assert_eq!(watch.next(token), Readiness::READABLE);
        assert_eq!(rustix::io::read(watch.fd(token), &mut [0; 8]), Ok(4));
        watch.arm(token);
    }
    watch.quiet();
}

pub(crate) fn pipes(watch: Watch) {
    send_twice(watch, pipe());
}

pub(crate) fn unix_streams(watch: Watch) {
    send_twice(watch, unix());
}

pub(crate) fn unix_datagrams(watch: Watch) {
    let (socket, peer) = UnixDatagram::pair().unwrap();
    socket.set_nonblocking(true).unwrap();
    send_twice(watch, (socket.into(), peer.into()));
}

pub(crate) fn tcp(watch: Watch) {
    send_twice(watch, super::support::tcp());
}

pub(crate) fn udp(watch: Watch) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    socket.connect(peer.local_addr().unwrap()).unwrap();
    peer.connect(socket.local_addr().unwrap()).unwrap();
    send_twice(watch, (socket.into(), peer.into()));
}

/// Checks that an eventfd is watched, or refused: it raises no signal.
pub(crate) fn eventfds(mut watch: Watch) {
    let counter = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap();
    let writer = counter.try_clone().unwrap();
    match watch.try_add(counter, READ) {
        Ok(token) => {
            watch.quiet();
            write(&writer, &1_u64.to_ne_bytes());
            assert_eq!(watch.next(token), Readiness::READABLE);
        }
        Err(error) => assert_eq!(Errno::from_io_error(&error), Some(Errno::PERM)),
    }
}

pub(crate) fn numbers_above_fd_setsize(mut watch: Watch) {
    let Some(number) = number_of_my_own(1500..=16384) else {
        return;
    };
    let (low, low_peer) = unix();
    let (high, high_peer) = unix();
    let low = watch.add(low, READ);
    let high = watch.add(renumber(high, number), BOTH);
    assert_eq!(watch.next(high), Readiness::WRITABLE);
    watch.arm(high);
    if watch.trigger() == Trigger::OneShot {
        // An armed descriptor is reported again.
        assert_eq!(watch.next(high), Readiness::WRITABLE);
        watch.arm(high);
    }
    write(&high_peer, b"x");
    // An edge may report only the new arrival.
    let reported = watch.next(high) | Readiness::WRITABLE;
    assert_eq!(reported, Readiness::READABLE | Readiness::WRITABLE);
    watch.0.close(high);
    write(&low_peer, b"x");
    assert_eq!(watch.next(low), Readiness::READABLE);
}

pub(crate) fn two_thousand_descriptors(mut watch: Watch) {
    let _lock = crate::suite::lock_many_descriptors();
    let pairs = 1000.min(limit() / 4);
    let mut ends = Vec::new();
    for _ in 0..pairs {
        let (socket, peer) = unix();
        ends.push(watch.add(socket, READ));
        ends.push(watch.add(peer, READ));
    }
    // Every seventh descriptor has data. The peer of each end is its neighbour.
    let peer = |at: usize| at ^ 1;
    for expected in [7, 1] {
        let ready: HashSet<_> = (0..ends.len()).step_by(expected).collect();
        for &at in &ready {
            write(watch.fd(ends[peer(at)]), b"x");
        }
        let expected: HashSet<_> = ready.iter().map(|&at| ends[at]).collect();
        let mut seen = HashSet::new();
        while seen.len() < expected.len() {
            for event in watch.next_batch(256) {
                assert!(expected.contains(&event.token));
                drain(watch.fd(event.token));
                watch.arm(event.token);
                let again = !seen.insert(event.token);
                assert!(!again || watch.trigger() == Trigger::Edge);
            }
        }
        watch.quiet();
    }
    for token in ends {
        assert!(watch.0.close(token));
    }
    watch.quiet();
}

/// Checks that all open descriptors are reported while slots and numbers are reused.
pub(crate) fn adding_and_removing(mut watch: Watch) {
    let mut open = Vec::new();
    for round in 0..300_usize {
        let (source, peer) = unix();
        open.push((watch.add(source, if round % 3 == 0 { NEITHER } else { READ }), peer));
        if round % 4 != 0 {
            let (token, peer) = open.swap_remove(round * 7 % open.len());
            match round % 3 {
                0 => drop(watch.0.remove(token)),
                1 => drop(watch.0.close(token)),
                _ => {
                    drop(peer);
                    watch.0.remove(token);
                }
            }
        }
    }
    assert_eq!(watch.0.len(), open.len());
    for (token, peer) in &open {
        watch.change(*token, READ);
        write(peer, b"x");
        assert_eq!(watch.next(*token), Readiness::READABLE);
        drain(watch.fd(*token));
        watch.arm(*token);
    }
}
