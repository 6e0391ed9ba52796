//! Installs the library with `scripts/install-c`, and runs programs in C and C++ that use it.
//! Without a C compiler, the tests say so and pass.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use hearken::mechanism::TABLE;

mod papers;

/// The directory that the library is installed to.
struct Installed(tempfile::TempDir);

fn crate_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Installs the library, once. Returns nothing without a compiler.
fn installed() -> Option<&'static Installed> {
    static INSTALLED: OnceLock<Option<Installed>> = OnceLock::new();
    let installed = INSTALLED.get_or_init(|| {
        let found = |compiler: &str| {
            Command::new(compiler).arg("--version").output().is_ok_and(|out| out.status.success())
        };
        if !(found("cc") && found("c++")) {
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        run(Command::new(crate_dir().join("../../scripts/install-c"))
            .arg(directory.path())
            .env("CARGO", env!("CARGO"))
            .env("PROFILE", "dev"));
        Some(Installed(directory))
    });
    if installed.is_none() {
        eprintln!("skipped: there is no C and C++ compiler");
    }
    installed.as_ref()
}

/// Runs a command, which succeeds. Returns its output.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

impl Installed {
    fn lib(&self) -> PathBuf {
        self.0.path().join("lib")
    }

    /// Compiles a program with the flags of pkg-config's file.
    fn compile(&self, source: &str, static_library: bool) -> PathBuf {
        let source = crate_dir().join(source);
        let is_cpp = source.extension().is_some_and(|extension| extension == "cpp");
        let kind = if static_library { "static" } else { "shared" };
        let name = source.file_name().unwrap().to_string_lossy().replace('.', "-");
        let program = self.0.path().join(format!("{name}-{kind}"));
        let mut command = Command::new(if is_cpp { "c++" } else { "cc" });
        command.args([
            if is_cpp { "-std=c++17" } else { "-std=gnu11" },
            "-Wall",
            "-Wextra",
            "-Werror",
        ]);
        command.arg("-I").arg(self.0.path().join("include")).arg(&source).arg("-o").arg(&program);
        if static_library {
            command.arg(self.lib().join("libhearken.a"));
            command.args(["-lgcc_s", "-lpthread", "-lm", "-ldl"]);
        } else {
            command.arg("-L").arg(self.lib()).args(["-lhearken", "-lpthread"]);
        }
        run(&mut command);
        program
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", self.lib());
        command
    }
}

/// An echo server, which is ended when it is dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Checks an echo server over one mechanism. Returns false if the mechanism is not available.
fn check_echo(installed: &Installed, program: &Path, mechanism: &str) -> bool {
    check_server(installed.command(program).arg(mechanism), mechanism)
}

/// Checks the echo server that a command runs. Returns false if its mechanism is not available.
fn check_server(command: &mut Command, mechanism: &str) -> bool {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut server = Server(child.unwrap());
    let mut port = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut port).unwrap();
    if port.is_empty() {
        let mut reason = String::new();
        server.0.stderr.take().unwrap().read_to_string(&mut reason).unwrap();
        assert!(reason.contains("is not available"), "{mechanism}: {reason}");
        return false;
    }
    let port: u16 = port.trim().parse().unwrap();
    let connect = |_| TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut clients: Vec<TcpStream> = (0..3).map(connect).collect();
    for round in 0..3 {
        for (number, client) in clients.iter_mut().enumerate() {
            let sent = format!("{mechanism} {round} {number}\n");
            client.write_all(sent.as_bytes()).unwrap();
            let mut received = vec![0; sent.len()];
            client.read_exact(&mut received).unwrap();
            assert_eq!(received, sent.as_bytes());
        }
    }
    clients[0].shutdown(Shutdown::Write).unwrap();
    assert_eq!(clients[0].read(&mut [0]).unwrap(), 0, "{mechanism}: the server closes");
    run(Command::new("kill").args(["-TERM", &server.0.id().to_string()]));
    assert!(server.0.wait().unwrap().success(), "{mechanism}: SIGTERM ends it");
    true
}

fn check_echo_over_all(source: &str) {
    let Some(installed) = installed() else { return };
    let program = installed.compile(source, false);
    let available = |name: &&str| check_echo(installed, &program, name);
    let names = TABLE.iter().map(|entry| entry.name);
    let count = names.chain(["auto"]).filter(available).count();
    assert!(count > 5, "only {count} mechanisms are available");
}

#[test]
fn a_server_in_c_runs_over_every_mechanism() {
    check_echo_over_all("examples/echo.c");
}

#[test]
fn a_server_in_cpp_runs_over_every_mechanism() {
    check_echo_over_all("examples/echo.cpp");
}

#[test]
fn invalid_arguments_are_errors() {
    let Some(installed) = installed() else { return };
    for static_library in [false, true] {
        let program = installed.compile("tests/arguments.c", static_library);
        run(&mut installed.command(&program));
    }
}

#[test]
fn the_library_exports_the_listed_symbols_only() {
    let Some(installed) = installed() else { return };
    let listed = fs::read_to_string(crate_dir().join("hearken.map")).unwrap();
    let mut lines = listed.lines().map(|line| line.trim().trim_end_matches(';'));
    let listed: BTreeSet<&str> =
        lines.by_ref().filter(|line| line.starts_with("hearken_")).collect();
    let library = installed.lib().join("libhearken.so.0");
    let exported = run(Command::new("nm").args(["-D", "--defined-only"]).arg(&library));
    let symbols = exported.lines().filter_map(|line| line.split(' ').next_back());
    let symbols: BTreeSet<&str> = symbols.filter(|name| !name.starts_with("HEARKEN_")).collect();
    let versioned: BTreeSet<String> =
        listed.iter().map(|name| format!("{name}@@HEARKEN_0.1")).collect();
    assert_eq!(symbols, versioned.iter().map(String::as_str).collect());
    let header = |name| fs::read_to_string(crate_dir().join("include").join(name)).unwrap();
    let header = header("hearken.h") + &header("hearken/papers/banga.h");
    for name in listed {
        assert!(header.contains(&format!("{name}(")), "the header does not declare {name}");
    }
}
