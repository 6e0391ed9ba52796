//! The program as its user meets it: what it prints, where, and what it exits with.

mod program;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Stdio;

use hearken::io::find;
use program::{Running, hearken, refused, run, serve, site, text};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

#[test]
fn help_has_examples() {
    let below = ["serve", "proxy", "load", "lab", "mechanisms", "man", "completions"]
        .map(|name| vec![name]);
    for command in [vec![], vec!["lab", "quick"], vec!["lab", "peers"]].into_iter().chain(below) {
        let output = run(&[&command[..], &["--help"]].concat());
        assert!(output.status.success());
        assert!(text(&output.stdout).contains("Examples:\n  hearken "), "{command:?}");
    }
}

#[test]
fn mechanisms_are_those_of_the_table() {
    let output = run(&["mechanisms", "--json"]);
    assert!(output.status.success());
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<_> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, hearken::io::names().collect::<Vec<_>>());
    for row in &rows {
        assert_eq!(row["available"].as_bool().unwrap(), row["reason"].is_null(), "{row}");
    }
    let table = run(&["mechanisms"]);
    for name in names {
        assert!(text(&table.stdout).lines().any(|line| line.starts_with(name)), "{name}");
    }
}

#[test]
fn every_mechanism_serves_and_stops() {
    let dir = site();
    for name in hearken::io::names().filter(|name| find(name).unwrap().probe().is_ok()) {
        let mut args = vec!["serve", dir.path().to_str().unwrap(), "--listen", "127.0.0.1:0"];
        args.extend(["--events", name, "--workers", "2"]);
        let mut server = Running::start(&args);
        let line = server.line();
        let addr = line
            .strip_prefix("listening on http://")
            .and_then(|rest| rest.strip_suffix(" connections)\n")?.split_once(' '))
            .filter(|(_, rest)| rest.starts_with(&format!("({name}, 2 workers, ")))
            .map(|(addr, _)| addr)
            .unwrap_or_else(|| panic!("{line:?}"));
        let mut client = TcpStream::connect(addr).unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.ends_with("\r\n\r\n<p>hark</p>"), "{answer}");
        server.signal(Signal::TERM);
        assert_eq!(server.child.wait().unwrap().code(), Some(0), "{name}");
    }
}

/// The names of a command's options.
fn options(command: &str) -> Vec<String> {
    let help = run(&[command, "-h"]);
    let lines = text(&help.stdout).lines().filter_map(|line| line.trim_start().strip_prefix("--"));
    lines.filter_map(|line| line.split([' ', '[']).next()).map(str::to_owned).collect()
}

#[test]
fn serve_has_the_options_of_proxy_for_its_clients() {
    let proxy = options("proxy");
    let (shared, own): (Vec<_>, Vec<_>) =
        options("serve").into_iter().partition(|option| proxy.contains(option));
    for option in ["upload-timeout", "send-timeout", "min-rate", "log-format", "admin"] {
        assert!(shared.iter().any(|it| it == option), "{option}: {shared:?}");
    }
    assert_eq!(own, ["cache-mib", "dotfiles"]);
}

#[test]
fn serve_has_metrics_a_log_in_json_and_statistics_of_waits() {
    let dir = site();
    let log = dir.path().join("log");
    let args = ["serve", dir.path().to_str().unwrap(), "--listen", "127.0.0.1:0", "--access-log"];
    let more = ["--log-format", "json", "--admin", "127.0.0.1:0", "--meter-waits"];
    let mut command = hearken(&args);
    command.arg(&log).args(more).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut server = Running { child, out };
    let get = |url: &str, path: &str| {
        let mut client = TcpStream::connect(url.split('/').nth(2).unwrap()).unwrap();
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
        client.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    };
    let urls = [server.line(), server.line()].map(|line| {
        let url = line.split_whitespace().find(|word| word.starts_with("http://"));
        url.unwrap_or_else(|| panic!("{line:?}")).to_owned()
    });
    assert!(get(&urls[0], "/1b").ends_with("\r\n\r\nx"));
    assert!(get(&urls[1], "/metrics").contains("\nhearken_connections_accepted_total{"));
    server.signal(Signal::USR1);
    let mut waits = || said.next().unwrap().unwrap();
    let line = waits();
    assert!(line.starts_with("hearken: ") && line.contains(" waits ("), "{line}");
    server.signal(Signal::TERM);
    let line = waits();
    assert!(line.contains("processor time of waits "), "{line}");
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
    let line: Value = serde_json::from_str(&fs::read_to_string(log).unwrap()).unwrap();
    assert_eq!((&line["status"], &line["target"]), (&200.into(), &"/1b".into()), "{line}");
}

