//! The workload of a running server, from the kernel's accounts of its connections.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use procfs::net::TcpState;
use procfs::process::Process;

use super::{MAX_BURSTINESS, Size, Workload};
use crate::error::LabError;
use crate::watch::{socket_inode, watch_error};

/// Interval between two samples.
const INTERVAL: Duration = Duration::from_secs(1);
/// Interval at which a pause checks the stop flag.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Requests per connection above which connections count as persistent.
const PERSISTENT: f64 = 100.0;

/// The account of a connection since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Account {
    /// Segments with data from the client, about one per request.
    requests: u64,
    /// Bytes that the client has acknowledged.
    bytes: u64,
}

/// Sums over all samples.
#[derive(Debug, Default)]
struct Observed {
    samples: u32,
    connections: u64,
    active: u64,
    /// Connections that a sample has seen for the first time.
    seen: u64,
    bytes: u64,
    /// Requests in each interval.
    requests: Vec<u64>,
}

/// Observes the connections of a process, and describes its workload.
///
/// A request is a segment with data from the client. Connections that are opened and closed between two samples
/// count as one request each. Connections of the whole network namespace count as opened.
///
/// # Errors
/// The process does not listen on a TCP port, is not accessible, or has no connections; or the program `ss` is
/// not installed.
pub fn observe(pid: i32, time: Duration, stop: &AtomicBool) -> Result<Workload, LabError> {
    let wrong = |problem: &str| watch_error(&pid.to_string(), problem);
    let ports = listening_ports(pid).map_err(|error| wrong(&error.to_string()))?;
    if ports.is_empty() {
        return Err(wrong("it does not listen on a TCP port"));
    }
    let began = Instant::now();
    let opened_before = opened();
    let mut before = accounts(&ports)?;
    let mut observed = Observed::default();
    while began.elapsed() < time {
        let next = Instant::now() + INTERVAL.min(time);
        while Instant::now() < next {
            if stop.load(Ordering::Relaxed) {
                return Err(LabError::Interrupted);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        let now = accounts(&ports)?;
        observed.add(&before, &now);
        before = now;
    }
    let opened = opened().saturating_sub(opened_before);
    observed
        .workload(opened, began.elapsed().as_secs_f64())
        .ok_or_else(|| wrong("no connection received a request in this time"))
}

/// Returns the TCP ports on which a process listens.
fn listening_ports(pid: i32) -> Result<BTreeSet<u16>, procfs::ProcError> {
    let process = Process::new(pid)?;
    let mut sockets = BTreeSet::new();
    // Threads may have descriptor tables of their own.
    for task in process.tasks()?.flatten() {
        let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/task/{}/fd", task.tid)) else {
            continue;
        };
        let links = descriptors.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
        sockets.extend(links.filter_map(|link| socket_inode(&link)));
    }
    let entries = process.tcp()?.into_iter().chain(process.tcp6().unwrap_or_default());
    let own =
        entries.filter(|entry| entry.state == TcpState::Listen && sockets.contains(&entry.inode));
    Ok(own.map(|entry| entry.local_address.port()).collect())
}

/// Returns the number of connections that this network namespace has accepted.
fn opened() -> u64 {
    let text = fs::read_to_string("/proc/net/snmp").unwrap_or_default();
    let mut lines = text.lines().filter(|line| line.starts_with("Tcp:"));
    let (names, values) = (lines.next().unwrap_or(""), lines.next().unwrap_or(""));
    let at = names.split_whitespace().position(|name| name == "PassiveOpens");
    at.and_then(|at| values.split_whitespace().nth(at)?.parse().ok()).unwrap_or(0)
}

/// Returns the accounts of the established connections to these ports, by the address of the client.
fn accounts(ports: &BTreeSet<u16>) -> Result<HashMap<String, Account>, LabError> {
    let filter: Vec<String> = ports.iter().map(|port| format!("sport = :{port}")).collect();
    let arguments = ["-tinHO", "state", "established", &format!("( {} )", filter.join(" or "))];
    let output = Command::new("ss").args(arguments).output().map_err(|source| {
        LabError::System { action: "start 'ss' (package: iproute2)".into(), source }
    })?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(parse).collect())
}

