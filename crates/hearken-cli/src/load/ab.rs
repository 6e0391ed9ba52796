//! `hearken load ab`: repeated runs of two loads in pairs, and their comparison.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use fastrand::Rng;
use hearken_lab::compare::compare;
use hearken_load::{Config, DEFAULT_DURATION, Progress, Report, Source, StopSignal};

use super::command::AbArgs;
use super::output::add_origin;
use super::results::{options, status};
use super::saved::SavedRuns;
use super::{Sink, config};
use crate::load_trials::pause;
use crate::time::print_duration;
use crate::watched::Watched;
use crate::{Failure, live, load_plan, signals};

/// Exit status after SIGINT.
const INTERRUPTED: u8 = 130;
/// Sampling interval of the watched servers.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// Options of `hearken load` that do not describe a single load, besides those of the process.
const UNSUITABLE: &[&str] =
    &["experiment", "find-knee", "lockstep", "size", "slo", "start-at", "start-in", "sweep"];

/// Runs `hearken load ab`.
pub(super) fn run(args: &AbArgs) -> Result<ExitCode, Failure> {
    if args.watch.len() > 2 {
        return Err(Failure::usage("--watch takes one target for both loads, or one for each"));
    }
    let sink = Sink::open(args.judgement.json.as_deref())?;
    let watch = |side: usize| args.watch.get(side).or(args.watch.last()).map(String::as_str);
    let mut sides = [
        Side::new("A", &args.a, &args.options, watch(0))?,
        Side::new("B", &args.b, &args.options, watch(1))?,
    ];
    let saved = args.save.as_deref().map(|dir| SavedRuns::create(dir, args.runs)).transpose()?;
    let stop = StopSignal::new();
    let raised = stop.clone();
    signals::on_stop(move || raised.raise()).map_err(Failure::runtime)?;
    // 32 bits, so that the seed is easy to type.
    let seed = sides.iter().find_map(|side| side.config.seed);
    let seed = seed.unwrap_or_else(|| fastrand::u32(..).into());
    eprintln!("{}", announcement(args, &sides, seed));
    let orders = orders(args.runs, seed);
    for (pair, order) in orders.iter().enumerate() {
        let mut reports = [None, None];
        for &side in order {
            let first = pair == 0 && side == order[0];
            if !first && !pause(&stop, args.pause) {
                break;
            }
            let report = sides[side].run(seed.wrapping_add(pair as u64), &stop)?;
            if stop.is_raised() {
                break;
            }
            sides[side].check_success(&report)?;
            eprintln!(
                "pair {} of {}, {}: {}",
                pair + 1,
                args.runs,
                sides[side].name,
                line(&report)
            );
            if let Some(saved) = &saved {
                saved.write(sides[side].name, pair, &report)?;
            }
            reports[side] = Some(report);
        }
        let [Some(a), Some(b)] = reports else { break };
        sides[0].reports.push(a);
        sides[1].reports.push(b);
    }
    let interrupted = sides[0].reports.len() < orders.len();
    if interrupted && sides[0].reports.is_empty() {
        eprintln!("hearken: interrupted before the first pair of runs was complete");
        return Ok(ExitCode::from(INTERRUPTED));
    }
    let comparison = compare(&sides[0].reports, &sides[1].reports, &options(&args.judgement));
    sink.write(&comparison)?;
    Ok(match interrupted {
        true => ExitCode::from(INTERRUPTED),
        false => status(&args.judgement, &comparison),
    })
}

/// One of the two loads.
struct Side {
    name: &'static str,
    config: Config,
    /// Server to watch.
    watch: Option<String>,
    /// Results of the runs in complete pairs.
    reports: Vec<Report>,
}

impl Side {
    /// Creates a side from a URL or a plan file, and options of `hearken load`.
    fn new(
        name: &'static str,
        target: &str,
        options: &[OsString],
        watch: Option<&str>,
    ) -> Result<Side, Failure> {
        let is_plan = Path::new(target).extension().is_some_and(|extension| extension == "toml");
        let is_plan = is_plan && !target.contains("://");
        let mut words: Vec<OsString> = if is_plan { vec!["--plan".into()] } else { Vec::new() };
        words.push(target.into());
        words.extend_from_slice(options);
        let (args, set) = load_plan::load_args(&words).map_err(|failure| failure.of(name))?;
        let local = |option: &str| load_plan::LOCAL.contains(&option) && option != "plan";
        if let Some(option) = set.iter().find(|o| local(o) || UNSUITABLE.contains(&o.as_str())) {
            let before = ["json", "watch"].contains(&option.as_str());
            let hint = if before { "; write it before '--'" } else { "" };
            return Err(Failure::usage(format!(
                "{name}: option '--{option}' does not describe a load that can be repeated{hint}"
            )));
        }
        let config = config(args)?;
        hearken_load::check(&config).map_err(|error| Failure::usage(error).of(name))?;
        if length(&config) == Some(Duration::ZERO) {
            let reason = format!("'{target}' sends no requests, so there is nothing to compare");
            return Err(Failure::usage(reason).of(name));
        }
        let watch = watch.map(str::to_owned);
        let side = Side { name, config, watch, reports: Vec::new() };
        side.watched()?;
        Ok(side)
    }

