//! `hearken lab`: experiments, their reports, and recipes of other servers.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::program::{fails_with, hearken, run, text};

/// Reads the results of a run.
fn results(out: &Path) -> Value {
    serde_json::from_slice(&fs::read(out.join("results.json")).unwrap()).unwrap()
}

#[test]
fn invalid_arguments_are_explained() {
    let out = TempDir::new().unwrap();
    let out = out.path().to_str().unwrap();
    let run = |arguments: &[&str], part: &str| {
        fails_with(&[&["lab", "run", "--out", out], arguments].concat(), part);
    };
    run(&["quick", "--server", "kqueue"], "kqueue");
    run(&["quick", "--repetitions", "0"], "repetition");
    run(&["quick", "--set", "idel=5"], "did you mean 'idle'?");
    run(&["peers", "--set", "workload=2b"], "unknown value '2b'");
    run(&["peers", "--origin", "nginx"], "no origin");
    run(&["proxies", "--origin", "iis"], "unknown recipe 'iis'");
    run(&["peers", "--recipe", "/no/such.toml"], "/no/such.toml");
    run(&["slow"], "unknown experiment 'slow'");
    run(&["/no/such.toml"], "/no/such.toml");
    fails_with(&["lab", "run", "quick", "--out", "/proc/none"], "/proc/none");
    fails_with(&["lab", "run", "--resume", out], "journal.jsonl");
}

#[test]
fn quick_compares_mechanisms() {
    let out = TempDir::new().unwrap();
    let dir = out.path().join("new/dir");
    let path = dir.to_str().unwrap();
    let mut args = vec!["lab", "run", "quick", "--server", "poll,epoll-edge", "--out", path];
    args.extend(["--set", "idle=0,50", "--set", "rate=300", "--set", "duration=200ms"]);
    args.extend(["--set", "warm-up=100ms", "--repetitions", "1"]);
    let output = run(&args);
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    assert!(text(&output.stdout).contains("epoll-edge"), "{}", text(&output.stdout));
    let results = results(&dir);
    assert_eq!(results["complete"], true);
    let samples = results["experiments"][0]["samples"].as_array().unwrap();
    assert_eq!(samples.len(), 4);
    for sample in samples {
        let metrics = &sample["metrics"];
        assert!(metrics["cpu_ns"].as_f64().unwrap() > 0.0, "{sample}");
        assert!(metrics["latency_p50_ns"].as_f64().unwrap() > 0.0, "{sample}");
        assert_eq!(metrics["rss_per_idle_bytes"].is_f64(), sample["values"]["idle"] == "50");
    }
    let report = fs::read_to_string(dir.join("report.html")).unwrap();
    assert!(report.contains("<svg") && report.contains("epoll-edge"));

    // The page is rendered again from the results, and a complete run is not repeated.
    fs::remove_file(dir.join("report.html")).unwrap();
    assert!(run(&["lab", "report", path]).status.success());
    assert_eq!(fs::read_to_string(dir.join("report.html")).unwrap(), report);
    let journal = fs::read(dir.join("journal.jsonl")).unwrap();
    assert!(run(&["lab", "run", "--resume", path]).status.success());
    assert_eq!(fs::read(dir.join("journal.jsonl")).unwrap(), journal);
}

#[test]
fn interrupted_run_leaves_no_process_and_is_resumed() {
    let out = TempDir::new().unwrap();
    let mut lab = start_short_run(out.path());
    // The first line appears when the first measurement begins, the second when it has ended.
    let mut lines = BufReader::new(lab.stderr.take().unwrap()).lines();
    let _ = (lines.next(), lines.next());
    kill_process(Pid::from_child(&lab), Signal::INT).unwrap();
    assert_eq!(lab.wait().unwrap().code(), Some(130));
    assert_eq!(results(out.path())["complete"], false);
    check_resumption(out.path());
}

#[test]
fn run_killed_at_any_moment_leaves_no_process_and_is_resumed() {
    check_kills(3);
}

#[test]
#[ignore = "takes ten minutes"]
fn run_killed_at_a_hundred_moments_leaves_no_process_and_is_resumed() {
    check_kills(100);
}

/// Kills runs at random moments.
fn check_kills(kills: u64) {
    for kill in 0..kills {
        let out = TempDir::new().unwrap();
        let mut lab = start_short_run(out.path());
        let mut random = fastrand::Rng::with_seed(kill);
        std::thread::sleep(Duration::from_millis(random.u64(..2500)));
        let signal = [Signal::KILL, Signal::TERM][random.usize(..2)];
        let pid = Pid::from_child(&lab);
        let is_running = lab.try_wait().unwrap().is_none();
        if is_running {
            kill_process(pid, signal).unwrap();
        }
        lab.wait().unwrap();
        match out.path().join("journal.jsonl").exists() {
            true => check_resumption(out.path()),
            // The run had not begun.
            false => wait_for_children(out.path()),
        }
    }
}

