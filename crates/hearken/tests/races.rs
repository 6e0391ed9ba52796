//! Nothing is lost and nothing is stale, over every mechanism and every word of its options: floods,
//! thousands of descriptors, numbers that are used again at full speed, threads that race for them.
//!
//! Seconds here; `HEARKEN_RACE_ROUNDS=100` makes it minutes.

mod suite;

use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use hearken::mechanism::{Registry, Spec};
use hearken::{Interest, Token};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What does not come in this time is lost.
const PATIENCE: Duration = Duration::from_secs(20);

type Test = fn(&Spec);

fn main() -> ExitCode {
    let limit = getrlimit(Resource::Nofile).maximum;
    // A refusal leaves the limit as it is, and the tests that need more say so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit, maximum: limit });
    let tests: [(&str, Test); 5] = [
        ("a_flood", a_flood),
        ("thousands_of_descriptors", thousands_of_descriptors),
        ("close_and_reuse", close_and_reuse),
        ("numbers_pass_to_plain_signals", numbers_pass_to_plain_signals),
        ("threads_race_for_numbers", threads_race_for_numbers),
    ];
    let programs = hearken::mechanism::bpf::Programs::load();
    let code = suite::run(|spec| tests.map(|(name, test)| suite::trial(spec, name, test)).into());
    if let Ok(programs) = programs {
        println!("{} signals strayed", programs.strays());
    }
    code
}

fn rounds(each: usize) -> usize {
    let more = std::env::var("HEARKEN_RACE_ROUNDS").ok().and_then(|more| more.parse().ok());
    each * more.unwrap_or(1)
}

struct World {
    registry: Registry<suite::Any, OwnedFd>,
    /// What was read of each slot.
    read: Vec<u64>,
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

    /// One wait. Reads what there is on every descriptor told of, until there is no more; says how many
    /// bytes that were, and how many events found nothing.
    fn turn(&mut self) -> (u64, u64) {
        let (mut sum, mut vain) = (0, 0);
        let got = self.registry.wait(64, Some(Duration::from_millis(200))).expect("wait");
        for index in 0..got {
            let Some(event) = self.registry.event(index) else { continue };
            let bytes = drain(self.registry.get(event.who).expect("a registered source"));
            self.registry.would_block(event.who, Interest::READ);
            // One-shot mechanisms are armed again.
            self.registry.declare(event.who, Interest::READ).expect("declare");
            self.read[event.who.slot() as usize] += bytes;
            sum += bytes;
            vain += u64::from(bytes == 0);
        }
        let now = Instant::now();
        if sum > 0 {
            self.last = now;
        }
        assert!(now - self.last < PATIENCE, "an event was lost");
        (sum, vain)
    }
}

fn drain(source: &OwnedFd) -> u64 {
    let (mut sum, mut bytes) = (0, [0; 4096]);
    loop {
        match rustix::io::read(source, &mut bytes) {
            Ok(0) | Err(Errno::AGAIN) => return sum,
            Ok(got) => sum += got as u64,
            Err(errno) => panic!("read: {errno}"),
        }
    }
}

fn pair() -> (OwnedFd, UnixStream) {
    let (here, there) = UnixStream::pair().expect("socketpair");
    here.set_nonblocking(true).expect("nonblocking");
    (here.into(), there)
}

fn write(peer: &UnixStream) {
    let mut peer = peer;
    peer.write_all(b"x").expect("write");
}

/// Two threads write as fast as they can, byte by byte, here and there.
fn a_flood(spec: &Spec) {
    let mut world = World::new(spec);
    let each = rounds(10_000);
    let peers: Vec<Vec<UnixStream>> = (0..2)
        .map(|_| {
            let pairs = (0..40).map(|_| pair());
            pairs.map(|(here, there)| (world.add(here), there).1).collect()
        })
        .collect();
    thread::scope(|scope| {
        for peers in &peers {
            scope.spawn(move || {
                for at in 0..each {
                    write(&peers[at * 7 % 40 / (at % 3 + 1)]);
                }
            });
        }
        let mut left = 2 * each as u64;
        while left > 0 {
            left -= world.turn().0;
        }
    });
    assert!(world.read.iter().sum::<u64>() == 2 * each as u64);
}

