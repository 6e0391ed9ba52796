//! Random histories of a few sockets, over every mechanism, compared with a model of their
//! readiness. No event is lost, none is false, and none comes after its registration was removed.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use hearken::mechanism::{Registry, Trigger};
use hearken::{EventQueue, Interest, Mechanism, Readiness, Registration, Token};
use libtest_mimic::Trial;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::suite;

const SOCKETS: usize = 5;

#[derive(Clone, Debug)]
enum Step {
    /// Declares or changes interest.
    Declare(usize, Interest),
    Revoke(usize),
    /// Closes the socket and creates a new one, usually with the same number.
    Close(usize),
    PeerWrites(usize),
    PeerReads(usize),
    PeerShuts(usize),
    PeerCloses(usize),
    Reads(usize),
    Fills(usize),
    /// Takes up to a number of events.
    Take(usize),
}

const BOTH: Interest = Interest::READ.union(Interest::WRITE);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let at = 0..SOCKETS;
    let interest = (0u8..=BOTH.bits()).prop_map(|bits| Interest::from_bits_truncate(bits) & BOTH);
    let step = prop_oneof![
        6 => (at.clone(), interest).prop_map(|(at, interest)| Step::Declare(at, interest)),
        1 => at.clone().prop_map(Step::Revoke),
        1 => at.clone().prop_map(Step::Close),
        6 => at.clone().prop_map(Step::PeerWrites),
        3 => at.clone().prop_map(Step::PeerReads),
        1 => at.clone().prop_map(Step::PeerShuts),
        1 => at.clone().prop_map(Step::PeerCloses),
        4 => at.clone().prop_map(Step::Reads),
        3 => at.prop_map(Step::Fills),
        6 => (1..=SOCKETS + 1).prop_map(Step::Take),
    ];
    prop::collection::vec(step, 1..50)
}

/// The peer of a socket, and the state of the socket.
struct Peer {
    stream: Option<UnixStream>,
    unread: usize,
    shut: bool,
    full: bool,
}

impl Peer {
    fn pair() -> (UnixStream, Peer) {
        let (socket, peer) = UnixStream::pair().unwrap();
        socket.set_nonblocking(true).unwrap();
        peer.set_nonblocking(true).unwrap();
        let peer = Peer { stream: Some(peer), unread: 0, shut: false, full: false };
        (socket, peer)
    }

    fn ready(&self) -> Readiness {
        let mut ready = Readiness::empty();
        let closed = self.stream.is_none();
        ready.set(Readiness::READABLE, self.unread > 0 || self.shut || closed);
        ready.set(Readiness::WRITABLE, !self.full || closed);
        ready
    }

    /// Performs an action of the peer. Returns whether anything arrived.
    fn act(&mut self, step: &Step) -> bool {
        let Some(stream) = &mut self.stream else {
            return false;
        };
        match step {
            Step::PeerWrites(_) if !self.shut => {
                stream.write_all(b"x").unwrap();
                self.unread += 1;
            }
            Step::PeerReads(_) => {
                read_all(stream);
                self.full = false;
            }
            Step::PeerShuts(_) if !self.shut => {
                stream.shutdown(Shutdown::Write).unwrap();
                self.shut = true;
            }
            Step::PeerCloses(_) => {
                self.stream = None;
                self.full = false;
            }
            _ => return false,
        }
        true
    }

    /// Writes until the socket is full. Returns whether it became full.
    fn fill(&mut self, mut source: &UnixStream) -> bool {
        if self.stream.is_none() {
            return false;
        }
        while source.write(&[7; 16384]).is_ok() {}
        while source.write(&[7]).is_ok() {}
        self.full = true;
        true
    }
}

/// Reads until the stream would block or ends. Returns the number of bytes, and whether more may
/// come.
fn read_all(mut from: &UnixStream) -> (usize, bool) {
    let mut bytes = [0; 16384];
    let mut sum = 0;
    loop {
        match from.read(&mut bytes) {
            Ok(0) => return (sum, false),
            Ok(got) => sum += got,
            // A reset is reported once if the peer closed with unread data.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return (sum, true),
            Err(error) => panic!("{error}"),
        }
    }
}

