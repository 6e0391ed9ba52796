//! Tests of the `hearken` program: output, exit status and error messages of every command.
//!
//! All tests start the program and use only the loopback interface. Run them with
//! `cargo test -p hearken-cli --test cli`, the tests of one command with `... --test cli serve::`,
//! and a single one with `... --test cli serve::a_log_and_metrics_are_written`.

#[path = "../program/mod.rs"]
mod program;

mod ab;
mod agents;
mod commands;
mod deploy;
mod lab;
mod load;
mod load_inputs;
mod load_output;
mod load_status;
mod proxy;
mod results;
mod serve;
mod tls;
