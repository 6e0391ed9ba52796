//! What the threads tell while they run, put together: the intervals of the report, and how it goes.

use std::collections::VecDeque;
use std::sync::mpsc::Sender;
use std::time::Duration;

use crate::failure::Errors;
use crate::histogram::Histogram;
use crate::profile::Profile;
use crate::report::{self, Interval};
use crate::statistics::Counts;

/// Intervals that are kept apart; of a longer run, two at a time become one.
const MAX_INTERVALS: usize = if cfg!(test) { 64 } else { 4096 };

/// What a thread tells of itself.
#[derive(Debug)]
pub(crate) enum WorkerUpdate {
    /// How far it is with its idle connections, before the start.
    Preparing(report::Idle),
    /// It has the connections that were to be opened ahead, or gave up waiting for `missing` idle ones.
    Prepared { missing: u64 },
    /// All idle connections are held, for the first time.
    IdleHeld(report::Idle),
    /// It has nothing left to ask, and all that it asked is over.
    Finished,
    /// An interval has ended.
    Slice(Box<Slice>),
}

/// One thread's part of an interval.
#[derive(Debug)]
pub(crate) struct Slice {
    pub(crate) length: Duration,
    /// It is the time after the last request was intended.
    pub(crate) draining: bool,
    /// Since the start.
    pub(crate) counts: Counts,
    /// Of the replies that came in it, if any did.
    pub(crate) latency: Option<Box<Histogram>>,
    pub(crate) idle: report::Idle,
    /// Connections that carry requests.
    pub(crate) connections: u64,
}

/// How far the load has come.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Snapshot {
    /// Since the first request could have been made; nothing while connections are still being
    /// prepared.
    pub elapsed: Duration,
    /// Requests that were sent.
    pub sent: u64,
    /// Replies to them.
    pub replies: u64,
    /// Requests that failed, by the reason.
    pub errors: Errors,
    /// Connections that carry requests.
    pub connections: u64,
    /// Idle connections that are held.
    pub idle: u64,
    /// What is offered now, in arrivals per second.
    pub offered_rate: f64,
    /// The interval that has just ended.
    pub interval: Interval,
}

/// Puts slices together.
#[derive(Debug)]
pub(crate) struct Recorder {
    threads: usize,
    /// Latencies of the whole run.
    pub(crate) latency: Box<Histogram>,
    pub(crate) intervals: Vec<Interval>,
    /// Slices that make one interval, and the one that they are being put into.
    group_size: u32,
    grouped: u32,
    /// Those that lack a part, oldest first; how many are complete; how many each thread has told.
    open: VecDeque<OpenInterval>,
    completed: usize,
    slices_received: Vec<usize>,
    draining: OpenInterval,
    /// What each thread had counted when its last slice ended, and all of them.
    last: Vec<Counts>,
    total: Counts,
    /// The end of the last interval.
    end_of_last: Duration,
    profile: Profile,
    /// Where histograms go to be used again.
    free_histograms: Vec<Sender<Box<Histogram>>>,
}

/// An interval in the making.
#[derive(Debug, Default)]
struct OpenInterval {
    parts: usize,
    length: Duration,
    before: Counts,
    counts: Counts,
    /// With the thread whose histogram it is.
    latency: Option<(usize, Box<Histogram>)>,
    idle: u64,
    connections: u64,
}

impl Recorder {
    /// For what these threads tell, each of which takes histograms back.
    pub(crate) fn new(profile: Profile, spares: Vec<Sender<Box<Histogram>>>) -> Recorder {
        let threads = spares.len();
        Recorder {
            threads,
            latency: Box::default(),
            intervals: Vec::new(),
            group_size: 1,
            grouped: 0,
            open: VecDeque::new(),
            completed: 0,
            slices_received: vec![0; threads],
            draining: OpenInterval::default(),
            last: vec![Counts::default(); threads],
            total: Counts::default(),
            end_of_last: Duration::ZERO,
            profile,
            free_histograms: spares,
        }
    }

