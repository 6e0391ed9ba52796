//! Runs many histories, on several threads.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::allocator;
use crate::finding::Finding;
use crate::history::{self, Outcome, Source};
use crate::kinds::Kind;
use crate::selection::Selection;

/// Number of consecutive seeds that a thread takes at a time.
const CHUNK: u64 = 16;
/// A seed that is a multiple of this number runs twice, to compare the hashes of both traces.
pub const REPEAT_INTERVAL: u64 = 10;

/// The histories to run, and how.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// The kind of histories.
    pub kind: &'static dyn Kind,
    /// The seeds.
    pub seeds: Range<u64>,
    /// The part of each history that its seed does not select.
    pub selection: Selection,
    /// Number of threads.
    pub jobs: usize,
    /// Maximum duration.
    pub time: Option<Duration>,
    /// Whether to continue after a finding.
    pub keep_going: bool,
}

/// A seed with a finding.
#[derive(Clone, Debug)]
pub struct Found {
    /// The seed.
    pub seed: u64,
    /// The finding.
    pub finding: Finding,
    /// The decisions of the history.
    pub decisions: Vec<u8>,
}

/// The results so far.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Number of histories, without repetitions.
    pub histories: u64,
    /// Number of completions.
    pub events: u64,
    /// Number of decided bytes.
    pub decided: u64,
    /// The states that were reached.
    pub features: HashSet<u32>,
    /// The findings, by seed.
    pub findings: BTreeMap<u64, Found>,
    /// Hashes of the traces of repeated histories, by seed.
    pub hashes: BTreeMap<u64, u64>,
}

impl Summary {
    fn add(&mut self, seed: u64, outcome: Outcome) {
        let Outcome { finding, events, features, decisions, .. } = outcome;
        self.histories += 1;
        self.events += events;
        self.decided += decisions.len() as u64;
        self.features.extend(features);
        if let Some(finding) = finding {
            self.findings.insert(seed, Found { seed, finding, decisions });
        }
    }

    fn append(&mut self, mut other: Summary) {
        self.histories += other.histories;
        self.events += other.events;
        self.decided += other.decided;
        self.features.extend(other.features);
        self.findings.append(&mut other.findings);
        self.hashes.append(&mut other.hashes);
    }
}

/// The state that the threads of a campaign share.
struct Shared<'c> {
    campaign: &'c Campaign,
    next: AtomicU64,
    stop: AtomicBool,
    deadline: Option<Instant>,
    summary: Mutex<Summary>,
}

impl Shared<'_> {
    fn summary(&self) -> MutexGuard<'_, Summary> {
        self.summary.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.deadline.is_some_and(|at| Instant::now() >= at)
    }

    fn work(&self) {
        let Campaign { kind, seeds, selection, keep_going, .. } = self.campaign;
        while !self.is_over() {
            let first = self.next.fetch_add(CHUNK, Ordering::Relaxed);
            if first >= seeds.end {
                return;
            }
            let mut part = Summary::default();
            for seed in first..seeds.end.min(first.saturating_add(CHUNK)) {
                run_seed(*kind, seed, *selection, &mut part);
                if !part.findings.is_empty() && !keep_going {
                    self.stop.store(true, Ordering::Relaxed);
                }
                if self.stop.load(Ordering::Relaxed) {
                    break;
                }
            }
            self.summary().append(part);
        }
    }
}

/// Runs a seed, and repeats it if it is due.
fn run_seed(kind: &dyn Kind, seed: u64, selection: Selection, summary: &mut Summary) {
    let source = Source::Seed(seed, selection);
    let mut outcome = history::run(kind, &source, None);
    if seed.is_multiple_of(REPEAT_INTERVAL) {
        let again = history::run(kind, &source, None).hash;
        if again != outcome.hash && outcome.finding.is_none() {
            let detail = format!("the trace has hash {:016x}, then {again:016x}", outcome.hash);
            outcome.finding = Some(Finding::new("not deterministic", detail));
        }
        summary.hashes.insert(seed, outcome.hash);
    }
    summary.add(seed, outcome);
}

/// Runs a campaign. Calls `progress` from time to time with the results so far.
pub fn run(campaign: &Campaign, mut progress: impl FnMut(&Summary)) -> Summary {
    allocator::keep_memory();
    let shared = Shared {
        campaign,
        next: AtomicU64::new(campaign.seeds.start),
        stop: AtomicBool::new(false),
        deadline: campaign.time.map(|time| Instant::now() + time),
        summary: Mutex::default(),
    };
    thread::scope(|scope| {
        let threads: Vec<_> =
            (0..campaign.jobs.max(1)).map(|_| scope.spawn(|| shared.work())).collect();
        let mut reported = Instant::now();
        while !threads.iter().all(thread::ScopedJoinHandle::is_finished) {
            thread::sleep(Duration::from_millis(10));
            if reported.elapsed() >= Duration::from_secs(1) {
                reported = Instant::now();
                progress(&shared.summary());
            }
        }
    });
    shared.summary.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the hashes of the traces of the seeds that a campaign repeats.
pub fn hashes(
    kind: &dyn Kind,
    seeds: Range<u64>,
    selection: Selection,
) -> impl Iterator<Item = (u64, u64)> {
    let repeated = seeds.filter(|seed| seed.is_multiple_of(REPEAT_INTERVAL));
    let hash = move |seed| history::run(kind, &Source::Seed(seed, selection), None).hash;
    repeated.map(move |seed| (seed, hash(seed)))
}
