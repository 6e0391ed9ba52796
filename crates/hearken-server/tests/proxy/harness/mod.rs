//! Clients, origins, and proxies between them.

// Each part is used by some of the suites.
#![allow(dead_code)]

pub(crate) mod admin;
pub(crate) mod link;
pub(crate) mod origin;
pub(crate) mod process;
pub(crate) mod proxy;
pub(crate) mod wire;

use std::sync::OnceLock;
use std::time::{Duration, Instant};

pub(crate) use link::{End, HANG, Link};
pub(crate) use origin::{Notes, Origin, Peer};
pub(crate) use proxy::{Proxy, Way};
pub(crate) use wire::{Framing, Kind, Message, latin1};

pub(crate) const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Waits until it is so, for as long as only a hang takes.
#[track_caller]
pub(crate) fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !so() {
        assert!(since.elapsed() < HANG, "not within {HANG:?}: {what}");
        std::thread::sleep(ms(2));
    }
}

const PATTERN: usize = 4 << 20;

/// `length` bytes that are another's for another `id`.
pub(crate) fn content(id: u64, length: usize) -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    let bytes = BYTES.get_or_init(|| {
        // xorshift: no two places are alike.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        (0..PATTERN / 8).flat_map(|_| next().to_le_bytes()).collect()
    });
    let from = usize::try_from(id * 4099 % 2_000_003).unwrap_or(0);
    &bytes[from..from + length]
}
