//! The driver of a workload: a process that sends requests in lockstep, controlled by its input.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hearken_load::lockstep;

use super::participant::{Environment, RunningServer};
use super::workload::Workload;
use crate::error::LabError;
use crate::executor::to_strings;
use crate::process::ChildGuard;

/// Time limit of a pass, sufficient for a busy machine.
pub(super) const PASS_TIMEOUT: Duration = Duration::from_secs(60);

/// Parameters of a driver.
pub(super) struct DriverConfig {
    pub(super) url: String,
    pub(super) workload: &'static Workload,
    pub(super) batch: u64,
}

impl DriverConfig {
    /// Creates the parameters for the workload of the given name.
    pub(super) fn new(
        running: &RunningServer,
        workload: &str,
        batch: u64,
    ) -> Result<DriverConfig, LabError> {
        let unknown = || LabError::Config(format!("unknown workload '{workload}'"));
        let workload = Workload::find(workload).ok_or_else(unknown)?;
        let batch = workload.batch.unwrap_or(batch);
        let url = format!("{}/{}", running.url, workload.document);
        Ok(DriverConfig { url, workload, batch })
    }
}

/// A driver with established connections. It waits for the number of requests to send.
pub(super) struct Driver<'a> {
    guard: ChildGuard,
    config: &'a DriverConfig,
    running: &'a RunningServer,
}

impl<'a> Driver<'a> {
    /// Starts the driver and sends `warm_up` requests.
    pub(super) fn start(
        environment: &Environment,
        config: &'a DriverConfig,
        warm_up: u64,
        running: &'a RunningServer,
        stop: &AtomicBool,
    ) -> Result<Driver<'a>, LabError> {
        let (batch, pipeline) = (config.batch.to_string(), config.workload.pipeline.to_string());
        let mut arguments = to_strings(&[
            "load",
            &config.url,
            "--lockstep",
            &batch,
            "--pipeline",
            &pipeline,
            "--warm-up",
            &warm_up.to_string(),
            "--on-demand",
        ]);
        if config.workload.close {
            arguments.push("--close".into());
        }
        let guard = environment.launch(&environment.hearken, &arguments, "driver", true)?;
        let mut driver = Driver { guard, config, running };
        let ready = driver.guard.wait_for_line("ready", PASS_TIMEOUT, stop);
        driver.prefer_server_error(ready)?;
        Ok(driver)
    }

    /// Sends the given number of requests.
    pub(super) fn run_pass(
        &mut self,
        requests: u64,
        stop: &AtomicBool,
    ) -> Result<lockstep::Report, LabError> {
        let written = self.guard.write_line(&requests.to_string());
        let line = written.and_then(|()| self.guard.wait_for_line("{", PASS_TIMEOUT, stop));
        let line = self.prefer_server_error(line)?;
        let process = self.guard.name().to_owned();
        let unread = |problem: String| LabError::LoadResult { process: process.clone(), problem };
        let report: lockstep::Report =
            serde_json::from_str(&line).map_err(|e| unread(e.to_string()))?;
        let expected = self.config.workload.length;
        if report.schema != lockstep::SCHEMA {
            return Err(unread(format!("its format is '{}'", report.schema)));
        }
        if let Some(wrong) = report.warnings.first() {
            return Err(self.running.guard.error(&format!("sent a wrong reply: {wrong}")));
        }
        if report.content_bytes != expected {
            let got = report.content_bytes;
            let problem = format!("sent {got} bytes of content, expected {expected}");
            return Err(self.running.guard.error(&problem));
        }
        Ok(report)
    }

    /// Stops the driver and waits until it exits.
    pub(super) fn finish(mut self, stop: &AtomicBool) -> Result<(), LabError> {
        self.guard.close_stdin();
        self.guard.wait_for_end(PASS_TIMEOUT, stop).map(drop)
    }

    /// Replaces an error of the driver by the error of the server if the server has exited.
    fn prefer_server_error<T>(&self, result: Result<T, LabError>) -> Result<T, LabError> {
        match result {
            Err(LabError::Interrupted) => Err(LabError::Interrupted),
            Err(error) => {
                self.running.guard.check_running()?;
                Err(error)
            }
            ok => ok,
        }
    }
}
