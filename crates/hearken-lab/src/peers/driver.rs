//! The driver of a workload: a process that sends requests in lockstep, controlled by its input.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hearken_load::lockstep;

use super::participant::{Ground, Running};
use super::workload::Workload;
use crate::error::LabError;
use crate::executor::words;
use crate::process::Guard;

/// Time limit of a pass, sufficient for a busy machine.
pub(super) const PASS: Duration = Duration::from_secs(60);

/// Parameters of a driver.
pub(super) struct Drive {
    pub(super) url: String,
    pub(super) workload: &'static Workload,
    pub(super) batch: u64,
}

impl Drive {
    /// Creates the parameters for the workload of the given name.
    pub(super) fn new(running: &Running, workload: &str, batch: u64) -> Result<Drive, LabError> {
        let unknown = || LabError::Config(format!("unknown workload '{workload}'"));
        let workload = Workload::find(workload).ok_or_else(unknown)?;
        let batch = workload.batch.unwrap_or(batch);
        let url = format!("{}/{}", running.url, workload.document);
        Ok(Drive { url, workload, batch })
    }
}

/// A driver with established connections. It waits for the number of requests to send.
pub(super) struct Driver<'a> {
    guard: Guard,
    drive: &'a Drive,
    running: &'a Running,
}

impl<'a> Driver<'a> {
    /// Starts the driver and sends `warm_up` requests.
    pub(super) fn start(
        ground: &Ground,
        drive: &'a Drive,
        warm_up: u64,
        running: &'a Running,
        stop: &AtomicBool,
    ) -> Result<Driver<'a>, LabError> {
        let (batch, pipeline) = (drive.batch.to_string(), drive.workload.pipeline.to_string());
        let mut arguments = words(&[
            "load",
            &drive.url,
            "--lockstep",
            &batch,
            "--pipeline",
            &pipeline,
            "--warm-up",
            &warm_up.to_string(),
            "--on-demand",
        ]);
        if drive.workload.close {
            arguments.push("--close".into());
        }
        let guard = ground.launch(&ground.hearken, &arguments, "driver", true)?;
        let mut driver = Driver { guard, drive, running };
        let ready = driver.guard.wait_for_line("ready", PASS, stop);
        driver.blame(ready)?;
        Ok(driver)
    }

    /// Sends the given number of requests.
    pub(super) fn pass(
        &mut self,
        requests: u64,
        stop: &AtomicBool,
    ) -> Result<lockstep::Report, LabError> {
        let begun = self.guard.say(&requests.to_string());
        let line = begun.and_then(|()| self.guard.wait_for_line("{", PASS, stop));
        let line = self.blame(line)?;
        let process = self.guard.name().to_owned();
        let unread = |problem: String| LabError::LoadResult { process: process.clone(), problem };
        let report: lockstep::Report =
            serde_json::from_str(&line).map_err(|e| unread(e.to_string()))?;
        let expected = self.drive.workload.length;
        if report.schema != lockstep::SCHEMA {
            return Err(unread(format!("its format is '{}'", report.schema)));
        }
        if let Some(wrong) = report.warnings.first() {
            return Err(self.running.guard.failed(&format!("sent a wrong reply: {wrong}")));
        }
        if report.content_bytes != expected {
            let got = report.content_bytes;
            let problem = format!("sent {got} bytes of content, expected {expected}");
            return Err(self.running.guard.failed(&problem));
        }
        Ok(report)
    }

    /// Stops the driver and waits until it exits.
    pub(super) fn end(mut self, stop: &AtomicBool) -> Result<(), LabError> {
        self.guard.say_no_more();
        self.guard.wait_for_end(PASS, stop).map(drop)
    }

    /// Replaces an error of the driver by the error of the server if the server has exited.
    fn blame<T>(&self, result: Result<T, LabError>) -> Result<T, LabError> {
        match result {
            Err(LabError::Interrupted) => Err(LabError::Interrupted),
            Err(error) => {
                self.running.guard.check()?;
                Err(error)
            }
            ok => ok,
        }
    }
}
