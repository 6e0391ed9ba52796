//! Limits on connections and descriptors.

use hearken_server::Config;
use hearken_server::static_files::SiteConfig;
use std::fs;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use hearken::io::{Spec, find};
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::common::process::{DESCRIPTORS, Process, run_alone};
use crate::common::{
    Client, RunningServer, Setup, Site, TEST_TIMEOUT, get, limit_connections, ms, pattern, request,
    wait_until, workers,
};

pub(crate) fn clients_over_the_connection_limit_wait(setup: &Setup) {
    if !setup.has_one_limit() {
        return;
    }
    let site = Site::new();
    let server = setup.serve(&site, |config| limit_connections(config, 2));
    let [first, second] = [(); 2].map(|()| {
        let client = uploading(server.addr());
        assert!(client.is_readable_within(TEST_TIMEOUT), "no response");
        client
    });
    let third = uploading(server.addr());
    assert!(!third.is_readable_within(ms(50)), "served over the limit");
    drop(first);
    assert!(third.is_readable_within(TEST_TIMEOUT), "not served although a connection has ended");
    let mut fourth = server.client();
    fourth.send(get("/small"));
    assert!(!fourth.is_readable_within(ms(50)), "served over the limit");
    third.reset();
    assert_eq!(fourth.response().status, 200);
    drop(second);
}

/// Connects a client with a request in flight, whose content is missing. The server sends 100
/// (Continue) once it has read the request.
fn uploading(addr: SocketAddr) -> Client {
    let mut client = Client::connect(addr);
    client.send(upload());
    client
}

fn upload() -> Vec<u8> {
    request("POST /small", "Expect: 100-continue\r\nContent-Length: 4\r\n")
}

/// Connects many clients with a request in flight. Returns the number of those that are served.
fn count_served(server: &RunningServer, expected: usize) -> usize {
    let clients: Vec<Client> = (0..expected * 16).map(|_| uploading(server.addr())).collect();
    wait_until("clients up to the limit are served", || served(&clients) >= expected);
    // More would be served by now.
    thread::sleep(ms(50));
    served(&clients)
}

/// Returns the number of clients that have a response.
fn served(clients: &[Client]) -> usize {
    let is_served = |client: &&Client| {
        client.is_readable_within(Duration::ZERO)
            && client.stream.peek(&mut [0]).is_ok_and(|got| got > 0)
    };
    clients.iter().filter(is_served).count()
}

pub(crate) fn the_connection_limit_is_shared_by_workers(setup: &Setup) {
    if setup.has_thread_per_connection() {
        return;
    }
    let site = Site::new();
    let server = setup.serve(&site, |config| {
        config.event_loops.workers = workers(3);
        limit_connections(config, 5);
    });
    let served = count_served(&server, 5);
    assert!((5..=5 + setup.may_exceed_limit(3)).contains(&served), "{served} are served");
}

pub(crate) fn the_connection_limit_may_be_below_the_worker_count(setup: &Setup) {
    let site = Site::new();
    let server = setup.serve(&site, |config| {
        config.event_loops.workers = workers(4);
        limit_connections(config, 2);
    });
    let served = count_served(&server, 2);
    assert!((2..=2 + setup.may_exceed_limit(2)).contains(&served), "{served} are served");
}

