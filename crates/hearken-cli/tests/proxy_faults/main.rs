//! A proxy under load, while its servers are restarted, stopped and overloaded, and while it is stopped
//! itself: no request is lost that could be answered, and every other gets its one proper error.

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

use counting::Counting;
use load::{Answer, Load, Plan};
use program::{Running, serve};

const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Files, each with a text of its own, of one kibibyte and more.
fn files(count: usize) -> TempDir {
    let dir = TempDir::new().unwrap();
    for number in 0..count {
        fs::write(dir.path().join(format!("{number}.txt")), load::text_of(number)).unwrap();
    }
    dir
}

/// The address that a program's first line names.
fn address(line: &str) -> String {
    let url = line.split_whitespace().find_map(|word| word.strip_prefix("http://"));
    url.unwrap_or_else(|| panic!("no address in {line:?}")).to_owned()
}

/// A server at this address, where one was before. The port may be that of somebody's connection.
fn serve_at(dir: &Path, addr: &str) -> Running {
    let dir = dir.to_str().unwrap();
    let since = Instant::now();
    loop {
        let mut server = Running::start(&["serve", dir, "--listen", addr]);
        if server.line().contains(addr) {
            return server;
        }
        assert!(since.elapsed() < ms(20_000), "{addr} cannot be listened on again");
    }
}

/// Kills the server at this address, and starts another there, while there is load.
fn restart(server: &mut Running, dir: &Path, addr: &str, load: &Load) {
    load.wait_for(100);
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    load.wait_for(100);
    *server = serve_at(dir, addr);
}

/// A proxy to these servers.
fn proxy(to: &[&str], more: &[&str]) -> (Running, String) {
    let mut args = vec!["proxy", "--listen", "127.0.0.1:0"];
    to.iter().for_each(|server| args.extend(["--to", server]));
    args.extend(more);
    let mut proxy = Running::start(&args);
    let line = proxy.line();
    (proxy, address(&line))
}

/// How many there are of each answer.
fn tally(answers: &[Answer]) -> HashMap<u16, usize> {
    let mut tally = HashMap::new();
    answers.iter().for_each(|answer| *tally.entry(answer.status).or_default() += 1);
    tally
}

#[test]
fn one_of_two_servers_is_restarted() {
    let dir = files(8);
    let (mut first, url) = serve(dir.path(), &[]);
    let (_second, other) = serve(dir.path(), &[]);
    let to = [address(&url), address(&other)];
    let (_proxy, addr) = proxy(&[&to[0], &to[1]], &["--passive", "3/200ms"]);
    let load = Load::start(&addr, 8, Plan::Get);
    for _ in 0..4 {
        restart(&mut first, dir.path(), &to[0], &load);
    }
    load.wait_for(100);
    let answers = load.end();
    // Nobody can tell that a GET was asked twice.
    let tally = tally(&answers);
    assert_eq!(tally.len(), 1, "{tally:?}");
    assert!(tally[&200] >= 900, "{tally:?}");
}

#[test]
fn the_only_server_is_restarted() {
    let dir = files(8);
    let (mut server, url) = serve(dir.path(), &[]);
    let to = address(&url);
    let (_proxy, addr) = proxy(&[&to], &["--passive", "off"]);
    let load = Load::start(&addr, 8, Plan::Get);
    for _ in 0..3 {
        restart(&mut server, dir.path(), &to, &load);
    }
    // All that are asked from now on are answered.
    let recovered = Instant::now();
    load.wait_for(200);
    let answers = load.end();
    let tally = tally(&answers);
    assert!(tally.keys().all(|status| matches!(status, 200 | 502)), "{tally:?}");
    assert!(tally.contains_key(&502) && tally[&200] >= 300, "{tally:?}");
    let after: Vec<_> = answers.iter().filter(|answer| answer.asked >= recovered).collect();
    assert!(after.iter().all(|answer| answer.status == 200), "{after:?}");
    assert!(!after.is_empty());
}

