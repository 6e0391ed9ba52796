//! Passive checks: servers that fail are paused and tried again.

use std::time::Duration;

use hearken_server::proxy::balance::{Balancer, RequestOutcome, Selection, TriedServers};
use hearken_server::proxy::config::{Balance, HashKey};
use hearken_server::proxy::servers::{State, UpstreamCommand};

use super::support::{
    POLICIES, at, even, passive_checks, pick, pick_key, single_worker, tried, weighted,
};

crate::test_list! {
    consecutive_failures_pause_a_server
    servers_are_not_paused_without_passive_checks
    a_paused_server_gets_single_trials_until_one_succeeds
    a_trial_may_succeed_before_it_ends
    dropping_a_worker_ends_its_trial
    a_single_server_is_always_used
    the_server_whose_pause_ends_first_is_used_if_all_are_paused
    backups_are_used_while_others_are_paused
    backups_are_used_after_all_others_were_tried
    slow_start_raises_the_share_gradually
}

/// Fails `times` requests on `server` at `now`.
fn fail(balancer: &mut Balancer, server: usize, now: f64, times: usize) {
    let others: Vec<usize> = (0..64).filter(|&other| other != server).collect();
    for _ in 0..times {
        assert_eq!(balancer.select(at(now), 0, tried(&others)), Selection::Server(server));
        balancer.end_request(server, at(now), RequestOutcome::Failed);
    }
}

/// Returns the servers that get requests.
fn used_servers(balancer: &mut Balancer, now: f64) -> Vec<usize> {
    let mut got: Vec<usize> = (0..200)
        .map(|key| {
            let server = pick_key(balancer, at(now), Balancer::hash(&[key]));
            balancer.end_request(server, at(now), RequestOutcome::Cancelled);
            server
        })
        .collect();
    got.sort_unstable();
    got.dedup();
    got
}

fn consecutive_failures_pause_a_server() {
    for policy in POLICIES {
        let mut config = even(policy, 3);
        config.passive = passive_checks(3, 10);
        let (servers, mut balancer) = single_worker(&config);
        fail(&mut balancer, 1, 0.0, 2);
        balancer.end_request(1, at(0.0), RequestOutcome::Succeeded);
        fail(&mut balancer, 1, 0.0, 2);
        balancer.end_request(1, at(0.0), RequestOutcome::Cancelled);
        assert_eq!(servers.state(1, at(0.0)), State::Up);
        fail(&mut balancer, 1, 0.0, 1);
        assert_eq!(servers.state(1, at(0.0)), State::Paused);
        assert!(!balancer.has_capacity(1) && balancer.has_capacity(0));
        assert_eq!(used_servers(&mut balancer, 9.9), [0, 2]);
        assert_eq!(servers.stats(1).failures, 5);
    }
}

fn servers_are_not_paused_without_passive_checks() {
    let mut config = even(Balance::RoundRobin, 2);
    config.passive = None;
    let (servers, mut balancer) = single_worker(&config);
    fail(&mut balancer, 1, 0.0, 100);
    assert_eq!(servers.state(1, at(0.0)), State::Up);
    assert_eq!(servers.stats(1).failures, 100);
}

