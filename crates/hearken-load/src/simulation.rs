//! Loads over any [`Io`] in a single thread, for deterministic simulations.
//!
//! A simulation starts no threads, reads no clock except those of the [`Io`], and takes all random
//! numbers from the seed of the settings. The same settings over the same network yield the same
//! requests and the same report.
//!
//! The remaining inputs are the files that the settings name, the lookup of a host that is not an
//! IP address, and the random numbers of TLS, which `hearken_tls::simulate` replaces.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use hearken::io::Io;

use crate::config::{Config, LoadError};
use crate::environment::Environment;
use crate::histogram::Histogram;
use crate::recorder::{UpdateSink, WorkerUpdate};
use crate::report::Report;
use crate::run::{Coordinator, build_report, prepare};
use crate::stop::StopSignal;
use crate::threads::{Load, Plan, WorkerStart};
use crate::wall_clock::ClockMapping;
use crate::worker::WorkerResult;

/// A load whose workers run as parts of a simulation.
///
/// Each worker loops until the load has ended, so several workers and the server take turns while
/// they wait: each [`Io::wait`] gives way to the others. Workers wait for each other before the
/// first request.
#[derive(Debug)]
pub struct SimulatedLoad {
    load: Arc<Load>,
    plan: Plan,
    coordinator: RefCell<Coordinator>,
    /// The channel of each worker that has not started.
    spares: RefCell<Vec<Option<Receiver<Box<Histogram>>>>>,
    /// The result of each worker that has ended.
    results: RefCell<Vec<Option<WorkerResult>>>,
}

impl SimulatedLoad {
    /// Creates the load that `config` describes, for processes with at most `descriptors` open
    /// files. Without a seed, it uses the same seed each time.
    ///
    /// # Errors
    /// As [`run`](crate::run).
    pub fn new(config: &Config, descriptors: u64) -> Result<SimulatedLoad, LoadError> {
        let environment = || Environment {
            descriptors,
            ports: None,
            available_memory: || None,
            probe_table: |_| Ok(()),
            cpu_time: || Duration::ZERO,
            random: fastrand::Rng::with_seed(config.seed.unwrap_or_default()),
        };
        let (load, plan) = prepare(config, &StopSignal::new(), environment)?;
        let (senders, spares) = (0..plan.threads())
            .map(|_| channel())
            .map(|(sender, receiver)| (sender, Some(receiver)))
            .unzip();
        Ok(SimulatedLoad {
            coordinator: RefCell::new(Coordinator::new(&load, &plan, senders)),
            spares: RefCell::new(spares),
            results: RefCell::new((0..plan.threads()).map(|_| None).collect()),
            load,
            plan,
        })
    }

    /// Returns the number of workers. All of them must [run](SimulatedLoad::run_worker).
    pub fn workers(&self) -> usize {
        self.plan.threads()
    }

    /// Runs the worker with the given index, counted from 0, until the load has ended.
    ///
    /// # Errors
    /// A failed [`Io::wait`], which also stops the other workers. An index without a worker, or of a
    /// worker that has started.
    pub fn run_worker<I: Io>(&self, index: usize, io: I) -> Result<(), LoadError> {
        let spares = self.spares.borrow_mut().get_mut(index).and_then(Option::take);
        let spares = spares.ok_or(LoadError::Config(
            "there is no such worker, or it has started; run each worker once",
        ))?;
        self.load.shared.stop.add(io.waker());
        let worker = WorkerStart::new(&self.plan, &self.load, index, spares);
        let updates = DirectUpdates(&self.coordinator);
        match worker.run("simulation", io, updates) {
            Ok(result) => {
                self.results.borrow_mut()[index] = Some(result);
                Ok(())
            }
            Err(error) => {
                self.stop();
                Err(error)
            }
        }
    }

    /// Ends the load immediately, as [`StopSignal::raise`] does.
    pub fn stop(&self) {
        self.load.shared.stop.raise();
    }

    /// Returns the report, once all workers have ended. It is incomplete if one has not.
    pub fn report(self) -> Report {
        let results: Vec<_> = self.results.into_inner().into_iter().flatten().collect();
        let has_ended = results.len() == self.plan.threads();
        let coordinator = self.coordinator.into_inner();
        let mut report = build_report(&self.load, &self.plan, coordinator, results, None);
        report.complete &= has_ended;
        report
    }
}

/// Hands updates to the coordinator at once.
struct DirectUpdates<'a>(&'a RefCell<Coordinator>);

impl UpdateSink for DirectUpdates<'_> {
    fn update(&self, thread: usize, update: WorkerUpdate, io: &impl Io) {
        let clocks = || {
            let now = io.clock();
            (ClockMapping::of_times(io.unix_time(), now), now)
        };
        self.0.borrow_mut().on_update(thread, update, clocks, &mut ());
    }
}
