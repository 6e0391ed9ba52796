//! `hearken lab`: experiments, their reports, and recipes of other servers.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::program::{fails_with, hearken, run, text};

#[test]
fn quick_rejects_invalid_settings() {
    let out = TempDir::new().unwrap();
    let out = out.path().to_str().unwrap();
    fails_with(&["lab", "quick", "--out", out, "--mechanisms", "kqueue"], "kqueue");
    fails_with(&["lab", "quick", "--out", out, "--repetitions", "0"], "repetition");
    fails_with(&["lab", "quick", "--out", "/proc/none"], "/proc/none");
}

#[test]
fn quick_writes_results_and_a_report() {
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
    // The report is self-contained.
    assert!(!report.contains("src=\"http") && !report.contains("@import"));
}

#[test]
fn interrupted_quick_writes_results_and_leaves_no_process() {
    let out = TempDir::new().unwrap();
    let mut lab = hearken(&["lab", "quick", "--rate", "300", "--idle", "0,20", "--out"]);
    // The served directory is below TMPDIR, which identifies the processes of this test.
    lab.arg(out.path()).env("TMPDIR", out.path());
    let mut lab = lab.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    // The first line appears when the first measurement begins.
    let mut line = String::new();
    BufReader::new(lab.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let pid = Pid::from_child(&lab);
    kill_process(pid, Signal::INT).unwrap();
    let status = lab.wait().unwrap();
    assert_eq!(status.code(), Some(130), "{line}");
    let results: Value =
        serde_json::from_slice(&fs::read(out.path().join("results.json")).unwrap()).unwrap();
    assert_eq!(results["complete"], false);
    let ours = format!("{}", out.path().display());
    for process in fs::read_dir("/proc").unwrap() {
        let line = fs::read(process.unwrap().path().join("cmdline")).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&line).contains(&ours));
    }
}

/// Writes recipes of a server that works, one that sends another file, one that exits at once, and one
/// that is not installed.
fn recipes(dir: &Path) -> Vec<String> {
    let serve = |name: &str, root: &str| {
        format!(
            "name = \"{name}\"\ndescription = \"{name}\"\nversion = [\"{{hearken}}\", \"--version\"]\n\
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
fn peers_compares_servers_and_reports_failures() {
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
    assert_eq!(results["schema"], "hearken-lab-peers/2");
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
    for part in ["no such thing", "sent 3 bytes of content, expected 1", "absent-deb", "mine"] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    assert!(fs::read_to_string(out.join("report.html")).unwrap().contains("<svg"));
}

#[test]
fn emulated_machines_report_instructions() {
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
    assert!(sample["instructions_emulated_per_request"].as_f64().unwrap() > 0.0, "{sample}");
    assert!(sample["cpu_ns_per_request"].is_null() && sample["latency_p50_ns"].is_null());
    let typed: Vec<_> = results["command_line"].as_array().unwrap().iter().take(4).collect();
    assert_eq!(typed, ["scripts/peers-emulated", "OUT", "--server", "hearken"]);
}

#[test]
fn peers_compares_proxies_with_one_origin() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("out");
    let recipe = |name: &str, kind: &str, command: &str| {
        let path = dir.path().join(format!("{name}.toml"));
        let text = format!("name = \"{name}\"\nkind = \"{kind}\"\n");
        fs::write(&path, format!("{text}command = [\"sh\", \"-c\", \"{command}\"]\n")).unwrap();
        path.display().to_string()
    };
    // Starts only if its origin responds.
    let serves = "{hearken} load http://{origin}/1k --rate 50 --duration 100ms >&2 && exec {hearken} \
                  serve {root} --listen 127.0.0.1:{port} --idle-timeout 1h --header-timeout 1h";
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
        assert_eq!(sample["rss_per_unused_bytes"].is_number(), sample["idle"] == 20, "{sample}");
    }

    // Recipes and workloads of the other kind are reported as such.
    fails_with(&["lab", "peers", "--recipe", &mine], "--proxies");
    let server = recipe("server", "server", serves);
    fails_with(&["lab", "peers", "--proxies", "--recipe", &server], "kind = \"proxy\"");
    fails_with(&["lab", "peers", "--proxies", "--workload", "1b"], "1k-proxied");
    fails_with(&["lab", "peers", "--proxies", "--origin", "iis"], "iis");
    fails_with(&["lab", "peers", "--origin", "nginx"], "--proxies");
}

#[test]
fn interrupted_peers_leaves_no_process() {
    let out = TempDir::new().unwrap();
    let mut lab = hearken(&["lab", "peers", "--server", "hearken", "--idle", "20", "--out"]);
    // The served directory is below TMPDIR, which identifies the processes of this test.
    lab.arg(out.path()).env("TMPDIR", out.path());
    let mut lab = lab.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(lab.stderr.take().unwrap()).read_line(&mut line).unwrap();
    kill_process(Pid::from_child(&lab), Signal::INT).unwrap();
    assert_eq!(lab.wait().unwrap().code(), Some(130), "{line}");
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
    fails_with(&["lab", "peers", "--print-recipe", "iis"], "iis");
    fails_with(&["lab", "peers", "--server", "iis"], "iis");
    fails_with(&["lab", "peers", "--workload", "2b"], "2b");
    fails_with(&["lab", "peers", "--recipe", "/no/such.toml"], "/no/such.toml");
}
