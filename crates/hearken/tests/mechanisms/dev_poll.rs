//! The calls of Solaris's /dev/poll, as described by poll(7D) and by Provos and Lever.

// `write` takes descriptor numbers, as the original does.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use hearken::Interest;
use hearken::mechanism::dev_poll::{DevPoll, POLLREMOVE, PollFd};
use hearken::mechanism::{Registry, find};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::contract::support::{number_of_my_own, renumber};
use crate::suite::{AnyMechanism, Tests, tests};

/// Returns the tests of this module.
pub(crate) fn tests() -> Tests {
    tests! {
        written_descriptors_are_reported_while_ready
        readiness_before_the_write_is_reported
        writing_again_adds_to_the_events
        removed_descriptors_are_silent_and_can_be_written_again
        pollremove_with_other_events_does_not_remove
        negative_numbers_are_ignored
        is_polled_returns_the_polled_events
        a_timeout_is_never_early
        without_a_timeout_it_waits_for_an_event
        more_may_be_ready_than_fit
        dp_alloc_makes_shared_results_available
        a_descriptor_closed_while_ready_reports_pollnval
        a_rewritten_number_belongs_to_the_new_descriptor
        a_regular_file_is_always_ready
        hang_up_is_reported_without_a_request
        all_events_of_poll_can_be_requested
        results_match_poll
        a_signal_interrupts_a_poll
        more_hints_than_the_limit_are_an_overflow
        a_scan_of_the_set_makes_one_call
    }
}

const IN: i16 = libc::POLLIN;
const OUT: i16 = libc::POLLOUT;
const NOW: Option<Duration> = Some(Duration::ZERO);
/// Maximum time to wait for an event, which no successful test reaches.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(20));

fn pair() -> (UnixStream, UnixStream) {
    let (socket, peer) = UnixStream::pair().unwrap();
    socket.set_nonblocking(true).unwrap();
    (socket, peer)
}

fn pipe() -> (OwnedFd, OwnedFd) {
    pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC).unwrap()
}

fn entry_for(source: impl AsFd, events: i16) -> PollFd {
    PollFd { fd: source.as_fd().as_raw_fd(), events, revents: 0 }
}

fn write(device: &mut DevPoll, changes: &[PollFd]) {
    // SAFETY: the tests keep the descriptors open, or close them to check the results.
    unsafe { device.write(changes) }.unwrap();
}

/// Returns the descriptors that are ready now, with the requested and the reported events, by
/// number.
fn ready(device: &mut DevPoll) -> Vec<(RawFd, i16, i16)> {
    let mut results = [PollFd::default(); 64];
    let found = device.dp_poll(&mut results, NOW).unwrap();
    let mut found: Vec<_> =
        results[..found].iter().map(|entry| (entry.fd, entry.events, entry.revents)).collect();
    found.sort_unstable();
    found
}

fn written_descriptors_are_reported_while_ready() {
    let mut device = DevPoll::open().unwrap();
    let (mut socket, mut peer) = pair();
    let fd = socket.as_raw_fd();
    write(&mut device, &[entry_for(&socket, IN)]);
    assert_eq!(ready(&mut device), []);
    peer.write_all(b"x").unwrap();
    for _ in 0..3 {
        assert_eq!(ready(&mut device), [(fd, IN, IN)]);
    }
    socket.read_exact(&mut [0]).unwrap();
    for _ in 0..2 {
        assert_eq!(ready(&mut device), []);
    }
    peer.write_all(b"x").unwrap();
    assert_eq!(ready(&mut device), [(fd, IN, IN)]);
}

fn readiness_before_the_write_is_reported() {
    let mut device = DevPoll::open().unwrap();
    let (socket, mut peer) = pair();
    peer.write_all(b"x").unwrap();
    write(&mut device, &[entry_for(&socket, IN | OUT)]);
    assert_eq!(ready(&mut device), [(socket.as_raw_fd(), IN | OUT, IN | OUT)]);
}

fn writing_again_adds_to_the_events() {
    let mut device = DevPoll::open().unwrap();
    let (socket, mut peer) = pair();
    let fd = socket.as_raw_fd();
    write(&mut device, &[entry_for(&socket, IN)]);
    write(&mut device, &[entry_for(&socket, OUT)]);
    peer.write_all(b"x").unwrap();
    assert_eq!(ready(&mut device), [(fd, IN | OUT, IN | OUT)]);
    // Two entries of one write do the same.
    let (other, _peer) = pair();
    write(
        &mut device,
        &[entry_for(&socket, POLLREMOVE), entry_for(&other, IN), entry_for(&other, OUT)],
    );
    assert_eq!(ready(&mut device), [(other.as_raw_fd(), IN | OUT, OUT)]);
}

