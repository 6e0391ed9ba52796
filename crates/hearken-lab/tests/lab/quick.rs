//! Scheduling, partial results, statistics and export of the quick experiment, with simulated measurements.

use std::sync::atomic::{AtomicBool, Ordering};

use hearken_lab::{
    Executor, LabError, Measurement, NoProgress, Placement, QuickConfig, Report, Settings, Trial,
    UnavailableCounter, Warning, export, quick_with_executor, table,
};
use hearken_load::Errors;

/// Computes measurements, and simulates failures and an interruption.
struct Mock {
    measured: Vec<Trial>,
    fails: fn(&Trial) -> bool,
    stops_at: Option<usize>,
}

impl Executor for Mock {
    fn measure(&mut self, trial: &Trial, stop: &AtomicBool) -> Result<Measurement, LabError> {
        if self.stops_at == Some(trial.order) {
            stop.store(true, Ordering::Relaxed);
            return Err(LabError::Interrupted);
        }
        self.measured.push(trial.clone());
        if (self.fails)(trial) {
            return Err(LabError::Config("a <b>failure</b>".into()));
        }
        Ok(measurement(trial))
    }

    fn unavailable_counters(&self) -> Vec<UnavailableCounter> {
        vec![UnavailableCounter {
            counter: "instructions".into(),
            call: "perf_event_open".into(),
            error: "No such file or directory (os error 2)".into(),
            hint: "No PMU: run on bare metal.".into(),
        }]
    }
}

/// Simulates costs per idle connection for select and poll, and slight variation between repetitions.
fn measurement(trial: &Trial) -> Measurement {
    let per_idle = match trial.mechanism.as_str() {
        "select" => 60.0,
        "poll" => 45.0,
        _ => 0.02,
    };
    let base = 30_000.0 + 700.0 * trial.mechanism.len() as f64;
    let wobble = 1.0 + 0.02 * f64::from(trial.repetition);
    let cpu = (base + per_idle * trial.idle as f64) * wobble;
    let saturated = cpu > 400_000.0;
    Measurement {
        cpu_ns_per_request: Some(cpu),
        cpu_user_ns_per_request: Some(cpu * 0.3),
        cpu_system_ns_per_request: Some(cpu * 0.7),
        cpu_utilisation: 0.1,
        syscalls_per_request: Some(
            if trial.mechanism == "epoll-once" { 4.1 } else { 3.05 } * wobble,
        ),
        context_switches_per_request: Some(1.0),
        rss_start_bytes: 3 << 20,
        rss_bytes: (3 << 20) + trial.idle * 210,
        rss_end_bytes: (3 << 20) + trial.idle * 210,
        rss_per_idle_bytes: (trial.idle > 0).then_some(210.0),
        idle_open: trial.idle,
        scheduled: 2000,
        replies: 2000,
        reply_rate: 2000.0,
        latency_p50_ns: Some(cpu * 2.0),
        latency_p99_ns: Some(cpu * if saturated { 900.0 } else { 9.0 }),
        cpu_wait_ratio: 0.001,
        lateness_p99_ns: 40_000.0,
        errors: Errors { client_timo: u64::from(saturated) * 7, ..Errors::default() },
        saturated,
        ..Measurement::default()
    }
}

fn config() -> QuickConfig {
    QuickConfig {
        executable: "hearken".into(),
        command_line: ["hearken", "lab", "quick", "--out", "a <dir>"].map(String::from).to_vec(),
        version: "0.1.0".into(),
        settings: Settings { idle: vec![0, 1000, 4000, 8000], ..Settings::default() },
    }
}

fn run(config: &QuickConfig, mock: &mut Mock) -> Result<Report, LabError> {
    let placement = Placement { server: vec![0], others: vec![1] };
    quick_with_executor(config, mock, placement, &mut NoProgress, &AtomicBool::new(false))
}

fn mock() -> Mock {
    Mock { measured: Vec::new(), fails: |_| false, stops_at: None }
}

#[test]
fn measures_every_trial_once_in_the_planned_order() {
    let mut mock = mock();
    let report = run(&config(), &mut mock).unwrap();
    assert!(report.complete && report.warnings.is_empty(), "{:?}", report.warnings);
    assert_eq!(mock.measured, hearken_lab::plan(&config().settings));
    assert_eq!((report.samples.len(), report.summary.len()), (60, 20));
    let poll = report.summary.iter().find(|c| c.mechanism == "poll" && c.idle == 8000).unwrap();
    assert_eq!(poll.samples, 3);
    let ratio = poll.cpu_vs_reference.unwrap();
    assert!(ratio.differs() && ratio.ratio > 8.0 && ratio.ratio < 13.0, "{ratio:?}");
}

#[test]
fn json_round_trips() {
    let report = run(&config(), &mut mock()).unwrap();
    let json = export::json(&report);
    let back: Report = serde_json::from_str(&json).unwrap();
    assert!(back == report, "the report changed in a round trip through JSON");
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(value["schema"], "hearken-lab-quick/3");
    assert_eq!(value["complete"], true);
    assert!(value["date"].as_str().unwrap().ends_with('Z'));
    // The measurement is flattened into the sample.
    assert!(value["samples"][0]["mechanism"].is_string());
    assert!(value["samples"][0]["cpu_ns_per_request"].is_f64());
    assert!(value["samples"][0]["instructions_user_per_request"].is_null());
    assert_eq!(value["samples"][0]["errors"]["client-timo"].as_u64().map(|n| n % 7), Some(0));
}

