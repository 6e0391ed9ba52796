//! Bytes on thousands of descriptors, from several threads, faster than they are heard.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use hearken::Interest;

use super::{AnyMechanism, Counts, Ear, Load, Random, Stop, Tally, most, pair};

struct Line {
    peer: OwnedFd,
    tally: Tally,
}

impl Line {
    fn say(&self) {
        // A full one says it later.
        if rustix::io::write(&self.peer, b"x") == Ok(1) {
            self.tally.said.fetch_add(1, Ordering::Release);
        }
    }
}

/// Nothing that was said goes unheard.
pub(crate) fn flood(mechanism: AnyMechanism, load: &Load) -> Result<Counts, String> {
    let mut ear = Ear::new(mechanism, load.max);
    let mut lines = Vec::new();
    let mut tokens = Vec::new();
    for at in 0..load.descriptors {
        let (source, peer) = pair(at).map_err(|error| format!("pair: {error}"))?;
        tokens.push(ear.add(source, Interest::READ)?);
        lines.push(Line { peer, tally: Tally::default() });
    }
    // More than a small queue takes, before anybody listens.
    for line in &lines {
        for _ in 0..3 {
            line.say();
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
                    if line.tally.missing() < most(at) {
                        line.say();
                    }
                }
            });
        }
        let mut random = Random::new(load.seed);
        let mut silenced = Vec::new();
        let start = Instant::now();
        while start.elapsed() < load.time {
            hear(&mut ear, &lines, |ear, at| {
                // Now and then one is silenced for a while.
                if random.below(64) == 0 {
                    ear.declare(tokens[at], Interest::empty())?;
                    silenced.push(tokens[at]);
                }
                Ok(())
            })?;
            if random.below(4) == 0 {
                for token in silenced.drain(..) {
                    ear.declare(token, Interest::READ)?;
                }
            }
        }
        for token in silenced {
            ear.declare(token, Interest::READ)?;
        }
        drop(stops);
        Ok::<_, String>(())
    })?;
    ear.last = Instant::now();
    let deaf = || lines.iter().enumerate().filter(|(_, line)| line.tally.missing() > 0);
    while deaf().next().is_some() {
        hear(&mut ear, &lines, |_, _| Ok(()))?;
        ear.is_patient(|| {
            let first: Vec<_> = deaf().take(8).map(|(at, _)| at).collect();
            format!("{} of {} lines are deaf, {first:?} first", deaf().count(), lines.len())
        })?;
    }
    Ok(ear.finish())
}

fn hear(
    ear: &mut Ear,
    lines: &[Line],
    mut then: impl FnMut(&mut Ear, usize) -> Result<(), String>,
) -> Result<(), String> {
    for index in 0..ear.wait()? {
        let Some(token) = ear.event(index) else { continue };
        let at = token.slot() as usize;
        let heard = ear.read(token)?;
        ear.dealt_with(token, Interest::READ)?;
        lines[at].tally.heard.fetch_add(heard, Ordering::Release);
        then(ear, at)?;
    }
    Ok(())
}
