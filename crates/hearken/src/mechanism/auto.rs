//! `auto`: the mechanism that a short measurement on the running kernel finds cheapest.
//!
//! What is measured is what a server does: a connection comes, is heard of alone, is heard of among
//! others, and goes; counted is the CPU time of this thread, so that what else the machine does is
//! not. Candidates take turns, and of each its best round counts, for nothing makes a round
//! cheaper than it is. It takes about ten milliseconds and 40 descriptors, once a process.
//!
//! Not measured is what no server should be given unasked: what needs privileges, what costs by the
//! number of idle connections, what cannot watch every kind of descriptor, and what wakes every wait.
//!
//! Of those within a tenth of the best, the edge-triggered goes before the level-triggered, which
//! goes before the one-shot: what a server then need not say again is not in the measurement. Of equals
//! it is the oldest, so that runs differ only where the kernel does.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::time::{ClockId, clock_gettime};

use super::table::apart;
use super::{Mechanism, Registry, Spec, TABLE, Trigger, Unavailable, WaitCost, Watches};
use crate::event::{Interest, Token};

/// Registered in a measurement.
const PAIRS: usize = 16;
const ROUNDS: usize = 6;
/// What counts as the same, in hundredths.
const SAME: u64 = 10;

/// What became of one row of the table.
#[derive(Debug)]
pub enum Verdict {
    /// It took so long for a round of the measurement.
    Measured(Duration),
    /// It was not measured, for this reason.
    NotMeasured(&'static str),
    /// The kernel refuses it.
    Refused(Unavailable),
    /// It failed in the measurement.
    Failed(io::Error),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Measured(took) => {
                write!(f, "{:.1} us a round", took.as_nanos() as f64 / 1000.0)
            }
            Verdict::NotMeasured(why) => write!(f, "not considered: {why}"),
            Verdict::Refused(reason) => write!(f, "refused: {reason}"),
            Verdict::Failed(error) => write!(f, "failed: {error}"),
        }
    }
}

/// What the measurement found.
#[derive(Debug)]
pub struct Ranking {
    /// Every mechanism, the best first, and those that were not measured last.
    pub rows: Vec<(Spec, Verdict)>,
}

impl Ranking {
    /// The best that can be had.
    pub fn best(&self) -> &Spec {
        &self.rows[0].0
    }

    /// Those that can be had, the best first.
    pub fn in_order(&self) -> impl Iterator<Item = &Spec> {
        let usable = |row: &&(Spec, Verdict)| matches!(row.1, Verdict::Measured(_));
        let first = self.rows.iter().take(1);
        first.chain(self.rows.iter().skip(1).filter(usable)).map(|row| &row.0)
    }

    /// Those that would have been considered, and that the kernel refuses.
    pub fn refused(&self) -> impl Iterator<Item = (&Spec, &Unavailable)> {
        self.rows.iter().filter_map(|(spec, verdict)| match verdict {
            Verdict::Refused(reason) if why_not(spec).is_none() => Some((spec, reason)),
            _ => None,
        })
    }
}

/// Measures, the first time that it is called in a process.
pub fn choose() -> &'static Ranking {
    static RANKING: OnceLock<Ranking> = OnceLock::new();
    RANKING.get_or_init(|| apart(rank))
}

/// Why it is not considered, if it is not.
fn why_not(spec: &Spec) -> Option<&'static str> {
    let semantics = &spec.entry.semantics;
    if spec.needs_privileges() {
        Some("it needs privileges")
    } else if semantics.wait != WaitCost::Ready {
        Some("a wait costs more than what is ready")
    } else if semantics.registers_both {
        Some("it wakes every wait")
    } else if semantics.watches != Watches::Any {
        Some("it cannot watch every kind of descriptor")
    } else {
        None
    }
}

fn rank() -> Ranking {
    let mut rows: Vec<(Spec, Verdict)> = TABLE
        .iter()
        .map(|entry| {
            let spec = entry.spec();
            let verdict = match why_not(&spec) {
                Some(why) => Verdict::NotMeasured(why),
                None => match spec.open().map(drop) {
                    Ok(()) => Verdict::Measured(Duration::MAX),
                    Err(reason) => Verdict::Refused(reason),
                },
            };
            (spec, verdict)
        })
        .collect();
    for _ in 0..ROUNDS {
        for (spec, verdict) in &mut rows {
            if let Verdict::Measured(best) = verdict {
                match spec.open().map_err(io::Error::from).and_then(round) {
                    Ok(took) => *best = took.min(*best),
                    Err(error) => *verdict = Verdict::Failed(error),
                }
            }
        }
    }
    rows.sort_by_cached_key(|(_, verdict)| match verdict {
        Verdict::Measured(took) => took.as_nanos(),
        // Where nothing could be measured, for want of descriptors, what failed there may be had.
        Verdict::Failed(_) => u128::MAX - 2,
        Verdict::Refused(_) => u128::MAX - 1,
        Verdict::NotMeasured(_) => u128::MAX,
    });
    prefer(&mut rows);
    Ranking { rows }
}

/// Has the one come first that asks least of its caller, among those as good as the best.
fn prefer(rows: &mut [(Spec, Verdict)]) {
    let Some(&(_, Verdict::Measured(best))) = rows.first() else {
        // Nothing was measured: the first of the table that could have been.
        return;
    };
    let enough = best + best.mul_f64(SAME as f64 / 100.0);
    let same = rows.partition_point(|(_, verdict)| match verdict {
        Verdict::Measured(took) => *took <= enough,
        _ => false,
    });
    rows[..same].sort_by_key(|(spec, _)| {
        let asks = match spec.entry.semantics.trigger {
            Trigger::Edge => 0,
            Trigger::Level => 1,
            Trigger::OneShot => 2,
        };
        // The oldest of equals, so that what differs by noise alone is not chosen by it.
        (asks, TABLE.iter().position(|entry| entry.name == spec.entry.name))
    });
}

/// What one round costs.
fn round(mechanism: Box<dyn Mechanism>) -> io::Result<Duration> {
    let mut registry = Registry::new(mechanism);
    let mut peers = Vec::with_capacity(PAIRS);
    let start = cpu_time();
    for _ in 0..PAIRS {
        let (here, there) = pair()?;
        let token = registry.insert(here);
        registry.declare(token, Interest::READ)?;
        peers.push((token, there));
        // Alone, and among all.
        hear(&mut registry, &peers[peers.len() - 1..])?;
    }
    for _ in 0..4 {
        hear(&mut registry, &peers)?;
    }
    for (token, _) in &peers {
        registry.close(*token);
    }
    Ok(cpu_time().saturating_sub(start))
}

/// Has `peers` write a byte each, and hears of all.
fn hear(
    registry: &mut Registry<Box<dyn Mechanism>, OwnedFd>,
    peers: &[(Token, OwnedFd)],
) -> io::Result<()> {
    for (_, peer) in peers {
        rustix::io::write(peer, b"x")?;
    }
    let mut heard = 0;
    let mut waits = 0;
    while heard < peers.len() {
        waits += 1;
        if waits > 4 * PAIRS {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "an event did not come"));
        }
        let batch = registry.wait(PAIRS, Some(Duration::from_millis(100)))?;
        for index in 0..batch {
            let Some(event) = registry.event(index) else { continue };
            let Some(source) = registry.get(event.who) else { continue };
            match rustix::io::read(source, &mut [0; 8]) {
                Ok(_) => heard += 1,
                Err(Errno::AGAIN) => {}
                Err(errno) => return Err(errno.into()),
            }
            if registry.semantics().trigger == Trigger::OneShot {
                registry.declare(event.who, Interest::READ)?;
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
