//! Connections that close as they are heard of, and numbers that return at once, while their peers
//! go on saying things.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use hearken::{Interest, Token};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::SendFlags;

use super::{AnyMechanism, Counts, Ear, Load, Random, Stop, Tally, most, pair};

/// Who is at the far end, for the threads that write.
type Line = Mutex<Option<(OwnedFd, Arc<Tally>)>>;

/// The near end.
struct Near {
    token: Token,
    tally: Arc<Tally>,
    /// The far end, until the threads have it: nobody says anything before.
    fresh: Option<OwnedFd>,
}

/// Nothing that was said goes unheard, and who has said nothing is not heard of.
pub(crate) fn reuse(mechanism: AnyMechanism, load: &Load) -> Result<Counts, String> {
    let mut ear = Ear::new(mechanism, load.max);
    let lines: Vec<Line> = (0..load.descriptors).map(|_| Line::default()).collect();
    let mut near = Vec::new();
    for at in 0..load.descriptors {
        near.push(open(&mut ear, at, 0)?);
        publish(&mut near[at], &lines[at]);
    }
    // By slot: slots return with the numbers.
    let mut by_slot: Vec<usize> = (0..load.descriptors).collect();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let stops = Stop(&stop);
        for writer in 0..load.writers {
            let (stop, lines) = (&stop, &lines);
            let mut random = Random::new(load.seed + writer as u64);
            scope.spawn(move || {
                while !stop.load(Ordering::Acquire) {
                    let at = random.below(lines.len());
                    let line = lines[at].lock().unwrap();
                    let Some((peer, tally)) = &*line else { continue };
                    if tally.missing() < most(at) {
                        let sent = rustix::net::send(peer, b"x", SendFlags::NOSIGNAL);
                        tally.said.fetch_add(u64::from(sent.is_ok()), Ordering::Release);
                    }
                }
            });
        }
        let mut random = Random::new(load.seed);
        let mut fresh = Vec::new();
        let mut returned = 0;
        let start = Instant::now();
        while start.elapsed() < load.time || returned == 0 {
            ear.is_patient(|| "no number has returned".to_owned())?;
            // They have said nothing in the wait after they were opened.
            let ripe = std::mem::take(&mut fresh);
            for index in 0..ear.wait()? {
                let Some(token) = ear.event(index) else { continue };
                let at = by_slot[token.slot() as usize];
                hear(&mut ear, &near[at])?;
                if random.below(3) > 0 {
                    continue;
                }
                let number = ear.registry.get(token).map(AsRawFd::as_raw_fd);
                if !ear.registry.close(token) {
                    return Err(format!("{token:?} was not registered"));
                }
                let next = open(&mut ear, at, number.unwrap_or(0))?;
                let its = ear.registry.get(next.token).map(AsRawFd::as_raw_fd);
                returned += u64::from(number == its);
                by_slot.resize(by_slot.len().max(next.token.slot() as usize + 1), 0);
                by_slot[next.token.slot() as usize] = at;
                near[at] = next;
                fresh.push(at);
            }
            for at in ripe {
                publish(&mut near[at], &lines[at]);
            }
        }
        for at in fresh {
            publish(&mut near[at], &lines[at]);
        }
        drop(stops);
        Ok::<_, String>(())
    })?;
    ear.last = Instant::now();
    let deaf = || near.iter().enumerate().filter(|(_, near)| near.tally.missing() > 0);
    while deaf().next().is_some() {
        for index in 0..ear.wait()? {
            let Some(token) = ear.event(index) else { continue };
            hear(&mut ear, &near[by_slot[token.slot() as usize]])?;
        }
        ear.is_patient(|| {
            let first: Vec<_> = deaf().take(8).map(|(at, _)| at).collect();
            format!("{} of {} lines are deaf, {first:?} first", deaf().count(), near.len())
        })?;
    }
    Ok(ear.finish())
}

/// A new one; its number is `number` if that is free.
fn open(ear: &mut Ear, at: usize, number: RawFd) -> Result<Near, String> {
    // No pipes: who writes to one whose reader is gone is sent a signal.
    let kind = [0, 2, 3][at % 3];
    let (source, peer) = pair(kind).map_err(|error| format!("pair: {error}"))?;
    let source = match source.as_raw_fd() == number {
        true => source,
        false => fcntl_dupfd_cloexec(source, number).map_err(|errno| format!("dup: {errno}"))?,
    };
    let token = ear.add(source, Interest::READ)?;
    Ok(Near { token, tally: Arc::default(), fresh: Some(peer) })
}

/// Lets the threads have the far end.
fn publish(near: &mut Near, line: &Line) {
    if let Some(peer) = near.fresh.take() {
        *line.lock().unwrap() = Some((peer, near.tally.clone()));
    }
}

fn hear(ear: &mut Ear, near: &Near) -> Result<(), String> {
    if near.fresh.is_some() {
        return Err(format!("stale: {:?} is new and has said nothing", near.token));
    }
    let heard = ear.read(near.token)?;
    ear.dealt_with(near.token, Interest::READ)?;
    near.tally.heard.fetch_add(heard, Ordering::Release);
    Ok(())
}
