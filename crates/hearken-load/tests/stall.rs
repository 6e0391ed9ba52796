//! A server that stalls now and then: what the report says is what arithmetic says.

mod server;

use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use hearken_load::{Arrivals, Config, Objectives, Profile, Stop, run};
use server::{Act, Server};

/// Every 200 requests, 400 ms apart, the server stalls for 40 ms, a tenth of the time. Those who come
/// in it, one every 2 ms, wait for 40, 38, 36 ms and so on: of each 200, ten wait for more than 20 ms,
/// and two for more than 36 ms. No reply can come sooner than that, however slow this machine is.
#[test]
fn the_percentiles_of_a_server_that_stalls_are_those_of_arithmetic() {
    const MS: u64 = 1_000_000;
    let gate = Mutex::new(());
    let server = Server::start(move |number| {
        let _held = gate.lock().unwrap();
        if number % 200 == 100 {
            thread::sleep(Duration::from_millis(40));
        }
        Act::Reply
    });
    let config = Config {
        url: server.url(),
        rate: Profile::constant(500.0),
        duration: Some(Duration::from_secs(2)),
        arrivals: Arrivals::Constant,
        connections: NonZeroUsize::new(2).unwrap(),
        timeout: Duration::from_secs(60),
        ..Config::default()
    };
    let report = run(&config, &mut (), &Stop::new()).unwrap();
    assert_eq!((report.requests.intended, report.requests.replies), (1_000, 1_000), "{report}");
    // To three digits.
    let latency = report.latency_ns;
    assert!(latency.p95 >= 20 * MS * 999 / 1000, "{report}");
    assert!(latency.p99 >= 36 * MS * 999 / 1000, "{report}");
    assert!(latency.max >= 40 * MS * 999 / 1000, "{report}");
    // Two connections: of the twenty that come in a stall, all but two are sent after it.
    assert!(report.requests.waited >= 5 * 17, "{report}");
    let objectives: Objectives = "p95<19ms,p99<35ms,max<39ms,errors<=0%".parse().unwrap();
    let met: Vec<_> = objectives.judge(&report).iter().map(|judged| judged.met).collect();
    assert_eq!(met, [false, false, false, true], "{report}");
}
