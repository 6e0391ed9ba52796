//! Plan, journal, statistics and export of runs, with simulated measurements.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use hearken_lab::compare::{Relation, compare_results};
use hearken_lab::journal::{FILE, Header, Journal};
use hearken_lab::{
    Checks, LabError, Measured, Precision, Recipe, Report, Trial, Warning, export, parse_duration,
    plan,
};

use crate::simulated::{Simulated, config, experiment, planned, run, run_trials, run_with_journal};

/// Simulates costs per idle connection for select and poll, and drift between repetitions.
fn measure(trial: &Trial) -> Result<Measured, LabError> {
    let idle: f64 = trial.cell.values["idle"].parse().unwrap();
    let per_idle = match trial.cell.server.as_str() {
        "select" => 60.0,
        "poll" => 45.0,
        _ => 0.0,
    };
    let cpu = (30_000.0 + per_idle * idle) * f64::from(1 + trial.repetition);
    let server = trial.cell.server.len() as f64;
    let metrics = [
        ("cpu_ns", cpu),
        ("rss_bytes", 3e6 + 210.0 * idle),
        ("rss_per_idle_bytes", server),
        ("rss_per_unused_bytes", server / 2.0),
        ("latency_p50_ns", cpu * 2.0),
        ("latency_p99_ns", cpu * 9.0),
    ];
    let saturated = cpu > 400_000.0;
    let checks = Checks { saturated, errors: u64::from(saturated) * 7, ..Checks::default() };
    let metrics = metrics.map(|(name, value)| (name.to_owned(), value)).into();
    Ok(Measured { metrics, checks })
}

fn quick() -> hearken_lab::RunConfig {
    config(vec![planned(experiment("quick"))])
}

#[test]
fn sessions_are_shuffled_within_each_repetition() {
    let config = config(vec![planned(experiment("peers")), planned(experiment("quick"))]);
    let trials = plan(&config.experiments, 1, &|_, _| true);
    assert!(trials.iter().enumerate().all(|(order, trial)| trial.order == order));
    assert!(trials.iter().map(|trial| trial.repetition).is_sorted());
    let first: Vec<&Trial> = trials.iter().filter(|trial| trial.repetition == 0).collect();
    // In peers, a session covers all workloads of a server. Sessions of the two experiments alternate.
    let peers = |trial: &&&Trial| trial.experiment == "peers";
    let sessions: BTreeSet<usize> = first.iter().filter(peers).map(|t| t.session).collect();
    let cells: BTreeSet<_> =
        first.iter().filter(peers).map(|t| (&t.cell.server, &t.cell.values["idle"])).collect();
    assert_eq!(sessions.len(), cells.len());
    assert!(trials.windows(2).all(|pair| pair[0].session <= pair[1].session));
    let experiments: Vec<&str> = first.iter().map(|trial| trial.experiment.as_str()).collect();
    assert!(experiments.windows(2).filter(|pair| pair[0] != pair[1]).count() > 4);
    let order = |repetition: u32| {
        let own = trials.iter().filter(move |trial| trial.repetition == repetition);
        own.map(|trial| &trial.cell).collect::<Vec<_>>()
    };
    assert_ne!(order(0), order(1), "two repetitions have the same order");
    assert_ne!(plan(&config.experiments, 2, &|_, _| true), trials);
}

#[test]
fn ratios_are_paired() {
    let mut executor = Simulated::new(&measure);
    let report = run(&quick(), &mut executor).unwrap();
    assert!(report.complete && report.warnings.is_empty(), "{:?}", report.warnings);
    assert_eq!(executor.measured.len(), 3 * 5 * 3);
    let quick = &report.experiments[0];
    let poll = quick.summary.iter().find(|c| c.server == "poll" && c.values["idle"] == "8000");
    let cpu = poll.unwrap().metrics["cpu_ns"];
    // The cost differs threefold between repetitions, but the ratio is constant.
    assert!(cpu.estimate.max / cpu.estimate.min > 2.9);
    let ratio = cpu.to_reference.unwrap();
    assert!((ratio.ratio - 13.0).abs() < 1e-9 && ratio.high.unwrap() - ratio.low.unwrap() < 1e-9);
    assert!((cpu.to_baseline.unwrap().ratio - 13.0).abs() < 1e-9);
    let own = quick.summary.iter().find(|cell| cell.server == "epoll-edge").unwrap();
    assert!(own.metrics["cpu_ns"].to_reference.is_none());
}

