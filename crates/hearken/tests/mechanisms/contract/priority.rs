//! Priority data: urgent data of TCP is reported to those who declare an interest in it, by every
//! mechanism that can report it.

use hearken::Readiness;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::support::*;

/// Sends urgent data.
fn send_urgent(to: impl std::os::fd::AsFd) {
    assert_eq!(send(to, b"!", SendFlags::OOB), Ok(1));
}

/// Takes urgent data.
fn take_urgent(from: impl std::os::fd::AsFd) {
    let mut byte = [0];
    let (received, _) = recv(from, &mut byte, RecvFlags::OOB).expect("urgent data");
    assert_eq!((received, byte), (1, *b"!"));
}

/// Returns whether the mechanism reports priority data. If not, it refuses the interest.
fn is_reported(watch: &mut Watch) -> bool {
    let reports = watch.reports(Readiness::PRIORITY);
    if !reports {
        let (source, _peer) = tcp();
        let refused = watch.try_add(source, READ | PRIORITY).expect_err("refused");
        assert_eq!(Errno::from_io_error(&refused), Some(Errno::OPNOTSUPP));
    }
    reports
}

pub(crate) fn urgent_data_is_an_event(mut watch: Watch) {
    if !is_reported(&mut watch) {
        return;
    }
    for later in [false, true] {
        let (source, peer) = tcp();
        let token = if later {
            let token = watch.add(source, PRIORITY);
            watch.quiet();
            send_urgent(&peer);
            token
        } else {
            send_urgent(&peer);
            watch.add(source, PRIORITY)
        };
        assert_eq!(watch.next(token), Readiness::PRIORITY);
        take_urgent(watch.fd(token));
        watch.0.would_block(token, PRIORITY);
        watch.arm(token);
        watch.quiet();
        // The next urgent data is a new event.
        send_urgent(&peer);
        assert_eq!(watch.next(token), Readiness::PRIORITY);
        watch.0.remove(token);
    }
}

pub(crate) fn urgent_data_is_reported_with_other_data(mut watch: Watch) {
    if !is_reported(&mut watch) {
        return;
    }
    let (source, peer) = tcp();
    let token = watch.add(source, READ | PRIORITY);
    write(&peer, b"x");
    send_urgent(&peer);
    let mut seen = Readiness::empty();
    let all = Readiness::READABLE | Readiness::PRIORITY;
    while seen != all {
        seen |= watch.next(token);
        assert!(all.contains(seen), "{seen:?}");
        watch.arm(token);
    }
}

pub(crate) fn other_data_is_not_priority_data(mut watch: Watch) {
    if !is_reported(&mut watch) {
        return;
    }
    let (source, peer) = tcp();
    let token = watch.add(source, PRIORITY);
    write(&peer, b"x");
    watch.quiet();
    watch.change(token, READ);
    assert_eq!(watch.next(token), Readiness::READABLE);
    drain(watch.fd(token));
    watch.0.would_block(token, READ);
    watch.change(token, WRITE);
    send_urgent(&peer);
    watch.until(token, Readiness::WRITABLE);
}

pub(crate) fn hang_up_is_reported_with_an_interest_in_priority_data_alone(mut watch: Watch) {
    if !is_reported(&mut watch) || !watch.reports(Readiness::HANGUP) {
        return;
    }
    let (source, peer) = unix();
    let token = watch.add(source, PRIORITY);
    drop(peer);
    let readiness = watch.until(token, Readiness::HANGUP);
    assert!(!readiness.has_priority(), "{readiness:?}");
}

pub(crate) fn exclusive_interest_in_priority_data_is_refused(mut watch: Watch) {
    let (source, _peer) = tcp();
    let token = watch.0.insert(std::rc::Rc::new(source));
    let refused = watch.0.declare_exclusive(token, READ | PRIORITY).expect_err("refused");
    assert_eq!(Errno::from_io_error(&refused), Some(Errno::INVAL));
}
