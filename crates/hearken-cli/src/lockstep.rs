//! `hearken load --lockstep`.

use std::io::{self, BufRead};
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hearken_load::lockstep::{Driver, Report, Settings};

use crate::args::load::LoadArgs;
use crate::load::{Sink, config, print};
use crate::{Failure, signals};

/// How many requests are made where it is not said.
const REQUESTS: u64 = 10_000;

pub(crate) fn run(args: LoadArgs, batch: NonZeroUsize) -> Result<ExitCode, Failure> {
    let settings = Settings { batch, pipeline: args.pipeline, close: args.close };
    let sink = Sink::open(args.json.as_deref())?;
    let (warm_up, requests) = (args.warm_up, args.requests.unwrap_or(REQUESTS));
    let on_demand = args.on_demand;
    let mut driver = Driver::new(&config(args)?, settings).map_err(Failure::usage)?;
    let stop = Arc::new(AtomicBool::new(false));
    let raised = stop.clone();
    let on_stop = move || raised.store(true, Ordering::Release);
    signals::on_stop(on_stop).map_err(Failure::runtime)?;
    if warm_up > 0 {
        ended_well(&driver.run(warm_up, &stop), &stop)?;
    }
    if on_demand {
        return passes(&mut driver, &stop);
    }
    let report = driver.run(requests, &stop);
    sink.tell(&report)?;
    ended_well(&report, &stop)?;
    Ok(ExitCode::SUCCESS)
}

/// A pass for each number on standard input, until it ends: whoever measures the server reads its
/// accounts between them.
fn passes(driver: &mut Driver, stop: &AtomicBool) -> Result<ExitCode, Failure> {
    print("ready\n");
    for line in io::stdin().lock().lines() {
        let line = line.map_err(Failure::runtime)?;
        let requests = line.trim().parse().map_err(|_| {
            Failure::usage(format!("\"{line}\" on standard input is no number of requests"))
        })?;
        let report = driver.run(requests, stop);
        print(&(serde_json::to_string(&report).map_err(Failure::runtime)? + "\n"));
        ended_well(&report, stop)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// An error if a request failed: what is counted over such a pass is no request's cost.
fn ended_well(report: &Report, stop: &AtomicBool) -> Result<(), Failure> {
    match report.warnings.first() {
        Some(wrong) => Err(Failure::runtime(format!("{}: {wrong}", report.url))),
        None if report.complete || stop.load(Ordering::Acquire) => Ok(()),
        None => Err(Failure::runtime(format!("{}: the rounds ended early", report.url))),
    }
}
