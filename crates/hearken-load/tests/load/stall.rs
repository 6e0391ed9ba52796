//! A server that stalls regularly: the reported percentiles match the calculation.

use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use crate::server::{Behaviour, Server};
use hearken_load::{Arrivals, Config, Objectives, Profile, StopSignal, run};

/// Stalls the server for 40 ms every 200 requests, which is a tenth of the time. Requests that
/// become due during a stall, one every 2 ms, wait for 40, 38, 36 ms and so on. Of each 200
/// requests, ten wait longer than 20 ms, and two longer than 36 ms. These are lower bounds on a
/// machine of any speed.
#[test]
fn percentiles_match_the_calculated_delays() {
    const MS: u64 = 1_000_000;
    let gate = Mutex::new(());
    let server = Server::start(move |number| {
        let _held = gate.lock().unwrap();
        if number % 200 == 100 {
            thread::sleep(Duration::from_millis(40));
        }
        Behaviour::Reply
    });
    let config = Config {
        url: server.url(),
        rate: Profile::constant(500.0),
        duration: Some(Duration::from_secs(2)),
        arrivals: Arrivals::Constant,
        connections: NonZeroUsize::new(2),
        timeout: Duration::from_secs(60),
        ..Config::default()
    };
    let report = run(&config, &mut (), &StopSignal::new()).unwrap();
    assert_eq!((report.requests.scheduled, report.requests.replies), (1_000, 1_000), "{report}");
    // Histograms have three digits.
    let latency = report.latency_ns;
    assert!(latency.p95 >= 20 * MS * 999 / 1000, "{report}");
    assert!(latency.p99 >= 36 * MS * 999 / 1000, "{report}");
    assert!(latency.max >= 40 * MS * 999 / 1000, "{report}");
    // With two connections, all but two of the twenty requests in a stall are sent after it.
    assert!(report.requests.queued >= 5 * 17, "{report}");
    let objectives: Objectives = "p95<19ms,p99<35ms,max<39ms,errors<=0%".parse().unwrap();
    let met: Vec<_> = objectives.evaluate(&report).iter().map(|judged| judged.passed).collect();
    assert_eq!(met, [false, false, false, true], "{report}");
}
