//! Event delivery for network servers on Linux: every mechanism behind one small interface.
//!
//! The way in is [`EventQueue`]: [`declare_interest`](EventQueue::declare_interest) in a
//! descriptor, then take [`next_events`](EventQueue::next_events). Servers that want to be written
//! once for readiness and completion alike speak operations instead: [`io::Io`].
//!
//! | module | what is in it |
//! |---|---|
//! | [`event`] | `Token`, `Interest`, `Readiness`, `Event` |
//! | [`mechanism`] | the trait, one file for each mechanism, and the table of them |
//! | [`queue`] | `EventQueue` |
//! | [`timer`] | the timing wheel |
//! | [`clock`] | how far the machine's real-time clock can be trusted |
//! | [`io`] | operations and completions for servers |
//! | [`descriptors`] | how many of them there may be, and threads with a table of their own |
//! | [`limit`] | which limit an error of the kernel tells of |

pub mod clock;
pub mod descriptors;
pub mod event;
pub mod io;
pub mod limit;
pub mod mechanism;
pub mod queue;
mod ring;
mod sys;
pub mod timer;
mod unavailable;
pub mod waker;

pub use event::{Event, Interest, Readiness, Token};
pub use mechanism::{Mechanism, Semantics};
pub use queue::{EventQueue, Registration};
pub use waker::{Waker, Wakeups};
