//! The states of servers: names, orders, checks and addresses.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use hearken_server::proxy::balance::{Balancer, Endpoint, RequestOutcome, Selection, TriedServers};
use hearken_server::proxy::config::{Address, Balance, Server, Upstreams};
use hearken_server::proxy::servers::{ServerStats, Servers, State, UpstreamCommand};

use super::support::{at, even, passive_checks, pick, single_worker};

crate::test_list! {
    servers_are_named_by_their_addresses
    unknown_servers_do_not_panic
    drained_and_disabled_servers_get_no_requests
    an_order_ends_a_pause
    servers_that_fail_checks_are_not_used
    names_keep_their_last_addresses
    failed_addresses_are_avoided_for_a_while
    addresses_need_no_lookup
}

fn to(address: Address) -> Upstreams {
    Upstreams::new(vec![Server::new(address)])
}

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn servers_are_named_by_their_addresses() {
    for (address, name, authority) in [
        (Address::Inet(addr("127.0.0.1:9000")), "127.0.0.1:9000", "127.0.0.1:9000"),
        (Address::Inet(addr("127.0.0.1:80")), "127.0.0.1:80", "127.0.0.1"),
        (Address::Inet(addr("[::1]:9000")), "[::1]:9000", "[::1]:9000"),
        (Address::Inet(addr("[::1]:80")), "[::1]:80", "[::1]"),
        (Address::Name("a.example".into(), 80), "a.example:80", "a.example"),
        (Address::Name("a.example".into(), 81), "a.example:81", "a.example:81"),
        (Address::Unix("/run/app".into()), "unix:/run/app", "localhost"),
    ] {
        let servers = Servers::new(&to(address));
        assert_eq!((servers.name(0), servers.authority(0)), (name, authority));
    }
}

fn unknown_servers_do_not_panic() {
    let (servers, mut balancer) = single_worker(&Upstreams::new(Vec::new()));
    assert!(servers.is_empty());
    assert_eq!(balancer.select(at(0.0), 0, TriedServers::default()), Selection::Down);
    balancer.end_request(3, at(0.0), RequestOutcome::Failed);
    balancer.record_connect_failure(3, addr("127.0.0.1:1"));
    assert_eq!(balancer.next_endpoint(3), None);
    servers.apply(3, UpstreamCommand::Off, at(0.0));
    assert_eq!((servers.name(3), servers.state(3, at(0.0))), ("", State::Off));
    assert_eq!((servers.stats(3), servers.last_failure(3)), (ServerStats::default(), None));
}

fn drained_and_disabled_servers_get_no_requests() {
    for (order, state) in
        [(UpstreamCommand::Drain, State::Draining), (UpstreamCommand::Off, State::Off)]
    {
        let (servers, mut balancer) = single_worker(&even(Balance::RoundRobin, 2));
        servers.apply(0, order, at(0.0));
        assert_eq!(servers.state(0, at(0.0)), state);
        assert!((0..5).all(|_| pick(&mut balancer, at(0.0)) == 1));
        servers.apply(1, order, at(0.0));
        assert_eq!(balancer.select(at(0.0), 0, TriedServers::default()), Selection::Down);
        servers.apply(0, UpstreamCommand::Ready, at(0.0));
        assert_eq!(servers.state(0, at(0.0)), State::Up);
        assert_eq!(pick(&mut balancer, at(0.0)), 0);
    }
}

fn an_order_ends_a_pause() {
    let mut config = even(Balance::RoundRobin, 2);
    config.passive = passive_checks(1, 1000);
    let (servers, mut balancer) = single_worker(&config);
    let server = pick(&mut balancer, at(0.0));
    balancer.end_request(server, at(0.0), RequestOutcome::Failed);
    assert_eq!(servers.state(server, at(0.0)), State::Paused);
    servers.apply(server, UpstreamCommand::Ready, at(0.0));
    assert_eq!(servers.state(server, at(0.0)), State::Up);
    assert!((0..2).any(|_| pick(&mut balancer, at(1.0)) == server));
}

