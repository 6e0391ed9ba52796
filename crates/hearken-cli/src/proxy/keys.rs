//! The keys of a proxy's file, and the options that they are.
//!
//! This is the only list besides the command line's definition: what a key may have, what it means and
//! what it is by default are its option's.

/// A key, and its option.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Key {
    /// The table that it is in; empty for those before all tables.
    pub(crate) table: &'static str,
    pub(crate) name: &'static str,
    /// The option's long name.
    pub(crate) flag: &'static str,
    /// A value that it might have, as TOML, where it has none by default.
    pub(crate) example: &'static str,
    /// Whether true here is no there.
    pub(crate) inverse: bool,
    /// What it means, where that is not what is said of the option.
    pub(crate) about: &'static str,
    /// Which kind of proxy it is for.
    pub(crate) of: Kind,
}

/// Kinds of proxies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Both,
    Reverse,
    Forward,
    /// A reverse one that asks its servers whether they are well.
    Checked,
}

/// The servers, each a table.
pub(crate) const SERVERS: &str = "server";

/// The tables in the order in which they are printed, and what is in them.
pub(crate) const TABLES: &[(&str, &str)] = &[
    ("", ""),
    ("upstreams", "The servers behind a reverse proxy."),
    ("health", "When servers are left out."),
    (
        "forward",
        "A forward proxy, to whatever servers are asked for: in place of [upstreams] and [health].",
    ),
    ("timeouts", "How long it waits, for what."),
    ("limits", "How much there may be."),
    ("fields", "What servers are told about the proxy and its clients."),
    ("log", "The access log."),
    ("admin", "Metrics, and draining servers."),
];

const fn key(of: Kind, table: &'static str, name: &'static str, flag: &'static str) -> Key {
    Key { table, name, flag, example: "", inverse: false, about: "", of }
}

impl Key {
    const fn like(self, example: &'static str) -> Key {
        Key { example, ..self }
    }
}

use Kind::{Both, Checked, Forward, Reverse};

pub(crate) const KEYS: &[Key] = &[
    key(Both, "", "listen", "listen"),
    key(Both, "", "proxy-protocol", "proxy-protocol").like("[\"10.0.0.0/8\"]"),
    key(Both, "", "half-close", "half-close"),
    key(Both, "", "events", "events"),
    key(Both, "", "rt-queue", "rt-queue").like("1024"),
    key(Both, "", "workers", "workers"),
    key(Both, "", "accept-limit", "accept-limit"),
    key(Both, "", "defer-accept", "defer-accept"),
    key(Both, "", "io", "io"),
    key(Both, "", "interest", "interest"),
    Key {
        inverse: true,
        about: "Have the kernel move long bodies and tunnels, where it can",
        ..key(Both, "", "splice", "no-splice")
    },
    key(Both, "", "meter-waits", "meter-waits"),
    key(Reverse, "upstreams", "policy", "policy"),
    key(Reverse, "upstreams", "keep", "keep"),
    key(Reverse, "upstreams", "max-requests", "max-requests"),
    key(Reverse, "upstreams", "queue", "queue"),
    key(Reverse, "upstreams", "tries", "tries"),
    key(Reverse, "upstreams", "slow-start", "slow-start"),
    key(Reverse, "upstreams", "resolve-every", "resolve-every"),
    key(Reverse, "upstreams", "send-proxy-protocol", "send-proxy-protocol"),
    key(Reverse, "upstreams", SERVERS, "to"),
    key(Reverse, "health", "passive", "passive"),
    key(Reverse, "health", "path", "check-path"),
    key(Checked, "health", "host", "check-host"),
    key(Checked, "health", "every", "check-every"),
    key(Checked, "health", "timeout", "check-timeout"),
    key(Checked, "health", "fall", "check-fall"),
    key(Checked, "health", "rise", "check-rise"),
    key(Checked, "health", "status", "check-status"),
    key(Forward, "forward", "allow", "allow").like("[\".example.org\", \"10.1.0.0/16\"]"),
    key(Forward, "forward", "deny", "deny").like("[\"secret.example.org\"]"),
    key(Forward, "forward", "connect-ports", "connect-port").like("[443]"),
    key(Forward, "forward", "keep", "keep"),
    key(Both, "timeouts", "head", "head-timeout"),
    key(Both, "timeouts", "body", "body-timeout"),
    key(Both, "timeouts", "upload", "upload-timeout"),
    key(Both, "timeouts", "idle", "idle-timeout"),
    key(Both, "timeouts", "send", "send-timeout"),
    key(Both, "timeouts", "queue", "queue-timeout"),
    key(Both, "timeouts", "connect", "connect-timeout"),
    key(Both, "timeouts", "server-send", "server-send-timeout"),
    key(Both, "timeouts", "response", "response-timeout"),
    key(Both, "timeouts", "response-body", "response-body-timeout"),
    key(Both, "timeouts", "whole", "whole-timeout"),
    key(Both, "timeouts", "tunnel", "tunnel-timeout"),
    key(Both, "timeouts", "keep", "keep-timeout"),
    key(Both, "timeouts", "grace", "grace"),
    key(Both, "limits", "connections", "max-connections").like("10000"),
    key(Both, "limits", "min-rate", "min-rate"),
    key(Both, "limits", "head", "max-head"),
    key(Both, "limits", "fields", "max-fields"),
    key(Both, "limits", "target", "max-target"),
    key(Both, "limits", "body", "max-body"),
    key(Both, "fields", "via", "via").like("\"edge-1\""),
    key(Both, "fields", "x-forwarded", "x-forwarded"),
    key(Both, "fields", "forwarded", "forwarded"),
    key(Both, "fields", "host", "host"),
    key(Both, "log", "file", "access-log"),
    key(Both, "log", "format", "log-format"),
    key(Both, "admin", "listen", "admin"),
];

