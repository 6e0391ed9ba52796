//! The points of a sweep: means over the trials of each rate, and remarks about them.

use std::time::Duration;

use super::{LimitedBy, Point, Purpose, Trial};
use crate::estimate::estimate;

/// Number of replies of a trial below which its figures are mostly chance.
const FEW_REPLIES: u64 = 100;

/// Returns the points of the trials by ascending rate.
pub(super) fn points(trials: &[Trial], saturation_rate: f64) -> Vec<Point> {
    let mut of_points: Vec<&Trial> =
        trials.iter().filter(|trial| trial.purpose == Purpose::Point).collect();
    of_points.sort_by(|a, b| a.rate.total_cmp(&b.rate));
    let by_rate = of_points.chunk_by(|a, b| a.rate == b.rate);
    by_rate.filter_map(|trials| point(trials, saturation_rate)).collect()
}

/// Returns the point of the trials at one rate, if the server had recovered before one of them.
fn point(trials: &[&Trial], saturation_rate: f64) -> Option<Point> {
    let usable = || trials.iter().filter(|trial| trial.recovered);
    let answered = || usable().filter(|trial| trial.replies > 0);
    let rate = trials.first()?.rate;
    let unrecovered = trials.iter().filter(|trial| trial.recovery_s.is_none()).count();
    let recovery = trials.iter().filter_map(|trial| trial.recovery_s);
    Some(Point {
        rate,
        load: rate / saturation_rate,
        trials: usable().count() as u64,
        reply_rate: estimate(usable().map(|trial| trial.reply_rate))?,
        error_share: estimate(usable().map(|trial| trial.share(trial.failed)))?,
        missed_share: estimate(usable().map(|trial| trial.share(trial.missed)))?,
        p50_ns: estimate(answered().map(|trial| trial.p50_ns as f64)),
        p99_ns: estimate(answered().map(|trial| trial.p99_ns as f64)),
        recovery_s: if unrecovered == 0 { estimate(recovery) } else { None },
        unrecovered: unrecovered as u64,
        generator_limited: usable().any(|trial| trial.generator_limited),
    })
}

/// Returns remarks about the validity of the points.
pub(super) fn notes(trials: &[Trial], limited_by: LimitedBy, trial: Duration) -> Vec<String> {
    let mut notes = Vec::new();
    let of_points: Vec<&Trial> =
        trials.iter().filter(|trial| trial.purpose == Purpose::Point).collect();
    if limited_by == LimitedBy::Connections {
        notes.push(
            "the maximum number of connections limited the reply rate; use more connections if the \
             server can handle more concurrent requests"
                .to_owned(),
        );
    }
    if limited_by == LimitedBy::NoReplies {
        notes.push("no replies were received; check that a server listens at the URL".to_owned());
    }
    let late = of_points.iter().filter(|trial| trial.generator_late).count();
    if late > 0 {
        notes.push(format!(
            "the generator was late in {late} of {} trials, which counts as latency; use a dedicated \
             processor",
            of_points.len()
        ));
    }
    let is_slow = |of: &&&Trial| Duration::from_nanos(of.p50_ns) * 2 > trial;
    let slow = of_points.iter().filter(is_slow).count();
    if slow > 0 {
        notes.push(format!(
            "in {slow} of {} trials, half of the replies took longer than half of the trial; use longer \
             trials",
            of_points.len()
        ));
    }
    let few = of_points.iter().filter(|trial| trial.scheduled < FEW_REPLIES).count();
    if few > 0 {
        notes.push(format!(
            "{few} of {} trials had fewer than {FEW_REPLIES} requests; use longer trials",
            of_points.len()
        ));
    }
    notes
}