fn removed_descriptors_are_silent_and_can_be_written_again() {
    for remove in [POLLREMOVE, 0x1000] {
        let mut device = DevPoll::open().unwrap();
        let (socket, mut peer) = pair();
        let fd = socket.as_raw_fd();
        write(&mut device, &[entry_for(&socket, IN | OUT)]);
        peer.write_all(b"x").unwrap();
        assert_eq!(ready(&mut device).len(), 1);
        write(&mut device, &[entry_for(&socket, remove)]);
        assert_eq!(ready(&mut device), []);
        peer.write_all(b"y").unwrap();
        assert_eq!(ready(&mut device), []);
        // Removing first, in the same write, reduces the events.
        write(&mut device, &[entry_for(&socket, IN | OUT)]);
        write(&mut device, &[entry_for(&socket, remove), entry_for(&socket, OUT)]);
        assert_eq!(ready(&mut device), [(fd, OUT, OUT)]);
        // Removing an absent descriptor has no effect.
        write(&mut device, &[entry_for(&socket, remove), entry_for(&socket, remove)]);
        assert_eq!(ready(&mut device), []);
    }
}

fn pollremove_with_other_events_does_not_remove() {
    let mut device = DevPoll::open().unwrap();
    let (socket, _there) = pair();
    write(&mut device, &[entry_for(&socket, OUT)]);
    write(&mut device, &[entry_for(&socket, POLLREMOVE | IN)]);
    let ready = ready(&mut device);
    assert_eq!(ready.len(), 1);
    assert_eq!(ready[0].2, OUT);
}

fn negative_numbers_are_ignored() {
    let mut device = DevPoll::open().unwrap();
    let (socket, _there) = pair();
    let ignored = PollFd { fd: -1, events: IN, revents: 0 };
    write(&mut device, &[ignored, entry_for(&socket, OUT), ignored]);
    assert_eq!(ready(&mut device).len(), 1);
    assert!(!device.is_polled(&mut ignored.clone()));
}

fn is_polled_returns_the_polled_events() {
    let mut device = DevPoll::open().unwrap();
    let (socket, _there) = pair();
    let fd = socket.as_raw_fd();
    let untouched = PollFd { fd, events: 77, revents: 88 };
    let mut question = untouched;
    assert!(!device.is_polled(&mut question));
    assert_eq!(question, untouched);
    write(&mut device, &[entry_for(&socket, IN)]);
    assert!(device.is_polled(&mut question));
    assert_eq!(question, PollFd { fd, events: 0, revents: IN });
    write(&mut device, &[entry_for(&socket, OUT)]);
    assert!(device.is_polled(&mut question));
    assert_eq!(question.revents, IN | OUT);
    write(&mut device, &[entry_for(&socket, POLLREMOVE)]);
    question = untouched;
    assert!(!device.is_polled(&mut question));
    assert_eq!(question, untouched);
    for fd in [RawFd::MIN, -1, RawFd::MAX] {
        assert!(!device.is_polled(&mut PollFd { fd, ..untouched }));
    }
}

fn a_timeout_is_never_early() {
    let mut device = DevPoll::open().unwrap();
    let (socket, _there) = pair();
    write(&mut device, &[entry_for(&socket, IN)]);
    let untouched = PollFd { fd: 9, events: 77, revents: 88 };
    let mut results = [untouched; 4];
    for timeout in [Duration::ZERO, Duration::from_micros(300), Duration::from_millis(20)] {
        let start = Instant::now();
        assert_eq!(device.dp_poll(&mut results, Some(timeout)).unwrap(), 0);
        assert!(start.elapsed() >= timeout);
        assert_eq!(results, [untouched; 4], "they are not modified");
        // Without space for results it sleeps, even if descriptors are ready.
        write(&mut device, &[entry_for(&socket, OUT)]);
        let start = Instant::now();
        assert_eq!(device.dp_poll(&mut [], Some(timeout)).unwrap(), 0);
        assert!(start.elapsed() >= timeout);
        write(&mut device, &[entry_for(&socket, POLLREMOVE), entry_for(&socket, IN)]);
    }
}