#[test]
fn what_cannot_be_served_is_refused() {
    let dir = site();
    let path = dir.path().to_str().unwrap();
    refused(&["serve", "/no/such/dir"], "/no/such/dir");
    let file = dir.path().join("1b");
    refused(&["serve", file.to_str().unwrap(), "--listen", "127.0.0.1:0"], "1b");
    refused(&["serve", path, "--events", "kqueue"], "\"kqueue\"; known are: auto, select");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let holder = TcpListener::bind(&taken);
    for workers in ["1", "2"] {
        refused(&["serve", path, "--listen", &taken, "--workers", workers], &taken);
    }
    drop(holder);
}

#[test]
fn a_short_queue_of_signals_serves() {
    let dir = site();
    let spec = "rt-signal:dequeue=one:recover=select";
    let (_server, url) = serve(dir.path(), &["--events", spec, "--rt-queue", "4"]);
    let load = ["load", &url, "--rate", "2000", "--duration", "300ms", "--json", "-"];
    let output = run(&load);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["requests"]["replies"], report["requests"]["intended"], "{report}");
    refused(&["serve", ".", "--rt-queue", &u64::MAX.to_string()], "RLIMIT_SIGPENDING");
    refused(&["serve", ".", "--events", "rt-signal:dequeue=two"], "many|one");
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let out = TempDir::new().unwrap();
    let out = out.path().to_str().unwrap();
    refused(&["lab", "quick", "--out", out, "--mechanisms", "kqueue"], "kqueue");
    refused(&["lab", "quick", "--out", out, "--repetitions", "0"], "repetition");
    refused(&["lab", "quick", "--out", "/proc/none"], "/proc/none");
}

#[test]
fn no_time_is_no_timeout() {
    for args in [
        &["serve", ".", "--head-timeout", "0"][..],
        &["serve", ".", "--idle-timeout", "0ms"],
        &["serve", ".", "--upload-timeout", "0"],
        &["load", "http://127.0.0.1:1/", "--duration", "0"],
        &["load", "http://127.0.0.1:1/", "--timeout", "0s"],
    ] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(text(&output.stderr).contains("no time at all"), "{args:?}");
    }
}

#[test]
fn a_load_reports_what_the_server_did() {
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
        assert!(requests["intended"].as_u64().unwrap() > 50, "{report}");
        assert_eq!(requests["replies"], requests["intended"], "{report}");
        assert_eq!(report["status"]["2xx"], requests["intended"]);
        assert_eq!(report["idle"]["asked"], 200);
        assert_eq!(report["idle"]["held"], 200, "{report}");
        assert_eq!(report["latency_ns"]["count"], requests["intended"]);
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
    refused(&[&args[..], &["idle>=99%"]].concat(), "no idle connections");
    refused(&["load", &url, "--rate", "0", "--idle", "1", "--slo", "p99<5ms"], "no requests");
}

