//! Races over every mechanism in every variant: no event is lost, and none is stale. Floods,
//! thousands of descriptors, descriptor numbers that are reused at full speed, and threads that
//! compete for them.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use hearken::mechanism::{Registry, Spec};
use hearken::{Interest, Token};
use libtest_mimic::Trial;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::suite::{self, AnyMechanism};

/// Time without any arrival after which a missing event counts as lost.
const PATIENCE: Duration = Duration::from_secs(20);

type Test = fn(&Spec);

/// Returns the trials of this module.
pub(crate) fn trials() -> Vec<Trial> {
    let limit = getrlimit(Resource::Nofile).maximum;
    // The limit is raised as far as possible. The tests use fewer descriptors if it stays low.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit, maximum: limit });
    let tests: [(&str, Test); 5] = [
        ("every_byte_of_a_flood_is_reported", every_byte_of_a_flood_is_reported),
        ("thousands_of_descriptors_are_ready_at_once", thousands_of_descriptors_are_ready_at_once),
        ("reused_numbers_receive_no_stale_events", reused_numbers_receive_no_stale_events),
        ("numbers_pass_to_and_from_plain_signals", numbers_pass_to_and_from_plain_signals),
        ("threads_compete_for_numbers", threads_compete_for_numbers),
    ];
    suite::trials_over("races", suite::variants(), |spec| {
        tests.map(|(name, test)| suite::trial("races", spec, name, test)).into()
    })
}

/// Returns the number of rounds of a test: `default`, times the value of `HEARKEN_RACE_ROUNDS`.
fn rounds(default: usize) -> usize {
    let factor = std::env::var("HEARKEN_RACE_ROUNDS").ok().and_then(|factor| factor.parse().ok());
    default * factor.unwrap_or(1)
}

/// A registry that counts the bytes that it reads.
struct World {
    registry: Registry<AnyMechanism, OwnedFd>,
    /// Number of bytes that were read from the source in each slot.
    read: Vec<u64>,
    /// Time of the last arrival.
    last: Instant,
}

impl World {
    fn new(spec: &Spec) -> World {
        let registry = Registry::new(suite::open(spec));
        World { registry, read: Vec::new(), last: Instant::now() }
    }

    fn add(&mut self, source: OwnedFd) -> Token {
        let token = self.registry.insert(source);
        self.registry.declare(token, Interest::READ).expect("declare");
        let slots = self.read.len().max(token.slot() as usize + 1);
        self.read.resize(slots, 0);
        self.read[token.slot() as usize] = 0;
        token
    }

    fn read_from(&self, token: Token) -> u64 {
        self.read[token.slot() as usize]
    }

    /// Waits once and reads from each reported source until it would block. Returns the number of
    /// bytes, and the number of events without any.
    fn turn(&mut self) -> (u64, u64) {
        let (mut sum, mut empty) = (0, 0);
        let count = self.registry.wait(64, Some(Duration::from_millis(200))).expect("wait");
        for index in 0..count {
            let Some(event) = self.registry.event(index) else { continue };
            let bytes = drain(self.registry.get(event.token).expect("a registered source"));
            self.registry.would_block(event.token, Interest::READ);
            // One-shot mechanisms need to be armed again.
            self.registry.declare(event.token, Interest::READ).expect("declare");
            self.read[event.token.slot() as usize] += bytes;
            sum += bytes;
            empty += u64::from(bytes == 0);
        }
        let now = Instant::now();
        if sum > 0 {
            self.last = now;
        }
        assert!(now - self.last < PATIENCE, "an event was lost");
        (sum, empty)
    }

    /// Takes turns until `token` has `count` bytes. Returns the number of events without any bytes.
    fn read_until(&mut self, token: Token, count: u64) -> u64 {
        let mut empty = 0;
        while self.read_from(token) < count {
            empty += self.turn().1;
        }
        empty
    }
}

/// Reads until the source would block or ends. Returns the number of bytes.
fn drain(source: &OwnedFd) -> u64 {
    let (mut sum, mut bytes) = (0, [0; 4096]);
    loop {
        match rustix::io::read(source, &mut bytes) {
            Ok(0) | Err(Errno::AGAIN) => return sum,
            Ok(count) => sum += count as u64,
            Err(errno) => panic!("read: {errno}"),
        }
    }
}

fn pair() -> (OwnedFd, UnixStream) {
    let (source, peer) = UnixStream::pair().expect("socketpair");
    source.set_nonblocking(true).expect("nonblocking");
    (source.into(), peer)
}

fn write(peer: &UnixStream) {
    let mut peer = peer;
    peer.write_all(b"x").expect("write");
}

