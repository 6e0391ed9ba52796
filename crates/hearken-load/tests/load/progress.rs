//! The order of progress callbacks.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hearken_load::{Config, Progress, Snapshot, StopSignal};

#[derive(Default)]
struct RecordedCalls {
    calls: Vec<&'static str>,
    /// Number of requests that the server has processed.
    seen: Arc<AtomicU64>,
    at_the_end: u64,
}

impl Progress for RecordedCalls {
    fn on_prepared(&mut self) {
        self.calls.push("prepared");
    }

    fn on_finished(&mut self) {
        self.calls.push("over");
        self.at_the_end = self.seen.load(Ordering::SeqCst);
    }

    fn on_interval(&mut self, so_far: &Snapshot) {
        if !so_far.elapsed.is_zero() {
            self.calls.push("tick");
        }
    }
}

#[test]
fn the_end_is_reported_once_after_the_last_reply() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", server.local_addr().unwrap());
    let seen = Arc::new(AtomicU64::new(0));
    let counted = seen.clone();
    std::thread::spawn(move || {
        while let Ok((mut peer, _)) = server.accept() {
            let seen = counted.clone();
            std::thread::spawn(move || {
                while peer.read(&mut [0; 1024]).is_ok_and(|count| count > 0) {
                    // The last requests are in flight when the last interval ends.
                    std::thread::sleep(Duration::from_millis(30));
                    seen.fetch_add(1, Ordering::SeqCst);
                    let _ = peer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
                }
            });
        }
    });
    let mut recorded = RecordedCalls { seen, ..RecordedCalls::default() };
    let config = Config {
        url,
        rate: "200".parse().unwrap(),
        duration: Some(Duration::from_millis(300)),
        connections: NonZeroUsize::new(20),
        threads: NonZeroUsize::new(2).unwrap(),
        report_interval: Duration::from_millis(100),
        ..Config::default()
    };
    let report = hearken_load::run(&config, &mut recorded, &StopSignal::new()).unwrap();
    assert_eq!(report.requests.replies, report.requests.scheduled);
    assert_eq!(recorded.at_the_end, report.requests.replies);
    assert_eq!((recorded.calls.first(), recorded.calls.last()), (Some(&"prepared"), Some(&"over")));
    assert_eq!(recorded.calls.iter().filter(|call| **call == "over").count(), 1);
    assert!(recorded.calls.contains(&"tick"), "{:?}", recorded.calls);
}