#[test]
fn a_knee_is_searched_for() {
    let dir = site();
    let (_server, url) = serve(dir.path(), &[]);
    let search = ["load", &format!("{url}/1b"), "--find-knee", "--trial", "200ms", "--json", "-"];
    let output =
        run(&[&search[..], &["--slo", "errors<=0%", "--max-rate", "50", "--seed", "5"]].concat());
    let knee: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{knee}");
    assert_eq!(
        (&knee["schema"], &knee["limited_by"]),
        (&"hearken-knee/1".into(), &"max-rate".into())
    );
    assert_eq!(
        (&knee["rate"], &knee["high"], &knee["seed"]),
        (&50.0.into(), &Value::Null, &5.into())
    );
    assert_eq!(text(&output.stderr).lines().count(), knee["trials"].as_array().unwrap().len());
    // Nobody listens there.
    let dead = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", dead.local_addr().unwrap());
    drop(dead);
    let output = run(&["load", &url, "--find-knee", "--trial", "200ms"]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("does a server listen there?"));
    refused(&["load", &url, "--find-knee", "--precision", "0%"], "precision");
    refused(&["load", &url, "--find-knee", "--max-rate", "inf"], "highest rate");
    for senseless in [&["--find-knee", "--rate", "5"][..], &["--trial", "5s"]] {
        let output = run(&[&["load", &url], senseless].concat());
        assert_eq!(output.status.code(), Some(2), "{senseless:?}");
    }
}

#[test]
fn rounds_are_made_in_lockstep_and_on_demand() {
    let dir = site();
    let (_server, url) = serve(dir.path(), &[]);
    let url = format!("{url}/1b");
    let output =
        run(&["load", &url, "--lockstep", "5", "--requests", "98", "--close", "--json", "-"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["schema"], "hearken-lockstep/1");
    assert_eq!(
        (&report["requests"]["replies"], &report["content_bytes"]),
        (&100.into(), &1.into())
    );
    // A pass for each number, so that whoever measures can look in between.
    let mut load = hearken(&["load", &url, "--lockstep", "4", "--warm-up", "8", "--on-demand"]);
    let mut load = load.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(load.stdout.take().unwrap()).lines();
    assert_eq!(said.next().unwrap().unwrap(), "ready");
    let mut stdin = load.stdin.take().unwrap();
    for requests in [4, 12] {
        writeln!(stdin, "{requests}").unwrap();
        let pass: Value = serde_json::from_str(&said.next().unwrap().unwrap()).unwrap();
        assert_eq!((&pass["complete"], &pass["connections_opened"]), (&true.into(), &0.into()));
        assert_eq!(pass["requests"]["replies"], requests);
    }
    drop(stdin);
    assert!(load.wait().unwrap().success());
    let wrong = run(&["load", &format!("{url}/none"), "--lockstep", "2"]);
    assert_eq!(wrong.status.code(), Some(1));
    assert!(text(&wrong.stderr).contains("status 404"), "{}", text(&wrong.stderr));
    for senseless in [&["--lockstep", "2", "--rate", "5"][..], &["--close"]] {
        let output = run(&[&["load", &url], senseless].concat());
        assert_eq!(output.status.code(), Some(2), "{senseless:?}");
    }
}

#[test]
fn the_lab_compares_and_reports() {
    let out = TempDir::new().unwrap();
    let dir = out.path().join("new/dir");
    let output = run(&[
        "lab",
        "quick",
        "--mechanisms",
        "poll,epoll-edge",
        "--idle",
        "0,50",
        "--rate",
        "300",
        "--repetitions",
        "1",
        "--out",
        dir.to_str().unwrap(),
    ]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("epoll-edge"), "{}", text(&output.stdout));
    let results: Value =
        serde_json::from_slice(&fs::read(dir.join("results.json")).unwrap()).unwrap();
    assert_eq!(results["complete"], true);
    let samples = results["samples"].as_array().unwrap();
    assert_eq!(samples.len(), 4);
    let report = fs::read_to_string(dir.join("report.html")).unwrap();
    assert!(report.contains("<svg") && report.contains("epoll-edge"));
    // Nothing is fetched from anywhere.
    assert!(!report.contains("src=\"http") && !report.contains("@import"));
}

#[test]
fn a_lab_that_is_interrupted_leaves_what_it_has_and_no_process() {
    let out = TempDir::new().unwrap();
    let mut lab = hearken(&["lab", "quick", "--rate", "300", "--idle", "0,20", "--out"]);
    // What it serves is there, too, so that its processes can be told.
    lab.arg(out.path()).env("TMPDIR", out.path());
    let mut lab = lab.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    // It says so when the first measurement begins.
    let mut said = String::new();
    BufReader::new(lab.stderr.take().unwrap()).read_line(&mut said).unwrap();
    let pid = Pid::from_child(&lab);
    kill_process(pid, Signal::INT).unwrap();
    let status = lab.wait().unwrap();
    assert_eq!(status.code(), Some(130), "{said}");
    let results: Value =
        serde_json::from_slice(&fs::read(out.path().join("results.json")).unwrap()).unwrap();
    assert_eq!(results["complete"], false);
    let ours = format!("{}", out.path().display());
    for process in fs::read_dir("/proc").unwrap() {
        let line = fs::read(process.unwrap().path().join("cmdline")).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&line).contains(&ours));
    }
}