fn without_a_timeout_it_waits_for_an_event() {
    let mut device = DevPoll::open().unwrap();
    let (socket, mut peer) = pair();
    write(&mut device, &[entry_for(&socket, IN)]);
    for timeout in [None, PATIENCE, Some(Duration::MAX)] {
        let mut peer = peer.try_clone().unwrap();
        let writer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(10));
            peer.write_all(b"x").unwrap();
        });
        let mut results = [PollFd::default(); 4];
        assert_eq!(device.dp_poll(&mut results, timeout).unwrap(), 1);
        assert_eq!(results[0], PollFd { fd: socket.as_raw_fd(), events: IN, revents: IN });
        writer.join().unwrap();
        (&socket).read_exact(&mut [0]).unwrap();
    }
    peer.flush().unwrap();
}

/// Checks that descriptors that do not fit come first in the next poll, so n descriptors take n /
/// room polls.
fn more_may_be_ready_than_fit() {
    for (count, room) in [(10, 3), (150, 1), (100, 64)] {
        let mut device = DevPoll::open().unwrap();
        let pairs: Vec<_> = (0..count).map(|_| pair()).collect();
        let all: Vec<_> = pairs.iter().map(|(socket, _)| entry_for(socket, OUT)).collect();
        write(&mut device, &all);
        for _ in 0..2 {
            let mut seen = std::collections::HashSet::new();
            let mut results = vec![PollFd::default(); room];
            for _ in 0..count / room {
                assert_eq!(device.dp_poll(&mut results, PATIENCE).unwrap(), room);
                seen.extend(results.iter().map(|entry| entry.fd));
            }
            assert_eq!(
                seen.len(),
                count / room * room,
                "a descriptor is reported twice before all were reported"
            );
        }
    }
}

fn dp_alloc_makes_shared_results_available() {
    let mut device = DevPoll::open().unwrap();
    assert_eq!(device.dp_poll_shared(NOW).unwrap_err().kind(), ErrorKind::InvalidInput);
    let mut pairs: Vec<_> = (0..5).map(|_| pair()).collect();
    for (socket, _) in &pairs {
        write(&mut device, &[entry_for(socket, IN)]);
    }
    device.dp_alloc(3);
    assert_eq!(device.dp_poll_shared(NOW).unwrap(), []);
    for (_, peer) in &mut pairs {
        peer.write_all(b"x").unwrap();
    }
    let mut seen = std::collections::HashSet::new();
    for _ in 0..2 {
        let results = device.dp_poll_shared(PATIENCE).unwrap();
        assert_eq!(results.len(), 3);
        assert!(results.iter().all(|entry| (entry.events, entry.revents) == (IN, IN)));
        seen.extend(results.iter().map(|entry| entry.fd));
    }
    assert_eq!(seen.len(), 5);
    device.dp_alloc(64);
    assert_eq!(device.dp_poll_shared(PATIENCE).unwrap().len(), 5);
    // Changes between polls do not affect the next result.
    write(&mut device, &[entry_for(&pairs[1].0, POLLREMOVE), entry_for(&pairs[4].0, OUT)]);
    (&pairs[0].0).read_exact(&mut [0]).unwrap();
    let mut found: Vec<_> = device
        .dp_poll_shared(PATIENCE)
        .unwrap()
        .iter()
        .map(|entry| (entry.fd, entry.revents))
        .collect();
    found.sort_unstable();
    let fd = |at: usize| pairs[at].0.as_raw_fd();
    let mut expected = [(fd(2), IN), (fd(3), IN), (fd(4), IN | OUT)];
    expected.sort_unstable();
    assert_eq!(found, expected);
}

/// Checks what poll(7D) documents: "Failure to do so may result in a POLLNVAL being returned for
/// the closed descriptor."
fn a_descriptor_closed_while_ready_reports_pollnval() {
    let mut device = DevPoll::open().unwrap();
    let (socket, mut peer) = pair();
    // A number that the kernel does not assign to a descriptor of another test meanwhile.
    let Some(number) = number_of_my_own(1500..=16384) else { return };
    let socket = renumber(socket.into(), number);
    let fd = socket.as_raw_fd();
    write(&mut device, &[entry_for(&socket, IN)]);
    peer.write_all(b"x").unwrap();
    assert_eq!(ready(&mut device), [(fd, IN, IN)]);
    drop(socket);
    for _ in 0..2 {
        assert_eq!(ready(&mut device), [(fd, IN, libc::POLLNVAL)]);
    }
    write(&mut device, &[PollFd { fd, events: POLLREMOVE, revents: 0 }]);
    assert_eq!(ready(&mut device), []);
    // A number that was never open is reported too, and not refused.
    write(&mut device, &[PollFd { fd, events: IN, revents: 0 }]);
    assert_eq!(ready(&mut device), [(fd, IN, libc::POLLNVAL)]);
}