fn a_paused_server_gets_single_trials_until_one_succeeds() {
    for policy in POLICIES {
        let mut config = even(policy.clone(), 2);
        config.passive = passive_checks(1, 10);
        let (servers, mut balancer) = single_worker(&config);
        // A key of the first server.
        let key = (0..).find(|&key| {
            let server = pick_key(&mut balancer, at(0.0), key);
            balancer.end_request(server, at(0.0), RequestOutcome::Succeeded);
            server == 0
        });
        let key = key.unwrap();
        fail(&mut balancer, 0, 0.0, 1);
        // The success of a request that began before the pause does not end it.
        balancer.end_request(0, at(1.0), RequestOutcome::Succeeded);
        assert_eq!(pick_key(&mut balancer, at(9.0), key), 1);

        let trial = |balancer: &mut Balancer, now| {
            assert_eq!(pick_key(balancer, at(now), key), 0, "{policy:?}");
            // The trial may take any time.
            assert_eq!(pick_key(balancer, at(now), key), 1);
            assert_eq!(pick_key(balancer, at(now + 100.0), key), 1);
        };
        trial(&mut balancer, 11.0);
        // A cancelled trial is followed by another at once.
        balancer.end_request(0, at(112.0), RequestOutcome::Cancelled);
        trial(&mut balancer, 112.0);
        // A failed trial is followed by another after a pause.
        balancer.end_request(0, at(213.0), RequestOutcome::Failed);
        assert_eq!(pick_key(&mut balancer, at(222.0), key), 1);
        trial(&mut balancer, 224.0);
        assert_eq!(servers.state(0, at(0.0)), State::Paused);
        // A successful trial ends the pause.
        balancer.end_request(0, at(325.0), RequestOutcome::Succeeded);
        assert_eq!(servers.state(0, at(0.0)), State::Up);
        while balancer.in_flight(1) > 0 {
            balancer.end_request(1, at(325.0), RequestOutcome::Cancelled);
        }
        assert_eq!(used_servers(&mut balancer, 325.0), [0, 1]);
    }
}

fn a_trial_may_succeed_before_it_ends() {
    // A tunnel may last for days, so its success is reported before its end.
    let mut config = even(Balance::LeastConnections, 2);
    config.passive = passive_checks(1, 10);
    let (servers, mut balancer) = single_worker(&config);
    fail(&mut balancer, 0, 0.0, 1);
    assert_eq!(pick(&mut balancer, at(11.0)), 0);
    balancer.record_success(0, at(11.0));
    assert_eq!((servers.state(0, at(0.0)), balancer.in_flight(0)), (State::Up, 1));
    // Its later failure counts as a new failure.
    balancer.end_request(0, at(50.0), RequestOutcome::Failed);
    assert_eq!((servers.state(0, at(0.0)), balancer.in_flight(0)), (State::Paused, 0));
    assert_eq!(pick(&mut balancer, at(61.0)), 0);
    assert_eq!(pick(&mut balancer, at(61.0)), 1);
}

fn dropping_a_worker_ends_its_trial() {
    let mut config = even(Balance::RoundRobin, 2);
    config.passive = passive_checks(1, 10);
    let (servers, mut balancer) = single_worker(&config);
    fail(&mut balancer, 0, 0.0, 1);
    let mut other = Balancer::new(&config, servers, 1, 2, 1);
    assert_eq!(pick(&mut balancer, at(11.0)), 0);
    assert_eq!([pick(&mut other, at(11.0)), pick(&mut other, at(11.0))], [1, 1]);
    drop(balancer);
    assert_eq!([pick(&mut other, at(11.0)), pick(&mut other, at(11.0))], [0, 1]);
}

fn a_single_server_is_always_used() {
    for policy in POLICIES {
        let mut config = even(policy, 1);
        config.passive = passive_checks(1, 10);
        let (servers, mut balancer) = single_worker(&config);
        fail(&mut balancer, 0, 0.0, 5);
        assert_eq!(servers.state(0, at(0.0)), State::Paused);
        assert_eq!(pick(&mut balancer, at(1.0)), 0);
        // Any success ends the pause of a single server.
        balancer.end_request(0, at(1.0), RequestOutcome::Succeeded);
        assert_eq!(servers.state(0, at(0.0)), State::Up);
        // The server is used even while a trial is in flight.
        fail(&mut balancer, 0, 1.0, 1);
        assert_eq!([pick(&mut balancer, at(20.0)), pick(&mut balancer, at(20.0))], [0, 0]);
    }
}

