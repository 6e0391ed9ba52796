//! Checks of a complete configuration.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use hearken::mechanism::AUTO;
use hearken_server::proxy::config::Address;
use rustix::process::{Resource, getrlimit};

use super::Options;
use crate::settings::resolve::{Invalid, Resolved};

type Settings = Resolved<Options>;

pub(crate) fn validate_serve(settings: &Settings, invalid: &mut Invalid) {
    if settings.config.root.is_none() {
        invalid.general(match settings.file_name() {
            Some(_) => "no directory to serve; set 'static.root' or use 'hearken serve <DIR>'",
            None => "no directory to serve; use 'hearken serve <DIR>' or '--config <FILE>'",
        });
    }
    limits(settings, invalid);
    environment(settings, invalid);
}

pub(crate) fn validate_proxy(settings: &Settings, invalid: &mut Invalid) {
    let options = &settings.config;
    if settings.are_set_together("forward", "upstreams.server") {
        invalid.setting("forward", 0, "cannot be combined with upstream servers; remove one");
        return;
    }
    if !options.is_forward && options.upstreams.servers.is_empty() {
        invalid.general(match settings.file_name() {
            Some(_) => "no upstream configured; add [[upstreams.server]] or [forward]",
            None => "no upstream configured; use --to, --forward or --config",
        });
        return;
    }
    servers(settings, invalid);
    limits(settings, invalid);
    environment(settings, invalid);
}

fn servers(settings: &Settings, invalid: &mut Invalid) {
    let upstreams = &settings.config.upstreams;
    if upstreams.send_proxy_protocol.is_some()
        && upstreams.servers.iter().any(|server| server.tls || server.http2)
    {
        let message = "cannot be combined with servers that use https:// or h2c://; remove one";
        invalid.setting("upstreams.send-proxy-protocol", 0, message);
    }
    let listen = settings.config.listen();
    let mut seen = HashMap::new();
    for (index, server) in settings.config.upstreams.servers.iter().enumerate() {
        if let Some(first) = seen.insert(&server.address, index) {
            let message = format!("same address as server {}; use a weight instead", first + 1);
            invalid.setting("upstreams.server", index, message);
        }
        if matches!(server.address, Address::Inet(address) if accepts(listen, address)) {
            let message = format!("the proxy itself listens on {listen}; use another port");
            invalid.setting("upstreams.server", index, message);
        }
    }
}

/// Returns whether a socket that listens on `listen` accepts connections to `address`.
fn accepts(listen: SocketAddr, address: SocketAddr) -> bool {
    let is_local = |ip: IpAddr| ip.is_loopback() || ip.is_unspecified();
    listen.port() == address.port()
        && (listen.ip() == address.ip()
            || (listen.ip().is_unspecified() && is_local(address.ip()))
            || (address.ip().is_unspecified() && is_local(listen.ip())))
}

fn limits(settings: &Settings, invalid: &mut Invalid) {
    tls_files(settings, invalid);
    let server = &settings.config.server;
    let (target, header) = (server.limits.max_target_bytes, server.limits.max_head_bytes);
    if target > header && settings.is_set("limits.target") {
        let message = format!("{target} bytes exceed limits.header of {header} bytes");
        invalid.setting("limits.target", 0, message);
    }
    let each = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let descriptors = each.saturating_mul(server.event_loops.worker_limit() as u64);
    let keepalive = settings.config.keepalive;
    if keepalive as u64 > descriptors && settings.is_set("upstreams.keepalive") {
        let message =
            format!("{keepalive} exceeds the limit of {descriptors} open files (see 'ulimit -Hn')");
        invalid.setting("upstreams.keepalive", 0, message);
    }
    let listen = server.event_loops.listen;
    if let Some(redirect) = server.redirect
        && redirect.port() != 0
        && (accepts(listen, redirect) || accepts(redirect, listen))
    {
        let message = format!("the server listens on {listen} with TLS; use another port");
        invalid.setting("tls.redirect", 0, message);
    }
    if let Some(admin) = server.admin
        && admin.port() != 0
        && (accepts(listen, admin) || accepts(admin, listen))
    {
        let message = format!("the server listens on {listen} for clients; use another port");
        invalid.setting("admin.listen", 0, message);
    }
}

/// Checks that each certificate has a key and an OCSP response, if any are given.
fn tls_files(settings: &Settings, invalid: &mut Invalid) {
    let tls = &settings.config.tls;
    let certs = tls.certs.len();
    for (key, given, name) in
        [("tls.key", tls.keys.len(), "keys"), ("tls.ocsp", tls.ocsp.len(), "OCSP responses")]
    {
        if given != certs && settings.is_set(key) && certs > 0 {
            let message =
                format!("{given} {name} for {certs} certificates; give one for each certificate");
            invalid.setting(key, given - 1, message);
        }
    }
}

/// Checks the settings that depend on this machine.
fn environment(settings: &Settings, invalid: &mut Invalid) {
    let server = &settings.config.server;
    let name = &server.event_loops.events;
    let error = match hearken::io::find(name) {
        // Automatic selection always finds a mechanism, and its measurements take time.
        Ok(_) if name == AUTO => None,
        Ok(spec) => spec.probe().err().map(|reason| format!("{name} is not available: {reason}")),
        Err(error) => Some(error.to_string()),
    };
    if let Some(error) = error {
        invalid.setting("events", 0, error);
    }
    if let Some(error) = server.access_log.as_deref().and_then(log_error) {
        invalid.setting("log.file", 0, error);
    }
}

/// Returns the reason why a log file cannot be created.
fn log_error(path: &Path) -> Option<String> {
    if path == Path::new("-") {
        return None;
    }
    if path.is_dir() {
        return Some(format!("'{}' is a directory", path.display()));
    }
    let dir = match path.parent() {
        Some(dir) if dir != Path::new("") => dir,
        _ => Path::new("."),
    };
    (!dir.is_dir()).then(|| format!("directory '{}' does not exist", dir.display()))
}
