//! An open-loop HTTP load generator that tells the truth under overload.
//!
//! Requests are made when an arrival process says so, however the server fares: a server that falls
//! behind meets as many new requests as before, and each that had to wait counts from the time when
//! it was intended. A generator that waits for replies before it goes on instead asks the less the
//! slower the server is, and reports the latency of the few requests that it made ("coordinated
//! omission").
//!
//! It also watches itself: how late it acted on its own schedule is in the report, with a warning
//! where that is enough to matter. It runs on one thread, over any mechanism of [`hearken`]; idle
//! connections beyond what one table of descriptors holds have threads with tables of their own.
//!
//! ```
//! use std::io::{Read, Write};
//! use std::sync::atomic::AtomicBool;
//! use std::time::Duration;
//!
//! let server = std::net::TcpListener::bind("127.0.0.1:0")?;
//! let url = format!("http://{}/", server.local_addr()?);
//! std::thread::spawn(move || {
//!     while let Ok((mut peer, _)) = server.accept() {
//!         std::thread::spawn(move || {
//!             while peer.read(&mut [0; 1024]).is_ok_and(|count| count > 0) {
//!                 let _ = peer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
//!             }
//!         });
//!     }
//! });
//!
//! let config = hearken_load::Config {
//!     url,
//!     rate: 500.0,
//!     duration: Some(Duration::from_millis(200)),
//!     ..Default::default()
//! };
//! let report = hearken_load::run(&config, &mut (), &AtomicBool::new(false))?;
//! assert!(report.complete);
//! assert_eq!(report.requests.replies, report.requests.intended);
//! println!("{report}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::num::NonZeroU64;
use std::sync::atomic::AtomicBool;

use hearken::io::readiness::Policy;
use hearken::io::{self, Io};
use hearken::{Wakeups, descriptors};
use rustix::thread::set_current_timer_slack;

mod active;
mod arrivals;
mod config;
mod drive;
mod failure;
mod histogram;
mod holders;
mod idle;
pub mod lockstep;
mod misses;
mod reply;
mod report;
mod sources;
mod summary;
mod tally;
mod target;
mod url;
mod warning;

pub use arrivals::Arrivals;
pub use config::{Config, DEFAULT_DURATION, LoadError};
pub use drive::{Progress, Snapshot};
pub use failure::Errors;
pub use histogram::Histogram;
pub use report::{
    Bytes, Handshakes, Histograms, Idle, Interval, Model, Quantiles, Report, Requests, SCHEMA,
    Samples, Sessions, Status, Timeouts,
};
pub use url::UrlError;

use active::Active;
use arrivals::Schedule;
use drive::{Drive, Outcome};
use holders::{Holders, Plan};
use idle::Idlers;
use target::Target;

/// How many connections of a kind may be under way, and how many are begun in a turn: few, so that
/// a server accepts as fast as we connect, and no request waits long behind them.
const MOST_CONNECTING: usize = 256;
const PER_TURN: usize = 32;

/// Turns are kept short: what arrives within one is late by the rest of it.
fn policy() -> Policy {
    Policy { batch: 32, turn_bytes: 64 * 1024, ..Policy::default() }
}

/// Offers the load that `config` describes and tells what came of it, on this thread. `progress`
/// is told how it goes. Raising `stop` ends it early, within a second, or at once with the waker
/// that [`Progress::started`] is given.
///
/// Raises this process' limit of open files as far as it may. A server that cannot be reached is
/// a result, not an error.
///
/// # Errors
/// Settings that make no sense, a host without an address, an event mechanism that cannot be had.
pub fn run(
    config: &Config,
    progress: &mut dyn Progress,
    stop: &AtomicBool,
) -> Result<Report, LoadError> {
    config.check()?;
    let target = Target::new(config)?;
    let descriptors = descriptors::raise_limit().unwrap_or(u64::MAX);
    // Or the kernel delays each wait by up to 50 us to save wake-ups. Refused, lateness shows it.
    let _ = set_current_timer_slack(NonZeroU64::new(1));
    let wakeups = Wakeups::new()
        .map_err(|source| LoadError::System { action: "prepare to wait for events", source })?;
    let run = Run { config, target, descriptors, progress, stop };
    let report = io::visit(&config.events, &policy(), wakeups, run);
    let _ = set_current_timer_slack(None);
    report?
}

