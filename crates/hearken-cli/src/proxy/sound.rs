//! Whether settings that are right each are so together, and on this machine.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use hearken::mechanism::AUTO;
use hearken_server::proxy::config::Address;
use rustix::process::{Resource, getrlimit};

use super::keys::Kind;
use super::settings::{Given, Settings};

/// Of so many mistakes no more are told.
pub(crate) const MOST: usize = 20;

/// What is wrong, and with which setting.
type Wrong<'a> = (Option<&'a Given>, String);

pub(crate) fn check(settings: &Settings) -> Vec<Wrong<'_>> {
    let mut wrong = Vec::new();
    kinds(settings, &mut wrong);
    if wrong.is_empty() {
        servers(settings, &mut wrong);
        limits(settings, &mut wrong);
        here(settings, &mut wrong);
    }
    wrong
}

/// It is a reverse proxy or a forward one, and what is set is for that.
fn kinds<'a>(settings: &'a Settings, wrong: &mut Vec<Wrong<'a>>) {
    let place = &settings.args.place;
    let says = match (place.forward, place.to.is_empty(), &settings.text) {
        (true, false, _) => {
            let what =
                "a proxy is a forward one, or has servers to which everything goes; leave one out";
            wrong.push((settings.given("forward", 0), what.to_owned()));
            return;
        }
        (false, true, Some(_)) => {
            "no server; write [[upstreams.server]] and to = \"http://HOST:PORT\" below it, or [forward]"
        }
        (false, true, None) => {
            "it is not said where requests go; write --to http://HOST:PORT, --forward or --config FILE"
        }
        _ => "",
    };
    if !says.is_empty() {
        wrong.push((None, says.to_owned()));
        return;
    }
    let checked = settings.args.balance.check_path.0.is_some();
    for given in &settings.given {
        let what = match (given.of, place.forward) {
            (Kind::Reverse | Kind::Checked, true) => {
                "this is for a proxy with servers of its own, and not for a forward one; leave it out"
            }
            (Kind::Forward, false) if given.flag != "forward" => {
                "this is for a forward proxy, and not for one with servers of its own; leave it out"
            }
            (Kind::Checked, false) if !checked => match given.at {
                Some(_) => "nothing is asked of servers; write path = \"/healthz\" beside it",
                None => "nothing is asked of servers; add --check-path /healthz",
            },
            _ => continue,
        };
        wrong.push((Some(given), what.to_owned()));
    }
}

fn servers<'a>(settings: &'a Settings, wrong: &mut Vec<Wrong<'a>>) {
    let place = &settings.args.place;
    let listen = settings.args.client.connections.listen;
    let mut seen = HashMap::new();
    for (nth, server) in place.to.iter().enumerate() {
        if let Some(first) = seen.insert(&server.address, nth) {
            let first = first + 1;
            let what = format!(
                "server {first} is the same; leave one out, or write ;weight=N for more requests"
            );
            let in_file = format!("server {first} is the same; leave one out, or give it a weight");
            let given = settings.given("to", nth);
            let is_flag = given.is_some_and(|given| given.at.is_none());
            wrong.push((given, if is_flag { what } else { in_file }));
        }
        if matches!(server.address, Address::Inet(address) if covers(listen, address)) {
            let what = format!("this proxy itself listens on {listen}; write another port");
            wrong.push((settings.given("to", nth), what));
        }
    }
}

/// True if who connects to `address` comes to who listens on `listen`.
fn covers(listen: SocketAddr, address: SocketAddr) -> bool {
    let here = |ip: IpAddr| ip.is_loopback() || ip.is_unspecified();
    listen.port() == address.port()
        && (listen.ip() == address.ip()
            || (listen.ip().is_unspecified() && here(address.ip()))
            || (address.ip().is_unspecified() && here(listen.ip())))
}

fn limits<'a>(settings: &'a Settings, wrong: &mut Vec<Wrong<'a>>) {
    let args = &settings.args;
    let (target, head) = (args.client.limits.max_target, args.client.limits.max_head);
    if let Some(given) = settings.given("max-target", 0).filter(|_| target > head) {
        let what =
            format!("a target of {target} bytes is in no head of {head}; write no more than that");
        wrong.push((Some(given), what));
    }
    let each = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let all = each.saturating_mul(args.how.workers.get() as u64);
    let keep = args.balance.keep;
    if let Some(given) = settings.given("keep", 0).filter(|_| keep as u64 > all) {
        let what = format!(
            "{keep} connections are more than the {all} descriptors there may be (ulimit -Hn); write less"
        );
        wrong.push((Some(given), what));
    }
    let listen = args.client.connections.listen;
    if let Some(admin) = args.client.logs.admin.0
        && admin.port() != 0
        && (covers(listen, admin) || covers(admin, listen))
    {
        let what = format!("the proxy listens on {listen}; write another port");
        wrong.push((settings.given("admin", 0), what));
    }
}

/// What this machine has.
fn here<'a>(settings: &'a Settings, wrong: &mut Vec<Wrong<'a>>) {
    let args = &settings.args;
    let name = &args.how.events;
    let refused = match hearken::io::find(name) {
        // What is chosen by measurement can be had everywhere, and measuring takes time.
        Ok(_) if name == AUTO => None,
        Ok(spec) => spec.probe().err().map(|reason| format!("{name} cannot be had here: {reason}")),
        Err(error) => Some(error.to_string()),
    };
    if let Some(refused) = refused {
        wrong.push((settings.given("events", 0), refused));
    }
    if let Some(what) = args.client.logs.access_log.0.as_ref().and_then(no_file) {
        wrong.push((settings.given("access-log", 0), what));
    }
}

/// Why a log cannot be appended to a file of this name.
fn no_file(path: &PathBuf) -> Option<String> {
    if path == Path::new("-") {
        return None;
    }
    if path.is_dir() {
        return Some(format!("{} is a directory; write the name of a file in it", path.display()));
    }
    let dir = match path.parent() {
        Some(dir) if dir != Path::new("") => dir,
        _ => Path::new("."),
    };
    match dir.is_dir() {
        true => None,
        false => {
            Some(format!("there is no directory {}; make it, or write another", dir.display()))
        }
    }
}