/// Checks that every byte is reported that two threads write to changing descriptors as fast as
/// they can.
fn every_byte_of_a_flood_is_reported(spec: &Spec) {
    let mut world = World::new(spec);
    let count = rounds(5_000);
    let peers: Vec<Vec<UnixStream>> = (0..2)
        .map(|_| {
            let pairs = (0..40).map(|_| pair());
            pairs.map(|(source, peer)| (world.add(source), peer).1).collect()
        })
        .collect();
    thread::scope(|scope| {
        for peers in &peers {
            scope.spawn(move || {
                for round in 0..count {
                    write(&peers[round * 7 % 40 / (round % 3 + 1)]);
                }
            });
        }
        let mut missing = 2 * count as u64;
        while missing > 0 {
            missing -= world.turn().0;
        }
    });
    assert!(world.read.iter().sum::<u64>() == 2 * count as u64);
}

/// Checks that each descriptor reports exactly the bytes that it was sent, when more than a batch
/// holds become ready at once.
fn thousands_of_descriptors_are_ready_at_once(spec: &Spec) {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(8192) as usize;
    let count = if spec.entry.name == "select" { 200 } else { 2000.min(limit / 4) };
    let mut world = World::new(spec);
    let (tokens, peers): (Vec<Token>, Vec<UnixStream>) =
        (0..count).map(|_| pair()).map(|(source, peer)| (world.add(source), peer)).unzip();
    for round in 1..=rounds(3) as u64 {
        peers.iter().for_each(write);
        let mut missing = count as u64;
        while missing > 0 {
            missing -= world.turn().0;
        }
        assert!(tokens.iter().all(|token| world.read_from(*token) == round));
    }
}

/// Checks that a connection receives no events of its predecessor with the same number, to which
/// another thread writes while it is being declared and closed.
fn reused_numbers_receive_no_stale_events(spec: &Spec) {
    let mut world = World::new(spec);
    let (send, receive) = std::sync::mpsc::sync_channel::<(UnixStream, bool)>(4);
    thread::scope(|scope| {
        scope.spawn(move || {
            for (mut peer, writes_twice) in receive {
                for _ in 0..=u8::from(writes_twice) {
                    // The write fails if the connection was closed before.
                    let _ = peer.write(b"x");
                }
            }
        });
        let mut empty = 0;
        for round in 0..rounds(1_500) {
            let (source, peer) = pair();
            let token = world.add(source);
            send.send((peer, round % 2 == 0)).expect("the writer runs");
            // Every third connection is closed while its events are under way.
            if round % 3 != 0 {
                empty += world.read_until(token, 1);
            }
            assert!(world.registry.close(token));
        }
        drop(send);
        // The end of the stream is an event without bytes.
        let ends = rounds(1_500) as u64;
        assert!(empty <= ends, "{empty} events without bytes for {ends} ends of streams");
    });
}

/// Checks that the descriptor numbers and the signal of an instance can pass to an instance that
/// uses plain signals, and back.
fn numbers_pass_to_and_from_plain_signals(spec: &Spec) {
    let plain = hearken::mechanism::find("rt-signal").expect("a mechanism");
    for round in 0..rounds(20) {
        for spec in [spec, &plain] {
            let mut world = World::new(spec);
            let pairs: Vec<_> =
                (0..30).map(|_| pair()).map(|(source, peer)| (world.add(source), peer)).collect();
            for count in 1..=5 {
                for (token, peer) in &pairs {
                    write(peer);
                    world.read_until(*token, count);
                }
            }
            // Some descriptors are closed with unread bytes.
            for (_, peer) in pairs.iter().skip(round % 5) {
                write(peer);
            }
        }
    }
}

/// Checks threads with an instance each, whose descriptor numbers pass from one instance to
/// another.
fn threads_compete_for_numbers(spec: &Spec) {
    const THREADS: usize = 3;
    let barrier = Barrier::new(THREADS);
    thread::scope(|scope| {
        for seed in 0..THREADS {
            let barrier = &barrier;
            scope.spawn(move || {
                let mut world = World::new(spec);
                barrier.wait();
                let mut open = Vec::new();
                for round in 0..rounds(1_000) {
                    let (source, peer) = pair();
                    let token = world.add(source);
                    write(&peer);
                    open.push((token, peer));
                    if open.len() > 8 {
                        let (token, peer) = open.swap_remove((round * 5 + seed) % 8);
                        if round % 4 != 0 {
                            world.read_until(token, 1);
                        }
                        assert!(world.registry.close(token));
                        drop(peer);
                    }
                }
                for (token, _) in &open {
                    world.read_until(*token, 1);
                }
            });
        }
    });
}