/// What is done with the mechanism once its type is known.
struct Run<'a> {
    config: &'a Config,
    target: Target,
    descriptors: u64,
    progress: &'a mut dyn Progress,
    stop: &'a AtomicBool,
}

impl io::Visitor for Run<'_> {
    type Output = Result<Report, LoadError>;

    fn visit<I: Io>(self, name: &'static str, io: I) -> Result<Report, LoadError> {
        let Run { config, target, descriptors, progress, stop } = self;
        // Of a size that can be typed, and that every reader of JSON keeps.
        let seed = config.seed.unwrap_or_else(|| fastrand::u32(..).into());
        let plan = Plan::new(config, descriptors)?;
        let holders = Holders::start(&plan, config, &target)
            .map_err(|source| LoadError::System { action: "start a thread", source })?;
        let parts = (
            target,
            Active::new(config),
            Idlers::new(plan.beside(config), config.idle_request, MOST_CONNECTING),
            holders,
            Schedule::new(config.arrivals, config.rate, seed),
        );
        let mut drive = Drive::new(io, parts, progress, stop);
        let outcome = drive.run(config.length())?;
        let idle = drive.idle();
        let held = drive
            .holders
            .end()
            .map_err(|source| LoadError::System { action: "hold idle connections", source })?;
        drive.idlers.misses.merge(held.misses);
        drive.idlers.bytes.received += held.bytes.received;
        drive.idlers.bytes.sent += held.bytes.sent;
        let mut report = conclude(config, &drive.active, &drive.idlers.bytes, idle, outcome);
        report.seed = seed;
        report.events = name.to_owned();
        let other = drive.active.tally.other.as_deref();
        report.warnings = warning::all(&report, outcome, descriptors, other);
        report.warnings.extend(drive.idlers.misses.sentences());
        if let Some(refused) = plan.refused {
            report.warnings.push(format!(
                "idle connections had to be held in one table of descriptors: {refused}"
            ));
        }
        Ok(report)
    }
}

/// The report, but for what [`Run`] adds.
fn conclude(
    config: &Config,
    active: &Active,
    idle_bytes: &Bytes,
    idle: Idle,
    outcome: Outcome,
) -> Report {
    let tally = &active.tally;
    let duration_s = outcome.elapsed.as_secs_f64();
    Report {
        schema: SCHEMA.to_owned(),
        complete: outcome.complete,
        started_unix_ns: 0,
        url: config.url.clone(),
        workload: String::new(),
        model: Model::Requests,
        rate: config.rate.to_string(),
        offered_rate: config.rate,
        duration_s,
        arrivals: config.arrivals,
        connections: config.connections.get() as u64,
        per_connection: config.per_connection.map(|count| count.to_string()),
        threads: 1,
        seed: 0,
        events: String::new(),
        requests: Requests {
            intended: tally.intended,
            sent: tally.sent,
            replies: tally.replies,
            failed: tally.errors.total(),
            unfinished: tally.outstanding(),
            waited: tally.waited,
        },
        sessions: Sessions::default(),
        status: tally.status,
        reply_rate: if duration_s > 0.0 { tally.in_time as f64 / duration_s } else { 0.0 },
        reply_rate_samples: Samples::default(),
        latency_ns: tally.latency.quantiles(),
        service_ns: tally.service.quantiles(),
        connect_ns: Quantiles::default(),
        lateness_ns: tally.lateness.quantiles(),
        errors: tally.errors,
        timeouts: Timeouts::default(),
        connections_opened: tally.opened,
        idle,
        tls: Handshakes::default(),
        bytes: Bytes {
            received: tally.bytes.received + idle_bytes.received,
            sent: tally.bytes.sent + idle_bytes.sent,
        },
        intervals: Vec::new(),
        histograms: Histograms::default(),
        warnings: Vec::new(),
    }
}
