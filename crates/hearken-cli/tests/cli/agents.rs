//! `hearken load` on many machines: plans, agents, and the programs that start agents.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::program::{HEARKEN, fails_with, hearken, printed, run, script, text};

/// A server with an access log.
struct Server {
    child: Child,
    url: String,
    log: PathBuf,
    dir: TempDir,
}

impl Server {
    fn start() -> Server {
        let dir = TempDir::new().unwrap();
        fs::create_dir(dir.path().join("site")).unwrap();
        fs::write(dir.path().join("site/1b"), "x").unwrap();
        let log = dir.path().join("access");
        let mut command = hearken(&["serve", "--listen", "127.0.0.1:0", "--access-log"]);
        let mut child =
            command.arg(&log).arg(dir.path().join("site")).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.split_whitespace().find(|word| word.starts_with("http://")).unwrap();
        Server { child, url: format!("{url}/1b"), log, dir }
    }

    /// Waits until the log has the expected number of requests. Returns the number.
    fn logged(&self, expected: u64) -> u64 {
        let mut lines = 0;
        for _ in 0..200 {
            lines = fs::read_to_string(&self.log).unwrap_or_default().lines().count() as u64;
            if lines >= expected {
                break;
            }
            thread::sleep(Duration::from_millis(20));
        }
        lines
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const OPTIONS: &[&str] = &[
    "http://127.0.0.1:1/?a=b&c",
    "--rate=1000.5",
    "--arrivals=uniform",
    "--duration=1500ms",
    "--connections=7",
    "--idle-request",
    "--header=A: 'quoted' \"too\"",
    "--header=B: 007",
    "--sources=127.0.0.1,127.0.0.2",
    "--seed=18446744073709551615",
    "--size=3",
    "--start-at=2030-01-31T12:00:00.5Z",
];

#[test]
fn a_printed_plan_reproduces_its_options() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("plan.toml");
    let file = file.to_str().unwrap();
    let load = |more: &[&str], last: &str| printed(&[&["load"], more, &[last]].concat());
    fs::write(file, load(OPTIONS, "--print-plan")).unwrap();
    let plan = fs::read_to_string(file).unwrap();
    for line in ["rate = 1000.5", "connections = 7", "idle-request = true", "start-at = \"2030-"] {
        assert!(plan.lines().any(|it| it.starts_with(line)), "{line}: {plan}");
    }
    let directly = load(OPTIONS, "--check");
    assert!(directly.starts_with("valid: hearken load 'http://127.0.0.1:1/?a=b&c' --rate 1000.5 "));
    assert_eq!(load(&["--plan", file], "--check"), directly);
    assert_eq!(load(&["--plan", file], "--print-plan"), plan);

    // The command line overrides the plan, and conflicting options of the plan.
    let rate = load(&["--plan", file, "--rate", "5"], "--check");
    assert_eq!(rate, directly.replace("1000.5", "5"));
    let other = load(&["--plan", file, "http://127.0.0.1:2/"], "--check");
    assert_eq!(other, directly.replace("'http://127.0.0.1:1/?a=b&c'", "http://127.0.0.1:2/"));
    let rounds = load(&["--plan", file, "--lockstep", "4"], "--print-plan");
    assert!(rounds.contains("lockstep = 4") && !rounds.contains("rate"), "{rounds}");
}

#[test]
fn plans_accept_toml_types() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("plan.toml");
    fs::write(
        &file,
        "url = 'http://a/'\nrate = 1e3\nconnections = 0x1_0\nclosed = false\nidle-request = true\n\
         timeout = 5\nstart-at = 2030-01-31T12:00:00Z\nsources = ['127.0.0.1', '127.0.0.2']\n",
    )
    .unwrap();
    let check = printed(&["load", "--plan", file.to_str().unwrap(), "--check"]);
    assert_eq!(
        check,
        "valid: hearken load http://a/ --rate 1e3 --connections 16 --timeout 5 --sources 127.0.0.1 \
         --sources 127.0.0.2 --idle-request --start-at 2030-01-31T12:00:00Z\n"
    );
}

