//! `hearken load --lockstep`.

use std::io::{self, BufRead};
use std::num::{NonZeroU64, NonZeroUsize};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hearken_load::lockstep::{Driver, Report, Settings};

use crate::args::load::LoadArgs;
use crate::load::{Sink, config, print};
use crate::{Failure, signals};

/// Default number of requests.
const DEFAULT_REQUESTS: u64 = 10_000;

/// Runs `--lockstep`.
pub(crate) fn run(args: LoadArgs, batch: NonZeroUsize) -> Result<ExitCode, Failure> {
    let settings = Settings { batch, pipeline: args.pipeline, close: args.close };
    let sink = Sink::open(args.json.as_deref())?;
    let (warm_up, requests) =
        (args.warm_up, args.requests.map_or(DEFAULT_REQUESTS, NonZeroU64::get));
    let on_demand = args.on_demand;
    let mut driver = Driver::new(&config(args)?, settings).map_err(Failure::usage)?;
    let stop = Arc::new(AtomicBool::new(false));
    let raised = stop.clone();
    let on_stop = move || raised.store(true, Ordering::Release);
    signals::on_stop(on_stop).map_err(Failure::runtime)?;
    if warm_up > 0 {
        check(&driver.run(warm_up, &stop), &stop)?;
    }
    if on_demand {
        return run_on_demand(&mut driver, &stop);
    }
    let report = driver.run(requests, &stop);
    sink.write(&report)?;
    check(&report, &stop)?;
    Ok(signals::exit_status().map_or(ExitCode::SUCCESS, ExitCode::from))
}

/// Makes as many requests as each line of standard input says, until it ends. A program that measures the server reads
/// its counters in between.
fn run_on_demand(driver: &mut Driver, stop: &AtomicBool) -> Result<ExitCode, Failure> {
    print("ready\n");
    for line in io::stdin().lock().lines() {
        let line = line.map_err(Failure::runtime)?;
        let requests = line.trim().parse().map_err(|_| {
            Failure::usage(format!("invalid number of requests '{line}' on standard input"))
        })?;
        let report = driver.run(requests, stop);
        print(&(serde_json::to_string(&report).map_err(Failure::runtime)? + "\n"));
        check(&report, stop)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Fails if a request failed, because the counters then do not measure the cost of requests.
fn check(report: &Report, stop: &AtomicBool) -> Result<(), Failure> {
    match report.warnings.first() {
        Some(warning) => Err(Failure::runtime(format!("{}: {warning}", report.url))),
        None if report.complete || stop.load(Ordering::Acquire) => Ok(()),
        None => Err(Failure::runtime(format!("{}: the rounds ended early", report.url))),
    }
}
