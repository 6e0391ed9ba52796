//! `hearken load` on one machine: results, objectives, exit status and invalid arguments.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::program::{Running, fails_with, hearken, refusing, run, serve, site, text};

#[test]
fn invalid_arguments_are_rejected() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", server.local_addr().unwrap());
    let tls = url.replace("http:", "https:");
    for (args, names) in [
        (&["--rate", "0"][..], "rate"),
        (&["--rate", "-5"], "invalid rate '-5'"),
        (&["--rate", "many"], "invalid rate 'many'"),
        (&["--rate", "1..2@"], "--rate"),
        (&["--rate", "5,6"], "--rate"),
        (&["--rate", "1e10"], "--rate"),
        (&["--steps", "5"], "invalid steps '5'"),
        (&["--steps", "1,x@1s"], "invalid rate 'x'"),
        (&["--steps", "1..9/0@1s"], "--steps"),
        (&["--think", "often"], "--think"),
        (&["--closed", "--think", "exp:"], "--think"),
        (&["--connection-time", "pareto:1s"], "--connection-time"),
        (&["--websocket", "many"], "invalid number of connections 'many'"),
        (&["--websocket", "5,mode=chat"], "expected idle, echo or broadcast"),
        (&["--websocket", "5,path=/\u{e4}"], "percent-encode"),
        (&["--slow-readers", "5"], "the rate is missing"),
        (&["--slow-senders", "5,rate=0"], "invalid rate '0'"),
        (&["--idle-think", "uniform:5s..1s"], "--idle-think"),
        (&["--per-connection", "0"], "invalid number '0'"),
        (&["--per-connection", "9..5"], "the minimum exceeds the maximum"),
        (&["--connections", "0"], "--connections"),
        (&["--pipeline", "0"], "--pipeline"),
        (&["--pipeline", "4"], "several requests per connection"),
        (&["--think", "1s"], "several requests per connection"),
        (&["--threads", "9", "-c", "8"], "fewer connections than threads"),
        (&["--threads", "9999", "-c", "9999"], "1,024"),
        (&["--expect", "status=99"], "invalid status '99'"),
        (&["--expect", "statut=200"], "unknown check 'statut=200'"),
        (&["--expect", "sha256=12"], "--expect"),
        (&["--timeout", "soon"], "--timeout"),
        (&["--connect-timeout", "0"], "must be greater than 0"),
        (&["--first-byte-timeout", "0"], "must be greater than 0"),
        (&["--interval", "1ms"], "10 ms"),
        (&["--idle-rate", "0"], "idle connections"),
        (&["--idle-rate", "NaN"], "idle connections"),
        (&["--header", "no colon"], "no colon"),
        (&["--header", "a b: c"], "a b: c"),
        (&["--method", "get"], "capitals"),
        (&["--body-file", "/no/such/body"], "/no/such/body"),
        (&["--sources", "::1"], "IPv6"),
        (&["--sources", "localhost"], "--sources"),
        (&["--seed", "few"], "--seed"),
        (&["--by", "bytes"], "expected requests, connections, sessions"),
        (&["--arrivals", "trace"], "expected poisson, "),
        (&["--events", "kqueue"], "kqueue"),
        (&["--json", "/no/such/file"], "/no/such/file"),
        (&["--rat", "5"], "--rat"),
        (&["--experiment", "rt-queue=many"], "expected rt-queue=N"),
        (&["--experiment", "io=wait-first"], "expected rt-queue=N"),
        // Conflicts and missing arguments.
        (&["--closed", "--rate", "5"], "cannot be used with"),
        (&["--closed", "--by", "sessions"], "cannot be used with"),
        (&["--steps", "1,2@1s", "--rate", "5"], "cannot be used with"),
        (&["--urls", "a", "--trace", "b"], "cannot be used with"),
        (&["--wlog", "n,a", "--wsesslog", "1,1,b"], "cannot be used with"),
        (&["--body", "x", "--body-file", "y"], "cannot be used with"),
        (&["--speed", "2"], "--access-log"),
        (&["--skip-bad"], "--access-log"),
        // TLS settings require an https URL.
        (&["--insecure"], "https://"),
        (&["--cacert", "/no/such/ca"], "https://"),
    ] {
        fails_with(&[&["load", &url], args].concat(), names);
    }
    for (args, names) in [
        (&["--cacert", "/no/such/ca"][..], "/no/such/ca"),
        (&["--cacert", "/dev/null"], "no certificate"),
        (&["--key", "/dev/null"], "--cert"),
        (&["--cert", "/no/such/cert"], "/no/such/cert"),
        (&["--insecure", "--server-name", "a b"], "a b"),
    ] {
        fails_with(&[&["load", &tls], args].concat(), names);
    }
    fails_with(&["load", "ftp://127.0.0.1/"], "http://HOST:PORT/PATH");
    fails_with(&["load", "http://127.0.0.1:70000/"], "70000");
    fails_with(&["load"], "<URL>");
    // Errors are reported before anything is sent.
    server.set_nonblocking(true).unwrap();
    assert!(server.accept().is_err(), "the load connected");
}

