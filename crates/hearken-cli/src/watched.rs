//! `hearken load --watch`: sampling of the server during a load.

use std::time::Duration;

use hearken_lab::watch::{Sampler, Watch};
use hearken_load::{Report, Server};

use crate::Failure;

/// The state of sampling.
pub(crate) enum Watched {
    /// No server is watched.
    Off,
    /// The server is known. Sampling starts with the first request, at this interval.
    Ready(Box<Watch>, Duration),
    /// Sampling is in progress.
    Sampling(Sampler),
    /// Sampling has ended with this result.
    Finished(Box<Server>),
    /// Sampling could not be started, for this reason.
    Failed(String),
}

impl Watched {
    /// Finds the server to watch, if one is given.
    pub(crate) fn new(target: Option<&str>, interval: Duration) -> Result<Watched, Failure> {
        let Some(target) = target else { return Ok(Watched::Off) };
        let watch = Watch::new(target).map_err(Failure::usage)?;
        Ok(Watched::Ready(watch.into(), interval))
    }

    /// Starts sampling. Called before the first request.
    pub(crate) fn start(&mut self) {
        *self = match std::mem::replace(self, Watched::Off) {
            Watched::Ready(watch, interval) => match watch.start(interval) {
                Ok(sampler) => Watched::Sampling(sampler),
                Err(error) => Watched::Failed(error.to_string()),
            },
            other => other,
        };
    }

    /// Returns the number of processors that the server keeps busy.
    pub(crate) fn cores(&self) -> Option<f64> {
        if let Watched::Sampling(sampler) = self { sampler.cores() } else { None }
    }

    /// Stops sampling. Called after the last reply, so that the cost of closing connections is not included.
    pub(crate) fn stop(&mut self) {
        *self = match std::mem::replace(self, Watched::Off) {
            Watched::Sampling(sampler) => Watched::Finished(sampler.stop().into()),
            other => other,
        };
    }

    /// Adds the samples, or a warning if there are none, to the report.
    pub(crate) fn add_to(mut self, report: &mut Report) {
        self.stop();
        match self {
            Watched::Finished(server) => report.server = Some(*server),
            Watched::Failed(reason) => {
                report.warnings.push(format!("the server was not watched: {reason}"));
            }
            _ => {}
        }
    }
}
