//! `hearken load`.

use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use hearken::Waker;
use hearken::mechanism::AUTO;
use hearken_load::{Config, Progress, Snapshot};
use serde::Serialize;

use crate::args::{Arrivals, LoadArgs};
use crate::{Failure, lockstep, mechanisms, signals};

pub(crate) fn run(args: LoadArgs) -> Result<ExitCode, Failure> {
    if args.exit_with_parent {
        signals::exit_with_parent().map_err(Failure::runtime)?;
    }
    signals::limit_queue(args.rt_queue)?;
    if let Some(batch) = args.lockstep {
        return lockstep::run(args, batch);
    }
    let sink = Sink::open(args.json.as_deref())?;
    let stop = Arc::new(AtomicBool::new(false));
    let waker = Arc::new(OnceLock::<Waker>::new());
    let (raised, woken) = (stop.clone(), waker.clone());
    let on_stop = move || {
        raised.store(true, Ordering::Release);
        if let Some(waker) = woken.get() {
            waker.wake();
        }
    };
    signals::on_stop(on_stop).map_err(Failure::runtime)?;
    let json_on_stdout = matches!(sink, Sink::Stdout);
    let terminal = io::stderr().is_terminal();
    let announce = args.announce;
    let mut shown = Shown { waker, terminal, announce, json_on_stdout, dirty: false };
    let config = config(args);
    let report = hearken_load::run(&config, &mut shown, &stop);
    shown.clear();
    let report = report.map_err(Failure::usage)?;
    if config.events == AUTO {
        mechanisms::tell_refused(&report.events);
    }
    sink.tell(&report)?;
    Ok(ExitCode::SUCCESS)
}

/// Where the result goes.
pub(crate) enum Sink {
    /// As text, to standard output.
    Summary,
    /// As JSON in its place.
    Stdout,
    /// As JSON, beside the text.
    File(File),
}

impl Sink {
    /// Before the run, and without losing an earlier result should this one come to nothing.
    pub(crate) fn open(json: Option<&Path>) -> Result<Sink, Failure> {
        Ok(match json {
            None => Sink::Summary,
            Some(path) if path == Path::new("-") => Sink::Stdout,
            Some(path) => {
                let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
                let cannot = |error| format!("cannot write to {}: {error}", path.display());
                Sink::File(file.map_err(|error| Failure::usage(cannot(error)))?)
            }
        })
    }

    /// Writes it.
    pub(crate) fn tell(self, report: &(impl Display + Serialize)) -> Result<(), Failure> {
        match self {
            Sink::Stdout => print(&as_json(report).map_err(Failure::runtime)?),
            Sink::Summary => print(&report.to_string()),
            Sink::File(mut file) => {
                print(&report.to_string());
                file.set_len(0)
                    .and_then(|()| file.write_all(as_json(report)?.as_bytes()))
                    .map_err(|error| Failure::runtime(format!("writing the result: {error}")))?;
            }
        }
        Ok(())
    }
}

fn as_json(report: &impl Serialize) -> io::Result<String> {
    Ok(serde_json::to_string_pretty(report)? + "\n")
}

/// A reader that has seen enough is no failure.
pub(crate) fn print(text: &str) {
    let mut out = io::stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Says how it goes: in place on a terminal, not at all elsewhere.
struct Shown {
    waker: Arc<OnceLock<Waker>>,
    terminal: bool,
    announce: bool,
    json_on_stdout: bool,
    dirty: bool,
}

impl Shown {
    fn clear(&mut self) {
        if std::mem::take(&mut self.dirty) {
            eprint!("\r\x1b[K");
        }
    }
}

impl Progress for Shown {
    fn started(&mut self, waker: Waker) {
        let _ = self.waker.set(waker);
    }

    fn prepared(&mut self) {
        if self.announce {
            print("prepared\n");
        }
    }

    fn holding(&mut self, idle: u64) {
        self.clear();
        let line = format!("holding {idle} idle connections\n");
        if self.json_on_stdout {
            eprint!("{line}");
        } else {
            print(&line);
        }
    }

    fn tick(&mut self, now: &Snapshot) {
        if !self.terminal {
            return;
        }
        self.dirty = true;
        eprint!(
            "\r\x1b[K{:4.0} s  {} sent  {} replies  {} errors  {} idle",
            now.elapsed.as_secs_f64(),
            now.sent,
            now.replies,
            now.errors,
            now.idle,
        );
        let _ = io::stderr().flush();
    }
}

pub(crate) fn config(args: LoadArgs) -> Config {
    Config {
        url: args.url,
        rate: args.rate,
        duration: args.duration,
        arrivals: match args.arrivals {
            Arrivals::Poisson => hearken_load::Arrivals::Poisson,
            Arrivals::Uniform => hearken_load::Arrivals::Uniform,
        },
        connections: args.connections,
        per_connection: args.per_connection,
        timeout: args.timeout,
        idle: args.idle,
        idle_request: args.idle_request,
        sources: args.sources,
        head: args.head,
        headers: args.header,
        seed: args.seed,
        events: args.events,
    }
}