#[test]
fn invalid_files_are_reported_with_the_line() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", server.local_addr().unwrap());
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("given");
    let path = path.to_str().unwrap();
    for (flag, form, content, names) in [
        ("--urls", "", "/a\n# b\n3 /c\nd\n", "line 4: "),
        ("--urls", "", "-1 /a\n", "line 1: "),
        ("--urls", "", "/a GET status=99\n", "line 1: "),
        ("--urls", "", "http://other.example/\n", "another server"),
        ("--urls", "", "", "cannot use "),
        ("--wlog", "n,", "/a\0b\0", "line 2: "),
        ("--wlog", "y,", "", "no paths in the file"),
        ("--wsesslog", "1,0,", "/a\n\n/b think=x\n", "line 3: "),
        ("--wsesslog", "1,0,", "/a contents='x\n", "line 1: "),
        ("--wsesslog", "1,0,", "\n\n", "cannot use "),
        ("--trace", "", "0 /a\n1 /b\n0.5 /c\n", "line 3: time is earlier"),
        ("--trace", "", "soon /a\n", "line 1: "),
        ("--access-log", "", "no log\n", "line 1: "),
        ("--access-log", "", "{\"path\": \"/\"}\n", "line 1: "),
    ] {
        fs::write(path, content).unwrap();
        let given = format!("{form}{path}");
        fails_with(&["load", &url, flag, &given], names);
        fails_with(&["load", &url, flag, &given], path);
        fails_with(&["load", &url, flag, &format!("{form}/no/such/file")], "/no/such/file");
    }
    for (flag, given) in [
        ("--wlog", "/paths"),
        ("--wlog", "maybe,/paths"),
        ("--wsesslog", "/sessions"),
        ("--wsesslog", "1,/sessions"),
        ("--wsesslog", "few,1,/sessions"),
        ("--wsesslog", "1,soon,/sessions"),
    ] {
        fails_with(&["load", &url, flag, given], &format!("invalid value '{given}' for {flag}"));
    }
    fs::write(path, "/a\n").unwrap();
    let sessions = format!("1,0,{path}");
    for more in [&["--per-connection", "5"][..], &["--pipeline", "2"], &["--think", "1s"]] {
        fails_with(&[&["load", &url, "--wsesslog", &sessions], more].concat(), "session");
    }
    fails_with(&["load", &url, "--access-log", path, "--speed", "0"], "speed");
    fails_with(&["load", &url, "--specweb", dir.path().to_str().unwrap()], "hearken load specweb");
    // Errors are reported before anything is sent.
    server.set_nonblocking(true).unwrap();
    assert!(server.accept().is_err(), "the load connected");
}

