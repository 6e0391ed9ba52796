//! `auto`: selects the mechanism with the lowest cost in a short measurement on the running kernel.
//!
//! The measurement imitates a server. A connection is registered, has events alone and together
//! with others, and is closed. It counts the CPU time of this thread, which excludes other work of
//! the machine. Candidates take turns, and the best round of each counts: noise only adds to the
//! cost. It takes about ten milliseconds and 40 descriptors, once per process.
//!
//! The candidates are the mechanisms that set [`Open::AUTO`](super::Open::AUTO). A server should
//! use the others only on request. They need privileges, their cost grows with idle connections, or
//! they cannot watch every kind of descriptor. With others a writable descriptor ends every wait.
//!
//! Mechanisms within a tenth of the best are ordered by trigger: edge, level, one-shot. In this
//! order a server saves calls that the measurement does not include. Among equals the oldest is
//! selected, so that noise does not change the result.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::time::{ClockId, clock_gettime};

use super::ignore_interrupt;
use super::table::in_new_thread;
use super::{Mechanism, Registry, Spec, TABLE, Trigger, Unavailable, WaitCost, Watches};
use crate::event::{Interest, Token};

/// The number of registrations in a measurement.
const PAIRS: usize = 16;
const ROUNDS: usize = 6;
/// The difference in cost that counts as equal, in per cent.
const TOLERANCE: u64 = 10;

/// The result of the measurement for one mechanism.
#[derive(Debug)]
#[non_exhaustive]
pub enum Verdict {
    /// The CPU time of its best round.
    Measured(Duration),
    /// The reason why it was not a candidate.
    Excluded(&'static str),
    /// The reason why it is not available.
    Unavailable(Unavailable),
    /// The error that ended its measurement.
    Failed(io::Error),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Measured(time) => {
                write!(f, "{:.1} us per round", time.as_nanos() as f64 / 1000.0)
            }
            Verdict::Excluded(reason) => write!(f, "not considered: {reason}"),
            Verdict::Unavailable(reason) => write!(f, "not available: {reason}"),
            Verdict::Failed(error) => write!(f, "failed: {error}"),
        }
    }
}

/// The results of the measurement.
#[derive(Debug)]
#[non_exhaustive]
pub struct Ranking {
    /// All mechanisms, the best first. Those that were not measured come last.
    pub rows: Vec<(Spec, Verdict)>,
}

impl Ranking {
    /// Returns the best available mechanism.
    pub fn best(&self) -> &Spec {
        &self.rows[0].0
    }

    /// Returns the available candidates, the best first.
    pub fn in_order(&self) -> impl Iterator<Item = &Spec> {
        let usable = |row: &&(Spec, Verdict)| matches!(row.1, Verdict::Measured(_));
        let first = self.rows.iter().take(1);
        first.chain(self.rows.iter().skip(1).filter(usable)).map(|row| &row.0)
    }

    /// Returns the candidates that are not available, with the reason.
    pub fn unavailable(&self) -> impl Iterator<Item = (&Spec, &Unavailable)> {
        self.rows.iter().filter_map(|(spec, verdict)| match verdict {
            Verdict::Unavailable(reason) => Some((spec, reason)),
            _ => None,
        })
    }
}

/// Returns the results of the measurement. The first call in a process makes it.
///
/// ```
/// let ranking = hearken::mechanism::auto::ranking();
/// println!("the best mechanism is {}", ranking.best());
/// for (spec, verdict) in &ranking.rows {
///     println!("{spec}: {verdict}");
/// }
/// ```
pub fn ranking() -> &'static Ranking {
    static RANKING: OnceLock<Ranking> = OnceLock::new();
    RANKING.get_or_init(|| in_new_thread(measure))
}

/// Returns the reason why a mechanism is not a candidate, or `None` if it is one.
fn exclusion(spec: &Spec) -> Option<&'static str> {
    let semantics = &spec.entry.semantics;
    if spec.needs_privileges() {
        Some("it needs privileges")
    } else if spec.entry.auto {
        None
    } else if semantics.registers_both {
        Some("a writable descriptor ends every wait")
    } else if semantics.wait != WaitCost::Ready {
        Some("the cost of a wait grows with idle descriptors")
    } else if semantics.watches != Watches::Any {
        Some("it cannot watch every kind of descriptor")
    } else {
        Some("it does not set Open::AUTO")
    }
}

