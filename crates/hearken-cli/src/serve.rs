//! `hearken serve`, and running the server of `hearken serve` and `hearken proxy`.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Command;
use hearken::mechanism::bpf::{Programs, drop_privileges};
use hearken::mechanism::{self, AUTO, SelectError};
use hearken_server::runtime::metrics::Metrics;
use hearken_server::{Config, Server};
use hearken_tls::server::ServerTlsError;

use crate::server_settings::{Options, SERVE, validate_serve};
use crate::settings::arguments::{self, Configured, Matches};
use crate::settings::resolve::{self, Validate};
use crate::settings::{Table, print};
use crate::{Failure, mechanisms, signals};

/// The command `hearken serve`.
pub(crate) struct Serve;

impl Configured for Serve {
    fn add(command: Command) -> Command {
        arguments::add(&SERVE, command).after_help(EXAMPLES).after_long_help(format!(
            "{EXAMPLES}
  hearken serve public --access-log access.log --admin 127.0.0.1:9090
      Write an access log; serve metrics at http://127.0.0.1:9090/metrics.
  hearken serve public --header-timeout 5s --print-config > site.toml
      Write a config file.
  hearken serve --config site.toml --check
      Check a config file.
  hearken serve public --events uring
      Use io_uring.
  hearken serve public --events poll --experiment io=wait-first --experiment accept-limit=1
      Run an experiment with another event loop.
  hearken serve public --listen 0.0.0.0:443 --tls-cert cert.pem --tls-key key.pem
      Serve over TLS.

Output: 'listening on http://ADDR:PORT (MECHANISM, N workers, up to M connections)' when ready.
{COMMON_HELP}"
        ))
    }
}

const EXAMPLES: &str = "\
Examples:
  hearken serve public
      Serve the directory 'public' at http://127.0.0.1:8080/.
  hearken serve public --listen 0.0.0.0:80 --workers 2
      Serve all interfaces, with two worker threads.";

/// Help about values, signals and the exit status of servers.
pub(crate) const COMMON_HELP: &str = "
Values: DURATION is a number of seconds or has a unit (500ms, 5s, 2m, 1h). BYTES may have a suffix
(16k, 8M, 1G; powers of 1024).

Config file: --print-config prints all settings, with those that have no flag. The command line
overrides the file.

Signals:
  SIGTERM, SIGINT  stop accepting connections, complete requests in progress (timeouts.shutdown),
                   then exit; a second signal exits immediately
  SIGHUP           reopen the access log, and read TLS certificates again
  SIGUSR1          print statistics of waits for events

Exit status: 0 after a shutdown by signal, 1 on a runtime error, 2 on an invalid argument or config
file.";

pub(crate) fn run(command: &Matches<Serve>) -> Result<ExitCode, Failure> {
    let settings = match configure(&SERVE, command, validate_serve, |options| {
        let root = options.root().map(|root| root.display().to_string()).unwrap_or_default();
        format!("serving '{root}', listening on {}", options.listen())
    })? {
        Ok(settings) => settings,
        Err(status) => return Ok(status),
    };
    let config = settings.into_static_files();
    serve(&config, |server| {
        format!("listening on {} ({})\n", url(&config, server), resources(server))
    })
}

/// Returns the URL of a server, without a path.
pub(crate) fn url(config: &Config, server: &Server) -> String {
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    format!("{scheme}://{}", server.addr())
}

/// Resolves the settings of a server. With `--check` and `--print-config`, prints the result and
/// returns the exit status instead.
pub(crate) fn configure<T>(
    table: &Table<Options>,
    command: &Matches<T>,
    validate: Validate<Options>,
    summary: impl FnOnce(&Options) -> String,
) -> Result<Result<Options, ExitCode>, Failure> {
    let matches = &command.matches;
    let mut settings = resolve::resolve(table, matches, validate)?;
    if !matches.get_flag("print-config") {
        settings.config.load_tls()?;
    }
    let options = &settings.config;
    let text = if matches.get_flag("print-config") {
        print::print(table, options)?
    } else if matches.get_flag("check") {
        let name = settings.file_name().map_or(String::new(), |name| format!("{name}: "));
        format!("{name}configuration is valid: {}\n", summary(options))
    } else {
        if matches.get_flag("exit-with-parent") {
            signals::exit_with_parent().map_err(Failure::runtime)?;
        }
        signals::limit_queue(options.rt_queue)?;
        return Ok(Ok(settings.config));
    };
    io::stdout().write_all(text.as_bytes()).map_err(Failure::runtime)?;
    Ok(Err(ExitCode::SUCCESS))
}

