//! The files in `deploy/`: they are well formed, the program accepts their arguments, and the script
//! that runs the Kubernetes Job works with a replacement for kubectl.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use yaml_rust2::{Yaml, YamlLoader};

use crate::program::{HEARKEN, script};

fn deploy(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(file)
}

fn job(text: &str) -> Yaml {
    let mut all = YamlLoader::load_from_str(text).unwrap();
    assert_eq!(all.len(), 1);
    all.remove(0)
}

/// Returns the arguments of the only container, with the path of the plan on this machine.
fn arguments(job: &Yaml, plan: &str) -> Vec<String> {
    let arguments = job["spec"]["template"]["spec"]["containers"][0]["args"].as_vec().unwrap();
    let arguments = arguments.iter().map(|it| it.as_str().unwrap().to_owned());
    arguments.map(|it| if it == "/plan/plan.toml" { plan.to_owned() } else { it }).collect()
}

fn output(command: &mut Command) -> Output {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {} {errors}", output.status);
    output
}

#[test]
fn the_kubernetes_job_is_indexed_and_has_valid_arguments() {
    let job = job(&fs::read_to_string(deploy("kubernetes/job.yaml")).unwrap());
    assert_eq!(job["kind"].as_str(), Some("Job"));
    let spec = &job["spec"];
    assert_eq!(spec["completionMode"].as_str(), Some("Indexed"));
    assert_eq!(spec["completions"].as_i64(), spec["parallelism"].as_i64());
    assert_eq!(spec["backoffLimit"].as_i64(), Some(0));
    assert_eq!(spec["template"]["spec"]["restartPolicy"].as_str(), Some("Never"));
    assert!(job["metadata"]["namespace"].is_badvalue());
    let plan = deploy("kubernetes/plan.toml");
    let arguments = arguments(&job, plan.to_str().unwrap());
    let size = spec["completions"].as_i64().unwrap().to_string();
    assert!(arguments.windows(2).any(|pair| pair[0] == "--size" && pair[1] == size));
    let checked = output(Command::new(HEARKEN).args(&arguments).arg("--check"));
    assert!(checked.stdout.starts_with(b"valid: hearken load http://"));
}

#[test]
fn the_nomad_job_has_valid_arguments() {
    let text = fs::read_to_string(deploy("nomad/hearken-load.nomad.hcl")).unwrap();
    let args = text.split("args = [").nth(1).unwrap().split(']').next().unwrap();
    let plan = deploy("kubernetes/plan.toml");
    let arguments = args.split('"').skip(1).step_by(2).map(|argument| {
        argument
            .replace("${NOMAD_TASK_DIR}/plan.toml", plan.to_str().unwrap())
            .replace("${var.size}", "3")
            .replace("${NOMAD_META_start}", "2030-01-31T12:00:00Z")
    });
    output(Command::new(HEARKEN).args(arguments).arg("--check"));
    // Braces are balanced.
    assert_eq!(text.matches('{').count(), text.matches('}').count());
}