#[test]
fn json_round_trips_and_renders_the_same_page() {
    let report = run(&quick(), &mut Simulated::new(&measure)).unwrap();
    let json = export::json(&report);
    let back: Report = serde_json::from_str(&json).unwrap();
    assert!(back == report, "the report changed in a round trip through JSON");
    assert_eq!(export::html(&back), export::html(&report));
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(value["schema"], "hearken-lab/1");
    assert!(value["experiments"][0]["samples"][0]["metrics"]["cpu_ns"].is_f64());
}

#[test]
fn failures_are_warnings_and_escaped() {
    let fails = |trial: &Trial| match trial.cell.server.as_str() {
        "select" => Err(LabError::Config("a <b>failure</b>".into())),
        _ => measure(trial),
    };
    let report = run(&quick(), &mut Simulated::new(&fails)).unwrap();
    assert!(!report.complete);
    assert_eq!(report.warnings.len(), 9);
    let quick = &report.experiments[0];
    assert!(quick.summary.iter().all(|cell| cell.server != "select"));
    let page = export::html(&report);
    assert!(page.contains("Incomplete run") && page.contains("a &lt;b&gt;failure&lt;/b&gt;"));
    assert!(page.contains("'a &lt;dir&gt;'") && !page.contains("<script"));
    // The only URL is the name of the SVG namespace.
    let addresses = page.matches("http://www").count();
    assert_eq!(addresses, page.matches("xmlns=\"http://www.w3.org/2000/svg\"").count());
    assert!(!page.contains("url(") && !page.contains("@import") && !page.contains("src="));
    let all = |_: &Trial| Err(LabError::Config("broken".into()));
    let error = run(&self::quick(), &mut Simulated::new(&all)).unwrap_err().to_string();
    assert!(error.contains("all 45 measurements failed") && error.contains("broken"), "{error}");
}

#[test]
fn warns_about_disturbed_measurements() {
    let disturbed = |trial: &Trial| {
        let mut measured = measure(trial)?;
        measured.checks.wait_ratio = if trial.order.is_multiple_of(2) { 0.25 } else { 0.01 };
        measured.checks.lateness_p99_ns = 6e6;
        Ok(measured)
    };
    let mut experiment = experiment("quick");
    experiment.repetitions = 1;
    experiment.reference = "absent".into();
    let report = run(&config(vec![planned(experiment)]), &mut Simulated::new(&disturbed)).unwrap();
    let expected = [
        Warning::FewRepetitions { repetitions: 1 },
        Warning::NoReference { reference: "absent".into() },
        Warning::ProcessorContention { samples: 8, max_wait_ratio: 0.25 },
        Warning::GeneratorLate { samples: 15, max_lateness_p99_ns: 6e6 },
    ];
    assert_eq!(report.warnings, expected);
    // Warnings stand above the results.
    let page = export::html(&report);
    assert!(page.find("was not measured").unwrap() < page.find("<svg").unwrap());
}

#[test]
fn interrupted_run_yields_a_partial_report() {
    let mut executor = Simulated { stops_at: Some(10), ..Simulated::new(&measure) };
    let report = run(&quick(), &mut executor).unwrap();
    assert_eq!((report.complete, report.experiments[0].samples.len()), (false, 10));
    assert!(report.warnings.contains(&Warning::Interrupted { done: 10, planned: 45 }));
    let mut executor = Simulated { stops_at: Some(0), ..Simulated::new(&measure) };
    let nothing = run(&quick(), &mut executor).unwrap();
    assert!(
        export::figures_svg(&nothing).is_empty() && export::html(&nothing).ends_with("</html>")
    );
}

#[test]
fn interrupted_run_is_resumed_from_its_journal() {
    let config = quick();
    let complete = run(&config, &mut Simulated::new(&measure)).unwrap();
    let header = |words: &[&str]| {
        let words = words.iter().map(|&word| word.to_owned()).collect();
        Header::new(words, config.seed, &config.experiments)
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE);
    for stops_at in [0, 1, 17, 35] {
        let journal = Journal::create(dir.path(), header(&["quick"])).unwrap();
        let mut executor = Simulated { stops_at: Some(stops_at), ..Simulated::new(&measure) };
        run_with_journal(&config, &mut executor, journal).unwrap();
        // The lab was killed while it wrote a line.
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text + "{\"kind\":\"sample\",\"exper").unwrap();
        let journal = Journal::resume(dir.path(), &header(&["quick"])).unwrap();
        let mut executor = Simulated::new(&measure);
        let report = run_with_journal(&config, &mut executor, journal).unwrap();
        assert_eq!(executor.measured.len(), 45 - stops_at);
        assert!(report.complete);
        assert_eq!(report.experiments, complete.experiments);
    }
    let error = Journal::resume(dir.path(), &header(&["peers"])).unwrap_err().to_string();
    assert!(error.contains("it has other arguments"), "{error}");
    fs::write(&path, "").unwrap();
    assert!(Journal::resume(dir.path(), &header(&["quick"])).is_err());
}

