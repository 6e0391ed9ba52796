//! Health checks at the descriptor limit, in a process of its own.

use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::thread;

use hearken::timer::Time;
use hearken_server::proxy::config::{Address, HealthCheck, Server, Upstreams};
use hearken_server::proxy::health::HealthChecker;
use hearken_server::proxy::servers::{Servers, State};
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::common::process::run_alone;
use crate::common::{ms, wait_until};

crate::test_list! {
    checks_without_descriptors_are_not_failures
}

fn checks_without_descriptors_are_not_failures() {
    if !run_alone("upstreams::descriptors::checks_without_descriptors_are_not_failures") {
        return;
    }
    // It accepts no connection, so checks time out.
    let origin = TcpListener::bind("127.0.0.1:0").unwrap();
    let active = HealthCheck { interval: ms(5), timeout: ms(20), ..HealthCheck::default() };
    let server = Server::new(Address::Inet(origin.local_addr().unwrap()));
    let config = Upstreams { health: Some(active), ..Upstreams::new(vec![server]) };
    let servers = Arc::new(Servers::new(&config));
    let set_limit = |current| {
        setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum: Some(4096) })
            .unwrap();
    };
    // Leaves descriptors for the two sockets that stop the checker, and for no other.
    let next = origin.try_clone().unwrap().as_raw_fd() as u64;
    set_limit(next + 2);
    let _checker = HealthChecker::start(&config, Arc::clone(&servers), Arc::default(), 1).unwrap();
    wait_until("the missing descriptor is reported", || {
        servers.last_failure(0).is_some_and(|reason| {
            assert_eq!(
                reason,
                "cannot perform the check: socket: Too many open files (os error 24)"
            );
            true
        })
    });
    // Several checks are due in this time.
    thread::sleep(ms(50));
    assert_eq!(servers.stats(0).checks_failed, 0);
    assert_eq!(servers.state(0, Time::now()), State::Up);
    set_limit(1024);
    wait_until("a check fails", || servers.stats(0).checks_failed > 0);
    assert_eq!(servers.last_failure(0).as_deref(), Some("no response within 20ms"));
}