fn the_server_whose_pause_ends_first_is_used_if_all_are_paused() {
    for policy in POLICIES {
        let mut config = even(policy, 3);
        config.passive = passive_checks(1, 10);
        let (servers, mut balancer) = single_worker(&config);
        for (server, now) in [(2, 0.0), (0, 1.0), (1, 2.0)] {
            fail(&mut balancer, server, now, 1);
        }
        assert_eq!(used_servers(&mut balancer, 3.0), [2]);
        assert_eq!(balancer.select(at(3.0), 0, tried(&[2])), Selection::Server(0));
        // A server that fails again is replaced by the next.
        balancer.end_request(2, at(3.0), RequestOutcome::Failed);
        assert_eq!(used_servers(&mut balancer, 3.0), [0]);
        // Orders and failed checks exclude servers.
        servers.apply(0, UpstreamCommand::Drain, at(0.0));
        assert_eq!(used_servers(&mut balancer, 3.0), [1]);
        servers.set_down(1, true, at(0.0));
        assert_eq!(used_servers(&mut balancer, 3.0), [2]);
        servers.apply(2, UpstreamCommand::Off, at(0.0));
        assert_eq!(balancer.select(at(3.0), 0, TriedServers::default()), Selection::Down);
    }
}

fn backups_are_used_while_others_are_paused() {
    let mut config = even(Balance::RoundRobin, 3);
    config.servers[2].backup = true;
    config.passive = passive_checks(1, 10);
    let (_, mut balancer) = single_worker(&config);
    assert_eq!(used_servers(&mut balancer, 0.0), [0, 1]);
    fail(&mut balancer, 0, 0.0, 1);
    assert_eq!(used_servers(&mut balancer, 0.0), [1]);
    fail(&mut balancer, 1, 5.0, 1);
    assert_eq!(used_servers(&mut balancer, 5.0), [2]);
    // The first request is a trial. After its success all servers are used.
    assert_eq!(pick(&mut balancer, at(11.0)), 0);
    assert_eq!(pick(&mut balancer, at(11.0)), 2);
    balancer.end_request(0, at(11.0), RequestOutcome::Succeeded);
    assert_eq!(used_servers(&mut balancer, 11.0), [0]);
}

fn backups_are_used_after_all_others_were_tried() {
    let mut config = even(Balance::RoundRobin, 2);
    config.servers[1].backup = true;
    let (_, mut balancer) = single_worker(&config);
    assert_eq!(balancer.select(at(0.0), 0, tried(&[0])), Selection::Server(1));
    assert_eq!(balancer.select(at(0.0), 0, tried(&[0, 1])), Selection::Server(0));
}

fn slow_start_raises_the_share_gradually() {
    for policy in [Balance::RoundRobin, Balance::Hash(HashKey::Client), Balance::RandomTwo] {
        let mut config = weighted(policy.clone(), &[2, 2]);
        config.passive = passive_checks(1, 10);
        config.slow_start = Duration::from_secs(100);
        let (_, mut balancer) = single_worker(&config);
        let share = |balancer: &mut Balancer, now: f64| {
            let mut got = 0;
            for key in 0..2000_u32 {
                let key = Balancer::hash(&key.to_le_bytes());
                let server = pick_key(balancer, at(now), key);
                balancer.end_request(server, at(now), RequestOutcome::Cancelled);
                got += usize::from(server == 0);
            }
            got
        };
        // Slow start does not apply at the start of the process.
        assert!((900..1100).contains(&share(&mut balancer, 0.0)));
        fail(&mut balancer, 0, 0.0, 1);
        let key = (0..).find(|&key| pick_key(&mut balancer, at(10.1), key) == 0);
        assert!(key.is_some());
        balancer.end_request(0, at(11.0), RequestOutcome::Succeeded);

        let shares: Vec<usize> =
            (0..11).map(|tenth| share(&mut balancer, 11.0 + f64::from(tenth) * 10.0)).collect();
        // A tenth of the weight against the full weight is an eleventh of the requests.
        assert!((130..240).contains(&shares[0]), "{policy:?} {shares:?}");
        let slack = if policy == Balance::RandomTwo { 60 } else { 0 };
        assert!(shares.is_sorted_by(|one, next| *one <= next + slack), "{policy:?} {shares:?}");
        assert!((900..1100).contains(&shares[10]), "{policy:?} {shares:?}");
    }
}