#[test]
fn tables_and_figures_show_every_server() {
    let peers = planned(experiment("proxies"));
    let names: Vec<String> = peers.servers.iter().map(|server| server.name.clone()).collect();
    let report = run(&config(vec![peers]), &mut Simulated::new(&measure)).unwrap();
    let text = export::text(&report);
    assert!(text.contains("CPU µs/req ÷ hearken") && text.contains("B/unused"), "{text}");
    assert!(text.contains("Not counted: instructions (No such file"), "{text}");
    assert!(!text.contains("instr/req"), "the table has an empty column");
    let figures: BTreeMap<String, String> = export::figures_svg(&report).into_iter().collect();
    let expected = ["proxies-cost", "proxies-latency", "proxies-memory"];
    assert_eq!(figures.keys().collect::<Vec<_>>(), expected);
    let page = export::html(&report);
    for server in &names {
        assert!(
            page.contains(server.as_str()) && figures["proxies-cost"].contains(server.as_str())
        );
    }
    // A panel for each workload, but only one for the memory.
    assert!(figures["proxies-cost"].contains("1k-proxied-close: CPU time"));
    assert!(!figures["proxies-memory"].contains("1k-proxied"));
}

#[test]
fn emulated_run_names_the_emulator() {
    let mut config = config(vec![planned(experiment("peers"))]);
    config.emulator = Some("an <emulator> 1.0".into());
    let emulated = |trial: &Trial| {
        let mut measured = measure(trial)?;
        let cpu = measured.metrics.remove("cpu_ns").unwrap();
        measured.metrics.insert("instructions".into(), cpu);
        Ok(measured)
    };
    let report = run(&config, &mut Simulated::new(&emulated)).unwrap();
    let text = export::text(&report);
    assert!(text.contains("instr/req") && text.contains("an <emulator> 1.0"), "{text}");
    let page = export::html(&report);
    assert!(page.contains("an &lt;emulator&gt; 1.0") && page.contains("per request, emulated"));
}

#[test]
fn writes_all_files_atomically() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("new/out");
    let report = run(&quick(), &mut Simulated::new(&measure)).unwrap();
    let written = export::write_all(&report, &out).unwrap();
    let mut names: Vec<_> =
        written.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
    names.sort_unstable();
    let expected =
        ["quick-cost.svg", "quick-latency.svg", "quick-memory.svg", "report.html", "results.json"];
    assert_eq!(names, expected);
    assert_eq!(fs::read_to_string(out.join("results.json")).unwrap(), export::json(&report));
    // Overwrites existing files.
    export::write_all(&report, &out).unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let error = export::write_all(&report, &file).unwrap_err().to_string();
    assert!(error.contains("create the directory"), "{error}");
}

#[test]
fn reads_a_recipe_with_its_extra_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mine.toml");
    fs::write(&path, "name = \"mine\"\ncommand = [\"mine\"]\nextra-files = [\"mine.c\"]").unwrap();
    let error = Recipe::read(&path).unwrap_err().to_string();
    assert!(error.contains("mine.toml") && error.contains("mine.c"), "{error}");
    fs::write(dir.path().join("mine.c"), "int main;").unwrap();
    assert_eq!(Recipe::read(&path).unwrap().name, "mine");
    assert!(parse_duration("1m").is_some());
}

#[test]
fn time_budget_leaves_out_whole_servers() {
    let mut config = quick();
    let all = config.plan();
    let time = |trials: &[Trial]| trials.iter().map(|trial| trial.expected).sum::<Duration>();
    config.time_budget = Some(time(&all) / 2);
    let kept = config.plan();
    assert!(!kept.is_empty() && time(&kept) <= time(&all) / 2);
    let servers: BTreeSet<&str> = kept.iter().map(|trial| &*trial.cell.server).collect();
    assert!(servers.contains("epoll-edge"), "the reference has priority: {servers:?}");
    assert_eq!(kept.len(), servers.len() * 9);
    let report = run(&config, &mut Simulated::new(&measure)).unwrap();
    assert!(report.complete);
    let names: Vec<&String> = report
        .warnings
        .iter()
        .find_map(|warning| match warning {
            Warning::OverBudget { rows, .. } => Some(rows.iter().collect()),
            _ => None,
        })
        .unwrap();
    assert_eq!(names.len(), 5 - servers.len());
    assert!(names.iter().all(|name| name.starts_with("quick: ")), "{names:?}");
}