    /// Takes a thread's slice. Something to be shown, if an interval is complete with it.
    pub(crate) fn record_slice(&mut self, thread: usize, slice: Slice) -> Option<Snapshot> {
        let before = std::mem::replace(&mut self.last[thread], slice.counts);
        let sum = if slice.draining {
            &mut self.draining
        } else {
            let number = self.slices_received[thread] - self.completed;
            self.slices_received[thread] += 1;
            while self.open.len() <= number {
                self.open.push_back(OpenInterval::default());
            }
            &mut self.open[number]
        };
        sum.parts += 1;
        sum.length = sum.length.max(slice.length);
        sum.before.add(&before);
        sum.counts.add(&slice.counts);
        sum.idle += slice.idle.held;
        sum.connections += slice.connections;
        if let Some(mut latency) = slice.latency {
            match &mut sum.latency {
                None => sum.latency = Some((thread, latency)),
                Some((_, all)) => {
                    all.add(&latency);
                    latency.clear();
                    let _ = self.free_histograms[thread].send(latency);
                }
            }
        }
        if self.open.front()?.parts < self.threads {
            return None;
        }
        self.completed += 1;
        let sum = self.open.pop_front()?;
        Some(self.complete_interval(sum, false))
    }

    /// There is nothing more to come.
    pub(crate) fn finish(&mut self) {
        while let Some(sum) = self.open.pop_front() {
            self.complete_interval(sum, false);
        }
        let draining = std::mem::take(&mut self.draining);
        let of = |counts: &Counts| {
            let Counts { scheduled, sent, replies, errors, connections_opened: opened, .. } =
                counts;
            [*scheduled, *sent, *replies, errors.total(), *opened]
        };
        if of(&draining.counts) != of(&draining.before) {
            self.complete_interval(draining, true);
        }
    }

    fn complete_interval(&mut self, sum: OpenInterval, draining: bool) -> Snapshot {
        let (before, after) = (&sum.before, &sum.counts);
        // Nothing is made, nor looked through, for an interval without replies.
        let (latency_ns, latency) = match sum.latency {
            None => (report::Quantiles::default(), Histogram::EMPTY_ENCODED.to_owned()),
            Some((thread, mut latency)) => {
                let told = (latency.quantiles(), latency.encode());
                self.latency.add(&latency);
                latency.clear();
                let _ = self.free_histograms[thread].send(latency);
                told
            }
        };
        let interval = Interval {
            at_s: self.end_of_last.as_secs_f64(),
            length_s: sum.length.as_secs_f64(),
            draining,
            intended: after.scheduled - before.scheduled,
            sent: after.sent - before.sent,
            replies: after.replies - before.replies,
            failed: after.errors.total() - before.errors.total(),
            connections_opened: after.connections_opened - before.connections_opened,
            idle_held: sum.idle,
            latency_ns,
            latency,
        };
        self.end_of_last += sum.length;
        self.total = *after;
        let snapshot = Snapshot {
            elapsed: self.end_of_last,
            sent: after.sent,
            replies: after.replies,
            errors: after.errors,
            connections: sum.connections,
            idle: sum.idle,
            offered_rate: self.profile.rate_at(self.end_of_last),
            interval: interval.clone(),
        };
        self.store_interval(interval);
        snapshot
    }

    /// Adds an interval, or adds it to the last one if that is not yet as long as they are to be.
    fn store_interval(&mut self, interval: Interval) {
        let joins = self.grouped > 0 && !interval.draining;
        match self.intervals.last_mut() {
            Some(last) if joins => join(last, &interval),
            _ => self.intervals.push(interval),
        }
        self.grouped = (self.grouped + 1) % self.group_size;
        if self.intervals.len() < MAX_INTERVALS || self.grouped > 0 {
            return;
        }
        self.group_size *= 2;
        let pairs = self.intervals.chunks(2).map(|pair| {
            let mut first = pair[0].clone();
            pair[1..].iter().for_each(|second| join(&mut first, second));
            first
        });
        self.intervals = pairs.collect();
    }
}

