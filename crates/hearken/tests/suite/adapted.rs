//! The adapters, each over a mechanism that needs it.

use hearken::mechanism::epoll::{Edge, Epoll, Mode};
use hearken::mechanism::rt_signal::RtSignal;
use hearken::mechanism::trigger::AsLevel;
use hearken::mechanism::{Open, Trigger, Unavailable, find};

use super::AnyMechanism;

/// Opens an instance.
pub(crate) type OpenFn = fn() -> Result<AnyMechanism, Unavailable>;

/// The adapters, and mechanisms with numbers as options, with their names. The table contains `dev-poll`, which is an adapter over epoll
/// that trusts hints.
pub(crate) const ALL: &[(&str, OpenFn)] = &[
    ("level-over-edge", || Ok(Box::new(AsLevel::new(Epoll::<Edge>::open()?)))),
    ("level-over-signals", || Ok(Box::new(AsLevel::new(RtSignal::open()?)))),
    ("level-over-one-shot", || Ok(Box::new(AsLevel::new(one_shot()?)))),
    ("one-shot", || Ok(Box::new(one_shot()?))),
    ("dev-poll-with-two-hints", || find("dev-poll:hints=2").expect("valid").open()),
    ("busy-locality", || find("locality:tuning=fixed:n=2:busy=20").expect("valid").open()),
];

/// epoll(7) with EPOLLONESHOT, for machines where no other one-shot mechanism is available.
#[derive(Debug)]
pub(crate) struct OneShot;

impl Mode for OneShot {
    const NAME: &'static str = "one-shot";
    const SUMMARY: &'static str = "epoll(7), one-shot";
    const TRIGGER: Trigger = Trigger::OneShot;
    const REGISTERS_BOTH: bool = false;
}

fn one_shot() -> Result<Epoll<OneShot>, Unavailable> {
    Epoll::open()
}