#[test]
fn slow_run_drops_rows_and_ends_with_its_time_budget() {
    let mut config = quick();
    config.time_budget = Some(Duration::from_millis(200));
    for planned in &mut config.experiments {
        // The estimates are far too low.
        planned.experiment.set("duration", &["0s".into()]).unwrap();
        planned.experiment.set("warm-up", &["0s".into()]).unwrap();
    }
    let trials = config.plan();
    assert!(trials.is_empty(), "starting servers takes longer");
    config.time_budget = Some(Duration::from_secs(30));
    let slow = |trial: &Trial| {
        std::thread::sleep(Duration::from_millis(60));
        measure(trial)
    };
    let mut executor = Simulated::new(&slow);
    let trials = config.plan();
    config.time_budget = Some(Duration::from_millis(700));
    let report = run_trials(&config, &trials, &mut executor).unwrap();
    assert!(executor.measured.len() < 45, "{} measurements", executor.measured.len());
    let is_about_time = |warning: &Warning| {
        matches!(warning, Warning::OverBudget { .. } | Warning::OutOfTime { .. })
    };
    assert!(report.warnings.iter().any(is_about_time), "{:?}", report.warnings);
}

#[test]
fn measurements_are_repeated_until_they_are_precise() {
    let noisy = |trial: &Trial| {
        let noise = match (trial.cell.values["idle"].as_str(), trial.repetition % 2) {
            ("8000", 0) => 1.1,
            _ => 1.0,
        };
        let mut measured = measure(&Trial { repetition: 0, ..trial.clone() })?;
        measured.metrics.insert("cpu_ns".into(), 30_000.0 * noise);
        Ok(measured)
    };
    let mut config = quick();
    let precision = Precision { target: 0.03, max_repetitions: 30 };
    config.experiments[0].experiment.precision = Some(precision);
    let report = run(&config, &mut Simulated::new(&noisy)).unwrap();
    assert!(report.complete);
    let repetitions = |idle: &str| {
        let cells = report.experiments[0].summary.iter().filter(|cell| cell.values["idle"] == idle);
        cells.map(|cell| cell.samples).collect::<BTreeSet<_>>()
    };
    assert_eq!(repetitions("0"), BTreeSet::from([3]));
    let more = repetitions("8000");
    assert!(more.len() == 1 && (4..30).contains(more.first().unwrap()), "{more:?}");
}

#[test]
fn results_of_two_runs_are_compared_by_cell() {
    let noisy = |trial: &Trial| {
        let mut measured = measure(trial)?;
        let noise = 1.0 + 0.002 * f64::from(trial.repetition);
        let slower = if trial.cell.server == "poll" { 1.3 } else { 1.0 };
        measured.metrics.insert("cpu_ns".into(), 30_000.0 * noise * slower);
        Ok(measured)
    };
    let plain = |trial: &Trial| {
        let mut measured = noisy(trial)?;
        let cpu = measured.metrics["cpu_ns"];
        let slower = if trial.cell.server == "poll" { 1.3 } else { 1.0 };
        measured.metrics.insert("cpu_ns".into(), cpu / slower);
        Ok(measured)
    };
    let mut before = run(&quick(), &mut Simulated::new(&plain)).unwrap();
    let after = run(&quick(), &mut Simulated::new(&noisy)).unwrap();
    let compared = compare_results(&before, &after);
    assert!(compared.warnings.is_empty(), "{:?}", compared.warnings);
    let rows = compared.experiments[0].rows.iter().filter(|row| row.metric == "cpu_ns");
    for row in rows {
        let expected = match row.server.as_str() {
            "poll" => Relation::Higher,
            _ => Relation::NoDifferenceDetected,
        };
        assert_eq!(row.relation, expected, "{row:?}");
        assert!(row.low.unwrap() < row.ratio && row.ratio < row.high.unwrap());
    }
    let text = compared.to_string();
    assert!(text.contains("higher") && text.contains("joint confidence level"), "{text}");
    // Cells and machines that differ are reported.
    before.machine.processors += 1;
    before.experiments[0].samples.retain(|sample| sample.server != "select");
    let compared = compare_results(&before, &after);
    assert_eq!(compared.experiments[0].unpaired, 3);
    assert!(compared.warnings[0].contains("different machines"));
}
