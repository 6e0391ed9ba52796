//! The program, started by a test.

#![allow(dead_code, unreachable_pub, missing_docs, reason = "each test executable uses a part")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

pub const HEARKEN: &str = env!("CARGO_BIN_EXE_hearken");

/// Returns the program with these arguments, without the variables of job schedulers.
pub fn hearken(args: &[&str]) -> Command {
    let mut command = Command::new(HEARKEN);
    command.args(args).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if ["SLURM_", "OMPI_", "NOMAD_", "JOB_"].iter().any(|prefix| name.starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    command
}

pub fn run(args: &[&str]) -> Output {
    hearken(args).output().unwrap()
}

pub fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Runs the program and returns its standard output. Panics if it fails.
#[track_caller]
pub fn printed(args: &[&str]) -> String {
    let output = run(args);
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout).to_owned()
}

/// A running program. It is killed when the value is dropped.
pub struct Running {
    pub child: Child,
    pub out: BufReader<ChildStdout>,
}

impl Running {
    pub fn start(args: &[&str]) -> Running {
        let mut child = hearken(args).stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Running { child, out }
    }

    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a URL that refuses connections, as long as the second value is not dropped.
pub fn refusing() -> (String, OwnedFd) {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let addr: SocketAddr = getsockname(&socket).unwrap().try_into().unwrap();
    (format!("http://{addr}/"), socket)
}

/// Creates a directory with two small files.
pub fn site() -> TempDir {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("1b"), "x").unwrap();
    fs::write(dir.path().join("index.html"), "<p>hark</p>").unwrap();
    dir
}

/// Starts a server and returns its URL.
pub fn serve(dir: &Path, more: &[&str]) -> (Running, String) {
    let mut args = vec!["serve", dir.to_str().unwrap(), "--listen", "127.0.0.1:0"];
    args.extend(more);
    let mut server = Running::start(&args);
    let line = server.line();
    let url = line.split_whitespace().find(|word| word.starts_with("http://"));
    let url = url.unwrap_or_else(|| panic!("no address in {line:?}")).to_owned();
    (server, url)
}

/// Creates an executable shell script and returns its path.
pub fn script(path: &Path, text: &str) -> String {
    fs::write(path, format!("#!/bin/sh\n{text}")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Checks that the program fails with exit status 2 and one line that contains `message`.
#[track_caller]
pub fn fails_with(args: &[&str], message: &str) {
    let output = run(args);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.starts_with("hearken: ") && errors.contains(message), "{message}: {errors}");
    assert!(output.stdout.is_empty());
}
