//! Concurrent workers with a balancer each.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;

use hearken_server::proxy::balance::{Balancer, RequestOutcome, Selection, TriedServers};
use hearken_server::proxy::servers::{Servers, State, UpstreamCommand};

use super::support::{POLICIES, at, even, passive_checks};

crate::test_list! {
    workers_share_a_single_trial
    concurrent_workers_keep_counters_consistent
}

const WORKERS: usize = 4;
const ROUNDS: usize = 20_000;

fn workers_share_a_single_trial() {
    // At most one trial of a failing server is in flight over all workers. After a success it is used again.
    for policy in POLICIES {
        let mut config = even(policy, 3);
        config.passive = passive_checks(1, 10);
        let servers = Arc::new(Servers::new(&config));
        let (trials, seen) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let mut first = Balancer::new(&config, Arc::clone(&servers), 0, 1, 1);
        // The server fails until it is paused.
        let mut key = 0;
        while servers.state(0, at(0.0)) == State::Up {
            if let Selection::Server(server) = first.select(at(0.0), key, TriedServers::default()) {
                first.end_request(
                    server,
                    at(0.0),
                    if server == 0 { RequestOutcome::Failed } else { RequestOutcome::Succeeded },
                );
            }
            key += 1;
        }
        let key = key - 1;
        drop(first);
        thread::scope(|scope| {
            for worker in 0..WORKERS {
                let servers = Arc::clone(&servers);
                let (config, trials, seen) = (&config, &trials, &seen);
                scope.spawn(move || {
                    let mut balancer = Balancer::new(config, servers, worker, WORKERS, 7);
                    let mut now = 0.0;
                    for _ in 0..ROUNDS {
                        now += 1.0;
                        let picked = balancer.select(at(now), key, TriedServers::default());
                        if let Selection::Server(0) = picked {
                            assert_eq!(trials.fetch_add(1, SeqCst), 0);
                            seen.fetch_add(1, SeqCst);
                            thread::yield_now();
                            trials.fetch_sub(1, SeqCst);
                            balancer.end_request(0, at(now), RequestOutcome::Failed);
                        } else if let Selection::Server(server) = picked {
                            balancer.end_request(server, at(now), RequestOutcome::Succeeded);
                        }
                    }
                });
            }
        });
        assert!(seen.load(SeqCst) > 0);
        assert_eq!(servers.state(0, at(0.0)), State::Paused);
        let mut last = Balancer::new(&config, Arc::clone(&servers), 0, 1, 1);
        let now = at(10.0 * ROUNDS as f64);
        assert_eq!(last.select(now, key, TriedServers::default()), Selection::Server(0));
        last.end_request(0, now, RequestOutcome::Succeeded);
        assert_eq!(servers.state(0, at(0.0)), State::Up);
    }
}

fn concurrent_workers_keep_counters_consistent() {
    // While workers use servers, the servers fail, return, are drained and go down. In the end the counters
    // are correct and all servers are used again.
    let mut config = even(hearken_server::proxy::config::Balance::LeastConnections, 3);
    config.passive = passive_checks(2, 1);
    let servers = Arc::new(Servers::new(&config));
    let done = AtomicBool::new(false);
    let (picked, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        let administrator = scope.spawn(|| {
            while !done.load(SeqCst) {
                for server in 0..3 {
                    servers.apply(server, UpstreamCommand::Off, at(0.0));
                    servers.set_down(server, true, at(0.0));
                    thread::yield_now();
                    servers.apply(server, UpstreamCommand::Ready, at(0.0));
                    servers.set_down(server, false, at(0.0));
                }
            }
        });
        let workers: Vec<_> = (0..WORKERS)
            .map(|worker| {
                let (config, servers) = (&config, Arc::clone(&servers));
                let (picked, failed) = (&picked, &failed);
                scope.spawn(move || {
                    let mut balancer = Balancer::new(config, servers, worker, WORKERS, 7);
                    for round in 0..ROUNDS {
                        let now = at(round as f64 / 10.0);
                        let Selection::Server(server) =
                            balancer.select(now, 0, TriedServers::default())
                        else {
                            continue;
                        };
                        picked.fetch_add(1, SeqCst);
                        if (round + worker) % 3 > 0 {
                            failed.fetch_add(1, SeqCst);
                            balancer.end_request(server, now, RequestOutcome::Failed);
                        } else {
                            balancer.end_request(server, now, RequestOutcome::Succeeded);
                        }
                    }
                })
            })
            .collect();
        for worker in workers {
            worker.join().unwrap();
        }
        done.store(true, SeqCst);
        administrator.join().unwrap();
    });
    let sum = |of: fn(&hearken_server::proxy::servers::ServerStats) -> u64| {
        (0..3).map(|server| of(&servers.stats(server))).sum::<u64>() as usize
    };
    assert_eq!(sum(|figures| figures.requests), picked.into_inner());
    assert_eq!(sum(|figures| figures.failures), failed.into_inner());
    assert_eq!(sum(|figures| figures.in_flight), 0);
    // All servers are used again.
    let mut balancer = Balancer::new(&config, Arc::clone(&servers), 0, 1, 1);
    let now = at(1e6);
    for _ in 0..10 {
        let Selection::Server(server) = balancer.select(now, 0, TriedServers::default()) else {
            panic!()
        };
        balancer.end_request(server, now, RequestOutcome::Succeeded);
    }
    assert!((0..3).all(|server| servers.state(server, at(0.0)) == State::Up), "{servers:?}");
}
