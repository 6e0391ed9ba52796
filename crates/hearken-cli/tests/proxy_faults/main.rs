//! Tests of the proxy under load, while its servers crash, stop or are overloaded, and while it shuts
//! down itself. They check that no request is lost or repeated without need, and that every failed
//! request gets the right error. Run them with `cargo test -p hearken-cli --test proxy_faults`, and a
//! single one with `... --test proxy_faults a_suspended_server_becomes_unavailable`. They use only the
//! loopback interface, and take about ten seconds.

#[path = "../program/mod.rs"]
mod program;

mod counting;
mod load;

use std::collections::HashMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};
use tempfile::TempDir;

use counting::CountingServer;
use load::{Exchange, Load, Plan};
use program::{Running, serve};

const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Creates files with different contents, each larger than 1 KiB.
fn files(count: usize) -> TempDir {
    let dir = TempDir::new().unwrap();
    for number in 0..count {
        fs::write(dir.path().join(format!("{number}.txt")), load::content_of(number)).unwrap();
    }
    dir
}

/// Returns the address in the first line of a server's output.
fn address(line: &str) -> String {
    let url = line.split_whitespace().find_map(|word| word.strip_prefix("http://"));
    url.unwrap_or_else(|| panic!("no address in {line:?}")).to_owned()
}

/// Starts a server at an address that a killed server had. The port may be in use for some time.
fn serve_at(dir: &Path, addr: &str) -> Running {
    let dir = dir.to_str().unwrap();
    let since = Instant::now();
    loop {
        let mut server = Running::start(&["serve", dir, "--listen", addr]);
        if server.line().contains(addr) {
            return server;
        }
        assert!(since.elapsed() < ms(20_000), "cannot listen on {addr} again");
    }
}

/// Kills the server at this address under load, and starts another one there.
fn restart(server: &mut Running, dir: &Path, addr: &str, load: &Load) {
    load.wait_for(100);
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    load.wait_for(100);
    *server = serve_at(dir, addr);
}

/// Starts a proxy for these servers, with this config file. Returns its address.
fn proxy(to: &[&str], config: &str) -> (Running, String) {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("proxy.toml");
    fs::write(&file, config).unwrap();
    let file = file.to_str().unwrap();
    let mut args = vec!["proxy", "--listen", "127.0.0.1:0", "--config", file];
    to.iter().for_each(|server| args.extend(["--to", server]));
    let mut proxy = Running::start(&args);
    let line = proxy.line();
    (proxy, address(&line))
}

/// Counts the responses by status.
fn tally(results: &[Exchange]) -> HashMap<u16, usize> {
    let mut tally = HashMap::new();
    results.iter().for_each(|result| *tally.entry(result.status).or_default() += 1);
    tally
}

#[test]
fn restarts_of_one_of_two_servers_are_invisible() {
    let dir = files(8);
    let (mut first, url) = serve(dir.path(), &[]);
    let (_second, other) = serve(dir.path(), &[]);
    let to = [address(&url), address(&other)];
    let (_proxy, addr) = proxy(&[&to[0], &to[1]], "upstreams.fail-timeout = '200ms'");
    let load = Load::start(&addr, 8, Plan::Get);
    for _ in 0..4 {
        restart(&mut first, dir.path(), &to[0], &load);
    }
    load.wait_for(100);
    let results = load.stop();
    // GET requests are repeated on the other server.
    let tally = tally(&results);
    assert_eq!(tally.len(), 1, "{tally:?}");
    assert!(tally[&200] >= 900, "{tally:?}");
}

#[test]
fn a_restarted_single_server_recovers() {
    let dir = files(8);
    let (mut server, url) = serve(dir.path(), &[]);
    let to = address(&url);
    let (_proxy, addr) = proxy(&[&to], "upstreams.max-fails = 0");
    let load = Load::start(&addr, 8, Plan::Get);
    for _ in 0..3 {
        restart(&mut server, dir.path(), &to, &load);
    }
    // All requests from now on succeed.
    let recovered = Instant::now();
    load.wait_for(200);
    let results = load.stop();
    let tally = tally(&results);
    assert!(tally.keys().all(|status| matches!(status, 200 | 502)), "{tally:?}");
    assert!(tally.contains_key(&502) && tally[&200] >= 300, "{tally:?}");
    let after: Vec<_> = results.iter().filter(|result| result.started >= recovered).collect();
    assert!(after.iter().all(|result| result.status == 200), "{after:?}");
    assert!(!after.is_empty());
}

