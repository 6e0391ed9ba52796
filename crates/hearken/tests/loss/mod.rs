//! Storms from several threads over a mechanism, which detect lost events and events for the wrong
//! descriptor. Used by `tests/process` and `examples/stress.rs`.
//!
//! A later event must not hide a lost one. Half of the peers therefore send nothing until the
//! previous byte was received. Such a connection falls silent when one of its events is lost.

// Each user needs only some of these functions.
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
mod space;

pub(crate) use flood::flood;
pub(crate) use reuse::reuse;
pub(crate) use space::space;

pub(crate) type AnyMechanism = Box<dyn Mechanism>;

/// A storm: its name, and the function that runs it.
pub(crate) type Storm = (&'static str, fn(AnyMechanism, &Load) -> Result<Counts, String>);

/// All storms.
pub(crate) const STORMS: [Storm; 3] = [("flood", flood), ("reuse", reuse), ("space", space)];

/// Maximum time without progress after which missing events count as lost.
const PATIENCE: Duration = Duration::from_secs(15);

/// Parameters of a storm.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) descriptors: usize,
    pub(crate) writers: usize,
    /// Maximum number of events per batch.
    pub(crate) max: usize,
    pub(crate) time: Duration,
    pub(crate) seed: u64,
}

/// Totals of a storm.
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

/// The receiving side.
struct Receiver {
    registry: Registry<AnyMechanism, OwnedFd>,
    max: usize,
    counts: Counts,
    last: Instant,
}

impl Receiver {
    fn new(mechanism: AnyMechanism, max: usize) -> Receiver {
        let registry = Registry::new(mechanism);
        Receiver { registry, max, counts: Counts::default(), last: Instant::now() }
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

    /// Waits once. Returns the number of events, which `event` returns.
    fn wait(&mut self) -> Result<usize, String> {
        self.counts.waits += 1;
        let timeout = Some(Duration::from_millis(20));
        self.registry.wait(self.max, timeout).map_err(|error| format!("wait: {error}"))
    }

    fn event(&mut self, index: usize) -> Option<Token> {
        let event = self.registry.event(index)?;
        self.counts.events += 1;
        Some(event.token)
    }

    /// Reports that an event was handled until `EAGAIN`, and arms one-shot mechanisms.
    fn handled(&mut self, token: Token, interest: Interest) -> Result<(), String> {
        self.registry.would_block(token, interest);
        if self.registry.semantics().trigger == Trigger::OneShot {
            self.declare(token, interest)?;
        }
        Ok(())
    }

    /// Reads until the source would block or ends. Returns the number of bytes.
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

    /// Fails if there was no progress for [`PATIENCE`].
    fn check_progress(&self, missing: impl FnOnce() -> String) -> Result<(), String> {
        if self.last.elapsed() < PATIENCE { Ok(()) } else { Err(missing()) }
    }

    fn finish(self) -> Counts {
        let counters = self.registry.counters();
        Counts { overflows: counters.overflows, calls: counters.calls, ..self.counts }
    }
}

/// Numbers of bytes that were sent and received on a connection.
#[derive(Default)]
struct Tally {
    sent: AtomicU64,
    received: AtomicU64,
}

impl Tally {
    fn missing(&self) -> u64 {
        // A byte may be received before it is counted as sent.
        let received = self.received.load(Ordering::Acquire);
        self.sent.load(Ordering::Acquire).saturating_sub(received)
    }
}

/// Returns the maximum number of unread bytes of a connection: 1 for half of the connections, and
/// 64 for the others.
fn max_unread(at: usize) -> u64 {
    if (at / 4).is_multiple_of(2) { 1 } else { 64 }
}

/// A guard that ends the storm on drop.
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

/// Creates a source and its peer. The kind depends on the index.
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

/// Creates a TCP connection with small buffers, since the system limits the memory of TCP. It is
/// reset when it is closed, since thousands of connections in TIME_WAIT would use up the ports.
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
