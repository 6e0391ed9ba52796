//! `hearken serve`.

use std::io::{self, Write};
use std::process::ExitCode;

use hearken::mechanism::bpf::{Programs, drop_privileges};
use hearken::mechanism::{self, AUTO, SelectError};
use hearken_server::config::Handler;
use hearken_server::runtime::metrics::Metrics;
use hearken_server::static_files::SiteConfig;
use hearken_server::{Config, Server};

use crate::args::ServeArgs;
use crate::{Failure, mechanisms, signals};

pub(crate) fn run(args: ServeArgs) -> Result<ExitCode, Failure> {
    if args.exit_with_parent {
        signals::exit_with_parent().map_err(Failure::runtime)?;
    }
    signals::limit_queue(args.how.rt_queue)?;
    serve(&config(args), |server| {
        format!("listening on http://{} ({})\n", server.addr(), means(server))
    })
}

/// Returns the mechanism of a server, its workers, and its limit of connections.
pub(crate) fn means(server: &Server) -> String {
    let (workers, connections) = (server.workers(), server.connections());
    format!(
        "{}, {workers} worker{}, {connections} connection{}",
        server.events(),
        if workers == 1 { "" } else { "s" },
        if connections == 1 { "" } else { "s" },
    )
}

/// Runs a server until a signal stops it. Prints `line` when it is ready.
pub(crate) fn serve(
    config: &Config,
    line: impl FnOnce(&Server) -> String,
) -> Result<ExitCode, Failure> {
    take_memory_as_it_is_used();
    // Held for as long as it serves, so that a worker finds them loaded.
    let _programs = load_programs(&config.loops.events)?;
    let server = hearken_server::start(config).map_err(Failure::usage)?;
    for warning in server.warnings() {
        eprintln!("hearken: {warning}");
    }
    if config.loops.events == AUTO {
        mechanisms::tell_refused(server.events());
    }
    let (stopper, log) = (server.stopper(), server.stopper());
    let (metrics, at_end) = (server.metrics(), server.metrics());
    signals::on_server(
        move || stopper.stop(),
        move || log.reopen_log(),
        move || report_waits(&metrics),
    )
    .map_err(Failure::runtime)?;
    if let Some(refused) = server.one_table() {
        eprintln!("hearken: the workers share one table of descriptors: {refused}");
    }
    let mut lines = line(&server);
    if let Some(admin) = server.admin_addr() {
        lines += &format!("metrics on http://{admin}/metrics\n");
    }
    // A server whose starter does not listen still serves.
    let _ = io::stdout().write_all(lines.as_bytes()).and_then(|()| io::stdout().flush());
    server.wait().map_err(|error| Failure::runtime(format!("serving ended: {error}")))?;
    if config.loops.meter_waits {
        report_waits(&at_end);
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints statistics of waits for events.
fn report_waits(metrics: &Metrics) {
    // Nobody may be there to be told.
    let _ = writeln!(io::stderr(), "hearken: {}", metrics.waits());
}

/// Has memory taken a small page at a time: there is room reserved for very many connections, and a huge
/// page would take 2 MiB for the first of them.
fn take_memory_as_it_is_used() {
    // Refused, there is only more memory in use.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

/// Loads the programs in the kernel that the mechanism needs, if it does, and gives up the privileges
/// that took, before there are threads.
fn load_programs(events: &str) -> Result<Option<Programs>, Failure> {
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
    let site = SiteConfig {
        root: args.dir,
        dotfiles: args.dotfiles,
        cache_bytes: usize::from(args.cache_mib) * 1024 * 1024,
        ..SiteConfig::default()
    };
    args.client.config(args.how, Handler::StaticFiles(site))
}
