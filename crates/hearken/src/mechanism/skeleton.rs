//! The guide to adding a mechanism: copy this file, fill it in, add one line to
//! [`for_each_mechanism!`](crate::for_each_mechanism). It compiles, and watches nothing.
//!
//! Open with what would catch whoever changes it next, lettered, and say at each what the code does
//! about it. Then, in this order: the type, `Open`, `Mechanism`.
//!
//! a) The caller keeps a descriptor open from `declare` to `revoke`, and names it by one token all
//!    that time. All else that the kernel may do is the mechanism's to handle.
//! b) What was ready before `declare` must come out of the next wait. If the kernel tells of changes
//!    only, ask it (poll(2) with no timeout) after registering, never before.
//! c) `closing` is worth a thought: what the kernel forgets by itself need not be asked for.
//! d) Write no test here: the contract suite runs over the table. What only this mechanism has (an
//!    option, an overflow) gets a file under `tests/`.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use super::{Mechanism, Open, Options, Semantics, Trigger, Unavailable};
use crate::event::{Event, Interest, Readiness, Token};

/// A mechanism that never has an event.
#[derive(Debug)]
pub(crate) struct Skeleton {
    /// The last batch, as it came from the kernel; `event` translates what is asked for.
    batch: Vec<Event>,
    calls: u64,
}

impl Open for Skeleton {
    const NAME: &'static str = "skeleton";
    const SUMMARY: &'static str = "watches nothing";
    const SEMANTICS: Semantics = Semantics { reports: Readiness::empty(), ..Semantics::COMMON };

    fn open_with(_: &Options) -> Result<Skeleton, Unavailable> {
        // Make the system call that could be refused, and say in `remedy` what would allow it.
        Ok(Skeleton { batch: Vec::new(), calls: 0 })
    }
}

impl Mechanism for Skeleton {
    fn semantics(&self) -> &'static Semantics {
        &Self::SEMANTICS
    }

    unsafe fn declare(&mut self, _fd: RawFd, _token: Token, _interest: Interest) -> io::Result<()> {
        Ok(()) // (a), (b)
    }

    unsafe fn change(&mut self, _fd: RawFd, _token: Token, _interest: Interest) -> io::Result<()> {
        Ok(())
    }

    unsafe fn revoke(&mut self, _fd: RawFd, _token: Token) -> io::Result<()> {
        Ok(()) // (c)
    }

    fn wait(&mut self, _max: usize, timeout: Option<Duration>) -> io::Result<usize> {
        self.batch.clear();
        self.calls += 1;
        std::thread::sleep(timeout.unwrap_or(Duration::MAX));
        Ok(self.batch.len())
    }

    #[inline]
    fn event(&self, index: usize) -> Event {
        self.batch.get(index).copied().unwrap_or(super::NO_EVENT)
    }

    fn calls(&self) -> u64 {
        self.calls
    }
}

#[test]
fn compiles_and_stays_silent() {
    let mut skeleton = Skeleton::open().unwrap();
    assert_eq!(skeleton.wait(8, Some(Duration::ZERO)).unwrap(), 0);
    assert!(skeleton.event(0).readiness.is_empty());
    assert_eq!(skeleton.semantics().trigger, Trigger::Level);
}
