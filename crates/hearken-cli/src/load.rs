//! `hearken load`: runs a load and writes its result.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use hearken::mechanism::AUTO;
use hearken_load::{
    Config, Model, Progress, QueueOrder, Rank, RequestTemplate, Snapshot, Source, StopSignal,
    TlsOptions,
};
use serde::Serialize;

use crate::args::load::{Arrivals, By, LoadArgs, ProgressArg, Queue, SourceArgs};
use crate::live::Live;
use crate::load_agents::{self, Agent};
use crate::time::duration;
use crate::watched::Watched;
use crate::{Failure, load_knee, load_sweep, lockstep, mechanisms, signals};

mod ab;
mod colour;
pub(crate) mod command;
mod file;
mod github;
mod junit;
pub(crate) mod output;
mod read;
mod results;
mod saved;
mod specweb;
pub(crate) mod status;
mod unreachable_rate;

use command::{LoadCommand, Subcommands};
pub(crate) use file::ResultFile;
use output::Outputs;
use status::exit_status;
use unreachable_rate::UnreachableRate;

/// Runs a load or one of the subcommands.
pub(crate) fn run(command: LoadCommand) -> Result<ExitCode, Failure> {
    match command {
        LoadCommand::Run(args) => load_agents::run(*args),
        LoadCommand::Other(Subcommands::Merge(args)) => results::merge(&args),
        LoadCommand::Other(Subcommands::Compare(args)) => results::compare_results(&args),
        LoadCommand::Other(Subcommands::Ab(args)) => ab::run(&args),
        LoadCommand::Other(Subcommands::Show(args)) => results::show(&args),
        LoadCommand::Other(Subcommands::Specweb(args)) => specweb::run(&args),
    }
}

/// Runs the load, or the share of an agent.
pub(crate) fn load(args: LoadArgs, agent: Option<&Agent>) -> Result<ExitCode, Failure> {
    if args.exit_with_parent {
        signals::exit_with_parent().map_err(Failure::runtime)?;
    }
    signals::limit_queue(args.experiment)?;
    if let Some(batch) = args.lockstep {
        return lockstep::run(args, batch);
    }
    if args.knee.find_knee {
        return load_knee::run(args);
    }
    if args.knee.sweep {
        return load_sweep::run(args);
    }
    let watched = Watched::new(args.watch.as_deref(), args.watch_interval)?;
    let mut outputs = Outputs::open(args.json.as_deref(), &args.outputs)?.quiet(args.quiet);
    if let Some(format) = agent.and_then(Agent::format) {
        outputs.default_to(format);
    }
    let stop = StopSignal::new();
    let raised = stop.clone();
    let handled = match agent {
        Some(_) => signals::on_agent_stop(move || raised.raise()),
        None => signals::on_stop(move || raised.raise()),
    };
    handled.map_err(Failure::runtime)?;
    let json_on_stdout = outputs.has_stdout();
    let (announce, quiet, labels) = (args.announce, args.quiet, labels(&args.label)?);
    let live = Live::on_stderr(if quiet { ProgressArg::None } else { args.progress });
    let unreachable = UnreachableRate::default();
    let mut reporter = Reporter { announce, quiet, json_on_stdout, live, watched, unreachable };
    // Objectives apply to the whole load, not to the share of an agent.
    let objectives = args.knee.slo.clone().filter(|_| agent.is_none_or(Agent::is_alone));
    let objectives = objectives.unwrap_or_default();
    let mut config = config(args)?;
    objectives.check_measurable(&config).map_err(Failure::usage)?;
    if let Some(agent) = agent {
        agent.configure(&mut config);
    }
    let report = hearken_load::run(&config, &mut reporter, &stop);
    let Reporter { mut live, watched, .. } = reporter;
    live.clear();
    let mut report = report.map_err(Failure::usage)?;
    watched.add_to(&mut report);
    report.objectives = objectives.evaluate(&report);
    output::add_origin(&mut report);
    report.labels = labels;
    if let Some(agent) = agent {
        agent.add_part(&mut report);
    }
    if config.mechanism == AUTO && !quiet {
        mechanisms::report_unavailable(&report.mechanism);
    }
    outputs.write(&report)?;
    match agent.is_none_or(Agent::is_alone) {
        true => Ok(exit_status(&report)),
        // A launcher would end the other agents. The merged result decides.
        false => Ok(ExitCode::SUCCESS),
    }
}

/// Returns the labels by key.
///
/// # Errors
/// A key that occurs twice.
pub(crate) fn labels(labels: &[(String, String)]) -> Result<BTreeMap<String, String>, Failure> {
    let mut by_key = BTreeMap::new();
    for (key, value) in labels {
        if by_key.insert(key.clone(), value.clone()).is_some() {
            return Err(Failure::usage(format!("--label: '{key}' is set twice")));
        }
    }
    Ok(by_key)
}

/// The destination of a result.
pub(crate) enum Sink {
    /// Text on standard output.
    Summary,
    /// JSON on standard output.
    Stdout,
    /// JSON in a file, and text on standard output.
    File(ResultFile),
}

impl Sink {
    /// Opens the destination that `--json` selects. Called before the run, so that errors lose no result.
    pub(crate) fn open(json: Option<&Path>) -> Result<Sink, Failure> {
        Ok(match json {
            None => Sink::Summary,
            Some(path) if path == Path::new("-") => Sink::Stdout,
            Some(path) => Sink::File(ResultFile::open(path)?),
        })
    }

    /// Writes a result.
    pub(crate) fn write(self, report: &(impl Display + Serialize)) -> Result<(), Failure> {
        match self {
            Sink::Stdout => print(&to_json(report).map_err(Failure::runtime)?),
            Sink::Summary => print(&report.to_string()),
            Sink::File(file) => {
                print(&report.to_string());
                file.write(to_json(report).map_err(Failure::runtime)?.as_bytes())?;
            }
        }
        Ok(())
    }
}

