//! Open-loop HTTP load generator.
//!
//! An arrival process schedules the requests independently of the server. A server that falls
//! behind receives requests at the same rate as before, and latency is measured from the scheduled
//! time of each request. A generator that waits for replies before it sends further requests would
//! instead slow down with the server, and would omit the requests delayed most ("coordinated
//! omission").
//!
//! The generator also measures its own lateness, and adds a warning to the report if that affects
//! the results. It runs one or more threads over any mechanism of [`hearken`], each with its own
//! descriptor table. Idle connections beyond the capacity of these tables get further threads.
//!
//! The main items are [`Config`], [`run`] and [`Report`]. [`knee`] searches for the maximum rate
//! that meets [`Objectives`], and [`sweep`](mod@sweep) measures a server up to twice its saturation.
//! [`merge`](mod@merge) combines the reports of several generators, and [`lockstep`] measures the cost
//! per request of a server.
//!
//! ```
//! use std::io::{Read, Write};
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
//!     rate: hearken_load::Profile::constant(500.0),
//!     duration: Some(Duration::from_millis(200)),
//!     ..Default::default()
//! };
//! let report = hearken_load::run(&config, &mut (), &hearken_load::StopSignal::new())?;
//! assert!(report.complete);
//! assert_eq!(report.requests.replies, report.requests.scheduled);
//! println!("{report}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod accounts;
mod active_connections;
mod arrivals;
mod bottleneck;
mod channel;
mod config;
mod connection;
mod connection_limit;
mod cookies;
mod environment;
mod estimate;
pub mod export;
mod failure;
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub mod fuzzing;
mod histogram;
mod http2;
mod idle_connections;
mod idle_errors;
pub mod knee;
pub mod lockstep;
pub mod merge;
mod population;
mod profile;
mod queue;
mod rank;
mod reasons;
mod recorder;
mod reply;
mod reply_rate;
mod report;
mod run;
mod server;
mod server_address;
mod shard;
mod side_connections;
mod side_settings;
mod side_summary;
#[cfg(feature = "simulation")]
pub mod simulation;
mod slo;
mod slow_clients;
mod source_addresses;
mod statistics;
mod step_table;
mod stop;
mod summary;
pub mod sweep;
mod sync;
mod target;
mod threads;
mod tls;
mod total_failure;
mod trial_runner;
mod url;
mod validate;
mod wall_clock;
mod warning;
mod websocket;
mod worker;
mod workload;

pub use arrivals::Arrivals;
pub use bottleneck::Bottleneck;
pub use config::{
    Config, DEFAULT_CLOSED_CONNECTIONS, DEFAULT_DURATION, DEFAULT_MECHANISM, LoadError,
};
pub use estimate::{Estimate, estimate, student_t};
pub use failure::Errors;
pub use histogram::Histogram;
pub use merge::{MergeError, merge};
pub use profile::{Profile, ProfileError};
pub use rank::{Rank, RankError};
pub use reasons::Reasons;
pub use recorder::Snapshot;
pub use report::{
    Bytes, ConnectionLimit, Handshakes, Histograms, Http2, Idle, Interval, Missed, Model, Part,
    Quantiles, QueueOrder, Report, Requests, SCHEMA, Samples, Sessions, Status, Timeouts,
};
pub use run::{Progress, check, run};
pub use server::{Server, ServerSample, ServerUsage};
pub use server_address::HostAddress;
pub use slo::{Measured, NoValue, Objective, ObjectiveError, ObjectiveResult, Objectives};
pub use slow_clients::{SlowClients, SlowGroup, SlowOptions};
pub use step_table::LoadStep;
pub use stop::StopSignal;
pub use summary::Grouped;
pub use tls::{TlsError, TlsOptions};
pub use trial_runner::Step;
pub use url::UrlError;
pub use validate::InvalidReport;
pub use wall_clock::ClockState;
pub use websocket::{WebSocketMode, WebSocketOptions, WebSockets};
pub use workload::{Count, Distribution, Expect, RequestTemplate, Source, fileset as specweb};

/// Runs the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;

/// Maximum number of concurrent connection attempts of each kind, and of new attempts per turn.
/// They are low, so that a server can accept as fast as the generator connects, and no request
/// waits long behind them.
const MAX_CONNECTING: usize = 256;
const PER_TURN: usize = 32;