fn measure() -> Ranking {
    let mut rows: Vec<(Spec, Verdict)> = TABLE
        .iter()
        .map(|entry| {
            let spec = entry.spec();
            let verdict = match exclusion(&spec) {
                Some(reason) => Verdict::Excluded(reason),
                None => match spec.open().map(drop) {
                    Ok(()) => Verdict::Measured(Duration::MAX),
                    Err(reason) => Verdict::Unavailable(reason),
                },
            };
            (spec, verdict)
        })
        .collect();
    for _ in 0..ROUNDS {
        for (spec, verdict) in &mut rows {
            if let Verdict::Measured(best) = verdict {
                match spec.open().map_err(io::Error::from).and_then(round) {
                    Ok(time) => *best = time.min(*best),
                    Err(error) => *verdict = Verdict::Failed(error),
                }
            }
        }
    }
    rows.sort_by_cached_key(|(_, verdict)| match verdict {
        Verdict::Measured(time) => time.as_nanos(),
        // If every measurement failed for lack of descriptors, the mechanisms may still be
        // available.
        Verdict::Failed(_) => u128::MAX - 2,
        Verdict::Unavailable(_) => u128::MAX - 1,
        Verdict::Excluded(_) => u128::MAX,
    });
    break_ties(&mut rows);
    Ranking { rows }
}

/// Sorts the mechanisms whose cost equals that of the best by trigger and age.
fn break_ties(rows: &mut [(Spec, Verdict)]) {
    let Some(&(_, Verdict::Measured(best))) = rows.first() else {
        // Nothing was measured, and the candidates are in the order of the table.
        return;
    };
    let limit = best + best.mul_f64(TOLERANCE as f64 / 100.0);
    let equal = rows.partition_point(|(_, verdict)| match verdict {
        Verdict::Measured(time) => *time <= limit,
        _ => false,
    });
    rows[..equal].sort_by_key(|(spec, _)| {
        let trigger = match spec.entry.semantics.trigger {
            Trigger::Edge => 0,
            Trigger::Level => 1,
            Trigger::OneShot => 2,
        };
        (trigger, TABLE.iter().position(|entry| entry.name == spec.entry.name))
    });
}

/// Returns the CPU time of one round.
fn round(mechanism: Box<dyn Mechanism>) -> io::Result<Duration> {
    let mut registry = Registry::new(mechanism);
    let mut peers = Vec::with_capacity(PAIRS);
    let start = cpu_time();
    for _ in 0..PAIRS {
        let (local, peer) = pair()?;
        let token = registry.insert(local);
        registry.declare(token, Interest::READ)?;
        peers.push((token, peer));
        // Each has an event alone, and then together with the others.
        exchange(&mut registry, &peers[peers.len() - 1..])?;
    }
    for _ in 0..4 {
        exchange(&mut registry, &peers)?;
    }
    for (token, _) in &peers {
        registry.close(*token);
    }
    Ok(cpu_time().saturating_sub(start))
}

/// Writes a byte from each of `peers` and reads them all after their events.
fn exchange(
    registry: &mut Registry<Box<dyn Mechanism>, OwnedFd>,
    peers: &[(Token, OwnedFd)],
) -> io::Result<()> {
    for (_, peer) in peers {
        rustix::io::write(peer, b"x")?;
    }
    let mut received = 0;
    let mut waits = 0;
    while received < peers.len() {
        waits += 1;
        if waits > 4 * PAIRS {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "an event was not reported"));
        }
        let waited = registry.wait(PAIRS, Some(Duration::from_millis(100)));
        let batch = ignore_interrupt(waited)?;
        for index in 0..batch {
            let Some(event) = registry.event(index) else { continue };
            let Some(source) = registry.get(event.token) else { continue };
            match rustix::io::read(source, &mut [0; 8]) {
                Ok(_) => received += 1,
                Err(Errno::AGAIN) => {}
                Err(errno) => return Err(errno.into()),
            }
            if registry.semantics().trigger == Trigger::OneShot {
                registry.declare(event.token, Interest::READ)?;
            }
        }
    }
    Ok(())
}

fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}
