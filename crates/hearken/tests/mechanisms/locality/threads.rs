//! `locality:threads=2`: the hand-over of descriptors to the second thread and back.

use std::io::{ErrorKind, Read};
use std::thread::Builder;

use hearken::descriptors::Table;

use super::*;

/// Returns the tests of this module.
pub(crate) fn tests() -> Tests {
    tests! {
        a_wait_polls_active_descriptors_only
        a_wait_without_timeout_finds_inactive_descriptors
        closing_an_inactive_descriptor_closes_its_file
        a_changed_or_locked_descriptor_becomes_active
        another_descriptor_table_is_refused
        inactive_descriptors_are_found_within_the_bound
    }
}

fn threaded(n: u32, sleep: &str) -> World {
    let n = n.to_string();
    World::over(open(&[("tuning", "fixed"), ("n", &n), ("sleep-us", sleep), ("threads", "2")]))
}

/// Waits until all descriptors but `active` are inactive.
fn wait_until_inactive(world: &mut World, active: usize) {
    while world.sets().0 > active {
        world.wait_without_events(1);
    }
}

fn a_wait_polls_active_descriptors_only() {
    let _lock = lock_many_descriptors();
    let mut world = threaded(3, "4000").with(1000);
    wait_until_inactive(&mut world, 0);
    assert_eq!(world.sets(), (0, 0, 1000));
    for _ in 0..500 {
        world.event(600);
    }
    let before = world.checked();
    for _ in 0..500 {
        world.event(600);
    }
    // The descriptor and the notifications. No wait fails to find it.
    assert_eq!(world.checked() - before, 500 * 2);
    assert_eq!(world.sets(), (1, 0, 999));
}

fn a_wait_without_timeout_finds_inactive_descriptors() {
    let mut world = threaded(2, "4000").with(200);
    for round in 0..100 {
        wait_until_inactive(&mut world, 0);
        let peer = world.sockets[round % 7].1.try_clone().unwrap();
        let writer = thread::spawn(move || {
            thread::sleep(Duration::from_micros(50 * (round as u64 % 5)));
            rustix::io::write(peer, b"x").unwrap();
        });
        let mut events = Vec::new();
        while events.is_empty() {
            events = world.wait(64, None);
        }
        assert_eq!(events, [round % 7]);
        // The descriptor is active now.
        assert_eq!(world.wait(64, None), events);
        writer.join().unwrap();
        world.read(round % 7);
    }
}

fn closing_an_inactive_descriptor_closes_its_file() {
    let mut world = threaded(2, "4000").with(100);
    for at in 0..50 {
        if at % 3 == 0 {
            wait_until_inactive(&mut world, 0);
        }
        let (token, peer) = &mut world.sockets[at];
        assert!(world.registry.close(*token));
        peer.set_nonblocking(true).unwrap();
        assert_eq!(peer.read(&mut [0; 8]).unwrap(), 0, "the end of the stream arrives at once");
    }
    wait_until_inactive(&mut world, 0);
    assert_eq!(world.sets(), (0, 0, 50));
}

fn a_changed_or_locked_descriptor_becomes_active() {
    let mut world = threaded(2, "4000").with(3);
    wait_until_inactive(&mut world, 0);
    let [changed, locked, _] = [0, 1, 2].map(|at| world.sockets[at].0);
    world.registry.declare(changed, Interest::all()).unwrap();
    assert_eq!(world.sets(), (1, 0, 2));
    assert_eq!(world.wait(8, AT_ONCE), [0], "it is writable");
    world.registry.declare(changed, Interest::empty()).unwrap();
    world.registry.keep_active(locked);
    world.wait_without_events(10);
    assert_eq!(world.sets(), (1, 0, 1));
    world.write(1);
    assert_eq!(world.wait(8, AT_ONCE), [1]);
}

fn another_descriptor_table_is_refused() {
    let _lock = lock_many_descriptors();
    raise_limit();
    let wait = |mechanism: Locality, _| {
        let mut registry = Registry::new(mechanism);
        let (socket, _peer) = UnixStream::pair()?;
        // A number that differs from that of the mechanism's socket.
        let token = registry.insert(rustix::io::fcntl_dupfd_cloexec(socket, 1000)?);
        registry.declare(token, Interest::READ)?;
        let error = loop {
            match registry.wait(8, AT_ONCE) {
                Ok(count) => assert_eq!(count, 0),
                Err(error) => break error,
            }
        };
        // Its socket does not belong to this table.
        std::mem::forget(registry);
        Ok((error.kind(), error.to_string()))
    };
    let mechanism = open(&[("tuning", "fixed"), ("n", "2"), ("threads", "2")]);
    let (thread, _) = Table::Own.spawn(Builder::new(), mechanism, wait).unwrap();
    let (kind, message) = thread.join().unwrap().unwrap();
    assert_eq!(kind, ErrorKind::Unsupported);
    assert!(message.contains("open it in the thread that waits"), "{message}");
}

proptest! {
    #![proptest_config(property(20))]

    fn inactive_descriptors_are_found_within_the_bound(n in 2_u32..4, steps in steps(100)) {
        respects_its_bound(threaded(n, "200"), steps)?;
    }
}