#[test]
fn requests_to_a_suspended_server_time_out() {
    let dir = files(8);
    let (server, url) = serve(dir.path(), &[]);
    let config = "upstreams.max-fails = 0\ntimeouts = { response = '300ms', connect = '300ms' }";
    let (_proxy, addr) = proxy(&[&address(&url)], config);
    let load = Load::start(&addr, 8, Plan::Get);
    for _ in 0..2 {
        load.wait_for(100);
        server.signal(Signal::STOP);
        // At least one request of each client times out.
        load.wait_for(24);
        server.signal(Signal::CONT);
    }
    let recovered = Instant::now();
    load.wait_for(200);
    let results = load.stop();
    let tally = tally(&results);
    // The load checks the content, so a late response to another request would be noticed.
    assert!(tally.keys().all(|status| matches!(status, 200 | 504)), "{tally:?}");
    assert!(tally[&504] >= 16 && tally[&200] >= 200, "{tally:?}");
    let after: Vec<_> = results.iter().filter(|result| result.started >= recovered).collect();
    let late = after.iter().filter(|result| result.status != 200).count();
    // The server first responds to the old requests.
    assert!(late <= 8 && after.len() >= 100, "{late} of {}", after.len());
    assert!(after.iter().rev().take(50).all(|result| result.status == 200));
}

#[test]
fn a_suspended_server_becomes_unavailable() {
    let dir = files(8);
    let (server, url) = serve(dir.path(), &[]);
    let (_other, other) = serve(dir.path(), &[]);
    let config = "upstreams = { max-fails = 2, fail-timeout = '60s' }\n\
                  timeouts.response = '200ms'";
    let (_proxy, addr) = proxy(&[&address(&url), &address(&other)], config);
    let load = Load::start(&addr, 4, Plan::Get);
    load.wait_for(50);
    server.signal(Signal::STOP);
    load.wait_for(400);
    server.signal(Signal::CONT);
    let results = load.stop();
    let tally = tally(&results);
    assert!(tally.keys().all(|status| matches!(status, 200 | 504)), "{tally:?}");
    // Requests in progress, and those that detect the failure. A client sends one request at a time.
    assert!((1..=10).contains(&tally[&504]), "{tally:?}");
}

#[test]
fn requests_beyond_the_queue_are_rejected() {
    let server = CountingServer::start(ms(4), true);
    let config = "upstreams = { max-requests = 2, queue = 6 }\ntimeouts.queue = '2s'";
    let (_proxy, addr) = proxy(&[&server.addr().to_string()], config);
    let load = Load::start(&addr, 16, Plan::Post);
    while server.counts().len() < 60 {
        load.wait_for(1);
    }
    let results = load.stop();
    let tally = tally(&results);
    assert!(tally.keys().all(|status| matches!(status, 200 | 503)), "{tally:?}");
    assert!(tally[&503] > 0 && tally[&200] >= 20, "{tally:?}");
    check_counts(&server, &results);
    assert!(server.max_concurrent() <= 2, "{} concurrent requests", server.max_concurrent());
    // The queue is empty.
    let load = Load::start(&addr, 2, Plan::Post);
    load.wait_for(50);
    assert_eq!(tally_of(load), [200]);
}

fn tally_of(load: Load) -> Vec<u16> {
    let mut statuses: Vec<u16> = tally(&load.stop()).into_keys().collect();
    statuses.sort_unstable();
    statuses
}

/// Checks that each request was processed as often as its response says.
fn check_counts(server: &CountingServer, results: &[Exchange]) {
    let counts = server.counts();
    for (id, count) in &counts {
        assert!(*count <= 1, "request {id} was processed {count} times");
    }
    for result in results {
        let count = counts.get(&result.id).copied().unwrap_or(0);
        match result.status {
            200 => assert_eq!(count, 1, "{result:?}"),
            503 => assert_eq!(count, 0, "{result:?}"),
            _ => assert!(count <= 1, "{result:?}"),
        }
    }
}

