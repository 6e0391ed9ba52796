//! The contract of `Io` under TLS: the clauses of `hearken/tests/io`, with both sides encrypted, over
//! readiness, io_uring and simulated networks.
//! All tests: `cargo test -p hearken-tls --test io`; some: `... -- uring`.
//! All cases, which take minutes: `cargo test -p hearken-tls --test io -- --include-ignored`.

use std::process::ExitCode;

#[path = "../../../hearken/tests/io/clauses.rs"]
mod clauses;
#[path = "../../../hearken/tests/io/connections.rs"]
mod connections;
#[path = "../../../hearken/tests/io/deadlines.rs"]
mod deadlines;
#[path = "../../../hearken/tests/io/hop.rs"]
mod hop;
mod identity;
#[path = "../../../hearken/tests/io/listeners.rs"]
mod listeners;
#[path = "../../../hearken/tests/io/machine.rs"]
mod machine;
#[path = "../../../hearken/tests/io/model.rs"]
mod model;
#[path = "../../../hearken/tests/io/net.rs"]
mod net;
#[path = "../../../hearken/tests/io/receiving.rs"]
mod receiving;
#[path = "../../../hearken/tests/io/relay_ends.rs"]
mod relay_ends;
#[path = "../../../hearken/tests/io/relaying.rs"]
mod relaying;
#[path = "../../../hearken/tests/io/sending.rs"]
mod sending;
mod sessions;
#[path = "../../../hearken/tests/suite/mod.rs"]
mod suite;
mod transports;
#[path = "../../../hearken/tests/io/turns.rs"]
mod turns;
#[path = "../../../hearken/tests/io/unix.rs"]
mod unix;

use clauses::Case;

fn main() -> ExitCode {
    let mut trials = transports::trials();
    trials.extend(suite::plain_trials("sessions", sessions::tests()));
    suite::run(trials)
}
