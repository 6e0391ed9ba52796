//! Writes until descriptors are full, while their peers read in bursts.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hearken::{Interest, Token};
use rustix::io::Errno;

use super::{AnyMechanism, Counts, Load, Random, Receiver, Stop, pair};

/// Checks that an event reports new space after every write that would block.
pub(crate) fn space(mechanism: AnyMechanism, load: &Load) -> Result<Counts, String> {
    let mut receiver = Receiver::new(mechanism, load.max);
    let mut tokens = Vec::new();
    let mut peers = Vec::new();
    for at in 0..load.descriptors.min(400) {
        let (source, peer) = match pair(at).map_err(|error| format!("pair: {error}"))? {
            (reads, writes) if at % 4 == 1 => (writes, reads),
            pair => pair,
        };
        // Some are full already when they are declared.
        if at % 8 < 4 {
            fill(&source)?;
        }
        tokens.push(receiver.add(source, Interest::WRITE)?);
        peers.push(peer);
    }
    let (stop, done) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let (stops, ends) = (Stop(&stop), Stop(&done));
        for reader in 0..load.writers {
            let (stop, done, peers) = (&stop, &done, &peers);
            let mut random = Random::new(load.seed + reader as u64);
            scope.spawn(move || {
                while !stop.load(Ordering::Acquire) {
                    drain(&peers[random.below(peers.len())]);
                }
                // Bytes in flight on TCP arrive later.
                while !done.load(Ordering::Acquire) {
                    peers.iter().for_each(drain);
                    thread::sleep(Duration::from_millis(1));
                }
            });
        }
        let start = Instant::now();
        while start.elapsed() < load.time {
            handle_events(&mut receiver, |receiver, token| {
                receiver.counts.arrivals += receiver.registry.get(token).map_or(Ok(0), fill)?;
                receiver.handled(token, Interest::WRITE)
            })?;
        }
        drop(stops);
        // The last write of each descriptor would have blocked, so each has an event pending.
        let mut waits: Vec<bool> = tokens.iter().map(|_| true).collect();
        receiver.last = Instant::now();
        while waits.contains(&true) {
            handle_events(&mut receiver, |receiver, token| {
                if std::mem::take(&mut waits[token.slot() as usize]) {
                    receiver.last = Instant::now();
                }
                Ok(())
            })?;
            receiver.check_progress(|| {
                let missing_lines = waits.iter().enumerate().filter(|(_, waits)| **waits);
                let missing_lines: Vec<_> = missing_lines.map(|(at, _)| at).collect();
                format!(
                    "{} of {} have space and were not handle_events: {missing_lines:?}",
                    missing_lines.len(),
                    waits.len()
                )
            })?;
        }
        drop(ends);
        Ok::<_, String>(())
    })?;
    Ok(receiver.finish())
}

fn handle_events(
    receiver: &mut Receiver,
    mut then: impl FnMut(&mut Receiver, Token) -> Result<(), String>,
) -> Result<(), String> {
    for index in 0..receiver.wait()? {
        if let Some(token) = receiver.event(index) {
            then(receiver, token)?;
        }
    }
    Ok(())
}

/// Writes until the descriptor is full. Returns the number of bytes.
fn fill(to: &OwnedFd) -> Result<u64, String> {
    let mut sum = 0;
    // A pipe may take less than a page when it does not take a page. After each such byte whole
    // pages follow, or a reader might keep pace indefinitely.
    let mut chunk = 4096;
    loop {
        match rustix::io::write(to, &[7; 4096][..chunk]) {
            Ok(taken) => {
                sum += taken as u64;
                chunk = 4096;
            }
            Err(Errno::AGAIN) if chunk > 1 => chunk = 1,
            Err(Errno::AGAIN) => return Ok(sum),
            Err(errno) => return Err(format!("write: {errno}")),
        }
    }
}

/// Reads a limited amount, since an unlimited reader might keep pace with a writer indefinitely.
fn drain(from: &OwnedFd) {
    let mut bytes = [0; 65536];
    for _ in 0..16 {
        if !rustix::io::read(from, &mut bytes).is_ok_and(|got| got > 0) {
            return;
        }
    }
}