#[test]
fn unsafe_requests_are_not_repeated() {
    let server = CountingServer::start(ms(0), false);
    let (_proxy, addr) = proxy(&[&server.addr().to_string()], "upstreams.max-fails = 0");
    let load = Load::start(&addr, 8, Plan::Post);
    for _ in 0..10 {
        load.wait_for(40);
        // Resets all connections, in any state.
        server.crash();
        load.wait_for(10);
        server.restart();
    }
    load.wait_for(100);
    let results = load.stop();
    let tally = tally(&results);
    assert!(tally.keys().all(|status| matches!(status, 200 | 502)), "{tally:?}");
    assert!(tally[&200] >= 200, "{tally:?}");
    check_counts(&server, &results);
}

/// Returns the size of the largest descriptor table of a process, which belongs to a worker.
fn descriptors(process: u32) -> u64 {
    let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let tables = threads.map(|thread| thread.unwrap().path().join("fd"));
    tables.map(|table| fs::read_dir(table).unwrap().count() as u64).max().unwrap()
}

#[test]
fn a_proxy_out_of_descriptors_serves_its_clients() {
    const CLIENTS: usize = 16;
    let server = CountingServer::start(ms(50), false);
    let (proxy, addr) = proxy(&[&server.addr().to_string()], "timeouts.queue = '60s'");
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| TcpStream::connect(&addr).unwrap()).collect();
    let send = |client: &mut TcpStream| {
        client.write_all(b"GET /0 HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    };
    let receive = |client: &mut TcpStream| {
        client.set_read_timeout(Some(ms(20_000))).unwrap();
        let mut status = [0; 12];
        client.read_exact(&mut status).unwrap();
        assert_eq!(status, *b"HTTP/1.1 200");
    };
    // The last one is accepted, so all are.
    let (last, others) = clients.split_last_mut().unwrap();
    send(last);
    receive(last);
    let most = Some(descriptors(proxy.child.id()) + 2);
    let limit = Rlimit { current: most, maximum: most };
    prlimit(Some(Pid::from_child(&proxy.child)), Resource::Nofile, limit).unwrap();
    others.iter_mut().for_each(send);
    others.iter_mut().for_each(receive);
}

#[test]
fn shutdown_completes_requests_in_progress() {
    for plan in [Plan::Post, Plan::PostOnce] {
        let server = CountingServer::start(ms(5), false);
        let (mut proxy, addr) = proxy(&[&server.addr().to_string()], "");
        let load = Load::start(&addr, 12, plan);
        load.wait_for(200);
        let stopped = Instant::now();
        proxy.signal(Signal::TERM);
        let status = proxy.child.wait().unwrap();
        assert!(status.success(), "{status}");
        let results = load.stop();
        // Later requests may have been refused.
        let before: Vec<_> = results.iter().filter(|result| result.sent < stopped).collect();
        let lost: Vec<_> = before.iter().filter(|result| result.status != 200).collect();
        assert!(lost.is_empty(), "{lost:?} of {}", before.len());
        assert!(before.len() >= 200);
        check_counts(&server, &before.into_iter().cloned().collect::<Vec<_>>());
    }
}

#[test]
fn a_second_signal_exits_immediately() {
    let server = CountingServer::start(ms(60_000), false);
    let (mut proxy, addr) = proxy(&[&server.addr().to_string()], "timeouts.shutdown = '60s'");
    let load = Load::start(&addr, 1, Plan::PostOnce);
    while server.counts().is_empty() {
        thread::sleep(ms(2));
    }
    proxy.signal(Signal::TERM);
    thread::sleep(ms(50));
    assert!(proxy.child.try_wait().unwrap().is_none(), "it exits with a request in progress");
    proxy.signal(Signal::TERM);
    let since = Instant::now();
    proxy.child.wait().unwrap();
    assert!(since.elapsed() < ms(20_000));
    load.stop();
}
