//! The end of connections: a peer's half-close makes a descriptor readable and does not affect
//! writability. Hang-up and error make it ready for all requested directions. A refused or
//! completed connect is writable.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use hearken::{Interest, Readiness};
use rustix::io::Errno;
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, ipproto, socket_with};

use super::support::*;

/// Returns those of `flags` that the mechanism reports.
fn reported(watch: &Watch, flags: Readiness) -> Readiness {
    flags & watch.0.semantics().reports
}

pub(crate) fn half_close_is_readable(mut watch: Watch) {
    for make in [unix, tcp] {
        let (source, peer) = make();
        let token = watch.add(source, READ);
        watch.quiet();
        rustix::net::shutdown(&peer, Shutdown::Write).unwrap();
        let expected = Readiness::READABLE | reported(&watch, Readiness::READ_CLOSED);
        let readiness = watch.next(token);
        // An end without data need not be distinguished from data.
        let alone = readiness == Readiness::READABLE && !watch.0.semantics().reports_state();
        assert!(readiness == expected || alone, "{readiness:?}");
        assert_eq!(drain(watch.fd(token)), (0, true));
        watch.0.remove(token).unwrap();
    }
}

/// Checks that a reader that continues after a short read only if `READ_CLOSED` is reported reaches
/// the end.
pub(crate) fn a_reader_that_stops_at_a_short_read_reaches_the_end(mut watch: Watch) {
    if !watch.reports(Readiness::READ_CLOSED) {
        return;
    }
    for make in [unix, tcp, pipe] {
        for max in [1, 64] {
            let (source, peer) = make();
            let token = watch.add(source, READ);
            watch.quiet();
            write(&peer, b"last words");
            drop(peer);
            let mut ended = false;
            while !ended {
                let readiness = watch.next_batch(max)[0].readiness;
                let mut bytes = [0; 64];
                while let Ok(got) = rustix::io::read(watch.fd(token), &mut bytes) {
                    ended = got == 0;
                    if ended || !readiness.contains(Readiness::READ_CLOSED) {
                        break;
                    }
                }
                watch.arm(token);
            }
            watch.0.remove(token).unwrap();
        }
    }
}

pub(crate) fn half_close_does_not_affect_writability(mut watch: Watch) {
    let expected = Readiness::READABLE | reported(&watch, Readiness::READ_CLOSED);
    // With space it is writable as before, and without space it is not.
    for make in [unix, tcp] {
        let (source, peer) = make();
        let token = watch.add(source, BOTH);
        rustix::net::shutdown(&peer, Shutdown::Write).unwrap();
        let readiness = watch.until(token, Readiness::READABLE);
        assert_eq!(readiness, expected | Readiness::WRITABLE);
        write(watch.fd(token), b"x");
        watch.0.remove(token).unwrap();
    }
    let (source, peer) = unix();
    fill(&source);
    let token = watch.add(source, BOTH);
    rustix::net::shutdown(&peer, Shutdown::Write).unwrap();
    assert_eq!(watch.next(token), expected);
    watch.change(token, WRITE);
    watch.quiet();
}

pub(crate) fn half_close_after_data_is_reported_with_them(mut watch: Watch) {
    for make in [unix, tcp] {
        let (source, peer) = make();
        write(&peer, b"last words");
        rustix::net::shutdown(&peer, Shutdown::Write).unwrap();
        let token = watch.add(source, READ);
        let wanted = Readiness::READABLE | reported(&watch, Readiness::READ_CLOSED);
        watch.until(token, wanted);
        assert_eq!(drain(watch.fd(token)), (10, true));
        watch.0.remove(token).unwrap();
    }
}

/// Closes a socket with a reset.
fn reset(end: OwnedFd) {
    rustix::net::sockopt::set_socket_linger(&end, Some(Duration::ZERO)).unwrap();
    drop(end);
}

pub(crate) fn reset_is_readable(mut watch: Watch) {
    let (source, peer) = tcp();
    let token = watch.add(source, READ);
    watch.quiet();
    reset(peer);
    let expected = Readiness::READABLE
        | reported(&watch, Readiness::READ_CLOSED | Readiness::HANGUP | Readiness::ERROR);
    assert_eq!(watch.next(token), expected);
    let read = rustix::io::read(watch.fd(token), &mut [0; 8]);
    assert_eq!(read, Err(Errno::CONNRESET));
}

pub(crate) fn reset_is_writable(mut watch: Watch) {
    let (source, peer) = tcp();
    fill(&source);
    let token = watch.add(source, WRITE);
    reset(peer);
    let error = reported(&watch, Readiness::HANGUP | Readiness::ERROR);
    let readiness = watch.until(token, Readiness::WRITABLE | error);
    assert!(!readiness.is_readable(), "{readiness:?}");
    // The first event may report space, if the mechanism cannot distinguish it from an error.
    let written = std::iter::repeat_with(|| rustix::io::write(watch.fd(token), &[7; 4096]));
    let refused = written.filter(|written| *written != Err(Errno::AGAIN)).find_map(Result::err);
    assert_eq!(refused, Some(Errno::CONNRESET));
}

