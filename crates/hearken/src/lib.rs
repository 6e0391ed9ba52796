//! Event delivery for network servers on Linux: every event-dispatch mechanism behind one
//! interface.
//!
//! Start with [`EventQueue`]: [`declare_interest`](EventQueue::declare_interest) in descriptors,
//! then take [`next_events`](EventQueue::next_events). [`io::Io`] offers operations and completions
//! instead. A server written for it runs on readiness mechanisms and on io_uring.
//!
//! | module | contents |
//! |---|---|
//! | [`event`] | `Token`, `Interest`, `Readiness`, `Event` |
//! | [`mechanism`] | the trait `Mechanism`, one file per mechanism, and the table of mechanisms |
//! | [`queue`] | `EventQueue` |
//! | [`timer`] | the timing wheel |
//! | [`clock_sync`] | the accuracy of the machine's real-time clock |
//! | [`io`] | operations and completions for servers |
//! | [`task`] | asynchronous tasks over `Io` |
//! | [`descriptors`] | limits of open files, and threads with their own file descriptor table |
//! | [`limit`] | the resource limits that kernel errors report |

pub mod clock_sync;
pub mod descriptors;
pub mod event;
pub mod io;
pub mod limit;
pub mod mechanism;
pub mod queue;
mod ring;
mod sync;
mod sys;
pub mod task;
pub mod timer;
mod unavailable;
pub mod waker;

pub use event::{Event, Interest, Readiness, Token};
pub use mechanism::{Mechanism, Semantics};
pub use queue::{EventQueue, Registration};
pub use waker::{Waker, Wakeups};

/// Compiles and runs the example in README.md.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