fn a_rewritten_number_belongs_to_the_new_descriptor() {
    let mut device = DevPoll::open().unwrap();
    let (old, mut old_peer) = pair();
    let Some(number) = number_of_my_own(1500..=16384) else { return };
    let old = renumber(old.into(), number);
    let fd = old.as_raw_fd();
    write(&mut device, &[entry_for(&old, IN)]);
    // A duplicate keeps the old file open. Its events must not be reported for the number.
    let duplicate = old.try_clone().unwrap();
    for removed in [true, false] {
        let (new, mut new_peer) = pair();
        if removed {
            write(&mut device, &[PollFd { fd, events: POLLREMOVE, revents: 0 }]);
        }
        // SAFETY: this test owns the number, and does not use `old` as a socket again.
        assert_eq!(unsafe { libc::dup2(new.as_raw_fd(), fd) }, fd);
        write(&mut device, &[PollFd { fd, events: IN, revents: 0 }]);
        old_peer.write_all(b"x").unwrap();
        assert_eq!(ready(&mut device), []);
        new_peer.write_all(b"x").unwrap();
        assert_eq!(ready(&mut device), [(fd, IN, IN)]);
        (&new).read_exact(&mut [0]).unwrap();
        assert_eq!(ready(&mut device), []);
    }
    drop(duplicate);
}

/// Checks a file, for which epoll(7) gives no hints.
fn a_regular_file_is_always_ready() {
    let mut device = DevPoll::open().unwrap();
    let file: File = tempfile::tempfile().unwrap();
    let (socket, mut peer) = pair();
    write(&mut device, &[entry_for(&file, IN), entry_for(&socket, IN)]);
    let (file_fd, fd) = (file.as_raw_fd(), socket.as_raw_fd());
    for _ in 0..3 {
        assert_eq!(ready(&mut device), [(file_fd, IN, IN)]);
    }
    peer.write_all(b"x").unwrap();
    let mut expected = [(file_fd, IN, IN), (fd, IN, IN)];
    expected.sort_unstable();
    assert_eq!(ready(&mut device), expected);
    write(&mut device, &[entry_for(&file, POLLREMOVE)]);
    assert_eq!(ready(&mut device), [(fd, IN, IN)]);
}

fn hang_up_is_reported_without_a_request() {
    let mut device = DevPoll::open().unwrap();
    let (reader, writer) = pipe();
    write(&mut device, &[entry_for(&reader, 0)]);
    assert_eq!(ready(&mut device), []);
    drop(writer);
    for _ in 0..2 {
        assert_eq!(ready(&mut device), [(reader.as_raw_fd(), 0, libc::POLLHUP)]);
    }
}

fn all_events_of_poll_can_be_requested() {
    let mut device = DevPoll::open().unwrap();
    let (socket, mut peer) = pair();
    let fd = socket.as_raw_fd();
    let all = libc::POLLRDNORM | libc::POLLWRNORM | libc::POLLRDHUP;
    write(&mut device, &[entry_for(&socket, all)]);
    assert_eq!(ready(&mut device), [(fd, all, libc::POLLWRNORM)]);
    peer.write_all(b"x").unwrap();
    assert_eq!(ready(&mut device), [(fd, all, libc::POLLRDNORM | libc::POLLWRNORM)]);
    peer.shutdown(Shutdown::Write).unwrap();
    assert_eq!(ready(&mut device), [(fd, all, all)]);

    // Urgent data are a separate event.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let sender = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (receiver, _) = listener.accept().unwrap();
    let mut device = DevPoll::open().unwrap();
    write(&mut device, &[entry_for(&receiver, libc::POLLPRI)]);
    assert_eq!(ready(&mut device), []);
    rustix::net::send(&sender, b"!", rustix::net::SendFlags::OOB).unwrap();
    let mut results = [PollFd::default(); 4];
    assert_eq!(device.dp_poll(&mut results, PATIENCE).unwrap(), 1);
    assert_eq!(results[0].revents, libc::POLLPRI);
}

