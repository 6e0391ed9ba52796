//! The interfaces of the papers, and programs that follow their figures. A statement in which a
//! program differs from its figure is compiled in both forms: `AS_PRINTED` selects the printed one.

use std::process::Command;

use hearken::mechanism::{TABLE, find};

use super::{Installed, check_server, crate_dir, installed, run};

/// The result of compiling a figure as it is printed.
enum Printed {
    Compiles,
    /// One of these messages, with which it is rejected.
    Rejected(&'static [&'static str]),
}

use Printed::{Compiles, Rejected};

/// The errata of `docs/papers.md`: the program, the macros that select the figure, and the result.
const FIGURES: &[(&str, &[&str], Printed)] = &[
    ("banga-fig2", &[], Compiles),
    ("banga-fig3", &[], Rejected(&["incompatible pointer type", "expected ‘)’", "expected ')'"])),
    ("rt-signals", &["ELLIPSIS"], Rejected(&["expected expression"])),
    ("rt-signals", &["SEMICOLON"], Rejected(&["expected ‘;’", "expected ';'"])),
    ("rt-signals", &[], Compiles),
    ("liu-fig1", &[], Compiles),
    ("liu-fig4", &[], Rejected(&["‘ts’ undeclared", "undeclared identifier 'ts'"])),
    ("liu-fig5", &[], Compiles),
    ("gammo-ctlv", &[], Compiles),
    ("processwide", &[], Compiles),
];

impl Installed {
    /// Returns the command that compiles a program of the papers.
    fn compiler(&self, name: &str) -> Command {
        let include = self.0.path().join("include");
        let mut command = Command::new("cc");
        command.args(["-std=gnu11", "-Wall", "-Wextra", "-Wno-unused-but-set-variable"]);
        command.arg("-I").arg(&include).arg("-I").arg(include.join("hearken/papers"));
        command.arg(crate_dir().join(format!("tests/papers/{name}.c")));
        command.env("LC_ALL", "C.UTF-8");
        command
    }

    /// Compiles the corrected form of a program.
    fn corrected(&self, name: &str) -> Command {
        let program = self.0.path().join(name);
        let mut command = self.compiler(name);
        command.arg("-Werror").arg("-o").arg(&program).arg("-L").arg(self.lib());
        run(command.args(["-lhearken", "-lpthread"]));
        self.command(&program)
    }
}

#[test]
fn figures_as_printed_compile_or_are_in_the_errata() {
    let Some(installed) = installed() else { return };
    for (name, macros, printed) in FIGURES {
        let mut command = installed.compiler(name);
        command.args(["-fsyntax-only", "-DAS_PRINTED"]);
        command.args(macros.iter().map(|name| format!("-D{name}")));
        let output = command.output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        match printed {
            Compiles => assert!(output.status.success(), "{name}: {stderr}"),
            Rejected(reasons) => {
                assert!(!output.status.success(), "{name} compiles");
                let found = reasons.iter().any(|reason| stderr.contains(reason));
                assert!(found, "{name}: {stderr}");
            }
        }
    }
}

#[test]
fn corrected_figures_serve_over_sockets() {
    let Some(installed) = installed() else { return };
    for name in ["banga-fig2", "rt-signals", "liu-fig1", "liu-fig4", "gammo-ctlv"] {
        assert!(check_server(&mut installed.corrected(name), name));
    }
}

#[test]
fn the_interface_of_banga_serves_over_every_mechanism() {
    let Some(installed) = installed() else { return };
    let mut command = installed.corrected("banga-fig3");
    let names = TABLE.iter().map(|entry| entry.name).chain(["auto", "uring-poll:shots=one"]);
    for name in names.filter(|name| find(name).unwrap().open().is_ok()) {
        check_server(command.env("HEARKEN_EVENTS", name), name);
    }
}

#[test]
fn threads_share_interest() {
    let Some(installed) = installed() else { return };
    let program = installed.corrected("processwide");
    for mechanism in ["epoll-edge", "poll", "rt-signal"] {
        for kind in ["processwide", "wakeup-one"] {
            let mut command = installed.command(program.get_program().as_ref());
            check_server(command.arg(kind).env("HEARKEN_EVENTS", mechanism), mechanism);
        }
    }
}