fn directions(interest: Interest) -> Readiness {
    Readiness::from_bits_truncate(interest.bits())
}

/// A socket in the model of the registry.
struct Watched {
    token: Token,
    peer: Peer,
    declared: bool,
    interest: Interest,
    /// Directions for which an event must come, unless the caller handles them before.
    due: Readiness,
    /// Directions that were ready at some time since the last event.
    seen: Readiness,
    /// Whether anything has happened since the last event.
    active: bool,
}

struct World<M: Mechanism> {
    registry: Registry<M, UnixStream>,
    sockets: Vec<Watched>,
}

impl<M: Mechanism> World<M> {
    fn new(mechanism: M) -> World<M> {
        let mut registry = Registry::new(mechanism);
        let sockets = (0..SOCKETS).map(|_| Watched::new(&mut registry)).collect();
        World { registry, sockets }
    }

    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match *step {
            Step::Declare(at, interest) => {
                let socket = &mut self.sockets[at];
                let same = socket.declared && socket.interest == interest;
                self.registry.declare(socket.token, interest).unwrap();
                socket.declared = true;
                socket.interest = interest;
                let ready = socket.peer.ready() & directions(interest);
                if !same || self.registry.semantics().trigger == Trigger::OneShot {
                    socket.due = ready;
                    socket.active = true;
                }
            }
            Step::Revoke(at) => {
                let socket = &mut self.sockets[at];
                let source = self.registry.remove(socket.token).unwrap();
                socket.token = self.registry.insert(source);
                socket.forget();
            }
            Step::Close(at) => {
                prop_assert!(self.registry.close(self.sockets[at].token));
                self.sockets[at] = Watched::new(&mut self.registry);
            }
            Step::Reads(at) => {
                let socket = &mut self.sockets[at];
                let (got, more) = read_all(self.registry.get(socket.token).unwrap());
                prop_assert_eq!(got, socket.peer.unread);
                socket.peer.unread = 0;
                socket.due &= socket.peer.ready();
                if more {
                    self.registry.would_block(socket.token, Interest::READ);
                }
            }
            Step::Fills(at) => {
                let socket = &mut self.sockets[at];
                let source = self.registry.get(socket.token).unwrap();
                let blocked = socket.peer.fill(source);
                socket.due &= socket.peer.ready();
                if blocked {
                    self.registry.would_block(socket.token, Interest::WRITE);
                }
            }
            Step::PeerWrites(at)
            | Step::PeerReads(at)
            | Step::PeerShuts(at)
            | Step::PeerCloses(at) => {
                let socket = &mut self.sockets[at];
                let before = socket.peer.ready();
                if socket.peer.act(step) {
                    socket.active = true;
                    let after = socket.peer.ready();
                    let mut arrived = after - before;
                    // More data in a readable direction are an arrival too.
                    let reads = !matches!(step, Step::PeerReads(_));
                    arrived.set(Readiness::READABLE, reads && after.is_readable());
                    socket.due |= arrived & directions(socket.interest);
                }
            }
            Step::Take(max) => self.take(max)?,
        }
        for socket in &mut self.sockets {
            socket.seen |= socket.peer.ready();
        }
        Ok(())
    }

    fn wait(&mut self, max: usize) -> Result<Vec<(usize, Readiness)>, TestCaseError> {
        let got = self.registry.wait(max, Some(Duration::ZERO)).unwrap();
        prop_assert!(got <= max);
        let mut events = Vec::<(usize, Readiness)>::new();
        for index in 0..got {
            let Some(event) = self.registry.event(index) else {
                continue;
            };
            let at = self
                .sockets
                .iter()
                .position(|socket| socket.declared && socket.token == event.token);
            prop_assert!(at.is_some(), "{:?} is not declared", event.token);
            let at = at.unwrap();
            prop_assert!(events.iter().all(|&(other, _)| other != at), "{at} is twice in a batch");
            events.push((at, event.readiness & directions(BOTH)));
        }
        Ok(events)
    }

    fn take(&mut self, max: usize) -> Result<(), TestCaseError> {
        let semantics = *self.registry.semantics();
        let trigger = semantics.trigger;
        for (at, readiness) in self.wait(max)? {
            let socket = &mut self.sockets[at];
            let now = socket.peer.ready() & directions(socket.interest);
            let mut still_due = Readiness::empty();
            match trigger {
                Trigger::Level => prop_assert_eq!(readiness, now),
                Trigger::OneShot if semantics.reports_state() => prop_assert_eq!(readiness, now),
                Trigger::OneShot => {
                    let seen = socket.seen & directions(socket.interest);
                    prop_assert!(seen.contains(readiness), "{at} was never {readiness:?}");
                }
                Trigger::Edge => {
                    let seen = socket.seen & directions(socket.interest);
                    if semantics.reports_state() {
                        prop_assert!(socket.active, "nothing has happened to {at}");
                        prop_assert!(readiness.contains(socket.due));
                        prop_assert!(seen.contains(readiness));
                    } else {
                        // An event reports one arrival. A repeated report must still be true.
                        still_due = socket.due - readiness;
                        let true_by_now = if socket.active { seen | now } else { now };
                        prop_assert!(true_by_now.contains(readiness), "{at} is stale");
                    }
                }
            }
            socket.due = still_due;
            socket.seen = Readiness::empty();
            socket.active = false;
            if trigger == Trigger::OneShot {
                self.registry.declare(socket.token, socket.interest).unwrap();
                socket.due = now;
            }
        }
        Ok(())
    }

    /// Checks that all pending events are reported at the end.
    fn finish(&mut self) -> Result<(), TestCaseError> {
        let trigger = self.registry.semantics().trigger;
        if trigger == Trigger::Level {
            for _ in 1..self.registry.mechanism().scan_interval() {
                self.wait(64)?;
            }
            let mut events = self.wait(64)?;
            events.sort_unstable_by_key(|&(at, _)| at);
            let ready: Vec<_> = self
                .sockets
                .iter()
                .enumerate()
                .map(|(at, socket)| (at, socket.peer.ready() & directions(socket.interest)))
                .filter(|(_, ready)| !ready.is_empty())
                .collect();
            prop_assert_eq!(events, ready);
            return Ok(());
        }
        if trigger == Trigger::OneShot {
            let reported = self.wait(64)?;
            for (at, socket) in self.sockets.iter().enumerate() {
                let ready = socket.peer.ready() & directions(socket.interest);
                let is_reported = reported.iter().any(|(other, _)| *other == at);
                prop_assert!(is_reported || ready.is_empty(), "{at} is {ready:?}");
            }
            return Ok(());
        }
        for _ in 0..2 {
            self.take(64)?;
        }
        if trigger == Trigger::Edge {
            for (at, socket) in self.sockets.iter().enumerate() {
                prop_assert!(socket.due.is_empty(), "{at} is due for {:?}", socket.due);
            }
        }
        Ok(())
    }
}

