//! The sampling thread.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hearken_load::{Server, ServerSample};

use super::Watch;
use crate::error::LabError;

/// Default sampling interval.
pub const DEFAULT_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum sampling interval.
pub const MIN_INTERVAL: Duration = Duration::from_millis(10);
/// Maximum number of stored samples. When it is reached, every second sample is dropped and the
/// interval is doubled.
const MAX_SAMPLES: usize = 10_000;
/// Reciprocal of the maximum share of time that is spent on sampling.
const OVERHEAD_DIVISOR: u32 = 20;

/// A running sampling thread.
#[derive(Debug)]
pub struct Sampler {
    thread: JoinHandle<(Watch, Vec<ServerSample>)>,
    /// Channel whose closing stops the thread.
    stop: Sender<()>,
    latest: Arc<Mutex<Latest>>,
    target: String,
}

/// The last two samples.
#[derive(Clone, Copy, Debug, Default)]
struct Latest {
    before: ServerSample,
    last: ServerSample,
}

impl Sampler {
    pub(super) fn start(mut watch: Watch, interval: Duration) -> Result<Sampler, LabError> {
        watch.reset();
        let first = watch.sample();
        let latest = Arc::new(Mutex::new(Latest { before: first, last: first }));
        let (stop, stopped) = channel();
        let (shared, target) = (latest.clone(), watch.target.clone());
        let thread = thread::Builder::new()
            .name("watch".to_owned())
            .spawn(move || sample_until(&stopped, watch, first, interval, &shared))
            .map_err(|source| LabError::System { action: "start a thread".into(), source })?;
        Ok(Sampler { thread, stop, latest, target })
    }

    /// Returns the number of processors that the server used between the last two samples.
    pub fn cores(&self) -> Option<f64> {
        let latest = *self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        latest.last.cores_since(&latest.before)
    }

    /// Returns the last sample.
    pub fn latest(&self) -> ServerSample {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).last
    }

    /// Takes a last sample, stops the thread and summarises the samples.
    pub fn stop(self) -> Server {
        drop(self.stop);
        match self.thread.join() {
            Ok((watch, samples)) => watch.finish(samples),
            Err(_) => Server {
                target: self.target,
                unavailable: vec!["all values: the sampling thread panicked".to_owned()],
                ..Server::default()
            },
        }
    }
}

/// Samples until `stopped` is closed.
fn sample_until(
    stopped: &Receiver<()>,
    mut watch: Watch,
    first: ServerSample,
    interval: Duration,
    latest: &Mutex<Latest>,
) -> (Watch, Vec<ServerSample>) {
    let mut samples = vec![first];
    let mut interval = interval.max(MIN_INTERVAL);
    let mut next = Instant::now() + interval;
    loop {
        let wait = next.saturating_duration_since(Instant::now());
        let more = matches!(stopped.recv_timeout(wait), Err(RecvTimeoutError::Timeout));
        let began = Instant::now();
        let sample = watch.sample();
        samples.push(sample);
        {
            let mut latest = latest.lock().unwrap_or_else(PoisonError::into_inner);
            *latest = Latest { before: latest.last, last: sample };
        }
        if !more {
            return (watch, samples);
        }
        if samples.len() >= MAX_SAMPLES {
            drop_every_second(&mut samples);
            interval *= 2;
        }
        next = next_sample_time(next, began, Instant::now(), interval);
    }
}

/// Returns the time of the next sample, so that sampling does not exceed its share of time.
fn next_sample_time(due: Instant, began: Instant, now: Instant, interval: Duration) -> Instant {
    let rest = now + now.duration_since(began) * (OVERHEAD_DIVISOR - 1);
    let beat = due + interval;
    if beat >= rest { beat } else { rest.max(now + interval) }
}

/// Drops every second sample, except for the first and the last.
fn drop_every_second(samples: &mut Vec<ServerSample>) {
    let last = samples.len().saturating_sub(1);
    let mut index = 0;
    samples.retain(|_| {
        let kept = index % 2 == 0 || index == last;
        index += 1;
        kept
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_sample_delays_the_next() {
        let (due, ms) = (Instant::now(), Duration::from_millis);
        let next = |took, interval| next_sample_time(due, due, due + ms(took), ms(interval)) - due;
        assert_eq!(next(1, 1_000), ms(1_000));
        assert_eq!(next(40, 1_000), ms(1_000));
        assert_eq!(next(100, 1_000), ms(2_000));
        // Missed samples are not made up for after a stall of the machine.
        assert_eq!(
            next_sample_time(due, due + ms(5_000), due + ms(5_001), ms(1_000)) - due,
            ms(6_001)
        );
    }

    #[test]
    fn thinning_keeps_first_and_last() {
        for count in 0..9u32 {
            let at = |at| ServerSample { offset_s: f64::from(at), ..ServerSample::default() };
            let mut samples: Vec<_> = (0..count).map(at).collect();
            let ends = (samples.first().copied(), samples.last().copied());
            drop_every_second(&mut samples);
            assert_eq!((samples.first().copied(), samples.last().copied()), ends);
            assert!(samples.len() <= count as usize / 2 + 1);
        }
    }
}
