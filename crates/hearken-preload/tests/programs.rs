//! Programs in C under the preloaded library, over every mechanism. Without a C compiler, the tests
//! say so and pass.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use hearken::mechanism::{Semantics, TABLE, Trigger, Watches};

fn crates() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Returns the library, which cargo builds next to the tests.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.with_file_name("libhearken_preload.so")
}

/// Compiles a program. Returns nothing without a compiler.
fn compile(directory: &Path, source: &str, flags: &[&str]) -> Option<PathBuf> {
    if !Command::new("cc").arg("--version").output().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: there is no C compiler");
        return None;
    }
    let include = crates().join("hearken-capi/include");
    let program = directory.join("program");
    let mut command = Command::new("cc");
    command.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror"]).args(flags);
    command.arg("-I").arg(&include).arg("-I").arg(include.join("hearken/papers"));
    command.arg(crates().join(source)).arg("-o").arg(&program).arg("-lpthread");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}

fn preloaded(program: &Path, mechanism: &str) -> Command {
    let mut command = Command::new(program);
    command.env("LD_PRELOAD", library()).env("HEARKEN_EVENTS", mechanism);
    command.env("HEARKEN_PRELOAD", "devpoll,poll,epoll");
    command
}

/// Runs a function with each mechanism that is available here.
fn over_every_mechanism(mut run: impl FnMut(&str, Semantics)) {
    let mut count = 0;
    for entry in TABLE.iter().filter(|entry| entry.spec().probe().is_ok()) {
        run(entry.name, entry.semantics);
        count += 1;
    }
    assert!(count > 5, "only {count} mechanisms are available");
}

#[test]
fn calls_behave_as_in_the_kernel() {
    let directory = tempfile::tempdir().unwrap();
    for flags in [&["-O0"][..], &["-O2", "-D_FORTIFY_SOURCE=2", "-D_FILE_OFFSET_BITS=64"]] {
        let source = "hearken-preload/tests/semantics.c";
        let Some(program) = compile(directory.path(), source, flags) else { return };
        over_every_mechanism(|mechanism, semantics| {
            let mut abilities = String::new();
            if semantics.trigger == Trigger::Edge {
                abilities.push('e');
            }
            if semantics.watches == Watches::Any {
                abilities.push('n');
            }
            let output = preloaded(&program, mechanism).arg(abilities).output().unwrap();
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{mechanism} {flags:?}: {stderr}");
            assert!(stderr.contains("sendmsg is refused"), "{mechanism}: {stderr}");
        });
    }
}

/// A server, which is ended when it is dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Checks an echo server.
fn check_echo(mut command: Command, mechanism: &str) {
    let child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut server = Server(child);
    let mut port = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut port).unwrap();
    let port: u16 = port.trim().parse().unwrap_or_else(|_| panic!("{mechanism}: no port"));
    let connect = |_| TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut clients: Vec<TcpStream> = (0..3).map(connect).collect();
    for round in 0..3 {
        for client in &mut clients {
            let sent = format!("{mechanism} {round}");
            client.write_all(sent.as_bytes()).unwrap();
            let mut received = vec![0; sent.len()];
            client.read_exact(&mut received).unwrap();
            assert_eq!(received, sent.as_bytes());
        }
    }
    clients[0].shutdown(Shutdown::Write).unwrap();
    assert_eq!(clients[0].read(&mut [0]).unwrap(), 0, "{mechanism}: the server closes");
}

#[test]
fn the_servers_of_the_papers_run_over_every_mechanism() {
    for name in ["banga-fig2", "liu-fig1", "liu-fig5", "gammo-ctlv"] {
        let directory = tempfile::tempdir().unwrap();
        let source = format!("hearken-capi/tests/papers/{name}.c");
        let Some(program) = compile(directory.path(), &source, &[]) else { return };
        over_every_mechanism(|mechanism, _| {
            check_echo(preloaded(&program, mechanism), mechanism);
        });
    }
}

#[test]
fn invalid_settings_end_the_program_with_a_reason() {
    let check = |variable: &str, value: &str, reason: &str| {
        let mut command = preloaded(Path::new("/bin/true"), "poll");
        let output = command.env(variable, value).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(reason), "{stderr}");
    };
    check("HEARKEN_PRELOAD", "kqueue", "unknown interface 'kqueue'");
    check("HEARKEN_EVENTS", "kqueue", "kqueue");
}
