//! Combines the reports of the threads into the intervals of the report and progress snapshots.

use std::collections::VecDeque;
use std::sync::mpsc::Sender;
use std::time::Duration;

use hearken::io::Io;

use crate::failure::Errors;
use crate::histogram::Histogram;
use crate::profile::Profile;
use crate::report::{self, Interval, Missed};
use crate::statistics::Counts;

/// Maximum number of intervals. Longer runs combine pairs of intervals.
const MAX_INTERVALS: usize = if cfg!(test) { 64 } else { 4096 };

/// An update that a thread sends.
#[derive(Debug)]
pub(crate) enum WorkerUpdate {
    /// State of the idle connections before the start.
    Preparing(report::Idle),
    /// The connections to open before the start are open. Waiting for `missing` idle ones has timed
    /// out.
    Prepared { missing: u64 },
    /// All idle connections are established for the first time.
    IdleHeld(report::Idle),
    /// The thread has sent all its requests and received all replies.
    Finished,
    /// An interval has ended.
    Slice(Box<Slice>),
}

/// The receiver of the updates of all threads.
pub(crate) trait UpdateSink {
    /// Sends an update of a thread, whose clocks are those of `io`.
    fn update(&self, thread: usize, update: WorkerUpdate, io: &impl Io);
}

impl UpdateSink for Sender<(usize, WorkerUpdate)> {
    fn update(&self, thread: usize, update: WorkerUpdate, _: &impl Io) {
        // The receiver is closed only if the load has failed.
        let _ = self.send((thread, update));
    }
}

/// A thread's part of an interval.
#[derive(Debug)]
pub(crate) struct Slice {
    pub(crate) length: Duration,
    /// Whether the slice follows the last scheduled request.
    pub(crate) draining: bool,
    /// Counts since the start.
    pub(crate) counts: Counts,
    /// Latencies of the replies received in the interval, if there are any.
    pub(crate) latency: Option<Box<Histogram>>,
    pub(crate) idle: report::Idle,
    /// Number of connections that carry requests.
    pub(crate) connections: u64,
}

/// The progress of a load.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Snapshot {
    /// Time since the start, or zero while connections are still being opened.
    pub elapsed: Duration,
    /// Time until the last scheduled request, if it is known.
    pub remaining: Option<Duration>,
    /// Number of requests sent.
    pub sent: u64,
    /// Number of replies received.
    pub replies: u64,
    /// Numbers of failed requests by reason.
    pub errors: Errors,
    /// Numbers of requests that the generator could not send.
    pub missed: Missed,
    /// Number of connections that carry requests.
    pub connections: u64,
    /// Number of established idle connections.
    pub idle: u64,
    /// Current offered rate in arrivals per second.
    pub offered_rate: f64,
    /// The interval that has just ended.
    pub interval: Interval,
}

/// Combines slices into intervals.
#[derive(Debug)]
pub(crate) struct Recorder {
    threads: usize,
    /// Latencies of the full run.
    pub(crate) latency: Box<Histogram>,
    pub(crate) intervals: Vec<Interval>,
    /// Number of slices per stored interval, and number in the current one.
    group_size: u32,
    grouped: u32,
    /// Incomplete intervals, oldest first.
    open: VecDeque<OpenInterval>,
    /// Number of complete intervals.
    completed: usize,
    /// Number of slices received from each thread.
    slices_received: Vec<usize>,
    draining: OpenInterval,
    /// Counts of each thread at the end of its last slice, and the total.
    last: Vec<Counts>,
    total: Counts,
    /// End of the last interval.
    end_of_last: Duration,
    profile: Profile,
    /// Channels that return histograms to the threads for reuse.
    free_histograms: Vec<Sender<Box<Histogram>>>,
}

/// An interval that is not yet complete.
#[derive(Debug, Default)]
struct OpenInterval {
    parts: usize,
    length: Duration,
    before: Counts,
    counts: Counts,
    /// Latency histogram with the thread that owns it.
    latency: Option<(usize, Box<Histogram>)>,
    idle: u64,
    connections: u64,
}

impl Recorder {
    /// Creates a recorder for the threads that receive `free_histograms`.
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

    /// Records a slice of a thread. Returns a snapshot if it completes an interval.
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
        sum.idle += slice.idle.open;
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

