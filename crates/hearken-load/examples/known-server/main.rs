//! `known-server`: an HTTP server with known behaviour, to test load generators past saturation.
//!
//! `cargo run --example known-server -- --capacity 1000 --drop 10%`

mod behaviour;
mod server;

use std::io::{self, Write};
use std::num::NonZeroU64;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hearken::io::Address;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use signal_hook::consts::{SIGINT, SIGTERM};

use behaviour::{Behaviour, Outcome, Stall};

const USAGE: &str = "\
HTTP server with known behaviour, to test load generators past saturation

Usage: known-server [OPTIONS]

  --listen <ADDR:PORT>          Address to listen on [default: 127.0.0.1:0]
  --delay <DURATION>            Delay of each reply [default: 0s]
  --capacity <N>                Requests served per second, one after another [default: no limit]
  --stall <DURATION/DURATION>   No reply during the first part of each period, e.g. 200ms/2s
  --drop <PERCENT>              Share of requests without an answer
  --close <PERCENT>             Share of requests answered by closing the connection
  --status <STATUS:PERCENT>     Share of requests answered with this status; repeatable
  --exit-with-parent            Exit when the parent process ends

The options combine. Failures take every Nth request. Requests of closed connections are discarded. Prints
the address on start, and the numbers of requests as JSON on SIGTERM or SIGINT.
";

struct Arguments {
    listen: Address,
    behaviour: Behaviour,
    exit_with_parent: bool,
}

impl Arguments {
    /// Parses the arguments. Returns `None` if help is requested.
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<Arguments>, String> {
        let mut arguments = Arguments {
            listen: "127.0.0.1:0".parse().map_err(|error| format!("{error}"))?,
            behaviour: Behaviour::default(),
            exit_with_parent: false,
        };
        let behaviour = &mut arguments.behaviour;
        while let Some(option) = words.next() {
            match &*option {
                "--help" | "-h" => return Ok(None),
                "--exit-with-parent" => {
                    arguments.exit_with_parent = true;
                    continue;
                }
                _ => {}
            }
            let value = words.next().ok_or_else(|| format!("option '{option}' needs a value"))?;
            let parsed = match &*option {
                "--listen" => value.parse().map(|address| arguments.listen = address).ok(),
                "--delay" => duration(&value).map(|delay| behaviour.delay = delay),
                "--capacity" => capacity(&value).map(|time| behaviour.service = Some(time)),
                "--stall" => stall(&value).map(|stall| behaviour.stall = Some(stall)),
                "--drop" => {
                    share(&value).map(|part| behaviour.failures.push((Outcome::Drop, part)))
                }
                "--close" => {
                    share(&value).map(|part| behaviour.failures.push((Outcome::Close, part)))
                }
                "--status" => status(&value).map(|failure| behaviour.failures.push(failure)),
                _ => return Err(format!("unknown option '{option}'; --help lists the options")),
            };
            if parsed.is_none() {
                return Err(format!("invalid value '{value}' for '{option}'; see --help"));
            }
        }
        if behaviour.failures.iter().map(|(_, share)| share).sum::<f64>() > 1.0 {
            return Err("the shares of failures exceed 100%".to_owned());
        }
        Ok(Some(arguments))
    }
}

/// Parses a duration such as 200us, 40ms or 2s.
fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic())?);
    let seconds = number.parse::<f64>().ok()?
        * match unit {
            "us" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            _ => return None,
        };
    Duration::try_from_secs_f64(seconds).ok().filter(|time| time.as_secs() < 86_400)
}

/// Parses requests per second. Returns the time for each.
fn capacity(text: &str) -> Option<Duration> {
    let rate = text.parse::<f64>().ok().filter(|rate| (0.001..=1e6).contains(rate))?;
    Some(Duration::from_secs_f64(1.0 / rate))
}

fn stall(text: &str) -> Option<Stall> {
    let (length, period) = text.split_once('/')?;
    let (length, period) = (duration(length)?, duration(period)?);
    (length < period).then_some(Stall { length, period })
}

fn share(text: &str) -> Option<f64> {
    let percent = text.strip_suffix('%')?.parse::<f64>().ok()?;
    (0.0..=100.0).contains(&percent).then_some(percent / 100.0)
}

fn status(text: &str) -> Option<(Outcome, f64)> {
    let (status, part) = text.split_once(':')?;
    let status = status.parse().ok().filter(|status| (200..600).contains(status))?;
    Some((Outcome::Status(status), share(part)?))
}

fn main() -> ExitCode {
    match start() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("known-server: {error}");
            ExitCode::FAILURE
        }
    }
}

fn start() -> Result<(), String> {
    let Some(arguments) = Arguments::parse(std::env::args().skip(1))? else {
        print!("{USAGE}");
        return Ok(());
    };
    let system = |error: io::Error| error.to_string();
    if arguments.exit_with_parent {
        let parent = getppid();
        set_parent_process_death_signal(Some(Signal::TERM))
            .map_err(|errno| system(errno.into()))?;
        if getppid() != parent {
            return Ok(());
        }
    }
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register(signal, stop.clone()).map_err(system)?;
    }
    hearken::descriptors::raise_limit();
    // Delays are exact. If the kernel refuses, each is up to 50 microseconds longer.
    let _ = rustix::thread::set_current_timer_slack(Some(NonZeroU64::MIN));
    let address = arguments.listen;
    let ready = |address| {
        let mut out = io::stdout();
        writeln!(out, "listening on http://{address}/")?;
        out.flush()
    };
    let counts = server::run(address.clone(), arguments.behaviour, &stop, ready)
        .map_err(|failure| format!("cannot serve on '{address}': {failure}"))?;
    writeln!(io::stdout(), "{counts}").map_err(system)
}
