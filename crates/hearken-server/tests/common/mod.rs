//! Servers, clients, origins and files that the tests share.

// Each executable uses a part.
#![allow(dead_code, unused_imports)]

pub(crate) mod admin;
pub(crate) mod client;
pub(crate) mod connection;
pub(crate) mod files;
pub(crate) mod origin;
pub(crate) mod pairwise;
pub(crate) mod process;
pub(crate) mod server;
pub(crate) mod wire;

use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

pub(crate) use client::{Client, get, request};
pub(crate) use connection::{Connection, End};
pub(crate) use files::{HUGE, LARGE, Site, pattern};
pub(crate) use origin::{Origin, Peer, Recorder, Refusing};
pub(crate) use server::{
    RunningServer, Setup, limit_connections, limit_uploads, log_to, request_timeout, workers,
};
pub(crate) use wire::{Framing, Kind, Message, latin1};

/// The limit on every wait. Only a hang exceeds it.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Waits until `condition` holds. Panics with `description` after [`TEST_TIMEOUT`].
#[track_caller]
pub(crate) fn wait_until(description: &str, mut condition: impl FnMut() -> bool) {
    let since = Instant::now();
    while !condition() {
        assert!(since.elapsed() < TEST_TIMEOUT, "not within {TEST_TIMEOUT:?}: {description}");
        thread::sleep(ms(1));
    }
}

/// Asserts that `event` happened at least `expected` after `since`, and before [`TEST_TIMEOUT`].
#[track_caller]
pub(crate) fn assert_took(since: Instant, expected: Duration, event: &str) {
    let elapsed = since.elapsed();
    // The server measures from the start of its event-loop turn, which may be earlier.
    assert!(elapsed + ms(100) >= expected, "{event} after {elapsed:?}, expected {expected:?}");
    assert!(elapsed < TEST_TIMEOUT, "{event} after {elapsed:?}, expected {expected:?}");
}

/// Size of the bytes that [`content`] takes its results from.
const PATTERN: usize = 4 << 20;

/// Returns `length` bytes that differ for each `id`.
pub(crate) fn content(id: u64, length: usize) -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    let bytes = BYTES.get_or_init(|| {
        let mut random = Random::new(0);
        (0..PATTERN / 8).flat_map(|_| random.next().to_le_bytes()).collect()
    });
    let from = usize::try_from(id * 4099 % 2_000_003).unwrap_or(0);
    &bytes[from..from + length]
}

/// A pseudorandom number generator, xorshift64*: Vigna, "An experimental exploration of Marsaglia's
/// xorshift generators", 2016.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        // The state must not be zero.
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Returns a number from 0 up to, but not including, `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() >> 33) as usize % bound
    }

    pub(crate) fn choose<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}
