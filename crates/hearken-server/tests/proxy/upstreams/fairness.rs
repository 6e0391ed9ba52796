//! The guarantees of the balancing policies.

use std::num::NonZeroUsize;
use std::sync::Arc;

use hearken_server::proxy::balance::{Balancer, RequestOutcome, Selection, TriedServers};
use hearken_server::proxy::config::{Balance, HashKey};
use hearken_server::proxy::servers::{Servers, UpstreamCommand};
use proptest::prelude::*;

use super::support::{POLICIES, at, even, pick, pick_key, single_worker, tried, weighted};

crate::test_list! {
    round_robin_has_no_bursts
    workers_start_at_different_servers
    least_connections_respects_weights
    ties_of_idle_servers_rotate
    keys_are_spread_by_weight
    hashing_is_independent_of_the_configured_order
    servers_of_one_name_share_keys
    full_servers_are_skipped_except_by_hash
    the_request_limit_is_divided_among_workers
    tried_servers_are_skipped_until_all_were_tried
    round_robin_follows_weights_over_a_cycle
    removing_a_server_moves_only_its_keys
    random_two_never_selects_the_busiest_server
    counts_requests_in_flight
    different_keys_have_different_hashes
}

const HASH: Balance = Balance::Hash(HashKey::Target);

fn round_robin_has_no_bursts() {
    // The order that nginx documents for the weights 5, 1 and 1.
    let (_, mut balancer) = single_worker(&weighted(Balance::RoundRobin, &[5, 1, 1]));
    let order: Vec<usize> = (0..7).map(|_| pick(&mut balancer, at(0.0))).collect();
    assert_eq!(order, [0, 0, 1, 0, 2, 0, 0]);
}

fn workers_start_at_different_servers() {
    for weights in [[1, 1, 1, 1], [1, 2, 3, 4]] {
        let config = weighted(Balance::RoundRobin, &weights);
        let servers = Arc::new(Servers::new(&config));
        let mut got = [0; 4];
        for worker in 0..10 {
            let mut balancer = Balancer::new(&config, Arc::clone(&servers), worker, 10, 1);
            got[pick(&mut balancer, at(0.0))] += 1;
        }
        assert!(got.iter().all(|&got| got <= 5), "{got:?}");
        assert!(got.iter().filter(|&&got| got > 0).count() >= 3, "{got:?}");
    }
}

fn least_connections_respects_weights() {
    let (_, mut balancer) = single_worker(&weighted(Balance::LeastConnections, &[1, 3]));
    for _ in 0..40 {
        pick(&mut balancer, at(0.0));
    }
    assert_eq!([balancer.in_flight(0), balancer.in_flight(1)], [10, 30]);
    for _ in 0..8 {
        balancer.end_request(0, at(0.0), RequestOutcome::Succeeded);
    }
    assert!((0..8).all(|_| pick(&mut balancer, at(0.0)) == 0));
}

fn ties_of_idle_servers_rotate() {
    let (_, mut balancer) = single_worker(&even(Balance::LeastConnections, 3));
    let mut order = Vec::new();
    for _ in 0..9 {
        let server = pick(&mut balancer, at(0.0));
        balancer.end_request(server, at(0.0), RequestOutcome::Succeeded);
        order.push(server);
    }
    assert_eq!(order, [0, 1, 2, 0, 1, 2, 0, 1, 2]);
}

fn keys_are_spread_by_weight() {
    let (_, mut balancer) = single_worker(&weighted(HASH, &[1, 2, 5]));
    let mut got = [0; 3];
    for key in 0..8000_u32 {
        let key = Balancer::hash(format!("/item/{key}").as_bytes());
        got[pick_key(&mut balancer, at(0.0), key)] += 1;
    }
    for (got, expected) in got.into_iter().zip([1000, 2000, 5000]) {
        assert!((expected - 150..expected + 150).contains(&got), "{got} for {expected}");
    }
}

