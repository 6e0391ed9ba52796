//! Event threads: one asynchronous task per connection, over any [`Io`](crate::io::Io).
//!
//! The server dphttpd of Liu and Chen ("A scalable locality-aware event dispatching mechanism for
//! network servers") gives each connection a thread at user level on top of an event library. It
//! reads like a sequence of blocking calls, and costs little more than an event loop. Here the
//! compiler makes these threads: a task is a `Future`, and its stack is exactly what it needs across
//! its waits.
//!
//! ```
//! use hearken::task::{self, TcpListener, TcpStream};
//! use std::io;
//!
//! async fn echo(stream: TcpStream) -> io::Result<()> {
//!     loop {
//!         // Lends the bytes from the buffer into which they were received.
//!         let bytes = stream.receive().await?;
//!         if bytes.is_empty() {
//!             return Ok(());
//!         }
//!         stream.write_all(&bytes).await?;
//!     }
//! }
//!
//! task::block_on("auto", async {
//!     let listener = TcpListener::bind(([127, 0, 0, 1], 0).into())?;
//!     let address = listener.local_addr()?;
//!     task::spawn(async move {
//!         while let Ok(stream) = listener.accept().await {
//!             task::spawn(echo(stream));
//!         }
//!     });
//!     let client = TcpStream::connect(address).await?;
//!     client.write_all(b"hello").await?;
//!     client.shutdown().await?;
//!     assert_eq!(&*client.receive().await?, b"hello");
//!     io::Result::Ok(())
//! })??;
//! # io::Result::Ok(())
//! ```
//!
//! [`block_on`] selects the mechanism by name. An [`Executor`] runs over any `Io`, such as
//! [`io_uring`](crate::io::uring) with other settings, or a simulated
//! network.
//!
//! # Costs
//!
//! A task takes one allocation: a header of 56 bytes, and the future. A connection takes 72 bytes
//! here and about 56 in the `Io`, and no buffer while it waits. Operations allocate nothing, and
//! read no clock. A completion finds its connection by its slot. A wake-up on the executor's thread
//! is a flag and a link, without atomic operations. A wake-up from another thread takes a lock and
//! the [`Waker`](crate::waker::Waker) of the `Io`, once for all wake-ups until the executor runs.
//!
//! # Turns
//!
//! A turn of the executor is a turn of its `Io`. After each completion the woken tasks run, so
//! received bytes are used while they are in the processor's cache. Then each other ready task runs
//! once, and then some more, up to a limit. A task that wakes itself, such as by [`yield_now`],
//! runs in the next turn. So a turn ends, and no task keeps others from their events.
//!
//! A task runs until it waits. One that computes for long should yield in between.
//!
//! # Cancellation
//!
//! A future may be dropped at any time, for example by [`timeout`] or [`JoinHandle::abort`]. Each
//! operation states what then remains; see [`Stream`]. A panic of a task ends only that task: its
//! streams close, and its [`JoinHandle`] yields the panic.

mod channel;
mod connection;
mod core;
mod driver;
mod executor;
#[cfg(feature = "futures-io")]
mod futures_io;
#[cfg(feature = "hyper")]
pub mod hyper;
mod join;
mod listener;
#[cfg(all(test, not(loom)))]
mod memory_tests;
mod raw;
mod relay;
mod remote;
mod source;
mod stream;
mod time;
#[cfg(feature = "tokio-io")]
mod tokio_io;

pub use channel::{
    OneReceiver, OneSender, Receiver, SendError, Sender, TrySendError, bounded, oneshot,
};
pub use driver::{Completions, IoHandle, UnclaimedCompletions};
pub use executor::{Executor, Stopper, Stopping, Turn, block_on, spawn, stopper};
pub use join::{JoinError, JoinHandle};
pub use listener::{Listener, TcpListener, UnixListener};
pub use relay::Relayed;
pub use stream::{Received, Stream, Tcp, TcpStream, Unix, UnixStream};
pub use time::{Elapsed, Sleep, now, sleep, sleep_until, stopped, timeout, yield_now};
