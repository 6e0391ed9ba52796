//! Plan, statistics and export of the comparison with other servers, with simulated measurements.

use std::sync::atomic::{AtomicBool, Ordering};

use hearken_lab::peers::{
    Config, Kind, Measurement, Recipe, Report, Settings, Trial, builtin, peers_with_executor, plan,
};
use hearken_lab::{Executor, LabError, NoProgress, Placement, Warning, export, table};

/// Computes measurements, and simulates failures and an interruption.
struct Mock {
    measured: Vec<Trial>,
    fails: fn(&Trial) -> bool,
    stops_at: Option<usize>,
}

impl Executor<Trial, Measurement> for Mock {
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
}

/// Simulates twice the costs of hearken for nginx, and drift between repetitions.
fn measurement(trial: &Trial) -> Measurement {
    let server = match trial.server.as_str() {
        "hearken" => 5_000.0,
        "nginx" => 10_000.0,
        _ => 7_000.0,
    };
    let drift = f64::from(1 + trial.repetition);
    let cpu = server * drift * if trial.workload == "1m" { 40.0 } else { 1.0 };
    Measurement {
        requests: 1000,
        cpu_ns_per_request: Some(cpu),
        syscalls_per_request: Some(server / 2_000.0),
        idle_connections: trial.idle,
        rss_per_idle_bytes: (trial.idle > 0).then_some(server / 10.0),
        rss_per_unused_bytes: (trial.idle > 0).then_some(server / 20.0),
        latency_p50_ns: Some(90_000.0),
        latency_p99_ns: Some(900_000.0),
        ..Measurement::default()
    }
}

fn mock() -> Mock {
    Mock { measured: Vec::new(), fails: |_| false, stops_at: None }
}

fn config() -> Config {
    let servers = ["hearken", "nginx", "haproxy", "floor-close"].map(String::from).to_vec();
    Config {
        executable: "hearken".into(),
        command_line: ["hearken", "lab", "peers", "--out", "a <dir>"].map(String::from).to_vec(),
        version: "0.1.0".into(),
        recipes: builtin(Kind::Server).unwrap(),
        origin: None,
        settings: Settings { servers, repetitions: 3, ..Settings::default() },
    }
}

fn run(config: &Config, mock: &mut Mock) -> Result<Report, LabError> {
    let placement = Placement { server: vec![0], others: vec![1] };
    peers_with_executor(config, mock, placement, &mut NoProgress, &AtomicBool::new(false))
}

#[test]
fn shuffles_sessions_within_each_repetition() {
    let config = config();
    let trials = plan(&config.settings, &config.recipes);
    assert!(trials.iter().enumerate().all(|(order, trial)| trial.order == order));
    // hearken and nginx support five workloads, haproxy three, floor-close one and no idle connections.
    assert_eq!(trials.len(), 3 * (2 * 2 * 5 + 2 * 3 + 1));
    let repetitions: Vec<u32> = trials.iter().map(|trial| trial.repetition).collect();
    assert!(repetitions.is_sorted());
    let of_one: Vec<_> = trials.iter().filter(|trial| trial.repetition == 0).collect();
    let session = |trial: &Trial| (trial.server.clone(), trial.idle);
    let mut sessions: Vec<_> = of_one.iter().map(|trial| session(trial)).collect();
    sessions.dedup();
    // A session covers all workloads of a server.
    assert_eq!(sessions.len(), 7);
    let mut others: Vec<_> =
        trials.iter().filter(|trial| trial.repetition == 1).map(session).collect();
    others.dedup();
    assert_ne!(sessions, others, "two repetitions have the same order");
    let settings = Settings { seed: 2, ..config.settings.clone() };
    assert_ne!(plan(&settings, &config.recipes), trials);
}

