//! Property tests of parsing and forwarding; `reference` compares the parser with a simple, slow one.
//!
//! `PROPTEST_CASES=100000` in the environment runs more cases per property than the default.
//! Run all properties: `cargo test -p hearken-http --test properties`
//! Run a single property: `cargo test -p hearken-http --test properties forwarding::detects_forwarding_loops`

use proptest::test_runner::Config;

mod forwarding;
mod parsing;
mod reference;

/// Returns a configuration with this number of cases, unless `PROPTEST_CASES` is set.
fn cases(count: u32) -> Config {
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => Config::default(),
        None => Config::with_cases(count),
    }
}