/// Replaces kubectl: runs the agents of the Job and reports their state.
const KUBECTL: &str = r#"set -eu
case "$1 $2" in
    'create configmap')
        echo "$3" >"$STUB/name"
        for it in "$@"; do case "$it" in plan.toml=*) cp "${it#*=}" "$STUB/plan.toml" ;; esac; done ;;
    'create -f')
        cat >"$STUB/job.yaml"
        start=$(sed -n 's/^ *- "\(20[^"]*Z\)".*/\1/p' "$STUB/job.yaml")
        for index in 0 1 2; do
            plan=$STUB/plan.toml
            [ "$index" != "$FAILS" ] || plan=/no/such/plan
            JOB_COMPLETION_INDEX=$index "$BINARY" load --agent --plan "$plan" --size 3 \
                --start-at "$start" >"$STUB/$index.out" 2>&1 || touch "$STUB/failed" &
        done
        wait ;;
    get\ job/*) if [ -e "$STUB/failed" ]; then echo 2/1; else echo 3/; fi ;;
    'get pods') printf '2 pod-2\n0 pod-0\n1 pod-1\n' ;;
    logs\ pod-*) cat "$STUB/${2#pod-}.out" ;;
    'delete '*) touch "$STUB/deleted" ;;
    *) echo "kubectl $*" >&2; exit 1 ;;
esac
"#;

/// Replaces the program: records the files to merge.
const MERGE: &str = r#"set -eu
[ "$1 $2" = 'load merge' ] || exec "$BINARY" "$@"
shift 2
printf '%s\n' "$@" >"$STUB/merged"
"#;

/// Returns the script with these arguments, in a directory of its own.
fn run(dir: &Path, fails: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(deploy("kubernetes/run"));
    command
        .args(arguments)
        .current_dir(dir)
        .env("KUBECTL", script(&dir.join("kubectl"), KUBECTL))
        .env("HEARKEN", script(&dir.join("hearken"), MERGE))
        .env("HEARKEN_POLL", "0.1")
        .env("STUB", dir)
        .env("BINARY", HEARKEN)
        .env("FAILS", fails);
    command
}

#[test]
fn the_script_runs_a_job_and_merges_the_results() {
    let dir = TempDir::new().unwrap();
    let dir = dir.path();
    let mut server = Command::new(HEARKEN)
        .args(["serve", ".", "--listen", "127.0.0.1:0", "--exit-with-parent"])
        .current_dir(dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let url = line.split_whitespace().find(|word| word.starts_with("http://")).unwrap();
    let plan = format!("url = '{url}/merged'\nrate = 60\nduration = '200ms'\nsize = 7\n");
    fs::write(dir.join("mine.toml"), plan).unwrap();

    let arguments = ["--image", "registry.example/h:1", "--start-in", "2", "--out", "out"];
    output(&mut run(dir, "none", &[&arguments[..], &["mine.toml"]].concat()));
    let made = job(&fs::read_to_string(dir.join("job.yaml")).unwrap());
    let name = fs::read_to_string(dir.join("name")).unwrap();
    let (spec, pod) = (&made["spec"], &made["spec"]["template"]["spec"]);
    assert_eq!(made["metadata"]["name"].as_str(), Some(name.trim()));
    assert_eq!(pod["volumes"][0]["configMap"]["name"].as_str(), Some(name.trim()));
    assert_eq!(pod["containers"][0]["image"].as_str(), Some("registry.example/h:1"));
    let size = ["completions", "parallelism"].map(|key| spec[key].as_i64());
    assert_eq!(size, [Some(3); 2]);
    assert!(arguments_end_with_a_start(&made));
    let merged = fs::read_to_string(dir.join("merged")).unwrap();
    let mut ranks: Vec<_> = merged
        .lines()
        .map(|file| {
            let result = fs::read(dir.join(file)).unwrap();
            let result: Value = serde_json::from_slice(&result).unwrap();
            result["part"]["rank"].as_u64().unwrap()
        })
        .collect();
    ranks.sort_unstable();
    assert_eq!(ranks, [0, 1, 2]);
    assert!(dir.join("deleted").exists());

    // A failed pod is reported, and nothing is merged.
    fs::remove_file(dir.join("merged")).unwrap();
    let failed = run(dir, "1", &["--start-in", "2", "mine.toml"]).output().unwrap();
    let errors = String::from_utf8_lossy(&failed.stderr);
    assert_eq!(failed.status.code(), Some(1), "{errors}");
    assert!(errors.contains("pod-1: hearken: cannot read plan '/no/such/plan'"), "{errors}");
    assert!(!dir.join("merged").exists());
    server.kill().unwrap();
    server.wait().unwrap();
}

fn arguments_end_with_a_start(job: &Yaml) -> bool {
    let arguments = arguments(job, "plan");
    arguments.windows(2).any(|pair| pair[0] == "--start-at" && pair[1].ends_with('Z'))
}

#[test]
fn the_script_rejects_invalid_arguments_before_it_creates_objects() {
    let dir = TempDir::new().unwrap();
    let dir = dir.path();
    let valid = "url = 'http://127.0.0.1:1/'\nconnections = 50\n";
    fs::write(dir.join("valid.toml"), valid).unwrap();
    fs::write(dir.join("wrong.toml"), "url = 'http://127.0.0.1:1/'\nraet = 1\n").unwrap();
    for (arguments, message) in [
        (&["wrong.toml"][..], "wrong.toml:2:1: unknown key 'raet'"),
        (&["--size", "60", "valid.toml"], "there are fewer connections than threads"),
        (&["--size", "0", "valid.toml"], "--size 0"),
        (&["--start-in", "soon", "valid.toml"], "--start-in soon"),
        (&["--image", "a b", "valid.toml"], "--image a b"),
        (&["--nodes", "3", "valid.toml"], "unknown option '--nodes'"),
        (&[], "Usage"),
    ] {
        let output = run(dir, "none", arguments).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
        assert!(errors.contains(message), "{message}: {errors}");
        assert!(!dir.join("name").exists() && !dir.join("job.yaml").exists());
    }
}