    /// Completes the remaining intervals.
    pub(crate) fn finish(&mut self) {
        while let Some(sum) = self.open.pop_front() {
            self.complete_interval(sum, false);
        }
        let draining = std::mem::take(&mut self.draining);
        let of = |counts: &Counts| {
            let Counts { scheduled, sent, replies, errors, missed, .. } = counts;
            let opened = counts.connections_opened;
            [*scheduled, *sent, *replies, errors.total(), missed.total(), opened]
        };
        if of(&draining.counts) != of(&draining.before) {
            self.complete_interval(draining, true);
        }
    }

    fn complete_interval(&mut self, sum: OpenInterval, draining: bool) -> Snapshot {
        let (before, after) = (&sum.before, &sum.counts);
        // Intervals without replies need no histogram.
        let (latency_ns, latency) = match sum.latency {
            None => (report::Quantiles::default(), Histogram::EMPTY_ENCODED.to_owned()),
            Some((thread, mut latency)) => {
                let encoded = (latency.quantiles(), latency.encode());
                self.latency.add(&latency);
                latency.clear();
                let _ = self.free_histograms[thread].send(latency);
                encoded
            }
        };
        let interval = Interval {
            offset_s: self.end_of_last.as_secs_f64(),
            duration_s: sum.length.as_secs_f64(),
            draining,
            scheduled: after.scheduled - before.scheduled,
            sent: after.sent - before.sent,
            replies: after.replies - before.replies,
            failed: after.errors.total() - before.errors.total(),
            missed: after.missed.total() - before.missed.total(),
            connections_opened: after.connections_opened - before.connections_opened,
            idle_open: sum.idle,
            latency_ns,
            latency,
        };
        self.end_of_last += sum.length;
        self.total = *after;
        let snapshot = Snapshot {
            elapsed: self.end_of_last,
            remaining: None,
            sent: after.sent,
            replies: after.replies,
            errors: after.errors,
            missed: after.missed,
            connections: sum.connections,
            idle: sum.idle,
            offered_rate: self.profile.rate_at(self.end_of_last),
            interval: interval.clone(),
        };
        self.store_interval(interval);
        snapshot
    }

    /// Stores an interval, or adds it to the last one if that is incomplete.
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

/// Appends `second` to `first`.
fn join(first: &mut Interval, second: &Interval) {
    first.duration_s = second.offset_s + second.duration_s - first.offset_s;
    first.scheduled += second.scheduled;
    first.sent += second.sent;
    first.replies += second.replies;
    first.failed += second.failed;
    first.missed += second.missed;
    first.connections_opened += second.connections_opened;
    first.idle_open = second.idle_open;
    // Own histograms are valid.
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
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// Checks that intervals contain all slices in any interleaving of threads.
        #[test]
        fn intervals_contain_all_slices_in_any_order(
            replies in prop::collection::vec(prop::collection::vec(0..5u64, 2..20), 1..4),
            order in prop::collection::vec(any::<prop::sample::Index>(), 80),
        ) {
            let threads = replies.len();
            let mut spares = Vec::new();
            let mut receivers = Vec::new();
            for _ in 0..threads {
                let (send, receive) = channel();
                spares.push(send);
                receivers.push(receive);
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
                let senders = (0..threads).filter(|&thread| number < at[thread]);
                let sum: u64 = senders.map(|thread| replies[thread][number]).sum();
                prop_assert_eq!(interval.replies, sum);
                prop_assert_eq!(interval.latency_ns.count, sum);
                prop_assert_eq!(interval.offset_s, number as f64);
            }
        }
    }

    #[test]
    fn the_number_of_intervals_is_bounded() {
        let mut recorder = Recorder::new(Profile::constant(1.0), vec![channel().0]);
        let mut counts = Counts::default();
        for _ in 0..3 * MAX_INTERVALS {
            counts.replies += 1;
            recorder.record_slice(0, slice(counts, &[1000]));
        }
        recorder.finish();
        assert!(recorder.intervals.len() <= MAX_INTERVALS);
        let lengths: f64 = recorder.intervals.iter().map(|interval| interval.duration_s).sum();
        assert_eq!(lengths, 3.0 * MAX_INTERVALS as f64);
        let replies: u64 = recorder.intervals.iter().map(|interval| interval.replies).sum();
        assert_eq!(replies, 3 * MAX_INTERVALS as u64);
        assert_eq!(recorder.latency.len(), replies);
        assert_eq!(Samples::from_intervals(&recorder.intervals).mean, 1.0);
    }
}
