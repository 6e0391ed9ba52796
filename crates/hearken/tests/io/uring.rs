//! io_uring as one more implementation, under the settings that matter.

use std::fmt;
use std::time::Duration;

use hearken::io::uring::{SendsBy, Settings, UringIo};
use hearken::mechanism::Unavailable;

use crate::suite::{Any, Variant};
use crate::{Case, Clause};

/// Settings with their name.
#[derive(Clone, Copy)]
pub(crate) struct Setting {
    name: &'static str,
    make: fn() -> Settings,
    /// As in [`Case`].
    share: Option<usize>,
    hurry: Option<usize>,
}

pub(crate) const ALL: &[Setting] = &[
    Setting { name: "default", make: Settings::default, share: None, hurry: None },
    Setting { name: "tiny", make: tiny, share: Some(1000), hurry: None },
    Setting { name: "hurried", make: hurried, share: None, hurry: Some(64 * 1024) },
    Setting { name: "narrow", make: narrow, share: None, hurry: None },
    Setting { name: "ring", make: ring, share: None, hurry: None },
];

/// Few buffers that hold little.
fn tiny() -> Settings {
    let mut settings = Settings::default();
    (settings.buffers, settings.buffer_size) = (2, 64);
    (settings.head_size, settings.turn_bytes) = (64, 1000);
    settings
}

/// A turn has time for one large transfer.
fn hurried() -> Settings {
    let mut settings = Settings::default();
    (settings.turn_bytes, settings.turn_time) = (64 * 1024, Duration::from_nanos(1));
    settings
}

/// Queues that run full.
fn narrow() -> Settings {
    let mut settings = ring();
    (settings.submissions, settings.completions) = (8, 16);
    settings.buffers = 100;
    settings
}

/// Sends by the ring only.
fn ring() -> Settings {
    let mut settings = Settings::default();
    settings.sends = SendsBy::Ring;
    settings
}

/// Hands `clause` a case of io_uring.
pub(crate) fn over(setting: &Setting, clause: Clause<UringIo>) {
    clause(&Case {
        io: &|| UringIo::new((setting.make)()).unwrap(),
        spins: false,
        share: setting.share,
        hurry: setting.hurry,
        accepts: None,
        steady: true,
    });
}

impl Variant for Setting {
    fn try_open(&self) -> Result<Any, Unavailable> {
        unreachable!("it is no mechanism")
    }

    fn probe(&self) -> Result<(), Unavailable> {
        let make = self.make;
        let apart = std::thread::spawn(move || UringIo::new(make()).map(drop));
        apart.join().unwrap()
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