/// Returns the mechanism of a server, its workers, and its connection limit.
pub(crate) fn resources(server: &Server) -> String {
    let (workers, connections) = (server.workers(), server.max_connections());
    format!(
        "{}, {workers} worker{}, up to {connections} connection{}",
        server.mechanism(),
        if workers == 1 { "" } else { "s" },
        if connections == 1 { "" } else { "s" },
    )
}

/// Runs a server until a signal stops it. Prints `line` when it is ready.
pub(crate) fn serve(
    config: &Config,
    line: impl FnOnce(&Server) -> String,
) -> Result<ExitCode, Failure> {
    disable_huge_pages();
    // The workers use the programs until the server ends.
    let _programs = load_programs(&config.event_loops.events)?;
    let server = hearken_server::start(config).map_err(Failure::usage)?;
    for warning in server.warnings() {
        eprintln!("hearken: {warning}");
    }
    if config.event_loops.events == AUTO {
        mechanisms::report_unavailable(server.mechanism());
    }
    let (stopper, log, tls) = (server.handle(), server.handle(), config.tls.clone());
    let (metrics, at_end) = (server.metrics(), server.metrics());
    signals::on_server(
        move || stopper.stop(),
        move || {
            log.reopen_log();
            if let Some(tls) = &tls {
                report_reload(&tls.reload());
            }
        },
        move || report_waits(&metrics),
    )
    .map_err(Failure::runtime)?;
    if let Some(reason) = server.own_tables_unavailable() {
        eprintln!("hearken: the workers share one table of descriptors: {reason}");
    }
    let mut lines = line(&server);
    if let Some(redirect) = server.redirect_addr() {
        lines += &format!("redirecting from http://{redirect}\n");
    }
    if let Some(admin) = server.admin_addr() {
        lines += &format!("metrics on http://{admin}/metrics\n");
    }
    // The server runs even if its standard output is closed.
    let _ = io::stdout().write_all(lines.as_bytes()).and_then(|()| io::stdout().flush());
    server.wait().map_err(|error| Failure::runtime(format!("server failed: {error}")))?;
    if config.event_loops.measure_waits {
        report_waits(&at_end);
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the result of reading certificates again.
pub(crate) fn report_reload(result: &Result<(), ServerTlsError>) {
    // Standard error may be closed.
    let _ = match result {
        Ok(()) => writeln!(io::stderr(), "hearken: certificates were read again"),
        Err(error) => {
            writeln!(io::stderr(), "hearken: {error}; the previous certificates stay in use")
        }
    };
}

/// Prints statistics of waits for events.
fn report_waits(metrics: &Metrics) {
    // Standard error may be closed.
    let _ = writeln!(io::stderr(), "hearken: {}", metrics.waits());
}

/// Disables transparent huge pages. The connection tables are reserved for very many connections, and
/// a huge page would use 2 MiB for the first one.
fn disable_huge_pages() {
    // A failure only increases memory use.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

/// Loads the BPF programs of a mechanism that needs them, and drops the privileges that loading
/// requires, before threads are started.
fn load_programs(events: &str) -> Result<Option<Programs>, Failure> {
    // Automatic selection never chooses such a mechanism.
    if events == AUTO || !mechanism::find(events).is_ok_and(|spec| spec.needs_privileges()) {
        return Ok(None);
    }
    // The limit sets the size of the programs' maps.
    hearken::descriptors::raise_limit();
    let programs = Programs::load().map_err(|reason| {
        Failure::usage(SelectError::Unavailable { name: events.to_owned(), reason })
    })?;
    drop_privileges().map_err(Failure::runtime)?;
    Ok(Some(programs))
}
