//! A proxy that is out of descriptors does not blame its servers. In a process of its own, as the limit
//! is the process's.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hearken_server::proxy::config::{Active, Address, Server, Upstreams};
use hearken_server::proxy::health::Checker;
use hearken_server::proxy::servers::{Servers, State};
use rustix::process::{Resource, Rlimit, setrlimit};

fn until(what: &str, happens: impl Fn() -> bool) {
    let start = Instant::now();
    while !happens() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn out_of_descriptors() {
    // It is not there: the connection waits to be accepted, and then there is no answer.
    let origin = TcpListener::bind("127.0.0.1:0").unwrap();
    let active = Active {
        every: Duration::from_millis(5),
        timeout: Duration::from_millis(20),
        ..Active::default()
    };
    let server = Server::new(Address::Inet(origin.local_addr().unwrap()));
    let config = Upstreams { active: Some(active), ..Upstreams::new(vec![server]) };
    let servers = Arc::new(Servers::new(&config));
    let limit =
        |most| setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum: Some(4096) });
    // Room for no socket beside the two that stop the checker.
    let next = std::os::fd::AsRawFd::as_raw_fd(&origin.try_clone().unwrap()) as u64;
    limit(next + 2).unwrap();
    let _checker = Checker::start(&config, Arc::clone(&servers)).unwrap();
    until("it is not told", || {
        servers.last_failure(0).is_some_and(|reason| {
            assert_eq!(reason, "cannot be checked: socket: Too many open files (os error 24)");
            true
        })
    });
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(servers.figures(0).checks_failed, 0);
    assert_eq!(servers.state(0), State::Up);
    limit(1024).unwrap();
    until("it is not asked", || servers.figures(0).checks_failed > 0);
    assert_eq!(servers.last_failure(0).as_deref(), Some("no answer within 20ms"));
}
