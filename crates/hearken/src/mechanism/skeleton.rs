//! A template for a new mechanism. It compiles, and reports no events.
//!
//! To add a mechanism, make these edits in `crates/hearken`, here for one called `my-mechanism`:
//!
//! ```text
//! copy  src/mechanism/skeleton.rs  to  src/mechanism/my_mechanism.rs
//! rename  Skeleton  to  MyMechanism  in  src/mechanism/my_mechanism.rs
//! rename  "skeleton"  to  "my-mechanism"  in  src/mechanism/my_mechanism.rs
//! add  pub mod my_mechanism;  after  mod table;  in  src/mechanism/mod.rs
//! add  my_mechanism => $crate::mechanism::my_mechanism::MyMechanism,  at the end of the table in  src/mechanism/table.rs
//! ```
//!
//! The mechanism then takes part in the contract suite, the benchmarks, the command line, the lab
//! and the C interface. Fill in the body until the suite passes:
//!
//! ```text
//! cargo test -p hearken --test mechanisms -- contract::my-mechanism
//! ```
//!
//! `auto` ignores the mechanism unless its `Open` sets `AUTO` to true.
//!
//! Begin the file with the pitfalls of the mechanism. Give each a letter and state how the code
//! handles it. The type, `Open` and `Mechanism` follow in this order. Some pitfalls are common to
//! all:
//!
//! a) The caller keeps a descriptor open from `declare` to `revoke` and identifies it by one token.
//!    The mechanism handles all other changes of the descriptor.
//! b) The next wait must report conditions that held before `declare`. If the kernel reports
//!    changes only, query it (poll(2) with a timeout of 0) after registering, never before.
//! c) `closing` can omit calls: the kernel revokes some registrations when a descriptor is closed.
//! d) A signal handler ends a wait with `EINTR`. `wait_with_mask` needs a body, unless `descriptor`
//!    returns one.
//! e) The contract suite covers the table, so a new mechanism needs no tests for the contract. Its
//!    own properties (an option, an overflow) get a file under `tests/`.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use super::{Mechanism, Open, Options, Semantics, Unavailable};
use crate::event::{Event, Interest, Token};

/// A mechanism without events.
#[derive(Debug)]
pub struct Skeleton {
    /// The last batch in the kernel's format. `event` translates single events on demand.
    batch: Vec<Event>,
    calls: u64,
}

impl Open for Skeleton {
    const NAME: &'static str = "skeleton";
    const SUMMARY: &'static str = "a mechanism without events";
    const SEMANTICS: Semantics = Semantics::COMMON;

    fn open_with(_: &Options) -> Result<Skeleton, Unavailable> {
        // Make the system calls that the kernel may refuse. Explain in `remedy` how to allow them.
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
