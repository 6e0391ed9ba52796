//! Experiments that measure event mechanisms and servers under real traffic.
//!
//! The lab starts `hearken serve` or another server as a process and loads it with `hearken load`. It
//! measures the costs of the server from outside, by the accounting of the kernel. [`quick`] compares event
//! mechanisms, [`peers`](mod@peers) compares servers or proxies. [`export`] and [`table`] render a
//! [`Report`]. [`compare`](mod@compare) compares results of the load generator, and [`watch`] samples
//! the resource usage of any running server.
//!
//! Two numbers are comparable only if they were measured in the same run. The measurements of a run are
//! executed in random order, so that a drift of the machine affects all measurements equally.

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
pub mod rate_plot;
mod results;
mod run;
pub mod stats;
mod summary;
mod svg;
mod sweep_figures;
pub mod table;
mod units;
mod warning;
pub mod watch;

pub use counters::UnavailableCounter;
pub use error::LabError;
pub use executor::Executor;
pub use machine::{Machine, Placement};
pub use plan::{QuickConfig, Settings, Trial, plan};
pub use progress::{NoProgress, Progress, StderrProgress};
pub use quick::{quick, quick_with_executor};
pub use results::{Measurement, Report, SCHEMA, Sample};
pub use summary::Cell;
pub use warning::Warning;