#[test]
fn ratios_are_paired_and_have_both_directions() {
    let report = run(&config(), &mut mock()).unwrap();
    assert!(report.complete && report.warnings.is_empty(), "{:?}", report.warnings);
    let matches = |c: &&hearken_lab::peers::Cell| {
        c.server == "nginx" && c.workload == "1b" && c.idle == 10_000
    };
    let cell = report.summary.iter().find(matches).unwrap();
    // The cost differs threefold between repetitions, but the ratio is constant.
    let cpu = cell.cpu_ns.unwrap();
    assert!(cpu.max / cpu.min > 2.9);
    let to = cell.cpu_vs_reference.this_to_reference.unwrap();
    let of = cell.cpu_vs_reference.reference_to_this.unwrap();
    assert!((to.ratio - 2.0).abs() < 1e-9 && to.high.unwrap() - to.low.unwrap() < 1e-9);
    assert!((of.ratio - 0.5).abs() < 1e-9 && of.differs());
    let rss = cell.rss_per_idle_vs_reference.reference_to_this.unwrap();
    assert!((rss.ratio - 0.5).abs() < 1e-9);
    assert!((cell.cpu_vs_no_idle.unwrap().ratio - 1.0).abs() < 1e-9);
    let own = report.summary.iter().find(|c| c.server == "hearken").unwrap();
    assert!(own.cpu_vs_reference.this_to_reference.is_none() && own.cpu_vs_no_idle.is_none());
}

/// Proxies have their own workloads and are not compared with servers.
#[test]
fn proxies_have_their_own_workloads() {
    let servers = ["hearken", "nginx", "haproxy"].map(String::from).to_vec();
    let settings = Settings { servers, repetitions: 3, ..Settings::default().proxies() };
    assert_eq!(settings.idle, [0, 2000, 10_000]);
    let recipes = builtin(Kind::Proxy).unwrap();
    let config = Config { settings, recipes, ..config() };
    let trials = plan(&config.settings, &config.recipes);
    assert_eq!(trials.len(), 3 * 3 * 3 * 3);
    assert!(trials.iter().all(|trial| trial.workload.contains("proxied")));
    let report = run(&config, &mut mock()).unwrap();
    let matches = |c: &&hearken_lab::peers::Cell| c.server == "nginx" && c.idle == 10_000;
    let unused = report.summary.iter().find(matches).unwrap().rss_per_unused_vs_reference;
    assert!((unused.reference_to_this.unwrap().ratio - 0.5).abs() < 1e-9);
    let text = table::text(&report);
    let head = text.lines().next().unwrap();
    assert!(head.contains("proxy") && head.contains("B/unused"), "{text}");
    let page = export::html(&report);
    assert!(
        page.contains("Cost per request by proxy") && !page.contains("processes of the server")
    );
    let wrong = Settings { workloads: vec!["1b".into()], ..config.settings };
    let error = wrong.check().unwrap_err().to_string();
    assert!(error.contains("1b") && error.contains("1k-proxied-close"), "{error}");
}

#[test]
fn json_round_trips() {
    let report = run(&config(), &mut mock()).unwrap();
    let json = export::json(&report);
    let back: Report = serde_json::from_str(&json).unwrap();
    assert!(back == report, "the report changed in a round trip through JSON");
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(value["schema"], "hearken-lab-peers/2");
    assert_eq!(value["settings"]["planned"], report.samples.len());
    assert!(value["samples"][0]["workload"].is_string());
    assert!(value["samples"][0]["instructions_user_per_request"].is_null());
}

#[test]
fn failing_server_affects_only_its_own_cells() {
    let mut mock = Mock { fails: |c| c.server == "nginx" && c.idle > 0, ..mock() };
    let report = run(&config(), &mut mock).unwrap();
    assert!(!report.complete);
    assert_eq!(report.warnings.len(), 3 * 5);
    assert!(
        matches!(&report.warnings[0], Warning::ServerMeasurementFailed { server, .. } if server == "nginx")
    );
    assert!(report.summary.iter().all(|c| c.server != "nginx" || c.idle == 0));
    let page = export::html(&report);
    assert!(page.contains("Incomplete run") && page.contains("a &lt;b&gt;failure&lt;/b&gt;"));
    assert!(!page.contains("<b>failure") && !page.contains("<script"));
}

#[test]
fn interrupted_run_yields_a_partial_report() {
    let report = run(&config(), &mut Mock { stops_at: Some(10), ..mock() }).unwrap();
    assert_eq!((report.complete, report.samples.len()), (false, 10));
    let nothing = run(&config(), &mut Mock { stops_at: Some(0), ..mock() }).unwrap();
    assert!(export::figures_svg(&nothing).is_empty() && nothing.summary.is_empty());
    assert!(export::html(&nothing).ends_with("</html>"));
}

