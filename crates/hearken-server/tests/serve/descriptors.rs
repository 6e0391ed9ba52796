//! Limits on connections, and a process without descriptors.

use hearken_server::Config;
use hearken_server::static_files::SiteConfig;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use hearken::io::{Spec, find};
use rustix::process::{Resource, Rlimit, prlimit, setrlimit};

use crate::support::{
    Client, HANG, Running, Site, Way, get, limit_connections, ms, pattern, request, workers,
};

pub(crate) fn beyond_the_limit_they_wait(way: &Way) {
    let site = Site::new();
    let server = way.serve(&site, |config| limit_connections(config, 2));
    let [first, second] = [(); 2].map(|()| {
        let client = uploading(server.addr());
        assert!(client.hears(HANG), "no response");
        client
    });
    let third = uploading(server.addr());
    assert!(!third.hears(ms(50)), "served beyond the limit");
    drop(first);
    assert!(third.hears(HANG), "not served though a connection has ended");
    let mut fourth = server.connect();
    fourth.send(get("/small"));
    assert!(!fourth.hears(ms(50)), "served beyond the limit");
    third.reset();
    assert_eq!(fourth.answer().status, 200);
    drop(second);
}

/// A client that owes the server the content of its request: its connection is not idle. Once the
/// request is read, there is a 100.
fn uploading(addr: SocketAddr) -> Client {
    let mut client = Client::connect(addr);
    client.send(upload());
    client
}

fn upload() -> Vec<u8> {
    request("POST /small", "Expect: 100-continue\r\nContent-Length: 4\r\n")
}

/// How many of many clients are served at once. All of them stay.
fn served_at_once(server: &Running, expected: usize) -> usize {
    let clients: Vec<Client> = (0..expected * 16).map(|_| uploading(server.addr())).collect();
    let since = Instant::now();
    while served(&clients) < expected && since.elapsed() < HANG {
        thread::sleep(ms(5));
    }
    thread::sleep(ms(100));
    served(&clients)
}

/// How many of these have a response.
fn served(clients: &[Client]) -> usize {
    let is_served = |client: &&Client| {
        client.hears(Duration::ZERO) && client.stream.peek(&mut [0]).is_ok_and(|got| got > 0)
    };
    clients.iter().filter(is_served).count()
}

pub(crate) fn the_limit_is_over_all_workers(way: &Way) {
    let site = Site::new();
    let server = way.serve(&site, |config| {
        config.loops.workers = workers(3);
        limit_connections(config, 5);
    });
    assert_eq!(served_at_once(&server, 5), 5);
}

pub(crate) fn fewer_connections_than_workers(way: &Way) {
    let site = Site::new();
    let server = way.serve(&site, |config| {
        config.loops.workers = workers(4);
        limit_connections(config, 2);
    });
    assert_eq!(served_at_once(&server, 2), 2);
}

