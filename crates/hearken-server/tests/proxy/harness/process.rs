//! A proxy in a process of its own, which is this test binary once more: what it uses is then its own.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::thread;

use hearken_server::proxy::config::To;
use hearken_server::start;
use hearken_server::{Config, proxy};

use super::link::Link;
use super::proxy::proxy_of;
use super::proxy::{Way, upstreams};
use super::wire::Kind;

const CHILD: &str = "HEARKEN_TEST_PROXY";

/// Whether this process is to be such a proxy.
pub(crate) fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Is a proxy until its input ends.
pub(crate) fn run() {
    let said = std::env::var(CHILD).unwrap();
    let (events, to) = said.split_once(' ').unwrap();
    let mut words = to.split(' ');
    let to = words.next().unwrap().parse().unwrap();
    let mut config = Config::proxy(proxy::Config::new(To::Upstreams(upstreams(&[to]))));
    config.loops.listen = SocketAddr::from(([127, 0, 0, 1], 0));
    config.loops.events = events.to_owned();
    proxy_of(&mut config).splice = words.next() == Some("splice");
    // What is left open is not to be waited for.
    config.loops.grace = super::ms(200);
    let server = start(&config).unwrap();
    println!("listening on {}", server.addr());
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    server.stopper().stop();
    server.wait().unwrap();
}

/// Such a process.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    addr: SocketAddr,
}

impl Process {
    /// A proxy to this server, with the defaults.
    pub(crate) fn start(way: &Way, to: SocketAddr) -> Process {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let splice = if way.splice { "splice" } else { "copy" };
        command.env(CHILD, format!("{} {to} {splice}", way.events));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = lines.next().expect("the proxy ended").unwrap();
        let addr = line.split("listening on ").nth(1).unwrap().parse().unwrap();
        // The pipe stays open.
        thread::spawn(move || lines.for_each(drop));
        Process { child, addr }
    }

    pub(crate) fn connect(&self) -> Link {
        Link::connect(self.addr, Kind::Response)
    }

    /// Kibibytes of it that are in memory.
    pub(crate) fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let status = self.child.wait().unwrap();
        if !thread::panicking() {
            assert!(status.success(), "the proxy failed: {status}");
        }
    }
}
