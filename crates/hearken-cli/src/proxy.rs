//! `hearken proxy`.

use std::process::ExitCode;

use clap::Command;

use crate::Failure;
use crate::serve::{self, COMMON_HELP};
use crate::server_settings::{Options, PROXY, validate_proxy};
use crate::settings::arguments::{self, Configured, Matches};

/// The command `hearken proxy`.
pub(crate) struct Proxy;

impl Configured for Proxy {
    fn add(command: Command) -> Command {
        arguments::add(&PROXY, command).after_help(EXAMPLES).after_long_help(format!(
            "{EXAMPLES}
  hearken proxy --to 'http://a:9000;weight=3' --to http://b:9000 --to 'unix:/run/c.sock;backup'
      Send three quarters of the requests to a; use c only if both are down.
  hearken proxy --forward --allow .example.org --allow 10.1.0.0/16
      Run a forward proxy for some servers.
  hearken proxy --to http://a:9000 --listen 0.0.0.0:443 --tls-cert cert.pem --tls-key key.pem
      Serve clients over TLS.
  hearken proxy --to http://a:9000 --print-config > proxy.toml
      Write a config file.
  hearken proxy --config proxy.toml --check
      Check a config file.
  hearken proxy --to http://a:9000 --keepalive 0 --events poll --experiment meter-waits=yes
      Run an experiment with another event loop and one connection per request.

Output: 'proxying on http://ADDR:PORT to N servers (MECHANISM, N workers, up to M connections)' when ready.
{COMMON_HELP}"
        ))
    }
}

const EXAMPLES: &str = "\
Examples:
  hearken proxy --to http://a:9000 --to http://b:9000 --health-path /healthz
      Balance requests to http://127.0.0.1:8080/ over two servers, with health checks.";

pub(crate) fn run(command: &Matches<Proxy>) -> Result<ExitCode, Failure> {
    let options = match serve::configure(&PROXY, command, validate_proxy, Options::summary)? {
        Ok(options) => options,
        Err(status) => return Ok(status),
    };
    let destination = options.destination();
    let config = options.into_proxy();
    serve::serve(&config, |server| {
        let (url, resources) = (serve::url(&config, server), serve::resources(server));
        format!("proxying on {url} {destination} ({resources})\n")
    })
}