/// Each worker has a table of its own, so that two hold more than one does.
pub(crate) fn more_than_one_table_holds(way: &Way) {
    if find(way.events).unwrap().needs_privileges() {
        return; // One table for all.
    }
    let site = Site::new();
    let mut server = Process::start_with(way, &site, |command| command.env(WORKERS, "2"));
    // What the kernel deals to one may be more than it has room for: that waits.
    let clients: Vec<Client> = (0..200).map(|_| uploading(server.addr)).collect();
    let since = Instant::now();
    let held = LIMIT as usize + 10;
    while served(&clients) < held && since.elapsed() < HANG {
        thread::sleep(ms(5));
    }
    assert!(served(&clients) >= held, "{} of {held}", served(&clients));
    drop(clients);
    // While a table is full, a connection without a request makes room for another.
    while server.descriptors() > LIMIT as usize / 2 && since.elapsed() < HANG {
        thread::sleep(ms(5));
    }
    let mut clients: Vec<Client> = (0..10).map(|_| Client::connect(server.addr)).collect();
    for client in &mut clients {
        assert_eq!(client.get("/cached").status, 200);
    }

    // Nobody else holds what a worker closes, and nothing is left of it at the end.
    clients[0].send("GET /small HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    clients[0].answer();
    clients[0].ends();
    let addr = server.addr;
    drop(server.child.stdin.take());
    clients[1..].iter_mut().for_each(Client::ends);
    drop(server);
    assert!(!site.is_served_at(addr));
}

/// At the descriptor limit idle connections make room: with descriptors kept back for files, and
/// without.
pub(crate) fn idle_connections_make_room_in_a_full_table(way: &Way) {
    let site = Site::new();
    for taken in [0, 22] {
        let server = Process::start_with(way, &site, |command| command);
        server.limit(LIMIT - taken);
        let mut clients = Vec::new();
        for index in 0..100 {
            let mut client = Client::connect(server.addr);
            client.send(get("/small"));
            assert!(client.hears(ms(5000)), "client {index} waits while all others are idle");
            assert_eq!(client.answer().status, 200);
            clients.push(client);
        }
        assert_eq!(clients[99].get("/cached").status, 200);
        clients[0].ends();
    }
}

const LIMIT: u64 = 64;

/// The server keeps some descriptors back for files, so it never runs out.
pub(crate) fn without_descriptors(way: &Way) {
    flood(way, 0);
}

/// The limit is lowered by what it kept back, so it does.
pub(crate) fn without_a_reserve(way: &Way) {
    flood(way, 22);
}

/// More clients with a request in flight than there are descriptors: connected clients are served,
/// the server rests, and once they are gone others are served.
fn flood(way: &Way, taken: u64) {
    let site = Site::new();
    (0..40).for_each(|index| site.add(&format!("file{index}"), b"small\n"));
    site.add("sent", &pattern()[..1 << 20]);
    let server = Process::start_with(way, &site, |command| command);
    server.limit(LIMIT - taken);
    let mut clients: Vec<Client> = (0..10).map(|_| Client::connect(server.addr)).collect();
    for (index, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.get("/small").status, 200, "client {index}");
        assert_eq!(client.get("/cached").status, 200, "client {index}");
        assert_eq!(client.get(&format!("/file{index}")).status, 200, "client {index}");
        assert!(client.get("/sent").body == pattern()[..1 << 20], "client {index}");
        let other = index + 20;
        assert_eq!(client.get(&format!("/file{other}")).status, 200, "client {index}");
        client.send(upload());
        assert!(client.hears(HANG), "client {index}");
    }
    let others: Vec<Client> = (0..190).map(|_| uploading(server.addr)).collect();
    let mut last = Client::connect(server.addr);
    last.send(get("/small"));
    assert!(!last.hears(ms(100)), "there are more descriptors than expected");
    assert!(served(&others) < LIMIT as usize, "there are more descriptors than expected");

    let table = server.table();
    let room =
        (0..LIMIT - taken).find(|fd| fs::symlink_metadata(table.join(fd.to_string())).is_err());
    assert_eq!(room.is_none(), taken > 0, "descriptor {room:?} is free");
    let before = server.cpu_time();
    thread::sleep(ms(500));
    let used = server.cpu_time() - before;
    // But for mechanisms that never rest.
    let restless = match find(way.events).unwrap() {
        Spec::Readiness(spec) => spec.entry.semantics.registers_both,
        Spec::Uring(_) => false,
    };
    assert!(restless || used < ms(150), "{used:?} of CPU time in 500 ms of waiting");

    if taken > 0 {
        // No connection tells the server of it.
        let before = served(&others);
        server.limit(LIMIT);
        let since = Instant::now();
        while served(&others) == before && !last.hears(Duration::ZERO) {
            assert!(since.elapsed() < HANG, "descriptors are free, and nobody is accepted");
            thread::sleep(ms(5));
        }
    }

    drop(others);
    assert_eq!(last.answer().status, 200);
    let since = Instant::now();
    assert_eq!(Client::connect(server.addr).get("/small").status, 200);
    assert!(since.elapsed() < Duration::from_secs(5), "served after {:?}", since.elapsed());
    assert_eq!(served(&clients), 10, "a request in flight was ended");
    let client = &mut clients[0];
    assert_eq!(client.answer().status, 100);
    client.send("body");
    assert_eq!(client.answer().status, 405);
    assert_eq!(client.get("/file30").status, 200);
}

/// A server in a process of its own, which is this test binary once more.
struct Process {
    child: Child,
    addr: SocketAddr,
}

/// This test binary once more, running what is a test only there.
fn run_only(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(ALONE, test);
    command
}

/// Whether this process was started to run a test alone.
fn is_alone() -> bool {
    std::env::var_os(ALONE).is_some()
}

const ALONE: &str = "HEARKEN_TEST_ALONE";
const EVENTS: &str = "HEARKEN_TEST_EVENTS";
const ROOT: &str = "HEARKEN_TEST_ROOT";
const WORKERS: &str = "HEARKEN_TEST_WORKERS";