#[test]
fn a_server_is_stopped_and_goes_on() {
    let dir = files(8);
    let (server, url) = serve(dir.path(), &[]);
    let more = ["--passive", "off", "--response-timeout", "300ms", "--connect-timeout", "300ms"];
    let (_proxy, addr) = proxy(&[&address(&url)], &more);
    let load = Load::start(&addr, 8, Plan::Get);
    for _ in 0..2 {
        load.wait_for(100);
        server.signal(Signal::STOP);
        // Each client has at least one request that nobody answers.
        load.wait_for(24);
        server.signal(Signal::CONT);
    }
    let recovered = Instant::now();
    load.wait_for(200);
    let answers = load.end();
    let tally = tally(&answers);
    // An answer that comes too late is nobody's: each has its own text, which the load checks.
    assert!(tally.keys().all(|status| matches!(status, 200 | 504)), "{tally:?}");
    assert!(tally[&504] >= 16 && tally[&200] >= 200, "{tally:?}");
    let after: Vec<_> = answers.iter().filter(|answer| answer.asked >= recovered).collect();
    let late = after.iter().filter(|answer| answer.status != 200).count();
    // The server answers first what it was asked before.
    assert!(late <= 8 && after.len() >= 100, "{late} of {}", after.len());
    assert!(after.iter().rev().take(50).all(|answer| answer.status == 200));
}

#[test]
fn a_stopped_server_is_left_out() {
    let dir = files(8);
    let (server, url) = serve(dir.path(), &[]);
    let (_other, other) = serve(dir.path(), &[]);
    let more = ["--passive", "2/60s", "--response-timeout", "200ms"];
    let (_proxy, addr) = proxy(&[&address(&url), &address(&other)], &more);
    let load = Load::start(&addr, 4, Plan::Get);
    load.wait_for(50);
    server.signal(Signal::STOP);
    load.wait_for(400);
    server.signal(Signal::CONT);
    let answers = load.end();
    let tally = tally(&answers);
    assert!(tally.keys().all(|status| matches!(status, 200 | 504)), "{tally:?}");
    // Those that were there when it stopped, and those that found out: each client asks one at a time.
    assert!((1..=10).contains(&tally[&504]), "{tally:?}");
}

#[test]
fn a_server_has_too_much_to_do() {
    let server = Counting::start(ms(4), true);
    let more = ["--max-requests", "2", "--queue", "6", "--queue-timeout", "2s"];
    let (_proxy, addr) = proxy(&[&server.addr().to_string()], &more);
    let load = Load::start(&addr, 16, Plan::Post);
    while server.counts().len() < 60 {
        load.wait_for(1);
    }
    let answers = load.end();
    let tally = tally(&answers);
    assert!(tally.keys().all(|status| matches!(status, 200 | 503)), "{tally:?}");
    assert!(tally[&503] > 0 && tally[&200] >= 20, "{tally:?}");
    check_counts(&server, &answers);
    assert!(server.most_at_a_time() <= 2, "{} at a time", server.most_at_a_time());
    // Nobody waits any more.
    let load = Load::start(&addr, 2, Plan::Post);
    load.wait_for(50);
    assert_eq!(tally_of(load), [200]);
}

fn tally_of(load: Load) -> Vec<u16> {
    let mut statuses: Vec<u16> = tally(&load.end()).into_keys().collect();
    statuses.sort_unstable();
    statuses
}

/// That each request was done as often as its answer says.
fn check_counts(server: &Counting, answers: &[Answer]) {
    let counts = server.counts();
    for (id, count) in &counts {
        assert!(*count <= 1, "request {id} was done {count} times");
    }
    for answer in answers {
        let count = counts.get(&answer.id).copied().unwrap_or(0);
        match answer.status {
            200 => assert_eq!(count, 1, "{answer:?}"),
            503 => assert_eq!(count, 0, "{answer:?}"),
            _ => assert!(count <= 1, "{answer:?}"),
        }
    }
}