/// The keys of a table.
pub(crate) fn keys_of(table: &str) -> impl Iterator<Item = &'static Key> {
    KEYS.iter().filter(move |key| key.table == table)
}

pub(crate) fn find(table: &str, name: &str) -> Option<&'static Key> {
    keys_of(table).find(|key| key.name == name)
}

/// What is said of a key that the table does not have.
pub(crate) fn unknown(table: &str, name: &str) -> String {
    let what = match table {
        "" => format!("unknown key \"{}\"", clipped(name)),
        _ => format!("unknown key \"{}\" in [{table}]", clipped(name)),
    };
    if let Some(key) = KEYS.iter().find(|key| key.flag == name && key.name != name) {
        return format!("{what}; option --{name} is {} here", written(key));
    }
    let tables = TABLES.iter().map(|(table, _)| *table).filter(|_| table.is_empty());
    let known = keys_of(table).map(|key| key.name).chain(tables.filter(|table| !table.is_empty()));
    if let Some(like) = nearest(name, known) {
        return format!("{what}; did you mean \"{like}\"?");
    }
    // It may be that of another table.
    let elsewhere = KEYS.iter().filter(|key| key.name == name).map(written).collect::<Vec<_>>();
    match elsewhere.is_empty() {
        false => format!("{what}; did you mean {}?", elsewhere.join(" or ")),
        true => format!("{what}; known are {}", list(table)),
    }
}

/// What is said of a parameter that a server does not have.
pub(crate) fn unknown_of_server(name: &str) -> String {
    let known = ["to", "weight", "backup"];
    match nearest(name, known.into_iter()) {
        Some(like) => {
            format!("unknown key \"{}\" of a server; did you mean \"{like}\"?", clipped(name))
        }
        None => {
            format!("unknown key \"{}\" of a server; known are to, weight, backup", clipped(name))
        }
    }
}

/// The key with its table.
fn written(key: &Key) -> String {
    match key.table {
        "" => format!("\"{}\" before all tables", key.name),
        table => format!("\"{}\" in [{table}]", key.name),
    }
}

fn list(table: &str) -> String {
    let mut all: Vec<&str> = keys_of(table).map(|key| key.name).collect();
    if table.is_empty() {
        all.extend(TABLES.iter().map(|(table, _)| *table).filter(|table| !table.is_empty()));
    }
    all.join(", ")
}

fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // A long one is like none, and would take long.
    if name.len() > 40 {
        return None;
    }
    known
        .map(|known| (strsim::jaro_winkler(&name.to_ascii_lowercase(), known), known))
        .filter(|(like, _)| *like > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, known)| known)
}

/// As much of a name as is told.
fn clipped(name: &str) -> String {
    match name.char_indices().nth(40) {
        Some((at, _)) => format!("{}...", name[..at].escape_debug()),
        None => name.escape_debug().to_string(),
    }
}