pub(crate) fn workers_have_separate_descriptor_tables(setup: &Setup) {
    // Each worker has its own descriptor table, so two workers hold more connections than one.
    if !setup.has_own_tables() {
        return;
    }
    let site = Site::new();
    let mut server = Process::serve(&Setup { workers: 2, ..setup.clone() }, &site);
    // The kernel may assign more clients to a worker than its table holds. These wait.
    let clients: Vec<Client> = (0..200).map(|_| uploading(server.addr())).collect();
    wait_until("more clients are served than one table holds", || {
        served(&clients) >= DESCRIPTORS as usize + 10
    });
    drop(clients);
    // While a table is full, a new connection could be closed for another.
    wait_until("the connections are closed", || {
        server.count_descriptors() <= DESCRIPTORS as usize / 2
    });
    let mut clients: Vec<Client> = (0..10).map(|_| Client::connect(server.addr())).collect();
    for client in &mut clients {
        assert_eq!(client.get("/cached").status, 200);
    }

    // No other table holds a socket that a worker has closed, before and after the stop.
    clients[0].send("GET /small HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    clients[0].response();
    clients[0].assert_closed();
    let addr = server.addr();
    server.stop();
    clients[1..].iter_mut().for_each(Client::assert_closed);
    drop(server);
    assert!(!site.is_served_at(addr));
}

pub(crate) fn closes_idle_connections_at_the_descriptor_limit(setup: &Setup) {
    // At the descriptor limit the server closes idle connections, with and without reserved descriptors.
    let site = Site::new();
    for taken in [0, 22] {
        let server = Process::serve(setup, &site);
        server.limit_descriptors(DESCRIPTORS - taken);
        let mut clients = Vec::new();
        for index in 0..100 {
            let mut client = Client::connect(server.addr());
            client.send(get("/small"));
            assert!(
                client.is_readable_within(ms(5000)),
                "client {index} waits although all others are idle"
            );
            assert_eq!(client.response().status, 200);
            clients.push(client);
        }
        assert_eq!(clients[99].get("/cached").status, 200);
        clients[0].assert_closed();
    }
}

pub(crate) fn keeps_serving_at_the_descriptor_limit(setup: &Setup) {
    // The server reserves descriptors for files, so files can be opened at the connection limit.
    exhaust_descriptors(setup, 0);
}

pub(crate) fn keeps_serving_without_reserved_descriptors(setup: &Setup) {
    // The limit is lowered by the reserve, so accept(2) fails.
    exhaust_descriptors(setup, 22);
}

/// Connects more clients with a request in flight than there are descriptors. The server serves the
/// connected clients, waits without using the CPU, and serves others once these disconnect.
fn exhaust_descriptors(setup: &Setup, taken: u64) {
    if setup.has_thread_per_connection() {
        // The number of threads is limited so that the descriptors suffice.
        return;
    }
    let site = Site::new();
    (0..40).for_each(|index| site.add(&format!("file{index}"), b"small\n"));
    site.add("sent", &pattern()[..1 << 20]);
    let server = Process::serve(setup, &site);
    server.limit_descriptors(DESCRIPTORS - taken);
    let mut clients: Vec<Client> = (0..10).map(|_| Client::connect(server.addr())).collect();
    for (index, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.get("/small").status, 200, "client {index}");
        assert_eq!(client.get("/cached").status, 200, "client {index}");
        assert_eq!(client.get(&format!("/file{index}")).status, 200, "client {index}");
        assert!(client.get("/sent").body == pattern()[..1 << 20], "client {index}");
        let other = index + 20;
        assert_eq!(client.get(&format!("/file{other}")).status, 200, "client {index}");
        client.send(upload());
        assert!(client.is_readable_within(TEST_TIMEOUT), "client {index}");
    }
    let others: Vec<Client> = (0..190).map(|_| uploading(server.addr())).collect();
    let mut last = Client::connect(server.addr());
    last.send(get("/small"));
    assert!(
        !last.is_readable_within(ms(100)),
        "more clients are served than there are descriptors"
    );
    assert!(
        served(&others) < DESCRIPTORS as usize,
        "more clients are served than there are descriptors"
    );

    let table = server.worker_descriptors();
    let free = (0..DESCRIPTORS - taken)
        .find(|fd| fs::symlink_metadata(table.join(fd.to_string())).is_err());
    assert_eq!(free.is_none(), taken > 0, "free descriptor: {free:?}");
    let before = server.cpu_time();
    thread::sleep(ms(300));
    let used = server.cpu_time() - before;
    // Mechanisms that register readable and writable always never rest.
    let never_rests = match find(setup.events).unwrap() {
        Spec::Readiness(spec) => spec.entry.semantics.registers_both,
        Spec::Uring(_) => false,
    };
    assert!(never_rests || used < ms(100), "{used:?} of CPU time in 300 ms of waiting");

    if taken > 0 {
        // No event on a connection notifies the server of the new limit.
        let before = served(&others);
        server.limit_descriptors(DESCRIPTORS);
        wait_until("a client is accepted after the limit is raised", || {
            served(&others) != before || last.is_readable_within(Duration::ZERO)
        });
    }

    drop(others);
    assert_eq!(last.response().status, 200);
    let since = Instant::now();
    assert_eq!(Client::connect(server.addr()).get("/small").status, 200);
    assert!(since.elapsed() < Duration::from_secs(5), "served after {:?}", since.elapsed());
    assert_eq!(served(&clients), 10, "a request in flight was ended");
    let client = &mut clients[0];
    assert_eq!(client.response().status, 100);
    client.send("body");
    assert_eq!(client.response().status, 405);
    assert_eq!(client.get("/file30").status, 200);
}

#[test]
fn a_failing_worker_ends_the_server() {
    // A worker that fails ends the other workers, and its error is reported.
    if !run_alone("descriptors::a_failing_worker_ends_the_server") {
        return;
    }
    // Ends this process if the server hangs.
    thread::spawn(|| {
        thread::sleep(TEST_TIMEOUT);
        std::process::exit(1);
    });
    let site = Site::new();
    let mut config = Config::static_files(SiteConfig::default());
    config.event_loops.listen = ([127, 0, 0, 1], 0).into();
    config.event_loops.events = "poll".to_owned();
    config.event_loops.workers = workers(4);
    config.static_files_mut().unwrap().root = site.root();
    config.event_loops.shutdown_timeout = TEST_TIMEOUT * 2;
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

#[test]
fn reports_the_connection_limit_once() {
    // A limit that keeps a worker from accepting is reported once.
    static REPORTS: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let site = Site::new();
    let mut config = Config::static_files(SiteConfig::default());
    config.event_loops.listen = ([127, 0, 0, 1], 0).into();
    config.event_loops.max_connections = NonZeroUsize::new(2);
    config.event_loops.on_limit = |met| REPORTS.lock().unwrap().push(met.to_string());
    config.static_files_mut().unwrap().root = site.root();
    let server = hearken_server::start(&config).unwrap();
    assert_eq!(server.max_connections(), 2);
    for _ in 0..3 {
        let mut clients = [(); 2].map(|()| Client::connect(server.addr()));
        clients.iter_mut().for_each(|client| drop(client.get("/small")));
    }
    server.handle().stop();
    server.wait().unwrap();
    let reports = REPORTS.lock().unwrap();
    assert_eq!(reports.len(), 1, "{reports:?}");
    assert!(
        reports[0].contains("2 connections") && reports[0].contains("--max-connections"),
        "{reports:?}"
    );
}

#[test]
fn accept_errors_name_the_limit() {
    // An error of accept(2) is reported with the limit that causes it.
    let met = |errno: i32| {
        let error = std::io::Error::from_raw_os_error(errno);
        hearken_server::LimitReached { open: 7, error: Some(&error) }.to_string()
    };
    assert!(met(rustix::io::Errno::MFILE.raw_os_error()).contains("RLIMIT_NOFILE"));
    assert!(met(rustix::io::Errno::NFILE.raw_os_error()).contains("fs.file-max"));
    assert!(met(rustix::io::Errno::NOMEM.raw_os_error()).contains("memory"));
}