impl Watched {
    fn new<M: Mechanism>(registry: &mut Registry<M, UnixStream>) -> Watched {
        let (source, peer) = Peer::pair();
        Watched {
            token: registry.insert(source),
            peer,
            declared: false,
            interest: Interest::empty(),
            due: Readiness::empty(),
            seen: Readiness::empty(),
            active: false,
        }
    }

    fn forget(&mut self) {
        self.declared = false;
        self.interest = Interest::empty();
        self.due = Readiness::empty();
    }
}

/// The registrations, their peers and interests, by payload.
type Declared = HashMap<usize, (Registration<UnixStream>, Peer, Interest)>;

fn runner() -> TestRunner {
    TestRunner::new(suite::property(60))
}

fn registry_matches_the_model(spec: &suite::Subject) {
    let run = |steps: Vec<Step>| {
        let mut world = World::new(suite::open(spec));
        for step in &steps {
            world.step(step)?;
        }
        world.finish()
    };
    runner().run(&steps(), run).unwrap_or_else(|failed| panic!("{failed}"));
}

/// Reads until the stream would block, and reports this to the queue.
fn reads(registration: &Registration<UnixStream>, peer: &mut Peer) -> Result<(), TestCaseError> {
    let (got, more) = read_all(registration);
    prop_assert_eq!(got, peer.unread);
    peer.unread = 0;
    if more {
        registration.would_block(Interest::READ);
    }
    Ok(())
}

