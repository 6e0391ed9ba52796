//! Bytes on thousands of descriptors, which several threads send faster than they are received.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use hearken::Interest;

use super::{AnyMechanism, Counts, Load, Random, Receiver, Stop, Tally, max_unread, pair};

struct Line {
    peer: OwnedFd,
    tally: Tally,
}

impl Line {
    fn send(&self) {
        // A full connection sends it later.
        if rustix::io::write(&self.peer, b"x") == Ok(1) {
            self.tally.sent.fetch_add(1, Ordering::Release);
        }
    }
}

/// Checks that all bytes are received.
pub(crate) fn flood(mechanism: AnyMechanism, load: &Load) -> Result<Counts, String> {
    let mut receiver = Receiver::new(mechanism, load.max);
    let mut lines = Vec::new();
    let mut tokens = Vec::new();
    for at in 0..load.descriptors {
        let (source, peer) = pair(at).map_err(|error| format!("pair: {error}"))?;
        tokens.push(receiver.add(source, Interest::READ)?);
        lines.push(Line { peer, tally: Tally::default() });
    }
    // More events than a small queue holds, before the first wait.
    for line in &lines {
        for _ in 0..3 {
            line.send();
        }
    }
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let stops = Stop(&stop);
        for writer in 0..load.writers {
            let (stop, lines) = (&stop, &lines);
            let mut random = Random::new(load.seed + writer as u64);
            scope.spawn(move || {
                while !stop.load(Ordering::Acquire) {
                    let at =
                        random.below(lines.len().div_ceil(load.writers)) * load.writers + writer;
                    let Some(line) = lines.get(at) else { continue };
                    if line.tally.missing() < max_unread(at) {
                        line.send();
                    }
                }
            });
        }
        let mut random = Random::new(load.seed);
        let mut silenced = Vec::new();
        let start = Instant::now();
        while start.elapsed() < load.time {
            receive(&mut receiver, &lines, |receiver, at| {
                // Some connections lose their interest for a while.
                if random.below(64) == 0 {
                    receiver.declare(tokens[at], Interest::empty())?;
                    silenced.push(tokens[at]);
                }
                Ok(())
            })?;
            if random.below(4) == 0 {
                for token in silenced.drain(..) {
                    receiver.declare(token, Interest::READ)?;
                }
            }
        }
        for token in silenced {
            receiver.declare(token, Interest::READ)?;
        }
        drop(stops);
        Ok::<_, String>(())
    })?;
    receiver.last = Instant::now();
    let missing_lines = || lines.iter().enumerate().filter(|(_, line)| line.tally.missing() > 0);
    while missing_lines().next().is_some() {
        receive(&mut receiver, &lines, |_, _| Ok(()))?;
        receiver.check_progress(|| {
            let first: Vec<_> = missing_lines().take(8).map(|(at, _)| at).collect();
            format!(
                "{} of {} lines are missing_lines, {first:?} first",
                missing_lines().count(),
                lines.len()
            )
        })?;
    }
    Ok(receiver.finish())
}

fn receive(
    receiver: &mut Receiver,
    lines: &[Line],
    mut then: impl FnMut(&mut Receiver, usize) -> Result<(), String>,
) -> Result<(), String> {
    for index in 0..receiver.wait()? {
        let Some(token) = receiver.event(index) else { continue };
        let at = token.slot() as usize;
        let received = receiver.read(token)?;
        receiver.handled(token, Interest::READ)?;
        lines[at].tally.received.fetch_add(received, Ordering::Release);
        then(receiver, at)?;
    }
    Ok(())
}
