//! The recorder as a process: counting and timing of requests.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

struct Recorder {
    child: Child,
    out: BufReader<ChildStdout>,
    address: String,
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start(arguments: &[&str]) -> Recorder {
    let mut command = Command::new(env!("CARGO_BIN_EXE_recorder"));
    command.args(arguments).stdout(Stdio::piped());
    let mut child = command.spawn().expect("recorder should start");
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("listening on http://").expect(&line);
    let address = address.trim_end_matches('/').to_owned();
    Recorder { child, out, address }
}

impl Recorder {
    fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.address).unwrap()
    }

    fn stop(&self) {
        kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGTERM).unwrap();
    }

    fn report(mut self) -> Value {
        let mut text = String::new();
        self.out.read_to_string(&mut text).unwrap();
        assert!(self.child.wait().unwrap().success());
        serde_json::from_str(&text).expect("JSON")
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
}

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\nx";

fn read_replies(stream: &mut TcpStream, times: usize) {
    let mut reply = vec![0; REPLY.len() * times];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(reply, REPLY.repeat(times));
}

#[test]
fn counts_and_times_all_requests() {
    let recorder = start(&["--rate", "1000"]);
    let (mut one, mut other) = (recorder.connect(), recorder.connect());
    let before = now();
    one.write_all(REQUEST).unwrap();
    read_replies(&mut one, 1);
    let between = now();
    // In pieces, and several in one segment.
    for piece in [&REQUEST[..REQUEST.len() - 3], &REQUEST[REQUEST.len() - 3..]] {
        other.write_all(piece).unwrap();
    }
    read_replies(&mut other, 1);
    one.write_all(&REQUEST.repeat(3)).unwrap();
    read_replies(&mut one, 3);
    let after = now();
    recorder.stop();
    let report = recorder.report();
    assert_eq!(report["schema"], "hearken-recorder/2");
    assert_eq!((&report["requests"], &report["replies"]), (&5.into(), &5.into()), "{report}");
    assert_eq!((&report["connections"], &report["lost"]), (&2.into(), &0.into()));
    let at = |name: &str| report[name].as_u64().unwrap();
    assert!((before..between).contains(&at("first_unix_ns")), "{before} {between} {report}");
    assert!((between..after).contains(&at("last_unix_ns")), "{between} {after} {report}");
    assert_eq!(report["fit"]["rate"], 1000.0);
    assert!(report["gaps_ns"]["p50"].is_u64());
}

#[test]
fn exits_after_the_given_number_of_requests_and_omits_the_first() {
    let recorder = start(&["--requests=3", "--skip=2", "--spin"]);
    let mut stream = recorder.connect();
    for _ in 0..3 {
        stream.write_all(REQUEST).unwrap();
        read_replies(&mut stream, 1);
    }
    let report = recorder.report();
    assert_eq!(report["requests"], 3);
    assert_eq!(report["first_unix_ns"], report["last_unix_ns"]);
    assert_eq!((&report["fit"], &report["gaps_ns"]), (&Value::Null, &Value::Null));
}

#[test]
fn serves_consecutive_connections() {
    let recorder = start(&["--requests=20"]);
    for _ in 0..20 {
        let mut stream = recorder.connect();
        stream.write_all(REQUEST).unwrap();
        read_replies(&mut stream, 1);
    }
    let report = recorder.report();
    assert_eq!((&report["connections"], &report["requests"]), (&20.into(), &20.into()));
}

#[test]
fn limits_the_number_of_connections() {
    let recorder = start(&["--connections=1"]);
    let (mut one, mut other) = (recorder.connect(), recorder.connect());
    one.write_all(REQUEST).unwrap();
    read_replies(&mut one, 1);
    other.write_all(REQUEST).unwrap();
    // The second connection stays in the accept queue until the first is closed.
    one.write_all(REQUEST).unwrap();
    read_replies(&mut one, 1);
    other.set_nonblocking(true).unwrap();
    let error = other.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    other.set_nonblocking(false).unwrap();
    drop(one);
    read_replies(&mut other, 1);
    recorder.stop();
    let report = recorder.report();
    assert_eq!((&report["connections"], &report["requests"]), (&2.into(), &3.into()));
}

#[test]
fn rejects_invalid_arguments() {
    for arguments in
        [&["--rate", "0"][..], &["--rate", "nan"], &["--listen", "x"], &["--backlog", "0"]]
    {
        let mut command = Command::new(env!("CARGO_BIN_EXE_recorder"));
        let output = command.args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!output.stderr.is_empty());
    }
}
