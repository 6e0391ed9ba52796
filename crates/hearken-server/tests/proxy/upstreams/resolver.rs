//! Name resolution: shared lookups, caching and limits.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use hearken::EventQueue;
use hearken::timer::Time;
use hearken_server::proxy::balance::{Balancer, Endpoint};
use hearken_server::proxy::config::{Address, Server, Upstreams};
use hearken_server::proxy::resolver::{LookupResult, Lookups, Resolver};
use hearken_server::proxy::servers::{Servers, State};

use super::support::at;
use crate::common::{TEST_TIMEOUT, wait_until};

crate::test_list! {
    resolves_localhost
    addresses_need_no_lookup_request
    caches_addresses_longer_than_errors
    concurrent_lookups_of_a_name_are_shared
    pending_lookups_are_limited
    wakes_workers
    the_first_round_reports_names_without_addresses
    the_first_round_times_out
    names_are_resolved_again
}

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Waits for `count` results at `now`. Returns their tickets with the addresses or the error.
fn answers(
    lookups: &mut Lookups,
    now: Time,
    count: usize,
) -> Vec<(u64, Result<Vec<SocketAddr>, String>)> {
    let mut all = Vec::new();
    wait_until("all lookups are complete", || {
        lookups.take_results(now, |ticket, found| {
            all.push((ticket, found.map(<[_]>::to_vec).map_err(str::to_owned)));
        });
        all.len() >= count
    });
    all.sort_by_key(|answer| answer.0);
    all
}

/// Starts a resolver that records lookups, and finds all names that do not begin with `bad` or `empty`.
fn recording_resolver() -> (Resolver, Arc<Mutex<Vec<String>>>) {
    let requested = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&requested);
    let resolver = Resolver::with_lookup(move |host, port| {
        list.lock().unwrap().push(host.to_owned());
        match host {
            _ if host.starts_with("bad") => Err(io::Error::other("no such name")),
            _ if host.starts_with("empty") => Ok(Vec::new()),
            _ => Ok(vec![SocketAddr::from(([192, 0, 2, 1], port))]),
        }
    });
    (resolver.unwrap(), requested)
}

fn names(hosts: &[(&str, u16)], every: Duration) -> (Upstreams, Arc<Servers>) {
    let servers = hosts
        .iter()
        .map(|&(host, port)| Server::new(Address::Name(host.to_owned(), port)))
        .collect();
    let config = Upstreams { resolve_interval: every, ..Upstreams::new(servers) };
    let servers = Arc::new(Servers::new(&config));
    (config, servers)
}

fn resolves_localhost() {
    let resolver = Resolver::start().unwrap();
    let mut lookups = resolver.lookups();
    assert_eq!(lookups.look_up("localhost", 81, 7, at(0.0)), LookupResult::Pending);
    let answers = answers(&mut lookups, at(0.0), 1);
    let (7, Ok(found)) = &answers[0] else { panic!("{answers:?}") };
    assert!(found.iter().all(|addr| addr.ip().is_loopback() && addr.port() == 81), "{found:?}");
    assert!(matches!(lookups.look_up("LocalHost", 82, 8, at(1.0)), LookupResult::Known(known)
        if known.len() == found.len() && known[0].port() == 82));
}

fn addresses_need_no_lookup_request() {
    let (resolver, requested) = recording_resolver();
    let mut lookups = resolver.lookups();
    for (host, expected) in [("127.0.0.1", "127.0.0.1:8"), ("::1", "[::1]:8"), ("[::1]", "[::1]:8")]
    {
        assert_eq!(lookups.look_up(host, 8, 0, at(0.0)), LookupResult::Known(&[addr(expected)]));
    }
    for host in ["", "a\0b", &"a".repeat(300)] {
        assert!(
            matches!(lookups.look_up(host, 8, 0, at(0.0)), LookupResult::Failed(_)),
            "{host:?}"
        );
    }
    assert!(requested.lock().unwrap().is_empty());
}

