//! Models of the state that workers share, checked by loom: `scripts/loom`.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::Ordering::AcqRel;
use std::time::Duration;

use hearken::timer::Time;
use loom::thread;

use super::*;
use crate::proxy::config::{Address, PassiveChecks, Server};

const NOW: Time = Time::from_nanos(1_000);

/// Creates the state of one server that `max_fails` failures pause.
fn servers(max_fails: u32) -> Arc<Servers> {
    let mut upstreams =
        Upstreams::new(vec![Server::new(Address::Inet(([127, 0, 0, 1], 80).into()))]);
    upstreams.passive = Some(PassiveChecks {
        max_fails: NonZeroU32::new(max_fails).unwrap(),
        fail_timeout: Duration::from_nanos(10),
    });
    Arc::new(Servers::new(&upstreams))
}

/// Asserts that a success ends the pause: see `ServerState::failures`.
fn assert_recovers(servers: &Servers) {
    let shared = &servers.servers[0];
    // In loom, only an exchange is sure to read the last value.
    let paused = shared.paused_until.fetch_or(0, AcqRel) != 0;
    let failures = shared.failures.fetch_or(0, AcqRel);
    assert!(!paused || failures != 0, "a success would not be noticed");
    let later = Time::from_nanos(1_000_000);
    servers.record_success(0, later, true);
    assert_eq!(servers.state(0, later), State::Up);
}

#[test]
fn a_server_whose_failure_and_success_race_can_recover() {
    for max_fails in [1, 2] {
        loom::model(move || {
            let servers = servers(max_fails);
            if max_fails == 2 {
                servers.record_failure(0, NOW, true);
            }
            let failing = Arc::clone(&servers);
            let failure = thread::spawn(move || failing.record_failure(0, NOW, true));
            servers.record_success(0, NOW, true);
            failure.join().unwrap();
            assert_recovers(&servers);
        });
    }
}

#[test]
fn a_server_whose_failure_and_health_check_race_can_recover() {
    loom::model(|| {
        let servers = servers(1);
        servers.set_down(0, true, NOW);
        let failing = Arc::clone(&servers);
        let failure = thread::spawn(move || failing.record_failure(0, NOW, true));
        servers.set_down(0, false, NOW);
        failure.join().unwrap();
        assert_recovers(&servers);
    });
}

#[test]
fn one_trial_is_in_flight_at_a_time() {
    loom::model(|| {
        let servers = servers(1);
        servers.record_failure(0, NOW, true);
        let later = Time::from_nanos(2_000);
        let other = Arc::clone(&servers);
        let trial = thread::spawn(move || other.begin_trial(0, later));
        let own = servers.begin_trial(0, later);
        let trial = trial.join().unwrap();
        assert!(own != trial, "{own} {trial}");
        servers.record_success(0, later, true);
        servers.end_trial(0);
        assert!(!servers.begin_trial(0, later));
        assert!(!servers.servers[0].trial.load(Relaxed));
    });
}

// A balancer that sees a version also sees the change that it stands for.
#[test]
fn a_new_version_shows_the_change() {
    loom::model(|| {
        let servers = servers(1);
        let before = servers.version();
        let changing = Arc::clone(&servers);
        let change = thread::spawn(move || changing.set_down(0, true, NOW));
        if servers.version() != before {
            servers.synchronise();
            assert!(!servers.condition(0).is_available);
        }
        change.join().unwrap();
    });
}