/// Recipes of which one serves, one ends at once, one answers with another file than it was asked for,
/// and one is not installed.
fn recipes(dir: &Path) -> Vec<String> {
    let serve = |name: &str, root: &str| {
        format!(
            "name = \"{name}\"\nabout = \"{name}\"\nversion = [\"{{hearken}}\", \"--version\"]\n\
             command = [\"{{hearken}}\", \"serve\", \"{root}\", \"--listen\", \"127.0.0.1:{{port}}\", \
             \"--events\", \"poll\", \"--idle-timeout\", \"1h\"]\n"
        )
    };
    let lies = serve("lies", "{dir}") + "[files]\n1b = \"two\"\n";
    let broken =
        "name = \"broken\"\ncommand = [\"sh\", \"-c\", \"echo no such thing >&2; exit 3\"]\n";
    let absent = "name = \"absent\"\npackage = \"absent-deb\"\ncommand = [\"no-such-program\"]\n";
    let all = [serve("mine", "{root}"), lies, broken.into(), absent.into()];
    let write = |(index, text): (usize, String)| {
        let path = dir.join(format!("{index}.toml"));
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    all.into_iter().enumerate().map(write).collect()
}

#[test]
fn servers_are_compared_and_whoever_cannot_is_named() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("out");
    let mut args = vec!["lab", "peers", "--short", "--out", out.to_str().unwrap()];
    args.extend(["--server", "hearken,mine,lies,broken,absent", "--workload", "1b,1b-close"]);
    args.extend(["--idle", "0,20", "--requests", "200", "--repetitions", "2"]);
    let recipes = recipes(dir.path());
    args.extend(recipes.iter().flat_map(|path| ["--recipe", path.as_str()]));
    let output = run(&args);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let results: Value =
        serde_json::from_slice(&fs::read(out.join("results.json")).unwrap()).unwrap();
    assert_eq!(results["schema"], "hearken-lab-peers/1");
    assert_eq!(results["complete"], true);
    let names = |of: &Value, key: &str| -> Vec<String> {
        of.as_array().unwrap().iter().map(|it| it[key].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&results["settings"]["participants"], "name"), ["hearken", "mine"]);
    assert!(
        results["settings"]["participants"][1]["version"].as_str().unwrap().contains("hearken")
    );
    assert_eq!(results["samples"].as_array().unwrap().len(), 16);
    for sample in results["samples"].as_array().unwrap() {
        assert!(sample["requests"].as_u64().unwrap() >= 50, "{sample}");
        assert_eq!(sample["idle_connections"], sample["idle"], "{sample}");
        assert!(sample["cpu_ns_per_request"].as_f64().unwrap() > 0.0, "{sample}");
        assert_eq!((&sample["reconnects"], &sample["latency_errors"]), (&0.into(), &0.into()));
    }
    let printed = text(&output.stdout);
    for said in ["no such thing", "3 bytes where the file has 1", "absent-deb", "mine"] {
        assert!(printed.contains(said), "{said}: {printed}");
    }
    assert!(fs::read_to_string(out.join("report.html")).unwrap().contains("<svg"));
}

