//! Connections that are closed when they are reported, and numbers that are reused at once, while
//! peers continue to send.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use hearken::{Interest, Token};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::SendFlags;

use super::{AnyMechanism, Counts, Load, Random, Receiver, Stop, Tally, max_unread, pair};

/// The peer of a connection, for the threads that write.
type Line = Mutex<Option<(OwnedFd, Arc<Tally>)>>;

/// The local end of a connection.
struct Near {
    token: Token,
    tally: Arc<Tally>,
    /// The peer, until the writing threads receive it. Nothing is sent before.
    unpublished: Option<OwnedFd>,
}

/// Checks that all bytes are received, and that no event is reported for a connection without
/// bytes.
pub(crate) fn reuse(mechanism: AnyMechanism, load: &Load) -> Result<Counts, String> {
    let mut receiver = Receiver::new(mechanism, load.max);
    let lines: Vec<Line> = (0..load.descriptors).map(|_| Line::default()).collect();
    let mut near = Vec::new();
    for at in 0..load.descriptors {
        near.push(open(&mut receiver, at, 0)?);
        publish(&mut near[at], &lines[at]);
    }
    // Indices of connections by slot, since slots are reused too.
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
                    if tally.missing() < max_unread(at) {
                        let sent = rustix::net::send(peer, b"x", SendFlags::NOSIGNAL);
                        tally.sent.fetch_add(u64::from(sent.is_ok()), Ordering::Release);
                    }
                }
            });
        }
        let mut random = Random::new(load.seed);
        let mut unpublished = Vec::new();
        let mut returned = 0;
        let start = Instant::now();
        while start.elapsed() < load.time || returned == 0 {
            receiver.check_progress(|| "no number has returned".to_owned())?;
            // No bytes were sent on these in the wait after they were opened.
            let ready_to_publish = std::mem::take(&mut unpublished);
            for index in 0..receiver.wait()? {
                let Some(token) = receiver.event(index) else { continue };
                let at = by_slot[token.slot() as usize];
                receive(&mut receiver, &near[at])?;
                if random.below(3) > 0 {
                    continue;
                }
                let number = receiver.registry.get(token).map(AsRawFd::as_raw_fd);
                if !receiver.registry.close(token) {
                    return Err(format!("{token:?} was not registered"));
                }
                let next = open(&mut receiver, at, number.unwrap_or(0))?;
                let its = receiver.registry.get(next.token).map(AsRawFd::as_raw_fd);
                returned += u64::from(number == its);
                by_slot.resize(by_slot.len().max(next.token.slot() as usize + 1), 0);
                by_slot[next.token.slot() as usize] = at;
                near[at] = next;
                unpublished.push(at);
            }
            for at in ready_to_publish {
                publish(&mut near[at], &lines[at]);
            }
        }
        for at in unpublished {
            publish(&mut near[at], &lines[at]);
        }
        drop(stops);
        Ok::<_, String>(())
    })?;
    receiver.last = Instant::now();
    let missing_lines = || near.iter().enumerate().filter(|(_, near)| near.tally.missing() > 0);
    while missing_lines().next().is_some() {
        for index in 0..receiver.wait()? {
            let Some(token) = receiver.event(index) else { continue };
            receive(&mut receiver, &near[by_slot[token.slot() as usize]])?;
        }
        receiver.check_progress(|| {
            let first: Vec<_> = missing_lines().take(8).map(|(at, _)| at).collect();
            format!(
                "{} of {} lines are missing_lines, {first:?} first",
                missing_lines().count(),
                near.len()
            )
        })?;
    }
    Ok(receiver.finish())
}

/// Opens a connection, with the descriptor number `number` if it is free.
fn open(receiver: &mut Receiver, at: usize, number: RawFd) -> Result<Near, String> {
    // No pipes: a write to a pipe without a reader raises a signal.
    let kind = [0, 2, 3][at % 3];
    let (source, peer) = pair(kind).map_err(|error| format!("pair: {error}"))?;
    let source = match source.as_raw_fd() == number {
        true => source,
        false => fcntl_dupfd_cloexec(source, number).map_err(|errno| format!("dup: {errno}"))?,
    };
    let token = receiver.add(source, Interest::READ)?;
    Ok(Near { token, tally: Arc::default(), unpublished: Some(peer) })
}

/// Passes the peer to the writing threads.
fn publish(near: &mut Near, line: &Line) {
    if let Some(peer) = near.unpublished.take() {
        *line.lock().unwrap() = Some((peer, near.tally.clone()));
    }
}

fn receive(receiver: &mut Receiver, near: &Near) -> Result<(), String> {
    if near.unpublished.is_some() {
        return Err(format!("stale: {:?} is new and has sent nothing", near.token));
    }
    let received = receiver.read(near.token)?;
    receiver.handled(near.token, Interest::READ)?;
    near.tally.received.fetch_add(received, Ordering::Release);
    Ok(())
}
