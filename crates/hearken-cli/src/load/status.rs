//! The exit status of a load.

use std::process::ExitCode;

use hearken_load::Report;

use crate::signals;

/// Exit status if an objective is not met.
pub(crate) const NOT_MET: u8 = 3;

/// Returns the exit status for a result: that of the signal that stopped the load, 1 if nothing succeeded, or 3 if an
/// objective is not met. Prints the most common cause of failure to standard error if nothing succeeded.
pub(crate) fn exit_status(report: &Report) -> ExitCode {
    let failure = report.total_failure();
    if let Some(cause) = &failure {
        eprintln!("hearken: {cause}");
    }
    let met = report.objectives.iter().all(|judgement| judgement.passed);
    match (signals::exit_status(), failure) {
        (Some(status), _) => ExitCode::from(status),
        (None, Some(_)) => ExitCode::FAILURE,
        (None, None) if met => ExitCode::SUCCESS,
        (None, None) => ExitCode::from(NOT_MET),
    }
}