/// The report of an emulated machine has instructions where others have time, and says so.
#[test]
fn where_the_clock_counts_instructions_cpu_time_is_instructions() {
    let out = TempDir::new().unwrap();
    let mut args = vec!["lab", "peers", "--out", out.path().to_str().unwrap()];
    args.extend(["--clock-is-instructions", "an emulator", "--server", "hearken"]);
    args.extend(["--workload", "1b", "--idle", "0", "--requests", "100", "--repetitions", "1"]);
    let output = run(&args);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let results: Value =
        serde_json::from_slice(&fs::read(out.path().join("results.json")).unwrap()).unwrap();
    assert_eq!(results["settings"]["emulator"], "an emulator");
    let sample = &results["samples"][0];
    assert!(sample["instr_by_clock_per_request"].as_f64().unwrap() > 0.0, "{sample}");
    assert!(sample["cpu_ns_per_request"].is_null() && sample["latency_p50_ns"].is_null());
    let typed: Vec<_> = results["command_line"].as_array().unwrap().iter().take(4).collect();
    assert_eq!(typed, ["scripts/peers-emulated", "OUT", "--server", "hearken"]);
}

/// One that answers by itself stands in for a proxy: what is counted of it is the same.
#[test]
fn proxies_are_compared_before_one_origin() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("out");
    let recipe = |name: &str, kind: &str, command: &str| {
        let path = dir.path().join(format!("{name}.toml"));
        let text = format!("name = \"{name}\"\nkind = \"{kind}\"\n");
        fs::write(&path, format!("{text}command = [\"sh\", \"-c\", \"{command}\"]\n")).unwrap();
        path.display().to_string()
    };
    // It starts only if the origin that it is told of answers.
    let serves = "{hearken} load http://{origin}/1k --rate 50 --duration 100ms >&2 && exec {hearken} \
                  serve {root} --listen 127.0.0.1:{port} --idle-timeout 1h --head-timeout 1h";
    let mine = recipe("mine", "proxy", serves);
    let mut args = vec!["lab", "peers", "--proxies", "--short", "--recipe", &mine];
    args.extend(["--server", "mine", "--reference", "mine", "--out", out.to_str().unwrap()]);
    args.extend(["--idle", "0,20", "--requests", "200", "--repetitions", "1"]);
    let output = run(&args);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let results: Value =
        serde_json::from_slice(&fs::read(out.join("results.json")).unwrap()).unwrap();
    assert_eq!(
        (&results["complete"], &results["settings"]["kind"]),
        (&true.into(), &"proxy".into())
    );
    assert_eq!(results["settings"]["origin"]["name"], "hearken");
    assert_eq!(results["samples"].as_array().unwrap().len(), 6);
    for sample in results["samples"].as_array().unwrap() {
        assert!(sample["workload"].as_str().unwrap().contains("proxied"), "{sample}");
        assert_eq!(sample["rss_per_silent_bytes"].is_number(), sample["idle"] == 20, "{sample}");
    }

    // What is of the other kind is told from what is wrong.
    refused(&["lab", "peers", "--recipe", &mine], "--proxies");
    let server = recipe("server", "server", serves);
    refused(&["lab", "peers", "--proxies", "--recipe", &server], "kind = \"proxy\"");
    refused(&["lab", "peers", "--proxies", "--workload", "1b"], "1k-proxied");
    refused(&["lab", "peers", "--proxies", "--origin", "iis"], "iis");
    refused(&["lab", "peers", "--origin", "nginx"], "--proxies");
}