    fn watched(&self) -> Result<Watched, Failure> {
        Watched::new(self.watch.as_deref(), WATCH_INTERVAL)
    }

    /// Runs the load once.
    fn run(&self, seed: u64, stop: &StopSignal) -> Result<Report, Failure> {
        let config = Config { seed: Some(seed), ..self.config.clone() };
        let mut reporter = Reporter(self.watched()?);
        let report = hearken_load::run(&config, &mut reporter, stop);
        let mut report = report.map_err(|error| Failure::usage(error).of(self.name))?;
        reporter.0.add_to(&mut report);
        add_origin(&mut report);
        Ok(report)
    }

    /// Returns an error if no request received a reply, because there is nothing to compare then.
    fn check_success(&self, report: &Report) -> Result<(), Failure> {
        if report.requests.replies > 0 {
            return Ok(());
        }
        let errors = report.errors.by_name();
        let (error, count) = errors.into_iter().max_by_key(|(_, count)| *count).unwrap_or_default();
        let reason = match count {
            0 => "none was sent".to_owned(),
            count => format!("{count} failed with {error}"),
        };
        let url = &self.config.url;
        let text = format!("no request to '{url}' succeeded: {reason}");
        Err(Failure::runtime(text).of(self.name))
    }
}

/// Samples the watched server during a run.
struct Reporter(Watched);

impl Progress for Reporter {
    fn on_prepared(&mut self) {
        self.0.start();
    }

    fn on_finished(&mut self) {
        self.0.stop();
    }
}

/// Returns the order of the sides in each pair. The order is random, but each side is first equally often,
/// so that an advantage of the first run is no difference between the sides.
fn orders(pairs: usize, seed: u64) -> Vec<[usize; 2]> {
    let mut random = Rng::with_seed(seed);
    let offset = random.usize(..2);
    let mut orders: Vec<[usize; 2]> = (0..pairs)
        .map(|pair| if (pair + offset).is_multiple_of(2) { [0, 1] } else { [1, 0] })
        .collect();
    random.shuffle(&mut orders);
    orders
}

/// Returns the line that announces the runs and their total time.
fn announcement(args: &AbArgs, sides: &[Side; 2], seed: u64) -> String {
    let runs = args.runs as u32;
    let time = length(&sides[0].config).zip(length(&sides[1].config));
    let time = time.map(|(a, b)| (a + b) * runs + args.pause * (2 * runs - 1));
    let time = time.map(|time| Duration::from_secs(time.as_secs_f64().ceil() as u64));
    let time = time.map_or(String::new(), |time| format!(", about {}", print_duration(time)));
    format!("{runs} pairs of runs{time} (seed {seed})")
}

/// Returns the length of a run if it is known in advance. A load without requests has none.
fn length(config: &Config) -> Option<Duration> {
    match config.source {
        Source::Url | Source::Urls(_) | Source::Specweb { .. } if config.rate.is_zero() => {
            Some(Duration::ZERO)
        }
        Source::Url | Source::Urls(_) | Source::Specweb { .. } => {
            let default = config.rate.length().unwrap_or(DEFAULT_DURATION);
            Some(config.duration.unwrap_or(default))
        }
        _ => config.duration,
    }
}

/// Returns a line about a run.
fn line(report: &Report) -> String {
    let [p50, p99] = [report.latency_ns.p50, report.latency_ns.p99].map(live::time);
    let (rate, failed) = (live::rate(report.reply_rate), report.requests.failed);
    format!("{rate} replies/s, p50 {p50}, p99 {p99}, {failed} failed")
}

#[cfg(test)]
mod tests {
    use super::orders;

    #[test]
    fn each_side_is_first_equally_often() {
        for seed in 0..50 {
            for pairs in 2..20 {
                let orders = orders(pairs, seed);
                let first = orders.iter().filter(|order| order[0] == 0).count();
                assert!(orders.len() == pairs && first.abs_diff(pairs - first) <= 1, "{orders:?}");
                assert!(orders.iter().all(|order| order[0] != order[1]));
            }
        }
    }

    #[test]
    fn orders_depend_on_the_seed() {
        assert_eq!(orders(8, 1), orders(8, 1));
        assert!((2..20).any(|seed| orders(8, seed) != orders(8, 1)));
        // The side that is first once more often varies.
        let first = |seed| orders(3, seed).iter().filter(|order| order[0] == 0).count();
        assert!((0..20).any(|seed| first(seed) == 1) && (0..20).any(|seed| first(seed) == 2));
    }
}
