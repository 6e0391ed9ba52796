//! Experiments that measure event mechanisms and servers under real traffic.
//!
//! The lab starts `hearken serve` or another server as a process and loads it with `hearken load`. It
//! measures the costs of the server from outside, by the accounting of the kernel. An [`Experiment`] is a
//! TOML file that describes servers, load and figures. [`run()`] measures experiments, and [`export`]
//! renders their [`Report`]. [`compare`](mod@compare) compares results of the load generator, and
//! [`watch`] samples the resource usage of any running server.
//!
//! Two numbers are comparable only if they were measured in the same run. The measurements of a run are
//! executed in random order, so that a drift of the machine affects all measurements equally.

mod accounting;
pub mod advise;
mod budget;
pub mod claims;
pub mod compare;
mod counters;
pub mod delay_server;
pub mod emulated;
mod error;
mod executor;
pub mod experiment;
pub mod export;
mod figures;
mod fitness;
mod forecast;
mod html;
pub mod journal;
pub mod judge;
mod load_figures;
mod load_result;
mod machine;
mod network;
mod participant;
mod plan;
mod process;
mod process_tree;
mod progress;
pub mod rate_plot;
mod recipe;
mod results;
mod run;
mod server_metrics;
pub mod stats;
mod summary;
mod svg;
mod sweep_figures;
mod table;
mod throttle;
mod units;
mod warning;
pub mod watch;

pub use counters::UnavailableCounter;
pub use error::LabError;
pub use executor::{Executor, Measured};
pub use experiment::{Experiment, Precision, builtin as builtin_experiments};
pub use forecast::forecast;
pub use machine::{Machine, Placement};
pub use plan::{Available, Cell, PlannedExperiment, Server, Trial, parse_duration, plan};
pub use progress::{NoProgress, Progress, StderrProgress};
pub use recipe::{Kind, Recipe, builtin as builtin_recipes};
pub use results::{AxisReport, Checks, ExperimentReport, Participant, Report, SCHEMA, Sample};
pub use run::{RunConfig, run, run_with_executor};
pub use summary::{CellSummary, MetricSummary};
pub use warning::Warning;