/// All at once, time and again: more than a batch, each exactly what was sent to it.
fn thousands_of_descriptors(spec: &Spec) {
    let room = getrlimit(Resource::Nofile).current.unwrap_or(8192) as usize;
    let count = if is_select(spec) { 200 } else { 2000.min(room / 4) };
    let mut world = World::new(spec);
    let (tokens, peers): (Vec<Token>, Vec<UnixStream>) =
        (0..count).map(|_| pair()).map(|(here, there)| (world.add(here), there)).unzip();
    for round in 1..=rounds(5) as u64 {
        peers.iter().for_each(write);
        let mut left = count as u64;
        while left > 0 {
            left -= world.turn().0;
        }
        assert!(tokens.iter().all(|token| world.read[token.slot() as usize] == round));
    }
}

fn is_select(spec: &Spec) -> bool {
    spec.entry.name == "select"
}

/// A connection comes, speaks from another thread while it is being declared, and goes; its
/// successor has its number. What is told of one is never the other's.
fn close_and_reuse(spec: &Spec) {
    let mut world = World::new(spec);
    let (send, receive) = std::sync::mpsc::sync_channel::<(UnixStream, bool)>(4);
    thread::scope(|scope| {
        scope.spawn(move || {
            for (mut peer, speaks) in receive {
                for _ in 0..=u8::from(speaks) {
                    // Closed unheard, it says so.
                    let _ = peer.write(b"x");
                }
            }
        });
        let mut vain = 0;
        for round in 0..rounds(3_000) {
            let (here, there) = pair();
            let token = world.add(here);
            send.send((there, round % 2 == 0)).expect("the writer lives");
            // Some are closed unheard, with what they raised still under way.
            if round % 3 != 0 {
                while world.read[token.slot() as usize] == 0 {
                    vain += world.turn().1;
                }
            }
            assert!(world.registry.close(token));
        }
        drop(send);
        // The end of the stream is told of too, and is nothing to read.
        let ends = rounds(3_000) as u64;
        assert!(vain <= ends, "{vain} events of {ends} were another's");
    });
}

/// The numbers of one instance's descriptors, and its signal, pass to one that uses plain signals, and
/// back.
fn numbers_pass_to_plain_signals(spec: &Spec) {
    let plain = hearken::mechanism::find("rt-signal").expect("a mechanism");
    for round in 0..rounds(20) {
        for spec in [spec, &plain] {
            let mut world = World::new(spec);
            let pairs: Vec<_> =
                (0..30).map(|_| pair()).map(|(here, there)| (world.add(here), there)).collect();
            for said in 1..=5 {
                for (token, peer) in &pairs {
                    write(peer);
                    while world.read[token.slot() as usize] < said {
                        world.turn();
                    }
                }
            }
            // Some go with something unheard.
            for (_, peer) in pairs.iter().skip(round % 5) {
                write(peer);
            }
        }
    }
}

/// Threads, each with an instance of its own, whose descriptors' numbers pass from one to another.
fn threads_race_for_numbers(spec: &Spec) {
    const THREADS: usize = 3;
    let together = Barrier::new(THREADS);
    thread::scope(|scope| {
        for seed in 0..THREADS {
            let together = &together;
            scope.spawn(move || {
                let mut world = World::new(spec);
                together.wait();
                let mut open = Vec::new();
                for round in 0..rounds(2_000) {
                    let (here, there) = pair();
                    let token = world.add(here);
                    write(&there);
                    open.push((token, there));
                    if open.len() > 8 {
                        let (token, there) = open.swap_remove((round * 5 + seed) % 8);
                        if round % 4 != 0 {
                            while world.read[token.slot() as usize] == 0 {
                                world.turn();
                            }
                        }
                        assert!(world.registry.close(token));
                        drop(there);
                    }
                }
                for (token, _) in &open {
                    while world.read[token.slot() as usize] == 0 {
                        world.turn();
                    }
                }
            });
        }
    });
}