#[test]
fn results_contain_websockets_and_slow_clients() {
    let dir = site();
    let (_server, url) = serve(dir.path(), &[]);
    let args = ["load", &url, "--rate", "0", "--duration", "1s", "--timeout", "1s", "--json", "-"];
    let side = ["--websocket", "2", "--slow-readers", "2,rate=1e6", "--slow-senders", "2,rate=1"];
    let report: Value = serde_json::from_slice(&run(&[&args[..], &side].concat()).stdout).unwrap();
    let slow = &report["slow_clients"];
    assert_eq!([&slow["readers"]["open"], &slow["senders"]["open"]], [2, 2], "{report}");
    assert!(slow["readers"]["completed"].as_u64().unwrap() > 0, "{report}");
    assert_eq!(slow["senders"]["completed"], 0, "{report}");
    // The server serves files only.
    assert_eq!(report["websocket"]["open"], 0, "{report}");
    assert!(report["websocket"]["handshake_failures"]["status 200"].is_u64(), "{report}");
}

#[test]
fn idle_connections_stay_open_until_an_interrupt() {
    let dir = site();
    let (_server, url) = serve(dir.path(), &[]);
    let mut load = Running::start(&["load", &url, "--rate", "0", "--idle", "100"]);
    assert_eq!(load.line(), "holding 100 idle connections\n");
    load.signal(Signal::INT);
    assert_eq!(load.child.wait().unwrap().code(), Some(130));
}

#[test]
fn an_interrupted_load_reports_partial_results() {
    let dir = site();
    let (_server, url) = serve(dir.path(), &[]);
    for (more, signal, status) in [
        (&["--rate", "300", "--slo", "p50<1ns"][..], Signal::INT, 130),
        (&["--closed"], Signal::TERM, 143),
        (&["--by", "connections", "--rate", "100"], Signal::INT, 130),
    ] {
        let args = ["load", &url, "--duration", "1h", "--announce", "--json", "-", "--idle", "7"];
        let mut load = Running::start(&[&args, more].concat());
        assert_eq!(load.line(), "prepared\n");
        load.signal(signal);
        let mut json = String::new();
        load.out.read_to_string(&mut json).unwrap();
        assert_eq!(load.child.wait().unwrap().code(), Some(status));
        let report: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(report["complete"], false);
        let of = |name: &str| report["requests"][name].as_u64().unwrap();
        assert_eq!(of("scheduled"), of("replies") + of("failed") + of("unfinished"), "{report}");
        assert_eq!(report["idle"]["open"], 7);
        assert!(report["duration_s"].as_f64().unwrap() < 3600.0);
        assert!(report["histograms"]["latency"].is_string(), "{report}");
        let warnings = report["warnings"].as_array().unwrap();
        assert!(warnings.iter().any(|text| text.as_str().unwrap().contains("stopped")), "{report}");
    }
}

#[test]
fn a_list_is_requested_once() {
    let dir = site();
    let (_server, url) = serve(dir.path(), &[]);
    let paths = dir.path().join("paths");
    fs::write(&paths, "/1b\0/none\0/1b\0").unwrap();
    let list = format!("n,{}", paths.display());
    let output = run(&["load", &url, "--wlog", &list, "--rate", "500", "--json", "-"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["complete"], &report["requests"]["replies"]), (&true.into(), &2.into()));
    assert_eq!(report["errors"]["status"], 1);
    assert_eq!((&report["status"]["2xx"], &report["status"]["4xx"]), (&2.into(), &1.into()));
    let shown = hearken(&["load", &url, "--wlog", &list]).output().unwrap();
    assert!(text(&shown.stdout).contains("2 of 3"), "{}", text(&shown.stdout));
}