/// Writes until the socket is full, and reports this to the queue.
fn fills(registration: &Registration<UnixStream>, peer: &mut Peer) {
    if peer.fill(registration) {
        registration.would_block(Interest::WRITE);
    }
}

/// Checks a caller of the queue that reads everything upon each event, and sometimes abandons a
/// batch. At the end, nothing is unread, and no event was false.
fn queue_matches_the_model(spec: &suite::Subject) {
    let run = |steps: Vec<Step>| {
        let mechanism = suite::open(spec);
        // Ended streams stay ready with level triggers, so a fixed number of batches is taken.
        let batches = mechanism.scan_interval() as usize + 3 * SOCKETS;
        let queue = EventQueue::<usize, _>::with_mechanism(mechanism).unwrap();
        let mut sockets: Vec<_> = (0..SOCKETS).map(|_| Peer::pair()).collect();
        let mut watched = Declared::new();
        let take = |watched: &mut Declared, max: usize, taken: usize| {
            let mut seen = 0;
            for event in queue.next_events(max, Some(Duration::ZERO)).unwrap().take(taken) {
                seen += 1;
                let Some((registration, peer, interest)) = watched.get_mut(&event.token) else {
                    return Err(TestCaseError::fail(format!("{} was removed", event.token)));
                };
                let ready = event.readiness & directions(BOTH);
                let now = peer.ready() & directions(*interest);
                prop_assert_eq!(ready, now);
                if event.readiness.is_readable() {
                    reads(registration, peer)?;
                }
                if event.readiness.is_writable() {
                    fills(registration, peer);
                }
                if queue.semantics().trigger == Trigger::OneShot {
                    registration.change_interest(*interest).unwrap();
                }
            }
            prop_assert!(seen <= max);
            Ok(())
        };
        for step in &steps {
            match *step {
                Step::Declare(at, interest) => match watched.get_mut(&at) {
                    Some((registration, _, asked)) => {
                        registration.change_interest(interest).unwrap();
                        *asked = interest;
                    }
                    None => {
                        let (source, peer) = std::mem::replace(&mut sockets[at], Peer::pair());
                        let declared = queue.declare_interest(source, interest, at);
                        let (registration, ready) = declared.unwrap();
                        prop_assert_eq!(ready & directions(BOTH), peer.ready());
                        watched.insert(at, (registration, peer, interest));
                    }
                },
                Step::Revoke(at) => {
                    if let Some((registration, peer, _)) = watched.remove(&at) {
                        sockets[at] = (registration.into_source(), peer);
                    }
                }
                Step::Close(at) => drop(watched.remove(&at)),
                Step::Reads(at) => {
                    if let Some((registration, peer, _)) = watched.get_mut(&at) {
                        reads(registration, peer)?;
                    }
                }
                Step::Fills(at) => {
                    if let Some((registration, peer, _)) = watched.get_mut(&at) {
                        fills(registration, peer);
                    }
                }
                Step::PeerWrites(at)
                | Step::PeerReads(at)
                | Step::PeerShuts(at)
                | Step::PeerCloses(at) => match watched.get_mut(&at) {
                    Some((_, peer, _)) => _ = peer.act(step),
                    None => _ = sockets[at].1.act(step),
                },
                Step::Take(max) => take(&mut watched, max, max.div_ceil(2))?,
            }
        }
        for _ in 0..batches {
            take(&mut watched, 2, 2)?;
        }
        for (at, (_, peer, interest)) in &watched {
            let unread = if interest.contains(Interest::READ) { peer.unread } else { 0 };
            prop_assert_eq!(unread, 0, "{} was not notified", at);
            let room = !peer.full && peer.stream.is_some();
            prop_assert!(!(room && interest.contains(Interest::WRITE)), "{} was not notified", at);
        }
        Ok(())
    };
    runner().run(&steps(), run).unwrap_or_else(|failed| panic!("{failed}"));
}

/// Returns the trials of this module.
pub(crate) fn trials() -> Vec<Trial> {
    suite::trials_over("model", suite::subjects(), |spec| {
        vec![
            suite::trial("model", spec, "registry_matches_the_model", registry_matches_the_model),
            suite::trial("model", spec, "queue_matches_the_model", queue_matches_the_model),
        ]
    })
}
