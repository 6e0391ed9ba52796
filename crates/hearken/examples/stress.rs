//! Storms over one mechanism, or all, for as long as is wanted: exits with 1 if an event was lost.
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
Without --mechanism it goes through all that can be had here, with every option.";

struct Asked {
    seconds: u64,
    specs: Vec<Spec>,
    descriptors: usize,
    writers: usize,
    max: Option<usize>,
    seed: u64,
}

fn main() -> ExitCode {
    let asked = match asked() {
        Ok(asked) => asked,
        Err(reason) => {
            eprintln!("{reason}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    hearken::descriptors::raise_limit();
    let each = Duration::from_secs(asked.seconds) / asked.specs.len().max(1) as u32;
    let mut lost = false;
    for spec in &asked.specs {
        match stress(spec, each, &asked) {
            Ok(counts) => println!("{spec}: nothing lost: {counts}"),
            Err(reason) => {
                lost = true;
                println!("{spec}: {reason}");
            }
        }
    }
    if lost { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Storms in turn until the time is up, each with another batch.
fn stress(spec: &Spec, time: Duration, asked: &Asked) -> Result<Counts, String> {
    let mut sum = Counts::default();
    let start = Instant::now();
    let mut round = 0;
    while round == 0 || start.elapsed() < time {
        for (at, (name, storm)) in STORMS.iter().enumerate() {
            let seed = asked.seed + round;
            let left = time.saturating_sub(start.elapsed());
            let load = Load {
                // With few of them a queue is often empty.
                descriptors: if round % 2 == 0 { asked.descriptors } else { 100 },
                writers: asked.writers,
                max: asked.max.unwrap_or([64, 1, 512, 7][(round as usize + at) % 4]),
                time: left.min(Duration::from_secs(2)).max(Duration::from_millis(100)),
                seed,
            };
            let mechanism = spec.open().map_err(|reason| format!("not to be had: {reason}"))?;
            let counts = storm(mechanism, &load);
            sum += counts.map_err(|lost| format!("{name} with {load:?}: LOST: {lost}"))?;
        }
        round += 1;
    }
    Ok(sum)
}

fn asked() -> Result<Asked, String> {
    let mut asked =
        Asked { seconds: 30, specs: Vec::new(), descriptors: 2000, writers: 3, max: None, seed: 1 };
    let mut args = std::env::args().skip(1);
    while let Some(name) = args.next() {
        let value = args.next().ok_or_else(|| format!("{name} wants a value"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("{name} {value}: not a number"));
        match name.as_str() {
            "--seconds" => asked.seconds = number()?,
            "--mechanism" => asked.specs.push(find(&value).map_err(|error| error.to_string())?),
            "--descriptors" => asked.descriptors = number()?.clamp(1, 1 << 16) as usize,
            "--writers" => asked.writers = number()?.clamp(1, 64) as usize,
            "--max" => asked.max = Some(number()? as usize),
            "--rt-queue" => {
                let limited = signal::limit_queue(number()?);
                limited.map_err(|error| format!("{name} {value}: {error}"))?;
            }
            "--seed" => asked.seed = number()? >> 1,
            _ => return Err(format!("what is {name}?")),
        }
    }
    if asked.specs.is_empty() {
        let variants = TABLE.iter().flat_map(Entry::variants);
        asked.specs.extend(variants.filter(|spec| spec.probe().is_ok()));
    }
    Ok(asked)
}
