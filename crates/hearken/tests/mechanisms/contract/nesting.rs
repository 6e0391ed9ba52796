//! Nesting: another event loop can watch the descriptor of a mechanism that has one.

use std::time::Duration;

use hearken::Readiness;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::support::*;

/// Returns whether the descriptor becomes readable within `millis`.
fn becomes_readable(watch: &Watch, millis: i64) -> bool {
    let descriptor = watch.0.mechanism().descriptor().expect("a descriptor");
    let mut list = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
    let timeout = Timespec { tv_sec: 0, tv_nsec: millis * 1_000_000 };
    loop {
        match poll(&mut list, Some(&timeout)) {
            Err(rustix::io::Errno::INTR) => {}
            ready => return ready.expect("poll") > 0,
        }
    }
}

pub(crate) fn the_descriptor_is_readable_when_there_are_events(mut watch: Watch) {
    if watch.0.mechanism().descriptor().is_none() {
        return;
    }
    let (first, first_peer) = pipe();
    let (second, second_peer) = pipe();
    let tokens = [watch.add(first, READ), watch.add(second, READ)];
    for (token, peer) in tokens.into_iter().zip([&first_peer, &second_peer]) {
        for _ in 0..3 {
            assert!(watch.wait(8, Duration::ZERO).is_empty());
            assert!(!becomes_readable(&watch, 2));
            write(peer, b"x");
            assert!(becomes_readable(&watch, 900));
            assert_eq!(watch.next(token), Readiness::READABLE);
            drain(watch.fd(token));
            watch.0.would_block(token, READ);
            watch.arm(token);
        }
    }
}