#[test]
fn a_file_set_is_created_and_requested() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("new/files");
    let path = path.to_str().unwrap();
    let make = ["load", "specweb", "--make", path, "--directories", "1"];
    for (written, kept) in [(36, 0), (0, 36)] {
        let output = run(&make);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let last_line = format!("{written} files written, {kept} kept, 5.1 MB in total\n");
        assert!(text(&output.stdout).ends_with(&last_line), "{}", text(&output.stdout));
    }
    let (_server, url) = serve(path.as_ref(), &[]);
    let args =
        ["load", &url, "--specweb", path, "--rate", "50", "--duration", "200ms", "--seed", "3"];
    let output = run(&[&args[..], &["--json", "-"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["model"], "sessions");
    let requests = &report["requests"];
    assert!(requests["replies"].as_u64() > Some(0), "{report}");
    assert_eq!(requests["replies"], requests["scheduled"], "{report}");
    fails_with(&["load", "specweb", "--make", path], "--directories");
    fails_with(&["load", "specweb", "--directories", "1"], "--make");
    fails_with(&["load", "specweb", "--make", path, "--directories", "0"], "from 1 to 100,000");
    let both = ["--directories", "1", "--connections", "1"];
    fails_with(&[&["load", "specweb", "--make", path], &both[..]].concat(), "cannot be used with");
    fails_with(&["load", "specweb", "--make", "/proc/none", "--directories", "1"], "/proc/none");
}

#[test]
fn results_agree_with_the_server() {
    let dir = site();
    let (_server, url) = serve(dir.path(), &[]);
    let url = format!("{url}/1b");
    let args = ["--rate", "500", "--duration", "400ms", "--idle", "200", "--seed", "7"];
    for more in [&["--connections", "5"][..], &["--per-connection", "1"]] {
        let output = run(&[&["load", &url, "--json", "-"], &args[..], more].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["complete"], true);
        let requests = &report["requests"];
        assert!(requests["scheduled"].as_u64().unwrap() > 50, "{report}");
        assert_eq!(requests["replies"], requests["scheduled"], "{report}");
        assert_eq!(report["status"]["2xx"], requests["scheduled"]);
        assert_eq!(report["idle"]["requested"], 200);
        assert_eq!(report["idle"]["open"], 200, "{report}");
        assert_eq!(report["latency_ns"]["count"], requests["scheduled"]);
    }
    let file = dir.path().join("result.json");
    fs::write(&file, [b' '; 10_000]).unwrap();
    let json = ["--json", file.to_str().unwrap()];
    let summary = run(&[&["load", &url], &args[..], &json].concat());
    assert!(text(&summary.stdout).contains("200"), "{}", text(&summary.stdout));
    let written = fs::read(&file).unwrap();
    assert!(written.len() < 10_000 && serde_json::from_slice::<Value>(&written).is_ok());
}

#[test]
fn objectives_set_the_exit_status() {
    let dir = site();
    let (_server, url) = serve(dir.path(), &[]);
    let args = ["load", &format!("{url}/1b"), "--rate", "300", "--duration", "200ms", "--slo"];
    for (objectives, status) in [("p99<60s,errors<=0%", 0), ("p99<60s,p50<1ns,errors<=0%", 3)] {
        let output = run(&[&args[..], &[objectives]].concat());
        let out = text(&output.stdout);
        assert_eq!(output.status.code(), Some(status), "{out}");
        assert!(out.contains("  objective  p99 < 60 s: met, "), "{out}");
        assert_eq!(out.contains("p50 < 1 ns: not met, "), status == 3, "{out}");
    }
    let output = run(&[&args[..], &["p99<5"]].concat());
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("ns, us, ms or s"), "{}", text(&output.stderr));
    fails_with(&[&args[..], &["idle>=99%"]].concat(), "no idle connections");
    fails_with(&["load", &url, "--rate", "0", "--idle", "1", "--slo", "p99<5ms"], "no requests");
}

