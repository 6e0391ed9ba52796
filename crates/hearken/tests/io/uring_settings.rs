//! io_uring as another implementation of `Io`, under the settings that change its behaviour.

use std::fmt;
use std::time::Duration;

use hearken::io::uring::{SendsBy, Settings, UringIo};
use hearken::mechanism::Unavailable;

use crate::suite::{self, Target};
use crate::{Case, Clause};

/// Settings with their name.
#[derive(Clone, Copy)]
pub(crate) struct Setting {
    pub(crate) name: &'static str,
    pub(crate) make: fn() -> Settings,
    /// See [`Case`].
    pub(crate) turn_bytes: Option<usize>,
    /// See [`Case`].
    pub(crate) bulk_bytes: Option<usize>,
}

/// The settings. Those after the first two are selected pairwise.
pub(crate) const ALL: &[Setting] = &[
    Setting { name: "default", make: Settings::default, turn_bytes: None, bulk_bytes: None },
    Setting { name: "ring", make: ring, turn_bytes: None, bulk_bytes: None },
    Setting { name: "tiny", make: tiny, turn_bytes: Some(1000), bulk_bytes: None },
    Setting { name: "hurried", make: hurried, turn_bytes: None, bulk_bytes: Some(64 * 1024) },
    Setting { name: "narrow", make: narrow, turn_bytes: None, bulk_bytes: None },
];

/// Number of settings under which every clause runs by default.
const ALWAYS: usize = 2;

/// Returns whether a clause, given by its index, runs under `setting` by default. `required` is the
/// name of the only setting under which it tests something.
pub(crate) fn is_selected(setting: &Setting, clause: usize, required: Option<&str>) -> bool {
    let index = ALL.iter().position(|other| other.name == setting.name).unwrap_or(0);
    match required {
        Some(required) if ALL.iter().any(|setting| setting.name == required) => {
            setting.name == required
        }
        _ => index < ALWAYS || ALWAYS + suite::pairwise(clause, 0, ALL.len() - ALWAYS) == index,
    }
}

/// Returns settings with few small buffers.
fn tiny() -> Settings {
    let mut settings = Settings::default();
    (settings.buffers, settings.buffer_size) = (2, 64);
    (settings.head_size, settings.turn_bytes) = (64, 1000);
    settings
}

/// Returns settings that allow one large transfer per turn.
fn hurried() -> Settings {
    let mut settings = Settings::default();
    (settings.turn_bytes, settings.turn_time) = (64 * 1024, Duration::from_nanos(1));
    settings
}

/// Returns settings with queues that run full.
fn narrow() -> Settings {
    let mut settings = ring();
    (settings.submissions, settings.completions) = (8, 16);
    settings.buffers = 100;
    settings
}

/// Returns settings that send through the ring only.
fn ring() -> Settings {
    let mut settings = Settings::default();
    settings.sends = SendsBy::Ring;
    settings
}

/// Runs `clause` over io_uring.
pub(crate) fn over_uring(setting: &Setting, clause: Clause<UringIo>) {
    clause(&Case {
        io: &|| UringIo::new((setting.make)()).unwrap(),
        wakes_when_idle: false,
        turn_bytes: setting.turn_bytes,
        bulk_bytes: setting.bulk_bytes,
        accept_limit: None,
        max_waits: 1,
        keeps_interest: true,
        has_handshake: false,
    });
}

impl Target for Setting {
    fn probe(&self) -> Result<(), Unavailable> {
        let make = self.make;
        let thread = std::thread::spawn(move || UringIo::new(make()).map(drop));
        thread.join().unwrap()
    }

    fn is_privileged(&self) -> bool {
        false
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "uring::{}", self.name)
    }
}
