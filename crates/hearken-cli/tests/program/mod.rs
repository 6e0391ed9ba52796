//! The program, started by a test.

#![allow(dead_code, unreachable_pub, missing_docs, reason = "each test uses a part of it")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

pub fn hearken(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hearken"));
    command.args(args).stdin(Stdio::null());
    command
}

pub fn run(args: &[&str]) -> Output {
    hearken(args).output().unwrap()
}

pub fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// A server or a load that runs until it is dropped.
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

pub fn site() -> TempDir {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("1b"), "x").unwrap();
    fs::write(dir.path().join("index.html"), "<p>hark</p>").unwrap();
    dir
}

pub fn serve(dir: &Path, more: &[&str]) -> (Running, String) {
    let mut args = vec!["serve", dir.to_str().unwrap(), "--listen", "127.0.0.1:0"];
    args.extend(more);
    let mut server = Running::start(&args);
    let line = server.line();
    let url = line.split_whitespace().find(|word| word.starts_with("http://"));
    let url = url.unwrap_or_else(|| panic!("no address in {line:?}")).to_owned();
    (server, url)
}

/// Fails with exit status 2 and one line that names what was wrong.
#[track_caller]
pub fn refused(args: &[&str], names: &str) {
    let output = run(args);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(message.starts_with("hearken: ") && message.contains(names), "{message}");
    assert!(output.stdout.is_empty());
}