#[test]
fn find_knee_reports_the_highest_rate() {
    let dir = site();
    let (_server, url) = serve(dir.path(), &[]);
    let search = ["load", &format!("{url}/1b"), "--find-knee", "--trial", "200ms", "--json", "-"];
    let output =
        run(&[&search[..], &["--slo", "errors<=0%", "--max-rate", "50", "--seed", "5"]].concat());
    let knee: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{knee}");
    assert_eq!(
        (&knee["schema"], &knee["limited_by"]),
        (&"hearken-knee/2".into(), &"max-rate".into())
    );
    assert_eq!(
        (&knee["rate"], &knee["rate_high"], &knee["seed"]),
        (&50.0.into(), &Value::Null, &5.into())
    );
    assert_eq!(text(&output.stderr).lines().count(), knee["trials"].as_array().unwrap().len());
    let (url, _held) = refusing();
    let output = run(&["load", &url, "--find-knee", "--trial", "200ms"]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("check that a server listens at the URL"));
    fails_with(&["load", &url, "--find-knee", "--precision", "0%"], "precision");
    fails_with(&["load", &url, "--find-knee", "--max-rate", "inf"], "highest rate");
    for invalid in [
        &["--find-knee", "--rate", "5"][..],
        &["--find-knee", "-n", "5"],
        &["--sweep", "-n", "5"],
        &["--trial", "5s"],
    ] {
        let output = run(&[&["load", &url], invalid].concat());
        assert_eq!(output.status.code(), Some(2), "{invalid:?}");
    }
}

#[test]
fn sweep_measures_rates_up_to_the_maximum() {
    let dir = site();
    let (_server, url) = serve(dir.path(), &[]);
    let page = dir.path().join("sweep.html");
    let url = format!("{url}/1b");
    let args = ["load", &url, "--sweep", "--trial", "200ms", "--repetitions", "1", "--max-rate"];
    let more = ["200", "--arrivals", "constant", "--seed", "5", "--json", "-", "--html"];
    let output = run(&[&args[..], &more, &[page.to_str().unwrap()]].concat());
    let sweep: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{sweep}");
    assert_eq!((&sweep["schema"], &sweep["seed"]), (&"hearken-sweep/1".into(), &5.into()));
    let points = sweep["points"].as_array().unwrap();
    assert!(!points.is_empty(), "{sweep}");
    assert!(points.iter().all(|point| point["rate"].as_f64().unwrap() <= 200.0), "{sweep}");
    let errors = text(&output.stderr);
    assert!(errors.starts_with("sweep: ") && errors.contains("at least"), "{errors}");
    assert_eq!(errors.lines().count(), sweep["trials"].as_array().unwrap().len() + 2, "{errors}");
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("Reply rate by offered rate"), "{page}");
    for invalid in [&["--rate", "5"][..], &["--find-knee"], &["--slo", "p99<5ms"], &["--csv", "-"]]
    {
        let output = run(&[&["load", &url, "--sweep"], invalid].concat());
        assert_eq!(output.status.code(), Some(2), "{invalid:?}");
    }
    assert_eq!(run(&["load", &url, "--repetitions", "5"]).status.code(), Some(2));
    fails_with(&["load", &url, "--sweep", "--repetitions", "0"], "at least one trial");
    fails_with(&["load", &url, "--sweep", "--html", "-"], "--html FILE");
}