#[test]
fn what_is_not_safe_is_not_done_twice() {
    let server = Counting::start(ms(0), false);
    let (_proxy, addr) = proxy(&[&server.addr().to_string()], &["--passive", "off"]);
    let load = Load::start(&addr, 8, Plan::Post);
    for _ in 0..10 {
        load.wait_for(40);
        // All connections are reset, wherever they are.
        server.crash();
        load.wait_for(10);
        server.come_back();
    }
    load.wait_for(100);
    let answers = load.end();
    let tally = tally(&answers);
    assert!(tally.keys().all(|status| matches!(status, 200 | 502)), "{tally:?}");
    assert!(tally[&200] >= 200, "{tally:?}");
    check_counts(&server, &answers);
}

/// How many descriptors that thread of it has that has the most: a worker, which has its own.
fn descriptors(process: u32) -> u64 {
    let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let tables = threads.map(|thread| thread.unwrap().path().join("fd"));
    tables.map(|table| fs::read_dir(table).unwrap().count() as u64).max().unwrap()
}

/// Clients that are connected already are answered, by way of the few connections that there may be.
#[test]
fn a_proxy_without_descriptors_for_servers() {
    const CLIENTS: usize = 16;
    let server = Counting::start(ms(50), false);
    let (proxy, addr) = proxy(&[&server.addr().to_string()], &["--queue-timeout", "60s"]);
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| TcpStream::connect(&addr).unwrap()).collect();
    let ask = |client: &mut TcpStream| {
        client.write_all(b"GET /0 HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    };
    let answer = |client: &mut TcpStream| {
        client.set_read_timeout(Some(ms(20_000))).unwrap();
        let mut status = [0; 12];
        client.read_exact(&mut status).unwrap();
        assert_eq!(status, *b"HTTP/1.1 200");
    };
    // The last one is accepted, so all are.
    let (last, others) = clients.split_last_mut().unwrap();
    ask(last);
    answer(last);
    let most = Some(descriptors(proxy.child.id()) + 2);
    let limit = Rlimit { current: most, maximum: most };
    prlimit(Some(Pid::from_child(&proxy.child)), Resource::Nofile, limit).unwrap();
    others.iter_mut().for_each(ask);
    others.iter_mut().for_each(answer);
}

#[test]
fn a_proxy_that_is_stopped_finishes_what_it_has() {
    for plan in [Plan::Post, Plan::PostOnce] {
        let server = Counting::start(ms(5), false);
        let (mut proxy, addr) = proxy(&[&server.addr().to_string()], &[]);
        let load = Load::start(&addr, 12, plan);
        load.wait_for(200);
        let stopped = Instant::now();
        proxy.signal(Signal::TERM);
        let status = proxy.child.wait().unwrap();
        assert!(status.success(), "{status}");
        let answers = load.end();
        // Those behind it may have met a closed door.
        let before: Vec<_> = answers.iter().filter(|answer| answer.sent < stopped).collect();
        let lost: Vec<_> = before.iter().filter(|answer| answer.status != 200).collect();
        assert!(lost.is_empty(), "{lost:?} of {}", before.len());
        assert!(before.len() >= 200);
        check_counts(&server, &before.into_iter().cloned().collect::<Vec<_>>());
    }
}

#[test]
fn a_proxy_that_is_stopped_twice_does_not_wait() {
    let server = Counting::start(ms(60_000), false);
    let (mut proxy, addr) = proxy(&[&server.addr().to_string()], &["--grace", "60s"]);
    let load = Load::start(&addr, 1, Plan::PostOnce);
    while server.counts().is_empty() {
        thread::sleep(ms(2));
    }
    proxy.signal(Signal::TERM);
    thread::sleep(ms(50));
    assert!(proxy.child.try_wait().unwrap().is_none(), "it does not wait for what is in flight");
    proxy.signal(Signal::TERM);
    let since = Instant::now();
    proxy.child.wait().unwrap();
    assert!(since.elapsed() < ms(20_000));
    load.end();
}