/// Makes one of two that follow each other.
fn join(first: &mut Interval, second: &Interval) {
    first.length_s = second.at_s + second.length_s - first.at_s;
    first.intended += second.intended;
    first.sent += second.sent;
    first.replies += second.replies;
    first.failed += second.failed;
    first.connections_opened += second.connections_opened;
    first.idle_held = second.idle_held;
    // They are ours, and whole.
    let mut latency = Histogram::decode(&first.latency).unwrap_or_default();
    latency.add(&Histogram::decode(&second.latency).unwrap_or_default());
    first.latency_ns = latency.quantiles();
    first.latency = latency.encode();
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::{MAX_INTERVALS, Recorder, Slice};
    use crate::Samples;
    use crate::histogram::Histogram;
    use crate::profile::Profile;
    use crate::report;
    use crate::statistics::Counts;

    fn slice(counts: Counts, times: &[u64]) -> Slice {
        let mut latency = Histogram::new();
        times.iter().for_each(|&time| latency.record(Duration::from_nanos(time)));
        Slice {
            length: Duration::from_secs(1),
            draining: false,
            counts,
            latency: (!times.is_empty()).then(|| Box::new(latency)),
            idle: report::Idle::default(),
            connections: 1,
        }
    }

    proptest! {
        /// However the threads' slices interleave, each interval has what they told of it, and all
        /// intervals together have everything.
        #[test]
        fn nothing_is_lost(
            replies in prop::collection::vec(prop::collection::vec(0..5u64, 2..20), 1..4),
            order in prop::collection::vec(any::<prop::sample::Index>(), 80),
        ) {
            let threads = replies.len();
            let mut spares = Vec::new();
            let mut kept = Vec::new();
            for _ in 0..threads {
                let (send, receive) = channel();
                spares.push(send);
                kept.push(receive);
            }
            let mut recorder = Recorder::new(Profile::constant(1.0), spares);
            let mut at = vec![0; threads];
            let mut counts = vec![Counts::default(); threads];
            let mut whole = Histogram::new();
            for index in order {
                let left: Vec<_> = (0..threads).filter(|&t| at[t] < replies[t].len()).collect();
                if left.is_empty() {
                    break;
                }
                let thread = left[index.index(left.len())];
                let count = replies[thread][at[thread]];
                at[thread] += 1;
                counts[thread].replies += count;
                let times: Vec<_> = (0..count).map(|n| 1000 * (n + 1)).collect();
                times.iter().for_each(|&time| whole.record(Duration::from_nanos(time)));
                recorder.record_slice(thread, slice(counts[thread], &times));
            }
            recorder.finish();
            prop_assert_eq!(&*recorder.latency, &whole);
            for (number, interval) in recorder.intervals.iter().enumerate() {
                let told = (0..threads).filter(|&thread| number < at[thread]);
                let sum: u64 = told.map(|thread| replies[thread][number]).sum();
                prop_assert_eq!(interval.replies, sum);
                prop_assert_eq!(interval.latency_ns.count, sum);
                prop_assert_eq!(interval.at_s, number as f64);
            }
        }
    }

    #[test]
    fn a_long_run_has_bounded_intervals() {
        let mut recorder = Recorder::new(Profile::constant(1.0), vec![channel().0]);
        let mut counts = Counts::default();
        for _ in 0..3 * MAX_INTERVALS {
            counts.replies += 1;
            recorder.record_slice(0, slice(counts, &[1000]));
        }
        recorder.finish();
        assert!(recorder.intervals.len() <= MAX_INTERVALS);
        let lengths: f64 = recorder.intervals.iter().map(|interval| interval.length_s).sum();
        assert_eq!(lengths, 3.0 * MAX_INTERVALS as f64);
        let replies: u64 = recorder.intervals.iter().map(|interval| interval.replies).sum();
        assert_eq!(replies, 3 * MAX_INTERVALS as u64);
        assert_eq!(recorder.latency.len(), replies);
        assert_eq!(Samples::of_reply_rate(&recorder.intervals).mean, 1.0);
    }
}
