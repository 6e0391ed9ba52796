//! Experiments that compare event mechanisms on real traffic.
//!
//! The lab knows servers only as processes: it starts `hearken serve` with each mechanism, loads it
//! with `hearken load`, and measures it from outside, by the kernel's accounting. [`quick`] plans,
//! runs and summarises; [`export`] and [`table`] show the [`Report`]. [`compare`](mod@compare) judges
//! results of the load generator by each other.
//!
//! Two numbers are compared only if they come from one run, in which the measurements were made in
//! shuffled order, so that a drift of the machine falls on all of them alike.

mod accounting;
pub mod compare;
mod counters;
mod error;
mod executor;
pub mod export;
mod figures;
mod html;
mod load_figures;
mod load_result;
mod machine;
pub mod peers;
mod plan;
mod process;
mod process_tree;
mod progress;
mod quick;
mod results;
mod run;
pub mod stats;
mod summary;
mod svg;
pub mod table;
mod units;
mod warning;
pub mod watch;

pub use counters::UnavailableCounter;
pub use error::LabError;
pub use executor::{Executor, ProcessExecutor};
pub use hearken_load::Errors;
pub use machine::{Machine, Placement};
pub use plan::{QuickConfig, Settings, Trial, plan};
pub use progress::{NoProgress, Progress, StderrProgress};
pub use quick::{quick, quick_with_executor};
pub use results::{Measurement, Report, SCHEMA, Sample};
pub use summary::{Cell, summarise};
pub use warning::Warning;