#[test]
fn table_page_and_figures_show_every_server() {
    let report = run(&config(), &mut mock()).unwrap();
    let text = table::text(&report);
    assert!(text.lines().next().unwrap().contains("this ÷ hearken"), "{text}");
    assert!(!text.lines().next().unwrap().contains("instr"), "the table has an empty column");
    assert!(text.contains("1b, 10,000 idle") && text.contains("2.00×"), "{text}");
    let figures = export::figures_svg(&report);
    let names: Vec<_> = figures.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["cost", "syscalls", "memory", "latency"]);
    let page = export::html(&report);
    for server in &report.settings.servers {
        assert!(page.contains(server.as_str()) && figures[0].1.contains(server.as_str()));
    }
    // floor-close does not support idle connections, so it is not in the memory figure.
    assert!(!figures[2].1.contains("floor-close"));
    if let Ok(keep) = std::env::var("HEARKEN_LAB_SAMPLE_REPORT") {
        export::write_all(&report, format!("{keep}-peers").as_ref()).unwrap();
    }
}

/// Checks that a report from an emulated machine has no times and names the emulator.
#[test]
fn emulated_run_reports_instructions_instead_of_times() {
    struct Emulated(Mock);
    impl Executor<Trial, Measurement> for Emulated {
        fn measure(&mut self, trial: &Trial, stop: &AtomicBool) -> Result<Measurement, LabError> {
            let m = self.0.measure(trial, stop)?;
            let (instructions_emulated_per_request, cpu_ns_per_request) =
                (m.cpu_ns_per_request, None);
            Ok(Measurement { instructions_emulated_per_request, cpu_ns_per_request, ..m })
        }
    }
    let mut config = config();
    config.settings = config.settings.emulated("an <emulator> 1.0".into());
    assert!(config.settings.check().is_ok() && config.settings.latency_s == 0.0);
    let placement = Placement { server: vec![0], others: vec![0] };
    let mut executor = Emulated(mock());
    let stop = AtomicBool::new(false);
    let report =
        peers_with_executor(&config, &mut executor, placement, &mut NoProgress, &stop).unwrap();
    let matches = |c: &&hearken_lab::peers::Cell| c.server == "nginx" && c.workload == "1b";
    let cell = report.summary.iter().find(matches).unwrap();
    assert!(cell.cpu_ns.is_none() && cell.cpu_vs_reference.this_to_reference.is_none());
    assert!((cell.instructions_vs_reference.this_to_reference.unwrap().ratio - 2.0).abs() < 1e-9);
    let text = table::text(&report);
    let head = text.lines().next().unwrap();
    assert!(head.contains("instr/req (emulated)") && !head.contains("CPU"), "{text}");
    assert!(text.contains("an <emulator> 1.0"), "{text}");
    let page = export::html(&report);
    assert!(page.contains("an &lt;emulator&gt; 1.0") && page.contains("per request, emulated"));
    assert!(!page.contains("measures CPU time"));
}

#[test]
fn rejects_invalid_settings() {
    let fine = config().settings;
    assert!(fine.check().is_ok());
    let short = Settings { servers: fine.servers.clone(), ..Settings::short() };
    assert!(short.check().is_ok());
    for (wrong, named) in [
        (Settings { servers: vec![], ..fine.clone() }, "server"),
        (Settings { workloads: vec!["2b".into()], ..fine.clone() }, "2b"),
        (Settings { workloads: vec![], ..fine.clone() }, "workload"),
        (Settings { idle: vec![], ..fine.clone() }, "idle"),
        (Settings { repetitions: 0, ..fine.clone() }, "repetition"),
        (Settings { requests: 0, ..fine.clone() }, "requests"),
        (Settings { latency_s: -1.0, ..fine.clone() }, "latency"),
    ] {
        let error = wrong.check().unwrap_err().to_string();
        assert!(error.contains(named), "{error}");
    }
}

#[test]
fn reads_a_recipe_with_its_extra_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mine.toml");
    std::fs::write(&path, "name = \"mine\"\ncommand = [\"mine\"]\nextra_files = [\"mine.c\"]")
        .unwrap();
    let error = Recipe::read(&path).unwrap_err().to_string();
    assert!(error.contains("mine.toml") && error.contains("mine.c"), "{error}");
    std::fs::write(dir.path().join("mine.c"), "int main;").unwrap();
    assert_eq!(Recipe::read(&path).unwrap().name, "mine");
    let error = Recipe::read(&dir.path().join("none")).unwrap_err().to_string();
    assert!(error.contains("cannot read"), "{error}");
}
