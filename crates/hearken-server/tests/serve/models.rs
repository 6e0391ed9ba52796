//! Server models in which threads share or exchange connections.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::num::NonZeroUsize;
use std::thread;

use hearken_server::{Distribution, Model, StartError, start};

use crate::common::admin::wait_for_metric;
use crate::common::{Client, RunningServer, Setup, Site, get, ms, wait_until, workers};

/// Returns the number of open connections of each worker.
fn loads(server: &RunningServer) -> Vec<u64> {
    let metrics = server.metrics();
    metrics.workers.iter().map(|worker| worker.connections_open.get()).collect()
}

/// Sends requests until no worker has more than 1.25 of its share of the connections: of these clients
/// and of `others`, which stay idle.
fn assert_balanced(server: &RunningServer, clients: &mut [Client], others: usize) {
    let count = clients.len() + others;
    let limit = (count as f64 / server.workers() as f64 * 1.25).ceil() as u64;
    wait_until("the connections are balanced", || {
        for client in &mut *clients {
            assert_eq!(client.get("/small").body, b"small\n");
        }
        let loads = loads(server);
        loads.iter().sum::<u64>() == count as u64 && loads.iter().all(|&load| load <= limit)
    });
}

fn connect(server: &RunningServer, count: usize) -> Vec<Client> {
    let mut clients: Vec<Client> = (0..count).map(|_| server.client()).collect();
    clients.iter_mut().for_each(|client| drop(client.get("/small")));
    clients
}

#[test]
fn connections_are_handed_to_the_loop_with_the_fewest() {
    let site = Site::new();
    let server = Setup::model("hand-over").serve(&site, |config| {
        config.event_loops.workers = workers(3);
    });
    let mut clients = connect(&server, 30);
    wait_until("all connections are counted", || loads(&server) == [10, 10, 10]);
    // The next connections fill the gaps.
    clients.drain(..12);
    wait_until("the connections are closed", || loads(&server).iter().sum::<u64>() == 18);
    clients.extend(connect(&server, 12));
    wait_until("all connections are counted", || loads(&server) == [10, 10, 10]);
}

#[test]
fn connections_migrate_from_overloaded_loops() {
    let site = Site::new();
    let server = Setup::model("migrate").serve(&site, |config| {
        config.event_loops.workers = workers(3);
    });
    // The kernel distributes connections at random.
    let mut clients = connect(&server, 120);
    assert_balanced(&server, &mut clients, 0);
    // After most connections are closed, idle ones migrate.
    for count in [60, 30, 16] {
        let mut number = 0;
        clients.retain(|_| {
            number += 1;
            number % 7 < 4
        });
        clients.truncate(count);
        assert_balanced(&server, &mut clients, 0);
    }
    let accepted: u64 =
        server.metrics().workers.iter().map(|worker| worker.connections_accepted.get()).sum();
    assert_eq!(accepted, 120, "a connection that migrates is counted once");
}

#[test]
fn connections_migrate_around_those_with_http2() {
    let site = Site::new();
    let server = Setup::model("migrate").serve(&site, |_| {});
    // Each worker has idle connections with HTTP/2, which are older than all others.
    let streams: Vec<TcpStream> = (0..20)
        .map(|_| {
            let mut client = TcpStream::connect(server.addr()).unwrap();
            let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
            let head = b"\0\0\x0d\x01\x05\0\0\0\x01\x82\x86\x01\x01a\x04\x06/small";
            client.write_all(&[&hearken_http::h2::PREFACE[..], &settings, head].concat()).unwrap();
            // Its settings.
            client.read_exact(&mut [0; 9]).unwrap();
            client
        })
        .collect();
    let mut clients = connect(&server, 120);
    assert_balanced(&server, &mut clients, streams.len());
    let mut number = 0;
    clients.retain(|_| {
        number += 1;
        number % 7 < 4
    });
    assert_balanced(&server, &mut clients, streams.len());
}

#[test]
fn threads_are_started_on_demand_up_to_their_number() {
    let site = Site::new();
    let server =
        Setup::model("threads").serve(&site, |config| config.event_loops.workers = workers(5));
    assert_eq!((server.workers(), server.max_connections()), (5, 5));
    let used = || loads(&server).iter().filter(|&&load| load > 0).count();
    let clients = connect(&server, 3);
    wait_until("three threads have a connection", || used() == 3);
    drop(clients);
    wait_for_metric(&server, "hearken_connections_open", 0.0);
    // The threads that are free serve the next connections.
    let clients = connect(&server, 3);
    wait_until("three threads have a connection", || used() == 3);
    assert_eq!(loads(&server), [1, 1, 1, 0, 0]);
    drop(clients);
}

#[test]
fn too_many_threads_are_reduced_to_what_the_descriptors_allow() {
    let site = Site::new();
    let server = Setup::model("threads").serve(&site, |config| {
        config.event_loops.workers = NonZeroUsize::new(1_000_000);
    });
    assert!(server.workers() < 1_000_000);
    assert_eq!(server.workers(), server.max_connections());
    assert_eq!(server.client().get("/small").body, b"small\n");
}

#[test]
fn missing_directories_and_unsuitable_mechanisms_are_reported_at_the_start() {
    let site = Site::new();
    for name in ["threads", "pool", "hand-over", "shared", "migrate"] {
        let mut config = Setup::model(name).files_config(&site);
        config.static_files_mut().unwrap().root = site.root().join("missing");
        let error = start(&config).map(drop).unwrap_err();
        assert!(matches!(error, StartError::Handler { .. }), "{name}: {error}");
    }
    let mut config = Setup::model("migrate").files_config(&site);
    config.event_loops.events = "uring".to_owned();
    let error = start(&config).map(drop).unwrap_err().to_string();
    assert!(error.contains("io_uring may be receiving"), "{error}");
    (config.event_loops.model, config.event_loops.distribution) =
        (Model::Hybrid, Distribution::Shared);
    config.event_loops.events = "rt-signal".to_owned();
    let error = start(&config).map(drop).unwrap_err().to_string();
    assert!(error.contains("to one instance only"), "{error}");
}

#[test]
fn a_busy_pool_closes_the_longest_idle_connection_and_queues_the_rest() {
    let site = Site::new();
    let server =
        Setup::model("pool").serve(&site, |config| config.event_loops.workers = workers(2));
    let [mut first, mut second] = [(); 2].map(|()| {
        let mut client = server.client();
        drop(client.get("/small"));
        thread::sleep(ms(20));
        client
    });
    let mut third = server.client();
    assert_eq!(third.get("/small").body, b"small\n");
    first.assert_closed();
    // Now no connection is idle.
    second.send("GET /sma");
    third.send("GET /sma");
    thread::sleep(ms(20));
    let mut fourth = server.client();
    fourth.send(get("/small"));
    assert!(!fourth.is_readable_within(ms(100)), "served beyond the number of threads");
    second.send(&get("/small")["GET /sma".len()..]);
    assert_eq!(second.response().body, b"small\n");
    assert_eq!(fourth.response().body, b"small\n");
    second.assert_closed();
}

#[test]
fn the_metrics_page_has_sums_over_threads() {
    let site = Site::new();
    let server = Setup::model("pool").serve(&site, |config| {
        config.event_loops.workers = workers(8);
    });
    let clients = connect(&server, 4);
    wait_for_metric(&server, "hearken_connections_open", 4.0);
    let mut page = String::new();
    server.metrics().render(&[], &mut page);
    assert!(page.contains("hearken_connections_open{worker=\"all\"} 4\n"), "{page}");
    drop(clients);
    wait_for_metric(&server, "hearken_connections_open", 0.0);
}