fn hashing_is_independent_of_the_configured_order() {
    let config = weighted(HASH, &[1, 2, 3, 1]);
    let mut turned = config.clone();
    turned.servers.rotate_left(1);
    let ((_, mut one), (_, mut other)) = (single_worker(&config), single_worker(&turned));
    for key in 0..500 {
        let expected = pick_key(&mut one, at(0.0), key);
        assert_eq!((pick_key(&mut other, at(0.0), key) + 1) % 4, expected);
    }
}

fn servers_of_one_name_share_keys() {
    let mut config = even(HASH, 2);
    config.servers[1] = config.servers[0].clone();
    let (_, mut balancer) = single_worker(&config);
    let second = (0..1000).filter(|&key| pick_key(&mut balancer, at(0.0), key) == 1).count();
    assert!((400..600).contains(&second), "{second}");
}

fn full_servers_are_skipped_except_by_hash() {
    for policy in POLICIES {
        let mut config = even(policy.clone(), 2);
        config.max_requests = NonZeroUsize::new(1);
        let (_, mut balancer) = single_worker(&config);
        let first = pick(&mut balancer, at(0.0));
        if policy == HASH {
            assert_eq!(balancer.select(at(0.0), 0, TriedServers::default()), Selection::Full);
        } else {
            assert_eq!(pick(&mut balancer, at(0.0)), 1 - first);
        }
        assert!(!balancer.has_capacity(first));
        balancer.end_request(first, at(0.0), RequestOutcome::Cancelled);
        assert!(balancer.has_capacity(first));
        assert_eq!(pick(&mut balancer, at(0.0)), first);
    }
}

fn the_request_limit_is_divided_among_workers() {
    for (workers, max, expected) in [(3, 8, 8), (3, 2, 3), (1, 5, 5)] {
        let mut config = even(Balance::RoundRobin, 1);
        config.max_requests = NonZeroUsize::new(max);
        let servers = Arc::new(Servers::new(&config));
        let mut got = 0;
        // Requests count until their balancer is dropped.
        let mut balancers = Vec::new();
        for worker in 0..workers {
            let mut balancer = Balancer::new(&config, Arc::clone(&servers), worker, workers, 1);
            while balancer.select(at(0.0), 0, TriedServers::default()) != Selection::Full {
                got += 1;
            }
            balancers.push(balancer);
        }
        assert_eq!(got, expected);
        assert_eq!(servers.stats(0).in_flight, expected as u64);
    }
}

fn tried_servers_are_skipped_until_all_were_tried() {
    for policy in POLICIES {
        let (servers, mut balancer) = single_worker(&even(policy, 3));
        for key in 0..50 {
            for left in 0..3 {
                let others: Vec<usize> = (0..3).filter(|&server| server != left).collect();
                assert_eq!(balancer.select(at(0.0), key, tried(&others)), Selection::Server(left));
            }
            assert!(matches!(
                balancer.select(at(0.0), key, tried(&[0, 1, 2])),
                Selection::Server(_)
            ));
        }
        let retries: u64 = (0..3).map(|server| servers.stats(server).retries).sum();
        assert_eq!(retries, 200);
    }
}