/// Compares the cache and its hints with poll(2) at every step of a random history.
fn results_match_poll() {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % below as u64) as usize
    };
    let mut device = DevPoll::open().unwrap();
    let mut pairs: Vec<_> = (0..12).map(|_| pair()).collect();
    let mut events = vec![None; pairs.len()];
    for step in 0..20_000 {
        let at = random(pairs.len());
        let (socket, peer) = &mut pairs[at];
        match random(8) {
            0 | 1 => {
                let more = [IN, OUT, IN | OUT, 0][random(4)];
                write(&mut device, &[entry_for(&*socket, more)]);
                *events[at].get_or_insert(0) |= more;
            }
            2 => {
                write(&mut device, &[entry_for(&*socket, POLLREMOVE)]);
                events[at] = None;
            }
            3 | 4 => peer.write_all(b"x").unwrap(),
            5 => _ = socket.read(&mut [0; 4096]),
            6 => while socket.write(&[7; 4096]).is_ok() {},
            _ => {
                peer.set_nonblocking(true).unwrap();
                while peer.read(&mut [0; 65536]).is_ok_and(|got| got > 0) {}
                if random(4) == 0 {
                    write(&mut device, &[entry_for(&*socket, POLLREMOVE)]);
                    events[at] = None;
                    pairs[at] = pair();
                }
            }
        }
        if random(2) == 0 {
            continue;
        }
        let mut expected = Vec::new();
        for ((socket, _), events) in pairs.iter().zip(&events) {
            let Some(events) = *events else { continue };
            let mut entry = libc::pollfd { fd: socket.as_raw_fd(), events, revents: 0 };
            // SAFETY: the array has one element.
            assert!(unsafe { libc::poll(&raw mut entry, 1, 0) } >= 0);
            if entry.revents != 0 {
                expected.push((entry.fd, events, entry.revents));
            }
        }
        expected.sort_unstable();
        assert_eq!(ready(&mut device), expected, "at step {step}");
    }
}

/// Checks that a signal ends a poll with `EINTR`, as in the original.
fn a_signal_interrupts_a_poll() {
    extern "C" fn on_signal(_: libc::c_int) {}
    let on_signal: extern "C" fn(libc::c_int) = on_signal;
    // SAFETY: the handler does nothing, and no other test uses the signal.
    unsafe { libc::signal(libc::SIGUSR2, on_signal as libc::sighandler_t) };
    let mut device = DevPoll::open().unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    let poller = std::thread::spawn(move || {
        // SAFETY: the call only returns the identifier of the calling thread.
        sender.send(unsafe { libc::pthread_self() }).unwrap();
        device.dp_poll(&mut [PollFd::default()], PATIENCE).map_err(|error| error.kind())
    });
    let thread = receiver.recv().unwrap();
    while !poller.is_finished() {
        // SAFETY: the thread is not joined yet, so its identifier is valid.
        unsafe { libc::pthread_kill(thread, libc::SIGUSR2) };
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(poller.join().unwrap(), Err(ErrorKind::Interrupted));
}

/// Returns a registry over a variant of the mechanism with idle pairs, and their peers.
fn variant(spec: &str, pairs: usize) -> (Registry<AnyMechanism, OwnedFd>, Vec<UnixStream>) {
    let mut registry = Registry::new(find(spec).unwrap().open().unwrap());
    let peers = (0..pairs).map(|_| {
        let (socket, peer) = pair();
        let token = registry.insert(OwnedFd::from(socket));
        registry.declare(token, Interest::READ).unwrap();
        peer
    });
    let peers = peers.collect();
    assert_eq!(registry.wait(64, NOW).unwrap(), 0);
    (registry, peers)
}

fn more_hints_than_the_limit_are_an_overflow() {
    for (limit, ready, overflows) in [(8, 8, 0), (8, 9, 1), (64, 65, 1), (1000, 200, 0)] {
        let (mut registry, mut peers) = variant(&format!("dev-poll:hints={limit}"), 300);
        for peer in peers.iter_mut().rev().take(ready) {
            peer.write_all(b"x").unwrap();
        }
        assert_eq!(registry.wait(300, PATIENCE).unwrap(), ready);
        assert_eq!(registry.counters().overflows, overflows, "{limit}");
        // A descriptor that remains ready needs no hint.
        assert_eq!(registry.wait(300, PATIENCE).unwrap(), ready);
        assert_eq!(registry.counters().overflows, overflows, "{limit}");
    }
}

fn a_scan_of_the_set_makes_one_call() {
    let (mut registry, mut peers) = variant("dev-poll:scan=set", 100);
    peers[70].write_all(b"x").unwrap();
    for _ in 0..3 {
        let before = registry.counters().calls;
        assert_eq!(registry.wait(8, PATIENCE).unwrap(), 1);
        assert_eq!(registry.counters().calls - before, 1);
    }
}