#[test]
fn a_comparison_that_is_interrupted_leaves_no_process() {
    let out = TempDir::new().unwrap();
    let mut lab = hearken(&["lab", "peers", "--server", "hearken", "--idle", "20", "--out"]);
    // What it serves is there, too, so that its processes can be told.
    lab.arg(out.path()).env("TMPDIR", out.path());
    let mut lab = lab.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(lab.stderr.take().unwrap()).read_line(&mut said).unwrap();
    kill_process(Pid::from_child(&lab), Signal::INT).unwrap();
    assert_eq!(lab.wait().unwrap().code(), Some(130), "{said}");
    let ours = format!("{}", out.path().display());
    for process in fs::read_dir("/proc").unwrap() {
        let line = fs::read(process.unwrap().path().join("cmdline")).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&line).contains(&ours));
    }
}

#[test]
fn recipes_are_listed_and_printed() {
    let listed = run(&["lab", "peers", "--recipes"]);
    for name in ["hearken", "nginx", "nginx-sendfile", "h2o", "lighttpd", "haproxy", "floor"] {
        assert!(text(&listed.stdout).lines().any(|line| line.split(' ').next() == Some(name)));
        let printed = run(&["lab", "peers", "--print-recipe", name]);
        assert!(text(&printed.stdout).contains(&format!("name = \"{name}\"")), "{name}");
    }
    let listed = run(&["lab", "peers", "--proxies", "--recipes"]);
    assert!(
        text(&listed.stdout).contains("hearken proxy") && !text(&listed.stdout).contains("floor")
    );
    let printed = run(&["lab", "peers", "--proxies", "--print-recipe", "nginx"]);
    assert!(text(&printed.stdout).contains("kind = \"proxy\""));
    refused(&["lab", "peers", "--print-recipe", "iis"], "iis");
    refused(&["lab", "peers", "--server", "iis"], "iis");
    refused(&["lab", "peers", "--workload", "2b"], "2b");
    refused(&["lab", "peers", "--recipe", "/no/such.toml"], "/no/such.toml");
}

#[test]
fn manual_and_completions_are_made() {
    let dir = TempDir::new().unwrap();
    let output = run(&["man", dir.path().to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let page = fs::read_to_string(dir.path().join("hearken-serve.1")).unwrap();
    assert!(page.contains("accept\\-limit"));
    for shell in ["bash", "zsh", "fish"] {
        let output = run(&["completions", shell]);
        assert!(text(&output.stdout).contains("accept-limit"), "{shell}");
    }
}

#[test]
fn a_load_tells_what_the_watched_server_used() {
    let dir = site();
    let (server, url) = serve(dir.path(), &[]);
    let port = url.trim_end_matches('/').rsplit(':').next().unwrap().to_owned();
    for what in [server.child.id().to_string(), format!(":{port}")] {
        let args = ["load", &url, "--rate", "200", "--duration", "300ms", "--watch", &what];
        let output = run(&[&args[..], &["--watch-interval", "50ms", "--json", "-"]].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let seen = &report["server"];
        assert_eq!((seen["what"].as_str(), seen["processes"].as_u64()), (Some(&*what), Some(1)));
        assert!(seen["total"]["cpu_ns"].as_u64() > Some(0), "{seen}");
        assert!(seen["total"]["peak_sockets"].as_u64() > Some(1), "{seen}");
        let samples = seen["samples"].as_array().unwrap();
        assert!(
            samples.len() >= 2
                && samples[0]["cpu_ns"].as_u64() < samples.last().unwrap()["cpu_ns"].as_u64()
        );
        let shown = run(&args);
        assert!(text(&shown.stdout).contains(&format!("  server     {what}: 1 process")));
        assert!(shown.stderr.is_empty(), "{}", text(&shown.stderr));
    }
}

#[test]
fn what_cannot_be_watched_is_refused() {
    let url = "http://127.0.0.1:1/";
    for what in ["2147483647", ":0", "no/such/group", "no-such-unit-anywhere"] {
        refused(&["load", url, "--watch", what], &format!("cannot watch \"{what}\": "));
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
fn progress_is_a_line_each_second_where_it_is_asked_for() {
    let dir = site();
    let (_server, url) = serve(dir.path(), &[]);
    // Several at once: there is a line only after a second.
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