/// Starts a run with four measurements in a directory, which identifies its processes.
fn start_short_run(out: &Path) -> Child {
    let path = out.to_str().unwrap();
    let mut args = vec!["lab", "run", "quick", "--server", "poll", "--set", "idle=0,20"];
    args.extend(["--set", "rate=300", "--set", "duration=100ms", "--set", "warm-up=50ms"]);
    args.extend(["--repetitions", "2", "--out", path]);
    let mut lab = hearken(&args);
    lab.env("TMPDIR", out).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
}

/// Checks that no process of a run is left, and that it can be completed.
fn check_resumption(out: &Path) {
    wait_for_children(out);
    let output = run(&["lab", "run", "--resume", out.to_str().unwrap()]);
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    let results = results(out);
    assert_eq!(results["complete"], true);
    assert_eq!(results["experiments"][0]["samples"].as_array().unwrap().len(), 4);
}

/// Waits until no process of a run is left. The kernel kills the processes of a lab that was killed, at its own
/// pace.
fn wait_for_children(out: &Path) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while children_remain(out) {
        assert!(Instant::now() < deadline, "a process remains");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn advice_for_a_workload_ends_with_a_command_line() {
    let out = TempDir::new().unwrap();
    let file = out.path().join("mine.toml");
    let (path, directory) = (file.to_str().unwrap(), out.path().to_str().unwrap());
    let advise = ["lab", "advise", path, "--out", directory];
    fs::write(&file, "connections = 30\nrate = 200\nactive = 0.5\n").unwrap();
    fails_with(&advise, "did you mean 'active-share'?");
    fs::write(
        &file,
        "connections = 30\nrate = 200\nactive-share = 0.1\nrequests-per-connection = 2\n\
         sizes = [{ bytes = 10 }, { bytes = 2000 }]\n",
    )
    .unwrap();
    let short = ["--trial", "100ms", "--repetitions", "2", "--server", "poll,epoll-edge"];
    let output = run(&[&advise[..], &short].concat());
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    let printed = text(&output.stdout);
    for part in
        ["30 connections, 3 of them active", "Next best: ", "hearken serve DIRECTORY --listen"]
    {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    assert!(out.path().join("decision/report.html").exists());
}

#[test]
fn loads_of_builtin_experiments_are_valid() {
    for experiment in hearken_lab::builtin_experiments().unwrap() {
        let output = run(&["lab", "run", &experiment.name, "--check"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
}

/// Returns whether a process has `directory` in its command line. The served directory is below TMPDIR,
/// which identifies the processes of a test.
fn children_remain(directory: &Path) -> bool {
    let ours = directory.display().to_string();
    fs::read_dir("/proc").unwrap().any(|process| {
        let line = fs::read(process.unwrap().path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(&ours)
    })
}

#[test]
fn own_experiments_are_checked_and_run() {
    let dir = TempDir::new().unwrap();
    let printed = run(&["lab", "print", "quick"]);
    let path = dir.path().join("mine.toml");
    let mine = text(&printed.stdout).replace("name = \"quick\"", "name = \"mine\"");
    fs::write(&path, &mine).unwrap();
    let path = path.to_str().unwrap();
    assert!(text(&run(&["lab", "run", path, "--check"]).stdout).contains("valid"));
    fs::write(path, mine.replacen("per-connection = 1 }", "per-conection = 1 }", 1)).unwrap();
    fails_with(&["lab", "run", path, "--check"], "--per-conection");
    fs::write(path, mine.replacen("reference =", "referense =", 1)).unwrap();
    fails_with(
        &["lab", "run", path, "--check"],
        "unknown key 'referense' (did you mean 'reference'?)",
    );
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
    let mut args =
        vec!["lab", "run", "peers", "--variant", "short", "--out", out.to_str().unwrap()];
    args.extend(["--server", "hearken,mine,lies,broken,absent", "--set", "workload=1b,1b-close"]);
    args.extend(["--set", "idle=0,20", "--set", "requests=200", "--repetitions", "2"]);
    let recipes = recipes(dir.path());
    args.extend(recipes.iter().flat_map(|path| ["--recipe", path.as_str()]));
    let output = run(&args);
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    let results = results(&out);
    assert_eq!(results["schema"], "hearken-lab/1");
    assert_eq!(results["complete"], true);
    let peers = &results["experiments"][0];
    let servers = peers["servers"].as_array().unwrap();
    let names: Vec<&str> = servers.iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["mine", "hearken"]);
    assert!(servers[0]["version"].as_str().unwrap().contains("hearken"));
    assert_eq!(peers["samples"].as_array().unwrap().len(), 16);
    for sample in peers["samples"].as_array().unwrap() {
        let metrics = &sample["metrics"];
        let idle: f64 = sample["values"]["idle"].as_str().unwrap().parse().unwrap();
        assert_eq!(metrics["idle_connections"].as_f64(), Some(idle), "{sample}");
        assert!(metrics["cpu_ns"].as_f64().unwrap() > 0.0, "{sample}");
        let checks = &sample["checks"];
        assert_eq!((&checks["reconnects"], &checks["errors"]), (&0.into(), &0.into()));
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
    let mut args = vec!["lab", "run", "peers", "--out", out.path().to_str().unwrap()];
    args.extend(["--clock-is-instructions", "an emulator", "--server", "hearken"]);
    args.extend(["--set", "workload=1b", "--set", "idle=0", "--set", "requests=100"]);
    args.extend(["--repetitions", "1"]);
    let output = run(&args);
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    let results = results(out.path());
    assert_eq!(results["emulator"], "an emulator");
    let metrics = &results["experiments"][0]["samples"][0]["metrics"];
    assert!(metrics["instructions"].as_f64().unwrap() > 0.0, "{metrics}");
    assert!(metrics["cpu_ns"].is_null() && metrics["latency_p50_ns"].is_null());
    let typed: Vec<_> = results["command_line"].as_array().unwrap().iter().take(5).collect();
    assert_eq!(typed, ["scripts/peers-emulated", "OUT", "peers", "--server", "hearken"]);
}

#[test]
fn proxies_have_a_common_origin() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("out");
    // Starts only if its origin responds.
    let serves = "{hearken} load http://{origin}/1k --rate 50 --duration 100ms >&2 && exec {hearken} \
                  serve {root} --listen 127.0.0.1:{port} --idle-timeout 1h --header-timeout 1h";
    let mine = dir.path().join("mine.toml");
    let recipe = "name = \"mine\"\nkind = \"proxy\"\n";
    fs::write(&mine, format!("{recipe}command = [\"sh\", \"-c\", \"{serves}\"]\n")).unwrap();
    let mut args = vec!["lab", "run", "proxies", "--recipe", mine.to_str().unwrap()];
    args.extend(["--server", "mine", "--reference", "mine", "--out", out.to_str().unwrap()]);
    args.extend(["--set", "idle=0,20", "--set", "requests=200", "--set", "latency=100ms"]);
    args.extend(["--repetitions", "1"]);
    let output = run(&args);
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    let results = results(&out);
    let proxies = &results["experiments"][0];
    assert_eq!(
        (&results["complete"], &proxies["origin"]["name"]),
        (&true.into(), &"hearken".into())
    );
    assert_eq!(proxies["samples"].as_array().unwrap().len(), 6);
    for sample in proxies["samples"].as_array().unwrap() {
        assert!(sample["values"]["workload"].as_str().unwrap().contains("proxied"), "{sample}");
        let unused = &sample["metrics"]["rss_per_unused_bytes"];
        assert_eq!(unused.is_number(), sample["values"]["idle"] == "20", "{sample}");
    }
}

#[test]
fn experiments_and_recipes_are_listed_and_printed() {
    let listed = run(&["lab", "list"]);
    for name in ["quick", "peers", "proxies"] {
        assert!(text(&listed.stdout).lines().any(|line| line.split(' ').next() == Some(name)));
    }
    let listed = run(&["lab", "list", "--recipes"]);
    assert!(text(&listed.stdout).contains("hearken proxy"));
    for name in ["hearken", "nginx", "nginx-sendfile", "h2o", "lighttpd", "haproxy", "floor"] {
        let words = |line: &str| line.split_whitespace().nth(1).map(str::to_owned);
        assert!(text(&listed.stdout).lines().any(|line| words(line).as_deref() == Some(name)));
        let printed = run(&["lab", "print", "--recipe", name]);
        assert!(text(&printed.stdout).contains(&format!("name = \"{name}\"")), "{name}");
    }
    let printed = run(&["lab", "print", "--proxy", "nginx"]);
    assert!(text(&printed.stdout).contains("kind = \"proxy\""));
    fails_with(&["lab", "print", "--recipe", "iis"], "iis");
    fails_with(&["lab", "print", "slow"], "unknown experiment 'slow'");
}