fn caches_addresses_longer_than_errors() {
    let (resolver, requested) = recording_resolver();
    let mut lookups = resolver.lookups();
    for host in ["good.example", "bad.example", "empty.example"] {
        assert_eq!(lookups.look_up(host, 80, 0, at(0.0)), LookupResult::Pending);
        answers(&mut lookups, at(0.0), 1);
    }
    let mut ask = |host: &str, now| match lookups.look_up(host, 80, 0, at(now)) {
        LookupResult::Known(found) => Some(Ok(found.to_vec())),
        LookupResult::Failed(reason) => Some(Err(reason.to_owned())),
        LookupResult::Pending => None,
        LookupResult::Busy => panic!("busy"),
    };
    assert_eq!(ask("good.example", 29.0), Some(Ok(vec![addr("192.0.2.1:80")])));
    assert_eq!(
        ask("bad.example", 4.0),
        Some(Err("cannot resolve name 'bad.example': no such name".to_owned()))
    );
    assert_eq!(
        ask("empty.example", 4.0),
        Some(Err("name 'empty.example' has no address".to_owned()))
    );
    assert_eq!(requested.lock().unwrap().len(), 3);
    assert_eq!(ask("bad.example", 6.0), None);
    assert_eq!(ask("good.example", 31.0), None);
}

fn concurrent_lookups_of_a_name_are_shared() {
    // While a name is being looked up, all requests for it wait for the same result, over all workers.
    let (open, gate) = mpsc::sync_channel::<()>(0);
    let (gate, requested) = (Mutex::new(gate), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&requested);
    let resolver = Resolver::with_lookup(move |_, _| {
        count.fetch_add(1, SeqCst);
        let _ = gate.lock().unwrap().recv();
        Ok(vec![addr("192.0.2.1:0")])
    });
    let resolver = resolver.unwrap();
    let (mut one, mut other) = (resolver.lookups(), resolver.lookups());
    for ticket in 0..100 {
        let host = if ticket % 2 == 0 { "a.example" } else { "A.Example" };
        assert_eq!(one.look_up(host, ticket as u16, ticket, at(0.0)), LookupResult::Pending);
        assert_eq!(other.look_up(host, 80, ticket, at(0.0)), LookupResult::Pending);
    }
    open.send(()).unwrap();
    for (ticket, found) in answers(&mut one, at(0.0), 100) {
        assert_eq!(found.unwrap(), [SocketAddr::from(([192, 0, 2, 1], ticket as u16))]);
    }
    assert_eq!(answers(&mut other, at(0.0), 100).len(), 100);
    assert_eq!(requested.load(SeqCst), 1);
}

fn pending_lookups_are_limited() {
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.lock().unwrap();
    let lookup_gate = Arc::clone(&gate);
    let resolver = Resolver::with_lookup(move |_, _| {
        drop(lookup_gate.lock());
        Ok(vec![addr("192.0.2.1:0")])
    });
    let resolver = resolver.unwrap();
    let mut lookups = resolver.lookups();
    let mut requested = 0;
    while lookups.look_up(&format!("n{requested}.example"), 80, requested, at(0.0))
        == LookupResult::Pending
    {
        requested += 1;
        assert!(requested < 1000);
    }
    assert!(requested >= 256, "{requested}");
    // Another request for a pending name needs no lookup, but a ticket.
    let mut more = 0;
    while lookups.look_up("n0.example", 80, 1_000_000 + more, at(0.0)) == LookupResult::Pending {
        more += 1;
        assert!(more < 100_000);
    }
    drop(closed);
    let all = answers(&mut lookups, at(0.0), (requested + more) as usize);
    assert_eq!(all.len(), (requested + more) as usize);
    assert_eq!(lookups.look_up("another.example", 80, 0, at(0.0)), LookupResult::Pending);
}