#[test]
fn errors_in_a_plan_are_reported_with_their_position() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("plan.toml");
    let path = file.to_str().unwrap();
    for (plan, message) in [
        (
            "raet = 3\nurl = 'http://a/'\n",
            "plan.toml:1:1: unknown key 'raet' (did you mean 'rate'?)",
        ),
        ("url = 'http://a/'\nzzz = 3\n", "plan.toml:2:1: unknown key 'zzz'; hearken load --help"),
        ("url = 'http://a/'\nrate = 'fast'\n", ":2:8: 'rate': invalid rate 'fast'"),
        ("url = 'http://a/'\n  timeout = '0s'\n", ":2:13: 'timeout': must be greater than 0"),
        (
            "url = 'http://a/'\narrivals = 'x'\n",
            ":2:12: 'arrivals' is one of: poisson, constant, uniform",
        ),
        ("url = 'http://a/'\nclosed = 3\n", ":2:10: 'closed' is true or false, not a number"),
        ("url = 'http://a/'\nrate = true\n", ":2:8: 'rate' takes a value, not true or false"),
        ("url = 'http://a/'\nrate = [1, 2]\n", ":2:8: 'rate' takes a single value"),
        ("url = 'http://a/'\n[rate]\nx = 1\n", "'rate' takes a value, not a table"),
        ("url = 'http://a/'\nrate =\n", "plan.toml:2:7: "),
        ("url = 'http://a/'\nrate = 1\nrate = 2\n", "plan.toml:3:1: duplicate key"),
        ("url = 'http://a/'\njson = 'x'\n", ":2:1: 'json' is not part of a plan"),
        ("url = 'http://a/'\nplan = 'x'\n", ":2:1: 'plan' is not part of a plan"),
        ("url = '--json=/x'\n", ":1:7: 'url' cannot begin with a dash"),
        ("url = 'http://a/'\nstart-at = 2030-01-31T12:00:00\n", ":2:12: 'start-at': "),
        (
            "url = 'http://a/'\n[files]\na = '***'\n",
            ":3:5: content of file 'a' is not valid base64",
        ),
        ("url = 'http://a/'\nlockstep = 1\nrate = 1\n", "cannot be used with '--rate"),
        ("rate = 1\n", "plan.toml: the following required arguments were not provided: <URL>"),
        (
            "url = 'http://a/'\nconnections = 2\nsize = 3\n",
            "there are fewer connections than threads",
        ),
    ] {
        fs::write(&file, plan).unwrap();
        fails_with(&["load", "--plan", path, "--check"], message);
        fails_with(&["load", "--plan", path, "--rank", "0"], "");
    }
    fs::write(&file, b"url = '\xff'").unwrap();
    fails_with(&["load", "--plan", path, "--check"], "plan.toml");
    fails_with(&["load", "--plan", "/no/such/plan", "--check"], "/no/such/plan");
}

