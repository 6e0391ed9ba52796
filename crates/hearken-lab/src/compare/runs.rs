//! Runs of a side, divided into the segments that are resampled.

use std::collections::BTreeMap;

use hearken_load::{Histogram, Interval, Report, Server};

use super::{Compared, Quantity};

/// Maximum number of segments of a side. If there are more, neighbouring segments are merged.
const MOST: usize = 1000;
/// Maximum number of segments of a run.
const MOST_OF_RUN: usize = 240;
/// Histogram buckets per doubling of latency. Quantiles are interpolated within a bucket.
const FINENESS: f64 = 128.0;
/// Minimum length of an interval that starts a segment, relative to the longest interval.
const FULL: f64 = 0.75;
/// Minimum number of samples beyond a percentile.
const BEYOND: f64 = 5.0;

/// One or more successive intervals.
#[derive(Clone, Debug, Default)]
pub(super) struct Piece {
    pub(super) seconds: f64,
    pub(super) intended: u64,
    pub(super) failed: u64,
    /// Replies received while requests were sent.
    pub(super) replies: u64,
    pub(super) cpu_ns: f64,
    /// Latency counts by value in nanoseconds. A map needs less memory than a histogram here.
    latencies: BTreeMap<u64, u64>,
    /// Number of latencies, and their sum in nanoseconds.
    pub(super) count: f64,
    pub(super) sum: f64,
    /// Cumulative number of latencies by bucket.
    pub(super) below: Vec<f64>,
}

/// One run.
#[derive(Clone, Debug, Default)]
pub(super) struct Run {
    pub(super) pieces: Vec<Piece>,
    watched: bool,
}

/// All runs of a side.
#[derive(Clone, Debug, Default)]
pub(super) struct Side {
    pub(super) runs: Vec<Run>,
    /// First bucket of [`Segment::cumulative`].
    pub(super) lowest: usize,
    whole: Piece,
    latency: Histogram,
}

impl Piece {
    fn add(&mut self, more: &Piece) {
        self.seconds += more.seconds;
        self.intended = self.intended.saturating_add(more.intended);
        self.failed = self.failed.saturating_add(more.failed);
        self.replies = self.replies.saturating_add(more.replies);
        self.cpu_ns += more.cpu_ns;
        for (&latency, &count) in &more.latencies {
            *self.latencies.entry(latency).or_default() += count;
        }
    }

    fn of(interval: &Interval, latency: &Histogram, server: Option<&Server>) -> Piece {
        let end = interval.at_s + interval.length_s;
        let cpu = |server| Some(cpu_at(server, end)? - cpu_at(server, interval.at_s)?);
        Piece {
            // Replies received while draining do not count towards the reply rate.
            seconds: if interval.draining { 0.0 } else { interval.length_s },
            replies: if interval.draining { 0 } else { interval.replies },
            intended: interval.intended,
            failed: interval.failed,
            cpu_ns: server.and_then(cpu).unwrap_or(0.0),
            latencies: latency
                .as_hdr()
                .iter_recorded()
                .map(|value| (value.value_iterated_to(), value.count_at_value()))
                .collect(),
            ..Piece::default()
        }
    }
}

/// Returns the CPU time of the server at a time, interpolated between samples.
fn cpu_at(server: &Server, at_s: f64) -> Option<f64> {
    let samples = &server.samples;
    let after = samples.partition_point(|sample| sample.at_s < at_s);
    let cpu = |index: usize| samples[index].cpu_ns.map(|ns| ns as f64);
    if after == 0 || after == samples.len() {
        return cpu(after.min(samples.len().checked_sub(1)?));
    }
    let (low, high) = (cpu(after - 1)?, cpu(after)?);
    let (from, to) = (samples[after - 1].at_s, samples[after].at_s);
    Some(low + (high - low) * ((at_s - from) / (to - from)).clamp(0.0, 1.0))
}

impl Run {
    /// Divides a report into at most `most` segments and adds all latencies to `all`.
    ///
    /// An interval that is shorter than the others, and the intervals of draining, are merged into
    /// the segment before.
    fn of(report: &Report, most: usize, all: &mut Histogram) -> Run {
        let server = report.server.as_ref();
        let longest = report.intervals.iter().filter(|interval| !interval.draining);
        let longest = longest.map(|interval| interval.length_s).fold(0.0, f64::max);
        let (mut pieces, mut joined) = (Vec::<Piece>::new(), 0);
        let whole = |i: &Interval| !i.draining && i.length_s >= longest * FULL;
        let full = report.intervals.iter().filter(|interval| whole(interval)).count();
        let together = full.div_ceil(most.max(1)).max(1);
        for interval in &report.intervals {
            let latency = interval.histogram().unwrap_or_default();
            all.add(&latency);
            let piece = Piece::of(interval, &latency, server);
            let own = whole(interval);
            match pieces.last_mut() {
                Some(last) if !own || joined < together => last.add(&piece),
                _ => {
                    pieces.push(piece);
                    joined = 0;
                }
            }
            joined += usize::from(own);
        }
        // The last of several merged segments may be much shorter than the others.
        if together > 1
            && joined < together
            && pieces.len() > 1
            && let Some(rest) = pieces.pop()
            && let Some(last) = pieces.last_mut()
        {
            last.add(&rest);
        }
        let watched = server.is_some_and(|server| server.total.cpu_ns.is_some_and(|ns| ns > 0));
        Run { pieces, watched }
    }
}