pub(crate) fn close_is_readable(mut watch: Watch) {
    for make in [unix, tcp] {
        let (source, peer) = make();
        let token = watch.add(source, READ);
        watch.quiet();
        drop(peer);
        let expected = Readiness::READABLE | reported(&watch, Readiness::READ_CLOSED);
        assert!(watch.next(token).contains(expected));
        assert_eq!(drain(watch.fd(token)), (0, true));
        watch.0.remove(token).unwrap();
    }
}

pub(crate) fn close_is_writable(mut watch: Watch) {
    let (source, peer) = unix();
    fill(&source);
    let token = watch.add(source, WRITE);
    watch.quiet();
    drop(peer);
    assert!(watch.next(token).is_writable());
    let write = rustix::io::write(watch.fd(token), b"x");
    assert_eq!(write, Err(Errno::PIPE));
}

/// Checks that a full socket is writable after the peer has shut down both directions without
/// reading, if the mechanism reports hang-ups.
pub(crate) fn hang_up_is_writable_without_space(mut watch: Watch) {
    let (source, peer) = unix();
    fill(&source);
    let token = watch.add(source, WRITE);
    watch.quiet();
    rustix::net::shutdown(&peer, Shutdown::Both).unwrap();
    if watch.reports(Readiness::HANGUP) {
        assert!(watch.next(token).is_writable());
        let write = rustix::io::write(watch.fd(token), b"x");
        assert_eq!(write, Err(Errno::PIPE));
    } else {
        watch.change(token, READ);
        assert!(watch.next(token).is_readable());
    }
}

fn connecting(to: SocketAddr) -> (OwnedFd, Result<(), Errno>) {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let stream = SocketType::STREAM;
    let socket = socket_with(AddressFamily::INET, stream, flags, Some(ipproto::TCP)).unwrap();
    let connected = rustix::net::connect(&socket, &to);
    (socket, connected)
}

pub(crate) fn a_refused_connect_is_writable(mut watch: Watch) {
    for interest in [WRITE, BOTH] {
        // The port is bound, so that no other socket takes it, and not listening.
        let flags = SocketFlags::CLOEXEC;
        let holder = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
        rustix::net::bind(&holder, &"127.0.0.1:0".parse::<SocketAddr>().unwrap()).unwrap();
        let address = rustix::net::getsockname(&holder).unwrap();
        let (socket, connected) = connecting(address.try_into().unwrap());
        let token = watch.add(socket, interest);
        let readiness = watch.until(token, Readiness::WRITABLE);
        if connected == Err(Errno::INPROGRESS) {
            assert!(readiness.contains(reported(&watch, Readiness::ERROR)));
            let error = rustix::net::sockopt::socket_error(watch.fd(token)).unwrap();
            assert_eq!(error, Err(Errno::CONNREFUSED));
        }
        watch.0.remove(token).unwrap();
    }
}

pub(crate) fn a_completed_connect_is_writable(mut watch: Watch) {
    for interest in [WRITE, BOTH] {
        let (listener, address) = listener();
        let (socket, _) = connecting(address);
        let token = watch.add(socket, interest);
        assert_eq!(watch.until(token, Readiness::WRITABLE), Readiness::WRITABLE);
        let error = rustix::net::sockopt::socket_error(watch.fd(token)).unwrap();
        assert_eq!(error, Ok(()));
        write(watch.fd(token), b"x");
        watch.0.remove(token).unwrap();
        drop(listener);
    }
}

fn pipe_end(watch: &mut Watch, end: OwnedFd, interest: Interest) -> Readiness {
    let token = watch.add(end, interest);
    let readiness = watch.next(token);
    watch.0.remove(token).unwrap();
    readiness
}

pub(crate) fn a_pipe_without_writers_is_readable(mut watch: Watch) {
    let (source, peer) = pipe();
    drop(peer);
    let readiness = pipe_end(&mut watch, source, READ);
    let expected = reported(&watch, Readiness::READ_CLOSED | Readiness::HANGUP);
    assert_eq!(readiness, Readiness::READABLE | expected);
}

pub(crate) fn a_pipe_without_readers_is_writable(mut watch: Watch) {
    for full in [false, true] {
        let (peer, source) = pipe();
        if full {
            fill(&source);
        }
        drop(peer);
        let readiness = pipe_end(&mut watch, source, WRITE);
        let expected = reported(&watch, Readiness::ERROR);
        assert_eq!(readiness, Readiness::WRITABLE | expected);
    }
}

pub(crate) fn a_pipe_that_loses_its_readers_ends_a_wait(mut watch: Watch) {
    for (interest, full) in [(READ, false), (READ, true), (WRITE, true)] {
        let (peer, source) = pipe();
        if full {
            fill(&source);
        }
        let token = watch.add(source, interest);
        watch.quiet();
        drop(peer);
        let expected = reported(&watch, Readiness::ERROR);
        assert!(watch.next(token).contains(expected), "{interest:?} {full}");
        watch.0.remove(token).unwrap();
    }
}