proptest! {
    fn round_robin_follows_weights_over_a_cycle(
        weights in prop::collection::vec(1_u16..20, 1..12),
        start in 0_usize..300,
    ) {
        // In any cycle, each server gets as many requests as its weight.
        let (_, mut balancer) = single_worker(&weighted(Balance::RoundRobin, &weights));
        for _ in 0..start {
            pick(&mut balancer, at(0.0));
        }
        let total: u32 = weights.iter().map(|&weight| u32::from(weight)).sum();
        let mut got = vec![0; weights.len()];
        for _ in 0..total {
            got[pick(&mut balancer, at(0.0))] += 1;
        }
        prop_assert_eq!(got, weights);
    }

    fn removing_a_server_moves_only_its_keys(
        weights in prop::collection::vec(1_u16..5, 2..9),
        leaves in any::<prop::sample::Index>(),
        keys in prop::collection::vec(any::<u64>(), 200),
    ) {
        // Only the keys of a removed server move, and they return with it.
        let (servers, mut balancer) = single_worker(&weighted(HASH, &weights));
        let leaves = leaves.index(weights.len());
        let mut all = |servers: &Servers, order| {
            servers.apply(leaves, order, at(0.0));
            keys.iter().map(|&key| pick_key(&mut balancer, at(0.0), key)).collect::<Vec<_>>()
        };
        let before = all(&servers, UpstreamCommand::Ready);
        let without = all(&servers, UpstreamCommand::Off);
        for (&before, &without) in before.iter().zip(&without) {
            prop_assert!(without != leaves && (before == without || before == leaves));
        }
        prop_assert_eq!(all(&servers, UpstreamCommand::Ready), before);
    }

    fn random_two_never_selects_the_busiest_server(
        weights in prop::collection::vec(1_u16..5, 2..6),
        ends in prop::collection::vec(any::<prop::sample::Index>(), 0..200),
    ) {
        // The selected server is never busier than all others.
        let (_, mut balancer) = single_worker(&weighted(Balance::RandomTwo, &weights));
        let load = |balancer: &Balancer, server: usize| {
            balancer.in_flight(server) as f64 / f64::from(weights[server])
        };
        for end in ends {
            let loads: Vec<f64> = (0..weights.len()).map(|s| load(&balancer, s)).collect();
            let got = pick(&mut balancer, at(0.0));
            let others = loads.iter().enumerate().filter(|other| other.0 != got);
            prop_assert!(others.map(|other| *other.1).fold(0.0, f64::max) >= loads[got]);
            balancer.end_request(end.index(weights.len()), at(0.0), RequestOutcome::Succeeded);
        }
    }

    fn counts_requests_in_flight(
        policy in prop::sample::select(POLICIES.to_vec()),
        weights in prop::collection::vec(1_u16..5, 1..6),
        max in 1_usize..5,
        steps in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>(), any::<u64>()), 300),
    ) {
        // The counters match a model, no server exceeds its limit, and `Full` means that all are full.
        let mut config = weighted(policy.clone(), &weights);
        config.max_requests = NonZeroUsize::new(max);
        let (servers, mut balancer) = single_worker(&config);
        let mut model = vec![0_usize; weights.len()];
        for (begins, index, bits) in steps {
            if begins {
                let tried = tried(&[bits as usize % 7]);
                match balancer.select(at(0.0), bits, tried) {
                    Selection::Server(server) => model[server] += 1,
                    Selection::Full => {
                        let full = |(server, &count): (usize, &usize)| {
                            count == max || (weights.len() > 1 && tried.contains(server))
                        };
                        let all = model.iter().enumerate().all(full);
                        prop_assert!(all || policy == HASH && model.contains(&max));
                    }
                    Selection::Down => prop_assert!(false),
                }
            } else {
                // Ending a request that has not begun has no effect.
                let server = index.index(weights.len());
                balancer.end_request(server, at(0.0), RequestOutcome::Cancelled);
                model[server] = model[server].saturating_sub(1);
            }
            for (server, &count) in model.iter().enumerate() {
                prop_assert!(count <= max);
                prop_assert_eq!(balancer.in_flight(server), count);
                prop_assert_eq!(servers.stats(server).in_flight, count as u64);
            }
        }
    }

    fn different_keys_have_different_hashes(bytes in prop::collection::vec(any::<u8>(), 0..40), at in any::<prop::sample::Index>()) {
        // A difference in any byte changes the key.
        let key = Balancer::hash(&bytes);
        let mut longer = bytes.clone();
        longer.push(0);
        prop_assert_ne!(Balancer::hash(&longer), key);
        if !bytes.is_empty() {
            let mut other = bytes.clone();
            other[at.index(bytes.len())] ^= 1;
            let differs = (Balancer::hash(&other) ^ key).count_ones();
            prop_assert!((8..57).contains(&differs), "{} bits", differs);
        }
    }
}
