//! The server's side of a load: `--watch`.

use std::time::Duration;

use hearken_lab::watch::{Sampler, Watch};
use hearken_load::{Report, Server};

use crate::Failure;

/// How far it is.
pub(crate) enum Watched {
    Nothing,
    Before(Box<Watch>, Duration),
    During(Sampler),
    After(Box<Server>),
    /// It could not be begun.
    Failed(String),
}

impl Watched {
    /// Finds what is to be watched, if anything is.
    pub(crate) fn new(what: Option<&str>, interval: Duration) -> Result<Watched, Failure> {
        Ok(match what {
            None => Watched::Nothing,
            Some(what) => {
                Watched::Before(Watch::new(what).map_err(Failure::usage)?.into(), interval)
            }
        })
    }

    /// When the first request is about to be made.
    pub(crate) fn begin(&mut self) {
        *self = match std::mem::replace(self, Watched::Nothing) {
            Watched::Before(watch, interval) => match watch.start(interval) {
                Ok(sampler) => Watched::During(sampler),
                Err(error) => Watched::Failed(error.to_string()),
            },
            other => other,
        };
    }

    /// Processors that the server keeps busy now.
    pub(crate) fn cores(&self) -> Option<f64> {
        if let Watched::During(sampler) = self { sampler.cores() } else { None }
    }

    /// When the last reply is in: what closing the connections costs the server is no request's.
    pub(crate) fn end(&mut self) {
        *self = match std::mem::replace(self, Watched::Nothing) {
            Watched::During(sampler) => Watched::After(sampler.stop().into()),
            other => other,
        };
    }

    /// Puts what was seen into the result.
    pub(crate) fn conclude(mut self, report: &mut Report) {
        self.end();
        match self {
            Watched::After(server) => report.server = Some(*server),
            Watched::Failed(why) => {
                report.warnings.push(format!("the server was not watched: {why}"));
            }
            _ => {}
        }
    }
}