/// Parses a line of `ss`.
fn parse(line: &str) -> Option<(String, Account)> {
    let mut account = Account::default();
    let mut words = line.split_whitespace();
    // The lengths of the queues and the address of the server come first.
    let client = words.nth(3)?;
    for word in words {
        let Some((name, value)) = word.split_once(':') else { continue };
        let Ok(value) = value.parse() else { continue };
        match name {
            "data_segs_in" => account.requests = value,
            "bytes_acked" => account.bytes = value,
            _ => {}
        }
    }
    Some((client.to_owned(), account))
}

impl Observed {
    fn add(&mut self, before: &HashMap<String, Account>, now: &HashMap<String, Account>) {
        let mut requests = 0;
        for (client, account) in now {
            let earlier = before.get(client).copied().unwrap_or_else(|| {
                self.seen += 1;
                Account::default()
            });
            let sent = account.requests.saturating_sub(earlier.requests);
            requests += sent;
            self.bytes += account.bytes.saturating_sub(earlier.bytes);
            self.active += u64::from(sent > 0);
        }
        self.samples += 1;
        self.connections += now.len() as u64;
        self.requests.push(requests);
    }

    /// Returns the workload, unless there was no request.
    fn workload(&self, opened: u64, seconds: f64) -> Option<Workload> {
        let counted: u64 = self.requests.iter().sum();
        let short = opened.saturating_sub(self.seen);
        let requests = (counted + short) as f64;
        if counted == 0 || self.connections == 0 {
            return None;
        }
        let mean = counted as f64 / self.requests.len() as f64;
        let peak = self.requests.iter().copied().max().unwrap_or(0) as f64;
        let per_connection = (opened > 0).then(|| requests / opened as f64);
        let per_connection = per_connection.filter(|&requests| requests < PERSISTENT);
        let connections = self.connections as f64 / f64::from(self.samples);
        Some(Workload {
            connections: (connections.round() as u32).max(1),
            active_share: (self.active as f64 / self.connections as f64).clamp(1e-6, 1.0),
            rate: requests / seconds,
            requests_per_connection: per_connection
                .map(|requests| (requests.round() as u32).max(1)),
            sizes: vec![Size { bytes: self.bytes / counted, share: 1.0 }],
            burstiness: (peak / mean).clamp(1.0, MAX_BURSTINESS),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::Arc;
    use std::thread;

    use super::*;

    #[test]
    fn lines_of_ss_are_parsed() {
        let line = "0 0 127.0.0.1:80 127.0.0.1:5000 cubic rto:204 bytes_sent:9 bytes_acked:9 \
                    segs_in:6 data_segs_in:4 send 1Mbps pacing_rate 1Mbps";
        let account = Account { requests: 4, bytes: 9 };
        assert_eq!(parse(line), Some(("127.0.0.1:5000".to_owned(), account)));
        assert_eq!(parse("0 0"), None);
    }

    #[test]
    fn workload_of_this_process_is_observed() {
        if Command::new("ss").arg("-V").output().is_err() {
            return; // The program is not part of the requirements of the tests.
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut idle = Vec::new();
        for _ in 0..3 {
            idle.push((TcpStream::connect(address).unwrap(), listener.accept().unwrap()));
        }
        let mut client = TcpStream::connect(address).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let ended = Arc::new(AtomicBool::new(false));
        let flag = ended.clone();
        let traffic = thread::spawn(move || {
            let mut buffer = [0; 100];
            while !flag.load(Ordering::Relaxed) {
                client.write_all(b"request").unwrap();
                server.read_exact(&mut buffer[..7]).unwrap();
                server.write_all(&buffer).unwrap();
                client.read_exact(&mut buffer).unwrap();
                thread::sleep(Duration::from_millis(2));
            }
        });
        let pid = std::process::id().cast_signed();
        let workload = observe(pid, Duration::from_millis(300), &AtomicBool::new(false));
        ended.store(true, Ordering::Relaxed);
        traffic.join().unwrap();
        let workload = workload.unwrap();
        assert!(workload.connections >= 4 && workload.rate > 10.0, "{workload:?}");
        assert!(observe(pid, Duration::from_secs(9), &AtomicBool::new(true)).is_err());
        drop(idle);
    }
}
