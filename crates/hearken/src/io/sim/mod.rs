//! A simulated network: virtual time, links with delays and windows, faults, and [`Io`](super::Io)
//! over it.
//!
//! Programs written for [`Io`](super::Io) run over [`SimIo`] unchanged, in one thread, thousands of
//! times per second. Everything that happens follows from the [`Decisions`]: the same bytes give
//! the same history.
//!
//! ```
//! use hearken::io::sim::{Decisions, NetworkSettings, SimIo, SimIoSettings, World};
//! use hearken::io::{CompletionKind, Io, ListenOptions};
//! use std::net::SocketAddr;
//!
//! let world = World::new(Decisions::from_seed(1), NetworkSettings::default());
//! let mut server = SimIo::new(&world.host([10, 0, 0, 1].into()), SimIoSettings::default());
//! let mut client = SimIo::new(&world.host([10, 0, 0, 2].into()), SimIoSettings::default());
//! let address = SocketAddr::from(([10, 0, 0, 1], 80));
//! let listener = server.listen(&address.into(), &ListenOptions::default())?;
//! server.start(listener);
//! client.connect(&address.into(), None)?;
//! // Waits take no time, since the clock is virtual.
//! let completion = loop {
//!     server.wait(None)?;
//!     if let Some(completion) = server.next() {
//!         break completion;
//!     }
//! };
//! assert!(matches!(completion.kind, CompletionKind::Accepted { .. }));
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! A [`World`] contains the network. A [`Host`] is one program's view of it: non-blocking sockets, a
//! clock and a wake-up. A wait without events advances the clock, unless the host has a
//! [waiter](Host::set_waiter), by which a scheduler runs several programs.

mod checked;
mod decisions;
mod host;
mod kernel;
mod mechanism;
mod network;
mod ring;
mod sim_io;
mod socket;
mod world;

pub use checked::Checked;
pub use decisions::Decisions;
pub use host::{Host, SocketId};
pub use kernel::{KernelFaults, SimKernel};
pub use mechanism::{MechanismSettings, SimMechanism};
pub use ring::{RingFaults, SimRing, uring};
pub use sim_io::{Faults, SimIo, SimIoSettings};
pub use world::{NetworkSettings, TraceEntry, World};

use std::io;

use super::readiness::{Policy, ReadinessIo};

/// Creates a [`ReadinessIo`] over a simulated mechanism and a simulated kernel of a host, which
/// nothing else uses.
///
/// # Errors
/// Those of [`Mechanism::declare`](crate::Mechanism::declare).
pub fn readiness(
    host: &Host,
    mechanism: MechanismSettings,
    faults: KernelFaults,
    policy: Policy,
) -> io::Result<ReadinessIo<SimMechanism, SimKernel>> {
    let kernel = SimKernel::new(host, faults);
    let mechanism = SimMechanism::new(&kernel, mechanism);
    let wakeups = kernel.wakeups();
    ReadinessIo::over(kernel, mechanism, policy, host.waker(), wakeups)
}
