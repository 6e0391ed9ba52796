//! `recorder`: a server that notes when requests arrive, to tell how well a generator keeps its schedule.

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
use server::{Seen, Server, Settings};

/// Answers every request with one byte, and tells when they came.
///
/// Says where it listens; on SIGTERM, SIGINT, or after --requests, prints JSON: how many came, the gaps
/// between them, and with --rate how far each was from the even schedule of that rate that fits best.
#[derive(Debug, Parser)]
#[command(name = "recorder", version)]
struct Arguments {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Compare with an even schedule of so many a second.
    #[arg(long, value_parser = rate)]
    rate: Option<f64>,
    /// End after so many requests; eight bytes are kept of each.
    #[arg(long, default_value_t = 10_000_000, value_name = "N")]
    requests: usize,
    /// Leave so many of the first out of what is told.
    #[arg(long, default_value_t = 0, value_name = "N")]
    skip: usize,
    /// Work so long on each request, so that it answers no more than that allows.
    #[arg(long, default_value_t = 0, value_name = "MICROSECONDS")]
    work_us: u64,
    /// Accept no more connections at a time.
    #[arg(long, default_value_t = usize::MAX, hide_default_value = true, value_name = "N")]
    connections: usize,
    /// Connections that the kernel keeps until they are accepted.
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(i32).range(1..))]
    backlog: i32,
    /// Never sleep: a processor is used up, and none has to be woken.
    #[arg(long)]
    spin: bool,
    /// End with the process that started this.
    #[arg(long)]
    exit_with_parent: bool,
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if (1.0..=1e9).contains(&rate) => Ok(rate),
        _ => Err("not a number of arrivals a second, from 1 to 1e9".to_owned()),
    }
}

/// What is printed.
#[derive(Debug, Serialize)]
struct Report {
    schema: &'static str,
    requests: usize,
    /// Requests whose time is not the kernel's.
    by_own_clock: u64,
    replies: u64,
    connections: u64,
    lost: u64,
    first_unix_ns: Option<u64>,
    last_unix_ns: Option<u64>,
    /// Arrivals a second, from the first to the last.
    rate: Option<f64>,
    gaps_ns: Option<Gaps>,
    fit: Option<Fit>,
    /// By how much the real-time clock was stepped meanwhile.
    clock_stepped_ns: i64,
}

impl Report {
    fn of(mut seen: Seen, arguments: &Arguments, clock_stepped_ns: i64) -> Report {
        seen.arrivals.sort_unstable();
        let requests = seen.arrivals.len();
        let arrivals = &seen.arrivals[arguments.skip.min(requests)..];
        let (first, last) = (arrivals.first().copied(), arrivals.last().copied());
        let length = first.zip(last).map(|(first, last)| (last - first) as f64 / 1e9);
        Report {
            schema: "hearken-recorder/1",
            requests,
            by_own_clock: seen.by_own_clock,
            replies: seen.replies,
            connections: seen.connections,
            lost: seen.lost,
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
        most: arguments.requests,
        work: Duration::from_micros(arguments.work_us),
        spin: arguments.spin,
        connections: arguments.connections.max(1),
        backlog: arguments.backlog,
    };
    let at = arguments.listen;
    let server = Server::listen(at, settings)
        .map_err(|error| io::Error::new(error.kind(), format!("cannot listen on {at}: {error}")))?;
    let mut out = io::stdout();
    writeln!(out, "listening on http://{}/", server.address()?)?;
    out.flush()?;
    let before = server::offset();
    let seen = server.run(&stop)?;
    let report = Report::of(seen, arguments, server::offset().wrapping_sub(before));
    let json = serde_json::to_string_pretty(&report).map_err(io::Error::other)?;
    writeln!(out, "{json}")
}