impl Process {
    fn start_with(
        way: &Way,
        site: &Site,
        with: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Process {
        let mut command = run_only("descriptors::child");
        command.env(EVENTS, way.events).env(ROOT, site.root());
        let mut child =
            with(&mut command).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let addr = loop {
            let line = lines.next().expect("the child ended").unwrap();
            if let Some(addr) = line.split("listening on ").nth(1) {
                break addr.parse().unwrap();
            }
        };
        // The rest of what the harness prints.
        thread::spawn(move || lines.for_each(drop));
        Process { child, addr }
    }

    /// Sets how many descriptors it may have in a table from now on.
    fn limit(&self, current: u64) {
        let pid = rustix::process::Pid::from_child(&self.child);
        let limit = Rlimit { current: Some(current), maximum: Some(LIMIT) };
        prlimit(Some(pid), Resource::Nofile, limit).unwrap();
    }

    /// The worker's descriptors.
    fn table(&self) -> PathBuf {
        let mut threads = fs::read_dir(self.proc("task")).unwrap().map(|of| of.unwrap().path());
        let is_worker = |of: &PathBuf| fs::read_to_string(of.join("comm")).unwrap() == "worker-0\n";
        threads.find(is_worker).unwrap().join("fd")
    }

    /// The descriptors of the thread that has most.
    fn descriptors(&self) -> usize {
        let threads = fs::read_dir(self.proc("task")).unwrap();
        let tables = threads.filter_map(|thread| fs::read_dir(thread.ok()?.path().join("fd")).ok());
        tables.map(Iterator::count).max().unwrap_or(0)
    }

    fn proc(&self, file: &str) -> String {
        format!("/proc/{}/{file}", self.child.id())
    }

    /// What it has used of the CPU: proc(5), `utime` and `stime`, in hundredths of a second.
    fn cpu_time(&self) -> Duration {
        let stat = fs::read_to_string(self.proc("stat")).unwrap();
        let (_, fields) = stat.rsplit_once(')').unwrap();
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let ticks = |index: usize| fields[index].parse::<u64>().unwrap();
        ms(10 * (ticks(11) + ticks(12)))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // At the end of its input it stops, and tells whether it ended well.
        drop(self.child.stdin.take());
        let status = self.child.wait().unwrap();
        if !thread::panicking() {
            assert!(status.success(), "the child failed: {status}");
        }
    }
}

/// Not a test by itself: what [`Process`] runs.
#[test]
fn child() {
    if !is_alone() {
        return;
    }
    let limit = Rlimit { current: Some(LIMIT), maximum: Some(LIMIT) };
    setrlimit(Resource::Nofile, limit).unwrap();
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<usize>().unwrap());
    let mut config = Config::static_files(SiteConfig::default());
    config.loops.listen = ([127, 0, 0, 1], 0).into();
    config.loops.events = std::env::var(EVENTS).unwrap();
    config.loops.workers = workers(number(WORKERS).unwrap_or(1));
    config.site().unwrap().root = std::env::var_os(ROOT).unwrap().into();
    let server = hearken_server::start(&config).unwrap();
    println!("listening on {}", server.addr());
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    server.stopper().stop();
    server.wait().unwrap();
}

/// A worker that fails takes the others with it, and it is told.
#[test]
fn a_failure_ends_all() {
    if !is_alone() {
        let status = run_only("descriptors::a_failure_ends_all").stdout(Stdio::null()).status();
        return assert!(status.unwrap().success());
    }
    // It is not to be waited for, if it should hang.
    thread::spawn(|| {
        thread::sleep(HANG);
        std::process::exit(1);
    });
    let site = Site::new();
    let mut config = Config::static_files(SiteConfig::default());
    config.loops.listen = ([127, 0, 0, 1], 0).into();
    config.loops.events = "poll".to_owned();
    config.loops.workers = workers(4);
    config.site().unwrap().root = site.root();
    config.loops.grace = HANG * 2;
    let server = hearken_server::start(&config).unwrap();
    let mut client = Client::connect(server.addr());
    client.get("/small");
    // poll(2): EINVAL, "the nfds value exceeds the RLIMIT_NOFILE value".
    let limit = rustix::process::getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(2), ..limit }).unwrap();
    client.send(get("/small"));
    let failed = server.wait().unwrap_err();
    assert_eq!(failed.kind(), std::io::ErrorKind::InvalidInput, "{failed}");
    setrlimit(Resource::Nofile, limit).unwrap();
}

/// A limit that keeps a worker from accepting is reported once.
#[test]
fn reports_a_limit_once() {
    static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let site = Site::new();
    let mut config = Config::static_files(SiteConfig::default());
    config.loops.listen = ([127, 0, 0, 1], 0).into();
    config.loops.max_connections = NonZeroUsize::new(2);
    config.loops.on_limit = |met| TOLD.lock().unwrap().push(met.to_string());
    config.site().unwrap().root = site.root();
    let server = hearken_server::start(&config).unwrap();
    assert_eq!(server.connections(), 2);
    for _ in 0..3 {
        let mut clients = [(); 2].map(|()| Client::connect(server.addr()));
        clients.iter_mut().for_each(|client| drop(client.get("/small")));
    }
    server.stopper().stop();
    server.wait().unwrap();
    let told = TOLD.lock().unwrap();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("2 connections") && told[0].contains("--max-connections"), "{told:?}");
}

/// An error of accept(2) is reported with the limit that causes it.
#[test]
fn accept_errors_name_the_limit() {
    let met = |errno: i32| {
        let error = std::io::Error::from_raw_os_error(errno);
        hearken_server::LimitReached { open: 7, error: Some(&error) }.to_string()
    };
    assert!(met(rustix::io::Errno::MFILE.raw_os_error()).contains("RLIMIT_NOFILE"));
    assert!(met(rustix::io::Errno::NFILE.raw_os_error()).contains("fs.file-max"));
    assert!(met(rustix::io::Errno::NOMEM.raw_os_error()).contains("memory"));
}