#[test]
fn local_agents_report_one_result_that_matches_the_server() {
    let server = Server::start();
    let load = ["load", &server.url, "--rate", "600", "--duration", "1s", "--connections", "10"];
    let output = run(&[&load[..], &["--idle", "8", "--on", "local:3", "--json", "-"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let replies = result["requests"]["replies"].as_u64().unwrap();
    assert!(replies > 100, "{result}");
    assert_eq!(result["requests"]["scheduled"], replies);
    assert_eq!(result["latency_ns"]["count"], replies);
    assert_eq!(server.logged(replies), replies);
    assert_eq!((&result["connections"], &result["idle"]["requested"]), (&10.into(), &8.into()));
    assert_eq!(result["offered_rate"], 600.0);
    let parts = result["parts"].as_array().unwrap();
    let ranks: Vec<_> = parts.iter().map(|part| part["rank"].as_u64().unwrap()).collect();
    assert_eq!(ranks, [0, 1, 2]);
    // All agents have the same clock, so its state does not matter.
    assert!(parts.iter().all(|part| part["clock_synchronised"].is_null()), "{parts:?}");
    // All agents start at the same time.
    let starts: Vec<_> = parts.iter().map(|part| &part["scheduled_start_unix_ns"]).collect();
    assert!(starts[0].is_u64() && starts.iter().all(|it| *it == starts[0]), "{parts:?}");
}

#[test]
fn objectives_apply_to_the_merged_result() {
    let server = Server::start();
    let load = ["load", &server.url, "--rate", "300", "--duration", "300ms", "--on", "local:2"];
    for (objective, status) in [("errors<1%", 0), ("p50<1ns", 3)] {
        let output = run(&[&load[..], &["--slo", objective, "--json", "-"]].concat());
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{objective}: {errors}");
        let result: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(result["objectives"][0]["passed"], status == 0, "{result}");
    }
}

#[test]
fn agents_receive_the_files_of_a_plan() {
    let server = Server::start();
    let dir = server.dir.path();
    let root = server.url.trim_end_matches("1b");
    fs::write(dir.join("site/other"), "y").unwrap();
    fs::write(dir.join("paths"), "/1b\0/other\0").unwrap();
    let plan = format!("url = '{root}'\nrate = 200\nduration = '300ms'\nwlog = 'y,paths'\n");
    fs::write(dir.join("plan.toml"), plan).unwrap();
    let plan = dir.join("plan.toml");
    let load = ["load", "--plan", plan.to_str().unwrap()];
    let check = printed(&[&load[..], &["--check"]].concat());
    assert!(check.contains(&format!("--wlog y,{}/paths", dir.display())), "{check}");
    // A flag replaces the request source of the plan.
    let urls = dir.join("urls");
    fs::write(&urls, "/1b\n").unwrap();
    let other = printed(&[&load[..], &["--check", "--urls", urls.to_str().unwrap()]].concat());
    assert!(!other.contains("--wlog"), "{other}");

    // The agents run in another directory, and the file is moved away.
    let binary = script(
        &dir.join("agent"),
        &format!(
            "cd /\nmv {0}/paths {0}/gone 2>/dev/null\nexec {1} \"$@\"\n",
            dir.display(),
            HEARKEN
        ),
    );
    // An agent that starts late fails.
    let agents = ["--on", "local:2", "--start-in", "5s", "--agent-binary", &binary, "--json", "-"];
    let result: Value = serde_json::from_str(&printed(&[&load[..], &agents].concat())).unwrap();
    server.logged(result["requests"]["replies"].as_u64().unwrap());
    let log = fs::read_to_string(&server.log).unwrap();
    assert!(log.contains("GET /1b ") && log.contains("GET /other "), "{log}");

    fs::remove_file(dir.join("gone")).unwrap();
    fails_with(&[&load[..], &["--on", "local:2"]].concat(), "paths");
    fails_with(&[&load[..], &["--check"]].concat(), "paths");
}

#[test]
fn a_failing_agent_ends_the_load_with_its_error() {
    let server = Server::start();
    let binary = server.dir.path().join("agent");
    let load = ["load", &server.url, "--rate", "30", "--duration", "60s", "--on", "local:3"];
    for (action, status, message) in [
        ("exec \"$0\" \"$@\" --start-at 1000000000", 2, "rank 1 of 3: start time 2001-09-09"),
        ("exit 3", 1, "rank 1 failed: exit status: 3"),
        ("exit 0", 1, "no result from rank 1"),
        ("echo '@hearken, or so'; exit 1", 1, "rank 1 failed"),
    ] {
        // An agent that exits successfully does not end the others, so these runs are short.
        let short = if action == "exit 0" { &["--duration", "300ms"][..] } else { &[] };
        let action = action.replace("\"$0\"", HEARKEN);
        let text_of =
            format!("case \"$*\" in *'--rank 1') {action};; esac\nexec {HEARKEN} \"$@\"\n");
        let agent = script(&binary, &text_of);
        let load: Vec<_> = match short.is_empty() {
            true => load.to_vec(),
            false => load.iter().map(|&it| if it == "60s" { "300ms" } else { it }).collect(),
        };
        let output = run(&[&load[..], &["--agent-binary", &agent]].concat());
        assert_eq!(output.status.code(), Some(status), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains(message), "{message}: {}", text(&output.stderr));
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn interrupted_agents_report_a_partial_result() {
    let server = Server::start();
    let args = ["load", &server.url, "--rate", "300", "--duration", "60s", "--on", "local:2"];
    let mut load = hearken(&[&args[..], &["--json", "-"]].concat());
    let load = load.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    assert!(server.logged(20) >= 20);
    kill_process(Pid::from_child(&load), Signal::INT).unwrap();
    let output = load.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["complete"], false);
    assert_eq!(result["parts"].as_array().unwrap().len(), 2);
    let replies = result["requests"]["replies"].as_u64().unwrap();
    assert!(replies >= 20 && server.logged(replies) >= replies, "{result}");
}

#[test]
fn agents_take_their_rank_from_the_environment() {
    let server = Server::start();
    let load = ["load", &server.url, "-c", "50", "--rate", "300", "--duration", "200ms"];
    for (environment, more, rank) in [
        (&[("SLURM_PROCID", "2"), ("SLURM_NTASKS", "5")][..], &["--agent"][..], 2),
        (&[("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "5")], &["--agent"], 1),
        (&[("JOB_COMPLETION_INDEX", "4")], &["--size", "5"], 4),
        (&[("NOMAD_ALLOC_INDEX", "0")], &["--size", "5"], 0),
        (&[("SLURM_PROCID", "2"), ("SLURM_NTASKS", "9")], &["--size", "5", "--rank", "3"], 3),
    ] {
        let mut command = hearken(&[&load[..], more].concat());
        let output = command.envs(environment.iter().copied()).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(text(&output.stdout).lines().count(), 1);
        let result: Value = serde_json::from_slice(&output.stdout).unwrap();
        let part = &result["part"];
        assert_eq!((&part["rank"], &part["size"]), (&rank.into(), &5.into()), "{environment:?}");
        assert_eq!((&result["connections"], &result["offered_rate"]), (&10.into(), &60.0.into()));
    }
    // Without --agent or --size the environment is ignored.
    let mut command = hearken(&load);
    let output = command.envs([("SLURM_PROCID", "2"), ("SLURM_NTASKS", "5")]).output().unwrap();
    assert!(text(&output.stdout).contains("300.0 requests/s offered"), "{}", text(&output.stdout));
    // A start time alone does not make an agent.
    let alone = printed(&[&load[..], &["--start-in", "10ms"]].concat());
    assert!(alone.contains("300.0 requests/s offered"), "{alone}");
    // {rank} in a file name is replaced.
    let file = server.dir.path().join("result-{rank}.json");
    let args = ["--rank", "1", "--size", "2", "--json", file.to_str().unwrap()];
    assert!(run(&[&load[..], &args].concat()).status.success());
    assert!(server.dir.path().join("result-1.json").exists());
}

#[test]
fn incomplete_agent_arguments_are_rejected() {
    let load = ["load", "http://127.0.0.1:1/", "--duration", "1s"];
    for (more, message) in [
        (&["--size", "3"][..], "size 3"),
        (&["--rank", "3"], "rank 3"),
        (&["--rank", "3", "--size", "3"], "rank 3 of 3"),
        (&["--rank", "0", "--size", "2", "--start-at", "1000000000"], "start time 2001"),
        (&["--rank", "0", "--size", "2", "--start-at", "99999999999"], "more than a day away"),
        (&["--rank", "0", "--size", "2", "--start-in", "1s"], "--start-at"),
        (&["--start-at", "1000000000"], "start time 2001"),
        (&["-c", "50", "--rank", "0", "--size", "51"], "there are fewer connections than threads"),
        (&["-c", "50", "--on", "local:51"], "there are fewer connections than threads"),
        (&["--on", "local:2", "--agent-binary", "/no/such/program"], "/no/such/program"),
        (&["--on", "local:2", "--size", "3"], "--size"),
    ] {
        fails_with(&[&load[..], more].concat(), message);
    }
    let missing = hearken(&[&load[..], &["--on", "slurm:2"]].concat())
        .env("HEARKEN_SRUN", "no-such-srun")
        .output()
        .unwrap();
    assert_eq!(missing.status.code(), Some(2));
    assert!(text(&missing.stderr).contains("cannot run 'no-such-srun'"), "{missing:?}");
    for wrong in ["slurm", "slurm:0", "kubernetes:3", "local:99999999"] {
        assert_eq!(run(&[&load[..], &["--on", wrong]].concat()).status.code(), Some(2));
    }
}

#[test]
fn agents_with_equal_arguments_use_the_same_seed() {
    let server = Server::start();
    let seed = |more: &[&str]| {
        let load = ["load", &server.url, "--rate", "100", "--duration", "100ms", "--rank", "0"];
        let output = printed(&[&load[..], more].concat());
        serde_json::from_str::<Value>(&output).unwrap()["seed"].as_u64().unwrap()
    };
    assert_eq!(seed(&["--size", "2"]), seed(&["--size", "2"]));
    assert_ne!(seed(&["--size", "2"]), seed(&["--size", "3"]));
    assert_eq!(seed(&["--size", "2", "--seed", "7"]), 7);
}
