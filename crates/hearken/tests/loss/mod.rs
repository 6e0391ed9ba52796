//! Storms from several threads over a mechanism, after which it is known whether an event was lost
//! or came for the wrong descriptor. Shared by `tests/signals.rs` and `examples/stress.rs`.
//!
//! A lost event must show, and not be covered by the next: half of the peers say nothing more until
//! they were heard, so that a connection of which one event is lost falls silent for good.

// Each user has its own part.
#![allow(dead_code)]

use std::fmt;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hearken::mechanism::{Registry, Trigger};
use hearken::{Interest, Mechanism, Token};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

mod flood;
mod reuse;
mod room;

pub(crate) use flood::flood;
pub(crate) use reuse::reuse;
pub(crate) use room::room;

pub(crate) type AnyMechanism = Box<dyn Mechanism>;

/// A storm: its name, and what makes it.
pub(crate) type Storm = (&'static str, fn(AnyMechanism, &Load) -> Result<Counts, String>);

/// Every one of them.
pub(crate) const STORMS: [Storm; 3] = [("flood", flood), ("reuse", reuse), ("room", room)];

/// How long nothing may happen before what is missing counts as lost. No storm that passes waits so
/// long.
const PATIENCE: Duration = Duration::from_secs(15);

/// How much of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) descriptors: usize,
    pub(crate) writers: usize,
    /// In a batch.
    pub(crate) max: usize,
    pub(crate) time: Duration,
    pub(crate) seed: u64,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) waits: u64,
    pub(crate) events: u64,
    pub(crate) arrivals: u64,
    pub(crate) opened: u64,
    pub(crate) overflows: u64,
    pub(crate) calls: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.waits += other.waits;
        self.events += other.events;
        self.arrivals += other.arrivals;
        self.opened += other.opened;
        self.overflows += other.overflows;
        self.calls += other.calls;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { waits, events, arrivals, opened, overflows, calls } = self;
        write!(
            f,
            "{waits} waits, {events} events for {arrivals} arrivals, {opened} opened, \
             {overflows} overflows, {calls} calls"
        )
    }
}

/// The waiting side.
struct Ear {
    registry: Registry<AnyMechanism, OwnedFd>,
    max: usize,
    counts: Counts,
    last: Instant,
}

impl Ear {
    fn new(mechanism: AnyMechanism, max: usize) -> Ear {
        let registry = Registry::new(mechanism);
        Ear { registry, max, counts: Counts::default(), last: Instant::now() }
    }

    fn add(&mut self, source: OwnedFd, interest: Interest) -> Result<Token, String> {
        self.counts.opened += 1;
        let token = self.registry.insert(source);
        let declared = self.registry.declare(token, interest);
        declared.map(|()| token).map_err(|error| format!("declare: {error}"))
    }

    fn declare(&mut self, token: Token, interest: Interest) -> Result<(), String> {
        self.registry.declare(token, interest).map_err(|error| format!("change: {error}"))
    }

    /// One wait; the batch is read by `event`.
    fn wait(&mut self) -> Result<usize, String> {
        self.counts.waits += 1;
        let timeout = Some(Duration::from_millis(20));
        self.registry.wait(self.max, timeout).map_err(|error| format!("wait: {error}"))
    }

    fn event(&mut self, index: usize) -> Option<Token> {
        let event = self.registry.event(index)?;
        self.counts.events += 1;
        Some(event.who)
    }

    /// To be called when an event was dealt with until `EAGAIN`.
    fn dealt_with(&mut self, token: Token, interest: Interest) -> Result<(), String> {
        self.registry.would_block(token, interest);
        if self.registry.semantics().trigger == Trigger::OneShot {
            self.declare(token, interest)?;
        }
        Ok(())
    }

    /// Reads all that there is.
    fn read(&mut self, token: Token) -> Result<u64, String> {
        let Some(source) = self.registry.get(token) else {
            return Ok(0);
        };
        let mut sum = 0;
        let mut bytes = [0; 512];
        loop {
            match rustix::io::read(source, &mut bytes) {
                Ok(0) | Err(Errno::AGAIN | Errno::CONNRESET) => break,
                Ok(got) => sum += got as u64,
                Err(errno) => return Err(format!("read: {errno}")),
            }
        }
        if sum > 0 {
            self.counts.arrivals += sum;
            self.last = Instant::now();
        }
        Ok(sum)
    }

    /// Fails if nothing has happened for too long.
    fn is_patient(&self, missing: impl FnOnce() -> String) -> Result<(), String> {
        if self.last.elapsed() < PATIENCE { Ok(()) } else { Err(missing()) }
    }

    fn finish(self) -> Counts {
        let counters = self.registry.counters();
        Counts { overflows: counters.overflows, calls: counters.calls, ..self.counts }
    }
}

/// How much was said on a line, and how much of it was heard.
#[derive(Default)]
struct Tally {
    said: AtomicU64,
    heard: AtomicU64,
}

impl Tally {
    fn missing(&self) -> u64 {
        // It may be heard before it is counted as said.
        let heard = self.heard.load(Ordering::Acquire);
        self.said.load(Ordering::Acquire).saturating_sub(heard)
    }
}

/// How much may be said on a line and not be heard. Half of them say the next thing when they were
/// heard, and the others go on.
fn most(at: usize) -> u64 {
    if (at / 4).is_multiple_of(2) { 1 } else { 64 }
}

/// Ends the storm, however its function is left.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// xorshift64.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % bound.max(1)
    }
}

/// What is watched, and its peer; the kinds take turns.
pub(crate) fn pair(at: usize) -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let unix = |kind| rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None);
    Ok(match at % 4 {
        0 => unix(SocketType::STREAM)?,
        1 => {
            let flags = rustix::pipe::PipeFlags::NONBLOCK | rustix::pipe::PipeFlags::CLOEXEC;
            rustix::pipe::pipe_with(flags)?
        }
        2 => unix(SocketType::SEQPACKET)?,
        _ => tcp()?,
    })
}

thread_local! {
    static LISTENER: io::Result<TcpListener> = TcpListener::bind("127.0.0.1:0");
}

/// With small buffers, since thousands of full ones are more than the system allows TCP; and reset
/// when it is closed, since thousands in TIME_WAIT leave no ports.
fn tcp() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC;
    let there = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_recv_buffer_size(&there, 1 << 15)?;
    let here = LISTENER.with(|listener| {
        let listener = listener.as_ref().map_err(|error| io::Error::from(error.kind()))?;
        sockopt::set_socket_recv_buffer_size(listener, 1 << 15)?;
        rustix::net::connect(&there, &listener.local_addr()?)?;
        listener.accept()
    });
    let (here, there) = (here?.0, TcpStream::from(there));
    for end in [&here, &there] {
        sockopt::set_socket_send_buffer_size(end, 1 << 15)?;
        sockopt::set_socket_linger(end, Some(Duration::ZERO))?;
        end.set_nonblocking(true)?;
        end.set_nodelay(true)?;
    }
    Ok((here.into(), there.into()))
}
