//! `hearken serve`.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;

use hearken::mechanism::bpf::{Programs, drop_privileges};
use hearken::mechanism::{self, AUTO, SelectError};
use hearken_server::runtime::metrics::Metrics;
use hearken_server::static_files::SiteConfig;
use hearken_server::{Config, Server, Timeouts};

use crate::args::ServeArgs;
use crate::{Failure, mechanisms, signals};

pub(crate) fn run(args: ServeArgs) -> Result<ExitCode, Failure> {
    if args.exit_with_parent {
        signals::exit_with_parent().map_err(Failure::runtime)?;
    }
    signals::limit_queue(args.how.rt_queue)?;
    take_memory_as_it_is_used();
    let config = config(args);
    // Held for as long as it serves, so that a worker finds them loaded.
    let _programs = load_programs(&config.loops.events)?;
    let server = hearken_server::start(&config).map_err(Failure::usage)?;
    let line = format!("listening on http://{} ({})\n", server.addr(), means(&server));
    until_stopped(server, &config.loops.events, &line, false)?;
    Ok(ExitCode::SUCCESS)
}

/// What a server has: its events, its workers, and how many connections these may have.
pub(crate) fn means(server: &Server) -> String {
    let (workers, connections) = (server.workers(), server.connections());
    format!(
        "{}, {workers} worker{}, {connections} connection{}",
        server.events(),
        if workers == 1 { "" } else { "s" },
        if connections == 1 { "" } else { "s" },
    )
}

/// Says that a server is ready, with `line`, and waits until it has stopped, which a signal has it do.
pub(crate) fn until_stopped(
    server: Server,
    asked: &str,
    line: &str,
    metered: bool,
) -> Result<(), Failure> {
    if asked == AUTO {
        mechanisms::tell_refused(server.events());
    }
    let (stopper, log) = (server.stopper(), server.stopper());
    let (metrics, at_end) = (server.metrics(), server.metrics());
    signals::on_server(
        move || stopper.stop(),
        move || log.reopen_log(),
        move || tell(metrics.as_ref()),
    )
    .map_err(Failure::runtime)?;
    if let Some(refused) = server.one_table() {
        eprintln!("hearken: the workers share one table of descriptors: {refused}");
    }
    // A server whose starter does not listen still serves.
    let _ = io::stdout().write_all(line.as_bytes()).and_then(|()| io::stdout().flush());
    server.wait().map_err(|error| Failure::runtime(format!("serving ended: {error}")))?;
    if metered {
        tell(at_end.as_ref());
    }
    Ok(())
}

/// Tells what waits for events have come to.
fn tell(metrics: Option<&Arc<Metrics>>) {
    let Some(metrics) = metrics else { return };
    // Nobody may be there to be told.
    let _ = writeln!(io::stderr(), "hearken: {}", metrics.waits());
}

/// Has memory taken a small page at a time: there is room reserved for very many connections, and a huge
/// page would take 2 MiB for the first of them.
pub(crate) fn take_memory_as_it_is_used() {
    // Refused, there is only more memory in use.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

/// Loads the programs in the kernel that the mechanism needs, if it does, and gives up the privileges
/// that took, before there are threads.
pub(crate) fn load_programs(events: &str) -> Result<Option<Programs>, Failure> {
    // What is chosen by measurement needs none.
    if events == AUTO || !mechanism::find(events).is_ok_and(|spec| spec.needs_privileges()) {
        return Ok(None);
    }
    // They have room for as many descriptors as the limit allows.
    hearken::descriptors::raise_limit();
    let programs = Programs::load().map_err(|reason| {
        Failure::usage(SelectError::Unavailable { name: events.to_owned(), reason })
    })?;
    drop_privileges().map_err(Failure::runtime)?;
    Ok(Some(programs))
}

fn config(args: ServeArgs) -> Config {
    let defaults = Config::default();
    let how = args.how;
    Config {
        site: SiteConfig {
            root: args.dir,
            dotfiles: args.dotfiles,
            cache_bytes: usize::from(args.cache_mib) * 1024 * 1024,
            ..defaults.site
        },
        loops: how.loops(args.listen),
        timeouts: Timeouts {
            head: args.head_timeout,
            body: args.body_timeout,
            idle: args.idle_timeout,
            grace: args.grace,
            ..defaults.timeouts
        },
        min_rate: args.min_rate,
        access_log: args.access_log,
        ..defaults
    }
}