#[test]
fn interrupted_run_yields_a_partial_report() {
    let mut stopped = Mock { stops_at: Some(10), ..mock() };
    let report = run(&config(), &mut stopped).unwrap();
    assert!(!report.complete);
    assert_eq!(report.samples.len(), 10);
    assert!(report.warnings.contains(&Warning::Interrupted { done: 10, planned: 60 }));
    assert!(export::html(&report).contains("Incomplete run"));
    let nothing = run(&config(), &mut Mock { stops_at: Some(0), ..mock() }).unwrap();
    assert!(!nothing.complete && nothing.summary.is_empty());
    // The exporters handle a report without samples.
    assert!(export::figures_svg(&nothing).is_empty());
    assert!(table::text(&nothing).contains("Interrupted after 0 of 60"));
    assert!(export::html(&nothing).ends_with("</html>"));
}

#[test]
fn failing_mechanism_affects_only_its_own_cells() {
    let mut mock = Mock { fails: |c| c.mechanism == "select", ..mock() };
    let report = run(&config(), &mut mock).unwrap();
    assert!(!report.complete);
    assert_eq!((report.samples.len(), report.warnings.len()), (48, 12));
    assert!(report.summary.iter().all(|c| c.mechanism != "select"));
}

#[test]
fn aborts_after_consecutive_failures_with_the_first_error() {
    let mut mock = Mock { fails: |_| true, ..mock() };
    let error = run(&config(), &mut mock).unwrap_err().to_string();
    assert_eq!(mock.measured.len(), 5);
    assert!(error.contains("all 5 measurements failed") && error.contains("failure"), "{error}");
}

#[test]
fn warns_about_disturbed_measurements() {
    struct Disturbed;
    impl Executor for Disturbed {
        fn measure(&mut self, trial: &Trial, _: &AtomicBool) -> Result<Measurement, LabError> {
            let odd = trial.order % 2 == 1;
            Ok(Measurement {
                cpu_wait_ratio: if odd { 0.25 } else { 0.01 },
                lateness_p99_ns: 6e6,
                saturated: odd,
                idle_lost: u64::from(odd && trial.idle > 0) * 3,
                ..measurement(trial)
            })
        }
    }
    let mut config = config();
    config.settings.repetitions = 1;
    config.settings.reference = "absent".into();
    let placement = Placement { server: vec![0], others: vec![1] };
    let stop = AtomicBool::new(false);
    let report =
        quick_with_executor(&config, &mut Disturbed, placement, &mut NoProgress, &stop).unwrap();
    let lost = report.samples.iter().filter(|s| s.order % 2 == 1 && s.idle > 0).count();
    let expected = [
        Warning::FewRepetitions { repetitions: 1 },
        Warning::NoReference { reference: "absent".into() },
        Warning::ProcessorContention { samples: 10, max_wait_ratio: 0.25 },
        Warning::GeneratorLate { samples: 10, max_lateness_p99_ns: 6e6 },
        Warning::IdleLost { samples: lost, connections: 3 * lost as u64 },
    ];
    assert_eq!(report.warnings, expected);
    assert!(report.summary.iter().all(|c| c.cpu_vs_reference.is_none()));
}

#[test]
fn page_is_self_contained_and_escaped() {
    let mut mock = Mock { fails: |c| c.order == 3, ..mock() };
    let page = export::html(&run(&config(), &mut mock).unwrap());
    assert!(page.contains("a &lt;b&gt;failure&lt;/b&gt;") && page.contains("'a &lt;dir&gt;'"));
    assert!(!page.contains("<b>failure") && !page.contains("<script"));
    // The only URL is the name of the SVG namespace.
    let addresses = page.matches("http").count();
    assert_eq!(addresses, page.matches("xmlns=\"http://www.w3.org/2000/svg\"").count());
    assert!(!page.contains("url(") && !page.contains("@import") && !page.contains("src="));
}

#[test]
fn table_lists_notes_and_unavailable_counters() {
    let text = table::text(&run(&config(), &mut mock()).unwrap());
    assert!(text.contains("saturated, 21 errors"), "{text}");
    assert!(text.contains("Not counted: instructions (No such file"), "{text}");
    assert!(!text.lines().next().unwrap().contains("instr/req"), "the table has an empty column");
}

#[test]
fn writes_all_files_atomically() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("new/out");
    let report = run(&config(), &mut mock()).unwrap();
    let written = export::write_all(&report, &out).unwrap();
    let mut names: Vec<_> = std::fs::read_dir(&out)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let expected =
        ["cost.svg", "latency.svg", "memory.svg", "report.html", "results.json", "syscalls.svg"];
    assert_eq!(names, expected);
    assert_eq!(written.len(), expected.len());
    assert_eq!(std::fs::read_to_string(out.join("results.json")).unwrap(), export::json(&report));
    // Overwrites existing files.
    export::write_all(&report, &out).unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = export::write_all(&report, &file).unwrap_err().to_string();
    assert!(error.contains("create the directory"), "{error}");
    if let Ok(keep) = std::env::var("HEARKEN_LAB_SAMPLE_REPORT") {
        export::write_all(&report, keep.as_ref()).unwrap();
    }
}