impl Side {
    pub(super) fn of(reports: &[Report]) -> Side {
        // Histograms are decoded one at a time to limit memory use.
        let most = (MOST / reports.len().max(1)).clamp(1, MOST_OF_RUN);
        let mut latency = Histogram::new();
        let runs: Vec<Run> =
            reports.iter().map(|report| Run::of(report, most, &mut latency)).collect();
        let mut whole = Piece::default();
        for piece in runs.iter().flat_map(|run| &run.pieces) {
            whole.add(&Piece { latencies: BTreeMap::new(), ..piece.clone() });
        }
        Side { runs, lowest: 0, whole, latency }
    }

    /// Returns the summary for the report.
    pub(super) fn told(&self, reports: &[Report]) -> Compared {
        let runs = self.runs.len();
        let offered: f64 = reports.iter().map(|report| report.offered_rate).sum();
        let intervals = reports.iter().map(|report| report.intervals.len()).sum();
        Compared { runs, intervals, offered_rate: offered / runs.max(1) as f64 }
    }

    /// Returns whether the metric was measured.
    pub(super) fn has(&self, quantity: Quantity) -> bool {
        match quantity {
            Quantity::ReplyRate => self.whole.seconds > 0.0,
            Quantity::ErrorShare => self.whole.intended > 0,
            Quantity::CpuPerReply => {
                !self.runs.is_empty()
                    && self.runs.iter().all(|run| run.watched)
                    && self.whole.replies > 0
            }
            _ => !self.latency.is_empty(),
        }
    }

    /// Returns whether enough latencies lie beyond a percentile to estimate it.
    pub(super) fn knows(&self, quantity: Quantity) -> bool {
        let count = self.latency.len() as f64;
        quantity.quantile().is_none_or(|quantile| count * (1.0 - quantile) >= BEYOND - 1e-6)
    }

    /// Returns the value over all runs.
    pub(super) fn shown(&self, quantity: Quantity) -> f64 {
        let Piece { seconds, intended, failed, replies, cpu_ns, .. } = &self.whole;
        match quantity {
            Quantity::ReplyRate => *replies as f64 / seconds,
            Quantity::ErrorShare => *failed as f64 / *intended as f64,
            Quantity::LatencyMean => self.latency.as_hdr().mean(),
            Quantity::CpuPerReply => cpu_ns / *replies as f64,
            _ => self.latency.at(quantity.quantile().unwrap_or(0.5)) as f64,
        }
    }

    /// Returns the value used for the ratio: the error ratio is adjusted so that it is never 0.
    pub(super) fn compared(&self, quantity: Quantity) -> f64 {
        match quantity {
            Quantity::ErrorShare => share(self.whole.failed as f64, self.whole.intended as f64),
            _ => self.shown(quantity),
        }
    }

    /// Returns the lower bound of the variance of the logarithm. Resampling cannot show the
    /// uncertainty of few errors, and percentiles have a resolution of three digits.
    pub(super) fn least_variance(&self, quantity: Quantity) -> f64 {
        match quantity {
            Quantity::ErrorShare => (self.whole.failed as f64 + 0.5).recip(),
            Quantity::ReplyRate => 0.0,
            _ => 1e-6,
        }
    }
}

/// Returns the error ratio with the Haldane-Anscombe correction, which is never 0.
pub(super) fn share(failed: f64, intended: f64) -> f64 {
    (failed + 0.5) / (intended + 1.0)
}

fn bucket(nanos: u64) -> usize {
    (nanos.max(1) as f64).log2().mul_add(FINENESS, 1e-6) as usize
}

/// Returns the start of a bucket in nanoseconds; `bucket` may have a fraction.
pub(super) fn nanos(bucket: f64) -> f64 {
    (bucket / FINENESS).exp2()
}

/// Counts the latencies of all segments of both sides in common buckets.
pub(super) fn put_on_one_axis(sides: &mut [Side; 2]) {
    let ends = sides.iter().filter(|side| !side.latency.is_empty());
    let ends: Vec<_> = ends.map(|side| side.latency.quantiles()).collect();
    let lowest = ends.iter().map(|of| bucket(of.min)).min().unwrap_or(0);
    let highest = ends.iter().map(|of| bucket(of.max)).max().unwrap_or(0);
    for side in sides {
        side.lowest = lowest;
        let pieces = side.runs.iter_mut().flat_map(|run| &mut run.pieces);
        pieces.for_each(|piece| piece.sort_into(lowest, highest));
    }
}

impl Piece {
    fn sort_into(&mut self, lowest: usize, highest: usize) {
        self.below = vec![0.0; highest.saturating_sub(lowest) + 1];
        let last = self.below.len() - 1;
        for (nanos, count) in std::mem::take(&mut self.latencies) {
            let times = count as f64;
            self.below[bucket(nanos).saturating_sub(lowest).min(last)] += times;
            self.count += times;
            self.sum += times * nanos as f64;
        }
        let mut sum = 0.0;
        for count in &mut self.below {
            sum += *count;
            *count = sum;
        }
    }
}