fn to_json(report: &impl Serialize) -> io::Result<String> {
    Ok(serde_json::to_string_pretty(report)? + "\n")
}

/// Prints to standard output. Ignores errors, because a reader may close a pipe early.
pub(crate) fn print(text: &str) {
    let mut out = io::stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// The display of progress.
struct Reporter {
    announce: bool,
    quiet: bool,
    json_on_stdout: bool,
    live: Live,
    watched: Watched,
    unreachable: UnreachableRate,
}

impl Progress for Reporter {
    fn on_prepared(&mut self) {
        self.watched.start();
        if self.announce {
            print("prepared\n");
        }
    }

    fn on_idle_open(&mut self, idle: u64) {
        if self.quiet {
            return;
        }
        self.live.clear();
        let line = format!("holding {idle} idle connections\n");
        if self.json_on_stdout {
            eprint!("{line}");
        } else {
            print(&line);
        }
    }

    fn on_finished(&mut self) {
        self.watched.stop();
    }

    fn on_interval(&mut self, now: &Snapshot) {
        if !self.quiet
            && let Some(warning) = self.unreachable.check(now)
        {
            self.live.clear();
            eprintln!("hearken: warning: {warning}");
        }
        self.live.show(now, self.watched.cores());
    }
}

/// Returns the load that the arguments describe.
pub(crate) fn config(args: LoadArgs) -> Result<Config, Failure> {
    let source = source(&args.source)?;
    let body = match (args.body, &args.body_file) {
        (Some(text), _) => Some(text.into_bytes()),
        (None, Some(path)) => {
            let cannot = |error| format!("cannot read body file '{}': {error}", path.display());
            Some(std::fs::read(path).map_err(|error| Failure::usage(cannot(error)))?)
        }
        (None, None) => None,
    };
    let by = args.by.map(|by| match by {
        By::Requests => Model::Requests,
        By::Connections => Model::Connections,
        By::Sessions => Model::Sessions,
    });
    Ok(Config {
        url: args.url,
        unix_socket: args.unix_socket.map(Into::into),
        resolve: args.resolve,
        source,
        template: RequestTemplate {
            method: args.method,
            headers: args.header,
            body,
            expect: args.expect,
            cookies: args.cookies,
        },
        model: if args.closed { Some(Model::Closed) } else { by },
        rate: args.steps.unwrap_or(args.rate),
        duration: args.duration,
        requests: args.requests,
        arrivals: match args.arrivals {
            Arrivals::Poisson => hearken_load::Arrivals::Poisson,
            Arrivals::Constant => hearken_load::Arrivals::Constant,
            Arrivals::Uniform => hearken_load::Arrivals::Uniform,
        },
        connections: args.connections,
        queue: match args.queue {
            Queue::Lifo => QueueOrder::Lifo,
            Queue::Fifo => QueueOrder::Fifo,
        },
        requests_per_connection: args.per_connection,
        pipeline: args.pipeline,
        http2: args.http2.then_some(args.streams),
        think_time: args.think,
        connection_lifetime: args.connection_time,
        timeout: args.timeout,
        connect_timeout: args.connect_timeout,
        first_byte_timeout: args.first_byte_timeout,
        idle_connections: args.idle,
        idle_sends_request: args.idle_request,
        idle_think_time: args.idle_think,
        idle_rate: args.idle_rate,
        websockets: args.websocket,
        slow_readers: args.slow_readers,
        slow_senders: args.slow_senders,
        source_addresses: args.sources,
        tls: TlsOptions {
            ca: args.tls.cacert,
            insecure: args.tls.insecure,
            resumption: !args.tls.no_resumption,
            server_name: args.tls.server_name,
            cert: args.tls.cert,
            key: args.tls.key,
        },
        threads: args.threads,
        report_interval: args.interval,
        rank: Rank::SINGLE,
        start_at: None,
        seed: args.seed,
        mechanism: args.events,
    })
}

/// Returns the workload that the arguments select.
fn source(args: &SourceArgs) -> Result<Source, Failure> {
    let invalid = |option: &str, text: &str, form: &str| {
        Failure::usage(format!("invalid value '{text}' for --{option}: expected {form}"))
    };
    if let Some(text) = &args.wlog {
        let (repeat, path) = match text.split_once(',') {
            Some(("y" | "Y", path)) => (true, path),
            Some(("n" | "N", path)) => (false, path),
            _ => return Err(invalid("wlog", text, "y,FILE or n,FILE")),
        };
        return Ok(Source::Wlog { path: path.into(), repeat });
    }
    if let Some(text) = &args.wsesslog {
        let invalid = || invalid("wsesslog", text, "N,SECONDS,FILE");
        let mut parts = text.splitn(3, ',');
        let (Some(sessions), Some(think), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err(invalid());
        };
        let sessions = sessions.parse::<u64>().map_err(|_| invalid())?;
        let think = duration(think).map_err(|_| invalid())?;
        let sessions = (sessions > 0).then_some(sessions);
        return Ok(Source::Wsesslog { sessions, think, path: path.into() });
    }
    if let Some(path) = &args.access_log {
        let (speed, skip_invalid) = (args.speed, args.skip_bad);
        return Ok(Source::AccessLog { path: path.clone(), speed, skip_invalid });
    }
    let urls = args.urls.clone().map(Source::Urls);
    let har = args.har.clone().map(Source::Har);
    let specweb = args.specweb.clone().map(|dir| Source::Specweb { dir });
    Ok(urls.or(har).or(specweb).or(args.trace.clone().map(Source::Trace)).unwrap_or_default())
}