fn wakes_workers() {
    // A worker that waits for events is woken, even if its waker is added after the result.
    let (resolver, _) = recording_resolver();
    let (_, mut lookups) = (resolver.lookups(), resolver.lookups());
    for early in [true, false] {
        let queue = EventQueue::<()>::new().unwrap();
        let host = if early { "a.example" } else { "b.example" };
        if early {
            resolver.set_waker(1, queue.waker());
        }
        assert_eq!(lookups.look_up(host, 80, 3, at(0.0)), LookupResult::Pending);
        if !early {
            // The result is most likely available by now. Both orders must work.
            thread::sleep(Duration::from_millis(20));
            resolver.set_waker(1, queue.waker());
        }
        let mut got = Vec::new();
        let start = Instant::now();
        while got.is_empty() && start.elapsed() < TEST_TIMEOUT {
            queue.next_events(8, Some(TEST_TIMEOUT)).unwrap();
            lookups.take_results(at(0.0), |ticket, found| got.push((ticket, found.is_ok())));
        }
        assert_eq!(got, [(3, true)]);
    }
}

fn the_first_round_reports_names_without_addresses() {
    let (resolver, requested) = recording_resolver();
    let hosts = [("a.example", 80), ("bad.example", 80), ("A.example", 81), ("empty.example", 82)];
    let (config, servers) = names(&hosts, Duration::ZERO);
    let mut bad = resolver.watch_servers(&config, &servers, TEST_TIMEOUT);
    bad.sort();
    assert_eq!(
        bad,
        ["cannot resolve name 'bad.example': no such name", "name 'empty.example' has no address"]
    );
    let states: Vec<State> = (0..4).map(|server| servers.state(server, at(0.0))).collect();
    assert_eq!(states, [State::Up, State::Down, State::Up, State::Down]);
    assert_eq!(servers.last_failure(1).as_ref(), Some(&bad[0]));
    assert_eq!(requested.lock().unwrap().len(), 3);
    let mut balancer = Balancer::new(&config, Arc::clone(&servers), 0, 1, 1);
    assert_eq!(balancer.next_endpoint(2), Some(Endpoint::Inet(addr("192.0.2.1:81"))));
}

fn the_first_round_times_out() {
    let (keep, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let resolver = Resolver::with_lookup(move |_, _| {
        let _ = gate.lock().unwrap().recv();
        Ok(vec![addr("192.0.2.1:0")])
    });
    let (config, servers) = names(&[("slow.example", 80)], TEST_TIMEOUT);
    let bad =
        resolver.as_ref().unwrap().watch_servers(&config, &servers, Duration::from_millis(10));
    assert!(
        matches!(&bad[..], [reason] if reason.contains("'slow.example' is not resolved")),
        "{bad:?}"
    );
    assert_eq!(servers.state(0, at(0.0)), State::Down);
    drop(keep);
    wait_until("the server is up", || servers.state(0, at(0.0)) == State::Up);
}

fn names_are_resolved_again() {
    // The server has its first address until the test starts counting lookups.
    let round = Arc::new(AtomicUsize::new(0));
    let rounds = Arc::clone(&round);
    let resolver = Resolver::with_lookup(move |_, port| {
        let round = rounds.load(SeqCst);
        if round > 0 {
            rounds.fetch_add(1, SeqCst);
        }
        match round {
            0 => Ok(vec![SocketAddr::from(([192, 0, 2, 1], port))]),
            1..5 => Err(io::Error::other("temporary failure")),
            _ => Ok(vec![SocketAddr::from(([192, 0, 2, 2], port))]),
        }
    });
    let (config, servers) = names(&[("a.example", 80)], Duration::from_millis(2));
    let resolver = resolver.unwrap();
    assert_eq!(resolver.watch_servers(&config, &servers, TEST_TIMEOUT), [""; 0]);
    round.store(1, SeqCst);
    let mut balancer = Balancer::new(&config, Arc::clone(&servers), 0, 1, 1);
    wait_until("the address changes", || {
        assert_eq!(servers.state(0, at(0.0)), State::Up);
        let place = format!("{:?}", balancer.next_endpoint(0));
        assert!(place.contains("192.0.2."), "{place}");
        place.contains("192.0.2.2")
    });
    assert!(servers.last_failure(0).is_some_and(|reason| reason.ends_with("temporary failure")));
    drop(resolver);
    // A lookup in progress may still end.
    let mut last = 0;
    wait_until("lookups have stopped", || {
        thread::sleep(Duration::from_millis(20));
        std::mem::replace(&mut last, round.load(SeqCst)) == round.load(SeqCst)
    });
}
