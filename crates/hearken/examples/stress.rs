//! Runs stress tests of one mechanism, or all, for a given time. Exits with 1 if an event was lost.
//!
//!     cargo run --release -p hearken --example stress -- --seconds 60 --mechanism rt-signal:dequeue=one

use std::process::ExitCode;
use std::time::{Duration, Instant};

use hearken::mechanism::{Entry, Spec, TABLE, find, signal};

#[path = "../tests/loss/mod.rs"]
mod loss;

use loss::{Counts, Load, STORMS};

const USAGE: &str = "stress [--seconds N] [--mechanism SPEC]... [--descriptors N] [--writers N] \
                     [--max N] [--rt-queue N] [--seed N]
Without --mechanism it tests all available mechanisms, with every option.";

struct Arguments {
    seconds: u64,
    specs: Vec<Spec>,
    descriptors: usize,
    writers: usize,
    max: Option<usize>,
    seed: u64,
}

fn main() -> ExitCode {
    let arguments = match parse_arguments() {
        Ok(arguments) => arguments,
        Err(reason) => {
            eprintln!("{reason}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    hearken::descriptors::raise_limit();
    let each = Duration::from_secs(arguments.seconds) / arguments.specs.len().max(1) as u32;
    let mut lost = false;
    for spec in &arguments.specs {
        match stress(spec, each, &arguments) {
            Ok(counts) => println!("{spec}: nothing lost: {counts}"),
            Err(reason) => {
                lost = true;
                println!("{spec}: {reason}");
            }
        }
    }
    if lost { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Runs the stress tests in turn until the time is up, each with a different batch size.
fn stress(spec: &Spec, time: Duration, arguments: &Arguments) -> Result<Counts, String> {
    let mut sum = Counts::default();
    let start = Instant::now();
    let mut round = 0;
    while round == 0 || start.elapsed() < time {
        for (at, (name, storm)) in STORMS.iter().enumerate() {
            let seed = arguments.seed + round;
            let remaining = time.saturating_sub(start.elapsed());
            let load = Load {
                // With few descriptors a queue is often empty.
                descriptors: if round % 2 == 0 { arguments.descriptors } else { 100 },
                writers: arguments.writers,
                max: arguments.max.unwrap_or([64, 1, 512, 7][(round as usize + at) % 4]),
                time: remaining.min(Duration::from_secs(2)).max(Duration::from_millis(100)),
                seed,
            };
            let mechanism = spec.open().map_err(|reason| format!("not available: {reason}"))?;
            let counts = storm(mechanism, &load);
            sum += counts.map_err(|lost| format!("{name} with {load:?}: LOST: {lost}"))?;
        }
        round += 1;
    }
    Ok(sum)
}

fn parse_arguments() -> Result<Arguments, String> {
    let mut arguments = Arguments {
        seconds: 30,
        specs: Vec::new(),
        descriptors: 2000,
        writers: 3,
        max: None,
        seed: 1,
    };
    let mut args = std::env::args().skip(1);
    while let Some(name) = args.next() {
        let value = args.next().ok_or_else(|| format!("{name} needs a value"))?;
        let number =
            || value.parse::<u64>().map_err(|_| format!("{name}: '{value}' is not a number"));
        match name.as_str() {
            "--seconds" => arguments.seconds = number()?,
            "--mechanism" => arguments.specs.push(find(&value).map_err(|error| error.to_string())?),
            "--descriptors" => arguments.descriptors = number()?.clamp(1, 1 << 16) as usize,
            "--writers" => arguments.writers = number()?.clamp(1, 64) as usize,
            "--max" => arguments.max = Some(number()? as usize),
            "--rt-queue" => {
                let limited = signal::set_queue_limit(number()?);
                limited.map_err(|error| format!("{name} {value}: {error}"))?;
            }
            "--seed" => arguments.seed = number()? >> 1,
            _ => return Err(format!("unknown option '{name}'")),
        }
    }
    if arguments.specs.is_empty() {
        let variants = TABLE.iter().flat_map(Entry::variants);
        arguments.specs.extend(variants.filter(|spec| spec.probe().is_ok()));
    }
    Ok(arguments)
}
