//! The quick experiment with the real executor and fake processes instead of servers and loads.

use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hearken_lab::{LabError, NoProgress, Progress, QuickConfig, Settings, Warning, quick};

fn config(mechanisms: &[&str]) -> QuickConfig {
    QuickConfig {
        executable: Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lab/fake-hearken.sh"),
        command_line: vec!["hearken".into()],
        version: "0.1.0".into(),
        settings: Settings {
            mechanisms: mechanisms.iter().map(|&m| m.into()).collect(),
            idle: vec![0, 2],
            repetitions: 2,
            reference: mechanisms[0].into(),
            ..Settings::default()
        },
    }
}

#[test]
fn measures_with_all_processes() {
    let report = quick(&config(&["fake"]), &mut NoProgress, &AtomicBool::new(false)).unwrap();
    assert!(report.complete, "{:?}", report.warnings);
    assert_eq!(report.samples.len(), 4);
    for sample in &report.samples {
        let m = &sample.measured;
        assert_eq!((m.scheduled, m.replies, m.idle_open), (100, 100, sample.idle));
        // The load ends at once, so its CPU utilisation is not meaningful.
        assert!(m.errors.client_timo == 1 && m.rss_bytes > 0, "{m:?}");
        assert_eq!((m.latency_p50_ns, m.latency_p99_ns), (Some(1000.0), Some(3000.0)));
        assert!(m.cpu_ns_per_request.is_some());
        assert_eq!(m.rss_per_idle_bytes.is_some(), sample.idle > 0);
    }
    // Each missing value is listed once as an unavailable counter.
    let first = &report.samples[0].measured;
    let missing = [
        first.instructions_user_per_request,
        first.instructions_kernel_per_request,
        first.syscalls_per_request,
    ];
    assert_eq!(missing.iter().filter(|v| v.is_none()).count(), report.unavailable_counters.len());
}

#[test]
fn warning_quotes_a_failed_server() {
    let report =
        quick(&config(&["fake", "broken"]), &mut NoProgress, &AtomicBool::new(false)).unwrap();
    assert!(!report.complete);
    assert_eq!(report.samples.len(), 4);
    let quotes = |w: &Warning| w.to_string().contains("no such mechanism: broken");
    assert_eq!(report.warnings.iter().filter(|w| quotes(w)).count(), 4);
}

#[test]
fn error_names_a_missing_program() {
    let config = QuickConfig { executable: "/no/such/hearken".into(), ..config(&["fake"]) };
    let error = quick(&config, &mut NoProgress, &AtomicBool::new(false)).unwrap_err();
    assert!(matches!(error, LabError::AllFailed { .. }));
    assert!(error.to_string().contains("cannot start '/no/such/hearken'"), "{error}");
}

/// Sets the stop flag at the start of the second measurement, as a signal handler would.
struct Interrupt(Arc<AtomicBool>);

impl Progress for Interrupt {
    fn update(&mut self, done: usize, _: usize, _: &dyn Display, _: Duration) {
        self.0.store(done == 1, Ordering::Relaxed);
    }
}

#[test]
fn stop_flag_ends_the_run_with_a_partial_report() {
    let stop = Arc::new(AtomicBool::new(false));
    let report = quick(&config(&["fake"]), &mut Interrupt(Arc::clone(&stop)), &stop).unwrap();
    assert!(!report.complete);
    assert_eq!(report.samples.len(), 1);
    assert!(report.warnings.contains(&Warning::Interrupted { done: 1, planned: 4 }));
}
