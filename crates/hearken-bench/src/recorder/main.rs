//! `recorder`: an HTTP server that records arrival times, to measure the accuracy of load generators.

mod fit;
mod server;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::Parser;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};

use fit::{Fit, Gaps};
use server::{Recording, Server, Settings};

/// Replies to every request with one byte and records when requests arrive.
///
/// Prints the address on start. On SIGTERM, SIGINT or after --requests, prints JSON with the number of
/// requests and the gaps between them. With --rate, it also contains the deviations from the even
/// schedule that fits best.
#[derive(Debug, Parser)]
#[command(name = "recorder", version)]
struct Arguments {
    /// Address to listen on.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Rate of the even schedule to compare with, in requests per second.
    #[arg(long, value_parser = rate)]
    rate: Option<f64>,
    /// Number of requests after which to exit. Each takes eight bytes of memory.
    #[arg(long, default_value_t = 10_000_000, value_name = "N")]
    requests: usize,
    /// Number of first requests to omit from the statistics.
    #[arg(long, default_value_t = 0, value_name = "N")]
    skip: usize,
    /// CPU time to spend on each request, which limits the reply rate.
    #[arg(long, default_value_t = 0, value_name = "MICROSECONDS")]
    work_us: u64,
    /// Maximum number of connections at a time.
    #[arg(long, default_value_t = usize::MAX, hide_default_value = true, value_name = "N")]
    connections: usize,
    /// Length of the accept queue in the kernel.
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(i32).range(1..))]
    backlog: i32,
    /// Poll without sleeping. This uses a whole processor but avoids wake-up latency.
    #[arg(long)]
    spin: bool,
    /// Exit when the parent process exits.
    #[arg(long)]
    exit_with_parent: bool,
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if (1.0..=1e9).contains(&rate) => Ok(rate),
        _ => Err("expected requests per second, from 1 to 1e9".to_owned()),
    }
}

/// The report printed on exit.
#[derive(Debug, Serialize)]
struct Report {
    schema: &'static str,
    requests: usize,
    /// Number of requests without a kernel timestamp.
    without_kernel_timestamp: u64,
    replies: u64,
    connections: u64,
    lost: u64,
    first_unix_ns: Option<u64>,
    last_unix_ns: Option<u64>,
    /// Requests per second, from the first to the last.
    rate: Option<f64>,
    gaps_ns: Option<Gaps>,
    fit: Option<Fit>,
    /// Steps of the real-time clock during the run in nanoseconds.
    clock_stepped_ns: i64,
}

impl Report {
    fn new(mut recording: Recording, arguments: &Arguments, clock_stepped_ns: i64) -> Report {
        recording.arrivals.sort_unstable();
        let requests = recording.arrivals.len();
        let arrivals = &recording.arrivals[arguments.skip.min(requests)..];
        let (first, last) = (arrivals.first().copied(), arrivals.last().copied());
        let length = first.zip(last).map(|(first, last)| (last - first) as f64 / 1e9);
        Report {
            schema: "hearken-recorder/2",
            requests,
            without_kernel_timestamp: recording.without_kernel_timestamp,
            replies: recording.replies,
            connections: recording.connections,
            lost: recording.lost,
            first_unix_ns: first,
            last_unix_ns: last,
            rate: length
                .filter(|&length| length > 0.0)
                .map(|length| (arrivals.len() - 1) as f64 / length),
            gaps_ns: fit::gaps(arrivals),
            fit: arguments.rate.and_then(|rate| fit::fit(arrivals, rate)),
            clock_stepped_ns,
        }
    }
}

fn main() -> ExitCode {
    match start(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("recorder: {error}");
            ExitCode::from(1)
        }
    }
}

fn start(arguments: &Arguments) -> io::Result<()> {
    if arguments.exit_with_parent {
        let parent = getppid();
        set_parent_process_death_signal(Some(Signal::TERM))?;
        if getppid() != parent {
            return Ok(());
        }
    }
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register(signal, stop.clone())?;
    }
    hearken::descriptors::raise_limit();
    let settings = Settings {
        max_requests: arguments.requests,
        work: Duration::from_micros(arguments.work_us),
        spin: arguments.spin,
        connections: arguments.connections.max(1),
        backlog: arguments.backlog,
    };
    let address = arguments.listen;
    let server = Server::listen(address, settings).map_err(|error| {
        io::Error::new(error.kind(), format!("cannot listen on '{address}': {error}"))
    })?;
    let mut out = io::stdout();
    writeln!(out, "listening on http://{}/", server.address()?)?;
    out.flush()?;
    let before = server::offset();
    let recording = server.run(&stop)?;
    let report = Report::new(recording, arguments, server::offset().wrapping_sub(before));
    let json = serde_json::to_string_pretty(&report).map_err(io::Error::other)?;
    writeln!(out, "{json}")
}