fn servers_that_fail_checks_are_not_used() {
    let mut config = even(Balance::RoundRobin, 2);
    config.slow_start = Duration::from_secs(1000);
    config.passive = passive_checks(1, 1000);
    let (servers, mut balancer) = single_worker(&config);
    // A server that is healthy from the start needs no slow start.
    servers.set_down(0, false, at(0.0));
    assert_eq!(servers.state(0, at(0.0)), State::Up);
    let server = pick(&mut balancer, at(0.0));
    balancer.end_request(server, at(0.0), RequestOutcome::Failed);
    for server in 0..2 {
        servers.record_check(server, Err("answered 500".to_owned()));
        servers.set_down(server, true, at(0.0));
        assert_eq!(servers.state(server, at(0.0)), State::Down);
    }
    assert_eq!(balancer.select(at(0.0), 0, TriedServers::default()), Selection::Down);
    assert_eq!(servers.last_failure(0).as_deref(), Some("answered 500"));
    for server in 0..2 {
        servers.record_check(server, Ok(()));
        servers.set_down(server, false, at(0.0));
        assert_eq!(servers.state(server, at(0.0)), State::Starting);
        let ServerStats { checks_ok, checks_failed, .. } = servers.stats(server);
        assert_eq!((checks_ok, checks_failed), (1, 1));
    }
    pick(&mut balancer, at(0.0));
}

fn names_keep_their_last_addresses() {
    let (servers, mut balancer) = single_worker(&to(Address::Name("origin.example".into(), 80)));
    assert_eq!(servers.state(0, at(0.0)), State::Down);
    assert!(servers.last_failure(0).is_some());
    assert_eq!(balancer.select(at(0.0), 0, TriedServers::default()), Selection::Down);
    assert_eq!(balancer.next_endpoint(0), None);

    let [one, two] = [addr("192.0.2.1:80"), addr("192.0.2.2:80")];
    servers.record_resolution(0, Ok(&[one, two]));
    assert_eq!(pick(&mut balancer, at(0.0)), 0);
    for bad in [Ok(&[][..]), Err("no such name".to_owned())] {
        servers.record_resolution(0, bad);
        assert_eq!(servers.state(0, at(0.0)), State::Up);
    }
    assert_eq!(servers.last_failure(0).as_deref(), Some("no such name"));

    let mut next = || balancer.next_endpoint(0);
    assert_eq!([next(), next(), next()], [one, two, one].map(|addr| Some(Endpoint::Inet(addr))));
    let three = addr("192.0.2.3:80");
    servers.record_resolution(0, Ok(&[three]));
    assert_eq!([next(), next()], [three; 2].map(|addr| Some(Endpoint::Inet(addr))));
}

fn failed_addresses_are_avoided_for_a_while() {
    let (servers, mut balancer) = single_worker(&to(Address::Name("origin.example".into(), 80)));
    let addresses = [addr("192.0.2.1:80"), addr("192.0.2.2:80"), addr("192.0.2.3:80")];
    servers.record_resolution(0, Ok(&addresses));
    let got = |balancer: &mut Balancer, now| {
        pick(balancer, at(now));
        let mut got: Vec<_> = (0..6).filter_map(|_| balancer.next_endpoint(0)).collect();
        got.sort_by_key(|place| format!("{place:?}"));
        got.dedup();
        assert_eq!(got.len(), got.iter().filter(|got| matches!(got, Endpoint::Inet(_))).count());
        got.len()
    };
    assert_eq!(got(&mut balancer, 0.0), 3);
    balancer.record_connect_failure(0, addresses[1]);
    assert_eq!(got(&mut balancer, 1.0), 2);
    balancer.record_connect_failure(0, addresses[0]);
    balancer.record_connect_failure(0, addr("192.0.2.77:80"));
    assert_eq!(got(&mut balancer, 1.0), 1);
    balancer.record_connect_failure(0, addresses[2]);
    assert_eq!(got(&mut balancer, 1.0), 3);
    assert_eq!(got(&mut balancer, 12.0), 3);
}

fn addresses_need_no_lookup() {
    let (_, mut balancer) = single_worker(&to(Address::Inet(addr("127.0.0.1:9000"))));
    assert_eq!(balancer.next_endpoint(0), Some(Endpoint::Inet(addr("127.0.0.1:9000"))));
    let (_, mut balancer) = single_worker(&to(Address::Unix("/run/app".into())));
    assert_eq!(balancer.next_endpoint(0), Some(Endpoint::Unix(Path::new("/run/app").into())));
}
