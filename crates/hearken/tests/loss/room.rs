//! Writing until there is no room, on descriptors whose peers read in bursts.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hearken::{Interest, Token};
use rustix::io::Errno;

use super::{AnyMechanism, Counts, Ear, Load, Random, Stop, pair};

/// Whoever was told that there is no room is told when there is.
pub(crate) fn room(mechanism: AnyMechanism, load: &Load) -> Result<Counts, String> {
    let mut ear = Ear::new(mechanism, load.max);
    let mut tokens = Vec::new();
    let mut peers = Vec::new();
    for at in 0..load.descriptors.min(400) {
        let (source, peer) = match pair(at).map_err(|error| format!("pair: {error}"))? {
            (reads, writes) if at % 4 == 1 => (writes, reads),
            pair => pair,
        };
        // Those declared when they are full already are told as well.
        if at % 8 < 4 {
            fill(&source)?;
        }
        tokens.push(ear.add(source, Interest::WRITE)?);
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
                // What is on its way on TCP comes later.
                while !done.load(Ordering::Acquire) {
                    peers.iter().for_each(drain);
                    thread::sleep(Duration::from_millis(1));
                }
            });
        }
        let start = Instant::now();
        while start.elapsed() < load.time {
            told(&mut ear, |ear, token| {
                ear.counts.arrivals += ear.registry.get(token).map_or(Ok(0), fill)?;
                ear.dealt_with(token, Interest::WRITE)
            })?;
        }
        drop(stops);
        // Everyone was last told that there is none, or has an event on its way.
        let mut waits: Vec<bool> = tokens.iter().map(|_| true).collect();
        ear.last = Instant::now();
        while waits.contains(&true) {
            told(&mut ear, |ear, token| {
                if std::mem::take(&mut waits[token.slot() as usize]) {
                    ear.last = Instant::now();
                }
                Ok(())
            })?;
            ear.is_patient(|| {
                let deaf = waits.iter().enumerate().filter(|(_, waits)| **waits);
                let deaf: Vec<_> = deaf.map(|(at, _)| at).collect();
                format!("{} of {} have room and were not told: {deaf:?}", deaf.len(), waits.len())
            })?;
        }
        drop(ends);
        Ok::<_, String>(())
    })?;
    Ok(ear.finish())
}

fn told(
    ear: &mut Ear,
    mut then: impl FnMut(&mut Ear, Token) -> Result<(), String>,
) -> Result<(), String> {
    for index in 0..ear.wait()? {
        if let Some(token) = ear.event(index) {
            then(ear, token)?;
        }
    }
    Ok(())
}

/// Writes until there is no room, and says how much.
fn fill(to: &OwnedFd) -> Result<u64, String> {
    let mut sum = 0;
    // A pipe takes less than a page where it does not take a page. After each such byte it is pages
    // again, or who reads might be as fast for ever.
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

/// Reads some: who read as long as there is something might keep pace with a writer for ever.
fn drain(from: &OwnedFd) {
    let mut bytes = [0; 65536];
    for _ in 0..16 {
        if !rustix::io::read(from, &mut bytes).is_ok_and(|got| got > 0) {
            return;
        }
    }
}