#[test]
fn sweep_of_a_dead_server_fails() {
    let (url, _held) = refusing();
    let output = run(&["load", &url, "--sweep", "--trial", "100ms"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("check that a server listens at the URL"));
}

#[test]
fn an_interrupted_sweep_reports_partial_results() {
    let dir = site();
    let (_server, url) = serve(dir.path(), &[]);
    let args = ["load", &url, "--sweep", "--trial", "300ms", "--json", "-"];
    let mut sweep = hearken(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The third line is the first trial.
    let lines = BufReader::new(sweep.stderr.as_mut().unwrap()).lines().take(3);
    assert_eq!(lines.map(Result::unwrap).count(), 3);
    kill_process(Pid::from_child(&sweep), Signal::INT).unwrap();
    let output = sweep.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["complete"], false);
    assert!(!result["trials"].as_array().unwrap().is_empty());
}

#[test]
fn lockstep_rounds_run_in_one_go_and_on_demand() {
    let dir = site();
    let (_server, url) = serve(dir.path(), &[]);
    let url = format!("{url}/1b");
    let output =
        run(&["load", &url, "--lockstep", "5", "--requests", "98", "--close", "--json", "-"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["schema"], "hearken-lockstep/2");
    assert_eq!(
        (&report["requests"]["replies"], &report["content_bytes"]),
        (&100.into(), &1.into())
    );
    // One pass for each number on standard input.
    let mut load = hearken(&["load", &url, "--lockstep", "4", "--warm-up", "8", "--on-demand"]);
    let mut load = load.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(load.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    let mut stdin = load.stdin.take().unwrap();
    for requests in [4, 12] {
        writeln!(stdin, "{requests}").unwrap();
        let pass: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!((&pass["complete"], &pass["connections_opened"]), (&true.into(), &0.into()));
        assert_eq!(pass["requests"]["replies"], requests);
    }
    drop(stdin);
    assert!(load.wait().unwrap().success());
    let wrong = run(&["load", &format!("{url}/none"), "--lockstep", "2"]);
    assert_eq!(wrong.status.code(), Some(1));
    assert!(text(&wrong.stderr).contains("status 404"), "{}", text(&wrong.stderr));
    for invalid in [&["--lockstep", "2", "--rate", "5"][..], &["--close"]] {
        let output = run(&[&["load", &url], invalid].concat());
        assert_eq!(output.status.code(), Some(2), "{invalid:?}");
    }
}

#[test]
fn watch_reports_the_resources_of_the_server() {
    let dir = site();
    let (server, url) = serve(dir.path(), &[]);
    let port = url.trim_end_matches('/').rsplit(':').next().unwrap().to_owned();
    for target in [server.child.id().to_string(), format!(":{port}")] {
        let args = ["load", &url, "--rate", "200", "--duration", "300ms", "--watch", &target];
        let output = run(&[&args[..], &["--watch-interval", "50ms", "--json", "-"]].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let seen = &report["server"];
        assert_eq!(
            (seen["target"].as_str(), seen["processes"].as_u64()),
            (Some(&*target), Some(1))
        );
        assert!(seen["total"]["cpu_ns"].as_u64() > Some(0), "{seen}");
        assert!(seen["total"]["peak_sockets"].as_u64() > Some(1), "{seen}");
        let samples = seen["samples"].as_array().unwrap();
        assert!(
            samples.len() >= 2
                && samples[0]["cpu_ns"].as_u64() < samples.last().unwrap()["cpu_ns"].as_u64()
        );
        let shown = run(&args);
        assert!(text(&shown.stdout).contains(&format!("  server     {target}: 1 process")));
        assert!(shown.stderr.is_empty(), "{}", text(&shown.stderr));
    }
}

#[test]
fn invalid_watch_targets_are_rejected() {
    let url = "http://127.0.0.1:1/";
    for target in ["2147483647", ":0", "no/such/group", "no-such-unit-anywhere"] {
        fails_with(&["load", url, "--watch", target], &format!("cannot watch '{target}': "));
    }
    for args in [
        &["--watch", "1", "--watch-interval", "1ms"][..],
        &["--watch-interval", "1s"],
        &["--watch", "1", "--lockstep", "5"],
        &["--progress=often"],
    ] {
        assert_eq!(run(&[&["load", url], args].concat()).status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn progress_log_prints_one_line_per_second() {
    let dir = site();
    let (_server, url) = serve(dir.path(), &[]);
    // All at once, because the first line appears after a second.
    let start = |flag: &str| {
        let mut load = hearken(&["load", &url, "--rate", "100", "--duration", "1200ms"]);
        load.args([flag].into_iter().filter(|flag| !flag.is_empty()));
        load.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let logs = ["--progress", "--progress=log"].map(start);
    let silent = ["", "--progress=none", "--progress=auto"].map(start);
    for load in logs {
        let output = load.wait_with_output().unwrap();
        let log = text(&output.stderr);
        assert!(output.status.success() && log.contains(" requests/s, "), "{log}");
        assert!(
            !log.contains('\x1b') && log.lines().all(|line| line.contains(" errors, ")),
            "{log}"
        );
    }
    for load in silent {
        assert!(load.wait_with_output().unwrap().stderr.is_empty());
    }
}
